# Callers queue for as long as the service restarts; each is answered, and what was answered stays.
callers=8 calls=25
[ "$TIER" = namespace ] || calls=6
for owner in $(seq "$callers"); do
    (for name in $(seq "$calls"); do
        portsctl ensure "n$name" 1 tcp --owner "host/caller$owner" | sed "s|^|host/caller$owner n$name |"
    done) > "/tmp/scenario/caller$owner" 2> "/tmp/scenario/errors$owner" &
done
for _ in 1 2 3 4 5; do
    sleep 0.3
    systemctl restart portsd.service
done
wait
equal 'errors' "$(cat /tmp/scenario/errors*)" ''
sort /tmp/scenario/caller* > /tmp/scenario/answered
portsctl list --json | python3 -c 'import json, sys
for one in json.load(sys.stdin)["allocations"]:
    print(one["owner"], one["name"], "{}-{}".format(one["start"], one["end"]))' | sort > /tmp/scenario/stored
diff /tmp/scenario/answered /tmp/scenario/stored || fail 'what was answered is not what is stored'
equal 'ports given twice' "$(cut -d' ' -f3 /tmp/scenario/stored | sort | uniq -d)" ''
nothing_failed
