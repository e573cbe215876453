//! A daemon with modules and a well-filled pool, as often as it is wanted, and what can be known of
//! what it has stored.

use std::fs;

use serde_json::{Value, json};

use super::support::{ADMIN, Client, Daemon, PORTS, both_wires, directory, module};

const CONFIG: &str = r#"[pool]
start = 30000
end = 30039
exclude = ["30020-30021"]
quarantine = "1d"
skip_bound = false
"#;

/// What the daemon is told at first.
fn beginning() -> Vec<(&'static str, &'static str, Value)> {
    let third = json!({
        "moduleId": "m3", "unixUser": "third",
        "labels": { "org.nethserver.authorizations": "node:portsadm" },
    });
    let allocate = |owner: &str, protocol: &str, ports: u16| json!({ "owner": owner, "protocol": protocol, "ports": ports });
    let ensure = |owner: &str, name: &str, protocols: &[&str], ports: u16| json!({ "owner": owner, "name": name, "protocols": protocols, "ports": ports });
    let claim = |owner: &str, name: Option<&str>, start: u16, end: u16| json!({ "owner": owner, "name": name, "protocols": ["tcp"], "start": start, "end": end });
    vec![
        (ADMIN, "SetModule", module("m1", 12, 6, true)),
        (ADMIN, "SetModule", module("m2", 8, 8, false)),
        (ADMIN, "SetModule", third),
        (PORTS, "Allocate", allocate("m1", "tcp", 4)),
        (PORTS, "Ensure", ensure("m1", "db", &["tcp", "udp"], 3)),
        (PORTS, "Ensure", ensure("m3", "db", &["tcp"], 2)),
        (PORTS, "Ensure", ensure("m1", "sip", &["udp"], 1)),
        (ADMIN, "Claim", claim("m1", Some("fixed"), 30_010, 30_011)),
        (ADMIN, "Claim", claim("host/proxy", None, 443, 443)),
        (PORTS, "Allocate", allocate("m1_rsync", "tcp", 8)),
        (PORTS, "Allocate", allocate("m2", "tcp", 6)),
        (PORTS, "Allocate", allocate("host/proxy", "udp", 5)),
        (PORTS, "Deallocate", json!({ "owner": "m1_rsync", "protocol": "tcp" })),
    ]
}

/// What is held then. Free are 30000-30009, 30012-30019, where `m1_rsync` was, and 30037-30039 of
/// tcp; 30000-30019, 30022-30025 and 30035-30039 of udp.
pub const HELD: [(&str, &str, Option<&str>, u16, u16); 9] = [
    ("host/proxy", "tcp", None, 443, 443),
    ("m1", "tcp", Some("fixed"), 30_010, 30_011),
    ("m1", "tcp", None, 30_022, 30_025),
    ("m1", "tcp", Some("db"), 30_026, 30_028),
    ("m3", "tcp", Some("db"), 30_029, 30_030),
    ("m2", "tcp", None, 30_031, 30_036),
    ("m1", "udp", Some("db"), 30_026, 30_028),
    ("m1", "udp", Some("sip"), 30_029, 30_029),
    ("host/proxy", "udp", None, 30_030, 30_034),
];

/// The files of a daemon that has been told all this and was stopped.
pub struct Fixture {
    stopped: Daemon,
}

impl Fixture {
    pub fn new() -> Self {
        let mut daemon = Daemon::with_config(CONFIG);
        let mut admin = daemon.admin();
        for (interface, method, parameters) in beginning() {
            admin.call(interface, method, parameters.clone()).unwrap();
        }
        let listed = admin.call(PORTS, "List", json!({})).unwrap();
        let held: Vec<_> = listed["allocations"].as_array().unwrap().iter().map(held).collect();
        assert_eq!(
            held,
            HELD.map(|(owner, protocol, name, start, end)| {
                json!([owner, protocol, name, start, end])
            })
        );
        assert!(daemon.stop().success());
        Self { stopped: daemon }
    }

    /// Another daemon that has the same past.
    pub fn start(&self) -> Daemon {
        let directory = directory();
        let state = directory.path().join("state");
        fs::create_dir(&state).unwrap();
        let copy = |name: &str| fs::copy(self.stopped.path(name), directory.path().join(name));
        copy("portsd.toml").unwrap();
        // a daemon that ends by itself leaves no log beside the database
        copy("state/ports.sqlite").unwrap();
        Daemon::start_in(directory)
    }
}

fn held(one: &Value) -> Value {
    json!([one["owner"], one["protocol"], one["name"], one["start"], one["end"]])
}

/// All rows of all tables, and the version of the schema.
pub fn dump(daemon: &Daemon) -> Vec<String> {
    let database = rusqlite::Connection::open(daemon.database()).unwrap();
    let tables: Vec<String> =
        texts(&database, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name");
    let mut dump =
        vec![texts(&database, "SELECT user_version || '' FROM pragma_user_version").concat()];
    for table in tables {
        let mut statement = database.prepare(&format!("SELECT * FROM {table} ORDER BY 1")).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let values: Vec<_> = (0..columns).map(|n| row.get_ref_unwrap(n)).collect();
            dump.push(format!("{table} {values:?}"));
        }
    }
    dump
}

fn texts(database: &rusqlite::Connection, query: &str) -> Vec<String> {
    let mut statement = database.prepare(query).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

/// What the daemon replies to whoever looks.
pub fn replies(daemon: &Daemon) -> Vec<Value> {
    let looks = [
        (PORTS, "List", json!({})),
        (PORTS, "GetStatus", json!({})),
        (ADMIN, "ListModules", json!({})),
        (ADMIN, "History", json!({ "limit": 10_000 })),
    ];
    let mut wires = both_wires(daemon, true, None);
    let ask = |wire: &mut Box<dyn Client>| {
        looks.clone().map(|(interface, method, parameters)| {
            wire.call(interface, method, parameters).unwrap()
        })
    };
    wires.iter_mut().flat_map(ask).collect()
}

/// The same without moments, in which two daemons differ.
pub fn without_times(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(name, _)| name != "allocatedAt" && name != "at")
            .map(|(name, value)| (name, without_times(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_times).collect(),
        other => other,
    }
}
