//! Monitor: what is held, then every change, in the order in which it was stored.

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use support::varlink::{Client, result};
use support::{
    ADMIN, Daemon, M1, M2, PORTS, Refusal, both_wires, connect_as, is_root, module, read_all,
    wait_for,
};

fn call() -> Value {
    json!({ "method": format!("{PORTS}.Monitor"), "parameters": {}, "more": true })
}

/// Begins to monitor on a connection.
fn monitor(stream: UnixStream) -> Client {
    let mut client = Client::new(stream);
    client.send(&call());
    client
}

fn admin_monitor(daemon: &Daemon) -> Client {
    monitor(UnixStream::connect(daemon.path("admin-varlink")).unwrap())
}

/// The next event, of which there is another one to come: what it tells, and of which range.
fn next(client: &mut Client) -> (String, Option<Value>) {
    let reply = client.receive().expect("an event");
    assert_eq!(reply["continues"], json!(true), "{reply}");
    let event = &reply["parameters"]["event"];
    let allocation = &event["allocation"];
    (text(&event["kind"]), (!allocation.is_null()).then(|| allocation.clone()))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// An event in one line: kind, owner, protocol, name, ports.
fn line(client: &mut Client) -> String {
    let (kind, allocation) = next(client);
    match allocation {
        None => kind,
        Some(one) => format!(
            "{kind} {} {} {} {}-{}",
            one["owner"].as_str().unwrap(),
            one["protocol"].as_str().unwrap(),
            one["name"].as_str().unwrap_or("-"),
            one["start"],
            one["end"]
        ),
    }
}

fn lines(client: &mut Client, expected: &[&str]) {
    for expected in expected {
        assert_eq!(line(client), *expected);
    }
}

fn allocate(owner: &str, ports: u16) -> Value {
    json!({ "ports": ports, "protocol": "tcp", "owner": owner, "keepExisting": true })
}

#[test]
fn what_is_held_comes_first_then_every_change_as_it_is_stored() {
    let daemon = Daemon::start();
    let mut admin = daemon.admin();
    admin.call(PORTS, "Allocate", allocate("a", 2)).unwrap();
    let claim = json!({ "start": 7, "end": 7, "protocols": ["udp"], "owner": "host/x" });
    admin.call(ADMIN, "Claim", claim).unwrap();
    let mut client = admin_monitor(&daemon);
    lines(&mut client, &["present a tcp - 20000-20001", "present host/x udp - 7-7", "ready"]);

    let ensure = |ports: u16, may_move: bool| json!({ "name": "db", "ports": ports, "protocols": ["tcp", "udp"], "owner": "b", "mayMove": may_move });
    admin.call(PORTS, "Ensure", ensure(2, false)).unwrap();
    lines(&mut client, &["allocated b tcp db 20002-20003", "allocated b udp db 20002-20003"]);
    // what changes nothing, and what is refused, is no event
    admin.call(PORTS, "Ensure", ensure(2, false)).unwrap();
    admin.call(PORTS, "Allocate", allocate("c", 60000)).unwrap_err();
    admin.call(PORTS, "Allocate", allocate("c", 1)).unwrap();
    admin.call(PORTS, "Ensure", ensure(3, true)).unwrap();
    lines(
        &mut client,
        &[
            "allocated c tcp - 20004-20004",
            "deallocated b tcp db 20002-20003",
            "allocated b tcp db 20005-20007",
            "deallocated b udp db 20002-20003",
            "allocated b udp db 20005-20007",
        ],
    );
    let part = json!({ "protocol": "tcp", "start": 20000, "end": 20000, "owner": "a" });
    admin.call(PORTS, "Deallocate", part).unwrap();
    admin.call(ADMIN, "Transfer", json!({ "fromOwner": "a", "toOwner": "d" })).unwrap();
    admin.call(ADMIN, "RemoveModule", json!({ "moduleId": "d" })).unwrap();
    lines(
        &mut client,
        &[
            "deallocated a tcp - 20000-20001",
            "allocated a tcp - 20001-20001",
            "deallocated a tcp - 20001-20001",
            "allocated d tcp - 20001-20001",
            "deallocated d tcp - 20001-20001",
        ],
    );
}

#[test]
fn it_is_asked_for_with_more_and_only_on_varlink() {
    let daemon = Daemon::start();
    let mut client = daemon.admin();
    for more in [json!({}), json!({ "more": false }), json!({ "more": null })] {
        let mut call = json!({ "method": format!("{PORTS}.Monitor") });
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let expected = Refusal::new("ExpectedMore", json!({}));
        assert_eq!(result(&client.exchange(&call)), Err(expected));
    }
    let mut bad = call();
    bad["parameters"] = json!({ "owner": "a" });
    let expected = Refusal::new("InvalidParameter", json!({ "parameter": "owner" }));
    assert_eq!(result(&client.exchange(&bad)), Err(expected));
    let mut oneway = call();
    oneway["oneway"] = json!(true);
    client.send(&oneway);
    assert!(client.call(PORTS, "WhoAmI", json!({})).is_ok());

    let [_, mut jsonrpc] = both_wires(&daemon, true, None);
    let refused = jsonrpc.call(PORTS, "Monitor", json!({})).unwrap_err();
    assert_eq!(refused.condition, "MethodNotFound");
}

/// What is held by the events: it refuses a range that is given while it is held, or freed while it
/// is not.
#[derive(Default)]
struct Replay {
    held: BTreeSet<String>,
    is_ready: bool,
}

impl Replay {
    fn apply(&mut self, kind: &str, allocation: Option<Value>) {
        let range = allocation.map(|one| one.to_string()).unwrap_or_default();
        match kind {
            "present" => assert!(!self.is_ready && self.held.insert(range)),
            "ready" => assert!(!std::mem::replace(&mut self.is_ready, true)),
            "allocated" => assert!(self.is_ready && self.held.insert(range.clone()), "{range}"),
            "deallocated" => assert!(self.is_ready && self.held.remove(&range), "{range}"),
            other => panic!("{other}"),
        }
    }
}

/// Follows the events until the owner `end` gets a range, and compares what is held then.
fn replay(mut client: Client, daemon: &Daemon) -> usize {
    let mut replay = Replay::default();
    let mut changes = 0;
    loop {
        let (kind, allocation) = next(&mut client);
        let is_end = allocation.as_ref().is_some_and(|one| one["owner"] == "end");
        changes += usize::from(replay.is_ready);
        replay.apply(&kind, allocation);
        if is_end {
            break;
        }
    }
    let listed = daemon.admin().call(PORTS, "List", json!({})).unwrap();
    let listed = listed["allocations"].as_array().unwrap();
    assert_eq!(replay.held, listed.iter().map(Value::to_string).collect());
    changes
}

/// Allocates and frees for one owner, over both wires in turn.
fn write(daemon: &Daemon, owner: &str) {
    let [mut varlink, mut jsonrpc] = both_wires(daemon, true, None);
    for round in 0..40 {
        let client = if round % 2 == 0 { &mut varlink } else { &mut jsonrpc };
        client.call(PORTS, "Allocate", allocate(owner, 1 + round % 5)).unwrap();
        if round % 3 == 2 {
            let all = json!({ "protocol": "tcp", "owner": owner });
            client.call(PORTS, "Deallocate", all).unwrap();
        }
    }
}

#[test]
fn nothing_is_missed_or_doubled_while_sixteen_clients_write() {
    let daemon = &Daemon::with_config("[limits]\nconnections_per_uid = 200");
    let is_written = &AtomicBool::new(false);
    thread::scope(|scope| {
        // subscribers come all the time
        let subscribers = scope.spawn(move || {
            let mut replays = Vec::new();
            while !is_written.load(Ordering::Relaxed) && replays.len() < 40 {
                let client = admin_monitor(daemon);
                replays.push(scope.spawn(move || replay(client, daemon)));
                thread::sleep(Duration::from_millis(2));
            }
            replays
        });
        let writers: Vec<_> =
            (0..16).map(|n| scope.spawn(move || write(daemon, &format!("w{n}")))).collect();
        for writer in writers {
            writer.join().unwrap();
        }
        is_written.store(true, Ordering::Relaxed);
        let replays = subscribers.join().unwrap();
        daemon.admin().call(PORTS, "Allocate", allocate("end", 1)).unwrap();
        let changes: usize = replays.into_iter().map(|replay| replay.join().unwrap()).sum();
        // they came while there was something to see
        assert!(changes > 160, "{changes}");
    });
}

#[test]
fn a_subscriber_that_falls_behind_is_told_so_and_hung_up_on_and_holds_up_nobody() {
    let daemon = Daemon::with_config("[limits]\nunread_reply = \"60s\"");
    let mut admin = daemon.admin();
    for _ in 0..10 {
        admin.call(PORTS, "Allocate", allocate("a", 1)).unwrap();
    }
    let mut slow = admin_monitor(&daemon);
    let mut reading = admin_monitor(&daemon);
    (0..=10).for_each(|_| drop(next(&mut reading)));
    let mut owners = ["a", "b"];
    for _ in 0..4500 {
        let [from, to] = owners;
        admin.call(ADMIN, "Transfer", json!({ "fromOwner": from, "toOwner": to })).unwrap();
        for _ in 0..10 {
            for (kind, owner) in [("deallocated", from), ("allocated", to)] {
                assert!(line(&mut reading).starts_with(&format!("{kind} {owner} ")));
            }
        }
        owners = [to, from];
    }
    // what it gets has no gap, up to the end
    let mut seen = Replay::default();
    let last = loop {
        let reply = slow.receive().unwrap();
        let event = &reply["parameters"]["event"];
        if reply["continues"] != json!(true) {
            break reply;
        }
        let allocation = &event["allocation"];
        seen.apply(&text(&event["kind"]), (!allocation.is_null()).then(|| allocation.clone()));
    };
    assert!(seen.is_ready);
    let lagged = json!({ "kind": "lagged", "allocation": null });
    assert_eq!(last, json!({ "parameters": { "event": lagged }, "continues": false }));
    assert_eq!(slow.receive(), None);
}

#[test]
fn a_large_change_is_told_whole() {
    let daemon = Daemon::start();
    let mut client = admin_monitor(&daemon);
    lines(&mut client, &["ready"]);
    let ranges: Vec<Value> = (20000..30000)
        .map(|port| json!({ "owner": "a", "protocol": "tcp", "start": port, "end": port }))
        .collect();
    let import = json!({ "allocations": ranges, "dryRun": false });
    daemon.admin().call(ADMIN, "Import", import).unwrap();
    for port in 20000..30000 {
        assert_eq!(line(&mut client), format!("allocated a tcp - {port}-{port}"));
    }
    daemon.admin().call(ADMIN, "Transfer", json!({ "fromOwner": "a", "toOwner": "b" })).unwrap();
    for port in 20000..30000 {
        assert_eq!(line(&mut client), format!("deallocated a tcp - {port}-{port}"));
        assert_eq!(line(&mut client), format!("allocated b tcp - {port}-{port}"));
    }
}

#[test]
fn a_change_by_another_program_sends_subscribers_away() {
    let daemon = Daemon::start();
    daemon.admin().call(PORTS, "Allocate", allocate("a", 1)).unwrap();
    let mut client = admin_monitor(&daemon);
    lines(&mut client, &["present a tcp - 20000-20000", "ready"]);
    let database = rusqlite::Connection::open(daemon.database()).unwrap();
    database.execute("UPDATE allocations SET owner = 'b'", []).unwrap();
    // though nobody calls
    let last = client.receive().unwrap();
    assert_eq!(last["parameters"]["event"]["kind"], "lagged");
    assert_eq!(client.receive(), None);
    lines(&mut admin_monitor(&daemon), &["present b tcp - 20000-20000", "ready"]);
}

#[test]
fn root_a_module_monitors_its_own_ranges_for_as_long_as_it_is_that_module() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start();
    let mut admin = daemon.admin();
    // for which it needs no role
    daemon.set_module("m1", 8, 8, false);
    daemon.set_module("other", 8, 8, true);
    for owner in ["m1", "other", "m1_rsync"] {
        admin.call(PORTS, "Allocate", allocate(owner, 1)).unwrap();
    }
    let connect = |uid| connect_as(uid, &daemon.path("varlink"));
    let mut client = monitor(connect(M1));
    lines(&mut client, &["present m1 tcp - 20000-20000", "ready"]);
    let denied = Err(Refusal::new("PermissionDenied", json!({ "owner": null })));
    assert_eq!(result(&monitor(connect(M2)).receive().unwrap()), denied);

    admin.call(PORTS, "Allocate", allocate("other", 1)).unwrap();
    admin.call(ADMIN, "Transfer", json!({ "fromOwner": "other", "toOwner": "m1" })).unwrap();
    lines(&mut client, &["allocated m1 tcp - 20001-20001", "allocated m1 tcp - 20003-20003"]);
    // another entry for the same user is no reason to stop
    daemon.set_module("m1", 9, 9, true);
    // told only when it has been looked up again
    admin.call(PORTS, "Allocate", allocate("m1", 1)).unwrap();
    lines(&mut client, &["allocated m1 tcp - 20004-20004"]);
    admin.call(ADMIN, "RemoveModule", json!({ "moduleId": "m1" })).unwrap();
    let gone = ["20000-20000", "20001-20001", "20003-20003", "20004-20004"];
    for range in gone {
        assert_eq!(line(&mut client), format!("deallocated m1 tcp - {range}"));
    }
    assert_eq!(result(&client.receive().unwrap()), denied);
    // the connection goes on, and is nobody's now
    let caller = client.call(PORTS, "WhoAmI", json!({})).unwrap();
    assert_eq!(caller["caller"], "anonymous");

    // a user that becomes another module has to begin anew
    daemon.set_module("m2", 8, 8, false);
    let mut client = monitor(connect(M2));
    lines(&mut client, &["ready"]);
    admin.call(ADMIN, "RemoveModule", json!({ "moduleId": "m2" })).unwrap();
    assert_eq!(result(&client.receive().unwrap()), denied);
    let mut entry = module("new", 8, 8, false);
    entry["unixUser"] = json!("m2");
    admin.call(ADMIN, "SetModule", entry).unwrap();
    admin.call(PORTS, "Allocate", allocate("m2", 1)).unwrap();
    lines(&mut monitor(connect(M2)), &["ready"]);
}

