//! What NS8's modules keep of their ports in Redis: `TCP_PORTS_RANGE` or `TCP_PORT`, and the same
//! with `UDP_`, in the HASH `module/<id>/environment`, for the modules that the HASH
//! `cluster/module_node` has on this node; and the counters that NS8 handed ports out by.
//!
//! A module can write its own environment. What stands there is a claim of that module and of no
//! other: whose it is comes from the key. Its size has to be accounted for by what modules can't write
//! (see `bounds.rs`), and the service then refuses what overlaps.
//!
//! Every key is read at another moment; changes in between are seen or not. Nothing is written,
//! but by [`remove_sequences`].

mod bounds;
mod connection;
mod environment;
mod sequence;

use std::collections::BTreeMap;

use redis::{Pipeline, ServerError, Value};

pub use sequence::{Finding, Sequence};

use self::connection::{Connection, Hash};
use super::{Contents, Problem, Row, Unreadable, number, shown};
use crate::model::{ModuleId, Protocol};
use crate::redis_url::RedisUrl;
use crate::registry::{MODULE_NODE, demand_key};

/// What a node has in Redis.
pub struct Node {
    /// The ranges of its modules.
    pub contents: Contents,
    /// Its counters.
    pub sequences: Vec<Sequence>,
}

/// Reads all of a node. `progress` is told how many of the modules are read.
pub fn read(
    url: &RedisUrl,
    node_id: u32,
    progress: &mut dyn FnMut(usize),
) -> Result<Node, Unreadable> {
    wait_for(url, async {
        let mut connection = Connection::open(url).await?;
        let Modules { here, rows, remarks } = modules(&mut connection, node_id).await?;
        let mut contents = Contents { rows, remarks };
        for module in &here {
            contents.rows.extend(environment_of(&mut connection, module).await?);
            if connection.is_flooded() {
                connection = Connection::open(url).await?;
            }
            progress(contents.rows.len());
        }
        let sequences = read_sequences(&mut connection, node_id).await?;
        let demands = read_demands(&mut connection).await?;
        bounds::apply(&mut contents, &sequences, &demands);
        Ok(Node { contents, sequences })
    })
}

/// Removes the counters of these keys, and gives for each that could not be removed the reason.
pub fn remove_sequences(
    url: &RedisUrl,
    keys: &[String],
) -> Result<Vec<Result<(), String>>, Unreadable> {
    wait_for(url, async {
        let mut connection = Connection::open(url).await?;
        let mut pipeline = Pipeline::new();
        for key in keys {
            pipeline.cmd("DEL").arg(key);
        }
        let replies = connection.ask(&mut pipeline).await?;
        let outcome = |reply: Result<Value, ServerError>| match reply {
            Ok(_) => Ok(()),
            Err(error) => Err(connection::refusal_to_write(&error)),
        };
        Ok(replies.into_iter().map(outcome).collect())
    })
}

fn wait_for<T>(
    url: &RedisUrl,
    work: impl Future<Output = Result<T, Unreadable>>,
) -> Result<T, Unreadable> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Unreadable::new(connection::place(url), error.to_string()))?;
    let outcome = runtime.block_on(work);
    // a look-up of a host's name may still hang
    runtime.shutdown_background();
    outcome
}

/// What the cluster says of its modules.
struct Modules {
    /// Those of the node, in order.
    here: Vec<ModuleId>,
    /// Entries that make no sense.
    rows: Vec<Row>,
    remarks: Vec<String>,
}

async fn modules(connection: &mut Connection, node_id: u32) -> Result<Modules, Unreadable> {
    let entries = connection.hash(MODULE_NODE).await?;
    if entries.is_empty() {
        return Err(connection.unreadable(format!(
            "there is no {MODULE_NODE}: is this the Redis of NS8, and the right database in it?"
        )));
    }
    Ok(sort_out(&entries, node_id))
}

/// The modules of the node among all entries.
fn sort_out(entries: &Hash, node_id: u32) -> Modules {
    let mut modules = Modules { here: Vec::new(), rows: Vec::new(), remarks: Vec::new() };
    for (module, node) in entries {
        let id = str::from_utf8(module).ok().and_then(|text| ModuleId::parse(text).ok());
        let reason = match (id, number(node)) {
            (_, Some(other)) if other != i64::from(node_id) => continue,
            (Some(id), Some(_)) => {
                modules.here.push(id);
                continue;
            }
            (None, Some(_)) => format!("{} is no module id", shown(module)),
            (_, None) => format!("its node is {}, which is no number", shown(node)),
        };
        let source = format!("{MODULE_NODE} {}", shown(module));
        modules.rows.push(Row::Problem(unknown(source, None, reason)));
    }
    if modules.here.is_empty() {
        modules.remarks.push(format!("{MODULE_NODE} has no modules on node {node_id}"));
    }
    modules
}

