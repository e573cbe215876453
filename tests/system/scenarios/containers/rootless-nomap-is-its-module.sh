# Not even root inside is the module's user outside.
register mail1
mapfile -t said < <(printf '%s\n' 'whoami --json' 'allocate 2 tcp' | ask_in_container mail1 --userns=nomap)
equal 'caller' "$(caller "${said[0]}")" 'module mail1 100000'
equal 'range' "${said[1]}" 20000-20001
