# A program in the service's place, under the installed unit with nothing changed but what it starts,
# tries what nobody who takes the service over may be able to do.
mkdir -p /run/systemd/system
sed -e 's/^ExecStart=.*/ExecStart=\/usr\/bin\/python3 \/opt\/system-test\/probe.py/' -e 's/^Type=.*/Type=oneshot/' \
    -e '/^Sockets=/d; /^PartOf=/d; /^Restart=/d; /^WatchdogSec=/d; /^NotifyAccess=/d' \
    -e '$a StandardOutput=file:/run/probe.out' -e '$a StandardError=inherit' \
    /usr/lib/systemd/system/portsd.service > /run/systemd/system/portsd-probe.service
systemctl daemon-reload
touch /home/mail1/private
install -d -m 0777 /opt/anybody
rm -f /run/probe.out
portsctl whoami > /dev/null
ip link set lo up
systemctl start portsd-probe.service || fail "$(cat /run/probe.out)"
cat /run/probe.out
equal 'what was possible' "$(grep -v -e '^ok ' /run/probe.out || true)" ''
[ "$(grep -c '^ok ' /run/probe.out)" -ge 25 ] || fail 'the probe has not tried all'
