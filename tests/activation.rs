//! Where the daemon's sockets come from, what it tells the service manager, and how it ends.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use support::*;
use tempfile::TempDir;

/// The binary under test.
const PORTSD: &str = env!("CARGO_BIN_EXE_portsd");

/// The daemon's command line, without sockets; its log goes to the file `log`.
fn portsd(directory: &Path) -> Command {
    with_log(Command::new(PORTSD), directory)
}

/// The daemon's command line behind a line of shell that the same process runs first.
fn portsd_after(line: &str, directory: &Path) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{line}\nexec \"$0\" \"$@\"")).arg(PORTSD);
    with_log(command, directory)
}

fn with_log(mut command: Command, directory: &Path) -> Command {
    let log = fs::OpenOptions::new().create(true).append(true).open(directory.join("log")).unwrap();
    command.arg("--state-dir").arg(directory.join("state"));
    let config = directory.join("portsd.toml");
    if config.exists() {
        command.arg("--config").arg(config);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    // the log goes to standard error only when that is not the journal
    command.env_remove("JOURNAL_STREAM");
    command
}

fn listen(command: &mut Command, name: &str, path: &Path) {
    command.arg("--listen").arg(format!("{name}={}", path.display()));
}

/// Gives a process file descriptors 3, 4 and so on.
#[allow(unsafe_code, reason = "nothing safe puts a descriptor at a chosen number")]
fn pass(command: &mut Command, descriptors: &[OwnedFd]) {
    let numbers: Vec<i32> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    // SAFETY: dup2 is async-signal-safe and the closure allocates nothing. The sources are open
    // until the process has been started, and lie above all targets.
    unsafe {
        command.pre_exec(move || {
            for (target, source) in (3..).zip(&numbers) {
                if nix::libc::dup2(*source, target) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
}

/// Holds listening sockets and hands them to daemons, as the service manager does.
struct Manager {
    directory: PathBuf,
    names: Vec<String>,
    descriptors: Vec<OwnedFd>,
}

impl Manager {
    fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), names: Vec::new(), descriptors: Vec::new() }
    }

    /// Listens at the names' own paths in the directory; at `NAME-2` the second time.
    fn listening(directory: &Path, names: &[&str]) -> Self {
        let mut manager = Self::new(directory);
        for name in names {
            let first = directory.join(name);
            let path = if first.exists() { directory.join(format!("{name}-2")) } else { first };
            let listener = UnixListener::bind(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
            manager.add(name, listener);
        }
        manager
    }

    fn add(&mut self, name: &str, descriptor: impl Into<OwnedFd>) {
        // out of the way of the numbers that they will get
        let number = fcntl(descriptor.into(), FcntlArg::F_DUPFD_CLOEXEC(64)).unwrap();
        self.descriptors.push(adopt(number));
        self.names.push(name.to_owned());
    }

    /// The daemon's command line, with the sockets and with `exports` in its environment, where
    /// `$$` is its own process id.
    fn command_with(&self, exports: &str) -> Command {
        let mut command = portsd_after(&format!("export {exports}"), &self.directory);
        command.env("LISTEN_FDS", self.descriptors.len().to_string());
        command.env("LISTEN_FDNAMES", self.names.join(":"));
        pass(&mut command, &self.descriptors);
        command
    }

    fn command(&self) -> Command {
        self.command_with("LISTEN_PID=$$")
    }

    fn start(&self, directory: TempDir) -> Daemon {
        Daemon { child: self.command().spawn().unwrap(), directory }
    }
}

#[allow(unsafe_code, reason = "fcntl returns a number that belongs to nobody yet")]
fn adopt(number: i32) -> OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: fcntl has just made it for us.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// What a daemon tells its service manager.
struct Notifications {
    socket: UnixDatagram,
    seen: Vec<String>,
}

impl Notifications {
    fn bind(directory: &Path) -> Self {
        let socket = UnixDatagram::bind(directory.join("notify")).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket, seen: Vec::new() }
    }

    fn drain(&mut self) {
        let mut buffer = [0; 4096];
        // a daemon that floods us is found by its count
        for _ in 0..10_000 {
            let Ok(length) = self.socket.recv(&mut buffer) else { return };
            let text = std::str::from_utf8(&buffer[..length]).unwrap();
            self.seen.extend(text.lines().map(str::to_owned));
        }
    }

    fn count(&mut self, line: &str) -> usize {
        self.drain();
        self.seen.iter().filter(|seen| *seen == line).count()
    }

    fn wait_for(&mut self, line: &str, count: usize) {
        wait_for(line, || (self.count(line) >= count).then_some(()));
    }
}

fn allocate(client: &mut varlink::Client, owner: &str, ports: u16) -> (u64, u64) {
    let parameters = json!({ "ports": ports, "protocol": "tcp", "owner": owner });
    range(&client.call(PORTS, "Allocate", parameters).unwrap())
}

fn range(reply: &Value) -> (u64, u64) {
    let range = &reply["range"];
    (range["start"].as_u64().unwrap(), range["end"].as_u64().unwrap())
}

/// Whether the socket answers a call; its own administrator is asked for nothing.
fn answers(path: &Path) -> bool {
    let reply = varlink::Client::connect(path).call(PORTS, "WhoAmI", json!({}));
    reply.unwrap()["caller"].is_string()
}

/// The inodes of the sockets that a process holds.
fn sockets_of(pid: i32) -> BTreeSet<u64> {
    fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        // a descriptor may be closed meanwhile
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .filter_map(|target| {
            target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        })
        .collect()
}

/// The inode of a socket of this process.
fn inode(descriptor: &OwnedFd) -> u64 {
    let link = fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd())).unwrap();
    let text = link.to_str().unwrap();
    text.strip_prefix("socket:[").unwrap().strip_suffix(']').unwrap().parse().unwrap()
}

