# A socket unit that is stopped, one that was never there, and one for others: three messages, each with
# a way out, and none waits.
systemctl stop "${SOCKETS[@]}"
refused 7 portsctl --socket "$MODULE" whoami
stopped=$said
rm "$MODULE"
refused 7 portsctl --socket "$MODULE" whoami
missing=$said
systemctl start "${SOCKETS[@]}"
refused 7 runuser -u mail1 -- portsctl --socket "$ADMIN" whoami
forbidden=$said
equal 'messages' "$(printf '%s\n' "$stopped" "$missing" "$forbidden" | sort -u | wc -l)" 3
like 'of a stopped one' "$stopped" '*systemctl*'
like 'of a missing one' "$missing" '*no such socket*'
