//! What allocation promises, from outside: no overlap, no demand passed, durable before answered,
//! the same on both wires.

mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use support::{ADMIN, Client, Daemon, PORTS, Refusal, both_wires, varlink};

type Row = (String, String, u16, u16);

fn assert_no_overlap(rows: &[Row]) {
    // ordered by protocol and start
    for pair in rows.windows(2) {
        assert!(pair[0].1 != pair[1].1 || pair[0].3 < pair[1].2, "{pair:?} overlap");
    }
    assert!(rows.iter().all(|row| 20000 <= row.2 && row.2 <= row.3 && row.3 <= 45000));
}

fn row(owner: &str, protocol: &str, reply: &Value) -> Row {
    let port = |name: &str| u16::try_from(reply["range"][name].as_u64().unwrap()).unwrap();
    (owner.to_owned(), protocol.to_owned(), port("start"), port("end"))
}

/// portsctl as a client: allocates on behalf of a module, one process for each call.
struct CommandLine(PathBuf);

impl Client for CommandLine {
    fn call(&mut self, _: &str, _: &str, parameters: Value) -> Result<Value, Refusal> {
        let output = Command::new(env!("CARGO_BIN_EXE_portsctl"))
            .arg("--socket")
            .arg(&self.0)
            .args(["--json", "allocate", &parameters["ports"].to_string()])
            .args([parameters["protocol"].as_str().unwrap(), "--keep-existing", "--on-behalf-of"])
            .arg(parameters["onBehalfOf"].as_str().unwrap())
            .output()
            .unwrap();
        match output.status.code() {
            Some(0) => Ok(serde_json::from_slice(&output.stdout).unwrap()),
            Some(4) => Err(Refusal::new("DemandExceeded", json!({}))),
            other => panic!("{other:?}: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}

#[test]
fn sixty_four_clients_of_sixteen_modules_at_once() {
    const DEMAND: u16 = 120;
    // all of them are one user here
    let daemon = Daemon::with_config("[limits]\nconnections_per_uid = 256\n");
    for n in 0..16 {
        daemon.set_module(&format!("m{n}"), DEMAND, DEMAND, true);
    }
    let granted: Vec<Row> = thread::scope(|scope| {
        let workers: Vec<_> = (0..64)
            .map(|n| {
                let daemon = &daemon;
                scope.spawn(move || {
                    let [varlink, jsonrpc] = both_wires(daemon, true, None);
                    let command_line = Box::new(CommandLine(daemon.path("admin-varlink")));
                    let mut client = match n % 3 {
                        0 => varlink,
                        1 => jsonrpc,
                        _ => command_line,
                    };
                    let module = format!("m{}", n % 16);
                    let mut numbers = Rng::with_seed(n);
                    let mut granted = Vec::new();
                    for _ in 0..20 {
                        let protocol = if numbers.bool() { "tcp" } else { "udp" };
                        let parameters = json!({
                            "ports": numbers.u64(0..9) + 1, "protocol": protocol,
                            "keepExisting": true, "onBehalfOf": module,
                        });
                        match client.call(PORTS, "Allocate", parameters) {
                            Ok(reply) => granted.push(row(&module, protocol, &reply)),
                            Err(refusal) => assert_eq!(refusal.condition, "DemandExceeded"),
                        }
                    }
                    granted
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let rows = daemon.rows();
    assert_no_overlap(&rows);
    let mut granted = granted;
    granted.sort_by(|a, b| (&a.1, a.2).cmp(&(&b.1, b.2)));
    assert_eq!(granted, rows);
    let mut held = BTreeMap::new();
    for (owner, protocol, start, end) in rows {
        *held.entry((owner, protocol)).or_insert(0) += end - start + 1;
    }
    assert_eq!(held.len(), 32);
    // eighty calls of five ports on average for each module: its demand was the limit
    assert!(held.values().all(|ports| (DEMAND - 9..=DEMAND).contains(ports)), "{held:?}");
}

#[test]
fn a_row_is_on_the_disk_when_its_reply_arrives() {
    let mut daemon = Daemon::start();
    let mut expected = Vec::new();
    for n in 0..25 {
        let owner = format!("o{n}");
        let parameters = json!({ "ports": n % 7 + 1, "protocol": "tcp", "owner": owner });
        let wires = both_wires(&daemon, true, None);
        let mut client = wires.into_iter().nth(n % 2).unwrap();
        let reply = client.call(PORTS, "Allocate", parameters).unwrap();
        daemon.kill();
        expected.push(row(&owner, "tcp", &reply));
        daemon.restart();
        assert_eq!(daemon.rows(), expected);
    }
}

#[test]
fn a_daemon_that_is_killed_at_any_moment_loses_and_leaks_nothing() {
    let mut daemon = Daemon::start();
    let mut numbers = Rng::with_seed(7);
    let mut answered: BTreeMap<String, Row> = BTreeMap::new();
    for round in 0..20 {
        let is_over = AtomicBool::new(false);
        let replies: Vec<Row> = thread::scope(|scope| {
            let workers: Vec<_> = (0..8)
                .map(|n| {
                    let path = daemon.path("admin-varlink");
                    let is_over = &is_over;
                    scope.spawn(move || {
                        let mut client = varlink::Client::connect(&path);
                        let mut replies = Vec::new();
                        for call in 0..1000 {
                            let owner = format!("o{round}-{n}-{call}");
                            client.send(&json!({
                                "method": format!("{PORTS}.Allocate"),
                                "parameters": { "ports": 2, "protocol": "tcp", "owner": owner }
                            }));
                            match client.receive() {
                                Some(reply) => {
                                    replies.push(row(&owner, "tcp", &reply["parameters"]));
                                }
                                None => break,
                            }
                            if is_over.load(Ordering::Relaxed) {
                                break;
                            }
                        }
                        replies
                    })
                })
                .collect();
            thread::sleep(Duration::from_millis(numbers.u64(0..40)));
            daemon.child.kill().unwrap();
            is_over.store(true, Ordering::Relaxed);
            workers
                .into_iter()
                // a client whose call could not be sent has panicked; it has no reply to keep
                .flat_map(|worker| worker.join().unwrap_or_default())
                .collect()
        });
        daemon.child.wait().unwrap();
        daemon.restart();
        answered.extend(replies.into_iter().map(|row| (row.0.clone(), row)));
        let rows = daemon.rows();
        assert_no_overlap(&rows);
        let stored: BTreeMap<_, _> = rows.iter().map(|row| (row.0.clone(), row.clone())).collect();
        for (owner, row) in &answered {
            assert_eq!(stored.get(owner), Some(row));
        }
        // a row whose reply was lost is what a repeat of the call returns
        let mut admin = daemon.admin();
        let unanswered: Vec<_> =
            rows.iter().filter(|row| !answered.contains_key(&row.0)).cloned().collect();
        for lost in unanswered {
            let parameters = json!({ "ports": 2, "protocol": "tcp", "owner": lost.0 });
            let reply = admin.call(PORTS, "Allocate", parameters).unwrap();
            assert_eq!(row(&lost.0, "tcp", &reply), lost);
            answered.insert(lost.0.clone(), lost);
        }
        let status = admin.call(PORTS, "GetStatus", json!({})).unwrap();
        let pool = &status["pools"][0];
        let sum = pool["allocated"].as_u64().unwrap() + pool["free"].as_u64().unwrap();
        assert_eq!(sum, 25001);
        assert_eq!(pool["allocated"], rows.len() * 2);
        // room for the next round
        for owner in answered.keys().skip(50).cloned().collect::<Vec<_>>() {
            let parameters = json!({ "protocol": "tcp", "owner": owner });
            admin.call(PORTS, "Deallocate", parameters).unwrap();
            answered.remove(&owner);
        }
    }
}

/// The same reply, whenever it was given.
fn without_times(reply: Value) -> Value {
    match reply {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(name, _)| name != "allocatedAt")
            .map(|(name, field)| (name, without_times(field)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_times).collect(),
        other => other,
    }
}

#[test]
fn a_call_and_its_twin_on_the_other_wire_give_equal_results() {
    let (one, other) = (Daemon::start(), Daemon::start());
    let [mut varlink, _] = both_wires(&one, true, None);
    let [_, mut jsonrpc] = both_wires(&other, true, None);
    let mut numbers = Rng::with_seed(42);
    for step in 0..400 {
        let owner = ["m1", "m2", "m1_rsync", "host/x", "a/b", "gone"][numbers.usize(0..6)];
        let protocol = ["tcp", "udp", "sctp"][numbers.usize(0..3)];
        let ports = [0, 1, 2, 5, 9, 500, 26000][numbers.usize(0..7)];
        let (interface, method, parameters) = match numbers.u64(0..9) {
            0..=2 => (
                PORTS,
                "Allocate",
                json!({ "ports": ports, "protocol": protocol, "owner": owner,
                        "keepExisting": numbers.bool() }),
            ),
            3 => (
                PORTS,
                "Allocate",
                json!({ "ports": ports, "protocol": protocol, "onBehalfOf": owner }),
            ),
            4 => (PORTS, "Deallocate", json!({ "protocol": protocol, "owner": owner })),
            5 => (PORTS, "List", json!({ "owner": owner })),
            6 => (ADMIN, "SetModule", support::module(owner, 8, 4, numbers.bool())),
            7 => (ADMIN, "RemoveModule", json!({ "moduleId": owner })),
            _ => (PORTS, "GetStatus", json!({})),
        };
        let expected = varlink.call(interface, method, parameters.clone()).map(without_times);
        let got = jsonrpc.call(interface, method, parameters.clone()).map(without_times);
        assert_eq!(got, expected, "step {step}: {method} {parameters}");
    }
    assert_eq!(one.rows(), other.rows());
    assert!(!one.rows().is_empty());
}

#[test]
fn the_two_protocols_are_independent() {
    let daemon = Daemon::start();
    let mut admin = daemon.admin();
    for protocol in ["tcp", "udp"] {
        let parameters = json!({ "ports": 3, "protocol": protocol, "owner": "a" });
        let reply = admin.call(PORTS, "Allocate", parameters).unwrap();
        assert_eq!(reply["range"], json!({ "start": 20000, "end": 20002 }));
    }
    let reply =
        admin.call(PORTS, "Deallocate", json!({ "protocol": "tcp", "owner": "a" })).unwrap();
    assert_eq!(reply["ranges"], json!([{ "start": 20000, "end": 20002 }]));
    assert_eq!(daemon.rows(), [("a".into(), "udp".into(), 20000, 20002)]);
    let reply =
        admin.call(PORTS, "Deallocate", json!({ "protocol": "tcp", "owner": "a" })).unwrap();
    assert_eq!(reply["ranges"], json!([]));
}

#[test]
fn deallocation_frees_unnamed_and_named_ranges_and_no_claims() {
    let daemon = Daemon::start();
    let mut admin = daemon.admin();
    let database = rusqlite::Connection::open(daemon.database()).unwrap();
    database
        .execute_batch(
            r#"INSERT INTO allocations (owner, protocol, name, start, "end", claimed, allocated_at)
               VALUES ('a', 'tcp', 'db', 20010, 20012, 0, 0), ('a', 'tcp', NULL, 3092, 3092, 1, 0),
                      ('a', 'tcp', 'web', 20020, 20020, 1, 0), ('b', 'tcp', NULL, 20030, 20030, 0, 0)"#,
        )
        .unwrap();
    let parameters = json!({ "ports": 4, "protocol": "tcp", "owner": "a" });
    admin.call(PORTS, "Allocate", parameters.clone()).unwrap();
    assert_eq!(daemon.rows().len(), 5);
    let reply =
        admin.call(PORTS, "Deallocate", json!({ "protocol": "tcp", "owner": "a" })).unwrap();
    assert_eq!(support::ranges(&reply["ranges"]).len(), 2);
    let left: Vec<_> = daemon.rows().into_iter().map(|row| (row.0, row.2)).collect();
    assert_eq!(left, [("a".into(), 3092), ("a".into(), 20020), ("b".into(), 20030)]);
    let listed = admin.call(PORTS, "List", json!({ "owner": "a" })).unwrap();
    assert_eq!(listed["allocations"][0]["claimed"], true);
    assert_eq!(listed["allocations"][1]["name"], "web");
}

#[test]
fn a_refused_replacement_keeps_the_old_range() {
    let daemon = Daemon::with_config("[pool]\nstart = 30000\nend = 30009\n");
    let mut admin = daemon.admin();
    let mut allocate = |owner: &str, ports: u16| {
        let parameters = json!({ "ports": ports, "protocol": "tcp", "owner": owner });
        admin.call(PORTS, "Allocate", parameters)
    };
    allocate("a", 4).unwrap();
    allocate("b", 4).unwrap();
    let before = daemon.rows();
    let exhausted = json!({ "protocol": "tcp", "requested": 5, "largestFree": 4 });
    for _ in 0..3 {
        assert_eq!(allocate("a", 5), Err(Refusal::new("PoolExhausted", exhausted.clone())));
        assert_eq!(daemon.rows(), before);
    }
    // what fits goes on working: b grows, a shrinks and returns
    allocate("b", 6).unwrap();
    allocate("a", 1).unwrap();
    allocate("a", 4).unwrap();
    assert_eq!(
        daemon.rows(),
        [("a".into(), "tcp".into(), 30000, 30003), ("b".into(), "tcp".into(), 30004, 30009)]
    );
}

#[test]
fn a_freed_port_is_given_at_once_when_nothing_else_is_free() {
    let daemon = Daemon::with_config("[pool]\nstart = 30000\nend = 30001\n");
    let mut admin = daemon.admin();
    let allocate = json!({ "ports": 2, "protocol": "tcp", "owner": "a" });
    daemon.set_module("m1", 2, 2, true);
    for _ in 0..100 {
        admin.call(PORTS, "Allocate", allocate.clone()).unwrap();
        admin.call(PORTS, "Deallocate", json!({ "protocol": "tcp", "owner": "a" })).unwrap();
        let helper = json!({ "ports": 2, "protocol": "tcp", "owner": "m1_rsync" });
        admin.call(PORTS, "Allocate", helper).unwrap();
        admin.call(ADMIN, "RemoveModule", json!({ "moduleId": "m1" })).unwrap();
    }
}

#[test]
fn an_instance_and_its_successor_of_the_same_name_do_not_disturb_others() {
    let daemon = Daemon::start();
    let mut admin = daemon.admin();
    let mut allocate = |id: &str| {
        daemon.set_module(id, 4, 4, true);
        let parameters = json!({ "ports": 4, "protocol": "tcp", "onBehalfOf": id });
        admin.call(PORTS, "Allocate", parameters).unwrap()["range"]["start"].as_u64().unwrap()
    };
    let (first, second) = (allocate("m1"), allocate("m2"));
    assert_ne!(first, second);
    daemon.admin().call(ADMIN, "RemoveModule", json!({ "moduleId": "m1" })).unwrap();
    assert_eq!(daemon.rows().len(), 1);
    assert_eq!(allocate("m2"), second);
    assert_ne!(allocate("m1"), second);
}

#[test]
fn the_real_modules_are_served() {
    let text = include_str!("data/modules.json");
    let modules: Vec<BTreeMap<String, Option<String>>> = serde_json::from_str(text).unwrap();
    let daemon = Daemon::start();
    let mut wires = both_wires(&daemon, true, None);
    let mut with_role = 0;
    for (n, module) in modules.iter().enumerate() {
        let id = format!("{}{n}", module["module"].as_deref().unwrap());
        let label = |name: &str| module[&name.replace('-', "_")].clone();
        let labels: BTreeMap<_, _> = ["tcp-ports-demand", "udp-ports-demand", "authorizations"]
            .into_iter()
            .filter_map(|name| Some((format!("org.nethserver.{name}"), label(name)?)))
            .collect();
        let client = &mut wires[n % 2];
        client.call(ADMIN, "SetModule", json!({ "moduleId": id, "labels": labels })).unwrap();
        for protocol in ["tcp", "udp"] {
            let demand = module[&format!("{protocol}_ports_demand")].as_deref().unwrap_or("0");
            let demand: u16 = demand.parse().unwrap();
            if demand == 0 {
                continue;
            }
            let behalf = json!({ "ports": demand, "protocol": protocol, "onBehalfOf": id });
            if client.call(PORTS, "Allocate", behalf).is_ok() {
                with_role += 1;
            }
            let parameters = json!({ "ports": demand, "protocol": protocol, "owner": id });
            let reply = client.call(PORTS, "Allocate", parameters).unwrap();
            let (_, _, start, end) = row(&id, protocol, &reply);
            assert_eq!(end - start + 1, demand);
        }
    }
    // eight of them have the role portsadm and want ports
    assert_eq!(with_role, 8);
    assert_no_overlap(&daemon.rows());
    let listed = wires[0].call(ADMIN, "ListModules", json!({})).unwrap();
    assert_eq!(listed["modules"].as_array().unwrap().len(), 124);
}