#[test]
fn a_subscriber_that_hangs_up_leaves_nothing_behind() {
    let daemon = Daemon::with_config("[limits]\nconnections_per_uid = 3");
    for _ in 0..3 {
        let mut client = admin_monitor(&daemon);
        lines(&mut client, &["ready"]);
        // what it sends meanwhile waits
        client.send(&json!({ "method": format!("{PORTS}.WhoAmI") }));
        drop(client);
    }
    // no change has to happen for that to be noticed
    wait_for("three places", || {
        let clients: Vec<_> = (0..3)
            .filter_map(|_| {
                let mut client = Client::connect(&daemon.path("admin-varlink"));
                let call = format!("{{\"method\": \"{PORTS}.WhoAmI\"}}\0");
                // whoever has no place is hung up on
                client.stream.write_all(call.as_bytes()).ok()?;
                client.receive()?;
                Some(client)
            })
            .collect();
        (clients.len() == 3).then_some(())
    });
}

#[test]
fn a_subscriber_may_be_silent_and_close_its_sending_side() {
    let daemon = Daemon::with_config("[limits]\nidle_connection = \"1s\"");
    let mut silent = admin_monitor(&daemon);
    let mut half = admin_monitor(&daemon);
    half.stream.shutdown(Shutdown::Write).unwrap();
    lines(&mut silent, &["ready"]);
    lines(&mut half, &["ready"]);
    thread::sleep(Duration::from_millis(2500));
    daemon.admin().call(PORTS, "Allocate", allocate("a", 1)).unwrap();
    lines(&mut silent, &["allocated a tcp - 20000-20000"]);
    lines(&mut half, &["allocated a tcp - 20000-20000"]);
}

