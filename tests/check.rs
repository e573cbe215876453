//! `portsctl check`: the real program, on nodes that are sound and on nodes that are not.
//!
//! What it says of the machine that the tests run on is nobody's business here: as root, the nodes
//! have a network namespace of their own, and directories of their own in the place of /run and
//! /sys/fs.

mod support;

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nix::unistd::{User, geteuid};
use serde_json::{Value, json};
use support::run::Run;
use support::{ADMIN, Daemon, M1, M2, PORTS, become_user, directory, is_root};
use tempfile::TempDir;

const EPHEMERAL: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";

// what a `portsctl check` has found
impl Run {
    /// The findings in what `--json` printed.
    #[track_caller]
    fn findings(&self) -> Vec<Value> {
        let reply: Value = serde_json::from_str(&self.stdout).unwrap();
        let findings = reply["findings"].as_array().unwrap().clone();
        assert_eq!(self.status, Some(i32::from(!findings.is_empty())), "{self:?}");
        findings
    }

    /// What was found about the service and what it says: not the machine's units and labels.
    #[track_caller]
    fn found(&self) -> Vec<(String, String)> {
        let text = |one: &Value, name: &str| one[name].as_str().unwrap().to_owned();
        let findings = self.findings();
        let findings = findings.iter().map(|one| {
            let said = format!("{}. {}", text(one, "message"), text(one, "advice"));
            (text(one, "check"), said)
        });
        findings.filter(|(check, _)| check != "units" && check != "labels").collect()
    }

    /// There is this one finding, and it has these words.
    #[track_caller]
    fn has_found(&self, check: &str, words: &[&str]) {
        let found = self.found();
        assert_eq!(found.len(), 1, "{self:?}");
        assert_eq!(found[0].0, check, "{self:?}");
        for word in words {
            assert!(found[0].1.contains(word), "{word:?} is missing: {self:?}");
        }
    }

    #[track_caller]
    fn has_found_nothing(&self) {
        assert!(self.found().is_empty(), "{self:?}");
    }
}

/// `portsctl check` on these sockets.
fn portsctl(socket: &Path, state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portsctl"));
    command.env("PORTSD_SOCKET", socket).arg("check").arg("--state-dir").arg(state);
    command.stdin(Stdio::null());
    command
}

fn check(daemon: &Daemon) -> Run {
    check_with(daemon, &daemon.path("state"))
}

fn check_with(daemon: &Daemon, state: &Path) -> Run {
    Run::of(portsctl(&daemon.path("admin-varlink"), state).arg("--json"))
}

/// A pool of 100 ports beside those that this machine gives to outgoing connections.
fn quiet_pool() -> String {
    let (low, high) = ephemeral();
    let start = if low > 10_000 { low - 100 } else { high + 1 };
    format!("[pool]\nstart = {start}\nend = {}\n", start + 99)
}

fn ephemeral() -> (u16, u16) {
    let text = fs::read_to_string(EPHEMERAL).unwrap();
    let mut ends = text.split_ascii_whitespace().map(|end| end.parse().unwrap());
    (ends.next().unwrap(), ends.next().unwrap())
}

fn set_module(daemon: &Daemon, id: &str, user: &str) {
    let parameters = json!({ "moduleId": id, "unixUser": user, "labels": {} });
    daemon.admin().call(ADMIN, "SetModule", parameters).unwrap();
}

/// Gives an owner ports; gives the first one.
fn allocate(daemon: &Daemon, owner: &str, ports: u16, protocol: &str) -> u16 {
    let parameters = json!({ "owner": owner, "ports": ports, "protocol": protocol });
    let reply = daemon.admin().call(PORTS, "Allocate", parameters).unwrap();
    u16::try_from(reply["range"]["start"].as_u64().unwrap()).unwrap()
}

