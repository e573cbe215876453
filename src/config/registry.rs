//! `[registry]`: where it is known who is a module.

use std::fmt;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};
use serde::Deserialize;

/// Where Redis is unless configured otherwise: the node's own replica.
const REDIS_URL: &str = "redis://127.0.0.1:6379";

/// `[registry]`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RegistryConfig {
    /// Modules are those that `SetModule` has registered.
    #[default]
    Local,
    /// Modules are those of the cluster.
    Redis(ClusterConfig),
}

/// What has to be known to ask the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterConfig {
    /// This node. The modules of others are not known here.
    pub node_id: NodeId,
    /// Where the node's Redis is.
    pub redis_url: RedisUrl,
}

/// The number of a node in its cluster, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "u32")]
pub struct NodeId(u32);

impl NodeId {
    /// The node of that number.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number == 0 { None } else { Some(Self(number)) }
    }
}

impl TryFrom<u32> for NodeId {
    type Error = String;

    fn try_from(number: u32) -> Result<Self, String> {
        Self::new(number).ok_or_else(|| "registry.node_id counts from 1".to_owned())
    }
}

/// An address that Redis can be asked at, and perhaps a password. Only the address is ever shown.
#[derive(Clone)]
pub struct RedisUrl {
    text: String,
    info: ConnectionInfo,
}

impl RedisUrl {
    /// Takes the URL of a Redis that can be reached without TLS: it is on this node.
    pub fn parse(text: &str) -> Result<Self, String> {
        const SCHEMES: [&str; 3] = ["redis://", "unix://", "redis+unix://"];
        if !SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
            return Err("registry.redis_url has to begin with redis:// or unix://".to_owned());
        }
        // what the library says of a URL may quote it
        let info = text.into_connection_info().map_err(
            |_| "registry.redis_url is not like redis://127.0.0.1:6379 or unix:///run/redis.sock",
        )?;
        // neither HELLO nor CLIENT: an access list may lack them
        let settings = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP2)
            .set_skip_set_lib_name();
        Ok(Self { text: text.to_owned(), info: info.set_redis_settings(settings) })
    }

    /// What a server has said, which may quote the password that it was given.
    #[must_use]
    pub fn without_password(&self, text: String) -> String {
        match self.info.redis_settings().password() {
            Some(password) if !password.is_empty() => text.replace(password, "..."),
            _ => text,
        }
    }

    /// What there is to know for a connection.
    #[must_use]
    pub const fn connection_info(&self) -> &ConnectionInfo {
        &self.info
    }

    /// The address without a password.
    #[must_use]
    pub fn address(&self) -> &ConnectionAddr {
        self.info.addr()
    }
}

impl PartialEq for RedisUrl {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for RedisUrl {}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({})", self.address())
    }
}

/// The section as it is written.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Section {
    source: Source,
    node_id: Option<NodeId>,
    redis_url: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum Source {
    #[default]
    Local,
    Redis,
}

impl TryFrom<Section> for RegistryConfig {
    type Error = String;

    fn try_from(section: Section) -> Result<Self, String> {
        let Section { source, node_id, redis_url } = section;
        let unused = |key| Err(format!("registry.{key} needs registry.source = \"redis\""));
        match (source, node_id, redis_url) {
            (Source::Local, None, None) => Ok(Self::Local),
            // whoever sets it means the other source
            (Source::Local, Some(_), _) => unused("node_id"),
            (Source::Local, None, Some(_)) => unused("redis_url"),
            (Source::Redis, None, _) => {
                Err("registry.source = \"redis\" needs registry.node_id".to_owned())
            }
            (Source::Redis, Some(node_id), url) => Ok(Self::Redis(ClusterConfig {
                node_id,
                redis_url: RedisUrl::parse(url.as_deref().unwrap_or(REDIS_URL))?,
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, parse};
    use super::*;

    fn registry(lines: &str) -> Result<RegistryConfig, String> {
        parse(&format!("[registry]\n{lines}")).map(|Config { registry, .. }| registry)
    }

    #[test]
    fn the_cluster_is_asked_if_configured() {
        let configured = registry("source = \"redis\"\nnode_id = 3").unwrap();
        let RegistryConfig::Redis(ClusterConfig { node_id, redis_url }) = configured else {
            panic!("{configured:?}")
        };
        assert_eq!(Some(node_id), NodeId::new(3));
        assert_eq!(redis_url.address().to_string(), "127.0.0.1:6379");
        for url in [
            "redis://:secret@localhost/1",
            "redis://default:secret@127.0.0.1:6380",
            "unix:///run/redis.sock",
            "redis+unix:///run/redis.sock?user=u&pass=secret",
        ] {
            let lines = format!("source = \"redis\"\nnode_id = 1\nredis_url = \"{url}\"");
            let configured = registry(&lines).unwrap();
            assert!(!format!("{configured:?}").contains("secret"), "{configured:?}");
        }
    }

    #[test]
    fn a_password_that_a_server_repeats_is_left_out() {
        let told = |url: &str| {
            let said = "unknown command AUTH, with args: node secret".to_owned();
            RedisUrl::parse(url).unwrap().without_password(said)
        };
        let without = "unknown command AUTH, with args: node ...";
        assert_eq!(told("redis://node:secret@localhost"), without);
        assert_eq!(told("unix:///run/redis.sock?user=node&pass=secret"), without);
        assert!(told("redis://localhost").ends_with("secret"));
    }

    #[test]
    fn what_is_wrong_is_named_and_no_password_told() {
        let redis = "source = \"redis\"\n";
        for (lines, named) in [
            (redis.to_owned(), "registry.node_id"),
            ("node_id = 1".to_owned(), "registry.node_id"),
            ("redis_url = \"redis://:secret@localhost\"".to_owned(), "registry.redis_url"),
            (format!("{redis}node_id = 0"), "registry.node_id"),
            (format!("{redis}node_id = -1"), "node_id"),
            (format!("{redis}node_id = \"1\""), "node_id"),
            (format!("{redis}node_id = 1\nredis_url = 6379"), "redis_url"),
            (format!("{redis}node_id = 1\nredis_url = \"\""), "registry.redis_url"),
            (format!("{redis}node_id = 1\nredis_url = \"rediss://:secret@h\""), "redis_url"),
            (format!("{redis}node_id = 1\nredis_url = \"http://:secret@h\""), "redis_url"),
            (format!("{redis}node_id = 1\nredis_url = \"redis://:secret@h:x\""), "redis_url"),
            (format!("{redis}node_id = 1\nredis_url = \"redis://:secret@h/x\""), "redis_url"),
            (format!("{redis}node_id = \"redis://:secret@h\""), "node_id"),
            (format!("{redis}node_id = 1\nredis_url = \"redis://:secret@h"), "redis_url"),
            (format!("{redis}redis_url = \"redis://:secret@h\" node_id = 1"), "redis_url"),
            (format!("{redis}nod_id = \"redis://:secret@h\""), "nod_id"),
        ] {
            let message = registry(&lines).unwrap_err();
            assert!(message.contains(named), "{lines:?}: {message}");
            assert!(!message.contains("secret"), "{lines:?}: {message}");
        }
    }
}
