# Nothing hangs on the pid of a caller: it may be in a namespace of its own, or gone before the answer.
register mail1
equal 'pid namespace' "$(caller "$(as_user mail1 unshare --user --pid --fork --mount-proc portsctl whoami --json)")" 'module mail1 1000'
as_user mail1 python3 -c 'import os, socket, sys
for _ in range(50):
    if os.fork() == 0:
        client = socket.socket(socket.AF_UNIX)
        client.connect(sys.argv[1])
        client.send(b"{\"method\":\"org.nethserver.Ports.WhoAmI\"}\0")
        os._exit(0)
    os.wait()' "$MODULE"
equal 'afterwards' "$(caller "$(as_user mail1 portsctl whoami --json)")" 'module mail1 1000'
nothing_failed
