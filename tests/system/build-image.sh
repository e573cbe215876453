#!/bin/bash
# build-image.sh: a node's file system, $CACHE/node, and the kernel for it, $CACHE/vmlinux.
#
# Debian 13 with systemd, rootless and rootful podman, SELinux's default policy and what builds and
# queries policies. It has two modules' users and the containers' image, but nothing of portsd. It
# is built again when this script, what it copies, or the mirror changes; the slow half, the packages,
# only when their list does. Needs root, and the packages of SYSTEM_PACKAGES in the Makefile.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/system/paths.sh
. "$here/paths.sh"
suite=trixie
mkdir -p "$CACHE"

# `selinux-policy-dev` and `setools` for the policy; `redis-server` for the boolean; `rpm` for a
# package; `curl` and `python3` are what the containers get.
packages=systemd,systemd-sysv,udev,dbus,dbus-user-session,libpam-systemd,kmod,iproute2,procps,util-linux,\
podman,crun,passt,uidmap,catatonit,containers-storage,busybox-static,curl,python3,redis-server,make,rpm,\
selinux-policy-default,selinux-policy-dev,selinux-utils,policycoreutils,semodule-utils,checkpolicy,setools

# What the machine itself uses, in whichever way its sources are written down.
debian_mirror() {
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(REPO_URI) $(LABEL)' 'Identifier: Packages' 'Origin: Debian' |
        awk '$2 == "Debian" { print $1; exit }'
}

build_base() {
    rm -rf "$CACHE/base" "$CACHE/base.key"
    mmdebstrap --quiet --mode=root --variant=minbase --format=directory --include="$packages" \
        --aptopt='Acquire::Languages "none"' --aptopt='APT::Install-Recommends "false"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/i18n/*' \
        "$suite" "$CACHE/base" \
        "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
    fetch_kernel "$CACHE/base"
    rm -rf "$CACHE/base"/var/lib/apt/lists/* "$CACHE/base"/var/cache/apt/*
}

# The package's files without its dependencies, which would make an initial ramdisk: none is needed.
fetch_kernel() {
    local root=$1 options package
    options=(-qq -o "Dir=$root" -o "Dir::State::status=$root/var/lib/dpkg/status" -o Acquire::Languages=none
        -o APT::Sandbox::User=root -o Dir::Etc::SourceParts=/nonexistent)
    rm -f "$CACHE"/linux-image-*.deb
    (cd "$CACHE"
        apt-get "${options[@]}" update
        package=$(apt-cache "${options[@]}" depends linux-image-cloud-amd64 |
            awk '/Depends: linux-image-/ { print $2; exit }')
        apt-get "${options[@]}" download "$package")
    dpkg-deb --fsys-tarfile "$CACHE"/linux-image-*.deb | tar -C "$root" --keep-directory-symlink -x
    rm -f "$CACHE"/linux-image-*.deb
    chroot "$root" depmod "$(ls "$root/lib/modules")"
    python3 "$here/unpack-kernel.py" "$root"/boot/vmlinuz-* "$CACHE/vmlinux"
    rm -f "$root"/boot/*
}

# Two modules with their users, and a machine that boots fast: what takes time and is not under test
# is masked.
configure() {
    local root=$1 unit
    echo node > "$root/etc/hostname"
    echo '127.0.0.1 localhost node' > "$root/etc/hosts"
    systemd-id128 new > "$root/etc/machine-id"
    echo '/dev/root / ext4 rw 0 0' > "$root/etc/fstab"
    printf 'SELINUX=enforcing\nSELINUXTYPE=default\n' > "$root/etc/selinux/config"
    # A namespace has no limits to set; podman would fail to.
    printf '[containers]\npids_limit = 0\n' > "$root/etc/containers/containers.conf"
    # user ids 1000 and 1001, subordinate ids from 100000 and 165536: the scenarios rely on these
    chroot "$root" useradd --create-home --shell /bin/bash mail1
    chroot "$root" useradd --create-home --shell /bin/bash webtop1
    mkdir -p "$root/etc/systemd/journald.conf.d"
    printf '[Journal]\nStorage=volatile\nAudit=no\nRateLimitBurst=0\n' \
        > "$root/etc/systemd/journald.conf.d/system-test.conf"
    install -m 0644 "$here/node/system-test.service" "$root/etc/systemd/system/"
    mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
    ln -sf ../system-test.service "$root/etc/systemd/system/multi-user.target.wants/"
    while read -r unit; do
        ln -sf /dev/null "$root/etc/systemd/system/$unit"
    done < "$here/node/masked-units"
    touch "$root/etc/.updated" "$root/var/.updated"
}

# The containers' image: busybox, curl and Python with the libraries that they need, no more. Users
# import it into storage of their own, which takes a booted node.
import_image() {
    local root=$1
    mkdir -p "$root/opt/system-test"
    install -m 0755 "$here/node/import-image" "$root/opt/system-test/start"
    timeout 300 "$here/boot-namespace.sh" "$root" > "$CACHE/import.log" 2>&1 || true
    if [ "$(cat "$root/opt/system-test/status" 2> /dev/null)" != 0 ]; then
        tail -n 60 "$CACHE/import.log" "$root/opt/system-test/output" >&2
        echo 'build-image.sh: the containers'\'' image could not be imported' >&2
        return 1
    fi
    rm -rf "$root/opt/system-test"
}

mirror=$(debian_mirror)
[ -n "$mirror" ] || { echo 'build-image.sh: apt knows no mirror of Debian; run apt-get update' >&2; exit 1; }
base_key=$( (echo "$packages $mirror $suite"; cat "$here/unpack-kernel.py"
    declare -f build_base fetch_kernel) | sha256sum)
node_key=$( (echo "$base_key"; cat "$here/build-image.sh" "$here/boot-namespace.sh" "$here"/node/{system-test.service,masked-units,import-image}) |
    sha256sum)
[ "$(cat "$CACHE/node.key" 2> /dev/null)" != "$node_key" ] || exit 0

if [ "$(cat "$CACHE/base.key" 2> /dev/null)" != "$base_key" ]; then
    echo '## packages for the node' >&2
    build_base
    echo "$base_key" > "$CACHE/base.key"
fi
echo '## node' >&2
rm -rf "$CACHE/node" "$CACHE/node.key"
cp -a --reflink=auto "$CACHE/base" "$CACHE/node"
configure "$CACHE/node"
import_image "$CACHE/node"
echo "$node_key" > "$CACHE/node.key"
