# The directory /run/portsd is the same directory, with the same owner, mode and label, whatever the service does.
labels=
[ "$TIER" = namespace ] || labels=' %C'
look() { stat -c "%n %i %U:%G %a$labels" /run/portsd /run/portsd/* /run/portsd-admin /run/portsd-admin/*; }
before=$(look)
portsctl whoami > /dev/null
equal 'after the start' "$(look)" "$before"
systemctl restart portsd.service
equal 'after a restart' "$(look)" "$before"
kill -KILL "$(main_pid)"
service_is active
equal 'after a crash' "$(look)" "$before"
systemctl stop portsd.service
equal 'after a stop' "$(look)" "$before"
echo 'no such key = 1' > /tmp/scenario/bad.toml
mkdir -p /etc/portsd
cp /tmp/scenario/bad.toml /etc/portsd/portsd.toml
systemctl start portsd.service 2> /dev/null && fail 'it starts with a bad configuration'
equal 'after a failed start' "$(look)" "$before"
systemctl stop portsd.service
