# A container as modules have them: a quadlet in the user's own manager, which asks for its ports when it
# starts, and goes on with the same ones at the next start.
register mail1
user_manager mail1
quadlets=/home/mail1/.config/containers/systemd
install -d -o mail1 -g mail1 /home/mail1/.config /home/mail1/.config/containers "$quadlets"
install -d -o mail1 -g mail1 -m 0777 /home/mail1/out
cat > "$quadlets/web.container" <<'QUADLET'
[Quadlet]
# a network that is online is not needed, and not to be had here
DefaultDependencies=false
[Container]
Image=localhost/system-test
Network=none
Volume=/run/portsd:/run/portsd
Volume=/opt/system-test/container:/test:ro
Volume=/home/mail1/out:/out:Z
Environment=PORTSD_SOCKET=/run/portsd/org.nethserver.Ports
Exec=sh -c "/test/portsctl ensure web 2 tcp > /out/range 2>&1; sleep 1000"
PodmanArgs=--stop-timeout=1
[Service]
TimeoutStartSec=300
QUADLET
as_user mail1 systemctl --user daemon-reload
for _ in first second; do
    as_user mail1 systemctl --user start web.service || fail "$(journalctl -q --no-pager _UID=1000 -n 20)"
    wait_until 'it has its ports' grep -q . /home/mail1/out/range
    equal 'range' "$(cat /home/mail1/out/range)" 20000-20001
    as_user mail1 systemctl --user stop web.service
    rm -f /home/mail1/out/range
done
rm -rf "$quadlets" /home/mail1/out
as_user mail1 systemctl --user daemon-reload
