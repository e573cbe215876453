# A socket unit that is stopped, one that was never there, and one for others: three messages, each with
# a way out.
systemctl stop "${SOCKETS[@]}"
refused 7 portsctl --socket "$MODULE" whoami
like 'of a stopped one' "$said" '*nobody listens on this socket*systemctl restart portsd-varlink.socket*'
rm "$MODULE"
refused 7 portsctl --socket "$MODULE" whoami
like 'of a missing one' "$said" '*there is no such socket*systemctl restart portsd-varlink.socket*'
systemctl start "${SOCKETS[@]}"
refused 7 runuser -u mail1 -- portsctl --socket "$ADMIN" whoami
like 'of one for others' "$said" '*this user may not connect to the socket*try again as root*'
