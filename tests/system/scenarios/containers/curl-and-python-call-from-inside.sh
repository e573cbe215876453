# What a module's image may have instead of portsctl: curl, and Python with the package varlink.
register mail1
answer=$(in_container mail1 -- curl --silent --show-error --unix-socket "$MODULE_HTTP" http://localhost/ \
    -H 'content-type: application/json' \
    -d '{"jsonrpc":"2.0","id":7,"method":"allocate","params":{"ports":4,"protocol":"tcp"}}')
equal 'curl' "$answer" '{"jsonrpc":"2.0","id":7,"result":{"range":{"start":20000,"end":20003}}}'
equal 'python' "$(caller "$(in_container mail1 --user 1000 -- python3 -W ignore /test/callers.py)")" 'module mail1 100999'
equal 'python, rootful' "$(caller "$(in_container root -- python3 -W ignore /test/callers.py)")" 'anonymous - 0'
# the three see the same
equal 'portsctl' "$(in_container mail1 -- /test/portsctl allocate 4 tcp)" 20000-20003
