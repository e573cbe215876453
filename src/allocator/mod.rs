//! Who gets which ports: the thread that owns the database, and the pure placement it asks.

mod actor;
pub mod pool;
mod ports;

pub use actor::{Allocator, Change, Outcome, State, start};
