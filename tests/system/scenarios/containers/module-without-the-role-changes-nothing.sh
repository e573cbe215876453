# A module whose image has not asked for the role sees its own ports and no more; revoking counts at once.
portsctl set-module mail1 --label org.nethserver.tcp-ports-demand=8
refused 3 in_container mail1 -- /test/portsctl allocate 1 tcp
like 'refusal' "$said" '*portsadm*'
register mail1
equal 'range' "$(in_container mail1 -- /test/portsctl allocate 1 tcp)" 20000-20000
portsctl remove-module mail1 > /dev/null
equal 'removed' "$(caller "$(in_container mail1 -- /test/portsctl whoami --json)")" 'anonymous - 1000'
