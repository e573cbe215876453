#!/bin/bash
# chroot.sh DIRECTORY: installs, upgrades, removes and purges the newest .deb and .rpm in it in a Debian of
# their own, where no systemd runs: as when an image is made.
#
# What happens to sockets and callers is for lifecycle.sh. Takes a minute, and 300 MB in $TMPDIR.
# Needs root, and is left out otherwise.
set -euo pipefail
export LC_ALL=C
packages=$(realpath -e -- "$1")
if [ "$(id -u)" != 0 ]; then
    echo "chroot.sh: left out, since it needs root"
    exit 0
fi
# what is mounted below goes with the namespace
[ "${2-}" = inside ] || exec unshare --mount --propagation private "$0" "$packages" inside
work=$(mktemp -d)
trap 'umount -q "$work/root/proc"; rm -rf --one-file-system "$work"' EXIT
root=$work/root

fail() { echo "chroot.sh: $*" >&2; exit 1; }
newest() { find "$packages" -maxdepth 1 -name "$1" -printf '%T@ %p\n' | sort -n | sed -n '$s/^[^ ]* //p'; }
inside() { chroot "$root" env -i PATH="$PATH" HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"; }
present() { for path in "$@"; do [ -e "$root/$path" ] || [ -L "$root/$path" ] || fail "$path is missing"; done; }
absent() { for path in "$@"; do ! { [ -e "$root/$path" ] || [ -L "$root/$path" ]; } || fail "$path is there"; done; }

# scripts complain on standard error, and must not
quiet() { "$@" > "$work/out" 2>&1 || { cat "$work/out" >&2; fail "failed: $*"; }; }

wants=/etc/systemd/system/sockets.target.wants
sockets=("$wants"/portsd-{,admin-}{varlink,jsonrpc}.socket)

installed() {
    present /usr/sbin/portsd /run/portsd /run/portsd-admin "${sockets[@]}"
    [ "$(stat -c '%a %U' "$root/run/portsd" "$root/run/portsd-admin" | paste -sd ,)" = '755 root,700 root' ] ||
        fail "the sockets' directories are not as they should be"
    inside id portsd > /dev/null || fail "no user portsd"
    inside portsctl --version > /dev/null || fail "portsctl does not start"
    absent /etc/systemd/system/timers.target.wants/portsd-reclaim.timer /var/lib/portsd /var/lib/nethserver
}
# what the service and an administrator leave behind
use() {
    inside install -d -o portsd -g portsd -m 0750 /var/lib/portsd /etc/portsd
    inside sh -c 'echo kept > /var/lib/portsd/ports.sqlite; echo kept > /etc/portsd/portsd.toml'
    inside touch /run/portsd/jsonrpc.sock
}
removed() {
    absent /usr/sbin/portsd /usr/share/portsd /run/portsd/jsonrpc.sock
    present /var/lib/portsd/ports.sqlite /etc/portsd/portsd.toml /run/portsd
}

deb=$(newest 'portsd_*.deb')
rpm=$(newest 'portsd-*.rpm')
suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
quiet mmdebstrap --quiet --mode=root --variant=minbase --include=systemd,rpm \
    --aptopt='APT::Install-Recommends "false"' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' "$suite" "$root"
mount -t proc proc "$root/proc"
cp "$deb" "$root/portsd.deb"
cp "$rpm" "$root/portsd.rpm"
# An older version with the same contents: a package can't tell.
mkdir "$work/older"
dpkg-deb -R "$deb" "$work/older"
sed -i 's/^Version: .*/Version: 0.0.1-1/' "$work/older/DEBIAN/control"
quiet dpkg-deb --root-owner-group -b "$work/older" "$root/older.deb"

quiet inside apt-get -qq -y install /older.deb
installed
use
rm "$root$wants/portsd-jsonrpc.socket"          # as an administrator who wants no JSON-RPC
quiet inside dpkg -i /portsd.deb
present "$wants/portsd-varlink.socket"
absent "$wants/portsd-jsonrpc.socket"
present /var/lib/portsd/ports.sqlite
quiet inside dpkg --remove portsd
removed
quiet inside dpkg -i /portsd.deb
present /usr/sbin/portsd /var/lib/portsd/ports.sqlite
quiet inside dpkg --remove portsd
inside userdel portsd
quiet inside dpkg --purge portsd
absent /var/lib/portsd /etc/portsd "${sockets[@]}"
# policy wants these to be repeatable, and to go from any state
quiet inside dpkg -i /portsd.deb
installed
use
quiet inside dpkg --purge portsd
absent /var/lib/portsd /etc/portsd "${sockets[@]}"
# every script can run twice
dpkg-deb -e "$deb" "$root/scripts"
quiet inside sh -e /scripts/postrm remove
quiet inside sh -e /scripts/postrm purge
echo "deb: installed, upgraded, removed, installed again and purged, without systemd"

# rpm refuses what no rpm provides: the libraries are Debian's. The .deb's user is of no use to it.
inside userdel portsd
quiet inside rpm -i --nodeps /portsd.rpm
installed
use
quiet inside rpm -U --nodeps --force /portsd.rpm
present /usr/sbin/portsd "${sockets[@]}" /var/lib/portsd/ports.sqlite
quiet inside rpm -e portsd
removed
absent "${sockets[@]}"
echo "rpm: installed, upgraded and removed, without systemd"
