//! The interface descriptions against the types, and the error table on both wires.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use zlink_idl::{Comment, Field, Interface as Description, Type};

use super::*;
use crate::error::{Condition, StorageReason};
use crate::model::{
    Allocation, HistoryEvent, HistoryKind, ModuleId, Owner, PortRange, Protocol, RangeName,
    Timestamp, UserId, UserName,
};
use crate::reply::{
    Allocated, BackedUp, CallerInfo, CallerKind, Claimed, Deallocated, Ensured, Event, EventKind,
    Imported, Listed, ModuleEntry, ModuleRemoved, ModuleSet, Modules, Monitored, Past, PoolStatus,
    Problem, Reclaimed, Reply, Status, Transferred,
};
use crate::request::ImportedRange;

fn descriptions() -> [Description<'static>; 2] {
    [PORTS_IDL, ADMIN_IDL].map(|text| Description::try_from(text).unwrap())
}

fn described(interface: Interface) -> Description<'static> {
    let [ports, admin] = descriptions();
    match interface {
        Interface::Ports => ports,
        Interface::Admin => admin,
    }
}

fn owner() -> Owner {
    Owner::parse("m1").unwrap()
}

fn module_id() -> ModuleId {
    ModuleId::parse("m1").unwrap()
}

/// Every row of the error table: the error and how varlink shows it.
fn errors() -> Vec<(Error, &'static str, Value)> {
    let range = json!({"start": 20000, "end": 20003});
    let occupied = json!({"owner": "m1", "start": range["start"], "end": range["end"]});
    let name = RangeName::parse("db").unwrap();
    vec![
        (
            Error::PermissionDenied { owner: Some(owner()) },
            "org.nethserver.Ports.PermissionDenied",
            json!({"owner": "m1"}),
        ),
        (
            Error::PermissionDenied { owner: None },
            "org.nethserver.Ports.PermissionDenied",
            json!({"owner": null}),
        ),
        (
            Error::MissingRole { module_id: module_id(), role: "portsadm" },
            "org.nethserver.Ports.MissingRole",
            json!({"moduleId": "m1", "role": "portsadm"}),
        ),
        (
            Error::UnknownModule { module_id: module_id() },
            "org.nethserver.Ports.UnknownModule",
            json!({"moduleId": "m1"}),
        ),
        (
            Error::DemandExceeded { requested: 9, allocated: 4, demand: 8 },
            "org.nethserver.Ports.DemandExceeded",
            json!({"requested": 9, "allocated": 4, "demand": 8}),
        ),
        (
            Error::PoolExhausted { protocol: Protocol::Udp, requested: 9, largest_free: 4 },
            "org.nethserver.Ports.PoolExhausted",
            json!({"protocol": "udp", "requested": 9, "largestFree": 4}),
        ),
        (
            Error::CannotGrow { start: 20000, end: 20003, requested: 9 },
            "org.nethserver.Ports.CannotGrow",
            json!({"start": 20000, "end": 20003, "requested": 9}),
        ),
        (
            Error::NotAllocated { owner: owner() },
            "org.nethserver.Ports.NotAllocated",
            json!({"owner": "m1"}),
        ),
        (
            Error::Occupied { owner: owner(), start: 20000, end: 20003 },
            "org.nethserver.Ports.Occupied",
            occupied,
        ),
        (
            Error::NameTaken { owner: owner(), name },
            "org.nethserver.Ports.NameTaken",
            json!({"owner": "m1", "name": "db"}),
        ),
        (Error::RegistryUnavailable {}, "org.nethserver.Ports.RegistryUnavailable", json!({})),
        (
            Error::StorageFailure { reason: StorageReason::DiskFull },
            "org.nethserver.Ports.StorageFailure",
            json!({"reason": "disk_full"}),
        ),
        (Error::ShuttingDown {}, "org.nethserver.Ports.ShuttingDown", json!({})),
        (
            Error::invalid("keepExisting"),
            "org.varlink.service.InvalidParameter",
            json!({"parameter": "keepExisting"}),
        ),
    ]
}

/// The fields as JSON-RPC spells them.
fn snake_case(fields: &Value) -> Value {
    let spelt = [("moduleId", "module_id"), ("largestFree", "largest_free")];
    let fields = fields.as_object().unwrap().iter().map(|(name, value)| {
        let known = spelt.iter().find(|(camel, _)| camel == name);
        let value = if value == "keepExisting" { json!("keep_existing") } else { value.clone() };
        (known.map_or(name.as_str(), |(_, snake)| snake).to_owned(), value)
    });
    fields.collect()
}

