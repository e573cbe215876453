//! Calls that are granted, and calls that have to be refused, with the reason.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::fixture::HELD;
use super::support::{ADMIN, PORTS, Refusal, jsonrpc, module};

/// A call with its parameters as text, so that they may be what no JSON library writes.
#[derive(Debug, Clone)]
pub struct Call {
    pub interface: &'static str,
    pub method: &'static str,
    pub parameters: Vec<(String, String)>,
}

impl Call {
    #[expect(clippy::needless_pass_by_value, reason = "callers make the value in place")]
    pub fn new(interface: &'static str, method: &'static str, parameters: Value) -> Self {
        let fields = parameters.as_object().unwrap().iter();
        let parameters = fields.map(|(name, value)| (name.clone(), value.to_string())).collect();
        Self { interface, method, parameters }
    }

    fn members(&self, spell: fn(&str) -> String) -> String {
        let member = |(name, text): &(String, String)| format!(r#""{}":{text}"#, spell(name));
        format!("{{{}}}", self.parameters.iter().map(member).collect::<Vec<_>>().join(","))
    }

    pub fn varlink(&self) -> String {
        let Self { interface, method, .. } = self;
        let parameters = self.members(str::to_owned);
        format!(r#"{{"method":"{interface}.{method}","parameters":{parameters}}}"#)
    }

    /// With `head` before the method: the members `jsonrpc` and `id`.
    pub fn jsonrpc(&self, head: &str) -> String {
        let (method, params) =
            (jsonrpc::snake_case(self.method), self.members(jsonrpc::snake_case));
        format!(r#"{{{head},"method":"{method}","params":{params}}}"#)
    }
}

/// A call, and why it is refused.
pub type Refused = (Call, Refusal);

fn ports(method: &'static str, parameters: Value, condition: &str, fields: Value) -> Refused {
    (Call::new(PORTS, method, parameters), Refusal::new(condition, fields))
}

fn admin(method: &'static str, parameters: Value, condition: &str, fields: Value) -> Refused {
    (Call::new(ADMIN, method, parameters), Refusal::new(condition, fields))
}

/// One call of each method that changes anything. Each of them is granted.
pub fn granted() -> Vec<Call> {
    let both = ["tcp", "udp"];
    let named = |owner: &str, name: &str| json!({ "owner": owner, "name": name, "ports": 2, "protocols": both, "mayMove": true });
    vec![
        Call::new(PORTS, "Allocate", json!({ "ports": 4, "protocol": "tcp", "owner": "new" })),
        // it returns to where it was
        Call::new(PORTS, "Allocate", json!({ "ports": 8, "protocol": "tcp", "owner": "m1_rsync" })),
        Call::new(
            PORTS,
            "Allocate",
            json!({ "ports": 5, "protocol": "tcp", "keepExisting": true, "onBehalfOf": "m1" }),
        ),
        Call::new(PORTS, "Ensure", named("m1", "db")),
        Call::new(PORTS, "Ensure", named("new", "rtp")),
        Call::new(PORTS, "Deallocate", json!({ "protocol": "tcp", "owner": "m1" })),
        Call::new(
            PORTS,
            "Deallocate",
            json!({ "protocol": "tcp", "start": 30_023, "end": 30_024, "onBehalfOf": "m1" }),
        ),
        Call::new(ADMIN, "SetModule", module("m2", 8, 8, true)),
        Call::new(ADMIN, "RemoveModule", json!({ "moduleId": "m1" })),
        Call::new(
            ADMIN,
            "Claim",
            json!({ "start": 30_000, "end": 30_003, "protocols": both, "owner": "new", "name": "a" }),
        ),
        Call::new(ADMIN, "Transfer", json!({ "fromOwner": "m1", "toOwner": "m2" })),
        Call::new(ADMIN, "Reclaim", json!({ "dryRun": false, "olderThan": 0 })),
    ]
}

/// Any call that has to be refused.
pub fn refused() -> impl Strategy<Value = Refused> {
    prop_oneof![
        2 => demand_exceeded(),
        2 => pool_exhausted(),
        2 => cannot_grow(),
        2 => occupied(),
        2 => select(not_held_or_taken()),
        3 => select(not_allowed()),
        2 => select(contradictory()),
        3 => malformed(),
        1 => select(bad_numbers()),
        1 => select(bad_labels()),
        1 => select(unknown_methods()),
    ]
}

fn demand_exceeded() -> impl Strategy<Value = Refused> {
    let refuse = |call: (&'static str, Value), ports: u16, allocated: u16, demand: u16| {
        let fields = json!({ "requested": ports, "allocated": allocated, "demand": demand });
        self::ports(call.0, call.1, "DemandExceeded", fields)
    };
    let allocate = |ports: u16, protocol: &str, keeps: bool, module: &str| {
        let parameters = json!({ "ports": ports, "protocol": protocol, "keepExisting": keeps, "onBehalfOf": module });
        ("Allocate", parameters)
    };
    let ensure = |ports: u16, protocols: &[&str]| {
        let parameters =
            json!({ "ports": ports, "protocols": protocols, "name": "rtp", "onBehalfOf": "m1" });
        ("Ensure", parameters)
    };
    prop_oneof![
        (6..u16::MAX).prop_map(move |n| refuse(allocate(n, "tcp", true, "m1"), n, 7, 12)),
        // four of them would go
        (10..u16::MAX).prop_map(move |n| refuse(allocate(n, "tcp", false, "m1"), n, 7, 12)),
        (1..u16::MAX).prop_map(move |n| refuse(allocate(n, "tcp", false, "m3"), n, 2, 0)),
        (3..u16::MAX).prop_map(move |n| refuse(ensure(n, &["udp"]), n, 4, 6)),
        // in tcp it could have them
        (3..6_u16).prop_map(move |n| refuse(ensure(n, &["tcp", "udp"]), n, 4, 6)),
    ]
}

fn pool_exhausted() -> impl Strategy<Value = Refused> {
    let refuse = |method, parameters, protocol: &str, ports: u16, largest_free: u16| {
        let fields =
            json!({ "protocol": protocol, "requested": ports, "largestFree": largest_free });
        self::ports(method, parameters, "PoolExhausted", fields)
    };
    let allocate = move |ports: u16, protocol: &str, largest_free| {
        let parameters = json!({ "ports": ports, "protocol": protocol, "owner": "new" });
        refuse("Allocate", parameters, protocol, ports, largest_free)
    };
    let ensure = move |ports: u16, protocols: [&str; 2], owner: &str, name: &str| {
        let parameters = json!({ "ports": ports, "protocols": protocols, "name": name, "owner": owner, "mayMove": true });
        refuse("Ensure", parameters, protocols[0], ports, 10)
    };
    prop_oneof![
        (11..u16::MAX).prop_map(move |n| allocate(n, "tcp", 10)),
        (21..u16::MAX).prop_map(move |n| allocate(n, "udp", 20)),
        (11..u16::MAX).prop_map(move |n| ensure(n, ["udp", "tcp"], "new", "rtp")),
        // a move that would free what there is
        (11..u16::MAX).prop_map(move |n| ensure(n, ["tcp", "udp"], "m1", "db")),
    ]
}

fn cannot_grow() -> impl Strategy<Value = Refused> {
    let refuse = |parameters, start: u16, end: u16, ports: u16| {
        let fields = json!({ "start": start, "end": end, "requested": ports });
        self::ports("Ensure", parameters, "CannotGrow", fields)
    };
    let db = move |ports: u16, owner: Option<&str>, behalf: Option<&str>| {
        let parameters = json!({ "ports": ports, "protocols": ["tcp", "udp"], "name": "db", "owner": owner, "onBehalfOf": behalf });
        refuse(parameters, 30_026, 30_028, ports)
    };
    // its number is another's in tcp
    let sip = json!({ "ports": 1, "protocols": ["udp", "tcp"], "name": "sip", "owner": "m1" });
    prop_oneof![
        (4..u16::MAX).prop_map(move |n| db(n, Some("m1"), None)),
        (4..6_u16).prop_map(move |n| db(n, None, Some("m1"))),
        Just(refuse(sip, 30_029, 30_029, 1)),
    ]
}

/// Claims of some of the ports of a range that somebody has.
fn occupied() -> impl Strategy<Value = Refused> {
    (select(HELD.to_vec()), any::<u16>(), any::<u16>()).prop_map(|(held, low, high)| {
        let (owner, protocol, _, start, end) = held;
        let first = start + low % (end - start + 1);
        let last = first + high % (end - first + 1);
        let protocols = if protocol == "tcp" { ["tcp", "udp"] } else { ["udp", "tcp"] };
        let parameters =
            json!({ "start": first, "end": last, "protocols": protocols, "owner": "new" });
        let fields = json!({ "owner": owner, "start": start, "end": end });
        admin("Claim", parameters, "Occupied", fields)
    })
}

fn not_held_or_taken() -> Vec<Refused> {
    let free = |parameters: Value, owner: &str| {
        ports("Deallocate", parameters, "NotAllocated", json!({ "owner": owner }))
    };
    let taken = |owner: &str, name: &str| json!({ "owner": owner, "name": name });
    let transfer = |from: &str, to: &str| json!({ "fromOwner": from, "toOwner": to });
    vec![
        free(json!({ "protocol": "tcp", "name": "none", "owner": "m1" }), "m1"),
        free(json!({ "protocol": "udp", "name": "fixed", "owner": "m1" }), "m1"),
        free(json!({ "protocol": "tcp", "name": "db", "owner": "new" }), "new"),
        // the last port is another's
        free(json!({ "protocol": "tcp", "start": 30_026, "end": 30_029, "owner": "m1" }), "m1"),
        free(
            json!({ "protocol": "tcp", "start": 30_019, "end": 30_022, "onBehalfOf": "m1" }),
            "m1",
        ),
        admin(
            "Claim",
            json!({ "start": 7, "end": 7, "protocols": ["tcp"], "owner": "m1", "name": "db" }),
            "NameTaken",
            taken("m1", "db"),
        ),
        ports(
            "Ensure",
            json!({ "ports": 2, "protocols": ["udp", "tcp"], "owner": "m1", "name": "fixed" }),
            "NameTaken",
            taken("m1", "fixed"),
        ),
        admin("Transfer", transfer("m1", "m3"), "NameTaken", taken("m3", "db")),
        admin("Transfer", transfer("m3", "m1"), "NameTaken", taken("m1", "db")),
    ]
}

fn not_allowed() -> Vec<Refused> {
    let mut refused = Vec::new();
    for (method, parameters) in [
        ("Allocate", json!({ "ports": 1, "protocol": "udp" })),
        ("Ensure", json!({ "ports": 1, "protocols": ["udp"], "name": "rtp" })),
        ("Deallocate", json!({ "protocol": "tcp" })),
    ] {
        let by = |module: &str, owner: Option<&str>| {
            let mut parameters = parameters.clone();
            parameters["onBehalfOf"] = json!(module);
            parameters["owner"] = json!(owner);
            parameters
        };
        let role = json!({ "moduleId": "m2", "role": "portsadm" });
        let owner = json!({ "owner": "m2" });
        refused.extend([
            ports(method, by("m2", None), "MissingRole", role),
            ports(method, by("new", None), "UnknownModule", json!({ "moduleId": "new" })),
            ports(method, by("m1", Some("m2")), "PermissionDenied", owner),
            ports(method, parameters, "InvalidParameter", json!({ "parameter": "owner" })),
        ]);
    }
    // claims go by administrators only
    for part in [json!({ "name": "fixed" }), json!({ "start": 30_010, "end": 30_010 })] {
        let mut parameters = json!({ "protocol": "tcp", "onBehalfOf": "m1" });
        parameters.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        refused.push(ports("Deallocate", parameters, "PermissionDenied", json!({ "owner": "m1" })));
    }
    refused
}

fn invalid((call, parameter): (Call, &str)) -> Refused {
    (call, Refusal::new("InvalidParameter", json!({ "parameter": parameter })))
}

/// Calls whose parameters are good one by one and not together, or not here.
fn contradictory() -> Vec<Refused> {
    let free = |part: Value, parameter| {
        let mut parameters = json!({ "protocol": "tcp", "owner": "m1" });
        parameters.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        (Call::new(PORTS, "Deallocate", parameters), parameter)
    };
    let set = |id: &str, user: Option<&str>| {
        let parameters = json!({ "moduleId": id, "unixUser": user, "labels": {} });
        (Call::new(ADMIN, "SetModule", parameters), "unixUser")
    };
    let ensure = |protocols: Value| {
        let parameters =
            json!({ "ports": 1, "protocols": protocols, "name": "rtp", "owner": "m1" });
        (Call::new(PORTS, "Ensure", parameters), "protocols")
    };
    let claim = |start: u16, end: u16, parameter| {
        let parameters =
            json!({ "start": start, "end": end, "protocols": ["udp"], "owner": "new" });
        (Call::new(ADMIN, "Claim", parameters), parameter)
    };
    let transfer = json!({ "fromOwner": "m1", "toOwner": "m1" });
    let history = |limit: u32| (Call::new(ADMIN, "History", json!({ "limit": limit })), "limit");
    let calls = [
        free(json!({ "start": 30_022 }), "end"),
        free(json!({ "end": 30_022 }), "start"),
        free(json!({ "name": "db", "start": 30_026, "end": 30_028 }), "name"),
        free(json!({ "start": 30_023, "end": 30_022 }), "end"),
        // the midst of a named range
        free(json!({ "start": 30_027, "end": 30_027 }), "start"),
        set("new", Some("third")),
        set("third", None),
        set("m1", Some("m2")),
        ensure(json!([])),
        ensure(json!(["tcp", "tcp"])),
        ensure(json!(["tcp", "sctp"])),
        claim(8, 7, "end"),
        claim(0, 7, "start"),
        (Call::new(ADMIN, "Transfer", transfer), "toOwner"),
        history(0),
        history(10_001),
    ];
    calls.into_iter().map(invalid).collect()
}

/// Calls that would be granted, but for one parameter: unknown, missing, given twice, or of a type
/// that it never has.
fn malformed() -> impl Strategy<Value = Refused> {
    (select(granted()), any::<prop::sample::Index>(), 0..4).prop_map(|(mut call, index, fault)| {
        let is_optional =
            |name: &str| ["mayMove", "keepExisting", "name", "start", "olderThan"].contains(&name);
        let at = index.index(call.parameters.len());
        let (name, text) = call.parameters[at].clone();
        match fault {
            0 => call.parameters[at] = ("prots".to_owned(), text),
            1 if !is_optional(&name) || call.method == "Deallocate" => {
                call.parameters.remove(at);
            }
            2 => call.parameters.push((name.clone(), text)),
            _ => call.parameters[at] = (name.clone(), "[3.5]".to_owned()),
        }
        let is_gone = call.parameters.iter().all(|(other, _)| *other != name);
        let named = match (fault, name.as_str()) {
            (0, _) => "prots",
            // of the two ends of a range, the one that is missing is named; so is whose it is
            (1, "onBehalfOf") if is_gone => "owner",
            _ => &name,
        };
        invalid((call, named))
    })
}

/// Numbers that are no count of ports.
fn bad_numbers() -> Vec<Refused> {
    let texts = [
        "0",
        "-1",
        "-0",
        "4.0",
        "4e0",
        "65536",
        "4294967300",
        "18446744073709551620",
        "1e400",
        "\"4\"",
        "null",
        "true",
        "{}",
    ];
    let call = |text: &&str| {
        let mut call = Call::new(PORTS, "Allocate", json!({ "protocol": "tcp", "owner": "new" }));
        call.parameters.push(("ports".to_owned(), (*text).to_owned()));
        invalid((call, "ports"))
    };
    texts.iter().map(call).collect()
}

fn bad_labels() -> Vec<Refused> {
    let demand = "org.nethserver.tcp-ports-demand";
    let authorizations = "org.nethserver.authorizations";
    let labels = [
        json!({ demand: "-1" }),
        json!({ demand: "65536" }),
        json!({ demand: "" }),
        json!({ demand: 4 }),
        json!({ authorizations: "portsadm" }),
        json!({ authorizations: "node:fwadm," }),
        json!(["node:portsadm"]),
    ];
    let call = |labels: Value| {
        let parameters = json!({ "moduleId": "m1", "labels": labels });
        invalid((Call::new(ADMIN, "SetModule", parameters), "labels"))
    };
    labels.into_iter().map(call).collect()
}

/// Each wire says in its own words that a method is not there: the fields are not compared.
fn unknown_methods() -> Vec<Refused> {
    ["Allocates", "Free", "GetInfo", "SetModules"]
        .map(|method| {
            let parameters = json!({ "ports": 1, "protocol": "tcp", "owner": "new" });
            ports(method, parameters, "MethodNotFound", Value::Null)
        })
        .into()
}
