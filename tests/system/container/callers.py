"""callers.py: who the service takes the caller for, by way of the package varlink."""
import json

import varlink

PORTS = "org.nethserver.Ports"
with varlink.Client.new_with_address(f"unix:/run/portsd/{PORTS}") as client:
    with client.open(PORTS) as ports:
        print(json.dumps(ports.WhoAmI()))
