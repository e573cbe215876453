# A service that does nothing any more is killed by the watchdog, and there again. What it was asked
# meanwhile has waited in the socket, and is answered by the next one.
# systemd knows it when the service has started
portsctl whoami > /dev/null
like 'the installed watchdog' "$(property WatchdogUSec)" '30s'
systemctl stop portsd.service
drop_in portsd.service '[Service]' 'WatchdogSec=3'
portsctl allocate 4 tcp --owner host/hung > /tmp/scenario/range
portsctl list --owner host/hung > /tmp/scenario/before
hung=$(main_pid)
kill -STOP "$hung"
portsctl list --owner host/hung > /tmp/scenario/after &
waiting=$!
is_gone() { ! kill -0 "$hung" 2> /dev/null; }
wait_until 'the one that hangs is gone' is_gone
wait "$waiting" || fail 'who asked meanwhile was not answered'
equal 'the answer' "$(cat /tmp/scenario/after)" "$(cat /tmp/scenario/before)"
service_is active
like 'journal' "$(journalctl -q --no-pager -u portsd.service)" '*[Ww]atchdog*'
equal 'restarts' "$(property NRestarts)" 1
equal 'range' "$(portsctl allocate 4 tcp --owner host/hung)" "$(cat /tmp/scenario/range)"
