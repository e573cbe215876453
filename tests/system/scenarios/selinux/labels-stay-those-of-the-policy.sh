# Whatever is started, restarted or relabelled, every file has the label that the policy names for it.
portsctl allocate 4 tcp --owner host/labels > /dev/null
equal 'after the start' "$(wrong_labels)" ''
systemctl restart portsd.service
equal 'after a restart' "$(wrong_labels)" ''
systemctl restart "${SOCKETS[@]}"
portsctl backup > /dev/null
equal 'after a restart of the sockets' "$(wrong_labels)" ''
equal 'what restorecon would change' "$(restorecon -R -n -v /run/portsd /run/portsd-admin /var/lib/portsd)" ''
restorecon -R -F /run/portsd /run/portsd-admin /var/lib/portsd
equal 'after restorecon' "$(wrong_labels)" ''
portsctl allocate 4 udp --owner host/labels > /dev/null
