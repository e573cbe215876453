# The socket is open to all, so that it does not matter which groups a container keeps.
register mail1
equal 'caller' "$(caller "$(setpriv --reuid mail1 --regid mail1 --clear-groups portsctl whoami --json)")" 'module mail1 1000'
equal 'caller of another group' "$(caller "$(setpriv --reuid mail1 --regid nogroup --clear-groups portsctl whoami --json)")" 'module mail1 1000'
equal 'in a container' "$(caller "$(in_container mail1 --user 33:33 -- /test/portsctl whoami --json)")" 'module mail1 100032'
