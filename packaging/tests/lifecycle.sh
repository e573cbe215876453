#!/bin/bash
# lifecycle.sh OLD NEW: two builds of the package (.deb, or .rpm) through a life on this machine: OLD is
# installed, NEW takes its place while modules call, and is removed, installed again and purged.
#
# For a machine to throw away, with systemd running, and no portsd on it. Prints a line for each promise
# that is kept, and ends with status 1 at the first that is not. OLD and NEW may be of one version, but hold
# different programs. LAST=removal ends there.
set -euo pipefail
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
old=$(realpath -e -- "$1")
new=$(realpath -e -- "$2")

sockets=(portsd-{,admin-}{varlink,jsonrpc}.socket)
modules=(pkgtest1 pkgtest2 pkgtest3 pkgtest4)
pace=0
# where the processor is emulated: fewer steps, and callers who leave it some time
if [ -n "${BRIEF:-}" ]; then
    modules=(pkgtest1 pkgtest2)
    pace=4
fi
work=$(mktemp -d)
chmod 0755 "$work"
callers=()
trap 'stop_callers; rm -rf "$work"' EXIT

fail() {
    echo "lifecycle.sh: $*" >&2
    journalctl --no-pager -b -n 30 -u portsd.service -u 'portsd-*' >&2 || true
    exit 1
}
kept() { echo "ok: $*"; }

# --nodeps: the libraries of a Debian are not known to rpm. --noplugins: one runs scripts in a domain that
# Debian's policy does not have.
case $new in
    *.deb)
        install=(dpkg -i)
        remove=(dpkg --remove portsd)
        ;;
    *.rpm)
        install=(rpm -U --nodeps --noplugins --force)
        remove=(rpm -e --noplugins portsd)
        ;;
    *) fail "neither .deb nor .rpm: $new" ;;
esac
# package COMMAND...: with what it says only if it fails
package() { timeout 300 "$@" > "$work/said" 2>&1 || { cat "$work/said" >&2; fail "failed: $*"; }; }
as() { runuser -u "$1" -- "${@:2}"; }
property() { systemctl show --value -p "$1" "${@:2}"; }
now() { date +%s%N; }

