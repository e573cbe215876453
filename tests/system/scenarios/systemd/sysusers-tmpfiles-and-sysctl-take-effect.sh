# The user, the directories and the reserved ports are there, as the installed files say.
IFS=: read -r _ _ uid _ _ home shell < <(getent passwd portsd)
if [ "$uid" -eq 0 ] || [ "$uid" -ge 1000 ]; then fail "portsd has the user id $uid"; fi
like 'shell' "$shell" '*/nologin'
equal 'home' "$home" /
portsctl whoami > /dev/null
equal 'user of the service' "$(stat -c %U "/proc/$(main_pid)")" portsd
equal 'state' "$(stat -c '%U:%G %a' /var/lib/portsd)" 'portsd:portsd 750'
equal 'database' "$(stat -c '%U:%G %a' "$DATABASE")" 'portsd:portsd 640'
equal 'module sockets' "$(stat -c '%U:%G %a' /run/portsd "$MODULE" "$MODULE_HTTP" | tr '\n' ' ')" \
    'root:root 755 root:root 666 root:root 666 '
equal 'admin sockets' "$(stat -c '%U:%G %a' /run/portsd-admin /run/portsd-admin/* | tr '\n' ' ')" \
    'root:root 700 root:root 600 root:root 600 '
equal 'reserved ports' "$(sysctl -n net.ipv4.ip_local_reserved_ports)" 20000-45000

# tmpfiles.d makes them alone, before any socket unit
systemctl stop "${SOCKETS[@]}"
rm -r /run/portsd /run/portsd-admin
systemd-tmpfiles --create portsd.conf
equal 'directories' "$(stat -c '%n %U:%G %a' /run/portsd /run/portsd-admin | tr '\n' ' ')" \
    '/run/portsd root:root 755 /run/portsd-admin root:root 700 '
