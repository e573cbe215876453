# A socket unit refuses to start while its service runs; ours takes the service along, so that a restart
# of any of them works, and every socket serves afterwards.
portsctl allocate 4 tcp --owner host/kept > /tmp/scenario/range
for unit in "${SOCKETS[@]}"; do
    portsctl whoami > /dev/null
    systemctl restart "$unit" || fail "$unit can't be restarted"
    portsctl --socket "$MODULE" whoami > /dev/null
    like "HTTP after $unit" "$(http who_am_i)" '*"result"*'
    equal "range after $unit" "$(portsctl allocate 4 tcp --owner host/kept)" "$(cat /tmp/scenario/range)"
done
systemctl restart "${SOCKETS[@]}"
sockets_listen
portsctl whoami > /dev/null
nothing_failed
