//! The registry that is the cluster's, on real Redis servers.

mod outages;
mod reclaim;
#[path = "../support/mod.rs"]
mod support;
mod values;

use std::fs;

use rusqlite::Connection;
use serde_json::{Value, json};
use support::redis::{Redis, authorizations, config};
use support::varlink::Client;
use support::{
    ADMIN, Daemon, M1, M2, PORTS, Refusal, both_wires, command, connect_as, directory, is_root,
    module, refused_start, wait_for,
};

/// A module's client on varlink.
fn client(daemon: &Daemon, uid: u32) -> Client {
    Client::new(connect_as(uid, &daemon.path("varlink")))
}

fn who(client: &mut Client) -> Value {
    client.call(PORTS, "WhoAmI", json!({})).unwrap()
}

/// Asks for TCP ports as the module, by an administrator.
fn allocate_for(daemon: &Daemon, id: &str, ports: u16) -> Result<Value, Refusal> {
    let call = json!({ "ports": ports, "protocol": "tcp", "onBehalfOf": id });
    daemon.admin().call(PORTS, "Allocate", call)
}

/// Gives TCP ports to an owner, as an administrator.
fn give(daemon: &Daemon, owner: &str, ports: u16) {
    let call = json!({ "ports": ports, "protocol": "tcp", "owner": owner, "keepExisting": true });
    daemon.admin().call(PORTS, "Allocate", call).unwrap();
}

/// The stored entries: id, role, demands, whether they are memories.
fn modules(daemon: &Daemon) -> Vec<(String, bool, u64, u64, bool)> {
    let listed = daemon.admin().call(ADMIN, "ListModules", json!({})).unwrap();
    let entry = |one: &Value| {
        let id = one["moduleId"].as_str().unwrap().to_owned();
        assert_eq!(one["unixUser"], id.as_str());
        let demand = |name: &str| one[name].as_u64().unwrap();
        (
            id,
            one["portsadm"].as_bool().unwrap(),
            demand("tcpPortsDemand"),
            demand("udpPortsDemand"),
            one["stale"].as_bool().unwrap(),
        )
    };
    listed["modules"].as_array().unwrap().iter().map(entry).collect()
}

fn unavailable() -> Refusal {
    Refusal::new("RegistryUnavailable", json!({}))
}

fn unknown(id: &str) -> Refusal {
    Refusal::new("UnknownModule", json!({ "moduleId": id }))
}

/// How many lines of the log have this text.
fn said(daemon: &Daemon, text: &str) -> usize {
    daemon.log().lines().filter(|line| line.contains(text)).count()
}

const AWAY: &str = "can't be asked who is a module";
const BACK: &str = "are known again";

#[test]
fn root_role_and_demand_are_the_clusters() {
    if !is_root() {
        return;
    }
    let redis = Redis::start();
    redis.module("m1", "1", &["traefik@node:routeadm", "node:fwadm,portsadm"], "4", "0");
    redis.run(&["HDEL", "cluster/udp_ports_demand", "m1"]);
    redis.module("m2", "1", &["node:fwadm", "cluster:portsadm"], "4", "4");
    let daemon = Daemon::with_config(&redis.config());
    for mut client in both_wires(&daemon, false, Some(M1)) {
        let answer = client.call(PORTS, "WhoAmI", json!({})).unwrap();
        let expected = json!({
            "uid": M1, "caller": "module", "moduleId": "m1", "unixUser": "m1", "portsadm": true,
            "tcpPortsDemand": 4, "udpPortsDemand": 0
        });
        assert_eq!(answer, expected);
        let call = |ports: u16, protocol: &str| json!({ "ports": ports, "protocol": protocol });
        let given = client.call(PORTS, "Allocate", call(4, "tcp")).unwrap();
        assert_eq!(given["range"], json!({ "start": 20000, "end": 20003 }));
        for (ports, protocol, demand) in [(5, "tcp", 4), (1, "udp", 0)] {
            let refusal = client.call(PORTS, "Allocate", call(ports, protocol)).unwrap_err();
            assert_eq!(
                (refusal.condition.as_str(), &refusal.fields["demand"]),
                ("DemandExceeded", &json!(demand))
            );
        }
    }
    let refusal =
        client(&daemon, M2).call(PORTS, "Allocate", json!({ "ports": 1, "protocol": "tcp" }));
    let missing = Refusal::new("MissingRole", json!({ "moduleId": "m2", "role": "portsadm" }));
    assert_eq!(refusal, Err(missing.clone()));
    assert_eq!(allocate_for(&daemon, "m2", 1), Err(missing));
    assert!(allocate_for(&daemon, "m1", 4).is_ok());
    assert_eq!(
        modules(&daemon),
        [("m1".into(), true, 4, 0, false), ("m2".into(), false, 4, 4, false)]
    );
}

