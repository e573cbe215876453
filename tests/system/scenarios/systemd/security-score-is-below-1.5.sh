# What systemd-analyze thinks of the unit, on the systemd that runs it. What it still counts, and why:
#   PrivateUsers, PrivateNetwork, ProtectProc, ProcSubset: would blind the service, as the unit says
#   AF_UNIX, AF_NETLINK: callers, and the ports that are bound
#   AF_INET, AF_INET6, the allow list of IPAddressDeny: Redis on loopback
#   RootDirectory, UMask, DeviceAllow: /etc, /run and /usr are read; a group may read the database
systemd-analyze security --no-pager --threshold=14 portsd.service > /tmp/scenario/report || {
    cat /tmp/scenario/report
    fail 'the exposure level is 1.5 or higher'
}
explained='^(RootDirectory=/RootImage=|RestrictAddressFamilies=.*|ProtectProc=|ProcSubset=|PrivateNetwork=|PrivateUsers=|DeviceAllow=|IPAddressDeny=|UMask=)$'
equal 'settings that nobody has explained' \
    "$(awk '$1 == "✗" { print $2 }' /tmp/scenario/report | grep -v -E "$explained" || true)" ''
