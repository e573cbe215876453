"""Talks to portsd with PyPI's varlink package, as a module's own script would.

usage: varlink_client.py SOCKET OWNER
"""

import sys

import varlink

socket, owner = sys.argv[1:]
with varlink.Client.new_with_address("unix:" + socket) as client:
    interfaces = client.get_interfaces()
    assert "org.nethserver.Ports" in interfaces, interfaces
    with client.open("org.nethserver.Ports") as ports:
        first = ports.Allocate(4, "tcp", None, owner, None)
        again = ports.Allocate(ports=4, protocol="tcp", owner=owner)
        assert first == again, (first, again)
        listed = ports.List(owner=owner)["allocations"]
        assert [one["start"] for one in listed] == [first["range"]["start"]], listed
        try:
            ports.Allocate(ports=65535, protocol="tcp", owner=owner)
        except varlink.VarlinkError as error:
            assert error.error() == "org.nethserver.Ports.PoolExhausted", error
            assert error.parameters()["requested"] == 65535, error
        else:
            raise AssertionError("not refused")
        try:
            ports.Allocate(ports=0, protocol="tcp", owner=owner)
        except varlink.VarlinkError as error:
            assert error.error() == "org.varlink.service.InvalidParameter", error
        else:
            raise AssertionError("not refused")
        # nothing is answered, so the next reply is that of the next call
        ports.Allocate(ports=1, protocol="udp", owner=owner, _oneway=True)
        listed = ports.List(owner=owner, protocol="udp")["allocations"]
        assert len(listed) == 1, listed
        freed = ports.Deallocate(protocol="tcp", owner=owner)["ranges"]
        assert freed == [first["range"]], freed
        # the last call on this connection, since it goes on being answered
        events = ports.Monitor(_more=True)
        kinds = [next(events)["event"]["kind"] for _ in range(2)]
        assert kinds == ["present", "ready"], kinds
    print(f"{first['range']['start']}-{first['range']['end']}")
