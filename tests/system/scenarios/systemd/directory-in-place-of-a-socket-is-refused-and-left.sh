# A container engine makes a directory of a path that it is to mount and that is not there. The unit
# then says so, and touches nothing; without the directory it starts.
unit=portsd-jsonrpc.socket
systemctl stop portsd-jsonrpc.socket
rm "$MODULE_HTTP"
mkdir "$MODULE_HTTP"
touch "$MODULE_HTTP/kept"
systemctl start "$unit" 2> /dev/null && fail 'it starts over a directory'
like 'journal' "$(journalctl -q --no-pager -u "$unit" -n 20)" "*$MODULE_HTTP*"
[ -e "$MODULE_HTTP/kept" ] || fail 'the directory was emptied'
# the other sockets serve, and the service runs for them
portsctl whoami > /dev/null
rm -r "$MODULE_HTTP"
# systemd refuses to start a socket whose service runs, so portsctl advises a restart
like 'advice' "$(portsctl check || true)" "*systemctl restart $unit*"
systemctl restart "$unit"
like 'answer' "$(http who_am_i)" '*"result"*'
# and with no service, a start will do
systemctl stop "$unit"
systemctl start "$unit"
like 'answer' "$(http who_am_i)" '*"result"*'
