//! `update-core.d/10upgrade_ports`: what NS8's own allocator has handed out is taken over, once.

use std::fs;
use std::process::Output;
use std::thread;

use rusqlite::Connection;
use serde_json::json;

use super::row;
use crate::support::PORTS;
use crate::support::ns8::Node;
use crate::support::redis::Redis;

fn legacy(node: &Node, rows: &str) {
    let tables = "CREATE TABLE IF NOT EXISTS TCP_PORTS (start INT, end INT, module CHAR(255));
                  CREATE TABLE IF NOT EXISTS UDP_PORTS (start INT, end INT, module CHAR(255));";
    let file = Connection::open(node.state().join("ports.sqlite")).unwrap();
    file.execute_batch(&format!("{tables} {rows}")).unwrap();
}

/// Runs the script as NS8's node does; `redis` is who asks where.
fn upgrade(node: &Node, redis: Option<(&Redis, Option<&str>)>) -> Output {
    let script = node.directory().join("update-core.d/10upgrade_ports");
    let mut command = node.command(script);
    // nobody listens there
    command.env("REDIS_ADDRESS", "127.0.0.1:1");
    if let Some((server, user)) = redis {
        command.env("REDIS_ADDRESS", format!("127.0.0.1:{}", server.port));
        if let Some(user) = user {
            command.env("REDIS_USER", user).env("REDIS_PASSWORD", "n1-secret");
        }
    }
    let output = command.output().unwrap();
    assert!(!said(&output).contains("secret"), "{output:?}");
    output
}

fn said(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr].concat()).unwrap()
}

/// It has ended so and said all these words.
#[track_caller]
fn ends(output: &Output, status: i32, words: &[&str]) {
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    for word in words {
        assert!(said(output).contains(word), "{word:?} is missing: {}", said(output));
    }
}

/// A node of a cluster where nothing was ever handed out by counters.
fn new_cluster() -> (Node, Redis) {
    let server = Redis::start();
    server.run_lines("HSET cluster/module_node mail1 1");
    (Node::start(), server)
}

fn record(node: &Node) -> Option<String> {
    fs::read_to_string(node.record()).ok()
}

#[test]
fn the_old_file_is_taken_over_once_and_stays_as_it_is() {
    let (node, server) = new_cluster();
    legacy(
        &node,
        "INSERT INTO TCP_PORTS VALUES (20000, 20003, 'mail1'), (20004, 20004, 'mail2_rsync');
         INSERT INTO UDP_PORTS VALUES (20000, 20001, 'mail1');",
    );
    let before = fs::read(node.state().join("ports.sqlite")).unwrap();
    let output = upgrade(&node, Some((&server, Some("node/1"))));
    ends(&output, 0, &["3 imported", "portsd: taken over: "]);
    let rows = [
        row("mail1", "tcp", 20000, 20003),
        row("mail2_rsync", "tcp", 20004, 20004),
        row("mail1", "udp", 20000, 20001),
    ];
    assert_eq!(node.daemon.rows(), rows);
    assert!(record(&node).unwrap().contains("3 imported"));
    // what has changed since is not undone by any number of updates
    let freed = json!({ "owner": "mail1", "protocol": "tcp" });
    node.daemon.admin().call(PORTS, "Deallocate", freed).unwrap();
    for _ in 0..2 {
        let output = upgrade(&node, None);
        ends(&output, 0, &["taken over before"]);
        assert!(!said(&output).contains("<4>"), "{output:?}");
        assert_eq!(node.daemon.rows(), rows[1..]);
    }
    assert_eq!(fs::read(node.state().join("ports.sqlite")).unwrap(), before);
    // whoever still writes there is told of, and not followed
    legacy(&node, "INSERT INTO TCP_PORTS VALUES (20005, 20005, 'web1');");
    ends(&upgrade(&node, None), 0, &["<4>portsd: ", "has changed since"]);
    assert_eq!(node.daemon.rows(), rows[1..]);
}

#[test]
fn what_cant_be_taken_over_is_named_and_holds_up_nothing() {
    let (node, server) = new_cluster();
    legacy(
        &node,
        "INSERT INTO TCP_PORTS VALUES (20000, 20003, 'mail1'), (20002, 20005, 'web1');
         INSERT INTO UDP_PORTS VALUES ('x', 20000, 'nethvoice1'), (20000, 20000, 'mail1');",
    );
    let problems =
        ["UDP_PORTS row 1: ", "tcp 20002-20005 of web1: overlaps tcp 20000-20003 of mail1"];
    let output = upgrade(&node, Some((&server, None)));
    ends(
        &output,
        0,
        &[&problems[..], &["<4>portsd: not all was taken over", "3 imported"]].concat(),
    );
    let rows = [
        row("mail1", "tcp", 20000, 20003),
        row("web1", "tcp", 20004, 20005),
        row("mail1", "udp", 20000, 20000),
    ];
    assert_eq!(node.daemon.rows(), rows);
    for problem in problems {
        assert!(record(&node).unwrap().contains(problem));
    }
    ends(&upgrade(&node, None), 0, &["taken over before"]);
}

