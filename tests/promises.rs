//! Promises that other allocators broke: nothing leaks, nothing moves, nothing is counted twice.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};
use support::varlink::Client as Varlink;
use support::{ADMIN, Client, Daemon, PORTS, Refusal, both_wires, jsonrpc, ranges, wait_for};

fn small_pool(ports: u16) -> Daemon {
    // without quarantine, so that what was freed is as good as what never was given
    let config = format!("[pool]\nstart = 30000\nend = {}\nquarantine = 0", 29999 + ports);
    Daemon::with_config(&config)
}

fn allocate(client: &mut dyn Client, owner: &str, ports: u16) -> Result<(u64, u64), Refusal> {
    let parameters = json!({ "ports": ports, "protocol": "tcp", "owner": owner });
    client.call(PORTS, "Allocate", parameters).map(|reply| range(&reply))
}

fn ensure(client: &mut dyn Client, owner: &str, ports: u16) -> Result<(u64, u64), Refusal> {
    let parameters =
        json!({ "name": "db", "ports": ports, "protocols": ["tcp", "udp"], "owner": owner });
    client.call(PORTS, "Ensure", parameters).map(|reply| range(&reply))
}

fn range(reply: &Value) -> (u64, u64) {
    ranges(&json!([reply["range"]]))[0]
}

fn free(client: &mut dyn Client, owner: &str) {
    client.call(PORTS, "Deallocate", json!({ "protocol": "tcp", "owner": owner })).unwrap();
}

/// How many tcp ports are free.
fn free_ports(client: &mut dyn Client) -> Value {
    client.call(PORTS, "GetStatus", json!({})).unwrap()["pools"][0]["free"].clone()
}

