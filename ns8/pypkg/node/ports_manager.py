"""The ports of this node, for NS8's own actions: the functions that they call, on portsd.

NS8's add-module takes a new module's ports from node.ports_manager, in its own process. The node
agent looks for Python packages here before it looks among NS8's own.
"""
# Put here by portsd.

import json
import subprocess

# portsctl's exit statuses that have an exception of their own
_USAGE = 2
_NO_ROOM = 5


class PortError(Exception):
    """What all of these have in common."""


class PortRangeExceededError(PortError):
    """No free block of the pool is large enough."""


class StorageError(PortError):
    """portsd can't be reached, can't work, or refuses."""


class InvalidPortRequestError(PortError):
    """Nobody can have so many ports, or ports by that name."""


def _portsctl(*arguments):
    """Calls portsd as an administrator and returns its reply."""
    run = subprocess.run(
        ["portsctl", "--json", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if run.returncode == 0:
        return json.loads(run.stdout)
    kinds = {_USAGE: InvalidPortRequestError, _NO_ROOM: PortRangeExceededError}
    raise kinds.get(run.returncode, StorageError)(run.stderr.strip())


def _ends(found):
    return found["start"], found["end"]


def allocate_ports(required_ports, module_name, protocol, keep_existing=False):
    """Returns the first and the last port of the range that the module has now."""
    more = ["--keep-existing"] if keep_existing else []
    reply = _portsctl("allocate", f"--owner={module_name}", *more, "--", str(required_ports), protocol)
    return _ends(reply["range"])


def deallocate_ports(module_name, protocol):
    """Frees all ports of the protocol; returns the ends of each range that was freed."""
    reply = _portsctl("deallocate", f"--owner={module_name}", "--", protocol)
    return [_ends(freed) for freed in reply["ranges"]]


def _count(module_name, protocol):
    held = _portsctl("list", f"--owner={module_name}", f"--protocol={protocol}")["allocations"]
    return sum(one["end"] - one["start"] + 1 for one in held if not one["claimed"])


def get_tcp_ports_by_module(module_name):
    """Returns how many TCP ports the module has."""
    return _count(module_name, "tcp")


def get_udp_ports_by_module(module_name):
    """Returns how many UDP ports the module has."""
    return _count(module_name, "udp")


def write_range(start, end, module, protocol, database=None):
    """What NS8's own upgrade step calls, which kept two digits of a UDP range."""
    raise StorageError("old allocations are taken over by `portsctl import`")
