//! `[registry]`: where it is known who is a module.

use serde::Deserialize;

use crate::redis_url::RedisUrl;

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
                redis_url: RedisUrl::parse(url.as_deref().unwrap_or(REDIS_URL))
                    .map_err(|error| format!("registry.redis_url {error}"))?,
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
