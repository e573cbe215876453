//! What the people who asked for this wrote down, sentence by sentence, on real parts.

mod actions;
mod clones;
mod installation;
#[path = "../support/mod.rs"]
mod support;

use rusqlite::Connection;
use serde_json::Value;
use support::ns8::{Node, Reply};

/// Who asks, where nobody is named: the node itself.
const NODE: Option<&str> = Some("");

/// What a task of the node itself prints.
#[track_caller]
fn output(reply: &Reply) -> Value {
    assert_eq!((reply.status.as_str(), reply.exit_code), ("completed", 0), "{reply:?}");
    serde_json::from_str(&reply.output).unwrap()
}

/// A range as the dump query prints it: start, end, module, protocol.
type Row = (u16, u16, String, String);

/// What the query prints that NS8's developers dump their file with, in its order.
fn dump(node: &Node) -> Vec<Row> {
    let query = "SELECT *, 'tcp' FROM TCP_PORTS UNION SELECT *, 'udp' FROM UDP_PORTS;";
    let database = Connection::open(node.daemon.database()).unwrap();
    let mut dumped = database.prepare(query).unwrap();
    let row = |row: &rusqlite::Row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    dumped.query_map([], row).unwrap().map(Result::unwrap).collect()
}

/// What is held, as owner, protocol, start and end; no two overlap.
fn held(node: &Node) -> Vec<(String, String, u16, u16)> {
    let rows = node.daemon.rows();
    for pair in rows.windows(2) {
        assert!(pair[0].1 != pair[1].1 || pair[0].3 < pair[1].2, "{pair:?}");
    }
    rows
}

/// Of that, what one owner holds.
fn of<'a>(rows: &'a [(String, String, u16, u16)], owner: &str) -> Vec<(&'a str, u16, u16)> {
    let own = rows.iter().filter(|row| row.0 == owner);
    own.map(|(_, protocol, start, end)| (protocol.as_str(), *start, *end)).collect()
}
