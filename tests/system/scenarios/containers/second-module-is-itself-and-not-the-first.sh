register mail1
register webtop1
equal 'range of the first' "$(in_container mail1 -- /test/portsctl allocate 4 tcp)" 20000-20003
ask_in_container webtop1 --user 1000 <<'LINES'
whoami --json
allocate 4 tcp
list --json
deallocate tcp --owner mail1
LINES
equal 'second, user 1000' "$(caller "${answers[0]}")" 'module webtop1 166535'
equal 'range of the second' "${answers[1]}" 20004-20007
like 'what the second sees' "${answers[2]}" '*webtop1*'
[[ ${answers[2]} != *mail1* ]] || fail 'the second sees the first'
like 'freeing what the first has' "${answers[3]}" '*permission denied* (3)'
equal 'second, root' "$(caller "$(in_container webtop1 -- /test/portsctl whoami --json)")" 'module webtop1 1001'
equal 'range of the first' "$(portsctl allocate 4 tcp --owner mail1)" 20000-20003
