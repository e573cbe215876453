# Every container has categories of its own, and reaches the module sockets with them. Given the wrong
# directory, not even root of a rootful container gets further: neither to the admin sockets, nor to the
# database.
register mail1
register webtop1
# prints the context, and the range
ask='cat /proc/self/attr/current; echo; exec /test/portsctl allocate 4 tcp'
for user in mail1 webtop1 mail1; do
    in_container "$user" -- sh -c "$ask" | tr -d "\0" >> /tmp/scenario/contexts
done
equal 'containers' "$(grep -c ':container_t:s0:c[0-9]*,c[0-9]*' /tmp/scenario/contexts)" 3
equal 'of different categories' "$(grep container_t /tmp/scenario/contexts | sort -u | wc -l)" 3
equal 'modules with ports' "$(grep -c -x '[0-9]*-[0-9]*' /tmp/scenario/contexts)" 3

expect_denials 'scontext=[^ ]*:container_t:.* tcontext=[^ ]*:portsd_(admin_var_run|var_lib)_t:'
refused 7 in_container root -v /run/portsd-admin:/run/portsd-admin -- \
    /test/portsctl --socket "$ADMIN" whoami
denied container_t portsd_admin_var_run_t
refused 1 in_container root --user "$(id -u portsd)" -v /var/lib/portsd:/state -- cat /state/ports.sqlite
denied container_t portsd_var_lib_t
# as a module, which could not even without SELinux
refused 7 in_container mail1 -v /run/portsd-admin:/run/portsd-admin -- \
    /test/portsctl --socket "$ADMIN" whoami
