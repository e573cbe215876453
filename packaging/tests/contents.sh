#!/bin/bash
# contents.sh DIRECTORY: holds the newest .deb and .rpm in it against `make install install-ns8-files`.
#
# The same files, in the same places, with the same modes and contents, all owned by root, and nothing
# else but what each kind of package has to have; nothing below /var and /etc. Programs are stripped in
# packages, so that the build ids are compared. Needs the programs in $BUILD, and rpm for the .rpm.
set -euo pipefail
export LC_ALL=C
packages=$(realpath -e -- "$1")
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

newest() { find "$packages" -maxdepth 1 -name "$1" -printf '%T@ %p\n' | sort -n | sed -n '$s/^[^ ]* //p'; }

# describe ROOT FILE...: a line for each file, with mode, path and contents
describe() {
    local root=$1 file sum
    shift
    cd "$root"
    for file in "$@"; do
        case $file in
            */bin/* | */sbin/*) sum=$(readelf -n "$file" | sed -n 's/ *Build ID: //p') ;;
            *) sum=$(sha256sum < "$file") ;;
        esac
        printf '%s %s %s\n' "$(stat -c %a "$file")" "$file" "${sum:?no build id in $file}"
    done
}
files() { (cd "$1" && find . -type f | sort); }

# compare NAME EXTRA...: what is unpacked in $work/NAME against what was installed in $work/installed
compare() {
    local name=$1 installed package
    shift
    mapfile -t installed < <(files "$work/installed")
    [ "$name" = deb ] || mapfile -t installed < <(printf '%s\n' "${installed[@]}" | grep -vF "$left_out")
    mapfile -t package < <(files "$work/$name" | grep -vxFf <(printf '%s\n' "$@"))
    diff -u <(describe "$work/installed" "${installed[@]}") <(describe "$work/$name" "${package[@]}") ||
        { echo "contents.sh: the .$name differs from make install" >&2; exit 1; }
    if find "$work/$name" -mindepth 1 -maxdepth 1 ! -name usr | grep .; then
        echo "contents.sh: the .$name has more than /usr" >&2
        exit 1
    fi
    echo "contents: the .$name has what make install has, ${#installed[@]} files"
}

make -s install install-ns8-files DESTDIR="$work/installed"

deb=$(newest 'portsd_*.deb')
dpkg-deb -x "$deb" "$work/deb"
if dpkg-deb -c "$deb" | grep -v ' root/root '; then
    echo "contents.sh: not root's" >&2
    exit 1
fi
compare deb ./usr/share/doc/portsd/{changelog.Debian.gz,changelog.gz,copyright} \
    ./usr/share/lintian/overrides/portsd

# see build.sh: a policy of Debian's is no use to those who install an .rpm
left_out=/selinux/
[ -e /etc/debian_version ] || left_out=/none/
rpm=$(newest 'portsd-*.rpm')
mkdir "$work/rpm"
rpm2cpio "$rpm" | (cd "$work/rpm" && cpio -idm --quiet)
if rpm -qp --qf '[%{FILEUSERNAME} %{FILEGROUPNAME} %{FILENAMES}\n]' "$rpm" | grep -v '^root root '; then
    echo "contents.sh: not root's" >&2
    exit 1
fi
compare rpm ./usr/share/licenses/portsd/LICENSE

lintian --fail-on error,warning --allow-root "$deb"
echo "lintian: nothing to complain about"
