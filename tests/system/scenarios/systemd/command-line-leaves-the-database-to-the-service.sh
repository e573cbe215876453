# Side files that root's commands leave would lock the service out of its own database.
register mail1
for state in running stopped; do
    [ "$state" = running ] || systemctl stop portsd.service
    portsctl check > /dev/null 2>&1 || true
    portsctl backup /tmp/scenario/copy-$state > /dev/null
    portsctl list > /dev/null
    runuser -u mail1 -- portsctl list > /dev/null
    equal "owners while $state" "$(find /var/lib/portsd ! -user portsd)" ''
    equal "modes while $state" "$(find /var/lib/portsd -type f ! -perm 640 ! -path '*/backups/*')" ''
    runuser -u mail1 -- cat "$DATABASE" > /dev/null 2>&1 && fail 'a module reads the database'
    runuser -u mail1 -- portsctl allocate 2 tcp > /dev/null
done