fn portsctl(daemon: &Daemon, line: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portsctl"));
    command.arg("--socket").arg(daemon.path("admin-varlink")).args(line.split(' '));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A client of each wire, with a daemon of its own.
fn each_wire(ports: u16) -> impl Iterator<Item = (Daemon, Box<dyn Client>)> {
    (0..2).map(move |wire| {
        let daemon = small_pool(ports);
        let client = both_wires(&daemon, true, None).into_iter().nth(wire).unwrap();
        (daemon, client)
    })
}

#[test]
fn a_refused_extension_takes_nothing_whether_for_the_demand_or_for_the_pool() {
    for (daemon, mut client) in each_wire(20) {
        daemon.set_module("m1", 8, 8, true);
        let extend = |client: &mut dyn Client, ports: u16| {
            let parameters = json!({ "ports": ports, "protocol": "tcp", "onBehalfOf": "m1",
                "keepExisting": true });
            client.call(PORTS, "Allocate", parameters).map(|reply| range(&reply))
        };
        assert_eq!(extend(&mut *client, 4), Ok((30000, 30003)));
        assert_eq!(extend(&mut *client, 5).unwrap_err().condition, "DemandExceeded");
        assert_eq!(allocate(&mut *client, "a", 12), Ok((30004, 30015)));
        daemon.set_module("m1", 100, 100, true);
        let before = daemon.rows();
        assert_eq!(extend(&mut *client, 5).unwrap_err().condition, "PoolExhausted");
        assert_eq!((daemon.rows(), free_ports(&mut *client)), (before, json!(4)));
        // what fits is given at once
        assert_eq!(extend(&mut *client, 4), Ok((30016, 30019)));
    }
}

#[test]
fn a_repeat_moves_nothing_and_takes_nothing() {
    type Call = fn(&mut dyn Client, &str, u16) -> Result<(u64, u64), Refusal>;
    for (call, rows) in [(allocate as Call, 1), (ensure, 2)] {
        let daemon = small_pool(40);
        for client in &mut both_wires(&daemon, true, None) {
            // the same size; larger and smaller with room behind
            for (ports, end) in [(4, 30003), (9, 30008), (2, 30001), (4, 30003)] {
                for _ in 0..3 {
                    assert_eq!(call(&mut **client, "a", ports), Ok((30000, end)));
                    assert_eq!(free_ports(&mut **client), 40 - u64::from(ports));
                }
            }
        }
        // a change whose answer was lost is there when it is asked for again
        for ports in [9, 2, 7] {
            drop(call_without_an_answer(&daemon, "a", ports));
            wait_for("the change", || {
                (free_ports(&mut daemon.admin()) == 40 - ports).then_some(())
            });
            let end = 29999 + u64::from(ports);
            assert_eq!(call(&mut daemon.admin(), "a", ports), Ok((30000, end)));
        }
        assert_eq!(daemon.rows().len(), rows);
    }
}

/// Makes a call of the kind that has given what is there, and does not wait for the answer.
fn call_without_an_answer(daemon: &Daemon, owner: &str, ports: u16) -> UnixStream {
    let mut client = daemon.admin();
    let listed = client.call(PORTS, "List", json!({ "owner": owner })).unwrap();
    let is_named = listed["allocations"][0]["name"] == "db";
    let (method, parameters) = if is_named {
        let protocols = ["tcp", "udp"];
        ("Ensure", json!({ "name": "db", "ports": ports, "protocols": protocols, "owner": owner }))
    } else {
        ("Allocate", json!({ "ports": ports, "protocol": "tcp", "owner": owner }))
    };
    client.send(&json!({ "method": format!("{PORTS}.{method}"), "parameters": parameters }));
    client.stream
}

#[test]
fn a_range_that_has_no_room_behind_it_is_replaced_in_one_step_and_then_stays() {
    for (_daemon, mut client) in each_wire(40) {
        let client = &mut *client;
        assert_eq!(allocate(client, "a", 4), Ok((30000, 30003)));
        assert_eq!(allocate(client, "b", 1), Ok((30004, 30004)));
        for _ in 0..3 {
            assert_eq!(allocate(client, "a", 6), Ok((30005, 30010)));
            assert_eq!(free_ports(client), 33);
        }
        // the old place is free now, for whom it fits best
        assert_eq!(allocate(client, "c", 4), Ok((30000, 30003)));
    }
}

#[test]
fn the_first_port_is_the_lowest_wherever_it_is_shown() {
    let daemon = small_pool(40);
    for count in [1, 2, 8, 9] {
        let end = 29999 + count;
        for client in &mut both_wires(&daemon, true, None) {
            assert_eq!(allocate(&mut **client, "a", count), Ok((30000, u64::from(end))));
        }
        let line = format!("allocate {count} tcp --owner a");
        assert_eq!(portsctl(&daemon, &line), format!("30000-{end}\n"));
        let reply: Value =
            serde_json::from_str(&portsctl(&daemon, &format!("{line} --json"))).unwrap();
        assert_eq!(reply, json!({ "range": { "start": 30000, "end": end } }));
        let variables = portsctl(&daemon, "env --owner a");
        assert!(variables.starts_with("TCP_PORT=30000\n"), "{variables}");
        assert_eq!(variables.contains(&format!("TCP_PORTS_RANGE=30000-{end}\n")), count > 1);
        let list: Vec<_> = (30000..=end).map(|port| port.to_string()).collect();
        let list = format!("TCP_PORTS={}\n", list.join(","));
        assert_eq!(variables.contains(&list), (2..=8).contains(&count), "{variables}");
    }
}

/// Takes ports for `owner` by every way there is.
fn take_by_every_way(client: &mut dyn Client, owner: &str) {
    let helper = format!("{owner}_rsync");
    client
        .call(PORTS, "Allocate", json!({ "ports": 2, "protocol": "tcp", "onBehalfOf": owner }))
        .unwrap();
    client
        .call(
            PORTS,
            "Allocate",
            json!({ "ports": 1, "protocol": "tcp", "onBehalfOf": owner, "keepExisting": true }),
        )
        .unwrap();
    client
        .call(PORTS, "Allocate", json!({ "ports": 2, "protocol": "udp", "owner": owner }))
        .unwrap();
    ensure(client, owner, 2).unwrap();
    allocate(client, &helper, 1).unwrap();
    let start = 3000
        + client.call(PORTS, "List", json!({})).unwrap()["allocations"].as_array().unwrap().len();
    let claim = json!({ "start": start, "end": start, "protocols": ["tcp"], "owner": owner });
    client.call(ADMIN, "Claim", claim).unwrap();
    allocate(client, "old", 3).unwrap();
    client.call(ADMIN, "Transfer", json!({ "fromOwner": "old", "toOwner": owner })).unwrap();
}

#[test]
fn nothing_of_a_live_module_is_reclaimed_however_it_came_to_be_held() {
    let daemon = Daemon::start();
    let [mut varlink, mut jsonrpc] = both_wires(&daemon, true, None);
    for id in ["m1", "m2"] {
        daemon.set_module(id, 20, 20, true);
        take_by_every_way(&mut *varlink, id);
    }
    let claim = json!({ "start": 3092, "end": 3092, "protocols": ["tcp"], "owner": "host/sftp" });
    varlink.call(ADMIN, "Claim", claim).unwrap();
    let before = daemon.rows();
    for dry_run in [true, false] {
        let reply = jsonrpc.call(ADMIN, "Reclaim", json!({ "dryRun": dry_run })).unwrap();
        assert_eq!(reply["freed"], json!([]));
    }
    assert_eq!(daemon.rows(), before);
    // a module whose entry went without its ports
    let database = rusqlite::Connection::open(daemon.database()).unwrap();
    database.execute("DELETE FROM modules WHERE id = 'm2'", []).unwrap();
    let gone = |row: &&(String, String, u16, u16)| row.0 == "m2" || row.0 == "m2_rsync";
    for dry_run in [true, false] {
        let reply = jsonrpc.call(ADMIN, "Reclaim", json!({ "dryRun": dry_run })).unwrap();
        assert_eq!(reply["freed"].as_array().unwrap().len(), before.iter().filter(gone).count());
    }
    let left: Vec<_> = before.iter().filter(|row| !gone(row)).cloned().collect();
    assert_eq!(daemon.rows(), left);
}

#[test]
fn what_a_module_has_got_before_it_is_registered_can_be_spared() {
    let daemon = Daemon::start();
    daemon.set_module("m1", 20, 20, true);
    let [mut varlink, mut jsonrpc] = both_wires(&daemon, true, None);
    for owner in ["old1", "new1", "new1_rsync"] {
        allocate(&mut *varlink, owner, 2).unwrap();
    }
    let older = "UPDATE allocations SET allocated_at = allocated_at - 3600 WHERE owner = 'old1'";
    rusqlite::Connection::open(daemon.database()).unwrap().execute(older, []).unwrap();
    for (older_than, freed) in [(json!(3600), 1), (json!(4000), 0), (json!(0), 3), (json!(null), 3)]
    {
        for client in [&mut varlink, &mut jsonrpc] {
            let parameters = json!({ "dryRun": true, "olderThan": older_than });
            let reply = client.call(ADMIN, "Reclaim", parameters).unwrap();
            assert_eq!(reply["freed"].as_array().unwrap().len(), freed, "{older_than}");
        }
    }
    portsctl(&daemon, "reclaim --older-than 1h");
    let owners: Vec<_> = daemon.rows().into_iter().map(|row| row.0).collect();
    assert_eq!(owners, ["new1", "new1_rsync"]);
}

/// How to free what m1 holds.
type Way = fn(&Daemon, &mut dyn Client);

#[test]
fn a_port_is_there_again_at_once_whichever_way_it_was_freed() {
    let daemon = Daemon::with_config("[pool]\nstart = 30000\nend = 30009\n");
    daemon.set_module("other", 1, 1, true);
    let [mut varlink, mut jsonrpc] = both_wires(&daemon, true, None);
    let ways: [(&str, Way); 6] = [
        ("the command line", |daemon, _| {
            portsctl(daemon, "deallocate tcp --owner m1");
        }),
        ("everything", |_, client| free(client, "m1")),
        ("exact ports", |_, client| {
            let part = json!({ "protocol": "tcp", "start": 30000, "end": 30009, "owner": "m1" });
            client.call(PORTS, "Deallocate", part).unwrap();
        }),
        ("removal", |_, client| {
            client.call(ADMIN, "RemoveModule", json!({ "moduleId": "m1" })).unwrap();
        }),
        ("reclaim", |daemon, client| {
            let database = rusqlite::Connection::open(daemon.database()).unwrap();
            database.execute("DELETE FROM modules WHERE id = 'm1'", []).unwrap();
            client.call(ADMIN, "Reclaim", json!({ "dryRun": false })).unwrap();
        }),
        ("a smaller size", |_, client| {
            allocate(client, "m1", 1).unwrap();
            free(client, "m1");
        }),
    ];
    for (way, free_all) in ways {
        daemon.set_module("m1", 10, 0, true);
        assert_eq!(allocate(&mut *varlink, "m1", 10), Ok((30000, 30009)), "{way}");
        assert_eq!(allocate(&mut *jsonrpc, "m2", 1).unwrap_err().condition, "PoolExhausted");
        free_all(&daemon, &mut *jsonrpc);
        assert_eq!(allocate(&mut *varlink, "m2", 10), Ok((30000, 30009)), "{way}");
        free(&mut *jsonrpc, "m2");
    }
}

#[test]
fn twelve_big_blocks_fit_and_a_thirteenth_gets_the_hole_of_one_that_went() {
    let daemon = Daemon::start();
    let [mut varlink, mut jsonrpc] = both_wires(&daemon, true, None);
    let big =
        |n: u16| json!({ "ports": 2003, "protocol": "udp", "owner": format!("nethvoice{n}") });
    // small ones come first, and in between
    let mut small = |n: u16| {
        let parameters = json!({ "ports": 1, "protocol": "udp", "owner": format!("small{n}") });
        jsonrpc.call(PORTS, "Allocate", parameters).unwrap();
    };
    let mut places = Vec::new();
    for n in 1..=12 {
        small(n);
        places.push(range(&varlink.call(PORTS, "Allocate", big(n)).unwrap()));
    }
    let refused = varlink.call(PORTS, "Allocate", big(13)).unwrap_err();
    let largest = 25001 - 12 * 2003 - 12;
    let fields = json!({ "protocol": "udp", "requested": 2003, "largestFree": largest });
    assert_eq!(refused, Refusal::new("PoolExhausted", fields));
    let fifth = json!({ "protocol": "udp", "owner": "nethvoice5" });
    varlink.call(PORTS, "Deallocate", fifth).unwrap();
    assert_eq!(range(&varlink.call(PORTS, "Allocate", big(13)).unwrap()), places[4]);
}

#[test]
fn counts_beyond_the_pool_and_beyond_numbers_are_refused_and_leave_nothing() {
    let daemon = Daemon::start();
    for client in &mut both_wires(&daemon, true, None) {
        let mut refusal = |ports: &str| {
            let ports: Value = serde_json::from_str(ports).unwrap();
            let parameters = json!({ "ports": ports, "protocol": "tcp", "owner": "a" });
            client.call(PORTS, "Allocate", parameters).unwrap_err().condition
        };
        for ports in ["25002", "65535"] {
            assert_eq!(refusal(ports), "PoolExhausted", "{ports}");
        }
        for ports in
            ["0", "-1", "65536", "2147483648", "9223372036854775808", "18446744073709551616"]
        {
            assert_eq!(refusal(ports), "InvalidParameter", "{ports}");
        }
        assert_eq!(daemon.rows(), []);
        assert_eq!(allocate(&mut **client, "a", 25001), Ok((20000, 45000)));
        free(&mut **client, "a");
    }
}

#[test]
fn a_copy_of_the_database_is_whole_while_others_write() {
    let daemon = &Daemon::start();
    let is_over = &AtomicBool::new(false);
    thread::scope(|scope| {
        for n in 0..8 {
            scope.spawn(move || {
                let mut wires = both_wires(daemon, true, None);
                for call in 0..10_000 {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let client = &mut *wires[call % 2];
                    let named = json!({ "name": format!("r{}", call % 40), "ports": 1 + call % 3,
                        "protocols": ["tcp", "udp"], "mayMove": true, "owner": format!("w{n}") });
                    client.call(PORTS, "Ensure", named).unwrap();
                }
            });
        }
        let mut admin = daemon.admin();
        let mut copies = BTreeSet::new();
        for n in 0..8 {
            let before = allocate(&mut admin, &format!("before{n}"), 1).unwrap();
            let reply = admin.call(ADMIN, "Backup", json!({})).unwrap();
            let path = reply["path"].as_str().unwrap().to_owned();
            assert_whole(&path, &format!("before{n}"), before);
            copies.insert(path);
        }
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(copies.len(), 8);
    });
}

#[test]
fn the_copy_that_is_answered_is_there_and_so_are_the_newest_others() {
    let daemon = &Daemon::start();
    let backup = |client: &mut Varlink| {
        let reply = client.call(ADMIN, "Backup", json!({})).unwrap();
        PathBuf::from(reply["path"].as_str().unwrap())
    };
    let mut admin = daemon.admin();
    let first = backup(&mut admin);
    let directory = first.parent().unwrap();
    // more of them than are kept, faster than names have seconds, and several at a time
    let mut made: Vec<PathBuf> = Vec::new();
    for _ in 0..40 {
        let path = backup(&mut admin);
        assert!(path.exists());
        made.push(path);
    }
    assert!(made[26..].iter().all(|path| path.exists()));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..5).for_each(|_| drop(backup(&mut daemon.admin()))));
        }
    });
    let count = || fs::read_dir(directory).unwrap().count();
    assert_eq!(count(), 14);
    // the clock was wrong once
    for n in 0..14 {
        fs::write(directory.join(format!("ports-20991231T000000Z-{n:03}.sqlite")), "").unwrap();
    }
    let path = backup(&mut admin);
    assert!(path.exists());
    assert_eq!(count(), 14);
    // what is no copy is nobody's to take away
    fs::create_dir(directory.join("ports-1.sqlite")).unwrap();
    assert!(backup(&mut admin).exists());
    assert_eq!(count(), 15);
}

