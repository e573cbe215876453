//! Who may do what, shown with real users on real sockets, on both wires.

mod support;

use serde_json::{Value, json};
use support::{ADMIN, Daemon, M1, M2, M5, PORTS, Refusal, both_wires, is_root};

const NOBODY: u32 = 65534;

/// Who calls, and by which kind of socket.
struct Caller {
    name: &'static str,
    uid: Option<u32>,
    admin: bool,
}

/// The columns of the table. m1 has the role, m2 has not; m5 is a user and no module.
const CALLERS: [Caller; 6] = [
    Caller { name: "nobody", uid: Some(NOBODY), admin: false },
    Caller { name: "stranger", uid: Some(M5), admin: false },
    Caller { name: "root by the module socket", uid: None, admin: false },
    Caller { name: "module without portsadm", uid: Some(M2), admin: false },
    Caller { name: "module with portsadm", uid: Some(M1), admin: false },
    Caller { name: "administrator", uid: None, admin: true },
];

/// What is expected in a cell.
#[derive(Debug, Clone)]
enum Cell {
    Granted,
    Denied(Option<&'static str>),
    MissingRole,
    NotThere,
    Invalid(&'static str),
}

use Cell::{Denied, Granted, Invalid, MissingRole, NotThere};

fn check(cell: &Cell, result: &Result<Value, Refusal>, admin: bool) -> bool {
    let refused = |condition: &str, fields: Value| *result == Err(Refusal::new(condition, fields));
    match cell {
        Cell::Granted => result.is_ok(),
        Cell::Denied(owner) => refused("PermissionDenied", json!({ "owner": owner })),
        Cell::MissingRole => {
            refused("MissingRole", json!({ "moduleId": "m2", "role": "portsadm" }))
        }
        Cell::Invalid(name) => refused("InvalidParameter", json!({ "parameter": name })),
        Cell::NotThere => {
            // each wire says in its own words that a method is not there
            !admin
                && (refused("InterfaceNotFound", json!({ "interface": ADMIN }))
                    || refused("MethodNotFound", json!({})))
        }
    }
}

fn daemon() -> Daemon {
    let daemon = Daemon::start();
    daemon.set_module("m1", 8, 8, true);
    daemon.set_module("m2", 8, 8, false);
    daemon
}

/// The rows of the table: a call, and what is expected for each column of [`CALLERS`].
#[allow(clippy::too_many_lines, reason = "a table is as long as it is")]
fn table() -> Vec<(&'static str, &'static str, Value, Vec<Cell>)> {
    let allocate = |owner: Option<&str>, behalf: Option<&str>| json!({ "ports": 2, "protocol": "tcp", "owner": owner, "onBehalfOf": behalf });
    let deallocate = |owner: Option<&str>| json!({ "protocol": "udp", "owner": owner });
    // the columns: nobody, stranger, root, m2, m1, administrator
    let nobody = |owner| [Denied(owner), Denied(owner), Denied(owner)];
    let row = |first: [Cell; 3], rest: [Cell; 3]| [first, rest].concat();
    let admin_only = || row([NotThere, NotThere, NotThere], [NotThere, NotThere, Granted]);
    let all = || row([Granted, Granted, Granted], [Granted, Granted, Granted]);
    vec![
        (PORTS, "WhoAmI", json!({}), all()),
        (PORTS, "GetStatus", json!({}), row(nobody(None), [Granted, Granted, Granted])),
        (PORTS, "List", json!({}), row(nobody(None), [Granted, Granted, Granted])),
        (
            PORTS,
            "List",
            json!({ "owner": "m1" }),
            row(nobody(Some("m1")), [Denied(Some("m1")), Granted, Granted]),
        ),
        (
            PORTS,
            "Allocate",
            allocate(None, None),
            row(nobody(None), [MissingRole, Granted, Invalid("owner")]),
        ),
        (
            PORTS,
            "Allocate",
            allocate(Some("m1"), None),
            row(nobody(Some("m1")), [Denied(Some("m1")), Granted, Granted]),
        ),
        (
            PORTS,
            "Allocate",
            allocate(Some("m1_rsync"), None),
            row(
                nobody(Some("m1_rsync")),
                [Denied(Some("m1_rsync")), Denied(Some("m1_rsync")), Granted],
            ),
        ),
        (
            PORTS,
            "Allocate",
            allocate(Some("host/x"), None),
            row(nobody(Some("host/x")), [Denied(Some("host/x")), Denied(Some("host/x")), Granted]),
        ),
        (
            PORTS,
            "Allocate",
            allocate(Some("root"), None),
            row(nobody(Some("root")), [Denied(Some("root")), Denied(Some("root")), Granted]),
        ),
        (
            PORTS,
            "Allocate",
            allocate(None, Some("m1")),
            row(nobody(Some("m1")), [Denied(Some("m1")), Denied(Some("m1")), Granted]),
        ),
        (
            PORTS,
            "Allocate",
            allocate(None, Some("m2")),
            row(nobody(Some("m2")), [Denied(Some("m2")), Denied(Some("m2")), MissingRole]),
        ),
        (
            PORTS,
            "Allocate",
            allocate(Some("m1"), Some("m2")),
            row(nobody(Some("m2")), [Denied(Some("m2")), Denied(Some("m2")), Denied(Some("m1"))]),
        ),
        (
            PORTS,
            "Ensure",
            json!({ "name": "db", "ports": 1, "protocols": ["tcp"] }),
            row(nobody(None), [MissingRole, Granted, Invalid("owner")]),
        ),
        (
            PORTS,
            "Deallocate",
            deallocate(None),
            row(nobody(None), [MissingRole, Granted, Invalid("owner")]),
        ),
        (
            PORTS,
            "Deallocate",
            deallocate(Some("m1")),
            row(nobody(Some("m1")), [Denied(Some("m1")), Granted, Granted]),
        ),
        (ADMIN, "SetModule", support::module("m9", 1, 1, true), admin_only()),
        (ADMIN, "ListModules", json!({}), admin_only()),
        (ADMIN, "RemoveModule", json!({ "moduleId": "m9" }), admin_only()),
        (ADMIN, "Transfer", json!({ "fromOwner": "none1", "toOwner": "none2" }), admin_only()),
        (ADMIN, "Reclaim", json!({ "dryRun": true }), admin_only()),
        (ADMIN, "Import", json!({ "allocations": [], "dryRun": false }), admin_only()),
        (ADMIN, "History", json!({ "limit": 1 }), admin_only()),
    ]
}

#[test]
fn root_every_cell_of_the_table_on_both_wires() {
    if !is_root() {
        return;
    }
    let daemon = daemon();
    for (interface, method, parameters, cells) in table() {
        for (caller, cell) in CALLERS.iter().zip(cells) {
            let clients = both_wires(&daemon, caller.admin, caller.uid);
            let results: Vec<_> = clients
                .into_iter()
                .map(|mut client| client.call(interface, method, parameters.clone()))
                .collect();
            let what = format!("{}: {method} {parameters}", caller.name);
            for result in &results {
                assert!(check(&cell, result, caller.admin), "{what}: {cell:?}, got {result:?}");
            }
            // the second call of Ensure finds what the first has made
            if !matches!(cell, NotThere) && method != "Ensure" {
                assert_eq!(results[0], results[1], "{what}");
            }
        }
    }
}

#[test]
fn root_a_module_lists_its_own_ranges_only() {
    if !is_root() {
        return;
    }
    let daemon = daemon();
    for owner in ["m1", "m2", "m1_rsync", "host/x"] {
        let parameters = json!({ "ports": 1, "protocol": "tcp", "owner": owner });
        daemon.admin().call(PORTS, "Allocate", parameters).unwrap();
    }
    for (uid, owner) in [(M1, "m1"), (M2, "m2")] {
        for mut client in both_wires(&daemon, false, Some(uid)) {
            let reply = client.call(PORTS, "List", json!({})).unwrap();
            let allocations = reply["allocations"].as_array().unwrap();
            assert_eq!(allocations.len(), 1);
            assert_eq!(allocations[0]["owner"], owner);
        }
    }
}

#[test]
fn root_a_module_stays_within_its_demand_and_the_node_need_not() {
    if !is_root() {
        return;
    }
    let daemon = daemon();
    for mut module in both_wires(&daemon, false, Some(M1)) {
        let mut allocate = |ports: u16, keep_existing: bool| {
            let parameters =
                json!({ "ports": ports, "protocol": "tcp", "keepExisting": keep_existing });
            module.call(PORTS, "Allocate", parameters)
        };
        let exceeded = |requested: u16, allocated: u16| {
            let fields = json!({ "requested": requested, "allocated": allocated, "demand": 8 });
            Err(Refusal::new("DemandExceeded", fields))
        };
        allocate(6, false).unwrap();
        assert_eq!(allocate(9, false), exceeded(9, 6));
        assert_eq!(allocate(3, true), exceeded(3, 6));
        allocate(2, true).unwrap();
        assert_eq!(allocate(1, true), exceeded(1, 8));
        allocate(8, false).unwrap();
    }
    let mut admin = daemon.admin();
    let beyond = json!({ "ports": 100, "protocol": "tcp", "owner": "m1" });
    admin.call(PORTS, "Allocate", beyond).unwrap();
    let behalf = json!({ "ports": 9, "protocol": "udp", "onBehalfOf": "m1" });
    let fields = json!({ "requested": 9, "allocated": 0, "demand": 8 });
    assert_eq!(admin.call(PORTS, "Allocate", behalf), Err(Refusal::new("DemandExceeded", fields)));
    // a helper has no demand of its own, and an owner without an entry has none either
    for owner in ["m1_rsync", "stranger7"] {
        let parameters = json!({ "ports": 1, "protocol": "tcp", "owner": owner });
        admin.call(PORTS, "Allocate", parameters).unwrap();
    }
}

#[test]
fn root_a_revoked_role_and_a_removed_module_count_on_open_connections() {
    if !is_root() {
        return;
    }
    let daemon = daemon();
    let allocate = json!({ "ports": 1, "protocol": "tcp" });
    let mut clients = both_wires(&daemon, false, Some(M1));
    for client in &mut clients {
        client.call(PORTS, "Allocate", allocate.clone()).unwrap();
    }
    daemon.set_module("m1", 8, 8, false);
    for client in &mut clients {
        let refusal = client.call(PORTS, "Allocate", allocate.clone()).unwrap_err();
        assert_eq!(refusal.condition, "MissingRole");
        client.call(PORTS, "List", json!({})).unwrap();
    }
    daemon.set_module("m1", 8, 8, true);
    for client in &mut clients {
        client.call(PORTS, "Allocate", allocate.clone()).unwrap();
    }
    let freed = daemon.admin().call(ADMIN, "RemoveModule", json!({ "moduleId": "m1" })).unwrap();
    assert_eq!(support::ranges(&freed["freed"]), [(20000, 20000)]);
    for client in &mut clients {
        let refusal = client.call(PORTS, "Allocate", allocate.clone()).unwrap_err();
        assert_eq!(refusal, Refusal::new("PermissionDenied", json!({ "owner": null })));
        assert_eq!(client.call(PORTS, "WhoAmI", json!({})).unwrap()["caller"], "anonymous");
    }
}

#[test]
fn role_labels_count_only_as_exact_words() {
    let daemon = Daemon::start();
    let mut admin = daemon.admin();
    for (label, granted) in [
        ("node:portsadm", true),
        ("node:fwadm,portsadm", true),
        ("node:fwadm node:portsadm", true),
        (" node:portsadm ", true),
        ("node:portsadmin", false),
        ("node:PORTSADM", false),
        ("traefik@node:portsadm", false),
        ("cluster:portsadm", false),
    ] {
        let labels = json!({ "org.nethserver.authorizations": label });
        admin.call(ADMIN, "SetModule", json!({ "moduleId": "m1", "labels": labels })).unwrap();
        let modules = admin.call(ADMIN, "ListModules", json!({})).unwrap();
        assert_eq!(modules["modules"][0]["portsadm"], granted, "{label:?}");
    }
}

#[test]
fn removing_a_module_frees_what_it_and_its_helpers_hold_and_nothing_else() {
    let daemon = Daemon::start();
    for id in ["mail1", "mail1_two", "mail10"] {
        daemon.set_module(id, 9, 9, true);
    }
    let mut admin = daemon.admin();
    let owners = ["mail1", "mail1_rsync", "mail1_two", "mail1_two_rsync", "mail10", "host/mail1"];
    for owner in owners {
        for protocol in ["tcp", "udp"] {
            let parameters = json!({ "ports": 2, "protocol": protocol, "owner": owner });
            admin.call(PORTS, "Allocate", parameters).unwrap();
        }
    }
    // a claim goes with its module, too
    let database = rusqlite::Connection::open(daemon.database()).unwrap();
    database
        .execute_batch(
            r#"INSERT INTO allocations (owner, protocol, start, "end", claimed, allocated_at)
               VALUES ('mail1', 'tcp', 3092, 3092, 1, 0)"#,
        )
        .unwrap();
    let reply = admin.call(ADMIN, "RemoveModule", json!({ "moduleId": "mail1" })).unwrap();
    let freed: Vec<_> = reply["freed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| format!("{} {}", one["owner"].as_str().unwrap(), one["protocol"]))
        .collect();
    assert_eq!(freed.len(), 5, "{freed:?}");
    assert!(freed.iter().all(|one| one.starts_with("mail1 ") || one.starts_with("mail1_rsync ")));
    let mut left: Vec<_> = daemon.rows().into_iter().map(|row| row.0).collect();
    left.sort();
    left.dedup();
    assert_eq!(left, ["host/mail1", "mail10", "mail1_two", "mail1_two_rsync"]);
    // what a module that is not registered holds goes by its name
    let parameters = json!({ "ports": 1, "protocol": "tcp", "owner": "mail1_x" });
    admin.call(PORTS, "Allocate", parameters).unwrap();
    let reply = admin.call(ADMIN, "RemoveModule", json!({ "moduleId": "mail1" })).unwrap();
    assert_eq!(reply["freed"][0]["owner"], "mail1_x");
    let reply = admin.call(ADMIN, "RemoveModule", json!({ "moduleId": "never" })).unwrap();
    assert_eq!(reply, json!({ "freed": [] }));
}
