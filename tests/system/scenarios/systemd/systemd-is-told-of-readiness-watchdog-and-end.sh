# READY=1 comes when a call would be answered and not before, WATCHDOG=1 regularly, STOPPING=1 at the end:
# as systemd itself has received it.
drop_in portsd.service '[Service]' 'WatchdogSec=2'
systemctl log-level debug
trap 'systemctl log-level info' EXIT
portsctl whoami > /dev/null
systemctl stop portsd.service
received() { journalctl -q --no-pager _PID=1 --since "$since" | grep -F 'portsd.service: Got notification message' |
    grep -qF "$1"; }

# As long as somebody has the database for himself, nothing can be answered.
mkfifo /tmp/scenario/release
python3 -c 'import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.execute("PRAGMA locking_mode=EXCLUSIVE")
database.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
open(sys.argv[2]).read()' "$DATABASE" /tmp/scenario/release > /tmp/scenario/locked &
wait_until 'the database is locked' grep -q locked /tmp/scenario/locked
since=$(date '+%Y-%m-%d %H:%M:%S.%6N')
systemctl start --no-block portsd.service
has_opened() { readlink "/proc/$(main_pid)/fd/"* 2> /dev/null | grep -qxF "$DATABASE"; }
wait_until 'it has opened the database' has_opened
sleep 2
equal 'state while the database is locked' "$(property ActiveState)" activating
received READY=1 && fail 'READY=1 was received while the database was locked'
: > /tmp/scenario/release
wait
service_is active
equal 'state once it is released' "$(property SubState)" running
received READY=1 || fail 'READY=1 was not received'
wait_until 'WATCHDOG=1 is received' received WATCHDOG=1
systemctl stop portsd.service
wait_until 'STOPPING=1 is received' received STOPPING=1
equal 'result' "$(property Result)" success
