# It is started by systemd, in the domain that policies have for programs without one of their own.
register mail1
systemctl start portsd-reclaim.service || fail "$(journalctl -q --no-pager -u portsd-reclaim.service -n 20)"
equal 'result' "$(property Result portsd-reclaim.service)" success
