# Its user id is 0, as the administrator's; on the module sockets that is nobody.
register mail1
ask_in_container root <<'LINES'
whoami --json
allocate 1 tcp
allocate 1 tcp --owner mail1
list
LINES
equal 'caller' "$(caller "${answers[0]}")" 'anonymous - 0'
for answer in "${answers[@]:1}"; do
    like 'refusal' "$answer" '*permission denied* (3)'
done
# root of another user namespace has lost even that number
equal 'mapped' "$(caller "$(in_container root --uidmap 0:300000:1000 -- /test/portsctl whoami --json)")" \
    'anonymous - 300000'
