//! Reclaim frees nothing of a module that may be on this node.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::support::redis::Redis;
use super::support::{ADMIN, Daemon, Refusal, both_wires, wait_for};
use super::{allocate_for, give, modules, unavailable};

/// The owners whose ranges are freed, or would be.
fn reclaim(daemon: &Daemon, dry_run: bool) -> Result<Vec<String>, Refusal> {
    let reply = daemon.admin().call(ADMIN, "Reclaim", json!({ "dryRun": dry_run }))?;
    let owner = |one: &Value| one["owner"].as_str().unwrap().to_owned();
    Ok(reply["freed"].as_array().unwrap().iter().map(owner).collect())
}

fn owners(daemon: &Daemon) -> Vec<String> {
    let mut owners: Vec<_> = daemon.rows().into_iter().map(|row| row.0).collect();
    owners.sort();
    owners
}

const MODULES: [(&str, &str); 6] = [
    ("mail1", "1"),
    ("mail1_b", "1"),
    // has never called
    ("quiet1", "1"),
    ("far1", "2"),
    ("odd1", "one"),
    ("gone1", "1"),
];

/// A cluster with modules here, elsewhere, and somewhere; and a daemon where all of them hold ports.
fn cluster(redis: &Redis) -> Daemon {
    for (id, node) in MODULES {
        redis.module(id, node, &["node:portsadm"], "4", "4");
    }
    let daemon = Daemon::with_config(&redis.config());
    for id in ["mail1", "gone1"] {
        allocate_for(&daemon, id, 1).unwrap();
    }
    for owner in
        ["mail1_rsync", "mail1_b", "quiet1", "quiet1_x", "far1", "odd1", "host/x", "never1"]
    {
        give(&daemon, owner, 1);
    }
    redis.run(&["HDEL", "cluster/module_node", "gone1"]);
    daemon
}

#[test]
fn what_the_cluster_does_not_have_here_is_freed() {
    let redis = Redis::start();
    let daemon = cluster(&redis);
    let gone = ["far1", "gone1", "never1"];
    let sorted = |dry_run| {
        let mut freed = reclaim(&daemon, dry_run).unwrap();
        freed.sort();
        freed
    };
    let before = daemon.rows();
    assert_eq!(sorted(true), gone);
    assert_eq!((daemon.rows(), modules(&daemon).len()), (before, 2));
    assert_eq!(sorted(false), gone);
    let kept = ["host/x", "mail1", "mail1_b", "mail1_rsync", "odd1", "quiet1", "quiet1_x"];
    assert_eq!(owners(&daemon), kept);
    // nor has it an entry
    assert_eq!(modules(&daemon), [("mail1".into(), true, 4, 4, false)]);
    assert_eq!((sorted(true).len(), sorted(false).len()), (0, 0));
    assert!(daemon.log().contains("cluster/module_node odd1: "));
}

#[test]
fn nothing_is_freed_while_the_cluster_can_t_be_asked() {
    let mut redis = Redis::start();
    let daemon = cluster(&redis);
    let rows = daemon.rows();
    let refused = || {
        for mut client in both_wires(&daemon, true, None) {
            for dry_run in [true, false] {
                let refusal = client.call(ADMIN, "Reclaim", json!({ "dryRun": dry_run }));
                assert_eq!(
                    refusal.map_err(|refusal| refusal.condition),
                    Err(unavailable().condition)
                );
            }
        }
        assert_eq!((daemon.rows(), modules(&daemon).len()), (rows.clone(), 2));
    };
    let works = || wait_for("Redis", || reclaim(&daemon, true).ok()).len() == 3;

    redis.run(&["ACL", "SETUSER", "default", "resetkeys", "~cluster/auth*"]);
    refused();
    redis.run(&["ACL", "SETUSER", "default", "~cluster/*"]);
    assert!(works());

    redis.signal(Signal::SIGSTOP);
    refused();
    redis.signal(Signal::SIGCONT);
    assert!(works());

    redis.run(&["RENAME", "cluster/module_node", "cluster/elsewhere"]);
    refused();
    redis.run(&["SET", "cluster/module_node", "1"]);
    refused();
    redis.run(&["DEL", "cluster/module_node"]);
    // a cluster that has nothing here knows this node by another number
    redis.run(&["HSET", "cluster/module_node", "mail1", "2", "web1", "3"]);
    refused();
    redis.run(&["RENAME", "cluster/elsewhere", "cluster/module_node"]);
    assert!(works());

    redis.kill();
    refused();
    redis.restart();
    refused();
    // a replica that was emptied and filled again
    for (id, node) in &MODULES[..5] {
        redis.module(id, node, &[], "4", "4");
    }
    assert!(works());
    assert_eq!(reclaim(&daemon, false).unwrap().len(), 3);
}
