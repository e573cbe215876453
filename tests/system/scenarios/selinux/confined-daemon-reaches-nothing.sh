# An ordinary daemon in a domain of its own, here the web server's: neither sockets nor database, although
# it runs as root.
expect_denials 'scontext=[^ ]*:httpd_t:.* tcontext=[^ ]*:portsd_[a-z_]*t:'
for program in "$HERE/container/portsctl" /bin/cat; do
    install "$program" "/usr/local/sbin/confined-${program##*/}"
    chcon -t httpd_exec_t "/usr/local/sbin/confined-${program##*/}"
done
portsctl allocate 4 tcp --owner host/confined > /dev/null
confined() { systemd-run -q --wait "/usr/local/sbin/confined-$1" "${@:2}"; }
confined cat /dev/null || fail 'nothing runs in that domain'
for socket in "$MODULE" "$ADMIN"; do
    refused 7 confined portsctl --socket "$socket" whoami
done
refused 1 confined cat "$DATABASE"
for type in portsd_var_run_t portsd_admin_var_run_t portsd_var_lib_t; do
    denied httpd_t "$type"
done
rm /usr/local/sbin/confined-*
