# With the kernel's ephemeral ports narrowed to where the pool is, outgoing connections get what is left.
connect='import socket
server = socket.create_server(("127.0.0.1", 9999), backlog=500)
ports = set()
for _ in range(400):
    client = socket.create_connection(("127.0.0.1", 9999))
    ports.add(client.getsockname()[1])
    server.accept()[0].close()
    client.close()
print(min(ports))'
# loopback is down in a namespace of its own
ip link set lo up
before=$(sysctl -n net.ipv4.ip_local_port_range)
sysctl -q -w net.ipv4.ip_local_port_range='44000 46000'
lowest=$(python3 -c "$connect")
sysctl -q -w net.ipv4.ip_local_port_range="$before"
[ "$lowest" -gt 45000 ] || fail "a connection has taken port $lowest"
