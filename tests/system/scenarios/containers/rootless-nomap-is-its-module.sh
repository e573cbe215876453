# Not even root inside is the module's user outside.
register mail1
ask_in_container mail1 --userns=nomap <<< $'whoami --json\nallocate 2 tcp'
equal 'caller' "$(caller "${answers[0]}")" 'module mail1 100000'
equal 'range' "${answers[1]}" 20000-20001