/// What /proc/net/unix says of the sockets that a process holds: their paths.
fn socket_paths(pid: i32) -> Vec<String> {
    let held = sockets_of(pid);
    let table = fs::read_to_string("/proc/net/unix").unwrap();
    let paths = table.lines().skip(1).filter_map(|line| {
        let mut columns = line.split_whitespace().skip(6);
        let inode = columns.next()?.parse().ok()?;
        held.contains(&inode).then(|| columns.next().unwrap_or_default().to_owned())
    });
    paths.collect()
}

fn permutations(names: &[&'static str]) -> Vec<Vec<&'static str>> {
    if names.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, first) in names.iter().enumerate() {
        let rest: Vec<_> = [&names[..at], &names[at + 1..]].concat();
        for mut order in permutations(&rest) {
            order.insert(0, first);
            all.push(order);
        }
    }
    all
}

#[test]
fn inherited_sockets_are_told_apart_by_name_in_every_order() {
    let orders = permutations(&ENDPOINTS);
    assert_eq!(orders.len(), 24);
    for order in orders {
        let directory = directory();
        let manager = Manager::listening(directory.path(), &order);
        let daemon = manager.start(directory);
        for client in &mut both_wires(&daemon, true, None) {
            assert_eq!(client.call(ADMIN, "ListModules", json!({})).unwrap()["modules"], json!([]));
        }
        for client in &mut both_wires(&daemon, false, None) {
            let refusal = client.call(ADMIN, "ListModules", json!({})).unwrap_err();
            let condition = refusal.condition.as_str();
            assert!(matches!(condition, "InterfaceNotFound" | "MethodNotFound"), "{order:?}");
            let caller = client.call(PORTS, "WhoAmI", json!({})).unwrap()["caller"].clone();
            assert_ne!(caller, "administrator", "{order:?}");
        }
    }
}

#[test]
fn a_name_that_is_passed_twice_is_served_twice() {
    let directory = directory();
    let names = ["varlink", "admin-varlink", "varlink", "admin-varlink"];
    let manager = Manager::listening(directory.path(), &names);
    let daemon = manager.start(directory);
    for path in ["varlink", "varlink-2", "admin-varlink", "admin-varlink-2"] {
        assert!(answers(&daemon.path(path)), "{path}");
    }
    let mut second = varlink::Client::connect(&daemon.path("varlink-2"));
    let refusal = second.call(ADMIN, "ListModules", json!({})).unwrap_err();
    assert_eq!(refusal.condition, "InterfaceNotFound");
}

#[test]
fn a_socket_of_an_unknown_name_is_closed_with_a_line_in_the_log_and_the_rest_are_served() {
    let directory = directory();
    let names = ["varlink", "telnet", "Varlink", "unknown", "admin-varlink"];
    let manager = Manager::listening(directory.path(), &names);
    let daemon = manager.start(directory);
    assert!(answers(&daemon.path("varlink")));
    assert!(answers(&daemon.path("admin-varlink")));
    let held = sockets_of(daemon.pid());
    for (name, descriptor) in manager.names.iter().zip(&manager.descriptors) {
        let is_served = matches!(name.as_str(), "varlink" | "admin-varlink");
        assert_eq!(held.contains(&inode(descriptor)), is_served, "{name}");
    }
    for name in ["telnet", "Varlink", "unknown"] {
        let quoted = format!("{name:?}");
        assert!(daemon.log().lines().any(|line| line.contains(&quoted)), "{name}");
    }
}

#[test]
fn sockets_without_names_are_not_guessed_at() {
    let directory = directory();
    let manager = Manager::listening(directory.path(), &ENDPOINTS);
    let said = refused_start(manager.command().env_remove("LISTEN_FDNAMES"));
    assert!(said.contains("no sockets"), "{said}");
}

#[test]
fn sockets_that_are_meant_for_another_process_are_left_alone() {
    let directory = directory();
    let manager = Manager::listening(directory.path(), &ENDPOINTS);
    let said = refused_start(&mut manager.command_with("LISTEN_PID=1"));
    assert!(said.contains("no sockets") && said.contains("--listen"), "{said}");

    let mut command = manager.command_with("LISTEN_PID=1");
    let own = directory.path().join("own");
    listen(&mut command, "varlink", &own);
    let daemon = Daemon { child: command.spawn().unwrap(), directory };
    wait_for("the daemon", || UnixStream::connect(&own).ok());
    assert!(answers(&own));
    // the descriptors are still open in it, but nobody accepts there
    let mut waiting = UnixStream::connect(daemon.path("varlink")).unwrap();
    waiting.write_all(b"{\"method\":\"org.nethserver.Ports.WhoAmI\"}\0").unwrap();
    assert!(answers(&own));
    waiting.set_nonblocking(true).unwrap();
    let error = std::io::Read::read(&mut waiting, &mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn without_any_socket_the_start_fails_and_says_what_to_do() {
    let directory = directory();
    let said = refused_start(&mut portsd(directory.path()));
    assert!(said.contains("no sockets") && said.contains("--listen"), "{said}");
}

/// Passes one descriptor that can't be served as `varlink`, with and without a good one beside it.
fn assert_refused(name: &str, descriptor: impl Into<OwnedFd>) {
    let directory = directory();
    let mut manager = Manager::new(directory.path());
    manager.add("varlink", descriptor);
    let number = inode_or_file(&manager.descriptors[0]);
    let said = refused_start(&mut manager.command());
    assert!(said.contains("\"varlink\"") && said.contains("no sockets"), "{name}: {said}");

    let path = directory.path().join("good");
    manager.add("varlink", UnixListener::bind(&path).unwrap());
    let daemon = manager.start(directory);
    assert!(answers(&path), "{name}");
    assert!(daemon.log().contains("\"varlink\""), "{name}: {}", daemon.log());
    let held = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
    let targets = held.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    assert!(targets.into_iter().all(|target| target != number), "{name} was not closed");
}

fn inode_or_file(descriptor: &OwnedFd) -> PathBuf {
    fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd())).unwrap()
}

#[test]
fn a_connected_socket_in_the_place_of_a_listening_one_is_refused_by_name() {
    let (here, there) = UnixStream::pair().unwrap();
    assert_refused("a socket pair", there);
    drop(here);

    let directory = directory();
    let listener = UnixListener::bind(directory.path().join("other")).unwrap();
    let _client = UnixStream::connect(directory.path().join("other")).unwrap();
    assert_refused("an accepted connection", listener.accept().unwrap().0);
}

#[test]
fn a_descriptor_of_another_kind_is_refused_by_name() {
    let directory = directory();
    let path = |name: &str| directory.path().join(name);
    assert_refused("a TCP listener", TcpListener::bind("127.0.0.1:0").unwrap());
    assert_refused("a UDP socket", UdpSocket::bind("127.0.0.1:0").unwrap());
    assert_refused("a datagram socket", UnixDatagram::bind(path("datagram")).unwrap());
    assert_refused("a file", fs::File::create(path("file")).unwrap());
}

#[test]
fn an_abstract_socket_is_refused() {
    let name = format!("portsd-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    assert_refused("an abstract socket", UnixListener::bind_addr(&address).unwrap());
}

#[test]
fn no_socket_of_the_daemon_is_abstract() {
    let daemon = Daemon::start();
    assert!(answers(&daemon.path("varlink")));
    let paths = socket_paths(daemon.pid());
    for name in ENDPOINTS {
        let path = daemon.path(name).display().to_string();
        assert!(paths.contains(&path), "{path} is not in {paths:?}");
    }
    assert!(paths.iter().all(|path| !path.starts_with('@')), "{paths:?}");
}

#[test]
fn inherited_socket_files_outlive_every_end_of_the_daemon() {
    let directory = directory();
    let manager = Manager::listening(directory.path(), &ENDPOINTS);
    let inodes = |directory: &Path| {
        ENDPOINTS.map(|name| {
            let found = fs::symlink_metadata(directory.join(name)).unwrap();
            assert!(found.file_type().is_socket());
            (found.ino(), found.mode())
        })
    };
    let before = inodes(directory.path());
    let mut daemon = manager.start(directory);
    assert!(answers(&daemon.path("varlink")));
    assert!(daemon.stop().success());
    assert_eq!(inodes(daemon.directory.path()), before, "after SIGTERM");

    daemon.child = manager.command().spawn().unwrap();
    assert!(answers(&daemon.path("varlink")));
    daemon.signal(Signal::SIGINT);
    assert!(daemon.wait().success());
    assert_eq!(inodes(daemon.directory.path()), before, "after SIGINT");

    daemon.child = manager.command().spawn().unwrap();
    assert!(answers(&daemon.path("varlink")));
    daemon.kill();
    assert_eq!(inodes(daemon.directory.path()), before, "after SIGKILL");

    daemon.child = manager.command().args(["--idle-exit", "1"]).spawn().unwrap();
    assert!(answers(&daemon.path("varlink")));
    assert!(daemon.wait().success());
    assert_eq!(inodes(daemon.directory.path()), before, "after being idle");
}

#[test]
fn calls_that_wait_while_no_daemon_runs_are_answered_by_the_next_one_and_overlap_nothing() {
    let directory = directory();
    let manager = Manager::listening(directory.path(), &ENDPOINTS);
    let mut daemon = manager.start(directory);
    let mut given = Vec::new();
    for round in 0..5 {
        let mut client = daemon.admin();
        for n in 0..3 {
            given.push(allocate(&mut client, &format!("host/before-{round}-{n}"), 3));
        }
        if round % 2 == 0 {
            daemon.kill();
        } else {
            assert!(daemon.stop().success());
        }
        let mut waiting: Vec<_> = (0..5)
            .map(|n| {
                let mut client = daemon.admin();
                let owner = format!("host/waiting-{round}-{n}");
                client.send(&json!({
                    "method": "org.nethserver.Ports.Allocate",
                    "parameters": { "ports": 4, "protocol": "tcp", "owner": owner },
                }));
                client
            })
            .collect();
        daemon.child = manager.command().spawn().unwrap();
        for client in &mut waiting {
            given.push(range(&varlink::result(&client.receive().unwrap()).unwrap()));
        }
    }
    given.sort_unstable();
    assert_eq!(given.len(), 40);
    assert!(given.windows(2).all(|pair| pair[0].1 < pair[1].0), "{given:?}");
    let rows = daemon.rows();
    let rows: Vec<_> = rows.iter().map(|row| (u64::from(row.2), u64::from(row.3))).collect();
    assert_eq!(rows, given);
}

#[test]
fn readiness_is_told_once_and_a_call_is_answered_then_and_the_end_is_told_once() {
    let directory = directory();
    let mut notifications = Notifications::bind(directory.path());
    let mut command = command(directory.path());
    command.env("NOTIFY_SOCKET", directory.path().join("notify"));
    let mut daemon = Daemon { child: command.spawn().unwrap(), directory };
    notifications.wait_for("READY=1", 1);
    // no waiting for the socket: it must be there by now
    assert!(answers(&daemon.path("varlink")));
    assert!(answers(&daemon.path("admin-varlink")));
    for client in &mut both_wires(&daemon, true, None) {
        client.call(PORTS, "GetStatus", json!({})).unwrap();
    }
    assert_eq!(notifications.count("STOPPING=1"), 0);
    assert!(daemon.stop().success());
    assert_eq!(notifications.count("READY=1"), 1);
    assert_eq!(notifications.count("STOPPING=1"), 1);
    let position = |line| notifications.seen.iter().position(|seen| seen == line).unwrap();
    assert!(position("READY=1") < position("STOPPING=1"));
}

#[test]
fn readiness_is_not_told_before_the_database_can_be_used() {
    let directory = directory();
    let manager = Manager::listening(directory.path(), &ENDPOINTS);
    let mut daemon = manager.start(directory);
    assert!(answers(&daemon.path("varlink")));
    assert!(daemon.stop().success());

    let mut notifications = Notifications::bind(daemon.directory.path());
    let other = rusqlite::Connection::open(daemon.database()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    // the new pool has to be written at the start
    fs::write(daemon.path("portsd.toml"), "[pool]\nend = 40000\n").unwrap();
    let mut command = manager.command();
    command.env("NOTIFY_SOCKET", daemon.path("notify"));
    daemon.child = command.spawn().unwrap();
    let mut client = daemon.admin();
    client.send(&json!({ "method": "org.nethserver.Ports.GetStatus" }));
    wait_for("the daemon to open its database", || {
        let held = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
        let mut targets = held.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        targets.any(|target| target == daemon.database()).then_some(())
    });
    thread::sleep(Duration::from_millis(200));
    assert_eq!(notifications.count("READY=1"), 0);
    other.execute_batch("ROLLBACK").unwrap();
    notifications.wait_for("READY=1", 1);
    let reply = client.receive().unwrap();
    assert_eq!(reply["parameters"]["pools"][0]["end"], 40000, "{reply}");
}

#[test]
fn a_start_that_fails_never_tells_readiness() {
    let directory = directory();
    let mut notifications = Notifications::bind(directory.path());
    fs::create_dir(directory.path().join("state")).unwrap();
    fs::write(directory.path().join("state/ports.sqlite"), "not a database").unwrap();
    let manager = Manager::listening(directory.path(), &ENDPOINTS);
    let mut command = manager.command();
    refused_start(command.env("NOTIFY_SOCKET", directory.path().join("notify")));
    assert_eq!(notifications.count("READY=1"), 0);
}

/// A daemon whose service manager expects a sign of life five times a second.
fn watched(exports: &str) -> (Daemon, Notifications) {
    let directory = directory();
    let mut notifications = Notifications::bind(directory.path());
    let manager = Manager::listening(directory.path(), &ENDPOINTS);
    let mut command = manager.command_with(exports);
    command.env("NOTIFY_SOCKET", directory.path().join("notify"));
    command.env("WATCHDOG_USEC", "200000");
    let daemon = Daemon { child: command.spawn().unwrap(), directory };
    notifications.wait_for("READY=1", 1);
    (daemon, notifications)
}

#[test]
fn the_watchdog_is_pinged_for_as_long_as_the_daemon_runs() {
    let (daemon, mut notifications) = watched("LISTEN_PID=$$ WATCHDOG_PID=$$");
    notifications.wait_for("WATCHDOG=1", 5);
    assert!(answers(&daemon.path("varlink")));
    let before = notifications.count("WATCHDOG=1");
    notifications.wait_for("WATCHDOG=1", before + 5);
}

#[test]
fn the_watchdog_is_pinged_while_another_process_keeps_the_database_locked() {
    let (daemon, mut notifications) = watched("LISTEN_PID=$$");
    let mut client = daemon.admin();
    let first = allocate(&mut client, "host/first", 2);
    let other = rusqlite::Connection::open(daemon.database()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    client.send(&json!({
        "method": "org.nethserver.Ports.Allocate",
        "parameters": { "ports": 2, "protocol": "tcp", "owner": "host/second" },
    }));
    // answered by the thread that waits for the lock
    daemon.admin().call(PORTS, "List", json!({})).unwrap();
    let before = notifications.count("WATCHDOG=1");
    notifications.wait_for("WATCHDOG=1", before + 12);
    assert_eq!(daemon.rows().len(), 1);
    other.execute_batch("ROLLBACK").unwrap();
    let second = range(&varlink::result(&client.receive().unwrap()).unwrap());
    assert_eq!(second, (first.1 + 1, first.1 + 2));
    assert_eq!(daemon.rows().len(), 2);
}

#[test]
fn the_watchdog_of_another_process_is_not_pinged() {
    let (mut daemon, mut notifications) = watched("LISTEN_PID=$$ WATCHDOG_PID=1");
    let other = watched("LISTEN_PID=$$");
    let mut others = other.1;
    // long enough for a daemon that is watched, and then the end, which comes after any ping
    others.wait_for("WATCHDOG=1", 8);
    assert!(daemon.stop().success());
    notifications.wait_for("STOPPING=1", 1);
    assert_eq!(notifications.count("WATCHDOG=1"), 0);
}

/// A call for one port that says whose it is.
fn one_port(wire: &str, owner: &str) -> Vec<u8> {
    let parameters = json!({ "ports": 1, "protocol": "tcp", "owner": owner });
    if wire == "admin-varlink" {
        let call = json!({ "method": "org.nethserver.Ports.Allocate", "parameters": parameters });
        return [call.to_string().as_bytes(), b"\0"].concat();
    }
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "allocate", "params": parameters });
    let body = call.to_string();
    let length = body.len();
    format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// The start of the range in everything that came back on a connection, or `None` if nothing did.
fn port_of(wire: &str, bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    let text = std::str::from_utf8(bytes).unwrap();
    let reply: Value = if wire == "admin-varlink" {
        let message = text.strip_suffix('\0').expect("a whole reply");
        serde_json::from_str(message).unwrap()
    } else {
        let (_, body) = text.split_once("\r\n\r\n").expect("a whole reply");
        serde_json::from_str(body).unwrap()
    };
    let field = if wire == "admin-varlink" { "parameters" } else { "result" };
    Some(range(&reply[field]).0)
}

/// Connections with a call written on each.
fn burst(daemon: &Daemon, round: usize) -> Vec<(&'static str, String, UnixStream)> {
    // fewer than one user may have
    (0..60)
        .map(|n| {
            let wire = ["admin-varlink", "admin-jsonrpc"][n % 2];
            let owner = format!("host/burst-{round}-{n}");
            let mut stream = UnixStream::connect(daemon.path(wire)).unwrap();
            stream.write_all(&one_port(wire, &owner)).unwrap();
            (wire, owner, stream)
        })
        .collect()
}

fn port_in_rows(rows: &[(String, String, u16, u16)], owner: &str) -> Option<u64> {
    rows.iter().find(|row| row.0 == owner).map(|row| u64::from(row.2))
}

#[test]
fn at_sigterm_a_call_is_answered_and_stored_or_neither() {
    let mut daemon = Daemon::start();
    let mut answered = 0;
    for round in 0..5 {
        assert!(answers(&daemon.path("varlink")));
        let burst = burst(&daemon, round);
        assert!(daemon.stop().success());
        let rows = daemon.rows();
        for (wire, owner, mut stream) in burst {
            let port = port_of(wire, &read_all(&mut stream));
            assert_eq!(port, port_in_rows(&rows, &owner), "{owner}");
            answered += usize::from(port.is_some());
        }
        daemon.restart();
    }
    assert!(answered > 0, "no call was answered in any round");
}

#[test]
fn at_sigterm_no_call_on_an_inherited_socket_is_lost() {
    let directory = directory();
    let manager = Manager::listening(directory.path(), &ENDPOINTS);
    let mut daemon = manager.start(directory);
    for round in 0..5 {
        assert!(answers(&daemon.path("varlink")));
        let burst = burst(&daemon, round);
        assert!(daemon.stop().success());
        // those that were not accepted wait for the next one
        daemon.child = manager.command().spawn().unwrap();
        for (wire, owner, stream) in burst {
            let reply = if wire == "admin-varlink" {
                let mut client = varlink::Client::new(stream);
                let reply = client.receive().unwrap_or_else(|| panic!("{owner} was lost"));
                range(&varlink::result(&reply).unwrap())
            } else {
                let mut client = jsonrpc::Client::new(stream);
                let reply = client.response().unwrap_or_else(|| panic!("{owner} was lost"));
                range(&reply.json()["result"])
            };
            assert_eq!(Some(reply.0), port_in_rows(&daemon.rows(), &owner), "{owner}");
        }
    }
}

#[test]
fn at_sigterm_connected_clients_are_answered_what_they_have_sent() {
    let mut daemon = Daemon::start();
    let mut clients: Vec<_> = (0..20)
        .map(|n| {
            let mut client = daemon.admin();
            client.call(PORTS, "WhoAmI", json!({})).unwrap();
            (format!("host/known-{n}"), client)
        })
        .collect();
    for (owner, client) in &mut clients {
        client.stream.write_all(&one_port("admin-varlink", owner)).unwrap();
    }
    assert!(daemon.stop().success());
    let rows = daemon.rows();
    for (owner, client) in &mut clients {
        let reply = client.receive().unwrap_or_else(|| panic!("{owner} was not answered"));
        let (start, _) = range(&varlink::result(&reply).unwrap());
        assert_eq!(Some(start), port_in_rows(&rows, owner));
        assert_eq!(client.receive(), None);
    }
}

#[test]
fn an_idle_daemon_ends_and_no_call_is_lost() {
    let directory = directory();
    let manager = Manager::listening(directory.path(), &ENDPOINTS);
    let admin = directory.path().join("admin-varlink");
    let is_over = AtomicBool::new(false);
    let ends = thread::scope(|scope| {
        // the service manager: starts a daemon when a client waits and none runs
        let ends = scope.spawn(|| {
            let mut ends = 0;
            while !is_over.load(Ordering::Acquire) {
                let mut waiting: Vec<_> = manager
                    .descriptors
                    .iter()
                    .map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN))
                    .collect();
                if poll(&mut waiting, PollTimeout::from(50_u8)).unwrap() == 0 {
                    continue;
                }
                let mut child = manager.command().args(["--idle-exit", "1"]).spawn().unwrap();
                let status = wait_for("an idle daemon's end", || child.try_wait().unwrap());
                assert!(status.success(), "{status}");
                ends += 1;
            }
            ends
        });
        // calls that come about when the daemon gives up waiting for them
        let mut given = BTreeSet::new();
        for n in 0..6_u64 {
            let mut client = varlink::Client::connect(&admin);
            given.insert(allocate(&mut client, &format!("host/late-{n}"), 2));
            drop(client);
            thread::sleep(Duration::from_millis(985 + 6 * n));
        }
        assert_eq!(given.len(), 6);
        is_over.store(true, Ordering::Release);
        ends.join().unwrap()
    });
    assert!(ends > 0);
}

#[test]
fn a_daemon_with_a_connection_is_not_idle() {
    let directory = directory();
    let manager = Manager::listening(directory.path(), &ENDPOINTS);
    let child = manager.command().args(["--idle-exit", "1"]).spawn().unwrap();
    let mut daemon = Daemon { child, directory };
    let mut client = daemon.admin();
    for _ in 0..5 {
        client.call(PORTS, "WhoAmI", json!({})).unwrap();
        thread::sleep(Duration::from_millis(300));
    }
    assert_eq!(daemon.child.try_wait().unwrap(), None);
    client.call(PORTS, "WhoAmI", json!({})).unwrap();
    drop(client);
    assert!(daemon.wait().success());
}

/// Every mode that the files have had, from the first sight of each on.
fn watch_modes(paths: &[PathBuf], is_over: &AtomicBool) -> Vec<BTreeSet<u32>> {
    let mut modes = vec![BTreeSet::new(); paths.len()];
    loop {
        // the files are there by then: one more look sees them
        let is_last = is_over.load(Ordering::Acquire);
        for (path, seen) in paths.iter().zip(&mut modes) {
            if let Ok(found) = fs::symlink_metadata(path) {
                seen.insert(found.mode() & 0o7777);
            }
        }
        if is_last {
            return modes;
        }
    }
}

#[test]
fn own_sockets_have_their_final_mode_at_first_sight_whatever_the_umask() {
    for umask in ["000", "022", "077", "000", "077", "000", "077"] {
        let directory = directory();
        let paths = ENDPOINTS.map(|name| directory.path().join(name));
        let is_over = AtomicBool::new(false);
        let mut command = portsd_after(&format!("umask {umask}"), directory.path());
        for (name, path) in ENDPOINTS.iter().zip(&paths) {
            listen(&mut command, name, path);
        }
        let (daemon, modes) = thread::scope(|scope| {
            let modes = scope.spawn(|| watch_modes(&paths, &is_over));
            let daemon = Daemon { child: command.spawn().unwrap(), directory };
            wait_for("the daemon", || UnixStream::connect(&paths[3]).ok());
            is_over.store(true, Ordering::Release);
            (daemon, modes.join().unwrap())
        });
        for (name, seen) in ENDPOINTS.iter().zip(modes) {
            let wanted = if name.starts_with("admin") { 0o600 } else { 0o666 };
            assert_eq!(seen, BTreeSet::from([wanted]), "{name} under umask {umask}");
        }
        let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("Umask:")).unwrap();
        assert!(line.ends_with(umask), "{line} is not {umask}");
    }
}