/// A problem that is not about a range.
fn unknown(source: String, owner: Option<&ModuleId>, reason: String) -> Problem {
    let owner = owner.map(ModuleId::to_string);
    Problem { source, owner, protocol: None, start: None, end: None, reason }
}

/// The ranges of one module, in a round trip of its own: whatever it has written there costs no more
/// memory than one answer may, and is told as its own.
async fn environment_of(
    connection: &mut Connection,
    module: &ModuleId,
) -> Result<Vec<Row>, Unreadable> {
    let key = environment::key(module);
    let mut pipeline = Pipeline::new();
    pipeline.cmd("HMGET").arg(&key).arg(&environment::FIELDS);
    let reason = match connection.ask(&mut pipeline).await.map(|mut replies| replies.pop()) {
        Ok(Some(Ok(values))) => {
            return Ok(environment::rows(module, &connection.understand(values)?));
        }
        Ok(Some(Err(error))) if error.code() == WRONG_TYPE => "this is no HASH".to_owned(),
        Ok(Some(Err(error))) => return Err(connection.refused("HMGET", &key, &error)),
        Ok(None) => return Err(connection.strange()),
        Err(_) if connection.is_flooded() => {
            format!("the values have more than {} bytes", connection::REPLY_BYTES_MAX)
        }
        Err(error) => return Err(error),
    };
    Ok(vec![Row::Problem(unknown(key, Some(module), reason))])
}

const WRONG_TYPE: &str = "WRONGTYPE";

async fn read_sequences(
    connection: &mut Connection,
    node_id: u32,
) -> Result<Vec<Sequence>, Unreadable> {
    let mut pipeline = Pipeline::new();
    let keys = Protocol::ALL.map(|protocol| (protocol, sequence::key(node_id, protocol)));
    for (_, key) in &keys {
        pipeline.cmd("GET").arg(key);
    }
    let replies = connection.ask(&mut pipeline).await?;
    let mut sequences = Vec::new();
    for ((protocol, key), reply) in keys.into_iter().zip(replies) {
        let value = match reply {
            Ok(value) => sequence::Value::parse(connection.understand::<Option<Vec<u8>>>(value)?),
            Err(error) if error.code() == WRONG_TYPE => sequence::Value::wrong_type(),
            Err(error) => return Err(connection.refused("GET", &key, &error)),
        };
        sequences.push(Sequence { key, protocol, value });
    }
    Ok(sequences)
}

/// What each module may have. The cluster's; it need not be there.
async fn read_demands(connection: &mut Connection) -> Result<BTreeMap<Protocol, Hash>, Unreadable> {
    let mut demands = BTreeMap::new();
    for protocol in Protocol::ALL {
        demands.insert(protocol, connection.hash(demand_key(protocol)).await?);
    }
    Ok(demands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sound_entries_of_the_node_are_modules_of_it() {
        let entries: Hash = [
            (&b"mail2"[..], &b"1"[..]),
            (b"mail1", b"1"),
            (b"mail3", b"2"),
            (b"mail4", b"11"),
            (b"a/b", b"1"),
            (b"c/d", b"2"),
            (b"e\n", b"1\n"),
            (b"f", b""),
        ]
        .into_iter()
        .map(|(module, node)| (module.to_vec(), node.to_vec()))
        .collect();
        let found = sort_out(&entries, 1);
        let here: Vec<_> = found.here.iter().map(ModuleId::as_str).collect();
        assert_eq!(here, ["mail1", "mail2"]);
        let problems: Vec<_> = found
            .rows
            .iter()
            .map(|row| match row {
                Row::Problem(Problem { source, reason, .. }) => format!("{source}: {reason}"),
                Row::Range { .. } => panic!("{row:?}"),
            })
            .collect();
        assert_eq!(
            problems,
            [
                r#"cluster/module_node "a/b": "a/b" is no module id"#,
                r#"cluster/module_node "e\n": its node is "1\n", which is no number"#,
                r#"cluster/module_node "f": its node is "", which is no number"#,
            ]
        );
        assert!(found.remarks.is_empty());
        let nobody = sort_out(&entries, 7);
        assert_eq!(nobody.remarks, ["cluster/module_node has no modules on node 7"]);
    }
}
