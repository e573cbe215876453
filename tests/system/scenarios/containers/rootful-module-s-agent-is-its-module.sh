# A rootful module has no user. Its agent's unit says which module it is; the core's agents are none, nor
# is a unit that only looks like one.
register samba1
agent() {
    printf '%s\n' '[Service]' 'Type=oneshot' "ExecStart=/bin/sh -c 'portsctl --socket $MODULE $1 > /run/agent.out 2>&1'" \
        > /run/systemd/system/agent@.service
    systemctl daemon-reload
    rm -f /run/agent.out
    systemctl start "$2" 2> /dev/null || true
    cat /run/agent.out
}
equal 'agent@samba1' "$(caller "$(agent 'whoami --json' agent@samba1.service)")" 'module samba1 0'
equal 'its range' "$(agent 'allocate 3 tcp' agent@samba1.service)" 20000-20002
# the core's, even if somebody has registered modules of that name
register node
register cluster
for name in node cluster unknown1; do
    equal "agent@$name" "$(caller "$(agent 'whoami --json' "agent@$name.service")")" 'anonymous - 0'
done
like 'agent@node allocates' "$(agent 'allocate 3 tcp' agent@node.service)" '*permission denied*'

# by User=mail1 it is that user, whatever the unit is called
register mail1
printf '%s\n' '[Service]' 'Type=oneshot' 'User=mail1' 'StandardOutput=file:/tmp/scenario/who' \
    "ExecStart=portsctl whoami --json" > /run/systemd/system/agent@.service
systemctl daemon-reload
systemctl start agent@samba1.service
equal 'agent with a user' "$(caller "$(cat /tmp/scenario/who)")" 'module mail1 1000'
# nor is a unit of nearly that name the agent, or one of that name in a user's own manager, be it root's
systemd-run -q --wait --unit=notagent@samba1.service -p StandardOutput=file:/tmp/scenario/who portsctl --socket "$MODULE" whoami --json
equal 'another unit' "$(caller "$(cat /tmp/scenario/who)")" 'anonymous - 0'
users_own() {
    user_manager "$1"
    as_user "$1" systemd-run --user -q --wait --unit=agent@samba1.service \
        sh -c "portsctl --socket $MODULE whoami --json > /tmp/scenario/who.$1" || fail "$(journalctl -q --no-pager -n 20)"
    caller "$(cat "/tmp/scenario/who.$1")"
}
chmod 1777 /tmp/scenario
equal 'unit of mail1'\''s own' "$(users_own mail1)" 'module mail1 1000'
equal 'unit of root'\''s own' "$(users_own root)" 'anonymous - 0'
