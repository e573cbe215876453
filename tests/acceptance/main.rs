//! What the people who asked for this wrote down, sentence by sentence, on real parts.

#[path = "../support/mod.rs"]
mod support;

mod node_actions;