#[test]
fn every_row_of_the_error_table_is_spelt_on_both_wires() {
    let mut seen = BTreeSet::new();
    for (error, varlink_name, fields) in errors() {
        let row = error.condition().row();
        seen.insert(row.name);
        let reply = varlink::error_reply(error.clone());
        assert_eq!(reply, json!({"error": varlink_name, "parameters": fields}));

        let object = serde_json::to_value(jsonrpc::error_object(error)).unwrap();
        let mut data = snake_case(&fields);
        data["error"] = json!(row.name);
        assert_eq!(object, json!({"code": row.json_rpc_code, "message": row.name, "data": data}));
    }
    let all: BTreeSet<_> = Condition::ALL.iter().map(|condition| condition.row().name).collect();
    assert_eq!(seen, all);
}

#[test]
fn the_described_errors_are_the_conditions() {
    let description = described(Interface::Ports);
    let described: BTreeMap<String, BTreeSet<String>> = description
        .errors()
        .map(|error| {
            (error.name().to_string(), error.fields().map(|f| f.name().to_string()).collect())
        })
        .collect();
    let ours: BTreeMap<String, BTreeSet<String>> = errors()
        .iter()
        // varlink's own interface describes this one
        .filter(|(error, ..)| error.condition() != Condition::InvalidParameter)
        .map(|(error, _, fields)| {
            let names = fields.as_object().unwrap().keys().cloned().collect();
            (error.condition().row().name.to_owned(), names)
        })
        .collect();
    assert_eq!(described, ours);
}

#[test]
fn the_described_methods_are_those_that_sockets_offer() {
    let names = |scope| -> BTreeSet<&str> { methods(scope).map(Method::name).collect() };
    let [ports, admin] = descriptions();
    let ports: BTreeSet<_> = ports.methods().map(|method| method.name().to_string()).collect();
    let admin: BTreeSet<_> = admin.methods().map(|method| method.name().to_string()).collect();
    assert_eq!(names(Scope::Module), ports.iter().map(String::as_str).collect());
    assert_eq!(names(Scope::Admin), ports.union(&admin).map(String::as_str).collect());
}

/// A value of the described type.
fn sample(description: &Description<'_>, name: &str, kind: &Type<'_>) -> Value {
    match (name, kind) {
        (_, Type::Bool) => json!(true),
        (_, Type::Int) => json!(4),
        (
            "owner" | "fromOwner" | "toOwner" | "onBehalfOf" | "moduleId" | "unixUser" | "name",
            Type::String,
        ) => json!("m1"),
        (_, Type::Optional(inner)) => sample(description, name, inner),
        (_, Type::Array(inner)) => json!([sample(description, name, inner)]),
        (_, Type::Map(_)) => json!({}),
        (_, Type::Custom(custom)) => {
            let custom = description.custom_types().find(|one| one.name() == custom).unwrap();
            if let Some(object) = custom.as_object() {
                let field = |field: &Field<'_>| {
                    let name = field.name().to_string();
                    (name.clone(), sample(description, &name, field.ty()))
                };
                return object.fields().map(field).collect();
            }
            let first = custom.as_enum().unwrap().variants().next().unwrap();
            json!(first.name().to_string())
        }
        other => panic!("no sample for {other:?}"),
    }
}

