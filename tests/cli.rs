//! portsctl as an administrator and as a module meet it: the real program, and a real service
//! behind it.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::{Uid, User, geteuid};
use portsd::error::Condition;
use serde_json::{Value, json};
use support::run::Run;
use tempfile::TempDir;

/// How long the service may take to start.
const PATIENCE: Duration = Duration::from_secs(30);

/// A user who is not the superuser and exists everywhere: `daemon`.
const ORDINARY_USER: u32 = 1;

const TCP_DEMAND: &str = "org.nethserver.tcp-ports-demand";
const UDP_DEMAND: &str = "org.nethserver.udp-ports-demand";
const PORTSADM: &str = "org.nethserver.authorizations=node:portsadm";

/// A service with its sockets in a directory that everybody can enter.
struct Node {
    directory: TempDir,
    daemon: Child,
}

impl Node {
    fn start() -> Self {
        Self::with_config("")
    }

    fn with_config(config: &str) -> Self {
        let directory = TempDir::with_prefix("portsctl-test-").unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("portsd.toml"), config).unwrap();
        if geteuid().is_root() {
            provide_portsctl(&path("portsctl"));
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_portsd"));
        command.arg("--config").arg(path("portsd.toml"));
        command.arg("--state-dir").arg(path("state"));
        let names = ["varlink", "jsonrpc", "admin-varlink", "admin-jsonrpc"];
        for name in names {
            command.arg("--listen").arg(format!("{name}={}", path(name).display()));
        }
        let log = fs::File::create(path("log")).unwrap();
        let daemon = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let node = Self { daemon: daemon.spawn().unwrap(), directory };
        let started = Instant::now();
        while !names.iter().all(|name| UnixStream::connect(node.path(name)).is_ok()) {
            assert!(started.elapsed() < PATIENCE, "the service does not start");
            thread::sleep(Duration::from_millis(5));
        }
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// portsctl as the administrator.
    fn admin(&self, line: &str) -> Run {
        Run::of(portsctl(&self.path("admin-varlink")).args(words(line)))
    }

    /// portsctl as the module whose Unix user is [`module_user`].
    fn module(&self, line: &str) -> Run {
        Run::of(self.as_module(&self.path("varlink")).args(words(line)))
    }

    /// A portsctl that [`module_user`] starts.
    fn as_module(&self, socket: &Path) -> Command {
        let mut command = if geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args([format!("--reuid={ORDINARY_USER}"), format!("--regid={ORDINARY_USER}")]);
            command.arg("--clear-groups").arg(self.path("portsctl"));
            command
        } else {
            Command::new(env!("CARGO_BIN_EXE_portsctl"))
        };
        command.env("PORTSD_SOCKET", socket).stdin(Stdio::null());
        command
    }

