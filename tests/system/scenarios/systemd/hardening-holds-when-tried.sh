# A program in the service's place, under the installed unit with nothing changed but what it starts,
# tries what nobody who takes the service over may be able to do.
mkdir -p /run/systemd/system
sed -e 's/^ExecStart=.*/ExecStart=\/usr\/bin\/python3 \/opt\/system-test\/probe.py/' -e 's/^Type=.*/Type=oneshot/' \
    -e '/^Sockets=/d; /^PartOf=/d; /^Restart=/d; /^WatchdogSec=/d; /^NotifyAccess=/d' \
    -e '$a StandardOutput=file:/run/probe.out' -e '$a StandardError=inherit' \
    /usr/lib/systemd/system/portsd.service > /run/systemd/system/portsd-probe.service
systemctl daemon-reload
# what the service could do without the hardening, as far as modes go
install -d -m 0777 /opt/anybody
install -d -m 0755 /home/anybody
touch /home/anybody/file /tmp/scenario/file
[ -e /dev/anybody ] || mknod -m 0666 /dev/anybody c 5 0
ip link set lo up
ip address replace 192.0.2.1/32 dev lo
clean_up() { rm -rf /opt/anybody /home/anybody /dev/anybody; ip address del 192.0.2.1/32 dev lo; }
trap clean_up EXIT
portsctl whoami > /dev/null
rm -f /run/probe.out
systemctl start portsd-probe.service || fail "$(cat /run/probe.out)"
cat /run/probe.out
equal 'what was possible' "$(grep -v -e '^ok ' /run/probe.out || true)" ''
[ "$(grep -c '^ok ' /run/probe.out)" -ge 45 ] || fail 'the probe has not tried all'
# with the last process of its user
systemctl stop portsd.service
equal 'shared memory that is left' "$(ipcs --shmems | awk '$3 == "portsd"')" ''