#[test]
fn the_socket_of_a_killed_daemon_is_replaced() {
    let mut daemon = Daemon::start();
    daemon.kill();
    for name in ENDPOINTS {
        assert!(daemon.path(name).exists(), "nothing is left over to be replaced");
    }
    daemon.restart();
    assert!(answers(&daemon.path("varlink")));
    assert!(answers(&daemon.path("admin-varlink")));
}

#[test]
fn a_second_daemon_refuses_the_sockets_of_a_live_one_which_goes_on() {
    let daemon = Daemon::start();
    let before = fs::symlink_metadata(daemon.path("varlink")).unwrap().ino();
    let elsewhere = directory();
    let mut second = portsd(elsewhere.path());
    // the first one can be had, and must not stay behind either
    let free = elsewhere.path().join("free");
    listen(&mut second, "jsonrpc", &free);
    listen(&mut second, "varlink", &daemon.path("varlink"));
    let said = refused_start(&mut second);
    assert!(said.contains(&daemon.path("varlink").display().to_string()), "{said}");
    assert!(said.contains("another process listens"), "{said}");
    assert!(answers(&daemon.path("varlink")));
    assert_eq!(fs::symlink_metadata(daemon.path("varlink")).unwrap().ino(), before);
    assert!(!free.exists());
}

