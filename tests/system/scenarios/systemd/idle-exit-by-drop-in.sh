# With one line in a drop-in the service ends when nobody needs it, and comes back with the next call.
drop_in portsd.service '[Service]' 'ExecStart=' 'ExecStart=/usr/sbin/portsd --idle-exit 1'
portsctl allocate 4 tcp --owner host/idle > /tmp/scenario/range
service_is inactive
equal 'result' "$(property Result)" success
equal 'restarts' "$(property NRestarts)" 0
sockets_listen

# whoever is connected keeps it
mkfifo /tmp/scenario/leave
python3 -c 'import socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
print("connected", flush=True)
open(sys.argv[2]).read()' "$MODULE" /tmp/scenario/leave > /tmp/scenario/connected &
wait_until 'a client is connected' grep -q connected /tmp/scenario/connected
service_is active
pid=$(main_pid)
sleep 3
equal 'service of a connected client' "$(main_pid)" "$pid"
: > /tmp/scenario/leave
wait
service_is inactive

# Calls that fall into the end are answered: they come when the service is about to end, and a little later
# each time, until it has ended before.
ends() { journalctl -q --no-pager -u portsd.service | grep -c 'Deactivated successfully'; }
calls=20
[ "$TIER" = namespace ] || calls=5
before=$(ends)
for call in $(seq "$calls"); do
    sleep "$((960 + call * 100 / calls))e-3"
    equal "range of call $call" "$(portsctl allocate 4 tcp --owner host/idle)" "$(cat /tmp/scenario/range)"
done
service_is inactive
[ "$(ends)" -gt "$((before + 1))" ] || fail 'the service never ended between two calls'
nothing_failed
