#!/bin/bash
# need-packages.sh PACKAGE...: installs the Debian packages that are missing; quiet if none is.
#
# As an ordinary user it tries sudo without a password, and otherwise says what to install.
set -euo pipefail
if ! command -v dpkg-query > /dev/null; then
    echo "need-packages.sh: no Debian here; needed are the like of: $*" >&2
    exit 0
fi
missing=()
for package in "$@"; do
    state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2> /dev/null || true)
    [ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo -n)
    if ! sudo -n true 2> /dev/null; then
        echo "need-packages.sh: as root, please: apt-get install ${missing[*]}" >&2
        exit 1
    fi
fi
echo "installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt() { "${as_root[@]}" apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "$@" > /dev/null; }
apt update
apt install --no-install-recommends -y "${missing[@]}"
