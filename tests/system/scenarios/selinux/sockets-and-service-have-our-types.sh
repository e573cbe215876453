# systemd makes sockets and directories with our types before the service has ever run, and starts it in
# its own domain. A listener has the domain that the service will have.
type_of() { stat -c %C "$1" | cut -d: -f3; }
service_is inactive
for path in /run/portsd "$MODULE" "$MODULE_HTTP"; do
    equal "$path" "$(type_of "$path")" portsd_var_run_t
done
for path in /run/portsd-admin /run/portsd-admin/*; do
    equal "$path" "$(type_of "$path")" portsd_admin_var_run_t
done
# what a listener is, its holder says: systemd
for path in "$MODULE" "$ADMIN"; do
    inode=$(awk -v path="$path" '$8 == path { print $7; exit }' /proc/net/unix)
    holder=$(find /proc/1/fd -lname "socket:\[$inode\]" -print -quit)
    equal "listener of $path" "$(stat -L -c %C "$holder" | cut -d: -f3)" portsd_t
done
portsctl allocate 4 tcp --owner host/types > /dev/null
equal 'program' "$(type_of /usr/sbin/portsd)" portsd_exec_t
equal 'domain' "$(cut -d: -f3 "/proc/$(main_pid)/attr/current")" portsd_t
equal 'database and its files' "$(find /var/lib/portsd -exec stat -c %C {} + | cut -d: -f3 | sort -u)" portsd_var_lib_t
[ -e "$DATABASE-wal" ] || fail 'there is no log to have a label'