/// Runs `work` on a node of its own: where nobody has a port, the kernel's settings of the network
/// are untouched, and two directories of the one given, `run` and `fs`, are /run and /sys/fs.
fn alone(work: impl FnOnce(&Path) + Send) {
    let directory = directory();
    thread::scope(|scope| {
        scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).unwrap();
            for (name, place) in [("run", "/run"), ("fs", "/sys/fs")] {
                let own = directory.path().join(name);
                fs::create_dir(&own).unwrap();
                fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
                mount(&["--bind"], &own, place.as_ref());
            }
            work(directory.path());
        });
    });
}

fn mount(options: &[&str], from: &Path, at: &Path) {
    let status = Command::new("mount").args(options).arg(from).arg(at).status().unwrap();
    assert!(status.success(), "mount {options:?} {} {}", from.display(), at.display());
}

/// Something that `uid` has made.
fn as_user<T: Send>(uid: u32, make: impl FnOnce() -> T + Send) -> T {
    let become_and_make = || {
        become_user(uid);
        make()
    };
    thread::scope(|scope| scope.spawn(become_and_make).join().unwrap())
}

fn tcp(uid: u32, port: u16) -> TcpListener {
    as_user(uid, || TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap())
}

fn udp(uid: u32, port: u16) -> UdpSocket {
    as_user(uid, || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port)).unwrap())
}

#[test]
fn on_a_sound_node_nothing_is_wrong() {
    let daemon = Daemon::with_config(&quiet_pool());
    set_module(&daemon, "mail1", &User::from_uid(geteuid()).unwrap().unwrap().name);
    allocate(&daemon, "mail1", 4, "tcp");
    allocate(&daemon, "mail1_rsync", 1, "udp");
    allocate(&daemon, "host/x", 1, "udp");
    check(&daemon).has_found_nothing();
    // and the same in words, if it says nothing about the machine
    let run = Run::of(&mut portsctl(&daemon.path("admin-varlink"), &daemon.path("state")));
    if !Path::new("/run/systemd/system").exists() && !Path::new("/sys/fs/selinux/enforce").exists()
    {
        assert_eq!((run.status, run.stdout.as_str()), (Some(0), ""), "{run:?}");
        assert!(run.stderr.ends_with("portsctl: nothing is wrong\n"), "{run:?}");
        assert!(run.stderr.contains("systemd does not run here"), "{run:?}");
        assert!(run.stderr.contains("SELinux is off here"), "{run:?}");
    }
}

#[test]
fn owners_without_a_module_are_one_line_each() {
    let daemon = Daemon::with_config(&quiet_pool());
    let first = allocate(&daemon, "mail1", 2, "tcp");
    allocate(&daemon, "host/x", 1, "tcp");
    check(&daemon).has_found("owners", &["no module is registered", "mail1", "set-module"]);
    set_module(&daemon, "web1", "nobody-at-all");
    allocate(&daemon, "web1_rsync", 1, "tcp");
    allocate(&daemon, "mail1", 1, "udp");
    allocate(&daemon, "mail2_rsync", 1, "udp");
    let lines = [
        format!(
            "owners: mail1 belongs to no registered module and holds tcp {first}-{}, udp \
             {first}-{first}. If the module exists, register it with `portsctl set-module`, or in \
             the cluster where that is the registry; if it is gone, `portsctl reclaim` frees what it held",
            first + 1
        ),
        format!("owners: mail2_rsync belongs to no registered module and holds udp {}-", first + 1),
    ];
    let run = Run::of(&mut portsctl(&daemon.path("admin-varlink"), &daemon.path("state")));
    assert_eq!(run.status, Some(1));
    let said: Vec<_> = run.stdout.lines().filter(|line| line.starts_with("owners:")).collect();
    assert_eq!(said.len(), 2, "{run:?}");
    assert_eq!(said[0], lines[0]);
    assert!(said[1].starts_with(&lines[1]), "{run:?}");
    daemon.admin().call(ADMIN, "Reclaim", json!({ "dryRun": false })).unwrap();
    check(&daemon).has_found_nothing();
}