#[test]
fn a_stop_hangs_up_on_subscribers() {
    let mut daemon = Daemon::start();
    let mut client = admin_monitor(&daemon);
    lines(&mut client, &["ready"]);
    assert!(daemon.stop().success());
    assert_eq!(read_all(&mut client.stream), b"");
}

/// portsctl, as it monitors.
struct Portsctl {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Portsctl {
    fn start(daemon: &Daemon, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portsctl"));
        command.env("PORTSD_SOCKET", daemon.path("admin-varlink")).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("a line").unwrap()
    }

    /// How it ends, and what it says then. It prints nothing more.
    fn end(mut self) -> (ExitStatus, String) {
        assert!(self.lines.next().is_none());
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap(), said)
    }
}

#[test]
fn portsctl_prints_lines_until_it_is_interrupted() {
    let daemon = Daemon::start();
    let mut admin = daemon.admin();
    admin.call(PORTS, "Allocate", allocate("a", 4)).unwrap();
    let mut people = Portsctl::start(&daemon, &["monitor"]);
    let mut programs = Portsctl::start(&daemon, &["--json", "monitor"]);
    assert_eq!(people.line(), "present     tcp 20000-20003 a -");
    assert_eq!(people.line(), "ready");
    let event =
        |line: String| -> Value { serde_json::from_str::<Value>(&line).unwrap()["event"].clone() };
    assert_eq!(event(programs.line())["allocation"]["end"], 20003);
    assert_eq!(event(programs.line()), json!({ "kind": "ready", "allocation": null }));
    let claim = json!({ "start": 7, "end": 7, "protocols": ["udp"], "owner": "b", "name": "x" });
    admin.call(ADMIN, "Claim", claim).unwrap();
    assert_eq!(people.line(), "allocated   udp 7-7 b x claimed");
    assert_eq!(event(programs.line())["kind"], "allocated");
    for monitor in [people, programs] {
        // an interruption by the terminal would be ignored where the tests run in the background
        let interruption = Signal::SIGTERM;
        kill(Pid::from_raw(i32::try_from(monitor.child.id()).unwrap()), interruption).unwrap();
        let (status, said) = monitor.end();
        assert_eq!((status.signal(), said.as_str()), (Some(interruption as i32), ""));
    }
}

