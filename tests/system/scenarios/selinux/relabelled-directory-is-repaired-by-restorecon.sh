# `:Z` on a shared directory gives it to one container, and locks everybody else out: hence never on this
# one. The service does not notice, and restorecon puts it right.
register mail1
pid=$(main_pid)
podman run --rm --network=none -v /run/portsd:/run/portsd:Z system-test true
like 'label' "$(stat -c %C /run/portsd)" '*:container_file_t:s0:c*'
expect_denials 'scontext=[^ ]*:container_t:s0:.* tcontext=[^ ]*:container_file_t:s0:c'
refused 7 in_container mail1 -- /test/portsctl allocate 1 tcp
portsctl --socket "$MODULE" whoami > /dev/null
restorecon -R -F /run/portsd
equal 'range' "$(in_container mail1 -- /test/portsctl allocate 1 tcp)" 20000-20000
equal 'service' "$(main_pid)" "$pid"
