//! portsd hands out TCP and UDP port ranges to the modules of a NethServer 8 node.
//!
//! A call travels in one direction through these modules:
//!
//! ```text
//! listener -> {peer, protocol} -> service -> {policy, registry, allocator -> store}
//! ```
//!
//! [`protocol`] turns bytes into a [`request::Request`] and a [`reply::Reply`] back into bytes;
//! [`service`] is the one door behind it; [`policy`] and [`allocator::pool`] decide without any
//! I/O; [`store`] holds all SQL. Everything may use [`model`] and [`error`].
//!
//! The command line is on the other side of a socket: [`cli`] uses [`client`], and
//! [`import`] for what another allocator has kept.

pub mod activation;
pub mod allocator;
pub mod cli;
pub mod client;
pub mod config;
pub mod daemon;
pub mod error;
pub mod import;
pub mod journal;
pub mod listener;
pub mod model;
pub mod peer;
pub mod policy;
pub mod protocol;
pub mod redis_stream;
pub mod redis_url;
pub mod registry;
pub mod reply;
pub mod request;
pub mod service;
pub mod store;
