# A start that fails is tried again for ever: with the cause mended, the clients that waited are
# answered, and nobody has to reset anything.
portsctl allocate 4 tcp --owner host/mended > /tmp/scenario/range
systemctl stop portsd.service
mv "$DATABASE" /tmp/scenario/database
head -c 8192 /dev/urandom > "$DATABASE"
chown portsd: "$DATABASE"
sum=$(sha256sum "$DATABASE")

# 100 clients, far more starts than systemd's limits would let pass
python3 -c 'import socket, sys, time
clients = []
for number in range(100):
    client = socket.socket(socket.AF_UNIX)
    client.connect(sys.argv[1])
    clients.append(client)
    time.sleep(0.02)' "$MODULE"
# systemd's default would have enough after five starts in ten seconds, and fail the sockets, too.
starts=12
[ "$TIER" = namespace ] || starts=4
for _ in $(seq "$starts"); do
    systemctl start portsd.service 2> /dev/null && fail 'it starts with an unreadable database'
    [ "$(property Result)" != start-limit-hit ] || fail 'systemd has had enough'
done
portsctl list --owner host/mended > /tmp/scenario/waited 2>&1 &
waiting=$!
wait_for_more 'it is tried again and again by itself' 2 property NRestarts
sockets_listen
equal 'the unreadable database' "$(sha256sum "$DATABASE")" "$sum"
like 'journal' "$(journalctl -q --no-pager -u portsd.service -n 50)" "*$DATABASE*"

cp -p /tmp/scenario/database "$DATABASE"
wait "$waiting" || fail "who waited was told: $(cat /tmp/scenario/waited)"
service_is active
equal 'range' "$(portsctl allocate 4 tcp --owner host/mended)" "$(cat /tmp/scenario/range)"
nothing_failed
