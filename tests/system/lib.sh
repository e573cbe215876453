# What the scenarios share. Runs in the node, as root, with errexit and nounset.
# shellcheck shell=bash
# shellcheck disable=SC2034

SOCKETS=(portsd-varlink.socket portsd-jsonrpc.socket portsd-admin-varlink.socket portsd-admin-jsonrpc.socket)
export MODULE=/run/portsd/org.nethserver.Ports
export MODULE_HTTP=/run/portsd/jsonrpc.sock
export ADMIN=/run/portsd-admin/org.nethserver.Ports
export DATABASE=/var/lib/portsd/ports.sqlite
HERE=/opt/system-test

# The guest's processor is emulated. Waiting is bounded, and nothing else depends on the time.
if [ "${TIER:-}" = namespace ] || { [ -z "${TIER:-}" ] && systemd-detect-virt --quiet --container; }; then
    TIER=namespace PATIENCE=60 SCENARIO_LIMIT=240
else
    TIER=guest PATIENCE=240 SCENARIO_LIMIT=600
fi
export TIER

fail() {
    echo "failed: $*" >&2
    exit 1
}

# equal WHAT FOUND EXPECTED
equal() {
    [ "$2" = "$3" ] || fail "$1: found '$2', expected '$3'"
}

# like WHAT FOUND PATTERN, a shell pattern
like() {
    # shellcheck disable=SC2053
    [[ $2 == $3 ]] || fail "$1: found '$2', expected something like '$3'"
}

# wait_until WHAT COMMAND...
wait_until() {
    local what=$1 end=$((SECONDS + PATIENCE))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || fail "waited in vain until $what"
        sleep 0.1
    done
}

# wait_for_more WHAT COUNT COMMAND...: until the number that COMMAND prints has grown by COUNT
wait_for_more() { wait_until "$1" reaches $(($("${@:3}") + $2)) "${@:3}"; }
reaches() { [ "$("${@:2}")" -ge "$1" ]; }

# refused STATUS COMMAND...: it must end with this status. What it said is in $said: in a command
# substitution, a failure would be lost.
refused() {
    local expected=$1 status=0
    shift
    said=$("$@" 2>&1) || status=$?
    [ "$status" = "$expected" ] || fail "'$*' ended with $status instead of $expected: $said"
}

# ---- units

property() { systemctl show -P "$1" "${2:-portsd.service}"; }
main_pid() { property MainPID; }
is_state() { [ "$(property ActiveState "${2:-portsd.service}")" = "$1" ]; }
service_is() { wait_until "portsd.service is $1" is_state "$1"; }

sockets_listen() {
    local unit
    for unit in "${SOCKETS[@]}"; do
        like "$unit" "$(property ActiveState "$unit") $(property SubState "$unit")" 'active @(listening|running)'
    done
}

nothing_failed() {
    equal 'failed units' "$(systemctl list-units --failed --no-legend --plain 'portsd*' | awk '{ print $1 }')" ''
}

# drop_in UNIT LINE...: gone again with the scenario
drop_in() {
    local unit=$1
    shift
    mkdir -p "/run/systemd/system/$unit.d"
    printf '%s\n' "$@" > "/run/systemd/system/$unit.d/scenario.conf"
    systemctl daemon-reload
}

# remove_portsd: what `make install` and its next steps have done, undone
remove_portsd() {
    # unless a package's life has ended here before
    [ -e /usr/lib/systemd/system/portsd.service ] || return 0
    systemctl -q disable --now "${SOCKETS[@]}"
    systemctl stop portsd.service
    make -s -C /usr/src/portsd uninstall
    systemctl daemon-reload
    if [ "$TIER" = guest ]; then
        semodule -r portsd
    else
        # then packages find a node that has never heard of SELinux
        rm /etc/selinux/config
    fi
    rm -rf /var/lib/portsd /run/portsd /run/portsd-admin
    userdel portsd
}

# ---- calls

# register MODULE: with the role, and a demand of 8 ports of either protocol
register() {
    portsctl set-module "$1" --label org.nethserver.tcp-ports-demand=8 \
        --label org.nethserver.udp-ports-demand=8 --label org.nethserver.authorizations=node:portsadm
}

