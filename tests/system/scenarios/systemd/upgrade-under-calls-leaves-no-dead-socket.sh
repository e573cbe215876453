# A package's upgrade: program and units are replaced, everything is restarted, while somebody calls all
# the time. Calls wait or are refused cleanly; afterwards the new settings are in force.
units=/usr/lib/systemd/system
portsctl allocate 4 tcp --owner host/kept > /tmp/scenario/range
(while [ ! -e /tmp/scenario/done ]; do
    timeout "$PATIENCE" portsctl list --owner host/kept > /dev/null 2>> /tmp/scenario/said || echo $? >> /tmp/scenario/statuses
    sleep 0.01
done) &
cp "$units/portsd.service" "$units/portsd-varlink.socket" /tmp/scenario/
restore() { cp /tmp/scenario/portsd* "$units/"; systemctl daemon-reload; touch /tmp/scenario/done; }
trap restore EXIT
for _ in 1 2 3; do
    cp --remove-destination /usr/sbin/portsd /usr/sbin/portsd.new
    mv /usr/sbin/portsd.new /usr/sbin/portsd
    [ "$TIER" = namespace ] || restorecon /usr/sbin/portsd
    sed -i 's/^TimeoutStopSec=.*/TimeoutStopSec=19/' "$units/portsd.service"
    sed -i 's/^Backlog=.*/Backlog=1000/' "$units/portsd-varlink.socket"
    systemctl daemon-reload
    systemctl restart "${SOCKETS[@]}" portsd.service || fail 'the upgrade failed'
done
touch /tmp/scenario/done
wait
equal 'stop time of the new unit' "$(property TimeoutStopUSec)" 19s
equal 'backlog of the new unit' "$(property Backlog portsd-varlink.socket)" 1000
# a status that is no refusal of portsctl's own, such as timeout's
equal 'strange ends of calls' "$(grep -v -x 7 /tmp/scenario/statuses 2> /dev/null || true)" ''
sockets_listen
equal 'range' "$(portsctl allocate 4 tcp --owner host/kept)" "$(cat /tmp/scenario/range)"
nothing_failed
