# Not what the unit says, but what the kernel does to the process that runs.
portsctl whoami > /dev/null
process=/proc/$(main_pid)
of() { awk -v key="$1:" '$1 == key { $1 = ""; print substr($0, 2) }' "$process/status"; }

uid=$(id -u portsd) gid=$(id -g portsd)
equal 'user ids' "$(of Uid)" "$uid $uid $uid $uid"
equal 'group ids' "$(of Gid)" "$gid $gid $gid $gid"
equal 'supplementary groups' "$(of Groups)" "$gid"
for set in CapInh CapPrm CapEff CapBnd CapAmb; do
    equal "$set" "$(of $set)" 0000000000000000
done
equal 'NoNewPrivs' "$(of NoNewPrivs)" 1
equal 'Seccomp' "$(of Seccomp)" 2
equal 'threads with filters' "$(cat "$process"/task/*/status | awk '$1 == "Seccomp:" { print $2 }' | sort -u)" 2
# systemd puts several filters: families, system calls, architectures, memory and more
[ "$(of Seccomp_filters)" -ge 5 ] || fail "$(of Seccomp_filters) filters"
equal 'umask' "$(of Umask)" 0027
equal 'LimitNOFILE' "$(awk '/^Max open files/ { print $4, $5 }' "$process/limits")" '4096 4096'

# The host's: users and network, or it would see neither callers nor ports. Its own: mounts and host name
for kind in user net pid; do
    equal "$kind namespace" "$(readlink "$process/ns/$kind")" "$(readlink "/proc/1/ns/$kind")"
done
for kind in mnt uts; do
    [ "$(readlink "$process/ns/$kind")" != "$(readlink "/proc/1/ns/$kind")" ] || fail "its $kind namespace is the host's"
done
# what settings have put there: of the kernel's log, settings, modules and cgroups, of homes and devices
mounts=$(awk '{ print $5 }' "$process/mountinfo")
for path in /proc/kmsg /proc/sys /usr/lib/modules /sys/fs/cgroup /home /root /run/user /dev /tmp /var/tmp; do
    grep -q -x -F "$path" <<< "$mounts" || fail "nothing is mounted over $path"
done
# Not files: devices and processes, which have owners of their own. Its own: temporary files, and what
# tells it of memory pressure. /sys stays writable under systemd 257, and only the files' owner guards it.
expected='/dev(/.*)?|/proc|/tmp|/var/tmp|/sys(/kernel/security|/fs/(pstore|selinux|fuse/connections))?'
expected+='|/sys/fs/cgroup/system\.slice/portsd\.service/memory\.pressure'
writable() { awk '$6 ~ /(^|,)rw(,|$)/ { print $5 }' "$process/mountinfo" | sort -u; }
equal 'mounts that can be written to' \
    "$(writable | grep -v -E "^($expected)$" | tr '\n' ' ')" '/var/lib/portsd '
equal 'files in /sys for anybody to write' "$(find /sys -xdev -perm -o=w ! -type l)" ''
like 'state directory' "$(grep ' /var/lib/portsd ' "$process/mountinfo")" '*noexec*'
equal 'devices' "$(find "$process/root/dev" -maxdepth 1 \( -type c -o -type b \) -printf '%f\n' | grep -v -x ptmx | sort | tr '\n' ' ')" \
    'full null random tty urandom zero '

equal 'open files on disk' "$(readlink "$process"/fd/* | grep '^/' | grep -v -e '^/dev/null' -e '^/var/lib/portsd/' || true)" ''