#[test]
fn udp_ranges_that_ns8s_upgrade_misread_are_taken_from_the_modules() {
    let (node, server) = (Node::start(), Redis::start());
    // as that upgrade has left it: of UDP ranges two digits, and no counters
    legacy(
        &node,
        "INSERT INTO TCP_PORTS VALUES (20000, 20003, 'mail1');
         INSERT INTO UDP_PORTS VALUES (2, 0, 'nethvoice1'), (20010, 20010, 'mail1');",
    );
    server.run_lines(
        "HSET cluster/module_node mail1 1 nethvoice1 1
         HSET module/mail1/environment TCP_PORTS_RANGE 20000-20003 UDP_PORT 20010
         HSET module/nethvoice1/environment UDP_PORTS_RANGE 20011-20019",
    );
    // not done before it is done
    ends(&upgrade(&node, None), 1, &["nothing was imported: Redis", "can't be looked for"]);
    assert_eq!(record(&node), None);
    ends(&upgrade(&node, Some((&server, Some("node/1")))), 0, &["udp 2-0 of nethvoice1"]);
    let rows = [
        row("mail1", "tcp", 20000, 20003),
        row("mail1", "udp", 20010, 20010),
        row("nethvoice1", "udp", 20011, 20019),
    ];
    assert_eq!(node.daemon.rows(), rows);
    assert!(record(&node).unwrap().contains("1 imported, 2 were there already"));
}

#[test]
fn as_long_as_nothing_could_be_taken_over_it_is_tried_again() {
    let (mut node, server) = new_cluster();
    let redis = Some((&server, None));
    let failed = "<4>portsd: nothing was taken over";
    fs::write(node.state().join("ports.sqlite"), "no database").unwrap();
    ends(&upgrade(&node, None), 1, &[failed]);
    fs::remove_file(node.state().join("ports.sqlite")).unwrap();
    legacy(&node, "INSERT INTO TCP_PORTS VALUES (20000, 20003, 'mail1');");
    node.daemon.kill();
    ends(&upgrade(&node, None), 1, &["nobody listens", failed]);
    assert_eq!(record(&node), None);
    node.daemon.restart();
    assert_eq!(node.daemon.rows(), []);
    ends(&upgrade(&node, redis), 0, &["1 imported"]);
    // what can't be recorded is said
    fs::create_dir(node.state().join("portsd-import.txt.new")).unwrap();
    fs::remove_file(node.record()).unwrap();
    ends(&upgrade(&node, redis), 1, &["0 imported", "<4>portsd: taken over, but"]);
    fs::remove_dir(node.state().join("portsd-import.txt.new")).unwrap();
    ends(&upgrade(&node, redis), 0, &["0 imported, 1 were there already"]);
    // as if it had ended right behind the import
    fs::remove_file(node.record()).unwrap();
    ends(&upgrade(&node, redis), 0, &["0 imported, 1 were there already"]);
    assert_eq!(node.daemon.rows(), [row("mail1", "tcp", 20000, 20003)]);
}

#[test]
fn counters_that_are_left_beside_the_file_go_too() {
    let (node, server) = (Node::start(), Redis::start());
    legacy(&node, "INSERT INTO TCP_PORTS VALUES (20000, 20003, 'mail1');");
    server.run_lines(COUNTED);
    server.run_lines("SET node/1/udp_ports_sequence x");
    let output = upgrade(&node, Some((&server, Some("node/1"))));
    ends(&output, 0, &["From Redis:", "is \"x\", which is no counter", "portsd: taken over: "]);
    let rows = [row("mail1", "tcp", 20000, 20003), row("nethvoice1", "udp", 20000, 20009)];
    assert_eq!(node.daemon.rows(), rows);
    assert!(!COUNTERS.iter().any(|key| server.has(key)));
}

