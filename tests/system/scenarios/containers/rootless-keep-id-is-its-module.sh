register mail1
mapfile -t said < <(printf '%s\n' 'whoami --json' 'allocate 2 tcp' | ask_in_container mail1 --userns=keep-id)
equal 'caller' "$(caller "${said[0]}")" 'module mail1 1000'
equal 'range' "${said[1]}" 20000-20001