#[test]
fn a_service_that_can_not_be_asked_is_a_finding() {
    let mut daemon = Daemon::with_config(&quiet_pool());
    // its sockets stay
    daemon.kill();
    let run = check(&daemon);
    run.has_found("service", &["nobody listens on this socket", "start portsd again"]);
    assert!(run.stderr.contains("not looked at, since they need the service's answers"), "{run:?}");
    let run = Run::of(portsctl(Path::new("/nonexistent"), &daemon.path("state")).arg("--json"));
    run.has_found("service", &["/nonexistent: there is no such socket", "check the path"]);
    // the advice is that of every other command
    let other = Command::new(env!("CARGO_BIN_EXE_portsctl"))
        .args(["--socket", "/nonexistent", "list"])
        .output()
        .unwrap();
    let other = String::from_utf8(other.stderr).unwrap();
    assert!(other.contains(run.findings().last().unwrap()["advice"].as_str().unwrap()), "{other}");
}

#[test]
fn who_is_no_administrator_is_told_so() {
    let daemon = Daemon::with_config(&quiet_pool());
    let run = Run::of(portsctl(&daemon.path("varlink"), &daemon.path("state")).arg("--json"));
    let socket = "/run/portsd-admin/org.nethserver.Ports";
    run.has_found("service", &["this user is no administrator", "as root", socket]);
    // nor is one who finds out that the socket is not for modules' commands
    let run = Run::of(portsctl(&daemon.path("jsonrpc"), &daemon.path("state")).arg("--json"));
    assert_eq!(run.found()[0].0, "service", "{run:?}");
}

/// A sound database that nobody uses, in a directory of its own.
fn database(of: &Daemon) -> TempDir {
    let directory = directory();
    let reply = of.admin().call(ADMIN, "Backup", json!({})).unwrap();
    let path = directory.path().join("ports.sqlite");
    fs::copy(reply["path"].as_str().unwrap(), &path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    directory
}

#[test]
fn databases_that_the_service_would_refuse_are_found() {
    let daemon = Daemon::with_config(&quiet_pool());
    let state = database(&daemon);
    let path = state.path().join("ports.sqlite");
    let check = || check_with(&daemon, state.path());
    check().has_found_nothing();
    let sound = fs::read(&path).unwrap();

    let mut damaged = sound.clone();
    damaged[4096..].fill(0x55);
    fs::write(&path, &damaged).unwrap();
    check().has_found("database", &["ports.sqlite is damaged", "backup", "-wal"]);
    assert_eq!(fs::read(&path).unwrap(), damaged);

    fs::write(&path, "something else").unwrap();
    check().has_found("database", &["is no database of portsd"]);
    fs::write(&path, "").unwrap();
    check().has_found("database", &["is empty"]);
    fs::remove_file(&path).unwrap();
    check().has_found("database", &["is not there", "--state-dir"]);
    assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0, "nothing was made");
    fs::create_dir(&path).unwrap();
    check().has_found("database", &["is no database of portsd"]);
    fs::remove_dir(&path).unwrap();

    fs::write(&path, &sound).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    check().has_found("database", &["mode 0644 instead of 0640", "`chmod 0640 "]);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    check().has_found_nothing();
}

#[test]
fn a_database_that_is_written_to_is_sound() {
    let daemon = Daemon::with_config(&quiet_pool());
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for ports in 0..200 {
                allocate(&daemon, "host/x", ports % 50 + 1, "tcp");
            }
        });
        while !writer.is_finished() {
            check(&daemon).has_found_nothing();
        }
    });
}

