# After a boot, the sockets listen and nothing runs. The first call starts the service, with what it had.
sockets_listen
service_is inactive
equal 'range' "$(as_user mail1 portsctl allocate 4 tcp)" 20000-20003
service_is active
equal 'reserved ports' "$(sysctl -n net.ipv4.ip_local_reserved_ports)" 20000-45000
nothing_failed
[ "$TIER" = guest ] || exit 0
equal 'domain' "$(cut -d: -f3 "/proc/$(main_pid)/attr/current")" portsd_t
equal 'labels' "$(wrong_labels)" ''
