//! The picture of the database in memory, and those who follow its changes.

use std::sync::Arc;

use tokio::sync::broadcast;

use super::pool::Pool;
use crate::config::{HistoryConfig, PoolConfig};
use crate::model::{Allocation, Module, ModuleId, Timestamp};
use crate::registry::Registry;
use crate::store::{Contents, StoreError};

/// The effects of so many changes are kept for followers who are behind.
const CHANGES_KEPT: usize = 4096;

/// What is stored, in memory.
pub struct State {
    /// Who holds what.
    pub pool: Pool,
    /// Who is a module.
    pub registry: Registry,
}

/// What a stored change means for the picture in memory. A range that gets other ports or another
/// owner is freed and held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The range is no longer held.
    Freed(Allocation),
    /// The range is held.
    Held(Allocation),
    /// The module has this entry.
    Registered(Module),
    /// The module has no entry.
    Unregistered(ModuleId),
}

/// The effects of what is stored from one moment on, those of a change together. It ends when they can't be told
/// one by one, or when too many of them have not been taken.
pub type Effects = broadcast::Receiver<Arc<[Effect]>>;

impl State {
    /// The picture of what was read.
    fn build(pool: &PoolConfig, contents: Contents) -> Result<Self, StoreError> {
        let mut state = Self { pool: Pool::new(pool.clone()), registry: Registry::default() };
        for released in contents.released {
            state.pool.remember(&released.allocation, released.at);
        }
        let now = Timestamp::now();
        contents.allocations.into_iter().try_for_each(|one| state.hold(one))?;
        contents
            .modules
            .into_iter()
            .map(Effect::Registered)
            .try_for_each(|one| state.follow(&one, now))?;
        Ok(state)
    }

    /// Takes over what was stored at `now`.
    pub(super) fn follow(&mut self, effect: &Effect, now: Timestamp) -> Result<(), StoreError> {
        match effect {
            Effect::Freed(allocation) => self.pool.release(allocation, now),
            Effect::Held(allocation) => self.hold(allocation.clone())?,
            Effect::Registered(module) => self.register(module.clone())?,
            Effect::Unregistered(id) => drop(self.registry.remove(id)),
        }
        Ok(())
    }

    fn hold(&mut self, allocation: Allocation) -> Result<(), StoreError> {
        self.pool.insert(allocation).map_err(|error| StoreError::Contradiction(error.to_string()))
    }

    fn register(&mut self, module: Module) -> Result<(), StoreError> {
        self.registry.set(module).map_err(|error| StoreError::Contradiction(error.to_string()))
    }
}

/// Refuses what is stored if no picture can be made of it.
pub(crate) fn take_in(contents: Contents) -> Result<(), StoreError> {
    State::build(&PoolConfig::default(), contents).map(drop)
}

/// What the configuration says about what is stored.
pub(super) struct Rules {
    pub(super) pool: PoolConfig,
    pub(super) history: HistoryConfig,
}

/// What the owning thread knows of the database.
pub(super) struct Picture {
    pub(super) rules: Rules,
    pub(super) state: State,
    /// Whether `state` is what the database holds, as far as this process knows.
    pub(super) is_current: bool,
    followers: broadcast::Sender<Arc<[Effect]>>,
}

impl Picture {
    /// The picture of what `load` reads of a database: of what was freed, all since the moment that
    /// it is given.
    pub(super) fn read(
        rules: Rules,
        load: impl FnOnce(Timestamp) -> Result<Contents, StoreError>,
    ) -> Result<Self, StoreError> {
        let state = State::build(&rules.pool, load(rules.since())?)?;
        Ok(Self { rules, state, is_current: true, followers: broadcast::Sender::new(CHANGES_KEPT) })
    }

    /// Replaces the picture. What has changed is not known, so that whoever follows is sent away.
    pub(super) fn reload(
        &mut self,
        load: impl FnOnce(Timestamp) -> Result<Contents, StoreError>,
    ) -> Result<(), StoreError> {
        self.is_current = false;
        self.state = State::build(&self.rules.pool, load(self.rules.since())?)?;
        self.followers = broadcast::Sender::new(CHANGES_KEPT);
        self.is_current = true;
        Ok(())
    }

    /// The effects of everything that is committed from now on.
    pub(super) fn subscribe(&self) -> Effects {
        self.followers.subscribe()
    }

    /// Tells those who follow what a change has done that was committed.
    pub(super) fn publish(&self, effects: &Arc<[Effect]>) {
        if !effects.is_empty() {
            // nobody has to follow
            let _ = self.followers.send(Arc::clone(effects));
        }
    }
}

impl Rules {
    /// Since when it matters what was freed.
    fn since(&self) -> Timestamp {
        Timestamp::now().before(self.pool.quarantine)
    }
}
