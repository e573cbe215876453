//! Who a caller is, shown with real users, subordinate ids and user namespaces.

mod support;

use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use serde_json::{Value, json};
use support::varlink::Client;
use support::{ADMIN, Daemon, M1, M2, M5, PORTS, both_wires, connect_as, is_root};

/// Tests of one process share its user database: most look at it, some change it.
static USERS: RwLock<()> = RwLock::new(());

/// Holds the user database as it is, or says that the test is left out.
fn users() -> Option<RwLockReadGuard<'static, ()>> {
    is_root().then(|| USERS.read().unwrap_or_else(PoisonError::into_inner))
}

/// Holds the user database to change it, or says that the test is left out.
fn users_to_change() -> Option<RwLockWriteGuard<'static, ()>> {
    is_root().then(|| USERS.write().unwrap_or_else(PoisonError::into_inner))
}

fn daemon() -> Daemon {
    let daemon = Daemon::start();
    for id in ["m1", "m2", "m3", "m4", "m5"] {
        daemon.set_module(id, 8, 8, true);
    }
    daemon
}

fn who(daemon: &Daemon, uid: u32) -> Value {
    let [mut varlink, mut jsonrpc] = both_wires(daemon, false, Some(uid));
    let answer = varlink.call(PORTS, "WhoAmI", json!({})).unwrap();
    assert_eq!(answer, jsonrpc.call(PORTS, "WhoAmI", json!({})).unwrap());
    assert_eq!(answer["uid"], uid);
    answer
}

#[test]
fn root_users_and_their_subordinate_ids_are_modules() {
    let Some(_users) = users() else { return };
    let daemon = daemon();
    for (uid, module) in [
        (M1, "m1"),
        (M2, "m2"),
        (M5, "m5"),
        // the first and the last id of a range given by name, and of one given by number
        (700_000_000, "m1"),
        (700_000_999, "m1"),
        (700_065_535, "m1"),
        (700_065_536, "m2"),
        (700_131_071, "m2"),
    ] {
        let answer = who(&daemon, uid);
        assert_eq!(answer["caller"], "module", "{uid}");
        assert_eq!((&answer["moduleId"], &answer["unixUser"]), (&json!(module), &json!(module)));
        assert_eq!((&answer["portsadm"], &answer["tcpPortsDemand"]), (&json!(true), &json!(8)));
    }
}

#[test]
fn root_nobody_in_particular_is_anonymous() {
    let Some(_users) = users() else { return };
    let daemon = daemon();
    daemon
        .admin()
        .call(ADMIN, "SetModule", json!({ "moduleId": "sly", "unixUser": "nobody", "labels": {} }))
        .unwrap();
    daemon
        .admin()
        .call(ADMIN, "SetModule", json!({ "moduleId": "slier", "unixUser": "root", "labels": {} }))
        .unwrap();
    for uid in [
        // root, whatever a module entry says
        0,
        // the kernel's number for users that it can't map, whatever user has it
        65534,
        // nobody's
        800_000_000,
        // in the ranges of two users
        700_131_072,
        700_196_607,
        // behind the last range
        700_196_608,
        // a user of the host whose name no module can have, in the range of another one
        700_000_500,
    ] {
        let answer = who(&daemon, uid);
        assert_eq!(answer["caller"], "anonymous", "{uid}");
        assert_eq!(answer["moduleId"], Value::Null);
        assert_eq!(answer["portsadm"], false);
    }
    // a user that is no module is nobody in particular either
    assert_eq!(who(&daemon, 1)["caller"], "anonymous");
    assert_eq!(who(&daemon, 1)["unixUser"], "daemon");
}

#[test]
fn administrators_are_only_on_the_admin_sockets() {
    let daemon = Daemon::start();
    let uid = nix::unistd::Uid::effective().as_raw();
    for mut client in both_wires(&daemon, true, None) {
        let answer = client.call(PORTS, "WhoAmI", json!({})).unwrap();
        assert_eq!((&answer["caller"], &answer["uid"]), (&json!("administrator"), &json!(uid)));
    }
    for mut client in both_wires(&daemon, false, None) {
        let answer = client.call(PORTS, "WhoAmI", json!({})).unwrap();
        assert_ne!(answer["caller"], "administrator");
    }
}

