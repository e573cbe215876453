# A service that does nothing any more is killed by the watchdog, and there again.
like 'the installed watchdog' "$(property WatchdogUSec)" '30s'
drop_in portsd.service '[Service]' 'WatchdogSec=3'
portsctl allocate 4 tcp --owner host/hung > /tmp/scenario/range
hung=$(main_pid)
kill -STOP "$hung"
# what it is asked meanwhile waits, and the next one answers
portsctl list --owner host/hung > /tmp/scenario/list &
waiting=$!
is_gone() { ! kill -0 "$hung" 2> /dev/null; }
wait_until 'the one that hangs is gone' is_gone
wait "$waiting" || true
service_is active
like 'journal' "$(journalctl -q --no-pager -u portsd.service)" '*[Ww]atchdog*'
equal 'restarts' "$(property NRestarts)" 1
equal 'range' "$(portsctl allocate 4 tcp --owner host/hung)" "$(cat /tmp/scenario/range)"
