# A service of the system with User=, one of the user's own manager, and a command of the user's.
register mail1
systemd-run -q --wait -p User=mail1 -p StandardOutput=file:/tmp/scenario/who portsctl whoami --json
equal 'system service' "$(caller "$(cat /tmp/scenario/who)")" 'module mail1 1000'
equal 'command' "$(caller "$(as_user mail1 portsctl whoami --json)")" 'module mail1 1000'

user_manager mail1
as_user mail1 systemd-run --user -q --wait sh -c 'portsctl allocate 3 tcp > /home/mail1/range' ||
    fail "$(journalctl -q --no-pager _UID=1000 -n 20)"
equal 'range' "$(cat /home/mail1/range)" 20000-20002
rm /home/mail1/range