#[test]
fn root_modules_of_other_nodes_are_unknown() {
    if !is_root() {
        return;
    }
    let redis = Redis::start();
    for (id, node) in [("m1", "2"), ("m2", "11"), ("mail1", "1 ")] {
        redis.module(id, node, &["node:portsadm"], "4", "4");
    }
    let daemon = Daemon::with_config(&redis.config());
    for uid in [M1, M2] {
        assert_eq!(who(&mut client(&daemon, uid))["caller"], "anonymous");
    }
    let call = json!({ "ports": 1, "protocol": "tcp" });
    let refusal = client(&daemon, M1).call(PORTS, "Allocate", call).unwrap_err();
    assert_eq!(refusal.condition, "PermissionDenied");
    for id in ["m1", "mail1", "nowhere1"] {
        assert_eq!(allocate_for(&daemon, id, 1), Err(unknown(id)));
    }
    assert_eq!((modules(&daemon), daemon.rows()), (Vec::new(), Vec::new()));
}

#[test]
fn root_what_is_taken_away_is_gone_at_the_next_call_of_an_open_connection() {
    if !is_root() {
        return;
    }
    let redis = Redis::start();
    redis.module("m1", "1", &["node:portsadm"], "4", "4");
    redis.module("web1", "1", &[], "4", "4");
    let daemon = Daemon::with_config(&redis.config());
    for mut client in both_wires(&daemon, false, Some(M1)) {
        let mut allocate = |ports: u16| {
            let call = json!({ "ports": ports, "protocol": "tcp" });
            client.call(PORTS, "Allocate", call).map_err(|refusal| refusal.condition)
        };
        let refused = |condition: &str| Err(condition.to_owned());
        let held = allocate(3).unwrap();
        redis.run(&["SREM", &authorizations("m1"), "node:portsadm"]);
        assert_eq!(allocate(3), refused("MissingRole"));
        redis.run(&["SADD", &authorizations("m1"), "node:portsadm"]);
        assert_eq!(allocate(3), Ok(held.clone()));
        redis.run(&["HSET", "cluster/tcp_ports_demand", "m1", "3"]);
        assert_eq!(allocate(4), refused("DemandExceeded"));
        redis.run(&["HSET", "cluster/tcp_ports_demand", "m1", "4"]);
        assert!(allocate(4).is_ok() && allocate(3).is_ok());
        redis.run(&["HSET", "cluster/module_node", "m1", "2"]);
        assert_eq!(allocate(3), refused("PermissionDenied"));
        assert_eq!(modules(&daemon), []);
        redis.run(&["HSET", "cluster/module_node", "m1", "1"]);
        wait_for("the name to be asked about again", || allocate(3).ok());
        redis.run(&["HDEL", "cluster/module_node", "m1"]);
        assert_eq!(allocate(3), refused("PermissionDenied"));
        assert_eq!((modules(&daemon).len(), daemon.rows().len()), (0, 1));
        redis.run(&["HSET", "cluster/module_node", "m1", "1"]);
        wait_for("the name to be asked about again", || allocate(3).ok());
    }
}