#[test]
fn root_others_who_get_at_an_admin_socket_are_anonymous() {
    use std::os::unix::fs::PermissionsExt;
    let Some(_users) = users() else { return };
    let daemon = daemon();
    for name in ["admin-varlink", "admin-jsonrpc"] {
        fs::set_permissions(daemon.path(name), fs::Permissions::from_mode(0o666)).unwrap();
    }
    for uid in [M1, 1, 65534] {
        for mut client in both_wires(&daemon, true, Some(uid)) {
            let answer = client.call(PORTS, "WhoAmI", json!({})).unwrap();
            assert_eq!(answer["caller"], "anonymous");
            let refusal = client.call(ADMIN, "ListModules", json!({})).unwrap_err();
            assert_eq!(refusal.condition, "PermissionDenied");
            let owned = json!({ "ports": 1, "protocol": "tcp", "owner": "m1" });
            assert!(client.call(PORTS, "Allocate", owned).is_err());
        }
    }
}

/// A user namespace with the id map of a rootless container of `m1`.
struct Container(Child);

impl Container {
    fn start() -> Self {
        let holder =
            Command::new("unshare").args(["--user", "sleep", "600"]).spawn().map(Self).unwrap();
        let process = holder.process();
        // the namespace is there when the link differs from this process's
        let own = fs::read_link("/proc/self/ns/user").unwrap();
        support::wait_for("the user namespace", || {
            fs::read_link(format!("{process}/ns/user")).ok().filter(|namespace| *namespace != own)
        });
        for map in ["uid_map", "gid_map"] {
            let ids = format!("0 {M1} 1\n1 700000000 65536\n");
            fs::write(format!("{process}/{map}"), ids).unwrap();
        }
        holder
    }

    fn process(&self) -> String {
        format!("/proc/{}", self.0.id())
    }

    /// Runs curl in it, as the user that has the id `uid` inside.
    fn call(&self, daemon: &Daemon, uid: u32, body: &Value) -> Value {
        let output = Command::new("nsenter")
            .arg(format!("--user={}/ns/user", self.process()))
            .args([&format!("--setuid={uid}"), "--setgid=0"])
            .args(["curl", "--silent", "--show-error", "--unix-socket"])
            .arg(daemon.path("jsonrpc"))
            .args(["--header", "content-type: application/json", "--data", &body.to_string()])
            .arg("http://localhost/")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn root_processes_of_a_rootless_container_are_its_user_and_nobody_else() {
    let Some(_users) = users() else { return };
    let daemon = daemon();
    let call = |method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let container = Container::start();
    for (inside, outside) in [(0, M1), (1, 700_000_000), (1000, 700_000_999)] {
        let answer = container.call(&daemon, inside, &call("who_am_i", json!({})));
        assert_eq!(answer["result"]["uid"], outside);
        assert_eq!(answer["result"]["module_id"], "m1");
        let own = json!({ "ports": 2, "protocol": "tcp" });
        let answer = container.call(&daemon, inside, &call("allocate", own));
        assert_eq!(answer["result"]["range"], json!({ "start": 20000, "end": 20001 }));
        for owner in ["root", "m2", "host/x"] {
            let other = json!({ "ports": 2, "protocol": "tcp", "owner": owner });
            let answer = container.call(&daemon, inside, &call("allocate", other));
            let data = json!({ "error": "PermissionDenied", "owner": owner });
            let given = &answer["error"]["data"];
            assert_eq!((&given["error"], &given["owner"]), (&data["error"], &data["owner"]));
        }
    }
    assert_eq!(daemon.rows(), [("m1".into(), "tcp".into(), 20000, 20001)]);
}

/// A cgroup that is as service managers and container engines make them.
struct Cgroup {
    directory: PathBuf,
    /// What was not there before, the innermost first.
    made: Vec<PathBuf>,
}

impl Cgroup {
    /// Makes the cgroup `path`, or says why it can't.
    fn make(path: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let root = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ');
            (fields.next() == Some("cgroup2")).then(|| fields.next().map(PathBuf::from))?
        });
        let directory = root?.join(path.trim_start_matches('/'));
        let made = directory.ancestors().take_while(|above| !above.exists());
        let made = made.map(Path::to_owned).collect();
        match fs::create_dir_all(&directory) {
            Ok(()) => Some(Self { directory, made }),
            Err(error) => {
                eprintln!("left out: no cgroup can be made here: {error}");
                None
            }
        }
    }

