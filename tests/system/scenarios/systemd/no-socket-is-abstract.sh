# Abstract sockets have no owner and no mode, and containers on the host's network would reach them.
portsctl whoami > /dev/null
register mail1
equal 'abstract sockets' "$(awk '$8 ~ /^@/ && /portsd|nethserver/' /proc/net/unix)" ''
like 'sockets' "$(cat /proc/net/unix)" "*$MODULE*"
