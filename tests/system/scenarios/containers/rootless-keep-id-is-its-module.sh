register mail1
ask_in_container mail1 --userns=keep-id <<< $'whoami --json\nallocate 2 tcp'
equal 'caller' "$(caller "${answers[0]}")" 'module mail1 1000'
equal 'range' "${answers[1]}" 20000-20001
