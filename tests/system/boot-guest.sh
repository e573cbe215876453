#!/bin/bash
# boot-guest.sh KERNEL DISK PAYLOAD OUTPUT CONSOLE: a whole machine, with SELinux enforcing.
#
# Its processor is emulated, so that it runs where there is no KVM. PAYLOAD is a tar that the node
# unpacks; what the node says goes to OUTPUT. The disk stays as it is. Returns when the node has powered
# itself off; a reboot boots it again, with what it has written.
set -euo pipefail
[ $# = 5 ] || { echo 'usage: boot-guest.sh KERNEL DISK PAYLOAD OUTPUT CONSOLE' >&2; exit 2; }
command -v qemu-system-x86_64 > /dev/null ||
    { echo 'boot-guest.sh: no qemu-system-x86_64; install qemu-system-x86' >&2; exit 1; }
exec qemu-system-x86_64 -accel tcg,thread=multi,tb-size=512 -cpu Nehalem -M q35 -m 2048 \
    -nodefaults -display none -monitor none -nic none \
    -kernel "$1" \
    -append "root=/dev/nvme0n1 rw console=ttyS0 panic=5 mitigations=off nokaslr security=selinux selinux=1 \
enforcing=1 systemd.show_status=0 quiet loglevel=5 log_buf_len=16M printk.devkmsg=on" \
    -drive "file=$2,if=none,id=r,format=raw,snapshot=on,cache=unsafe" -device nvme,drive=r,serial=root \
    -drive "file=$3,if=virtio,format=raw,readonly=on" \
    -object rng-random,id=rng,filename=/dev/urandom -device virtio-rng-pci,rng=rng \
    -device virtio-serial-pci \
    -chardev "file,id=out,path=$4" -device virtserialport,chardev=out,name=output \
    -serial "file:$5" < /dev/null