#[test]
fn an_attempt_that_ended_too_soon_is_in_the_record_of_the_next_one() {
    let (node, server) = (Node::start(), Redis::start());
    server.run_lines(COUNTED);
    server.run_lines("HSET module/nethvoice1/environment TCP_PORT 20002");
    let overlap = "tcp 20000-20003 of mail1: overlaps tcp 20002-20002 of nethvoice1";
    let agent = Some((&server, Some("node/1")));
    ends(&upgrade(&node, agent), 0, &[overlap, "<4>portsd: not all was taken over"]);
    // as if it had ended right before its last step, with the counters gone
    fs::rename(node.record(), node.state().join("portsd-import.txt.new")).unwrap();
    ends(&upgrade(&node, agent), 0, &[overlap, "<4>portsd: not all was taken over"]);
    let record = record(&node).unwrap();
    assert!(record.contains(overlap) && record.contains("is removed"), "{record}");
}

/// A node of the time before the file, besides another one.
const COUNTED: &str = "
    HSET cluster/module_node mail1 1 nethvoice1 1 mail2 2
    HSET module/mail1/environment TCP_PORT 20000 TCP_PORTS_RANGE 20000-20003
    HSET module/mail2/environment TCP_PORT 20004
    HSET module/nethvoice1/environment UDP_PORTS_RANGE 20000-20009
    SET node/1/tcp_ports_sequence 20004
    SET node/1/udp_ports_sequence 20010
    SET node/2/tcp_ports_sequence 20005";

const COUNTERS: [&str; 2] = ["node/1/tcp_ports_sequence", "node/1/udp_ports_sequence"];

#[test]
fn without_the_file_the_counters_lead_to_the_modules_and_go() {
    let (node, server) = (Node::start(), Redis::start());
    server.run_lines(COUNTED);
    ends(&upgrade(&node, None), 1, &["nothing was imported"]);
    assert_eq!(record(&node), None);
    ends(&upgrade(&node, Some((&server, Some("node/1")))), 0, &["2 imported", "From Redis:"]);
    let rows = [row("mail1", "tcp", 20000, 20003), row("nethvoice1", "udp", 20000, 20009)];
    assert_eq!(node.daemon.rows(), rows);
    assert!(!COUNTERS.iter().any(|key| server.has(key)));
    assert!(server.has("node/2/tcp_ports_sequence"));
    let freed = json!({ "owner": "mail1", "protocol": "tcp" });
    node.daemon.admin().call(PORTS, "Deallocate", freed).unwrap();
    ends(&upgrade(&node, Some((&server, Some("node/1")))), 0, &["taken over before"]);
    assert_eq!(node.daemon.rows(), rows[1..]);
}

#[test]
fn counters_that_may_not_be_removed_are_told_of() {
    let (node, server) = (Node::start(), Redis::start());
    server.run_lines(COUNTED);
    let expected = ["2 imported", "tcp_ports_sequence was not removed", "<4>portsd: the counters"];
    // as often as it is tried, and then they go
    for _ in 0..2 {
        ends(&upgrade(&node, Some((&server, None))), 1, &expected[1..]);
        assert_eq!(record(&node), None);
        assert!(COUNTERS.iter().all(|key| server.has(key)));
    }
    ends(&upgrade(&node, Some((&server, Some("node/1")))), 0, &["portsd: taken over: "]);
    assert!(record(&node).unwrap().contains("2 imported"));
    assert!(!COUNTERS.iter().any(|key| server.has(key)));
}

#[test]
fn many_takeovers_at_once_are_one() {
    let (node, server) = (Node::start(), Redis::start());
    server.run_lines(COUNTED);
    let agent = Some((&server, Some("node/1")));
    let said: Vec<_> = thread::scope(|scope| {
        let runs = [(); 6].map(|()| scope.spawn(|| upgrade(&node, agent)));
        runs.map(|run| run.join().unwrap()).iter().map(said).collect()
    });
    assert_eq!(said.iter().filter(|said| said.contains("2 imported")).count(), 1, "{said:#?}");
    assert_eq!(said.iter().filter(|said| said.contains("taken over before")).count(), 5);
    let record = record(&node).unwrap();
    assert!(record.contains("2 imported") && record.contains("is removed"), "{record}");
    // nor is what only looks like a record one
    fs::remove_file(node.record()).unwrap();
    fs::create_dir(node.record()).unwrap();
    ends(&upgrade(&node, agent), 1, &["portsd-import.txt"]);
}

#[test]
fn a_new_node_has_nothing_to_take_over() {
    let (node, server) = (Node::start(), Redis::start());
    // what the module was given first; it has been moved since
    server.run_lines(
        "HSET cluster/module_node mail1 1
         HSET module/mail1/environment TCP_PORT 20000 TCP_PORTS_RANGE 20000-20003",
    );
    for words in [&["Nothing to take over"][..], &["taken over before"]] {
        ends(&upgrade(&node, Some((&server, Some("node/1")))), 0, words);
        assert_eq!(node.daemon.rows(), []);
    }
    assert!(record(&node).unwrap().contains("Nothing to take over"));
}