/// Asserts that a copy can be read by itself, that ranges of one name have the same numbers in both
/// protocols, as they were stored in one transaction, and that it has what was there before.
fn assert_whole(path: &str, owner: &str, range: (u64, u64)) {
    let copy = rusqlite::Connection::open(path).unwrap();
    let one = |sql: &str| copy.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(one("PRAGMA quick_check"), "ok");
    let torn = "SELECT CAST(count(*) AS TEXT) FROM allocations AS a WHERE name IS NOT NULL AND NOT EXISTS (
                    SELECT 1 FROM allocations AS b WHERE b.owner = a.owner AND b.name = a.name
                        AND b.protocol <> a.protocol AND b.start = a.start AND b.\"end\" = a.\"end\")";
    assert_eq!(one(torn), "0");
    let sql = format!("SELECT start || '-' || \"end\" FROM allocations WHERE owner = '{owner}'");
    assert_eq!(one(&sql), format!("{}-{}", range.0, range.1));
}

#[test]
fn a_batch_waits_for_a_locked_database_no_longer_than_one_call() {
    let daemon = Daemon::start();
    let database = rusqlite::Connection::open(daemon.database()).unwrap();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    let call = |id: u32| {
        let params = json!({ "ports": 1, "protocol": "tcp", "owner": format!("o{id}") });
        json!({ "jsonrpc": "2.0", "id": id, "method": "allocate", "params": params })
    };
    let batch = Value::Array((0..20).map(call).collect());
    // one after the other they would wait for longer than this client does
    let mut client = jsonrpc::Client::connect(&daemon.path("admin-jsonrpc"));
    let replies = client.post(batch.to_string().as_bytes()).json();
    let replies = replies.as_array().unwrap();
    assert_eq!(replies.len(), 20);
    for reply in replies {
        let data = json!({ "reason": "busy", "error": "StorageFailure" });
        assert_eq!(reply["error"]["data"], data, "{reply}");
    }
    database.execute_batch("ROLLBACK").unwrap();
    assert_eq!(daemon.rows(), []);
    let mut admin: Varlink = daemon.admin();
    assert_eq!(allocate(&mut admin, "a", 1), Ok((20000, 20000)));
}