#[test]
fn the_described_parameters_are_those_that_are_read() {
    for method in Method::ALL {
        let description = described(method.interface());
        let described = description.methods().find(|one| *one.name() == method.name()).unwrap();
        // start and end go together, and not with a name: a test of their own is below
        let fields: Vec<_> = described
            .inputs()
            .filter(|field| {
                method != Method::Deallocate || !["start", "end"].contains(&field.name().as_ref())
            })
            .collect();
        let whole: serde_json::Map<String, Value> = fields
            .iter()
            .map(|field| {
                let name = field.name().to_string();
                (name.clone(), sample(&description, &name, field.ty()))
            })
            .collect();
        for spelling in [Spelling::CamelCase, Spelling::SnakeCase] {
            let call = |fields: &serde_json::Map<String, Value>| {
                let spelt: serde_json::Map<String, Value> =
                    fields.iter().map(|(k, v)| (spelling.spell(k), v.clone())).collect();
                let raw = serde_json::value::to_raw_value(&spelt).unwrap();
                decode(method, Some(&raw), spelling)
            };
            assert_eq!(call(&whole).unwrap().method(), method);
            for field in &fields {
                // optional parameters may be left out, others may not
                let name = field.name().to_string();
                let mut without = whole.clone();
                without.shift_remove(&name);
                let expected = match field.ty() {
                    Type::Optional(_) => None,
                    _ => Some(BadParameter(spelling.spell(&name))),
                };
                assert_eq!(call(&without).err(), expected, "{} without {name}", method.name());
            }
            let mut extra = whole.clone();
            extra.insert("extra".to_owned(), json!(1));
            assert_eq!(call(&extra).err(), Some(BadParameter("extra".to_owned())));
        }
    }
}

/// One reply of each kind, with everything in it.
fn reply(method: Method) -> Reply {
    let range = PortRange::new(20000, 20003).unwrap();
    let allocation = Allocation {
        owner: owner(),
        protocol: Protocol::Tcp,
        name: Some(RangeName::parse("db").unwrap()),
        range,
        claimed: false,
        allocated_at: Timestamp::from_unix(0),
    };
    let unix_user = UserName::parse("m1").unwrap();
    match method {
        Method::Allocate => Reply::Allocate(Allocated { range }),
        Method::Ensure => Reply::Ensure(Ensured { range, changed: true }),
        Method::Deallocate => Reply::Deallocate(Deallocated { ranges: vec![range] }),
        Method::List => Reply::List(Listed { allocations: vec![allocation] }),
        Method::Monitor => {
            let event = Event { kind: EventKind::Present, allocation: Some(allocation) };
            Reply::Monitor(Monitored { event })
        }
        Method::WhoAmI => Reply::WhoAmI(CallerInfo {
            uid: UserId(1),
            caller: CallerKind::Module,
            module_id: Some(module_id()),
            unix_user: Some(unix_user),
            portsadm: true,
            tcp_ports_demand: Some(1),
            udp_ports_demand: Some(1),
        }),
        Method::GetStatus => Reply::GetStatus(Status {
            pools: vec![PoolStatus {
                protocol: Protocol::Tcp,
                range,
                total: 4,
                allocated: 1,
                free: 3,
                quarantined: 0,
                bound: 0,
                largest_free: 3,
                allocations: 1,
            }],
        }),
        Method::SetModule => Reply::SetModule(ModuleSet {}),
        Method::ListModules => Reply::ListModules(Modules {
            modules: vec![ModuleEntry {
                module_id: module_id(),
                unix_user,
                portsadm: true,
                tcp_ports_demand: 1,
                udp_ports_demand: 1,
                stale: false,
            }],
        }),
        Method::RemoveModule => Reply::RemoveModule(ModuleRemoved { freed: vec![allocation] }),
        Method::Claim => Reply::Claim(Claimed {}),
        Method::Transfer => Reply::Transfer(Transferred { moved: vec![allocation] }),
        Method::Reclaim => Reply::Reclaim(Reclaimed { freed: vec![allocation] }),
        Method::Import => Reply::Import(Imported {
            imported: 1,
            unchanged: 0,
            problems: vec![Problem {
                range: ImportedRange {
                    owner: "?".to_owned(),
                    protocol: Protocol::Tcp,
                    start: 2,
                    end: 0,
                },
                reason: "x".to_owned(),
            }],
        }),
        Method::History => Reply::History(Past {
            events: vec![HistoryEvent {
                at: Timestamp::from_unix(0),
                kind: HistoryKind::Allocated,
                owner: owner(),
                protocol: Protocol::Tcp,
                name: allocation.name,
                range,
                uid: UserId(0),
                on_behalf_of: Some(module_id()),
            }],
        }),
        Method::Backup => Reply::Backup(BackedUp { path: "x".to_owned() }),
    }
}

