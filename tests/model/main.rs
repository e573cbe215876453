//! All operations of a real daemon, held against a model that thinks in single ports.
//!
//! Random calls go over both wires while the daemon is stopped, killed and started again in
//! between. The model says of each call beforehand what its reply or refusal will be, and of the
//! daemon what it then holds. `make model SEED=… STEPS=…` repeats a run or makes a longer one; two
//! runs of one seed may differ where the second counts in which ports were freed.

#[path = "../support/mod.rs"]
mod support;

mod driver;
mod naive;
mod steps;

use std::time::SystemTime;

use driver::{DAY, Run, Tally};
use fastrand::Rng;

const STEPS: u32 = 4_000;
/// So many steps with one daemon at the most: what it has stored goes on growing.
const STEPS_OF_A_DAEMON: u32 = 10_000;

const SEED_VARIABLE: &str = "PORTSD_MODEL_SEED";
const STEPS_VARIABLE: &str = "PORTSD_MODEL_STEPS";

#[test]
fn the_daemon_does_what_the_model_does() {
    run("freed ports go to others at once", 0, &AT_ONCE);
}

#[test]
fn the_daemon_does_what_the_model_does_while_freed_ports_rest() {
    run("freed ports rest for a day", DAY, &AT_REST);
}

/// What has to have come of an operation.
type Outcomes = (&'static str, &'static [&'static str]);

/// Every way of granting a call and every condition of refusing it, so that no run is trivial. In a
/// run of the usual length most of them come dozens of times, the rarest a dozen times.
const EXPECTED: [Outcomes; 28] = [
    ("Allocate", &["kept", "grown", "shrunk", "returned", "behind", "best fit"]),
    ("Allocate", &["DemandExceeded", "PoolExhausted", "InvalidParameter"]),
    ("Allocate", &["MissingRole", "PermissionDenied", "UnknownModule"]),
    ("Ensure", &["kept", "grown", "shrunk", "returned", "behind", "best fit"]),
    ("Ensure", &["same numbers in another protocol"]),
    ("Ensure", &["DemandExceeded", "PoolExhausted", "CannotGrow", "NameTaken"]),
    ("Ensure", &["InvalidParameter", "MissingRole", "PermissionDenied", "UnknownModule"]),
    ("Deallocate", &["all", "by name", "exact ports", "trimmed", "split", "across ranges"]),
    ("Deallocate", &["NotAllocated", "PermissionDenied for a claim", "InvalidParameter"]),
    ("Deallocate", &["MissingRole", "UnknownModule"]),
    ("Claim", &["inside the pool", "outside the pool"]),
    ("Claim", &["Occupied", "NameTaken", "InvalidParameter"]),
    ("Transfer", &["everything", "nothing"]),
    ("Transfer", &["NameTaken", "InvalidParameter"]),
    ("SetModule", &["registered", "replaced", "as it was", "role revoked", "demand lowered"]),
    ("SetModule", &["InvalidParameter"]),
    ("RemoveModule", &["registered", "with a helper", "not registered"]),
    ("RemoveModule", &["InvalidParameter"]),
    ("Reclaim", &["dry run", "for good", "nothing"]),
    ("Reclaim", &["RegistryUnavailable"]),
    ("List", &["answered"]),
    ("List", &["InvalidParameter"]),
    ("History", &["answered"]),
    ("History", &["InvalidParameter"]),
    ("GetStatus", &["answered"]),
    ("ListModules", &["answered"]),
    ("restart", &["stopped", "killed"]),
    ("time passes", &["some time", "more than a day"]),
];
/// Besides, where ports do not rest: a move to a free block.
const AT_ONCE: [Outcomes; 2] =
    [("Allocate", &["moved, best fit"]), ("Ensure", &["moved, best fit"])];
/// Besides, where they do: what is placed among resting ports, since nothing else fits.
const AT_REST: [Outcomes; 2] =
    [("Allocate", &["resting", "moved, resting"]), ("Ensure", &["resting", "moved, resting"])];

fn number<T: std::str::FromStr>(variable: &str) -> Option<T> {
    let text = std::env::var(variable).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// A seed that no other run has.
fn fresh_seed() -> u64 {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    now.as_secs() * 1_000_000 + u64::from(now.subsec_micros())
}

fn run(title: &str, rest: u64, besides: &[Outcomes]) {
    let seed = number(SEED_VARIABLE).unwrap_or_else(fresh_seed);
    let steps = number(STEPS_VARIABLE).unwrap_or(STEPS);
    println!("{title}: {SEED_VARIABLE}={seed} {STEPS_VARIABLE}={steps}");
    let (mut rng, mut tally) = (Rng::with_seed(seed), Tally::new());
    let mut left = steps;
    while left > 0 {
        let some = left.min(STEPS_OF_A_DAEMON);
        let (next, counted) = Run::start(seed, rng, rest).take(some);
        rng = next;
        for (outcome, count) in counted {
            *tally.entry(outcome).or_default() += count;
        }
        left -= some;
    }
    print_summary(title, seed, steps, &tally);
    if steps >= STEPS {
        assert_nothing_is_missing(seed, &tally, EXPECTED.iter().chain(besides));
    }
}

fn print_summary(title: &str, seed: u64, steps: u32, tally: &Tally) {
    println!("{title}, seed {seed}: {steps} steps");
    for ((what, outcome), count) in tally {
        println!("  {count:5}  {what}: {outcome}");
    }
}

fn assert_nothing_is_missing<'a>(
    seed: u64,
    tally: &Tally,
    expected: impl Iterator<Item = &'a Outcomes>,
) {
    for (what, outcomes) in expected {
        for outcome in *outcomes {
            let has_come = tally.contains_key(&(*what, (*outcome).to_owned()));
            assert!(has_come, "seed {seed}: {what} has never come to {outcome:?}");
        }
    }
}
