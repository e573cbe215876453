# No service has it as a runtime directory, which would be removed with it; and portsd can't write there.
for service in $(systemctl list-unit-files --no-legend --type=service | awk '$2 != "masked" { print $1 }' | grep -v '@\.'); do
    for directory in $(property RuntimeDirectory "$service"); do
        [[ $directory != portsd* ]] || fail "$service has $directory"
    done
done
for unit in "${SOCKETS[@]}"; do
    equal "RemoveOnStop of $unit" "$(property RemoveOnStop "$unit")" no
done
# by the file's owner and mode
for path in /run/portsd /run/portsd-admin; do
    setpriv --reuid portsd --regid portsd --clear-groups touch "$path/x" 2> /dev/null && fail "portsd writes in $path"
done
true
