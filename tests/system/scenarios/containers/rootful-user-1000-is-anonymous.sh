# The same number as the first module's user, and yet not that user.
register mail1
equal 'caller' "$(caller "$(in_container root --user 1000 -- /test/portsctl whoami --json)")" 'anonymous - 1000'
refused 3 in_container root --user 1000 -- /test/portsctl allocate 1 tcp
# with the host's process ids and network, too
equal 'caller of the host'\''s namespaces' \
    "$(caller "$(in_container root --user 1000 --pid=host --privileged -- /test/portsctl whoami --json)")" 'anonymous - 1000'
# whereas a service of the host that has this user is the module
systemd-run -q --wait -p User=mail1 -p StandardOutput=file:/tmp/scenario/who portsctl whoami --json
equal 'service' "$(caller "$(cat /tmp/scenario/who)")" 'module mail1 1000'
