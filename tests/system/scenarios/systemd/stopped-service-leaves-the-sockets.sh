# A stop of the service is not a stop of the sockets: they listen on, and the next call starts it.
portsctl whoami > /dev/null
first=$(main_pid)
systemctl stop portsd.service
service_is inactive
sockets_listen
portsctl whoami > /dev/null
service_is active
[ "$(main_pid)" != "$first" ] || fail 'it was never stopped'

# Neither do the sockets stop when the service does, however it ends.
systemctl kill --signal=SIGTERM portsd.service
service_is inactive
sockets_listen
nothing_failed
