# Only the sockets are enabled. The first call finds no service, starts it, and is answered.
service_is inactive
equal 'enabled' "$(systemctl is-enabled portsd.service)" static
sockets_listen
equal 'answer' "$(caller "$(portsctl whoami --json)")" 'administrator - 0'
service_is active
equal 'result' "$(property Result)" success

# each of the four starts it
for socket in "$MODULE" "$ADMIN"; do
    systemctl stop portsd.service
    portsctl --socket "$socket" whoami > /dev/null
    service_is active
done
for socket in /run/portsd/jsonrpc.sock /run/portsd-admin/jsonrpc.sock; do
    systemctl stop portsd.service
    export MODULE_HTTP=$socket
    like 'answer' "$(http who_am_i)" '*"result"*'
    service_is active
done
