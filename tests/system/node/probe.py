"""probe.py: tries what the hardening of portsd.service forbids, and what the service needs.

One line for each: `ok …`, or what was possible, or what was not. What is forbidden has to fail with the
error that the hardening gives: where it is another one without it, the attempt shows the setting.
"""
import ctypes
import errno
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


def trace_me():
    """Lets the parent trace a process, as anybody may: another one, since it stops at the next signal."""
    child = os.fork()
    if child == 0:
        libc.ptrace(PTRACE_TRACEME, 0, None, None)
        os._exit(ctypes.get_errno())
    error = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if error:
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
MS_BIND, PTRACE_TRACEME, PTRACE_ATTACH, SCHED_FIFO = 4096, 0, 16, 1
# an address that is the node's own and not loopback's, which the scenario gives it
OTHER_ADDRESS = "192.0.2.1"

forbidden = {
    # ProtectSystem=, ReadOnlyPaths=
    "write in /etc": ("EROFS", lambda: write("/etc/x")),
    "write in /usr": ("EROFS", lambda: write("/usr/x")),
    "write in a directory for anybody": ("EROFS", lambda: write("/opt/anybody/x")),
    "write in the sockets' directory": ("EROFS", lambda: write("/run/portsd/x")),
    "write in /run": ("EROFS", lambda: write("/run/x")),
    "write in /run/lock, where anybody may": ("EROFS", lambda: write("/run/lock/x")),
    "remove a socket": ("EROFS", lambda: os.unlink("/run/portsd/org.nethserver.Ports")),
    # ProtectControlGroups=, ProtectKernelTunables=
    "write in the cgroups": ("EROFS", lambda: write("/sys/fs/cgroup/x")),
    "set a kernel setting": ("EROFS EACCES", lambda: write("/proc/sys/kernel/hostname")),
    # ProtectHome=
    "read what users let anybody read": ("EACCES", lambda: os.stat("/home/anybody/file")),
    # PrivateTmp=
    "see the temporary files of others": ("ENOENT", lambda: os.stat("/tmp/scenario/file")),
    # PrivateDevices=
    "open a disk": ("ENOENT", lambda: os.open("/dev/nvme0n1", os.O_RDONLY)),
    "open the kernel's log": ("ENOENT", lambda: os.open("/dev/kmsg", os.O_RDONLY)),
    "open fuse": ("ENOENT", lambda: os.open("/dev/fuse", os.O_RDWR)),
    "open a device that anybody may": ("ENOENT", lambda: os.open("/dev/anybody", os.O_RDWR)),
    # User=, CapabilityBoundingSet=
    "become root": ("EPERM", lambda: os.setuid(0)),
    "give a file away": ("EPERM", lambda: os.chown("/var/lib/portsd", 0, 0)),
    "run in real time": ("EPERM", lambda: os.sched_setscheduler(0, SCHED_FIFO, os.sched_param(1))),
    "signal another user's process": ("EPERM", signal_another),
    "trace another process": ("EPERM", lambda: call("ptrace", PTRACE_ATTACH, 1, None, None)),
    "mount": ("EPERM", lambda: call("mount", b"/etc", b"/var/lib/portsd", None, MS_BIND, None)),
    "make a mount namespace": ("EPERM", lambda: call("unshare", CLONE_NEWNS)),
    "make a network namespace": ("EPERM", lambda: call("unshare", CLONE_NEWNET)),
    "change the root": ("EPERM", lambda: os.chroot("/var/lib/portsd")),
    "set the clock": ("EPERM", lambda: call("settimeofday", ctypes.byref((ctypes.c_long * 2)(0, 0)), None)),
    "set the host's name": ("EPERM", lambda: call("sethostname", b"x", 1)),
    "load a kernel module": ("EPERM", lambda: call("init_module", None, 0, b"")),
    "reboot": ("EPERM", lambda: call("reboot", 0)),
    "swap": ("EPERM", lambda: call("swapoff", b"/x")),
    # SystemCallFilter=: what any process may do
    "be traced": ("EPERM", trace_me),
    "give its own file to itself": ("EPERM", lambda: os.chown("/var/lib/portsd", -1, -1)),
    "have itself scheduled as a batch job": ("EPERM", lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))),
    # RestrictNamespaces=, LockPersonality=, MemoryDenyWriteExecute=, RestrictSUIDSGID=, NoExecPaths=
    "make a user namespace": ("EPERM", lambda: call("unshare", CLONE_NEWUSER)),
    "change the personality": ("EPERM", lambda: call("personality", 0x0400000)),
    "have memory for code of its own": ("EPERM EACCES", writable_code),
    "make a set-user-id file": ("EPERM", set_uid_file),
    "execute what it has written": ("EACCES", execute_own_file),
    # RestrictAddressFamilies=
    "have packets of its own": ("EAFNOSUPPORT", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)),
    "have a Bluetooth socket": ("EAFNOSUPPORT", lambda: socket.socket(socket.AF_BLUETOOTH, socket.SOCK_RAW, 0)),
    "have a vsock": ("EAFNOSUPPORT", lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)),
    "use the kernel's ciphers": ("EAFNOSUPPORT", lambda: socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)),
    # IPAddressDeny=
    "send a datagram elsewhere": ("EPERM", lambda: send((OTHER_ADDRESS, 53))),
    "connect elsewhere": ("EPERM ETIMEDOUT", lambda: connect(socket.AF_INET, (OTHER_ADDRESS, 80))),
}

needed = {
    "write its state": lambda: write("/var/lib/portsd/x"),
    "read the users": lambda: open("/etc/subuid", encoding="ascii").close(),
    "read another process's cgroup": lambda: open("/proc/1/cgroup", encoding="ascii").close(),
    "read the overflow user id": lambda: open("/proc/sys/kernel/overflowuid", encoding="ascii").close(),
    "ask the kernel for sockets": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 4),
    "reach loopback": lambda: send(("127.0.0.1", 9)),
    # and leave behind what RemoveIPC= removes
    "share memory": lambda: call("shmget", 0, 4096, 0o1600),
}


def failure(attempt):
    """The name of the error that it ends with, or None."""
    try:
        attempt()
    except TimeoutError:
        return "ETIMEDOUT"
    except OSError as error:
        return errno.errorcode[error.errno]
    return None


for what, (expected, attempt) in forbidden.items():
    found = failure(attempt)
    print("ok  " if found in expected.split() else "BAD ", f"{what}: {found}, expected {expected}")
for what, attempt in needed.items():
    found = failure(attempt)
    print("ok  " if found is None else "BAD ", f"{what}: {found}")
sys.stdout.flush()
