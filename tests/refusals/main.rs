//! A call that ends in an error has changed nothing: any number of refused calls, of every
//! condition, over both wires, leaves the database and the picture in memory exactly as they were.

#[path = "../support/mod.rs"]
mod support;

mod attempts;
mod calls;
mod fixture;

use std::cell::RefCell;
use std::collections::BTreeMap;

use attempts::{Attempt, Wires};
use calls::Call;
use fixture::{Fixture, dump, replies, without_times};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{TestCaseError, TestRunner};
use serde_json::{Value, json};
use support::{ADMIN, Daemon, PORTS, Refusal, both_wires};

const CASES: u32 = 64;

/// What has to have been met in so many cases. Each is expected a dozen times and more.
const MET: [&str; 17] = [
    "CannotGrow",
    "DemandExceeded",
    "InvalidParameter",
    "MethodNotFound",
    "MissingRole",
    "NameTaken",
    "NotAllocated",
    "Occupied",
    "PermissionDenied",
    "PoolExhausted",
    "UnknownModule",
    "a batch",
    "a batch that is too large",
    "a faulty envelope",
    "a faulty message",
    "a notification",
    "a oneway call",
];

#[test]
fn refused_calls_change_nothing() {
    let fixture = Fixture::new();
    let met = RefCell::new(BTreeMap::new());
    let case =
        (prop::collection::vec(attempts::any(), 1..30), any::<bool>(), select(calls::granted()));
    let config = ProptestConfig {
        cases: CASES,
        max_shrink_iters: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let result = TestRunner::new(config).run(&case, |(attempts, restarts, granted)| {
        for attempt in &attempts {
            *met.borrow_mut().entry(attempt.kind()).or_insert(0) += 1;
        }
        check(&fixture, &attempts, restarts, &granted)
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    let met = met.into_inner();
    println!("{met:#?}");
    assert_eq!(met.into_keys().collect::<Vec<_>>(), MET);
}

/// Makes the attempts, and holds the daemon against what it was, and against one without them.
fn check(
    fixture: &Fixture,
    attempts: &[Attempt],
    restarts: bool,
    granted: &Call,
) -> Result<(), TestCaseError> {
    let (mut daemon, twin) = (fixture.start(), fixture.start());
    let before = (dump(&daemon), replies(&daemon));
    let mut wires = Wires::connect(&daemon);
    for attempt in attempts {
        wires.refuse(attempt);
    }
    prop_assert_eq!(&(dump(&daemon), replies(&daemon)), &before);
    // without a restart, the picture in memory is the one that has met the refusals
    if restarts {
        daemon.kill();
        daemon.restart();
        prop_assert_eq!(&(dump(&daemon), replies(&daemon)), &before);
    }
    prop_assert_eq!(after(&daemon, granted), after(&twin, granted));
    Ok(())
}

/// The reply to a call that is granted, where anybody then gets a port, and what is to be seen.
fn after(daemon: &Daemon, call: &Call) -> Vec<Value> {
    let mut wires = Wires::connect(daemon);
    let mut told = vec![wires.over_varlink(call).unwrap()];
    for owner in ["m1", "m2", "m3", "m1_rsync", "host/proxy", "new"] {
        for protocol in ["tcp", "udp"] {
            let parameters =
                json!({ "ports": 1, "protocol": protocol, "keepExisting": true, "owner": owner });
            let another = Call::new(PORTS, "Allocate", parameters);
            told.push(wires.over_varlink(&another).unwrap());
        }
    }
    told.extend(replies(daemon));
    told.into_iter().map(without_times).collect()
}

#[test]
fn nothing_is_reclaimed_where_no_module_is_registered() {
    let daemon = Daemon::start();
    let owner = json!({ "owner": "gone", "ports": 4, "protocol": "tcp" });
    daemon.admin().call(PORTS, "Allocate", owner).unwrap();
    let before = (dump(&daemon), replies(&daemon));
    for mut wire in both_wires(&daemon, true, None) {
        for dry_run in [true, false] {
            let refused = wire.call(ADMIN, "Reclaim", json!({ "dryRun": dry_run }));
            assert_eq!(refused, Err(Refusal::new("RegistryUnavailable", json!({}))));
        }
    }
    assert_eq!((dump(&daemon), replies(&daemon)), before);
}