as_user() {
    local user=$1
    shift
    runuser -u "$user" -- env -C / XDG_RUNTIME_DIR="/run/user/$(id -u "$user")" "$@"
}

# http METHOD [PARAMETERS]: a JSON-RPC call on the module socket, with curl
http() {
    curl --silent --show-error --max-time "$PATIENCE" --unix-socket "$MODULE_HTTP" \
        -H 'content-type: application/json' http://localhost/ \
        -d "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"$1\",\"params\":${2:-{\}}}"
}

# caller JSON: who WhoAmI has found, as "caller moduleId uid"
caller() {
    python3 -c 'import json, sys; who = json.loads(sys.argv[1])
print(who["caller"], who.get("moduleId") or "-", who["uid"])' "$1"
}

# ---- containers

# user_manager USER: starts it, as a module's user has it
user_manager() {
    loginctl enable-linger "$1"
    wait_until "$1 has a manager" test -S "/run/user/$(id -u "$1")/bus"
}

podman_as() {
    local user=$1
    shift
    if [ "$user" = root ]; then
        podman "$@"
    else
        user_manager "$user"
        as_user "$user" podman "$@"
    fi
}

# in_container USER [OPTION...] -- COMMAND...: what COMMAND prints in a container of USER's, which has
# the sockets' directory. Its output comes through a file: a confined container may not write to what
# podman would give it, where the policy is Debian's.
in_container() {
    local user=$1 options=() out
    shift
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    out=$(mktemp -d /var/tmp/out.XXXXXX)
    chown "$user" "$out"
    chmod 777 "$out"
    # shellcheck disable=SC2016
    podman_as "$user" run --rm --network=none -v /run/portsd:/run/portsd -v "$HERE/container:/test:ro" \
        -v "$out:/out:Z" -e PORTSD_SOCKET="$MODULE" -e PYTHONPATH=/test "${options[@]}" system-test \
        sh -c '"$@" > /out/out 2>&1; echo $? > /out/status' sh "$@" > "$out/podman" 2>&1 ||
        fail "podman: $(cat "$out/podman")"
    cat "$out/out"
    local status
    status=$(cat "$out/status")
    rm -rf "$out"
    return "$status"
}

# ask_in_container USER [OPTION...] < LINES: portsctl with each line as its arguments, in one container. What
# it says is in the array $answers, a line for each, which ends with the exit status where that is not 0.
ask_in_container() {
    local lines output
    mapfile -t lines
    # shellcheck disable=SC2016
    output=$(in_container "$@" -- sh -c 'for line; do
        said=$(/test/portsctl $line 2>&1) || said="$said ($?)"
        echo "$said" | tr "\n" " " | sed "s/ $//"
        echo
    done' sh "${lines[@]}")
    mapfile -t answers <<< "$output"
    equal 'answers' "${#answers[@]}" "${#lines[@]}"
}

# ---- SELinux

# Files whose label is not what the policy names for them.
wrong_labels() {
    matchpathcon -V /usr/sbin/portsd /run/portsd /run/portsd/* /run/portsd-admin /run/portsd-admin/* \
        /var/lib/portsd /var/lib/portsd/* | grep -v ' verified\.$' || true
}

# The kernel's log begins anew with each scenario.
forget_denials() { [ "$TIER" != guest ] || dmesg --clear; }
denials() { dmesg --notime | grep -E 'avc: +denied' || true; }

# expect_denials PATTERN, an extended regular expression: this scenario tries what is forbidden.
expect_denials() { printf '%s\n' "$1" > /tmp/scenario/expected-denials; }

# denied DOMAIN TYPE: that has happened
denied() {
    denials | grep -q "scontext=[^ ]*:$1:.* tcontext=[^ ]*:$2:" || fail "no denial of $1 to $2"
}

# Denials of portsd and of containers, but for those that are explained or expected.
unexpected_denials() {
    [ "$TIER" = guest ] || return 0
    denials | grep -E 'context=[^ ]*:portsd_[a-z_]*t:|scontext=[^ ]*:container_[a-z_]*t:' |
        grep -v -E -f <(grep -v -e '^#' -e '^$' "$HERE/explained-denials"
            cat /tmp/scenario/expected-denials 2> /dev/null) || true
}
