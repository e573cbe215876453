# The cluster's registry is in a Redis on loopback. Only the boolean opens the way there, and nothing has
# to be restarted for it.
ip link set lo up
redis-server --port 6379 --bind 127.0.0.1 --save '' --daemonize yes --dir /tmp/scenario --pidfile /tmp/scenario/redis.pid > /dev/null
stop_redis() { setsebool portsd_connect_redis off; redis-cli -p 6379 shutdown nosave > /dev/null 2>&1 || true; }
trap stop_redis EXIT
wait_until 'Redis answers' redis-cli -p 6379 ping > /dev/null 2>> /tmp/scenario/refusals
redis-cli -p 6379 hset cluster/module_node mail1 1 > /dev/null
mkdir -p /etc/portsd
printf '%s\n' '[registry]' 'source = "redis"' 'node_id = 1' 'redis_url = "redis://127.0.0.1:6379"' > /etc/portsd/portsd.toml

equal 'the boolean' "$(getsebool portsd_connect_redis)" 'portsd_connect_redis --> off'
expect_denials 'scontext=[^ ]*:portsd_t:.* tcontext=[^ ]*:redis_port_t:'
refused 7 as_user mail1 portsctl whoami
denied portsd_t redis_port_t
setsebool portsd_connect_redis on
is_known() { [ "$(caller "$(as_user mail1 portsctl whoami --json)")" = 'module mail1 1000' ]; }
wait_until 'it knows its caller' is_known 2>> /tmp/scenario/refusals
