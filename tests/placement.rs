//! Where ranges go, as far as it depends on the past and on other processes.

mod support;

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use support::{ADMIN, Daemon, PORTS, Refusal, directory};

fn allocate(
    daemon: &Daemon,
    owner: &str,
    ports: u16,
    protocol: &str,
) -> Result<(u64, u64), Refusal> {
    let parameters = json!({ "ports": ports, "protocol": protocol, "owner": owner });
    daemon.admin().call(PORTS, "Allocate", parameters).map(|reply| range(&reply))
}

fn range(reply: &Value) -> (u64, u64) {
    support::ranges(&json!([reply["range"]]))[0]
}

fn free(daemon: &Daemon, owner: &str) {
    daemon.admin().call(PORTS, "Deallocate", json!({ "protocol": "tcp", "owner": owner })).unwrap();
}

fn pool(daemon: &Daemon, protocol: usize) -> Value {
    daemon.admin().call(PORTS, "GetStatus", json!({})).unwrap()["pools"][protocol].clone()
}

/// A pool of ten ports that nobody on this machine has bound.
fn unbound_pool() -> u16 {
    let is_free = |port: u16| {
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).is_ok()
            && UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port)).is_ok()
    };
    let offset = u16::try_from(std::process::id() % 200).unwrap() * 10;
    (0..800)
        .map(|n| 21_000 + (offset + n * 10) % 8000)
        .find(|first| (*first..first + 10).all(is_free))
        .unwrap()
}

#[test]
fn ports_that_a_process_has_bound_are_left_out() {
    let first = unbound_pool();
    let at = |offset: u16| u64::from(first + offset);
    let daemon = Daemon::with_config(&format!("[pool]\nstart = {first}\nend = {}\n", first + 9));
    let (v4, v6, loopback) = (Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST);
    let tcp_sockets =
        (TcpListener::bind((v4, first)).unwrap(), TcpListener::bind((v6, first + 3)).unwrap());
    let udp_socket = UdpSocket::bind((loopback, first + 1)).unwrap();
    assert_eq!((&pool(&daemon, 0)["bound"], &pool(&daemon, 1)["bound"]), (&json!(2), &json!(1)));
    assert_eq!(allocate(&daemon, "a", 2, "tcp"), Ok((at(1), at(2))));
    assert_eq!(allocate(&daemon, "b", 2, "udp"), Ok((at(2), at(3))));
    // a stranger stops growth; the owner's own process does not
    let own = TcpListener::bind((loopback, first + 1)).unwrap();
    assert_eq!(allocate(&daemon, "a", 2, "tcp"), Ok((at(1), at(2))));
    assert_eq!(allocate(&daemon, "a", 1, "tcp"), Ok((at(1), at(1))));
    assert_eq!(allocate(&daemon, "a", 3, "tcp"), Ok((at(4), at(6))));
    drop((tcp_sockets, udp_socket, own));
    assert_eq!(allocate(&daemon, "c", 1, "udp"), Ok((at(0), at(0))));
    assert_eq!(pool(&daemon, 0)["bound"], 0);
}

#[test]
fn what_was_freed_rests_also_after_a_restart_and_waits_for_its_owner() {
    let mut daemon = Daemon::start();
    assert_eq!(allocate(&daemon, "a", 2, "tcp"), Ok((20000, 20001)));
    assert_eq!(allocate(&daemon, "b", 2, "tcp"), Ok((20002, 20003)));
    free(&daemon, "a");
    for restart in [false, true] {
        if restart {
            daemon.kill();
            daemon.restart();
        }
        assert_eq!(pool(&daemon, 0)["quarantined"], 2);
        let stranger = format!("c{restart}");
        assert!(allocate(&daemon, &stranger, 2, "tcp").unwrap().0 > 20003);
    }
    assert_eq!(allocate(&daemon, "a", 2, "tcp"), Ok((20000, 20001)));
    assert_eq!(pool(&daemon, 0)["quarantined"], 0);
}

#[test]
fn quarantine_can_be_switched_off() {
    let daemon = Daemon::with_config("[pool]\nquarantine = 0\n");
    allocate(&daemon, "a", 2, "tcp").unwrap();
    allocate(&daemon, "b", 2, "tcp").unwrap();
    free(&daemon, "a");
    assert_eq!(allocate(&daemon, "c", 2, "tcp"), Ok((20000, 20001)));
}

