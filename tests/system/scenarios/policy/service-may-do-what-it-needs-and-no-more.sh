# What is granted to portsd_t itself, beyond what every daemon and everybody who asks for users has. A new
# line here is a decision, and so is a new word.
granted() { sesearch -A -ds -s portsd_t "$POLICY" | sed -E 's/^allow portsd_t //; s/[{};]//g; s/ +/ /g; s/ $//' | sort; }
explained() { grep -v '^#' | sort; }
granted > /tmp/granted
explained > /tmp/explained <<'RULES'
# processor time that the cgroup may use
cgroup_types:file getattr ioctl lock open read
cgroup_types:lnk_file getattr read
# a log that nobody else takes
console_device_t:chr_file append getattr ioctl lock open write
# the journal
devlog_t:sock_file append getattr open write
syslogd_runtime_t:dir getattr open search
syslogd_t:unix_dgram_socket sendto
syslogd_t:unix_stream_socket connectto
kernel_t:unix_dgram_socket sendto
kernel_t:unix_stream_socket connectto
# cgroups of peers
domain:dir getattr ioctl lock open read search
domain:file getattr ioctl lock open read
domain:lnk_file getattr read
# readiness and the watchdog
init_runtime_t:sock_file append getattr open
# what systemd starts a service with
init_t:fd use
init_t:fifo_file append getattr ioctl lock read write
init_t:process sigchld signull
initrc_t:fd use
initrc_t:fifo_file append getattr ioctl lock read write
initrc_t:process sigchld
portsd_exec_t:file entrypoint execute getattr ioctl lock map open read
# itself, and asking for users
portsd_t:association sendto
portsd_t:capability net_bind_service [ allow_ypbind ]:True
portsd_t:dir add_name remove_name write
portsd_t:file append create link rename setattr unlink write
portsd_t:key create link read search setattr view write
portsd_t:lnk_file ioctl lock
portsd_t:lockdown confidentiality integrity
portsd_t:netlink_route_socket append bind connect create getattr getopt ioctl nlmsg_read read setattr setopt shutdown write
# which ports are bound
portsd_t:netlink_tcpdiag_socket append bind connect create getattr getopt ioctl nlmsg_read read setattr setopt shutdown write
portsd_t:process fork getsched sigchld
portsd_t:tcp_socket accept listen [ allow_ypbind ]:True
portsd_t:tcp_socket accept listen [ portsd_connect_redis ]:True
portsd_t:tcp_socket append bind connect create getattr getopt ioctl read setattr setopt shutdown write
portsd_t:udp_socket append bind connect create getattr getopt ioctl read setattr setopt shutdown write
portsd_t:unix_dgram_socket append bind connect create getattr getopt ioctl read setattr setopt shutdown write
portsd_t:unix_stream_socket accept append bind connect create getattr getopt ioctl listen read setattr setopt shutdown write
# the database
portsd_var_lib_t:dir add_name create getattr ioctl link lock open read remove_name rename reparent rmdir search setattr unlink write
portsd_var_lib_t:file append create getattr ioctl link lock map open read rename setattr unlink write
redis_port_t:tcp_socket name_connect [ portsd_connect_redis ]:True
# the overflow user id
sysctl_kernel_t:dir getattr ioctl lock open read search
sysctl_kernel_t:file getattr ioctl lock open read
# the C library, before it gives memory back
sysctl_vm_overcommit_t:file getattr ioctl lock open read
sysctl_vm_t:dir getattr open search
# the number of processors
sysfs_t:dir ioctl lock read
sysfs_t:file getattr ioctl lock open read
sysfs_t:lnk_file getattr read
urandom_device_t:chr_file getattr ioctl lock open read
RULES
diff /tmp/explained /tmp/granted || fail 'what is granted is not what is explained'
like 'Redis' "$(sesearch -A -s portsd_t -t redis_port_t -c tcp_socket -p name_connect "$POLICY")" \
    '*\[ portsd_connect_redis \]:True'