#[test]
fn a_pool_that_overlaps_the_ephemeral_ports_is_found() {
    if !fs::read_to_string(RESERVED).unwrap().trim().is_empty() {
        eprintln!("left out: ports are reserved on this machine");
        return;
    }
    let (low, _) = ephemeral();
    let (start, end) = (low - 10, low + 9);
    let daemon = Daemon::with_config(&format!("[pool]\nstart = {start}\nend = {end}\n"));
    check(&daemon).has_found(
        "ephemeral",
        &[
            &format!("ports of the pool {start}-{end}: {low}-{end} is in"),
            &format!("`net.ipv4.ip_local_reserved_ports = {start}-{end}`"),
            "/etc/sysctl.d/50-portsd.conf",
        ],
    );
}

#[test]
fn root_reserved_ports_are_not_ephemeral() {
    if !is_root() {
        return;
    }
    alone(|_| {
        fs::write(EPHEMERAL, "32768 60999").unwrap();
        let daemon = Daemon::start();
        check(&daemon).has_found("ephemeral", &["32768-45000 is in"]);
        fs::write(RESERVED, "8080,20000-40000").unwrap();
        check(&daemon).has_found("ephemeral", &["40001-45000 is in", "= 8080,20000-45000`"]);
        fs::write(RESERVED, "20000-45000").unwrap();
        check(&daemon).has_found_nothing();
        fs::write(RESERVED, "").unwrap();
        fs::write(EPHEMERAL, "45001 60999").unwrap();
        check(&daemon).has_found_nothing();
    });
}

#[test]
fn root_ports_that_another_user_has_bound_are_found() {
    if !is_root() {
        return;
    }
    alone(|_| {
        let daemon = Daemon::with_config("[pool]\nstart = 20000\nend = 20099\n");
        set_module(&daemon, "mail1", "m1");
        set_module(&daemon, "traefik1", "traefik1");
        let tcp_port = allocate(&daemon, "mail1", 4, "tcp");
        let udp_port = allocate(&daemon, "mail1", 4, "udp");
        let helpers = allocate(&daemon, "mail1_rsync", 2, "tcp");
        let rootful = allocate(&daemon, "traefik1", 2, "tcp");
        let outside = allocate(&daemon, "host/x", 1, "tcp");

        let subordinate = 700_000_000 + 999;
        let own = (
            [tcp(M1, tcp_port), tcp(subordinate, tcp_port + 1), tcp(M1, helpers)],
            [tcp(0, helpers + 1), tcp(0, rootful), tcp(8, rootful + 1), tcp(M2, outside)],
            [udp(M1, udp_port), udp(subordinate, udp_port + 1)],
            // nobody's
            [tcp(M2, 20_090)],
        );
        check(&daemon).has_found_nothing();
        drop(own);

        let foreign = tcp(M2, tcp_port + 2);
        check(&daemon).has_found(
            "foreign",
            &[&format!(
                "tcp port {}, which mail1 holds, is bound by user m2 (uid {M2}). `ss -tlnp",
                tcp_port + 2
            )],
        );
        drop(foreign);
        let foreign = udp(700_065_536 + 7, udp_port);
        let uid = "bound by uid 700065543, subordinate to uid 61002. `ss -uanp";
        check(&daemon).has_found("foreign", &[&format!("udp port {udp_port}"), uid]);
        drop(foreign);
        let foreign = (tcp(0, tcp_port), tcp(M2, helpers));
        let found = check(&daemon).found();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|(check, _)| check == "foreign"), "{found:?}");
        drop(foreign);
        check(&daemon).has_found_nothing();
    });
}