# call MODULE: until $work/stop is there, asks for a range that it has, and takes and frees another one.
# A line for each call: when it began, how many ms it took, its status and what it printed.
call() {
    local command began status said
    while ! [ -e "$work/stop" ]; do
        for command in 'ensure web 4 tcp' 'ensure more 2 udp' 'deallocate udp --name more'; do
            began=$(now)
            status=0
            # shellcheck disable=SC2086  # words of a command
            said=$(as "$1" "$work/portsctl" $command 2>&1) || status=$?
            echo "$began $((($(now) - began) / 1000000)) $status ${said//$'\n'/ }"
            sleep "$pace"
        done
    done > "$work/calls.$1"
}
start_callers() {
    rm -f "$work"/stop "$work"/calls.*
    # of their own, as in a container: the package's goes with the package
    cp /usr/bin/portsctl "$work/portsctl"
    for module in "${modules[@]}"; do
        call "$module" &
        callers+=($!)
    done
    sleep 1
}
stop_callers() {
    touch "$work/stop"
    [ ${#callers[@]} = 0 ] || wait "${callers[@]}" || true
    callers=()
}
sockets_are_active() {
    [ "$(systemctl is-active "${sockets[@]}" | sort -u)" = active ] || fail "not every socket is active"
}
ports_are_the_same() {
    local module
    for module in "${modules[@]}"; do
        as "$module" portsctl ensure web 4 tcp | cmp -s - "$work/web.$module" || fail "$module has other ports"
    done
}
# answered FROM TO: every call has been answered, and some were waiting between these times
answered() {
    local calls inside longest
    calls=$(cat "$work"/calls.* | wc -l)
    if grep -hvE '^[0-9]+ [0-9]+ 0 [0-9]+-[0-9]+$' "$work"/calls.*; then
        fail "calls were not answered"
    fi
    inside=$(cat "$work"/calls.* | awk -v from="$1" -v to="$2" '$1 + $2 * 1e6 > from && $1 < to' | wc -l)
    longest=$(cat "$work"/calls.* | sort -k 2n | awk 'END { print $2 }')
    [ "$inside" -gt 0 ] || fail "nobody called meanwhile"
    kept "all $calls calls were answered, $inside of them meanwhile; the longest took $longest ms"
}

# Under SELinux, without a reboot: the service and its files have the labels of the policy that came along.
labelled() {
    local wrong
    command -v selinuxenabled > /dev/null && selinuxenabled || return 0
    wrong=$(matchpathcon -V /usr/sbin/portsd /run/portsd /run/portsd/* /run/portsd-admin /run/portsd-admin/* \
        /var/lib/portsd /var/lib/portsd/* | grep -v ' verified\.$' || true)
    [ -z "$wrong" ] || fail "$wrong"
    grep -q ':portsd_t:' "/proc/$(property MainPID portsd.service)/attr/current" || fail "it is not confined"
    [ "$(stat -c %C /run/portsd/org.nethserver.Ports | cut -d: -f3)" = portsd_var_run_t ] ||
        fail "there is no policy"
    kept "$1: labelled and confined"
}
unlabelled() {
    command -v selinuxenabled > /dev/null && selinuxenabled || return 0
    ! semodule -l | grep -q '^portsd' || fail "the policy is left"
    [ -z "$(find /run/portsd /run/portsd-admin /var/lib/portsd -context '*:portsd_*')" ] || fail "labels are left"
    kept "$1: neither policy nor labels are left"
}

! command -v portsd > /dev/null || fail "portsd is here already"

# ---- installed
package "${install[@]}" "$old"
sockets_are_active
[ "$(systemctl is-enabled "${sockets[@]}" | sort -u)" = enabled ] || fail "not every socket is enabled"
[ "$(systemctl is-enabled portsd-reclaim.timer)" = disabled ] || fail "the timer is not off"
! systemctl is-active --quiet portsd.service || fail "the service runs before anybody has called"
grep -q '20000-45000' /proc/sys/net/ipv4/ip_local_reserved_ports || fail "the pool is not reserved"
for module in "${modules[@]}"; do
    id -u "$module" > /dev/null 2>&1 || useradd --system --no-create-home "$module"
    portsctl set-module "$module" --label org.nethserver.tcp-ports-demand=4 \
        --label org.nethserver.udp-ports-demand=4 --label org.nethserver.authorizations=node:portsadm > /dev/null
    as "$module" portsctl ensure web 4 tcp > "$work/web.$module"
done
kept "installed: sockets listen, the first call starts the service"
labelled installed

# ---- upgraded while they call
sha256sum /usr/sbin/portsd > "$work/old-program"
pid=$(property MainPID portsd.service)
listening=$(property ActiveEnterTimestampMonotonic "${sockets[@]}")
start_callers
from=$(now)
package "${install[@]}" "$new"
to=$(now)
sleep 1
stop_callers
answered "$from" "$to"
[ "$(property MainPID portsd.service)" != "$pid" ] || fail "the old program still runs"
[ "$(property ActiveEnterTimestampMonotonic "${sockets[@]}")" = "$listening" ] || fail "a socket was restarted"
[ "$(property NRestarts portsd.service)" = 0 ] || fail "the service did not start at once"
[ "$(property NeedDaemonReload portsd.service "${sockets[@]}" | sort -u | xargs)" = no ] ||
    fail "systemd does not know the new units"
! sha256sum --status -c "$work/old-program" || fail "both packages have the same program"
cmp -s "/proc/$(property MainPID portsd.service)/exe" /usr/sbin/portsd || fail "this is not the new program"
ports_are_the_same
kept "upgraded: the new program runs, the sockets have listened all the time, ports are the same"
labelled upgraded

# ---- upgraded while nobody calls, by an administrator who wants no JSON-RPC
if [ -z "${BRIEF:-}" ]; then
    systemctl disable --quiet --now portsd-jsonrpc.socket
    systemctl stop portsd.service 2> /dev/null          # which warns that sockets may start it
    package "${install[@]}" "$new"
    [ "$(systemctl is-active portsd.service)" = inactive ] || fail "the upgrade has started the service"
    [ "$(systemctl is-active portsd-jsonrpc.socket)" = inactive ] || fail "the upgrade has started a socket"
    [ "$(systemctl is-enabled portsd-jsonrpc.socket)" = disabled ] || fail "the upgrade has enabled a socket"
    portsctl list > /dev/null
    systemctl enable --quiet portsd-jsonrpc.socket
    kept "upgraded while it was stopped: it stays so, and a socket that is disabled, too"
fi

# ---- removed while they call
systemctl enable --quiet --now portsd-reclaim.timer
start_callers
package "${remove[@]}"
stop_callers
# answered, or told that nobody is there
if grep -hvE '^[0-9]+ [0-9]+ (0 [0-9]+-[0-9]+|7 .*)$' "$work"/calls.*; then
    fail "calls were neither answered nor refused"
fi
! pgrep -x portsd > /dev/null || fail "the service still runs"
states=$(systemctl is-active portsd.service portsd-reclaim.timer "${sockets[@]}" | sort | uniq -c | xargs) || true
[ "$states" = '6 inactive' ] || fail "units are still active: $states"
! systemctl cat portsd.service > /dev/null 2>&1 || fail "systemd still has the unit"
[ -s /var/lib/portsd/ports.sqlite ] || fail "the database is gone"
[ -z "$(find /run/portsd /run/portsd-admin -type s)" ] || fail "a socket is left"
kept "removed: nothing runs, and the database is there"
unlabelled removed

[ "${LAST:-}" != removal ] || exit 0

# ---- installed again
package "${install[@]}" "$new"
sockets_are_active
ports_are_the_same
kept "installed again: ports are the same"
labelled "installed again"

# ---- purged, when the user is gone already
mkdir -p /etc/portsd
echo '# nothing' > /etc/portsd/portsd.toml
[ ! -e /usr/sbin/portsd ] || package "${remove[@]}"
userdel portsd
case $new in
    *.deb)
        package dpkg --purge portsd
        for left in /var/lib/portsd /etc/portsd /etc/systemd/system/*/portsd-*; do
            if [ -e "$left" ] || [ -L "$left" ]; then
                fail "$left is left"
            fi
        done
        kept "purged: neither database nor configuration is left"
        ;;
esac
