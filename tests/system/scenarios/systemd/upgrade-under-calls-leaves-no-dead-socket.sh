# A package's upgrade: program and units are replaced, everything is restarted, while somebody calls all
# the time. Calls wait or are refused cleanly, and are answered again after each; the new settings are in
# force.
units=/usr/lib/systemd/system
portsctl allocate 4 tcp --owner host/kept > /tmp/scenario/range
touch /tmp/scenario/statuses
(while [ ! -e /tmp/scenario/done ]; do
    status=0
    timeout "$PATIENCE" portsctl list --owner host/kept > /dev/null 2>> /tmp/scenario/said || status=$?
    echo "$status" >> /tmp/scenario/statuses
    sleep 0.01
done) &
answered() { grep -c -x 0 /tmp/scenario/statuses || true; }
cp "$units/portsd.service" "$units/portsd-varlink.socket" /tmp/scenario/
restore() { cp /tmp/scenario/portsd* "$units/"; systemctl daemon-reload; touch /tmp/scenario/done; }
trap restore EXIT
for _ in 1 2 3; do
    wait_for_more 'calls are answered' 2 answered
    cp --remove-destination /usr/sbin/portsd /usr/sbin/portsd.new
    mv /usr/sbin/portsd.new /usr/sbin/portsd
    [ "$TIER" = namespace ] || restorecon /usr/sbin/portsd
    sed -i 's/^TimeoutStopSec=.*/TimeoutStopSec=19/' "$units/portsd.service"
    sed -i 's/^Backlog=.*/Backlog=1000/' "$units/portsd-varlink.socket"
    systemctl daemon-reload
    systemctl restart "${SOCKETS[@]}" portsd.service || fail 'the upgrade failed'
    wait_for_more 'calls are answered after the upgrade' 2 answered
done
touch /tmp/scenario/done
wait
equal 'stop time of the new unit' "$(property TimeoutStopUSec)" 19s
# Send-Q of a listener, as the kernel has it
equal 'backlog of the new socket' "$(ss -lxH src "$MODULE" | awk '{ print $4 }')" 1000
# a status that is no refusal of portsctl's own, such as timeout's
equal 'strange ends of calls' "$(grep -v -x -e 0 -e 7 /tmp/scenario/statuses || true)" ''
sockets_listen
equal 'range' "$(portsctl allocate 4 tcp --owner host/kept)" "$(cat /tmp/scenario/range)"
nothing_failed
