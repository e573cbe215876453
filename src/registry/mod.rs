//! Who is a module, which Unix user it runs as, and what it may have.

mod labels;
mod local;
mod redis;

pub use labels::{Labels, PORTSADM};
pub use local::Registry;
pub use redis::{Answer, Asked, Cluster, MODULE_NODE, Present, Unavailable, demand_key};

use crate::config::RegistryConfig;
use crate::model::UserName;

/// Who says which modules there are.
#[derive(Clone)]
pub enum Source {
    /// Administrators, by `SetModule`. What is stored is all there is to know.
    Local,
    /// The cluster. What is stored is what was last heard of it.
    Cluster(Cluster),
}

impl Source {
    /// The source that is configured. Runs in a tokio runtime.
    #[must_use]
    pub fn start(config: &RegistryConfig) -> Self {
        match config {
            RegistryConfig::Local => Self::Local,
            RegistryConfig::Redis(cluster) => Self::Cluster(Cluster::start(cluster)),
        }
    }

    /// The cluster, where it is the source.
    #[must_use]
    pub const fn cluster(&self) -> Option<&Cluster> {
        match self {
            Self::Local => None,
            Self::Cluster(cluster) => Some(cluster),
        }
    }

    /// Whether the entry of that user is a memory of a source that does not answer.
    #[must_use]
    pub fn is_stale(&self, user: &UserName) -> bool {
        self.cluster().is_some_and(|cluster| cluster.is_stale(user))
    }
}