#[test]
fn root_a_module_that_is_gone_learns_no_more() {
    if !is_root() {
        return;
    }
    let redis = Redis::start();
    for id in ["m1", "m2"] {
        redis.module(id, "1", &[], "4", "4");
    }
    let daemon = Daemon::with_config(&redis.config());
    let mut client = client(&daemon, M1);
    client.send(&json!({ "method": format!("{PORTS}.Monitor"), "more": true }));
    let mut kind = || {
        let reply = client.receive().unwrap();
        reply["error"]
            .as_str()
            .map_or_else(|| reply["parameters"]["event"]["kind"].clone(), Value::from)
    };
    assert_eq!(kind(), "ready");
    give(&daemon, "m1", 1);
    assert_eq!(kind(), "allocated");
    redis.run(&["HDEL", "cluster/module_node", "m1"]);
    // another module's is no event for it
    give(&daemon, "m2", 1);
    give(&daemon, "m1", 1);
    assert_eq!(kind(), format!("{PORTS}.PermissionDenied"));
    assert_eq!(modules(&daemon), []);
}

#[test]
fn an_entry_that_is_the_same_is_not_written() {
    let redis = Redis::start();
    redis.module("mail1", "1", &["node:portsadm"], "4", "4");
    let daemon = Daemon::with_config(&redis.config());
    allocate_for(&daemon, "mail1", 2).unwrap();
    let database = Connection::open(daemon.database()).unwrap();
    let version =
        || -> i64 { database.query_row("PRAGMA data_version", [], |row| row.get(0)).unwrap() };
    let before = version();
    for _ in 0..20 {
        allocate_for(&daemon, "mail1", 2).unwrap();
    }
    assert_eq!(version(), before);
    redis.run(&["HSET", "cluster/udp_ports_demand", "mail1", "5"]);
    allocate_for(&daemon, "mail1", 2).unwrap();
    assert_ne!(version(), before);
    assert_eq!(modules(&daemon), [("mail1".into(), true, 4, 5, false)]);
    assert_eq!(said(&daemon, "by the cluster, module mail1 has"), 2);
}

#[test]
fn root_an_entry_that_is_the_same_waits_for_no_lock() {
    if !is_root() {
        return;
    }
    let redis = Redis::start();
    redis.module("m1", "1", &[], "4", "4");
    let daemon = Daemon::with_config(&redis.config());
    let mut module = client(&daemon, M1);
    who(&mut module);
    let database = Connection::open(daemon.database()).unwrap();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(who(&mut module)["tcpPortsDemand"], 4);
    // what can't be stored does not count, nor what was taken away
    redis.run(&["HSET", "cluster/tcp_ports_demand", "m1", "0"]);
    let refusal = module.call(PORTS, "WhoAmI", json!({})).unwrap_err();
    assert_eq!(refusal, Refusal::new("StorageFailure", json!({ "reason": "busy" })));
    database.execute_batch("ROLLBACK").unwrap();
    assert_eq!(who(&mut module)["tcpPortsDemand"], 0);
}

#[test]
fn it_is_the_cluster_that_sets_modules() {
    let redis = Redis::start();
    redis.module("mail1", "1", &["node:portsadm"], "4", "4");
    let daemon = Daemon::with_config(&redis.config());
    let denied = Refusal::new("PermissionDenied", json!({ "owner": null }));
    for mut client in both_wires(&daemon, true, None) {
        for id in ["mail1", "web1"] {
            let mut refusal = client.call(ADMIN, "SetModule", module(id, 9, 9, true)).unwrap_err();
            refusal.fields = json!({ "owner": refusal.fields["owner"] });
            assert_eq!(refusal, denied);
        }
    }
    allocate_for(&daemon, "mail1", 2).unwrap();
    give(&daemon, "mail1_rsync", 1);
    let removed = daemon.admin().call(ADMIN, "RemoveModule", json!({ "moduleId": "mail1" }));
    assert_eq!(removed.unwrap()["freed"].as_array().unwrap().len(), 2);
    assert_eq!((modules(&daemon), daemon.rows()), (Vec::new(), Vec::new()));
    // the cluster still has it
    allocate_for(&daemon, "mail1", 2).unwrap();
    assert_eq!(modules(&daemon), [("mail1".into(), true, 4, 4, false)]);
}

