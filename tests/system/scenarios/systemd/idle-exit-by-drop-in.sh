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

# calls that fall into the end are answered, again and again
for _ in 1 2 3; do
    sleep 0.9
    equal 'range' "$(portsctl allocate 4 tcp --owner host/idle)" "$(cat /tmp/scenario/range)"
done
nothing_failed
