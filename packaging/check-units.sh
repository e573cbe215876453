#!/bin/bash
# check-units.sh ROOT: holds the installed units against systemd's own checks.
#
# ROOT is what `make install DESTDIR=ROOT` has filled. Fails if `systemd-analyze verify` has
# anything to say about our units, or if the service's exposure level is 2.0 or above.
# Needs systemd (no running one), and not root.
set -euo pipefail
export LC_ALL=C SYSTEMD_COLORS=0 SYSTEMD_PAGER=

# The highest exposure level that passes, in tenths.
limit=19

root=${1:?usage: check-units.sh ROOT}
root=$(realpath -e -- "$root")
service=$(find "$root" -name portsd.service -type f)
if [ "$(wc -l <<< "$service")" != 1 ] || [ -z "$service" ]; then
    echo "check-units.sh: $root must hold exactly one portsd.service" >&2
    exit 2
fi
units=$(dirname "$service")

# `verify --root=` finds none of the system's own units (sysinit.target and so on) in a folder that
# holds only ours, and stops there. Without it, the program's path would have to exist here. So the
# units are copied, and the copy of the service names the program inside ROOT.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp "$units"/portsd.service "$units"/portsd-*.{socket,service,timer} "$copy"/
# The | may not be in the path, and systemd would take % for a specifier and a blank for an end.
case $root in *['|&%\ ']*) echo "check-units.sh: unusable path: $root" >&2; exit 2 ;; esac
sed -i "s|^ExecStart=|&$root|" "$copy"/*.service

# The status says little: many warnings leave it 0. Whatever the check says about units of this
# system that ours only refer to is none of our business, and differs from machine to machine.
status=0
said=$(systemd-analyze verify --man=no "$copy"/portsd* 2>&1) ||
    status=$?
ours=$(grep -F -e portsd -e "$copy" <<< "$said" || true)
if [ -n "$ours" ]; then
    echo "check-units.sh: systemd-analyze verify says:" >&2
    echo "${ours//"$copy/"/}" >&2
    exit 1
elif [ "$status" != 0 ]; then
    echo "check-units.sh: systemd-analyze verify failed with status $status:" >&2
    echo "$said" >&2
    exit 1
fi
echo "units: nothing to complain about"

status=0
report=$(systemd-analyze security --offline=true --threshold="$limit" --no-pager \
    "$copy"/portsd.service 2>&1) || status=$?
score=$(sed -n 's/.*Overall exposure level for portsd\.service: \([0-9.]*\).*/\1/p' <<< "$report")
if [ "$status" != 0 ] || [ -z "$score" ]; then
    echo "$report" >&2
    echo "check-units.sh: exposure level ${score:-unknown}, but it must be below 2.0" >&2
    exit 1
fi
echo "security: exposure level $score, below 2.0"
