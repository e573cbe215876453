//! Who gets which ports: the thread that owns the database, and the pure placement it asks.

mod actor;
pub mod bound;
mod change;
pub mod pool;
mod ports;
mod state;

pub use actor::{Allocator, LOCK_PATIENCE, start};
pub(crate) use change::plan_reclaim;
pub use change::{Change, Changed, Gone, Outcome};
pub(crate) use state::take_in;
pub use state::{Effect, Effects, State};
