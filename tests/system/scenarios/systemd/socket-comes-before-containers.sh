# sockets.target has them, which is reached before anything that starts containers.
for unit in "${SOCKETS[@]}"; do
    equal "$unit" "$(systemctl is-enabled "$unit")" enabled
    like "Before= of $unit" " $(property Before "$unit") " '* sockets.target *'
    like "WantedBy= of $unit" " $(property WantedBy "$unit") " '* sockets.target *'
done
like 'After= of basic.target' " $(property After basic.target) " '* sockets.target *'
