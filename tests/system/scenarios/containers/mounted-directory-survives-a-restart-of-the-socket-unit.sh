# The socket is another file then. Who has mounted the directory sees it; who has mounted the file, as
# the documents advise against, is left with a dead one.
register mail1
out=$(mktemp -d /var/tmp/out.XXXXXX)
chmod 777 "$out"
chown mail1: "$out"
# It calls whenever it finds a file "go", by both mounts.
# shellcheck disable=SC2016
podman_as mail1 run -d --name lasting --network=none -v /run/portsd:/run/portsd -v "$MODULE:/file" \
    -v "$HERE/container:/test:ro" -v "$out:/out:Z" system-test sh -c '
    while :; do
        if [ -e /out/go ]; then
            rm /out/go
            /test/portsctl --socket /run/portsd/org.nethserver.Ports allocate 1 tcp > /out/directory 2>&1
            /test/portsctl --socket /file allocate 1 tcp > /out/socket 2>&1
            touch /out/done
        fi
        sleep 0.1
    done' > /dev/null
calls() {
    rm -f "$out/done"
    touch "$out/go"
    wait_until 'the container has called' test -e "$out/done"
}
calls
equal 'directory, before' "$(cat "$out/directory")" 20000-20000
equal 'socket, before' "$(cat "$out/socket")" 20000-20000
systemctl restart portsd.service
calls
equal 'directory, service restarted' "$(cat "$out/directory")" 20000-20000
equal 'socket, service restarted' "$(cat "$out/socket")" 20000-20000
for _ in 1 2; do
    systemctl restart portsd-varlink.socket
    calls
    equal 'directory, socket unit restarted' "$(cat "$out/directory")" 20000-20000
done
like 'socket, socket unit restarted' "$(cat "$out/socket")" '*nobody listens*'
podman_as mail1 rm -f -t 0 lasting > /dev/null
