# 300 clients that connect at once, say nothing and go, to a service that is not there; and again to one
# that stops in between. systemd's default would fail a socket unit after 20 activations in 2 seconds.
burst() {
    python3 -c 'import socket, sys
for number in range(300):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(sys.argv[1 + number % 2])' "$MODULE" "$MODULE_HTTP"
}
# With connections in the backlog, a stop is overtaken by the start that they ask for.
stop() { systemctl stop portsd.service || true; }
burst
service_is active
for _ in 1 2 3; do
    stop
    burst
done
# Beyond the 20 in 2 seconds, where that is possible at all.
stops=25
[ "$TIER" = namespace ] || stops=3
for _ in $(seq "$stops"); do
    # An activation each. Until the service has noticed that they are gone, those of the burst count
    # against the 64 connections that a user may have.
    stop
    wait_until 'it answers' portsctl --socket "$MODULE" whoami > /dev/null 2>> /tmp/scenario/refusals
done
sockets_listen
nothing_failed
equal 'result' "$(property Result portsd-varlink.socket)" success