    /// Asks who the caller is from a process in the cgroup.
    fn who(&self, daemon: &Daemon, uid: u32) -> Value {
        let script = "echo $$ > \"$0\" && exec \"$@\"";
        let output = Command::new("sh")
            .args(["-c", script])
            .arg(self.directory.join("cgroup.procs"))
            .args(["setpriv", &format!("--reuid={uid}"), "--clear-groups"])
            .args(["curl", "--silent", "--show-error", "--unix-socket"])
            .arg(daemon.path("jsonrpc"))
            .args(["--header", "content-type: application/json"])
            .args(["--data", r#"{"jsonrpc":"2.0","id":1,"method":"who_am_i"}"#])
            .arg("http://localhost/")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["result"].clone()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for directory in &self.made {
            // another test may be in it
            let _ = fs::remove_dir(directory);
        }
    }
}

#[test]
fn root_processes_of_a_rootful_container_are_nobody() {
    let Some(_users) = users() else { return };
    let daemon = daemon();
    let name = std::process::id();
    let scope = format!("/machine.slice/libpod-{name}.scope/container");
    let Some(cgroup) = Cgroup::make(&scope) else { return };
    for uid in [0, M1, 700_000_999] {
        assert_eq!(cgroup.who(&daemon, uid)["caller"], "anonymous", "{uid}");
    }
    let rootless =
        format!("/user.slice/user-{M1}.slice/user@{M1}.service/user.slice/libpod-{name}.scope");
    let Some(cgroup) = Cgroup::make(&rootless) else { return };
    for uid in [M1, 700_000_999] {
        assert_eq!(cgroup.who(&daemon, uid)["module_id"], "m1", "{uid}");
    }
}

#[test]
fn root_the_agent_of_a_rootful_module_is_that_module() {
    let Some(_users) = users() else { return };
    let daemon = daemon();
    let slice = format!("/system.slice/system-agent{}.slice", std::process::id());
    for (unit, expected) in [
        ("agent@m3.service", json!("m3")),
        ("agent@unknown7.service", Value::Null),
        ("agent@node.service", Value::Null),
        ("agent@cluster.service", Value::Null),
        ("other@m3.service", Value::Null),
    ] {
        for id in ["node", "cluster"] {
            daemon.set_module(id, 1, 1, true);
        }
        let Some(cgroup) = Cgroup::make(&format!("{slice}/{unit}")) else { return };
        assert_eq!(cgroup.who(&daemon, 0)["module_id"], expected, "{unit}");
        // another user's process there is that user
        assert_eq!(cgroup.who(&daemon, M1)["module_id"], "m1", "{unit}");
    }
}

#[test]
fn root_a_caller_from_a_pid_namespace_is_who_it_is() {
    let Some(_users) = users() else { return };
    let daemon = daemon();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"who_am_i"}"#;
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "setpriv", &format!("--reuid={M1}"), "--clear-groups"])
        .args(["curl", "--silent", "--unix-socket"])
        .arg(daemon.path("jsonrpc"))
        .args(["--header", "content-type: application/json", "--data", body, "http://localhost/"])
        .output()
        .unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["result"]["module_id"], "m1");
}

