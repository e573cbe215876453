# What is granted to portsd_t itself, beyond what every daemon and everybody who asks for users has. A new
# line here is a decision.
granted() { sesearch -A -ds -s portsd_t "$POLICY" | sed -E 's/^allow portsd_t ([^ ]+) .*/\1/' | sort -u; }
explained() { sed 's/ *#.*//' | sort -u; }
granted > /tmp/granted
explained > /tmp/explained <<'TARGETS'
cgroup_types:file           # processor time that the cgroup may use
cgroup_types:lnk_file
console_device_t:chr_file   # a log that nobody else takes
devlog_t:sock_file          # the journal
syslogd_runtime_t:dir
syslogd_t:unix_dgram_socket
syslogd_t:unix_stream_socket
kernel_t:unix_dgram_socket
kernel_t:unix_stream_socket
domain:dir                  # cgroups of peers
domain:file
domain:lnk_file
init_runtime_t:sock_file    # readiness and the watchdog
init_t:fd                   # what systemd starts a service with
init_t:fifo_file
init_t:process
initrc_t:fd
initrc_t:fifo_file
initrc_t:process
portsd_exec_t:file
portsd_t:association        # itself, and asking for users
portsd_t:capability         # with allow_ypbind only
portsd_t:dir
portsd_t:file
portsd_t:key
portsd_t:lnk_file
portsd_t:lockdown
portsd_t:netlink_route_socket
portsd_t:netlink_tcpdiag_socket     # which ports are bound
portsd_t:process
portsd_t:tcp_socket
portsd_t:udp_socket
portsd_t:unix_dgram_socket
portsd_t:unix_stream_socket
portsd_var_lib_t:dir        # the database
portsd_var_lib_t:file
redis_port_t:tcp_socket     # with portsd_connect_redis only
sysctl_kernel_t:dir         # the overflow user id
sysctl_kernel_t:file
sysctl_vm_overcommit_t:file # the C library, before it gives memory back
sysctl_vm_t:dir
sysfs_t:dir                 # the number of processors
sysfs_t:file
sysfs_t:lnk_file
urandom_device_t:chr_file
TARGETS
diff /tmp/explained /tmp/granted || fail 'what is granted is not what is explained'
like 'Redis' "$(sesearch -A -s portsd_t -t redis_port_t -c tcp_socket -p name_connect "$POLICY")" \
    '*\[ portsd_connect_redis \]:True'