    /// Registers mail1, the module of [`module_user`], with the role and this demand.
    fn register_mail1(&self, tcp: u16, udp: u16) {
        let user = module_user();
        let labels = format!("--label {TCP_DEMAND}={tcp} --label {UDP_DEMAND}={udp}");
        self.admin(&format!("set-module mail1 --unix-user {user} {labels} --label {PORTSADM}"))
            .prints("");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the service's log:\n{}", fs::read_to_string(self.path("log")).unwrap());
        }
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Puts portsctl where others can start it: the directory of the build may be closed to them. By
/// another program, since one that this process has open for writing can't be started.
fn provide_portsctl(path: &Path) {
    let copy = Command::new("cp").args([Path::new(env!("CARGO_BIN_EXE_portsctl")), path]).status();
    assert!(copy.unwrap().success());
}

/// The name of the user that module calls come from: whoever runs the tests, but never the
/// superuser, who is nobody on the modules' sockets.
fn module_user() -> String {
    let uid = if geteuid().is_root() { Uid::from_raw(ORDINARY_USER) } else { geteuid() };
    User::from_uid(uid).unwrap().expect("the user has a name").name
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').filter(|word| !word.is_empty()).collect()
}

/// portsctl as whoever runs the tests.
fn portsctl(socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portsctl"));
    command.env("PORTSD_SOCKET", socket).stdin(Stdio::null());
    command
}

// what a portsctl should have left behind
impl Run {
    /// It was carried out and printed this, and said nothing besides.
    #[track_caller]
    fn prints(&self, expected: &str) {
        assert_eq!((self.status, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        assert_eq!(self.stdout, expected);
    }

    /// It was carried out, printed this, and said something with `remark` in it.
    #[track_caller]
    fn prints_and_says(&self, expected: &str, remark: &str) {
        assert_eq!(self.status, Some(0), "{self:?}");
        assert_eq!(self.stdout, expected);
        assert!(self.stderr.contains(remark), "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
    }

    /// It was carried out and printed this value, for people to read too.
    #[track_caller]
    fn prints_json(&self, expected: &Value) {
        assert_eq!((self.status, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        assert_eq!(self.stdout, format!("{expected:#}\n"));
    }

    /// It was not carried out; it ended so, printed nothing and said why with all these words.
    #[track_caller]
    fn fails(&self, status: i32, words: &[&str]) {
        assert_eq!((self.status, self.stdout.as_str()), (Some(status), ""), "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is missing: {self:?}");
        }
        assert!(!self.stderr.contains("panicked"), "{self:?}");
    }

    fn json(&self) -> Value {
        assert_eq!((self.status, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        serde_json::from_str(&self.stdout).unwrap()
    }
}

/// The lines of a table without its last column, which is the time.
fn without_times(table: &str) -> Vec<&str> {
    table.lines().map(|line| line.rsplit_once("  ").unwrap().0.trim_end()).collect()
}

#[test]
fn a_module_works_on_its_own_ports() {
    let node = Node::start();
    node.register_mail1(20, 8);
    node.module("allocate 4 tcp").prints("20000-20003\n");
    node.module("allocate 4 tcp").prints("20000-20003\n");
    node.module("allocate 1 udp").prints("20000-20000\n");
    node.module("allocate 2 tcp --keep-existing").prints("20004-20005\n");
    node.module("allocate 2 tcp --owner mail1 --json")
        .prints_json(&json!({"range": {"start": 20004, "end": 20005}}));
    let listed = node.module("list --protocol tcp");
    assert_eq!(
        without_times(&listed.stdout),
        [
            "PROTOCOL  RANGE        PORTS  OWNER  NAME  CLAIMED",
            "tcp       20004-20005      2  mail1  -     no",
        ]
    );
    // where it was last comes before what is next
    node.module("allocate 1 tcp --keep-existing").prints("20000-20000\n");
    let freed = json!({"ranges": [{"start": 20000, "end": 20000}, {"start": 20004, "end": 20005}]});
    node.module("deallocate tcp --json").prints_json(&freed);
    node.module("deallocate udp").prints("20000-20000\n");
    node.module("deallocate udp").prints_and_says("", "nothing to free");
    node.module("deallocate udp --json").prints_json(&json!({"ranges": []}));
    node.module("list").prints_and_says("", "no ranges");
    node.module("list --json").prints_json(&json!({"allocations": []}));
}

#[test]
fn named_ranges_are_ensured_and_freed_in_parts() {
    let node = Node::start();
    node.register_mail1(20, 8);
    node.module("ensure db 1 tcp").prints("20000-20000\n");
    node.module("ensure db 1 tcp --json")
        .prints_json(&json!({"range": {"start": 20000, "end": 20000}, "changed": false}));
    node.module("ensure sip 2 tcp,udp").prints("20001-20002\n");
    assert_eq!(node.module("ensure db 2 tcp").status, Some(5));
    node.module("ensure db 2 tcp --may-move").prints("20003-20004\n");
    node.module("env").prints(
        "TCP_PORT_SIP=20001\nTCP_PORTS_RANGE_SIP=20001-20002\nTCP_PORTS_SIP=20001,20002\n\
         TCP_PORT_DB=20003\nTCP_PORTS_RANGE_DB=20003-20004\nTCP_PORTS_DB=20003,20004\n\
         UDP_PORT_SIP=20001\nUDP_PORTS_RANGE_SIP=20001-20002\nUDP_PORTS_SIP=20001,20002\n",
    );
    node.module("allocate 6 tcp").prints("20005-20010\n");
    node.module("deallocate tcp --start 20007 --end 20008").prints("20007-20008\n");
    node.module("deallocate tcp --name sip").prints("20001-20002\n");
    assert_eq!(node.module("deallocate tcp --name sip").status, Some(6));
    assert_eq!(node.module("deallocate tcp --start 20007 --end 20007").status, Some(6));
    let listed = node.module("list --protocol tcp");
    assert_eq!(
        without_times(&listed.stdout)[1..],
        [
            "tcp       20003-20004      2  mail1  db    no",
            "tcp       20005-20006      2  mail1  -     no",
            "tcp       20009-20010      2  mail1  -     no",
        ]
    );
}

#[test]
fn administrators_claim_transfer_and_reclaim() {
    let node = Node::start();
    node.register_mail1(20, 8);
    node.admin("reclaim").prints_and_says("", "nothing to reclaim");
    node.admin("claim 21115 21119 tcp,udp host/rustdesk --name relay").prints("");
    node.admin("claim 3092 3092 tcp mail1").prints("");
    assert_eq!(node.admin("claim 21119 21120 udp host/x").status, Some(5));
    assert_eq!(node.admin("claim 7 7 tcp host/rustdesk --name relay").status, Some(5));
    node.module("allocate 2 tcp").prints("20000-20001\n");
    // a claim is nothing that its owner can free
    node.module("deallocate tcp").prints("20000-20001\n");
    assert_eq!(node.module("deallocate tcp --start 3092 --end 3092").status, Some(3));
    node.module("allocate 2 tcp").prints("20000-20001\n");

    let moved = node.admin("transfer mail1 mail2");
    assert_eq!(
        without_times(&moved.stdout)[1..],
        [
            "tcp       3092-3092        1  mail2  -     yes",
            "tcp       20000-20001      2  mail2  -     no"
        ]
    );
    node.admin("transfer mail1 mail2").prints_and_says("", "nothing to transfer");
    assert_eq!(node.admin("transfer mail2 mail2").status, Some(2));

    // mail2 is no module, mail1 is one, and software of the host is nobody's business
    node.admin("allocate 1 udp --owner mail1_rsync").prints("20000-20000\n");
    node.admin("allocate 1 udp --owner mail2_rsync").prints("20001-20001\n");
    for command in ["reclaim --dry-run --json", "reclaim --json"] {
        let freed = node.admin(command).json();
        let owners: Vec<_> =
            freed["freed"].as_array().unwrap().iter().map(|one| one["owner"].clone()).collect();
        assert_eq!(owners, ["mail2", "mail2", "mail2_rsync"], "{command}");
    }
    node.admin("reclaim").prints_and_says("", "nothing to reclaim");
    let held = node.admin("list --json").json();
    assert_eq!(held["allocations"].as_array().unwrap().len(), 3);
    node.admin("deallocate tcp --owner host/rustdesk --name relay").prints("21115-21119\n");
    // without any module, nobody can tell who is gone
    assert_eq!(node.admin("remove-module mail1").status, Some(0));
    assert_eq!(node.admin("reclaim").status, Some(7));
}

#[test]
fn the_past_is_shown_and_the_database_copied() {
    let node = Node::start();
    node.admin("history").prints_and_says("", "nothing that is remembered");
    node.admin("allocate 4 tcp --owner host/a").prints("20000-20003\n");
    node.admin("allocate 2 tcp --owner host/a").prints("20000-20001\n");
    node.admin("deallocate tcp --owner host/a").prints("20000-20001\n");
    node.admin("allocate 1 udp --owner host/b").prints("20000-20000\n");
    let events = |command: &str| -> Vec<String> {
        let events = node.admin(command).json();
        let event = |one: &Value| format!("{} {}-{}", one["kind"], one["start"], one["end"]);
        events["events"].as_array().unwrap().iter().map(event).collect()
    };
    assert_eq!(
        events("history --port 20001 --json"),
        [
            "\"deallocated\" 20000-20001",
            "\"allocated\" 20000-20001",
            "\"deallocated\" 20000-20003",
            "\"allocated\" 20000-20003",
        ]
    );
    assert_eq!(events("history --owner host/b --json"), ["\"allocated\" 20000-20000"]);
    assert_eq!(events("history --port 20003 --protocol tcp --limit 1 --json").len(), 1);
    assert!(node.admin("history").stdout.contains("host/b"));

    let copy = node.path("copy.sqlite");
    let command = format!("backup {}", copy.display());
    node.admin(&command).prints(&format!("{}\n", copy.display()));
    assert_eq!(node.admin(&command).status, Some(1), "a file that is there stays");
    for _ in 0..20 {
        assert_eq!(node.admin("backup").status, Some(0));
    }
    assert_eq!(std::fs::read_dir(node.path("state/backups")).unwrap().count(), 14);
    let rows: u32 = rusqlite::Connection::open(&copy)
        .unwrap()
        .query_row("SELECT count(*) FROM allocations", [], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, 1);
}

#[test]
fn an_administrator_says_for_whom() {
    let node = Node::start();
    node.register_mail1(2, 0);
    node.admin("allocate 1000 tcp --owner host/big").prints("20000-20999\n");
    node.admin("allocate 1 udp --owner mail1_rsync").prints("20000-20000\n");
    node.admin("allocate 2 tcp --on-behalf-of mail1").prints("21000-21001\n");
    node.admin("allocate 3 tcp --on-behalf-of mail1").fails(4, &["3 requested", "2 allowed"]);
    node.admin("allocate 3 tcp --owner mail1").prints("21000-21002\n");
    let listed = node.admin("list");
    assert_eq!(
        without_times(&listed.stdout),
        [
            "PROTOCOL  RANGE        PORTS  OWNER        NAME  CLAIMED",
            "tcp       20000-20999   1000  host/big     -     no",
            "tcp       21000-21002      3  mail1        -     no",
            "udp       20000-20000      1  mail1_rsync  -     no",
        ]
    );
    let times = listed.stdout.lines().skip(1).map(|line| line.rsplit(' ').next().unwrap());
    assert!(times.into_iter().all(|time| time.len() == 20 && time.ends_with('Z')), "{listed:?}");
    assert_eq!(node.admin("list --owner host/big").stdout.lines().count(), 2);
    let listed = node.admin("list --protocol udp --json").json();
    assert_eq!(listed["allocations"][0]["owner"], "mail1_rsync");
    assert_eq!(listed["allocations"][0]["name"], Value::Null);
    node.admin("deallocate tcp --on-behalf-of mail1").prints("21000-21002\n");
    node.admin("allocate 1 tcp").fails(2, &["owner", "--owner", "--on-behalf-of"]);
    node.admin("deallocate tcp").fails(2, &["owner", "--owner", "--on-behalf-of"]);
}

#[test]
fn modules_are_registered_listed_and_removed() {
    let node = Node::start();
    node.admin("list-modules").prints_and_says("", "no modules");
    node.register_mail1(20, 8);
    node.admin("set-module web2 --json").prints_json(&json!({}));
    let user = module_user();
    let width = user.len().max(4);
    node.admin("list-modules").prints(&format!(
        "MODULE  {:<width$}  PORTSADM  TCP DEMAND  UDP DEMAND  STALE\n\
         mail1   {user:<width$}  yes               20           8  no\n\
         web2    {:<width$}  no                 0           0  no\n",
        "USER", "web2"
    ));
    node.admin("list-modules --json").prints_json(&json!({"modules": [
        {"moduleId": "mail1", "unixUser": user, "portsadm": true, "tcpPortsDemand": 20,
         "udpPortsDemand": 8, "stale": false},
        {"moduleId": "web2", "unixUser": "web2", "portsadm": false, "tcpPortsDemand": 0,
         "udpPortsDemand": 0, "stale": false},
    ]}));
    node.admin(&format!("set-module web3 --unix-user {user}"))
        .fails(2, &["unixUser", "list-modules"]);
    node.module("allocate 3 tcp").prints("20000-20002\n");
    node.admin("allocate 1 udp --owner mail1_rsync").prints("20000-20000\n");
    assert_eq!(
        without_times(&node.admin("remove-module mail1").stdout),
        [
            "PROTOCOL  RANGE        PORTS  OWNER        NAME  CLAIMED",
            "tcp       20000-20002      3  mail1        -     no",
            "udp       20000-20000      1  mail1_rsync  -     no",
        ]
    );
    node.admin("remove-module mail1").prints_and_says("", "nothing to free");
    node.admin("remove-module web2 --json").prints_json(&json!({"freed": []}));
    node.module("allocate 3 tcp").fails(3, &["permission denied", "whoami", "registered"]);
}

#[test]
fn everybody_learns_who_they_are() {
    let node = Node::start();
    let (admin_uid, user) = (geteuid(), module_user());
    let uid = User::from_name(&user).unwrap().unwrap().uid;
    node.admin("whoami").prints(&format!("uid: {admin_uid}\ncaller: administrator\n"));
    node.module("whoami")
        .prints(&format!("uid: {uid}\nunix-user: {user}\ncaller: anonymous\nportsadm: no\n"));
    node.register_mail1(20, 8);
    node.module("whoami").prints(&format!(
        "uid: {uid}\nunix-user: {user}\ncaller: module\nmodule-id: mail1\nportsadm: yes\n\
         tcp-ports-demand: 20\nudp-ports-demand: 8\n"
    ));
    node.module("whoami --json").prints_json(&json!({
        "uid": uid.as_raw(), "caller": "module", "moduleId": "mail1", "unixUser": user,
        "portsadm": true, "tcpPortsDemand": 20, "udpPortsDemand": 8
    }));
}

#[test]
fn status_is_numbers_and_a_map() {
    let node =
        Node::with_config("[pool]\nstart = 20000\nend = 20029\nexclude = [\"20028-20029\"]\n");
    node.register_mail1(20, 8);
    node.admin("allocate 4 tcp --owner host/a").prints("20000-20003\n");
    node.admin("allocate 1 tcp --owner host/b").prints("20004-20004\n");
    node.module("allocate 2 tcp").prints("20005-20006\n");
    node.admin("deallocate tcp --owner host/b").prints("20004-20004\n");
    let numbers = "\
PROTOCOL  POOL         PORTS  ALLOCATED  FREE  QUARANTINED  BOUND  LARGEST FREE  RANGES
tcp       20000-20029     28          6    22            1      0            21       2
udp       20000-20029     28          0    28            0      0            28       0
";
    let excluded = "(2 excluded ports are drawn as if they were free)";
    node.admin("status").prints(&format!(
        "{numbers}
tcp 20000-20029, 1 port to a character {excluded}
20000 ####.##.......................

udp 20000-20029, 1 port to a character {excluded}
20000 ..............................

# allocated   + partly allocated   . free
"
    ));
    node.module("status").prints(&format!(
        "{numbers}
tcp: mail1 holds 2 of at most 20 ports, in 1 range
udp: mail1 holds 0 of at most 8 ports, in 0 ranges

tcp 20000-20029, 1 port to a character {excluded}
20000 .....##.......................

udp 20000-20029, 1 port to a character {excluded}
20000 ..............................

# held by mail1   + partly   . free, or held by others
The maps show the ranges of mail1 only: others' are not shown to modules.
"
    ));
    let pool = |protocol, allocated, free, quarantined, largest, allocations| {
        json!({"protocol": protocol, "start": 20000, "end": 20029, "total": 28,
               "allocated": allocated, "free": free, "quarantined": quarantined,
               "bound": 0, "largestFree": largest,
               "allocations": allocations})
    };
    let status = node.module("status --json").json();
    assert_eq!(
        status,
        json!({"pools": [pool("tcp", 6, 22, 1, 21, 2), pool("udp", 0, 28, 0, 28, 0)]})
    );
}

#[test]
fn env_prints_what_a_shell_reads() {
    let node = Node::start();
    node.register_mail1(100, 100);
    node.module("env").prints_and_says("", "no variables");
    node.module("env --json").prints_json_and_says(&json!({}), "no variables");
    node.module("allocate 1 tcp").prints("20000-20000\n");
    node.module("env").prints("TCP_PORT=20000\n");
    node.module("allocate 2 udp").prints("20000-20001\n");
    node.module("env").prints(
        "TCP_PORT=20000\n\
         UDP_PORT=20000\nUDP_PORTS_RANGE=20000-20001\nUDP_PORTS=20000,20001\n",
    );
    node.module("allocate 8 tcp").prints("20000-20007\n");
    node.module("allocate 9 udp").prints("20000-20008\n");
    let ports = "20000,20001,20002,20003,20004,20005,20006,20007";
    let lines = format!(
        "TCP_PORT=20000\nTCP_PORTS_RANGE=20000-20007\nTCP_PORTS={ports}\n\
         UDP_PORT=20000\nUDP_PORTS_RANGE=20000-20008\n"
    );
    node.module("env").prints(&lines);
    node.module("env --owner mail1").prints(&lines);
    node.admin("env --owner mail1").prints(&lines);
    node.module("env --json").prints_json(&json!({
        "TCP_PORT": "20000", "TCP_PORTS_RANGE": "20000-20007", "TCP_PORTS": ports,
        "UDP_PORT": "20000", "UDP_PORTS_RANGE": "20000-20008"
    }));
    node.admin("env").fails(2, &["--owner"]);
    node.module("allocate 1 tcp --keep-existing").prints("20008-20008\n");
    node.module("env").prints_and_says(&lines, "2 unnamed tcp ranges");
}

impl Run {
    #[track_caller]
    fn prints_json_and_says(&self, expected: &Value, remark: &str) {
        self.prints_and_says(&format!("{expected:#}\n"), remark);
    }
}

/// The demand in TCP ports that mail1 has once `set-module` got these labels.
fn demand_from(node: &Node, arguments: &[&str], stdin: &str) -> Result<u64, Run> {
    let mut command = portsctl(&node.path("admin-varlink"));
    command.args(["set-module", "mail1"]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // it may have refused already
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let run = Run::from(child.wait_with_output().unwrap());
    if run.status != Some(0) {
        return Err(run);
    }
    run.prints("");
    let modules = node.admin("list-modules --json").json();
    Ok(modules["modules"][0]["tcpPortsDemand"].as_u64().unwrap())
}

#[test]
fn labels_come_in_every_shape() {
    let node = Node::start();
    let labels = |count: u16| format!(r#"{{"{TCP_DEMAND}": "{count}", "other é": "\"\n\\"}}"#);
    let file = node.path("labels.json");
    let file_name = file.to_str().unwrap();
    for (text, demand) in [
        (format!(r#"[{{"Id": "sha256:1", "Labels": {}, "Size": 9}}]"#, labels(1)), 1),
        (format!(r#"[{{"Labels": null, "Config": {{"Labels": {}}}}}]"#, labels(2)), 2),
        (format!(r#"{{"Labels": {}}}"#, labels(3)), 3),
        (format!(r#"{{"Config": {{"Labels": {}}}}}"#, labels(4)), 4),
        (r#"[{"Labels": null}]"#.to_owned(), 0),
        (labels(5), 5),
        ("{}".to_owned(), 0),
    ] {
        fs::write(&file, &text).unwrap();
        assert_eq!(
            demand_from(&node, &["--labels-from", file_name], "").unwrap(),
            demand,
            "{text}"
        );
        assert_eq!(demand_from(&node, &["--labels-from", "-"], &text).unwrap(), demand, "{text}");
    }
    let single = format!("{TCP_DEMAND}=7");
    let arguments = ["--label", &single, "--labels-from", "-", "--label", "a=b=c"];
    assert_eq!(demand_from(&node, &arguments, &labels(6)).unwrap(), 7);
    let twice = ["--label", "org.nethserver.tcp-ports-demand=1", "--label", &single];
    assert_eq!(demand_from(&node, &twice, "").unwrap(), 7);
}

#[test]
fn large_inputs_are_taken_in_good_time() {
    let node = Node::start();
    let filler: Vec<_> = (0..9000).map(|n| format!("\"x{n}\": \"{}\"", "y".repeat(90))).collect();
    let text = format!("{{{}, \"{TCP_DEMAND}\": \"9\"}}", filler.join(", "));
    assert_eq!(demand_from(&node, &["--labels-from", "-"], &text).unwrap(), 9);
}

#[test]
fn bad_labels_are_refused_with_their_place() {
    let node = Node::start();
    let refused = |arguments: &[&str], stdin| demand_from(&node, arguments, stdin).unwrap_err();
    for (text, reason) in [
        ("", "empty"),
        ("no", "no JSON"),
        ("[]", "0 images"),
        ("[{}, {}]", "2 images"),
        ("7", "neither an array nor an object"),
        (r#"{"a": 1}"#, "\"a\" is no text"),
        (r#"{"Labels": []}"#, "no object"),
    ] {
        let run = refused(&["--labels-from", "-"], text);
        run.fails(2, &["standard input", reason, "podman image inspect"]);
    }
    fs::write(node.path("bad"), "{").unwrap();
    let path = |name| node.path(name).to_str().unwrap().to_owned();
    refused(&["--labels-from", &path("bad")], "").fails(2, &[&path("bad"), "no JSON"]);
    refused(&["--labels-from", &path("none")], "").fails(1, &[&path("none"), "No such file"]);
    refused(&["--labels-from", &path("state")], "").fails(1, &[&path("state"), "directory"]);
    refused(&["--labels-from", "/dev/zero"], "").fails(2, &["longer than"]);
    for bad in [format!("{TCP_DEMAND}=x"), "org.nethserver.authorizations=node".to_owned()] {
        let key = bad.split('=').next().unwrap();
        refused(&["--label", &bad], "").fails(2, &[key, "malformed"]);
    }
    refused(&["--label", "x"], "").fails(2, &["KEY=VALUE"]);
    node.admin("list-modules").prints_and_says("", "no modules");
}

#[test]
fn refusals_have_their_status_and_their_numbers() {
    let node = Node::with_config("[pool]\nstart = 20000\nend = 20009\n");
    let user = module_user();
    for line in ["list", "status", "allocate 1 tcp", "deallocate tcp", "env"] {
        node.module(line).fails(3, &["permission denied", "whoami"]);
    }
    node.admin(&format!("set-module mail1 --unix-user {user} --label {TCP_DEMAND}=4")).prints("");
    node.module("allocate 1 tcp")
        .fails(3, &["mail1", "org.nethserver.authorizations", "node:portsadm"]);
    node.register_mail1(4, 0);
    node.module("list --owner host/x").fails(3, &["permission denied for host/x"]);
    node.module("allocate 1 tcp --on-behalf-of mail1").fails(3, &["permission denied for mail1"]);
    node.module("allocate 3 tcp").prints("20000-20002\n");
    node.module("allocate 2 tcp --keep-existing")
        .fails(4, &["2 requested", "3 held", "4 allowed", TCP_DEMAND]);
    node.admin("allocate 8 tcp --owner host/x").fails(5, &["8 tcp", "has 7"]);
    node.admin("allocate 11 udp --owner host/x --json").fails(5, &["11 udp", "has 10"]);
    node.admin("allocate 1 tcp --on-behalf-of ghost")
        .fails(6, &["no module ghost", "list-modules"]);
    for line in ["set-module x", "list-modules", "remove-module x"] {
        node.module(line).fails(1, &["org.nethserver.Ports.Admin", "/run/portsd-admin/"]);
    }
}

#[test]
fn wrong_usage_is_told_without_a_service() {
    let run = |line| Run::of(portsctl(Path::new("/nonexistent")).args(words(line)));
    run("").fails(2, &["Usage"]);
    run("allocate 0 tcp").fails(2, &["'0'", "1 to 65535"]);
    run("allocate 65536 tcp").fails(2, &["'65536'", "1 to 65535"]);
    run("allocate -1 tcp").fails(2, &["'-1'", "1 to 65535"]);
    run("allocate 1 sctp").fails(2, &["'sctp'", "tcp, udp"]);
    run("allocate 1").fails(2, &["<PROTOCOL>"]);
    run("allocate 1 tcp --owner a/b").fails(2, &["a/b", "owner"]);
    run("remove-module _").fails(2, &["module id"]);
    run("set-module x --unix-user a:b").fails(2, &["user name"]);
    run("frobnicate").fails(2, &["frobnicate"]);
    let help = run("--help");
    assert_eq!(help.status, Some(0));
    for command in ["allocate", "deallocate", "list", "whoami", "status", "set-module", "env"] {
        assert!(help.stdout.contains(command), "{help:?}");
    }
    run("--version").prints(&format!("portsctl {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn sockets_that_can_not_be_called_are_told_apart() {
    let node = Node::start();
    let call = |path: &Path| Run::of(node.as_module(path).arg("whoami"));
    let path = |name| node.path(name).to_str().unwrap().to_owned();
    call(&node.path("none")).fails(7, &[&path("none"), "no such socket"]);
    call(Path::new("/run/portsd-none/org.nethserver.Ports")).fails(7, &["no such socket"]);
    drop(UnixListener::bind(node.path("dead")).unwrap());
    fs::set_permissions(node.path("dead"), fs::Permissions::from_mode(0o666)).unwrap();
    call(&node.path("dead")).fails(7, &[&path("dead"), "nobody listens"]);
    let _closed = UnixListener::bind(node.path("closed")).unwrap();
    fs::set_permissions(node.path("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    call(&node.path("closed")).fails(7, &[&path("closed"), "may not connect", "root"]);
    if geteuid().is_root() {
        call(&node.path("admin-varlink")).fails(7, &["may not connect"]);
    }
    fs::write(node.path("file"), "").unwrap();
    fs::set_permissions(node.path("file"), fs::Permissions::from_mode(0o666)).unwrap();
    call(&node.path("file")).fails(7, &[&path("file"), "no socket"]);
    let long = format!("/tmp/{}", "x".repeat(103));
    call(Path::new(&long)).fails(7, &[&long, "107 bytes", "108"]);
}

#[test]
fn the_command_line_counts_more_than_the_environment() {
    let node = Node::start();
    let socket = node.path("admin-varlink");
    let socket = socket.to_str().unwrap();
    for arguments in [["--socket", socket, "whoami"], ["whoami", "--socket", socket]] {
        let run = Run::of(portsctl(Path::new("/nonexistent")).args(arguments));
        assert_eq!(run.status, Some(0), "{run:?}");
    }
    // without either, it is one of the two in /run/portsd and /run/portsd-admin
    let run = Run::of(portsctl(Path::new("")).arg("whoami"));
    if run.status != Some(0) {
        run.fails(7, &["/run/portsd", "org.nethserver.Ports"]);
    }
}

/// A service that answers every call with these bytes and hangs up.
fn with_answer(answer: &[u8], line: &str) -> Run {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut byte = [1];
            while byte != [0] {
                stream.read_exact(&mut byte).unwrap();
            }
            stream.write_all(answer).unwrap();
        });
        Run::of(portsctl(&path).args(words(line)))
    })
}

#[test]
fn every_condition_ends_with_its_status() {
    for condition in Condition::ALL {
        let row = condition.row();
        let interface = match condition {
            Condition::InvalidParameter => "org.varlink.service",
            _ => "org.nethserver.Ports",
        };
        let error = format!("{interface}.{}", row.name);
        let answer = format!("{}\0", json!({"error": error, "parameters": {}}));
        with_answer(answer.as_bytes(), "allocate 1 tcp")
            .fails(row.exit_status.into(), &["portsctl: "]);
    }
    let full = br#"{"error": "org.nethserver.Ports.StorageFailure", "parameters": {"reason": "disk_full"}}"#;
    with_answer(&[full, &b"\0"[..]].concat(), "whoami").fails(7, &["full", "journalctl"]);
}

#[test]
fn strange_services_are_no_mystery() {
    with_answer(b"", "whoami").fails(7, &["lost"]);
    with_answer(b"HTTP/1.1 400 Bad Request\r\n\0", "whoami").fails(1, &["can't be understood"]);
    with_answer(b"{\"parameters\": {\"ranges\": []}}\0", "whoami")
        .fails(1, &["can't be understood"]);
    let reversed = b"{\"parameters\": {\"range\": {\"start\": 2, \"end\": 1}}}\0";
    with_answer(reversed, "allocate 1 tcp").fails(1, &["can't be understood", "2-1"]);
    with_answer(b"{\"error\": \"a.b.Odd\", \"parameters\": {\"x\": 1}}\0", "whoami")
        .fails(1, &["a.b.Odd", "\"x\":1"]);
}

#[test]
fn nobody_has_to_read_or_write() {
    let node = Node::start();
    for owner in 0..40 {
        node.admin(&format!("allocate 1 tcp --owner host/o{owner}"));
    }
    let shell = |script: &str| {
        let mut command = Command::new("bash");
        command.args(["-c", script, "bash", env!("CARGO_BIN_EXE_portsctl")]);
        Run::of(command.env("PORTSD_SOCKET", node.path("admin-varlink")))
    };
    // the reader is gone before there is anything to read
    let gone = shell(r#"set -o pipefail; { sleep 0.3; "$1" list; } | exec true"#);
    gone.prints("");
    let refused = r#"exec 3>&1; { sleep 0.3; "$1" allocate 1 tcp 2>&1; echo $? >&3; } | exec true"#;
    shell(refused).prints("2\n");
    let first = shell("set -o pipefail; \"$1\" list | head -n 1");
    assert_eq!((first.status, first.stdout.lines().count()), (Some(0), 1), "{first:?}");
    shell("\"$1\" list > /dev/full").fails(1, &["can't be printed"]);
    shell("\"$1\" list-modules 2> /dev/full").prints("");
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        assert_eq!(shell(&format!("\"$1\" list {closed}")).status, Some(0), "{closed}");
    }
    shell("\"$1\" set-module a --labels-from - <&-").fails(2, &["empty"]);
    // standard input is never waited for where nothing is to come from it
    let mut command = portsctl(&node.path("admin-varlink"));
    let mut child =
        command.arg("whoami").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let stdin = child.stdin.take();
    assert!(child.wait().unwrap().success());
    drop(stdin);
}
