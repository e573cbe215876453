# A user inside who is no user outside, but a subordinate one of the module's.
register mail1
ask_in_container mail1 --user 1000 <<< $'whoami --json\nallocate 2 udp'
equal 'caller' "$(caller "${answers[0]}")" 'module mail1 100999'
equal 'range' "${answers[1]}" 20000-20001
