//! The modules of this node as the cluster knows them: live from the node's Redis replica.
//!
//! The cluster's keys are read when a module calls, so that what was taken away counts at the next
//! call. What was read is kept in the database, and counts while Redis does not answer. A module's
//! Unix user is its id.
//!
//! | key | what counts |
//! | --- | --- |
//! | hash `cluster/module_node` | the node of each module; those of other nodes are unknown here |
//! | set `cluster/authorizations/module/<id>` | the roles, as in the label `org.nethserver.authorizations` |
//! | hashes `cluster/tcp_ports_demand`, `cluster/udp_ports_demand` | how many ports a module may hold |

mod entry;
mod link;
mod newcomers;
mod order;
mod told;

pub use self::entry::{MODULE_NODE, demand_key};
pub use self::order::Asked;

use std::collections::HashSet;
use std::sync::Arc;

use tokio::time::sleep;

use self::entry::{Problem, Reading};
use self::link::{Link, Replies};
use self::newcomers::{Newcomers, PAUSES, Turn};
use self::order::Order;
use self::told::Told;
use crate::config::{ClusterConfig, NodeId};
use crate::model::{Module, ModuleId, UserName};

/// The cluster has said nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unavailable {
    /// It can't be asked.
    Away,
    /// It can, but a key that matters may not be read, or is not what it should be.
    Unreadable,
}

/// What the cluster says of a module.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its entry, if it is a module of this node.
    pub entry: Option<Module>,
    /// When it was asked.
    pub asked: Asked,
}

/// The modules of this node, by the word of the cluster.
#[derive(Debug, Clone)]
pub struct Present {
    /// Their ids.
    pub ids: HashSet<ModuleId>,
    /// When it was asked.
    pub asked: Asked,
}

/// The way to the cluster's keys. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    node: NodeId,
    link: Link,
    newcomers: Newcomers,
    order: Arc<Order>,
    told: Arc<Told>,
}

impl Cluster {
    /// Connects in the background. Runs in a tokio runtime.
    #[must_use]
    pub fn start(config: &ClusterConfig) -> Self {
        let order = Arc::default();
        Self {
            node: config.node_id,
            link: Link::start(&config.redis_url, Arc::clone(&order)),
            newcomers: Newcomers::default(),
            order,
            told: Arc::default(),
        }
    }

    /// What the cluster says of the module whose Unix user is `user`.
    pub async fn look_up(&self, user: &UserName) -> Result<Answer, Unavailable> {
        // some users have names that no module can have
        let Ok(id) = ModuleId::parse(user.as_str()) else {
            return Ok(Answer { entry: None, asked: self.order.now() });
        };
        let Replies { values, asked } = self.link.ask(entry::commands(&id)).await?;
        let Reading { entry, problems } = self.understand(entry::read(&id, self.node, &values))?;
        self.told.tell(&problems);
        if entry.is_some() {
            self.newcomers.welcome(user);
        }
        Ok(Answer { entry, asked })
    }

    /// What was read. The journal is told of a key that could not be.
    fn understand<T>(&self, read: Result<T, Problem>) -> Result<T, Unavailable> {
        read.map_err(|problem| {
            self.told.tell(&[problem]);
            Unavailable::Unreadable
        })
    }

    /// Whether the cluster has just said, more than once, that there is no such module here.
    #[must_use]
    pub fn is_unknown(&self, user: &UserName) -> bool {
        self.newcomers.is_unknown(user)
    }

    /// What the cluster says, in the end, of a user who has never called and who was no module by
    /// the first `answer`: the module may just have been installed.
    pub async fn look_up_newcomer(
        &self,
        user: &UserName,
        mut answer: Answer,
    ) -> Result<Answer, Unavailable> {
        match self.newcomers.turn(user) {
            Turn::Wait(waiting) => {
                for pause in PAUSES {
                    sleep(pause).await;
                    answer = self.look_up(user).await?;
                    if answer.entry.is_some() {
                        return Ok(answer);
                    }
                }
                waiting.in_vain();
            }
            Turn::Follow(mut other) => {
                // nothing is sent: this is the other's end
                let _ = other.changed().await;
                if !self.is_unknown(user) {
                    return self.look_up(user).await;
                }
            }
            Turn::GiveUp => {}
        }
        Ok(answer)
    }

    /// All modules of this node. A cluster without any has another number for this node: that says
    /// nothing about who is gone.
    pub async fn present(&self) -> Result<Present, Unavailable> {
        let Replies { values, asked } = self.link.ask(entry::all_commands()).await?;
        let (ids, problems) = self.understand(entry::read_all(self.node, &values))?;
        self.told.tell(&problems);
        if ids.is_empty() {
            return Err(Unavailable::Unreadable);
        }
        Ok(Present { ids, asked })
    }

    /// The entry of that user could be read, or is a memory though others can be read.
    pub fn remember(&self, user: &UserName, is_memory: bool) {
        self.told.remember(user, is_memory);
    }

    /// Whether the entry of that user is a memory, as far as it is known.
    #[must_use]
    pub fn is_stale(&self, user: &UserName) -> bool {
        self.link.is_silent() || self.told.is_memory(user)
    }
}
