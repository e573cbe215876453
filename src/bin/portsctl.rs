//! The administrator's command line.
fn main() {}
