//! The picture of the database in memory.

use super::pool::Pool;
use crate::config::PoolConfig;
use crate::model::{Allocation, Module, ModuleId, Timestamp};
use crate::registry::Registry;
use crate::store::{Contents, StoreError};

/// What is stored, in memory.
pub struct State {
    /// Who holds what.
    pub pool: Pool,
    /// Who is a module.
    pub registry: Registry,
}

/// What a stored change means for the picture in memory.
pub(super) enum Effect {
    Freed(Allocation),
    Held(Allocation),
    Registered(Module),
    Unregistered(ModuleId),
}

impl State {
    /// The picture of what was read.
    pub(super) fn build(pool: &PoolConfig, contents: Contents) -> Result<Self, StoreError> {
        let mut state = Self { pool: Pool::new(pool.clone()), registry: Registry::default() };
        for released in contents.released {
            state.pool.remember(&released.allocation, released.at);
        }
        let now = Timestamp::now();
        state.follow(contents.allocations.into_iter().map(Effect::Held), now)?;
        state.follow(contents.modules.into_iter().map(Effect::Registered), now)?;
        Ok(state)
    }

    /// Takes over what was stored at `now`.
    pub(super) fn follow(
        &mut self,
        effects: impl IntoIterator<Item = Effect>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let contradiction = |text: String| StoreError::Contradiction(text);
        for effect in effects {
            match effect {
                Effect::Freed(allocation) => self.pool.release(&allocation, now),
                Effect::Held(allocation) => {
                    self.pool
                        .insert(allocation)
                        .map_err(|error| contradiction(error.to_string()))?;
                }
                Effect::Registered(module) => {
                    self.registry.set(module).map_err(|error| contradiction(error.to_string()))?;
                }
                Effect::Unregistered(id) => drop(self.registry.remove(&id)),
            }
        }
        Ok(())
    }
}
