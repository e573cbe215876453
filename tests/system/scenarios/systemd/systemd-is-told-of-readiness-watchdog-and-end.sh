# READY=1 comes when a call would be answered, WATCHDOG=1 regularly, STOPPING=1 at the end: as systemd
# itself has received it.
drop_in portsd.service '[Service]' 'WatchdogSec=2'
systemctl log-level debug
# The database is locked: it can't be ready, and systemd knows.
portsctl whoami > /dev/null
systemctl stop portsd.service
received() { journalctl -q --no-pager _PID=1 --since "$since" | grep -F 'Got notification message' | grep -qF "$1"; }
since=$(date '+%Y-%m-%d %H:%M:%S')
systemctl start portsd.service
equal 'state after a start' "$(property ActiveState) $(property SubState)" 'active running'
received READY=1 || fail 'READY=1 was not received'
wait_until 'WATCHDOG=1 is received' received WATCHDOG=1
systemctl stop portsd.service
wait_until 'STOPPING=1 is received' received STOPPING=1
systemctl log-level info
equal 'result' "$(property Result)" success