#[test]
fn root_entries_of_administrators_give_way_to_the_clusters() {
    if !is_root() {
        return;
    }
    let redis = Redis::start();
    redis.module("m2", "1", &[], "2", "2");
    let mut daemon = Daemon::start();
    let mut admin = daemon.admin();
    for (id, user) in [("x", "m1"), ("y", "m2")] {
        let mut entry = module(id, 9, 9, true);
        entry["unixUser"] = json!(user);
        admin.call(ADMIN, "SetModule", entry).unwrap();
    }
    assert_eq!(who(&mut client(&daemon, M1))["moduleId"], "x");
    assert!(daemon.stop().success());
    fs::write(daemon.path("portsd.toml"), redis.config()).unwrap();
    redis.signal(nix::sys::signal::Signal::SIGSTOP);
    daemon.restart();
    let refusal = client(&daemon, M1).call(PORTS, "WhoAmI", json!({}));
    assert_eq!(refusal, Err(unavailable()));
    redis.signal(nix::sys::signal::Signal::SIGCONT);
    wait_for("Redis", || client(&daemon, M1).call(PORTS, "WhoAmI", json!({})).ok());
    assert_eq!(who(&mut client(&daemon, M1))["caller"], "anonymous");
    assert_eq!(who(&mut client(&daemon, M2))["moduleId"], "m2");
    assert_eq!(modules(&daemon), [("m2".into(), false, 2, 2, false)]);
}

#[test]
fn a_socket_is_an_address_too() {
    let redis = Redis::start();
    redis.module("mail1", "1", &["node:portsadm"], "4", "4");
    let daemon = Daemon::with_config(&config(&format!("unix://{}", redis.socket().display())));
    assert!(allocate_for(&daemon, "mail1", 2).is_ok());
}

#[test]
fn an_idle_service_ends_though_redis_is_connected() {
    let redis = Redis::start();
    redis.module("mail1", "1", &[], "4", "4");
    let directory = directory();
    fs::write(directory.path().join("portsd.toml"), redis.config()).unwrap();
    let child = command(directory.path()).args(["--idle-exit", "1"]).spawn().unwrap();
    let mut daemon = Daemon { child, directory };
    assert!(daemon.wait().success());
    assert_eq!(said(&daemon, "the cluster's modules are known"), 1);
}

#[test]
fn what_is_wrong_with_the_configuration_is_named() {
    for (lines, named) in [
        ("source = \"redis\"", "registry.node_id"),
        ("node_id = 1", "registry.node_id"),
        ("redis_url = \"redis://:secret@127.0.0.1\"", "registry.redis_url"),
        (
            "source = \"redis\"\nnode_id = 1\nredis_url = \"rediss://:secret@h\"",
            "registry.redis_url",
        ),
        (
            "source = \"redis\"\nnode_id = 1\nredis_url = \"redis://:secret@h:port\"",
            "registry.redis_url",
        ),
        ("source = \"redis\"\nnode_id = 1\nredis_url = \"redis://:secret@h", "redis_url"),
    ] {
        let directory = directory();
        fs::write(directory.path().join("portsd.toml"), format!("[registry]\n{lines}\n")).unwrap();
        let message = refused_start(&mut command(directory.path()));
        assert!(message.contains(named), "{lines}: {message}");
        assert!(!message.contains("secret"), "{message}");
    }
}
