# Callers queue for as long as the service restarts; each is answered, and what was answered stays. They
# call on until all restarts are over.
callers=8
[ "$TIER" = namespace ] || callers=3
for owner in $(seq "$callers"); do
    (name=0
    until [ -e /tmp/scenario/over ]; do
        name=$((name + 1))
        portsctl ensure "n$name" 1 tcp --owner "host/caller$owner" | sed "s|^|host/caller$owner n$name |"
    done) > "/tmp/scenario/caller$owner" 2> "/tmp/scenario/errors$owner" &
done
answered() { cat /tmp/scenario/caller* | wc -l; }
for _ in 1 2 3 4 5; do
    wait_for_more 'calls are answered' "$((2 * callers + 1))" answered
    pid=$(main_pid)
    systemctl restart portsd.service
    [ "$(main_pid)" != "$pid" ] || fail 'it was not restarted'
done
wait_for_more 'calls are answered after the last restart' "$((2 * callers + 1))" answered
touch /tmp/scenario/over
wait
equal 'errors' "$(cat /tmp/scenario/errors*)" ''
sort /tmp/scenario/caller* > /tmp/scenario/answered
portsctl list --json | python3 -c 'import json, sys
for one in json.load(sys.stdin)["allocations"]:
    print(one["owner"], one["name"], "{}-{}".format(one["start"], one["end"]))' | sort > /tmp/scenario/stored
diff /tmp/scenario/answered /tmp/scenario/stored || fail 'what was answered is not what is stored'
equal 'ports given twice' "$(cut -d' ' -f3 /tmp/scenario/stored | sort | uniq -d)" ''
nothing_failed