/// Asserts that `value` is of the described type, fields and all.
fn assert_type(description: &Description<'_>, kind: &Type<'_>, value: &Value) {
    match kind {
        Type::Bool => assert!(value.is_boolean(), "{value}"),
        Type::Int => assert!(value.is_u64(), "{value}"),
        Type::String => assert!(value.is_string(), "{value}"),
        Type::Optional(inner) => assert_type(description, inner, value),
        Type::Array(inner) => {
            value.as_array().unwrap().iter().for_each(|one| assert_type(description, inner, one));
        }
        Type::Custom(name) => {
            let custom = description.custom_types().find(|one| one.name() == name).unwrap();
            if let Some(object) = custom.as_object() {
                assert_fields(description, object.fields(), value);
            } else {
                let variants = custom.as_enum().unwrap().variants();
                assert!(variants.map(|one| one.name().to_string()).any(|one| *value == one));
            }
        }
        other => panic!("no reply has {other:?}"),
    }
}

fn assert_fields<'a>(
    description: &Description<'_>,
    fields: impl Iterator<Item = &'a Field<'a>>,
    value: &Value,
) {
    let mut names = Vec::new();
    for field in fields {
        let name = field.name().to_string();
        assert_type(description, field.ty(), &value[&name]);
        names.push(name);
    }
    let given: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
    assert_eq!(given, names);
}

#[test]
fn the_described_replies_are_those_that_are_given() {
    for method in Method::ALL {
        let description = described(method.interface());
        let described = description.methods().find(|one| *one.name() == method.name()).unwrap();
        let reply = encode(&reply(method), Spelling::CamelCase);
        assert_fields(&description, described.outputs(), &reply);
    }
}

#[test]
fn everything_described_has_a_comment() {
    fn is_said<'a>(mut comments: impl Iterator<Item = &'a Comment<'a>>) -> bool {
        comments.any(|comment| !comment.text().is_empty())
    }
    for description in descriptions() {
        let interface = description.name();
        assert!(is_said(description.comments()), "{interface}");
        for method in description.methods() {
            assert!(is_said(method.comments()), "{interface}.{}", method.name());
            for field in method.inputs().chain(method.outputs()) {
                assert!(is_said(field.comments()), "{}: {}", method.name(), field.name());
            }
        }
        for error in description.errors() {
            assert!(is_said(error.comments()), "{interface}.{}", error.name());
            for field in error.fields() {
                assert!(is_said(field.comments()), "{}: {}", error.name(), field.name());
            }
        }
        for custom in description.custom_types() {
            let object = custom.as_object();
            let comments = object.map(|one| is_said(one.comments()));
            let comments = comments.or(custom.as_enum().map(|one| is_said(one.comments())));
            assert_eq!(comments, Some(true), "{interface}.{}", custom.name());
            for field in object.into_iter().flat_map(zlink_idl::CustomObject::fields) {
                assert!(is_said(field.comments()), "{}: {}", custom.name(), field.name());
            }
        }
    }
}

#[test]
fn a_part_to_free_is_a_name_or_both_ends() {
    let part = |fields: Value| {
        let mut whole = json!({ "protocol": "tcp" });
        whole.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let raw = serde_json::value::to_raw_value(&whole).unwrap();
        match decode(Method::Deallocate, Some(&raw), Spelling::CamelCase) {
            Ok(Request::Deallocate { part, .. }) => Ok(part),
            Ok(other) => panic!("{other:?}"),
            Err(BadParameter(name)) => Err(name),
        }
    };
    let range = PortRange::new(20000, 20003).unwrap();
    assert_eq!(part(json!({})), Ok(Part::All));
    assert_eq!(part(json!({ "name": null, "start": null, "end": null })), Ok(Part::All));
    assert_eq!(part(json!({ "name": "db" })), Ok(Part::Named("db".parse().unwrap())));
    assert_eq!(part(json!({ "start": 20000, "end": 20003 })), Ok(Part::Ports(range)));
    for (fields, named) in [
        (json!({ "start": 20000 }), "end"),
        (json!({ "end": 20000 }), "start"),
        (json!({ "start": 20003, "end": 20000 }), "end"),
        (json!({ "start": 0, "end": 20000 }), "start"),
        (json!({ "start": 65536, "end": 65537 }), "start"),
        (json!({ "start": 20000, "end": "20003" }), "end"),
        (json!({ "name": "db", "start": 20000, "end": 20003 }), "name"),
        (json!({ "name": "db", "end": 20003 }), "name"),
        (json!({ "name": "" }), "name"),
    ] {
        assert_eq!(part(fields.clone()), Err(named.to_owned()), "{fields}");
    }
}