#[test]
fn root_a_connection_stays_its_first_owners() {
    let Some(_users) = users() else { return };
    let daemon = daemon();
    let connection = connect_as(M1, &daemon.path("varlink"));
    let (ours, theirs) = UnixStream::pair().unwrap();
    // hand the descriptor to another thread that has become another user
    let sent = std::thread::spawn(move || {
        support::become_user(M2);
        let mut space = nix::cmsg_space!([i32; 1]);
        let mut byte = [0];
        let mut parts = [std::io::IoSliceMut::new(&mut byte)];
        let message =
            recvmsg::<()>(theirs.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty())
                .unwrap();
        let received = message.cmsgs().unwrap().find_map(|part| match part {
            ControlMessageOwned::ScmRights(fds) => fds.first().copied(),
            _ => None,
        });
        let mut client = Client::new(adopt(received.unwrap()));
        client.call(PORTS, "WhoAmI", json!({})).unwrap()
    });
    let fds = [connection.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&fds)];
    sendmsg::<()>(
        ours.as_raw_fd(),
        &[std::io::IoSlice::new(b"x")],
        &rights,
        MsgFlags::empty(),
        None,
    )
    .unwrap();
    assert_eq!(sent.join().unwrap()["moduleId"], "m1");
}

#[allow(unsafe_code, reason = "a descriptor that came in a message belongs to nobody yet")]
fn adopt(fd: i32) -> UnixStream {
    use std::os::fd::FromRawFd;
    // SAFETY: the kernel has just made this descriptor for us.
    unsafe { UnixStream::from_raw_fd(fd) }
}

#[test]
fn root_a_user_id_that_is_given_to_another_user_is_that_user() {
    let Some(_users) = users_to_change() else { return };
    let daemon = daemon();
    let path = daemon.path("varlink");
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let mut before = Client::new(connect_as(M5, &path));
    let own = json!({ "ports": 1, "protocol": "tcp" });
    before.call(PORTS, "Allocate", own).unwrap();
    // in place: the file is a mount
    fs::write("/etc/passwd", passwd.replace("m5:x:61005", "later:x:61005")).unwrap();
    let parameters = json!({ "moduleId": "m5b", "unixUser": "later", "labels": {} });
    daemon.admin().call(ADMIN, "SetModule", parameters).unwrap();
    let mut after = Client::new(connect_as(M5, &path));
    let answer = after.call(PORTS, "WhoAmI", json!({})).unwrap();
    assert_eq!(answer["moduleId"], "m5b");
    assert_eq!(after.call(PORTS, "List", json!({})).unwrap()["allocations"], json!([]));
    fs::write("/etc/passwd", passwd.replace("m5:x:61005", "gone:x:61006")).unwrap();
    assert_eq!(who(&daemon, M5)["caller"], "anonymous");
    fs::write("/etc/passwd", passwd).unwrap();
}

#[test]
fn root_a_changed_subuid_file_counts_from_the_next_connection() {
    let Some(_users) = users_to_change() else { return };
    let daemon = daemon();
    let uid = 900_000_000;
    assert_eq!(who(&daemon, uid)["caller"], "anonymous");
    let subuid = fs::read_to_string("/etc/subuid").unwrap();
    fs::write("/etc/subuid", format!("{subuid}m5:900000000:10\n")).unwrap();
    assert_eq!(who(&daemon, uid)["moduleId"], "m5");
    fs::write("/etc/subuid", subuid).unwrap();
    assert_eq!(who(&daemon, uid)["caller"], "anonymous");
}

#[test]
fn root_a_user_with_many_ids_has_no_more_connections_than_another() {
    let Some(_users) = users() else { return };
    let daemon = Daemon::with_config("[limits]\nconnections_per_uid = 4\n");
    let path = daemon.path("varlink");
    let works = |client: &mut Client| {
        let call = json!({ "method": format!("{PORTS}.WhoAmI") }).to_string() + "\0";
        client.stream.write_all(call.as_bytes()).is_ok() && client.receive().is_some()
    };
    let mut held: Vec<_> =
        (0..4).map(|n| Client::new(connect_as(700_000_100 + n, &path))).collect();
    assert!(held.iter_mut().all(works));
    for uid in [700_000_200, M1] {
        assert!(!works(&mut Client::new(connect_as(uid, &path))));
    }
    for uid in [M2, 0] {
        assert!(works(&mut Client::new(connect_as(uid, &path))));
    }
    assert!(works(&mut daemon.admin()));
}