#[test]
fn root_file_systems_that_take_nothing_are_found() {
    if !is_root() {
        return;
    }
    alone(|directory| {
        let daemon = Daemon::with_config("[pool]\nstart = 20000\nend = 20099\n");
        let sound = database(&daemon);
        let state = directory.join("small");
        fs::create_dir(&state).unwrap();
        mount(&["-t", "tmpfs", "-o", "size=512k"], Path::new("tmpfs"), &state);
        fs::copy(sound.path().join("ports.sqlite"), state.join("ports.sqlite")).unwrap();
        check_with(&daemon, &state).has_found("database", &["is full", "bytes are left", "df -h"]);
        let status = Command::new("mount").args(["-o", "remount,size=8m"]).arg(&state).status();
        assert!(status.unwrap().success());
        check_with(&daemon, &state).has_found_nothing();
        let status = Command::new("mount").args(["-o", "remount,ro"]).arg(&state).status();
        assert!(status.unwrap().success());
        check_with(&daemon, &state).has_found("database", &["is read-only", "findmnt"]);
    });
}

/// The service as `uid`, with one socket, in the state directory.
fn spawn_as(uid: u32, program: &Path, state: &Path) -> Child {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".to_owned()]);
    command.arg(program).arg("--state-dir").arg(state);
    command.arg("--listen").arg(format!("admin-varlink={}", state.join("admin").display()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn root_the_service_can_use_what_a_check_has_touched() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let (state, program) = (directory.path().join("state"), directory.path().join("portsd"));
    fs::create_dir(&state).unwrap();
    chown(&state, Some(M1), Some(M1)).unwrap();
    // the directory of the build may be closed to others
    let built = Path::new(env!("CARGO_BIN_EXE_portsd"));
    assert!(Command::new("cp").args([built, &program]).status().unwrap().success());
    let socket = state.join("admin");
    let answers = |child: &mut Child| {
        support::wait_for("the service", || {
            assert_eq!(child.try_wait().unwrap(), None, "the service ended");
            let stream = UnixStream::connect(&socket).ok()?;
            let mut client = support::varlink::Client::new(stream);
            let parameters = json!({"owner": "host/x", "ports": 1, "protocol": "tcp"});
            client.call(PORTS, "Allocate", parameters).ok()
        })
    };
    let check = || Run::of(portsctl(Path::new("/nonexistent"), &state).arg("--json"));
    let side_files = || -> Vec<u32> {
        ["-wal", "-shm"]
            .iter()
            .filter_map(|suffix| fs::metadata(state.join(format!("ports.sqlite{suffix}"))).ok())
            .map(|found| found.uid())
            .collect()
    };

    let mut child = spawn_as(M1, &program, &state);
    answers(&mut child);
    // while it runs, after a crash, after a crash whose index was lost, and after an orderly end
    check().has_found("service", &[]);
    answers(&mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    check().has_found("service", &[]);
    assert_eq!(side_files(), [M1, M1]);
    fs::remove_file(state.join("ports.sqlite-shm")).unwrap();
    check().has_found("service", &[]);
    assert_eq!(side_files(), [M1, M1]);
    let mut child = spawn_as(M1, &program, &state);
    answers(&mut child);
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, Signal::SIGTERM).unwrap();
    child.wait().unwrap();
    assert!(side_files().is_empty());
    check().has_found("service", &[]);
    assert!(side_files().is_empty());
    let mut child = spawn_as(M1, &program, &state);
    answers(&mut child);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn root_files_of_another_owner_are_found() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::with_config(&quiet_pool());
    let state = database(&daemon);
    chown(state.path(), Some(M1), Some(M1)).unwrap();
    let path = state.path().join("ports.sqlite");
    let command = format!("`chown --reference={} {}`", state.path().display(), path.display());
    check_with(&daemon, state.path()).has_found("database", &["another owner", &command]);
    chown(&path, Some(M1), Some(M1)).unwrap();
    check_with(&daemon, state.path()).has_found_nothing();
}

/// What systemd would say of a unit in this state.
fn block(active: &str, sub: &str, file: &str) -> String {
    format!(
        "LoadState=loaded\nActiveState={active}\nSubState={sub}\nUnitFileState={file}\n\
         Result=exit-code\nNeedDaemonReload=no\n"
    )
}

/// Makes a systemctl that says so of the four sockets and the service.
fn tell(systemctl: &Path, sockets: [(&str, &str); 4], service: (&str, &str)) {
    let mut blocks = sockets.map(|(active, file)| block(active, "listening", file)).to_vec();
    blocks.push(block(service.0, service.1, "static"));
    let script = format!("#!/bin/sh\ncat <<'END'\n{}END\n", blocks.join("\n"));
    fs::write(systemctl, script).unwrap();
    fs::set_permissions(systemctl, fs::Permissions::from_mode(0o755)).unwrap();
}

fn label(path: &Path, kind: &str) {
    use rustix::fs::{XattrFlags, lsetxattr};
    let label = format!("system_u:object_r:{kind}:s0\0");
    lsetxattr(path, "security.selinux", label.as_bytes(), XattrFlags::empty()).unwrap();
}

/// A node that looks as if systemd and SELinux ran, with the service on its usual sockets.
struct Node<'a> {
    directory: &'a Path,
    service: Child,
}

impl<'a> Node<'a> {
    const SOUND: [(&'static str, &'static str); 4] = [("active", "enabled"); 4];

    fn start(directory: &'a Path) -> Self {
        fs::write(RESERVED, "20000-45000").unwrap();
        let make = |name: &str, mode| {
            fs::create_dir_all(directory.join(name)).unwrap();
            let permissions = fs::Permissions::from_mode(mode);
            fs::set_permissions(directory.join(name), permissions).unwrap();
        };
        for name in ["run/systemd/system", "fs/selinux", "bin", "run/portsd"] {
            make(name, 0o755);
        }
        make("run/portsd-admin", 0o700);
        fs::write(directory.join("fs/selinux/enforce"), "1").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_portsd"));
        command.arg("--state-dir").arg(directory.join("state"));
        for (name, path) in [
            ("varlink", "portsd/org.nethserver.Ports"),
            ("jsonrpc", "portsd/jsonrpc.sock"),
            ("admin-varlink", "portsd-admin/org.nethserver.Ports"),
            ("admin-jsonrpc", "portsd-admin/jsonrpc.sock"),
        ] {
            command.arg("--listen").arg(format!("{name}=/run/{path}"));
        }
        let log = fs::File::create(directory.join("log")).unwrap();
        let service = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let node = Self { directory, service: service.unwrap() };
        support::wait_for("the service", || {
            let stream = UnixStream::connect("/run/portsd-admin/org.nethserver.Ports").ok()?;
            let mut client = support::varlink::Client::new(stream);
            client.call(PORTS, "WhoAmI", json!({})).ok()
        });
        node.tell(Self::SOUND, ("active", "running"));
        node.label_all();
        node
    }

    fn tell(&self, sockets: [(&str, &str); 4], service: (&str, &str)) {
        tell(&self.directory.join("bin/systemctl"), sockets, service);
    }

    fn label_all(&self) {
        let path = |name: &str| self.directory.join(name);
        for (name, kind) in [
            ("state", "portsd_var_lib_t"),
            ("state/ports.sqlite", "portsd_var_lib_t"),
            ("state/ports.sqlite-wal", "portsd_var_lib_t"),
            ("state/ports.sqlite-shm", "portsd_var_lib_t"),
            ("run/portsd", "portsd_var_run_t"),
            ("run/portsd/org.nethserver.Ports", "portsd_var_run_t"),
            ("run/portsd/jsonrpc.sock", "portsd_var_run_t"),
            ("run/portsd-admin", "portsd_admin_var_run_t"),
            ("run/portsd-admin/org.nethserver.Ports", "portsd_admin_var_run_t"),
            ("run/portsd-admin/jsonrpc.sock", "portsd_admin_var_run_t"),
        ] {
            label(&path(name), kind);
        }
    }

    /// `portsctl check`, as an administrator types it.
    fn find(&self) -> Run {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portsctl"));
        let path = std::env::var("PATH").unwrap();
        let bin = self.directory.join("bin");
        command.env_remove("PORTSD_SOCKET").env("PATH", format!("{}:{path}", bin.display()));
        command.arg("check").arg("--state-dir").arg(self.directory.join("state"));
        Run::of(&mut command)
    }

    /// It says these lines; each has to begin and to end so.
    #[track_caller]
    fn says(&self, lines: &[(&str, &str)]) {
        let run = self.find();
        assert_eq!(run.status, Some(i32::from(!lines.is_empty())), "{run:?}");
        assert_eq!(run.stdout.lines().count(), lines.len(), "{run:?}");
        for (line, (start, end)) in run.stdout.lines().zip(lines) {
            assert!(line.starts_with(start) && line.ends_with(end), "{line}");
        }
        let silence = if lines.is_empty() { "portsctl: nothing is wrong\n" } else { "" };
        assert_eq!(run.stderr, silence, "{run:?}");
    }
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        let _ = self.service.kill();
        let _ = self.service.wait();
    }
}