#[test]
fn a_removed_modules_ports_return_to_it() {
    let daemon = Daemon::start();
    daemon.set_module("m1", 4, 0, true);
    assert_eq!(allocate(&daemon, "m1", 4, "tcp"), Ok((20000, 20003)));
    allocate(&daemon, "other", 1, "tcp").unwrap();
    daemon.admin().call(ADMIN, "RemoveModule", json!({ "moduleId": "m1" })).unwrap();
    assert_eq!(allocate(&daemon, "stranger", 4, "tcp"), Ok((20005, 20008)));
    daemon.set_module("m1", 4, 0, true);
    assert_eq!(allocate(&daemon, "m1", 4, "tcp"), Ok((20000, 20003)));
}

/// Makes the database one of the first schema, as it was before there was a history.
fn downgrade(daemon: &Daemon) {
    let database = rusqlite::Connection::open(daemon.database()).unwrap();
    database.execute_batch("DROP TABLE history; PRAGMA user_version = 1").unwrap();
}

#[test]
fn an_older_database_is_brought_up_whatever_interrupts_it() {
    for round in 0..15 {
        let mut daemon = Daemon::start_in(directory());
        allocate(&daemon, "a", 4, "tcp").unwrap();
        assert!(daemon.stop().success());
        downgrade(&daemon);
        // a start that is killed early or late in its work
        let mut child = support::command(daemon.directory.path()).spawn().unwrap();
        thread::sleep(Duration::from_millis(round));
        child.kill().unwrap();
        child.wait().unwrap();
        daemon.restart();
        assert_eq!(daemon.rows(), [("a".into(), "tcp".into(), 20000, 20003)]);
        free(&daemon, "a");
        let database = rusqlite::Connection::open(daemon.database()).unwrap();
        let events: Vec<String> = database
            .prepare("SELECT kind FROM history ORDER BY id")
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(events, ["deallocated"]);
        let version: u32 = database.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
        assert_eq!(version, 2);
    }
}

#[test]
fn old_events_are_forgotten_and_a_history_that_is_off_is_empty() {
    let count = |daemon: &Daemon| -> u32 {
        rusqlite::Connection::open(daemon.database())
            .unwrap()
            .query_row("SELECT count(*) FROM history", [], |row| row.get(0))
            .unwrap()
    };
    let mut daemon = Daemon::start();
    allocate(&daemon, "a", 4, "tcp").unwrap();
    allocate(&daemon, "a", 2, "tcp").unwrap();
    // got; lost and got again with another end
    assert_eq!(count(&daemon), 3);
    let database = rusqlite::Connection::open(daemon.database()).unwrap();
    database.execute_batch("UPDATE history SET at = 1000").unwrap();
    drop(database);
    daemon.kill();
    daemon.restart();
    free(&daemon, "a");
    assert_eq!(count(&daemon), 1);
    let daemon = Daemon::with_config("[history]\nkeep = 0\n");
    allocate(&daemon, "a", 4, "tcp").unwrap();
    free(&daemon, "a");
    assert_eq!(count(&daemon), 0);
}

#[test]
fn a_freed_claim_does_not_hide_where_its_owner_returns_to() {
    let mut daemon = Daemon::with_config("[pool]\nquarantine = 0\n");
    let mut admin = daemon.admin();
    allocate(&daemon, "x", 4, "tcp").unwrap();
    assert_eq!(allocate(&daemon, "a", 2, "tcp"), Ok((20004, 20005)));
    free(&daemon, "a");
    let claim = json!({ "start": 443, "end": 443, "protocols": ["tcp"], "owner": "a" });
    admin.call(ADMIN, "Claim", claim).unwrap();
    let part = json!({ "protocol": "tcp", "start": 443, "end": 443, "owner": "a" });
    admin.call(PORTS, "Deallocate", part).unwrap();
    free(&daemon, "x");
    assert!(daemon.stop().success());
    daemon.restart();
    assert_eq!(allocate(&daemon, "a", 2, "tcp"), Ok((20004, 20005)));
}

#[test]
fn the_history_is_bounded_in_size_however_young_its_events_are() {
    let mut daemon = Daemon::start();
    allocate(&daemon, "first", 1, "tcp").unwrap();
    assert!(daemon.stop().success());
    let database = rusqlite::Connection::open(daemon.database()).unwrap();
    let many = r#"
        WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 100500)
        INSERT INTO history (at, kind, owner, protocol, start, "end", claimed, uid)
        SELECT unixepoch(), 'allocated', 'many', 'udp', 1, 1, 1, 0 FROM numbers"#;
    database.execute(many, []).unwrap();
    daemon.restart();
    allocate(&daemon, "last", 1, "tcp").unwrap();
    let count = |owner: &str| -> u32 {
        let sql = "SELECT count(*) FROM history WHERE owner = ?1 OR ?1 = ''";
        database.query_row(sql, [owner], |row| row.get(0)).unwrap()
    };
    assert_eq!((count(""), count("first"), count("last")), (100_000, 0, 1));
}
