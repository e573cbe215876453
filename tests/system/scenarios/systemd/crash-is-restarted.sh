# Whatever kills the service, it is there again without a call, with what it had answered.
portsctl allocate 4 tcp --owner host/crash > /tmp/scenario/range
for signal in SIGKILL SIGABRT SIGILL; do
    before=$(main_pid)
    kill -s "$signal" "$before"
    # systemd may not have noticed yet
    is_another() { local pid; pid=$(main_pid); [ "$pid" != 0 ] && [ "$pid" != "$before" ]; }
    wait_until "it is restarted after $signal" is_another
    service_is active
    sockets_listen
done
equal 'restarts' "$(property NRestarts)" 3
equal 'range' "$(portsctl allocate 4 tcp --owner host/crash)" "$(cat /tmp/scenario/range)"
