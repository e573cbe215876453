# Root inside is the module's user outside, and has what the module has: no more, no less.
register mail1
ask_in_container mail1 <<'LINES'
whoami --json
allocate 4 tcp
allocate 9 tcp
allocate 4 tcp --owner mail1
allocate 1 tcp --owner root
allocate 1 tcp --owner webtop1
allocate 1 tcp --owner host/mine
allocate 1 tcp --owner mail1x
allocate 1 tcp --on-behalf-of webtop1
list-modules
LINES
equal 'caller' "$(caller "${answers[0]}")" 'module mail1 1000'
equal 'range' "${answers[1]}" 20000-20003
like 'beyond the demand' "${answers[2]}" '*8* (4)'
# naming anybody, itself as well as root, makes it nobody else
equal 'as itself' "${answers[3]}" 20000-20003
for answer in "${answers[@]:4:5}"; do
    like 'as another' "$answer" '*permission denied* (3)'
done
like 'admin interface' "${answers[9]}" '*does not offer org.nethserver.Ports.Admin*[(]1[)]'
equal 'owners' "$(portsctl list --json | python3 -c 'import json, sys
print(*[one["owner"] for one in json.load(sys.stdin)["allocations"]])')" mail1
