//! A real daemon in a directory of its own, and clients that speak both wires byte by byte.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod import;
pub mod jsonrpc;
pub mod ns8;
pub mod redis;
pub mod run;
pub mod varlink;

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// How long anything may take before a test gives up on it. No test depends on it otherwise.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The throw-away users that `tests/runner` makes.
pub const M1: u32 = 61001;
pub const M2: u32 = 61002;
pub const M5: u32 = 61005;

/// Waits until `ready` gives something.
pub fn wait_for<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = ready() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether this is root in the private mount namespace that `tests/runner` makes; says so where it
/// is not, for tests that become other users or mount something.
pub fn is_root() -> bool {
    let is_root = nix::unistd::Uid::effective().is_root();
    if is_root {
        // without it, the whole machine would see what is mounted and who is added
        assert!(std::env::var_os("PORTSD_TEST_ETC").is_some(), "start it with tests/runner");
    } else {
        eprintln!("left out: needs root");
    }
    is_root
}

/// A daemon that binds all four of its sockets in a temporary directory.
pub struct Daemon {
    pub child: Child,
    pub directory: TempDir,
}

pub const ENDPOINTS: [&str; 4] = ["varlink", "jsonrpc", "admin-varlink", "admin-jsonrpc"];

/// A directory that every user can enter.
pub fn directory() -> TempDir {
    let directory = TempDir::with_prefix("portsd-test-").unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

/// The command that starts a daemon in `directory`, with its log going to the file `log` there.
pub fn command(directory: &Path) -> Command {
    let log = fs::OpenOptions::new().create(true).append(true).open(directory.join("log")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_portsd"));
    command.arg("--state-dir").arg(directory.join("state"));
    let config = directory.join("portsd.toml");
    if config.exists() {
        command.arg("--config").arg(config);
    }
    for name in ENDPOINTS {
        command.arg("--listen").arg(format!("{name}={}", directory.join(name).display()));
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command
}

/// Compiles functions that stand before the C library's in a program that loads them first.
pub fn preloaded(directory: &Path, source: &str) -> PathBuf {
    let (text, library) = (directory.join("preloaded.c"), directory.join("preloaded.so"));
    fs::write(&text, source).unwrap();
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &text]).status();
    assert!(compiled.unwrap().success());
    library
}

impl Daemon {
    pub fn start() -> Self {
        Self::start_in(directory())
    }

    /// Starts with a configuration file of this text.
    pub fn with_config(text: &str) -> Self {
        let directory = directory();
        fs::write(directory.path().join("portsd.toml"), text).unwrap();
        Self::start_in(directory)
    }

    pub fn start_in(directory: TempDir) -> Self {
        let child = command(directory.path()).spawn().unwrap();
        let daemon = Self { child, directory };
        daemon.wait_until_ready();
        daemon
    }

    fn wait_until_ready(&self) {
        let path = self.path("admin-varlink");
        wait_for("the daemon", || {
            // a connection may wait before there is anybody to answer
            let mut client = varlink::Client::new(UnixStream::connect(&path).ok()?);
            client.send(&json!({ "method": format!("{PORTS}.WhoAmI") }));
            client.receive()
        });
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn database(&self) -> PathBuf {
        self.path("state/ports.sqlite")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Asks it to stop and waits for its end.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(nix::sys::signal::Signal::SIGTERM);
        self.wait()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        wait_for("the daemon's end", || self.child.try_wait().unwrap())
    }

    /// Ends it without warning.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, over what it has stored.
    pub fn restart(&mut self) {
        self.child = command(self.directory.path()).spawn().unwrap();
        self.wait_until_ready();
    }

    pub fn admin(&self) -> varlink::Client {
        varlink::Client::connect(&self.path("admin-varlink"))
    }

    /// Registers a module whose Unix user has the module's name.
    pub fn set_module(&self, id: &str, tcp: u16, udp: u16, portsadm: bool) {
        self.admin().call(ADMIN, "SetModule", module(id, tcp, udp, portsadm)).unwrap();
    }

    /// What the database holds, as owner, protocol, start and end.
    pub fn rows(&self) -> Vec<(String, String, u16, u16)> {
        let database = rusqlite::Connection::open(self.database()).unwrap();
        database
            .prepare(r#"SELECT owner, protocol, start, "end" FROM allocations ORDER BY 2, 3"#)
            .unwrap()
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- the daemon's log:\n{}", self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub const PORTS: &str = "org.nethserver.Ports";
pub const ADMIN: &str = "org.nethserver.Ports.Admin";

/// The parameters of `SetModule`.
pub fn module(id: &str, tcp: u16, udp: u16, portsadm: bool) -> Value {
    json!({
        "moduleId": id,
        "labels": {
            "org.nethserver.tcp-ports-demand": tcp.to_string(),
            "org.nethserver.udp-ports-demand": udp.to_string(),
            "org.nethserver.authorizations": if portsadm { "node:portsadm" } else { "" },
        }
    })
}

/// Why a call was refused: the condition and its fields, spelt as varlink does.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    pub condition: String,
    pub fields: Value,
}

impl Refusal {
    pub fn new(condition: &str, fields: Value) -> Self {
        Self { condition: condition.to_owned(), fields }
    }
}

/// A client of either wire. Names, parameters and results are spelt as varlink does.
pub trait Client {
    fn call(&mut self, interface: &str, method: &str, parameters: Value) -> Result<Value, Refusal>;
}

/// One client of each wire, connected as `uid` or as whoever runs the test.
pub fn both_wires(daemon: &Daemon, admin: bool, uid: Option<u32>) -> [Box<dyn Client>; 2] {
    let prefix = if admin { "admin-" } else { "" };
    let varlink = daemon.path(&format!("{prefix}varlink"));
    let jsonrpc = daemon.path(&format!("{prefix}jsonrpc"));
    let connect = |path: &Path| match uid {
        Some(uid) => connect_as(uid, path),
        None => UnixStream::connect(path).unwrap(),
    };
    [
        Box::new(varlink::Client::new(connect(&varlink))),
        Box::new(jsonrpc::Client::new(connect(&jsonrpc))),
    ]
}

/// Connects with the user id `uid`, which the kernel then reports to the other end.
pub fn connect_as(uid: u32, path: &Path) -> UnixStream {
    let path = path.to_owned();
    thread::spawn(move || {
        become_user(uid);
        UnixStream::connect(path).unwrap()
    })
    .join()
    .unwrap()
}

/// Gives this thread, and only this one, another user id.
#[allow(unsafe_code, reason = "the C library would change every thread of the process")]
pub fn become_user(uid: u32) {
    // SAFETY: the system call takes three numbers and touches no memory.
    let result = unsafe { nix::libc::syscall(nix::libc::SYS_setresuid, uid, uid, uid) };
    assert_eq!(result, 0, "setresuid({uid}): {}", std::io::Error::last_os_error());
}

/// Reads until the other end hangs up.
pub fn read_all(stream: &mut UnixStream) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = Vec::new();
    // what was sent before a connection is reset still counts
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

/// What is held, as [`Daemon::rows`] gives it.
pub fn row(owner: &str, protocol: &str, start: u16, end: u16) -> (String, String, u16, u16) {
    (owner.to_owned(), protocol.to_owned(), start, end)
}

/// The ranges in a list of allocations or ranges.
pub fn ranges(list: &Value) -> Vec<(u64, u64)> {
    let number = |range: &Value, name: &str| range[name].as_u64().unwrap();
    list.as_array().unwrap().iter().map(|one| (number(one, "start"), number(one, "end"))).collect()
}

/// Starts a daemon that has to refuse to, waits for its end, and returns what it said.
pub fn refused_start(command: &mut Command) -> String {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    // it says little enough for the pipe to hold
    let started = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if started.elapsed() > PATIENCE => break None,
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    if status.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    let code = status.unwrap_or_else(|| panic!("the daemon serves: {said}")).code();
    assert!(code.is_some_and(|code| code != 0), "{code:?}: {said}");
    said
}