#[test]
fn a_daemon_that_ends_leaves_the_socket_of_its_successor() {
    let mut first = Daemon::start();
    fs::remove_file(first.path("varlink")).unwrap();
    let elsewhere = directory();
    let mut command = portsd(elsewhere.path());
    listen(&mut command, "varlink", &first.path("varlink"));
    let _second = Daemon { child: command.spawn().unwrap(), directory: elsewhere };
    wait_for("the second daemon", || UnixStream::connect(first.path("varlink")).ok());
    assert!(first.stop().success());
    assert!(answers(&first.path("varlink")));
}

/// Starts a daemon that is to listen at `path` and returns why it did not.
fn refused_path(path: &Path) -> String {
    let directory = directory();
    let mut command = portsd(directory.path());
    listen(&mut command, "varlink", path);
    refused_start(&mut command)
}

#[test]
fn whatever_is_in_the_way_of_a_socket_is_refused_by_name_and_left_untouched() {
    let directory = directory();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("file"), "precious").unwrap();
    fs::write(path("empty"), "").unwrap();
    fs::create_dir(path("directory")).unwrap();
    nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let live = UnixListener::bind(path("live")).unwrap();
    drop(UnixListener::bind(path("stale")).unwrap());
    for target in ["file", "directory", "live", "stale", "nowhere"] {
        symlink(path(target), path(&format!("link-to-{target}"))).unwrap();
    }
    let look = || {
        let mut found: Vec<_> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                let metadata = fs::symlink_metadata(&path).unwrap();
                let link = fs::read_link(&path).ok();
                (path, metadata.ino(), metadata.mode(), metadata.len(), link)
            })
            .collect();
        found.sort();
        found
    };
    let before = look();
    for (name, ..) in &before {
        if name.ends_with("stale") && !name.ends_with("link-to-stale") {
            continue;
        }
        let said = refused_path(name);
        assert!(said.contains(&name.display().to_string()), "{said}");
    }
    assert_eq!(look(), before);
    assert_eq!(fs::read_to_string(path("file")).unwrap(), "precious");
    drop(live);
}