#[test]
fn root_units_sockets_and_labels_are_looked_at() {
    if !is_root() {
        return;
    }
    alone(|directory| {
        let node = Node::start(directory);
        node.says(&[]);

        node.tell(
            [
                ("active", "enabled"),
                ("inactive", "enabled"),
                ("active", "disabled"),
                Node::SOUND[3],
            ],
            ("activating", "auto-restart"),
        );
        node.says(&[
            (
                "units: portsd-jsonrpc.socket is inactive. ",
                "`systemctl restart portsd-jsonrpc.socket`",
            ),
            (
                "units: portsd-admin-varlink.socket is not enabled (disabled). ",
                "`systemctl enable --now portsd-admin-varlink.socket`",
            ),
            ("units: portsd.service fails (exit-code). ", "`systemctl restart portsd.service`"),
        ]);
        fs::write(directory.join("bin/systemctl"), "#!/bin/sh\necho no bus >&2\nexit 1\n").unwrap();
        node.says(&[("units: systemd does not tell", "`systemctl status portsd.service`")]);
        node.tell(Node::SOUND, ("inactive", "dead"));

        let mode = |name: &str, mode| {
            fs::set_permissions(directory.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        mode("run/portsd", 0o750);
        mode("run/portsd-admin/org.nethserver.Ports", 0o666);
        fs::rename(directory.join("run/portsd/jsonrpc.sock"), directory.join("kept")).unwrap();
        node.says(&[
            (
                "units: /run/portsd belongs to uid 0 with mode 0750",
                "`systemd-tmpfiles --create portsd.conf`",
            ),
            (
                "units: the socket /run/portsd/jsonrpc.sock is missing",
                "`systemctl restart portsd-jsonrpc.socket`",
            ),
            (
                "units: /run/portsd-admin/org.nethserver.Ports belongs to uid 0 with mode 0666",
                "`systemctl restart portsd-admin-varlink.socket`",
            ),
        ]);
        mode("run/portsd", 0o755);
        mode("run/portsd-admin/org.nethserver.Ports", 0o600);
        fs::rename(directory.join("kept"), directory.join("run/portsd/jsonrpc.sock")).unwrap();

        label(&directory.join("run/portsd/jsonrpc.sock"), "var_run_t");
        label(&directory.join("state/ports.sqlite"), "var_lib_t");
        let state = directory.join("state");
        let database = format!(
            "labels: {}/ports.sqlite has the label var_lib_t instead of portsd_var_lib_t. \
             `semanage fcontext -a -e /var/lib/portsd {}`",
            state.display(),
            state.display()
        );
        node.says(&[
            (&database, "and again"),
            (
                "labels: /run/portsd/jsonrpc.sock has the label var_run_t instead of \
                 portsd_var_run_t. `restorecon -Rv /run/portsd/jsonrpc.sock`",
                "and again",
            ),
        ]);
        node.label_all();
        node.says(&[]);
    });
}
