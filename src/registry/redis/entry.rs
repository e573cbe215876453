//! What the cluster's keys say of a module. Pure.
//!
//! The keys are the leader's; no module can write to them. What is in `module/<id>/...` is written by
//! the module itself, and is not read. A value that can't be understood grants nothing, and is named
//! for the journal.

use std::collections::HashSet;

use redis::{Cmd, Value, cmd};

use crate::config::NodeId;
use crate::model::{Demand, Module, ModuleId, Protocol, UserName};
use crate::registry::labels::{grants_portsadm, parse_ports};

/// Which node each module is on.
pub const MODULE_NODE: &str = "cluster/module_node";
const AUTHORIZATIONS: &str = "cluster/authorizations/module";

/// How many ports of a protocol each module may hold.
#[must_use]
pub const fn demand_key(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "cluster/tcp_ports_demand",
        Protocol::Udp => "cluster/udp_ports_demand",
    }
}

/// So many authorizations may a module have; images have a handful. One that has more has none.
const AUTHORIZATIONS_MAX: usize = 256;
/// Of a value that is not understood, so many characters are told.
const TOLD_CHARS_MAX: usize = 64;

/// What was read of one module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// Its entry, if it is a module of this node.
    pub entry: Option<Module>,
    /// What was not understood.
    pub problems: Vec<Problem>,
}

/// Something that was not understood, or may not be read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Problem {
    /// The key, with the field of a hash.
    pub key: String,
    /// What is wrong with it.
    pub what: String,
}

/// The commands that read one module, in the order in which [`read`] takes their replies.
pub fn commands(id: &ModuleId) -> Vec<Cmd> {
    let field = |key| cmd("HGET").arg(key).arg(id.as_str()).to_owned();
    // of a set without bound, only as much as shows that it is too large
    let some = cmd("SRANDMEMBER").arg(authorizations(id)).arg(AUTHORIZATIONS_MAX + 1).to_owned();
    vec![
        field(MODULE_NODE),
        some,
        field(demand_key(Protocol::Tcp)),
        field(demand_key(Protocol::Udp)),
    ]
}

fn authorizations(id: &ModuleId) -> String {
    format!("{AUTHORIZATIONS}/{id}")
}

/// What the replies say of the module `id` on this `node`. An error is a key that could not be read:
/// then nothing is known.
pub fn read(id: &ModuleId, node: NodeId, replies: &[Value]) -> Result<Reading, Problem> {
    let mut problems = Problems(Vec::new());
    let [on, authorized, tcp, udp] = replies else {
        return Err(Problem { key: MODULE_NODE.to_owned(), what: "no reply".to_owned() });
    };
    let unix_user = UserName::parse(id.as_str()).ok();
    let is_here = problems.node(id, on)? == Some(node);
    let entry = match unix_user {
        Some(unix_user) if is_here => Some(Module {
            id: id.clone(),
            unix_user,
            portsadm: problems.portsadm(id, authorized)?,
            demand: Demand {
                tcp: problems.ports(Protocol::Tcp, id, tcp)?,
                udp: problems.ports(Protocol::Udp, id, udp)?,
            },
        }),
        _ => None,
    };
    Ok(Reading { entry, problems: problems.0 })
}

/// The command that reads which module is where.
pub fn all_commands() -> Vec<Cmd> {
    vec![cmd("HGETALL").arg(MODULE_NODE).to_owned()]
}