#[test]
fn a_socket_path_has_107_bytes_at_most() {
    let directory = directory();
    let sockets = directory.path().join("sockets");
    fs::create_dir(&sockets).unwrap();
    let path = |bytes: usize| {
        let name = "s".repeat(bytes - sockets.as_os_str().len() - 1);
        sockets.join(name)
    };
    for bytes in [108, 109, 150] {
        let said = refused_path(&path(bytes));
        assert!(said.contains("107") && said.contains(&bytes.to_string()), "{said}");
        assert_eq!(fs::read_dir(&sockets).unwrap().count(), 0);
    }
    let longest = path(107);
    assert_eq!(longest.as_os_str().len(), 107);
    let mut command = portsd(directory.path());
    listen(&mut command, "varlink", &longest);
    let daemon = Daemon { child: command.spawn().unwrap(), directory };
    wait_for("the daemon", || UnixStream::connect(&longest).ok());
    assert!(answers(&longest));
    assert!(socket_paths(daemon.pid()).iter().any(|path| Path::new(path) == longest));
}

#[test]
fn a_directory_where_no_socket_can_be_made_is_refused_by_name() {
    let directory = directory();
    let closed = directory.path().join("closed");
    fs::create_dir(&closed).unwrap();
    let old = closed.join("stale");
    drop(UnixListener::bind(&old).unwrap());
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    let state = directory.path().join("state");
    fs::create_dir(&state).unwrap();
    let absent = directory.path().join("absent");
    for path in [closed.join("socket"), old.clone(), absent.join("socket")] {
        let mut command = portsd(directory.path());
        if nix::unistd::geteuid().is_root() {
            // no mode stops root
            std::os::unix::fs::chown(&state, Some(M1), Some(M1)).unwrap();
            command.uid(M1).gid(M1);
        }
        listen(&mut command, "varlink", &path);
        let said = refused_start(&mut command);
        assert!(said.contains(&path.display().to_string()), "{said}");
    }
    assert!(fs::symlink_metadata(&old).unwrap().file_type().is_socket());
    assert!(!absent.exists());
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn what_is_wrong_with_the_configuration_stops_the_start_by_name() {
    for (text, named) in [
        ("[pool]\nbegin = 20000\n", "begin"),
        ("[pol]\nstart = 20000\n", "pol"),
        ("colour = \"blue\"\n", "colour"),
        ("[pool]\nstart = \"low\"\n", "start"),
        ("[pool]\nstart = 65536\n", "start"),
        ("[pool]\nend = -1\n", "end"),
        ("[pool]\nstart = 40000\nend = 30000\n", "pool.start"),
        ("[pool]\nexclude = [\"30010-30000\"]\n", "30010-30000"),
        ("[pool]\nexclude = [\"30000-\"]\n", "exclude"),
        ("[registry]\nsource = \"ldap\"\n", "ldap"),
        ("[limits]\nbatches = 3\n", "batches"),
        ("[limits]\nconnections = 0\n", "connections"),
        ("[limits]\nidle_connection = \"soon\"\n", "idle_connection"),
        ("[limits]\nqueue = 1.5\n", "queue"),
        ("[pool\n", "pool"),
    ] {
        let directory = directory();
        fs::write(directory.path().join("portsd.toml"), text).unwrap();
        let said = refused_start(&mut command(directory.path()));
        assert!(said.contains(named), "{text:?}: {said}");
        assert!(said.contains("portsd.toml"), "{text:?}: {said}");
        assert!(!directory.path().join("varlink").exists(), "{text:?}");
        assert!(!directory.path().join("state").exists(), "{text:?}");
    }
}

#[test]
fn a_configuration_that_was_named_must_be_there() {
    let directory = directory();
    for name in ["absent.toml", ""] {
        let path = directory.path().join(name);
        let said = refused_start(command(directory.path()).arg("--config").arg(&path));
        assert!(said.contains(&path.display().to_string()), "{said}");
    }
    assert!(!directory.path().join("state").exists());
}

#[test]
fn a_command_line_that_makes_no_sense_is_refused_by_name() {
    for (arguments, named) in [
        (&["--listen", "telnet=/tmp/x"][..], "telnet"),
        (&["--listen", "varlink"], "NAME=PATH"),
        (&["--listen", "varlink="], "path"),
        (&["--idle-exit", "0"], "--idle-exit"),
        (&["--idle-exit", "soon"], "--idle-exit"),
        (&["--colour"], "--colour"),
    ] {
        let directory = directory();
        let said = refused_start(portsd(directory.path()).args(arguments));
        assert!(said.contains(named), "{arguments:?}: {said}");
        assert!(!directory.path().join("state").exists(), "{arguments:?}");
    }
}
