//! Values that nobody should have stored, and keys that others can write.

use serde_json::json;

use super::support::redis::{Redis, authorizations};
use super::support::{ADMIN, Daemon, Refusal};
use super::{allocate_for, give, modules, said, unavailable};

#[test]
fn keys_that_a_module_can_write_have_no_effect() {
    let redis = Redis::start();
    redis.module("m1", "1", &["node:fwadm"], "1", "0");
    let daemon = Daemon::with_config(&redis.config());
    let write = |words: &[&str]| redis.run_as::<redis::Value>("module/m1", "m1-secret", words);
    for words in [
        &["SADD", "module/m1/authorizations", "node:portsadm"][..],
        &["SADD", "module/m1/roles/portsadm", "node:portsadm"],
        &["HSET", "module/m1/environment", "TCP_PORTS_DEMAND", "1000"],
        &["HSET", "module/m1/tcp_ports_demand", "m1", "1000"],
        &["HSET", "module/m1/cluster/module_node", "m1", "1"],
        &["SADD", "module/m1/../../cluster/authorizations/module/m1", "node:portsadm"],
    ] {
        write(words).unwrap();
    }
    for words in [
        &["SADD", "cluster/authorizations/module/m1", "node:portsadm"][..],
        &["HSET", "cluster/tcp_ports_demand", "m1", "1000"],
        &["HSET", "cluster/module_node", "m1", "1"],
    ] {
        assert!(write(words).is_err(), "{words:?}");
    }
    let missing = Refusal::new("MissingRole", json!({ "moduleId": "m1", "role": "portsadm" }));
    assert_eq!(allocate_for(&daemon, "m1", 1), Err(missing));
    assert_eq!(modules(&daemon), [("m1".into(), false, 1, 0, false)]);
    assert_eq!(redis.count("get"), 0);
}

#[test]
fn what_is_not_understood_grants_nothing_and_is_told_once() {
    let redis = Redis::start();
    redis.module("mail1", "1", &["node:portsadm"], "4", "4");
    let daemon = Daemon::with_config(&redis.config());
    allocate_for(&daemon, "mail1", 1).unwrap();
    let huge = "9".repeat(100_000);
    for demand in ["-1", "65536", "four", "4.0", "", " 4", "0x4", &huge] {
        redis.run(&["HSET", "cluster/tcp_ports_demand", "mail1", demand]);
        for _ in 0..3 {
            let refusal = allocate_for(&daemon, "mail1", 2).unwrap_err();
            assert_eq!(refusal.fields["demand"], 0, "{demand}");
        }
    }
    assert_eq!(said(&daemon, "cluster/tcp_ports_demand mail1: "), 8);
    redis.run(&["HSET", "cluster/tcp_ports_demand", "mail1", "4"]);
    assert!(allocate_for(&daemon, "mail1", 2).is_ok());

    let key = authorizations("mail1");
    for member in ["portsadm", "node", "node:", ":portsadm", "node:portsadm,", "node:PORTSADM"] {
        redis.run(&["DEL", &key]);
        redis.run(&["SADD", &key, member]);
        let refusal = allocate_for(&daemon, "mail1", 2).unwrap_err();
        assert_eq!(refusal.condition, "MissingRole", "{member}");
    }
    redis.run(&["SADD", &key, "node:fwadm node:portsadm"]);
    assert!(allocate_for(&daemon, "mail1", 2).is_ok());

    // keys of other types
    redis.run(&["DEL", &key]);
    redis.run(&["SET", &key, "node:portsadm"]);
    for _ in 0..3 {
        assert_eq!(allocate_for(&daemon, "mail1", 2).unwrap_err().condition, "MissingRole");
    }
    assert_eq!(said(&daemon, "WRONGTYPE"), 1);
    redis.run(&["DEL", &key, "cluster/tcp_ports_demand"]);
    redis.run(&["SADD", &key, "node:portsadm"]);
    redis.run(&["SET", "cluster/tcp_ports_demand", "4"]);
    assert_eq!(allocate_for(&daemon, "mail1", 3).unwrap_err().fields["demand"], 0);
    assert_eq!(modules(&daemon), [("mail1".into(), true, 0, 4, false)]);
}

#[test]
fn a_key_that_may_not_be_read_says_nothing() {
    let redis = Redis::start();
    for id in ["mail1", "web1"] {
        redis.module(id, "1", &["node:portsadm"], "4", "4");
    }
    let daemon = Daemon::with_config(&redis.config());
    allocate_for(&daemon, "mail1", 1).unwrap();
    redis.run(&["SREM", &authorizations("mail1"), "node:portsadm"]);
    let access = |keys: &[&str]| {
        redis.run(&[&["ACL", "SETUSER", "default", "resetkeys"], keys].concat());
    };
    for keys in [
        &["~cluster/module_node", "~cluster/*_ports_demand"][..],
        &["~cluster/module_node", "~cluster/auth*"],
    ] {
        access(keys);
        for _ in 0..3 {
            // as it was known last
            assert!(allocate_for(&daemon, "mail1", 1).is_ok());
            assert_eq!(allocate_for(&daemon, "web1", 1), Err(unavailable()));
        }
        assert_eq!(modules(&daemon), [("mail1".into(), true, 4, 4, true)]);
    }
    assert_eq!(said(&daemon, "cluster/authorizations/module/mail1: "), 1);
    assert_eq!(said(&daemon, "cluster/authorizations/module/web1: "), 1);
    access(&["~cluster/*"]);
    assert_eq!(allocate_for(&daemon, "mail1", 1).unwrap_err().condition, "MissingRole");
    assert!(allocate_for(&daemon, "web1", 1).is_ok());
    assert!(modules(&daemon).iter().all(|module| !module.4));
}

#[test]
fn replies_are_bounded() {
    let redis = Redis::start();
    for id in ["mail1", "web1", "dns1"] {
        redis.module(id, "1", &["node:portsadm"], "4", "4");
    }
    let daemon = Daemon::with_config(&redis.config());
    for id in ["mail1", "web1"] {
        allocate_for(&daemon, id, 1).unwrap();
    }
    // a set without end grants nothing, and disturbs nobody
    let members: Vec<_> = (0..2000).map(|n| format!("node:role{n}")).collect();
    let key = authorizations("mail1");
    let words = ["SADD", &key].into_iter().chain(members.iter().map(String::as_str));
    redis.run(&words.collect::<Vec<_>>());
    assert_eq!(allocate_for(&daemon, "mail1", 1).unwrap_err().condition, "MissingRole");
    assert!(modules(&daemon).iter().all(|module| !module.4));
    // nor does a value without end
    redis.run(&["HSET", "cluster/tcp_ports_demand", "dns1", &"9".repeat(8_000_000)]);
    assert_eq!(allocate_for(&daemon, "dns1", 1), Err(unavailable()));
    assert!(allocate_for(&daemon, "web1", 1).is_ok());
    give(&daemon, "web1", 1);
    redis.run(&["HSET", "cluster/tcp_ports_demand", "dns1", "4"]);
    super::wait_for("Redis", || allocate_for(&daemon, "dns1", 1).ok());
    let listed = daemon.admin().call(ADMIN, "ListModules", json!({})).unwrap();
    assert_eq!(listed["modules"].as_array().unwrap().len(), 3);
}
