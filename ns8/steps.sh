#!/bin/sh
# steps.sh put: puts the files beside this one where NS8's node looks for them. Those of NS8 that they
#     replace are kept.
# steps.sh restore: takes them away again, and puts back what was kept.
#
# Both can be repeated. Nothing is put on a node whose allocations portsd has not taken over: it would
# hand them out again. The exit status is 3 then.
set -eu
ours=$(cd "$(dirname "$0")" && pwd)
node=${AGENT_INSTALL_DIR:-/var/lib/nethserver/node}
kept=$node/portsd-replaced
record=$node/state/portsd-import.txt

files() { (cd "$ours" && find actions pypkg update-core.d -type f ! -name '*.pyc'); }

# Each of ours says so, of whatever version it is.
is_ours() { grep -qsF 'Put here by portsd' "$node/$1"; }

exists() { [ -e "$1" ] || [ -L "$1" ]; }

# put_in_place FILE TARGET: copied elsewhere first, since the agent runs whatever is in an action's
# directory, at any time, and since a copy may end in the middle. What such a one has left may be a link,
# which would be followed.
put_in_place() {
    mkdir -p "$kept" "${2%/*}"
    rm -f "$kept/.new"
    cp -pP "$1" "$kept/.new"
    mv -fT "$kept/.new" "$2"
}

put() {
    if ! [ -d "$node/state" ]; then
        echo "portsd: $node is no node of NS8, and gets nothing" >&2
        return
    fi
    if ! [ -f "$record" ]; then
        printf '%s\n' 'portsd has not taken over the ports of this node yet. Next, as root, while no task' \
            'of the node runs, and with portsd at work:' \
            '  systemctl stop agent@node' \
            "  runagent -m node $ours/update-core.d/10upgrade_ports" \
            "  $ours/steps.sh put" \
            '  systemctl start agent@node' >&2
        exit 3
    fi
    for file in $(files); do
        if cmp -s "$ours/$file" "$node/$file"; then
            continue
        fi
        if exists "$node/$file" && ! is_ours "$file"; then
            put_in_place "$node/$file" "$kept/$file"
        fi
        put_in_place "$ours/$file" "$node/$file"
        echo "portsd: $node/$file is in place" >&2
    done
}

restore() {
    # NS8's allocator goes on with its file, so that the next switch has to import it again. First: if this
    # does not get to its end, that is known, too.
    if [ -f "$record" ]; then
        mv -f "$record" "$record.old"
    fi
    for file in $(files); do
        # what is not ours any longer, an update of the core has put there, or taken away
        if ! is_ours "$file"; then
            continue
        fi
        if exists "$kept/$file"; then
            mv -fT "$kept/$file" "$node/$file"
            echo "portsd: $node/$file is NS8's again" >&2
        else
            rm -f "$node/$file"
            rmdir "$node/${file%/*}" 2> /dev/null || true       # NS8's own, unless it is empty
        fi
    done
    rm -rf "$kept"
}

# One at a time, and not while 10upgrade_ports is at work.
alone() {
    if [ -d "$node/state" ]; then
        exec 9< "$node/state"
        flock -w 600 9 || { echo "portsd: $node/state is locked: is this at work elsewhere? Try again" >&2; exit 1; }
    fi
}

case ${1:-} in
    put | restore)
        alone
        "$1"
        ;;
    *) echo "usage: steps.sh put|restore" >&2; exit 2 ;;
esac
