//! Who is a module, which Unix user it runs as, and what it may have.

mod labels;
mod local;

pub use labels::{Labels, PORTSADM};
pub use local::Registry;