#[test]
fn portsctl_says_why_it_monitors_no_longer() {
    let mut daemon = Daemon::start();
    daemon.admin().call(PORTS, "Allocate", allocate("a", 1)).unwrap();
    let mut monitor = Portsctl::start(&daemon, &["monitor"]);
    assert_eq!(monitor.line(), "present     tcp 20000-20000 a -");
    assert_eq!(monitor.line(), "ready");
    let database = rusqlite::Connection::open(daemon.database()).unwrap();
    database.execute("DELETE FROM allocations", []).unwrap();
    daemon.admin().call(PORTS, "GetStatus", json!({})).unwrap();
    assert_eq!(monitor.line(), "lagged");
    let (status, said) = monitor.end();
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("changes were missed"), "{said}");

    let mut monitor = Portsctl::start(&daemon, &["monitor"]);
    assert_eq!(monitor.line(), "ready");
    assert!(daemon.stop().success());
    let (status, said) = monitor.end();
    assert_eq!(status.code(), Some(7));
    assert!(said.contains("portsd has ended, or") && said.lines().count() == 1, "{said}");
}

#[test]
fn portsctl_ends_when_nobody_reads_what_it_prints() {
    let daemon = Daemon::start();
    let mut monitor = Portsctl::start(&daemon, &["monitor"]);
    assert_eq!(monitor.line(), "ready");
    let Portsctl { mut child, lines } = monitor;
    drop(lines);
    daemon.admin().call(PORTS, "Allocate", allocate("a", 4)).unwrap();
    assert!(wait_for("the end", || child.try_wait().unwrap()).success());
}
