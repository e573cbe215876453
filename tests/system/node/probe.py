"""probe.py: tries what the hardening of portsd.service forbids, and what the service needs.

One line for each: `ok …`, or what was possible, or what was not.
"""
import ctypes
import mmap
import os
import socket
import subprocess
import sys

libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    """A function of the C library, whose failure is an OSError."""
    if getattr(libc, name)(*arguments) == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def write(path):
    """Makes a file, and removes it again."""
    with open(path, "w", encoding="ascii"):
        pass
    os.unlink(path)


def connect(family, address):
    """A TCP connection that does not wait for long: who drops packets refuses, too."""
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(3)
        client.connect(address)


def send(address):
    """One datagram."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(b"x", address)


def execute_own_file():
    """A program in the only place that can be written to."""
    path = "/var/lib/portsd/program"
    with open("/bin/true", "rb") as source, open(path, "wb") as copy:
        copy.write(source.read())
    try:
        os.chmod(path, 0o755)
        subprocess.run([path], check=True)
    finally:
        os.unlink(path)


def writable_code():
    """Memory that can be written to and executed."""
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)


def set_uid_file():
    """A file with the set-user-id bit."""
    path = "/var/lib/portsd/file"
    with open(path, "w", encoding="ascii"):
        pass
    try:
        os.chmod(path, 0o4755)
    finally:
        os.unlink(path)


def signal_another():
    """A signal to another user's process."""
    os.kill(1, 0)


CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET = 0x10000000, 0x00020000, 0x40000000
MS_BIND, PTRACE_ATTACH, SCHED_FIFO = 4096, 16, 1

forbidden = {
    "write in /etc": lambda: write("/etc/x"),
    "write in /usr": lambda: write("/usr/x"),
    "write in a directory for anybody": lambda: write("/opt/anybody/x"),
    "write in the sockets' directory": lambda: write("/run/portsd/x"),
    "write in /run": lambda: write("/run/x"),
    "write in /run/lock, where anybody may": lambda: write("/run/lock/x"),
    "write in the cgroups": lambda: write("/sys/fs/cgroup/x"),
    "remove a socket": lambda: os.unlink("/run/portsd/org.nethserver.Ports"),
    "see the home of a user": lambda: os.stat("/home/mail1/private"),
    "set a kernel setting": lambda: write("/proc/sys/kernel/hostname"),
    "open a disk": lambda: os.open("/dev/nvme0n1", os.O_RDONLY),
    "open the kernel's log": lambda: os.open("/dev/kmsg", os.O_RDONLY),
    "open fuse": lambda: os.open("/dev/fuse", os.O_RDWR),
    "become root": lambda: os.setuid(0),
    "give a file away": lambda: os.chown("/var/lib/portsd", 0, 0),
    "signal another user's process": signal_another,
    "trace another process": lambda: call("ptrace", PTRACE_ATTACH, os.getppid(), None, None),
    "make a user namespace": lambda: call("unshare", CLONE_NEWUSER),
    "make a mount namespace": lambda: call("unshare", CLONE_NEWNS),
    "make a network namespace": lambda: call("unshare", CLONE_NEWNET),
    "mount": lambda: call("mount", b"/etc", b"/var/lib/portsd", None, MS_BIND, None),
    "change the root": lambda: os.chroot("/var/lib/portsd"),
    "have packets of its own": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "have a Bluetooth socket": lambda: socket.socket(socket.AF_BLUETOOTH, socket.SOCK_RAW, 0),
    "have a vsock": lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM),
    "send a datagram out": lambda: send(("192.0.2.1", 53)),
    "connect out": lambda: connect(socket.AF_INET, ("192.0.2.1", 80)),
    "execute what it has written": execute_own_file,
    "have memory for code of its own": writable_code,
    "make a set-user-id file": set_uid_file,
    "run in real time": lambda: os.sched_setscheduler(0, SCHED_FIFO, os.sched_param(1)),
    "set the clock": lambda: call("settimeofday", ctypes.byref((ctypes.c_long * 2)(0, 0)), None),
    "set the host's name": lambda: call("sethostname", b"x", 1),
    "load a kernel module": lambda: call("init_module", None, 0, b""),
    "reboot": lambda: call("reboot", 0),
    "swap": lambda: call("swapoff", b"/x"),
    "change the personality": lambda: call("personality", 0x0400000),
}

needed = {
    "write its state": lambda: write("/var/lib/portsd/x"),
    "read the users": lambda: open("/etc/subuid", encoding="ascii").close(),
    "read another process's cgroup": lambda: open("/proc/1/cgroup", encoding="ascii").close(),
    "read the overflow user id": lambda: open("/proc/sys/kernel/overflowuid", encoding="ascii").close(),
    "ask the kernel for sockets": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 4),
    "reach loopback": lambda: send(("127.0.0.1", 9)),
}

for is_wanted, attempts in ((False, forbidden), (True, needed)):
    for what, attempt in attempts.items():
        try:
            attempt()
        except OSError as error:
            is_possible, outcome = False, f"can't {what}: {error}"
        else:
            is_possible, outcome = True, f"can {what}"
        print("ok  " if is_possible == is_wanted else "BAD ", outcome)
sys.stdout.flush()
