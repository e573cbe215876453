#!/bin/bash
# boot-namespace.sh ROOT: systemd as PID 1 over the file system in ROOT, in namespaces of its own.
#
# At native speed and with the machine's kernel: it has no SELinux, and only what the machine's
# network namespace may do. Returns when the node has powered itself off; a reboot boots it again.
set -euo pipefail
root=$(realpath -e -- "${1:?usage: boot-namespace.sh ROOT}")

# A cgroup of its own where one can be made, or two nodes at once would manage the same cgroups. Left
# empty by the node, it is removed afterwards.
cgroup=$(findmnt --noheadings --output TARGET --types cgroup2 | head -n 1)
cgroup+=$(sed -n 's/^0:://p' /proc/self/cgroup)/system-test-$$
[ "${cgroup#/sys/}" != "$cgroup" ] && mkdir "$cgroup" 2> /dev/null && echo $$ > "$cgroup/cgroup.procs" || cgroup=

# However this ends, the node ends with it.
node=
end() {
    [ -z "$node" ] || kill -KILL "$node" 2> /dev/null || true
    wait
    [ -n "$cgroup" ] || return 0
    echo $$ > "$cgroup/../cgroup.procs"
    # which can be removed when the last of the node's processes has gone
    for _ in $(seq 100); do
        find "$cgroup" -depth -type d -exec rmdir {} + 2> /dev/null || true
        [ -d "$cgroup" ] || break
        sleep 0.1
    done
}
trap end EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

boot() {
    # The last mounts need the node's own /proc, so they are made inside.
    # shellcheck disable=SC2016
    unshare --mount --pid --uts --ipc --net --cgroup --fork --kill-child bash -euc '
        node() { mknod -m 666 "dev/$1" c "$2" "$3"; }
        mount --make-rprivate /
        mount --bind "$0" "$0"
        cd "$0"
        mount -t proc proc proc
        mount -t sysfs -o ro sysfs sys
        mount -t tmpfs -o mode=755 tmpfs run
        mount -t tmpfs tmpfs tmp
        mount -t tmpfs -o mode=755 tmpfs dev
        mkdir dev/net dev/pts dev/shm
        node null 1 3; node zero 1 5; node full 1 7; node random 1 8; node urandom 1 9
        node tty 5 0; node fuse 10 229; node net/tun 10 200
        mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
        ln -s pts/ptmx dev/ptmx
        mount -t tmpfs tmpfs dev/shm
        mount -t cgroup2 cgroup2 sys/fs/cgroup
        hostname node
        pivot_root . mnt
        umount -l mnt
        mount --make-rshared /
        # nothing of the environment outside; "container" is what systemd knows one by
        exec env -i container=system-test /usr/lib/systemd/systemd --system --log-target=console --show-status=0 \
            systemd.unit=multi-user.target' "$root" &
    # in the background, since a shell that waits for another program heeds no signal
    node=$!
    wait "$node"
}

# The kernel ends the first process of a namespace that reboots with SIGHUP, and of one that powers
# off with SIGINT.
for _ in 1 2 3; do
    boot < /dev/null && status=0 || status=$?
    [ "$status" = 129 ] || break
done
[ "$status" = 130 ]
