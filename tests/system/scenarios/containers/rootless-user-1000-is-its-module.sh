# A user inside who is no user outside, but a subordinate one of the module's.
register mail1
mapfile -t said < <(printf '%s\n' 'whoami --json' 'allocate 2 udp' | ask_in_container mail1 --user 1000)
equal 'caller' "$(caller "${said[0]}")" 'module mail1 100999'
equal 'range' "${said[1]}" 20000-20001