/// The modules of this `node`. One whose node is not understood may be here: nothing of it may be
/// taken away.
pub fn read_all(
    node: NodeId,
    replies: &[Value],
) -> Result<(HashSet<ModuleId>, Vec<Problem>), Problem> {
    let key = || MODULE_NODE.to_owned();
    let fields = match replies {
        [Value::Array(fields)] => fields,
        [Value::ServerError(error)] => {
            return Err(Problem { key: key(), what: error.to_string() });
        }
        _ => return Err(Problem { key: key(), what: "no hash".to_owned() }),
    };
    let mut problems = Problems(Vec::new());
    let mut here = HashSet::new();
    for pair in fields.chunks(2) {
        let [id, on] = pair else { continue };
        // what can't be a module's id can't be an owner either
        let Some(id) = text(id).and_then(|id| ModuleId::parse(id).ok()) else { continue };
        if problems.node(&id, on)?.is_none_or(|on| on == node) {
            here.insert(id);
        }
    }
    Ok((here, problems.0))
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

/// Collects what is not understood.
struct Problems(Vec<Problem>);

impl Problems {
    /// The node that a module is on, if it is on one.
    fn node(&mut self, id: &ModuleId, value: &Value) -> Result<Option<NodeId>, Problem> {
        match value {
            Value::Nil => Ok(None),
            // without that hash, nothing is known of anybody
            Value::ServerError(error) => Err(unreadable(MODULE_NODE.to_owned(), error)),
            value => {
                let number = text(value).filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
                let node = number.and_then(|text| text.parse().ok()).and_then(NodeId::new);
                Ok(node.or_else(|| self.tell(format!("{MODULE_NODE} {id}"), value)))
            }
        }
    }

    fn portsadm(&mut self, id: &ModuleId, value: &Value) -> Result<bool, Problem> {
        let key = authorizations(id);
        let members = match value {
            Value::Array(members) if members.len() <= AUTHORIZATIONS_MAX => members,
            Value::Array(_) => {
                let what = format!("has more than {AUTHORIZATIONS_MAX} members");
                self.0.push(Problem { key, what });
                return Ok(false);
            }
            value => return Ok(self.refuse(key, value)?.unwrap_or(false)),
        };
        let mut granted = false;
        for member in members {
            match text(member).map(grants_portsadm) {
                Some(Ok(grants)) => granted |= grants,
                Some(Err(())) | None => drop(self.tell::<()>(key.clone(), member)),
            }
        }
        Ok(granted)
    }

    /// How many ports a module may hold.
    fn ports(&mut self, protocol: Protocol, id: &ModuleId, value: &Value) -> Result<u16, Problem> {
        let key = format!("{} {id}", demand_key(protocol));
        match value {
            Value::Nil => Ok(0),
            Value::BulkString(_) => {
                let ports = text(value).and_then(|text| parse_ports(text).ok());
                Ok(ports.or_else(|| self.tell(key, value)).unwrap_or(0))
            }
            value => Ok(self.refuse(key, value)?.unwrap_or(0)),
        }
    }

    /// A reply of no type that was expected: the key has another type, and then it grants nothing, or
    /// can't be read.
    fn refuse<T>(&mut self, key: String, value: &Value) -> Result<Option<T>, Problem> {
        match value {
            Value::ServerError(error) if error.code() != "WRONGTYPE" => Err(unreadable(key, error)),
            value => Ok(self.tell(key, value)),
        }
    }

    fn tell<T>(&mut self, key: String, value: &Value) -> Option<T> {
        let shown = match value {
            Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Value::ServerError(error) => error.to_string(),
            other => format!("{other:?}"),
        };
        let shown: String = shown.chars().take(TOLD_CHARS_MAX).collect();
        self.0.push(Problem { key, what: format!("{shown:?} is not understood") });
        None
    }
}

fn unreadable(key: String, error: &redis::ServerError) -> Problem {
    Problem { key, what: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn error(line: &str) -> Value {
        redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap()
    }

    fn id() -> ModuleId {
        ModuleId::parse("mail1").unwrap()
    }

    fn node() -> NodeId {
        NodeId::new(3).unwrap()
    }

    fn reading(replies: &[Value; 4]) -> Result<Reading, Problem> {
        read(&id(), node(), replies)
    }

    /// The entry with these authorizations and this TCP demand.
    fn entry(members: &[&str], tcp: Value) -> (bool, u16, usize) {
        let members = Value::Array(members.iter().map(|member| bulk(member)).collect());
        let Reading { entry, problems } = reading(&[bulk("3"), members, tcp, Value::Nil]).unwrap();
        let entry = entry.unwrap();
        assert_eq!((entry.unix_user.as_str(), entry.demand.udp), ("mail1", 0));
        (entry.portsadm, entry.demand.tcp, problems.len())
    }

    #[test]
    fn the_role_is_granted_by_exact_words() {
        for (members, granted, problems) in [
            (&[][..], false, 0),
            (&["node:portsadm"], true, 0),
            (&["traefik@node:routeadm", "node:fwadm,portsadm"], true, 0),
            (&["node:fwadm node:portsadm"], true, 0),
            (&["node:portsadmin", "Node:portsadm", "cluster:portsadm"], false, 0),
            (&["portsadm"], false, 1),
            (&["node:portsadm,"], false, 1),
            (&["nonsense", "node:portsadm"], true, 1),
        ] {
            assert_eq!(entry(members, Value::Nil), (granted, 0, problems), "{members:?}");
        }
        let crowd: Vec<_> = (0..=AUTHORIZATIONS_MAX).map(|_| "node:portsadm").collect();
        assert_eq!(entry(&crowd, Value::Nil), (false, 0, 1));
    }

    #[test]
    fn demands_that_are_no_counts_are_none() {
        assert_eq!(entry(&[], bulk("65535")), (false, 65535, 0));
        assert_eq!(entry(&[], bulk("0")), (false, 0, 0));
        let wrong_type = error("WRONGTYPE Operation against a key holding the wrong kind of value");
        let long = "9".repeat(1_000_000);
        let binary = Value::BulkString(vec![0xff, 0xfe]);
        for value in
            [bulk(""), bulk("-1"), bulk("65536"), bulk("4\n"), bulk("4.0"), bulk(&long), binary]
                .into_iter()
                .chain([wrong_type, Value::Int(4), Value::Array(Vec::new()), Value::Okay])
        {
            assert_eq!(entry(&[], value.clone()), (false, 0, 1), "{value:?}");
        }
    }

    #[test]
    fn only_this_node_has_its_modules() {
        let on = |node| {
            let role = Value::Array(vec![bulk("node:portsadm")]);
            reading(&[node, role, bulk("4"), bulk("4")])
        };
        assert!(on(bulk("3")).unwrap().entry.is_some());
        for (value, problems) in [
            (Value::Nil, 0),
            (bulk("1"), 0),
            (bulk("33"), 0),
            (bulk("0"), 1),
            (bulk(""), 1),
            (bulk(" 3"), 1),
            (bulk("+3"), 1),
            (bulk("three"), 1),
            (Value::Int(3), 1),
        ] {
            let Reading { entry, problems: told } = on(value.clone()).unwrap();
            assert_eq!((entry, told.len()), (None, problems), "{value:?}");
        }
    }

    #[test]
    fn what_may_not_be_read_says_nothing() {
        let refusal = || error("NOPERM this user has no permissions to access one of the keys");
        let none = || Value::Array(Vec::new());
        for (replies, key) in [
            ([refusal(), none(), Value::Nil, Value::Nil], MODULE_NODE),
            ([error("WRONGTYPE x"), none(), Value::Nil, Value::Nil], MODULE_NODE),
            ([bulk("3"), refusal(), Value::Nil, Value::Nil], "cluster/authorizations/module/mail1"),
            ([bulk("3"), none(), refusal(), Value::Nil], "cluster/tcp_ports_demand mail1"),
            ([bulk("3"), none(), Value::Nil, error("LOADING x")], "cluster/udp_ports_demand mail1"),
        ] {
            assert_eq!(reading(&replies).unwrap_err().key, key);
        }
        assert!(read(&id(), node(), &[]).is_err());
        // of a module that is elsewhere nothing else matters
        assert_eq!(reading(&[bulk("1"), refusal(), refusal(), refusal()]).unwrap().entry, None);
    }

    #[test]
    fn whoever_may_be_here_is() {
        let fields =
            [("mail1", "3"), ("web1", "1"), ("odd1", "x"), ("bad name", "3"), ("dns1", "3")];
        let fields = fields.iter().flat_map(|(id, on)| [bulk(id), bulk(on)]).collect();
        let (here, problems) = read_all(node(), &[Value::Array(fields)]).unwrap();
        let mut here: Vec<_> = here.iter().map(ModuleId::as_str).collect();
        here.sort_unstable();
        assert_eq!(here, ["dns1", "mail1", "odd1"]);
        assert_eq!(problems.len(), 1);
        for replies in [&[][..], &[Value::Nil], &[error("NOPERM x")], &[error("WRONGTYPE x")]] {
            assert!(read_all(node(), replies).is_err(), "{replies:?}");
        }
    }
}
