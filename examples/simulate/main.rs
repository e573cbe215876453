//! Simulates months of module instances that come, grow and go on a node, and compares best fit
//! with first fit. `make simulate` runs it; what it assumes and shows is in `docs/placement.md`.

mod catalogue;
mod instance;
mod node;
mod scenario;
mod tables;
mod workload;

use std::error::Error;
use std::num::NonZeroUsize;
use std::thread;

use clap::Parser;
use portsd::allocator::pool::Fit;

use catalogue::Catalogue;
use node::{Figures, Node};
use scenario::{MONTHS, SCENARIOS, Scenario};
use tables::Comparison;

/// Compare best fit with first fit over months of simulated installs, updates and removals.
#[derive(Parser)]
struct Arguments {
    /// What all randomness follows from: the same seed gives the same figures.
    #[arg(long, env = "SEED", default_value_t = 1)]
    seed: u64,
    /// How often each scenario is run, every time with other requests.
    #[arg(long, env = "RUNS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

/// What came of one sequence of requests under either policy.
struct Run {
    best: Figures,
    first: Figures,
}

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let Arguments { seed, runs } = Arguments::parse();
    let catalogue = Catalogue::read()?;
    let mut comparisons = Vec::new();
    for scenario in SCENARIOS {
        let runs = run_all(scenario, &catalogue, &seeds(seed, runs))?;
        comparisons.push(Comparison { scenario, runs });
    }
    println!("seed {seed}; means of {runs} runs of {MONTHS} months each\n");
    println!("{}\n{}", tables::requests(&comparisons), tables::space(&comparisons));
    Ok(())
}

/// A seed for each run, so that runs of neighbouring seeds have nothing in common.
fn seeds(seed: u64, runs: u32) -> Vec<u64> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..runs).map(|_| rng.u64(..)).collect()
}

/// The runs in the order of their seeds, on all processors.
fn run_all(scenario: &Scenario, catalogue: &Catalogue, seeds: &[u64]) -> Result<Vec<Run>, Failure> {
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let share = seeds.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let run = |seed: &u64| run_once(scenario, catalogue, *seed);
        let workers: Vec<_> = seeds
            .chunks(share)
            .map(|seeds| scope.spawn(move || seeds.iter().map(run).collect::<Result<Vec<_>, _>>()))
            .collect();
        let mut runs = Vec::new();
        for worker in workers {
            runs.extend(worker.join().map_err(|_| "a run has panicked")??);
        }
        Ok(runs)
    })
}

/// One sequence of requests, carried out on two pools that differ in nothing but the policy.
fn run_once(scenario: &Scenario, catalogue: &Catalogue, seed: u64) -> Result<Run, Failure> {
    let requests = workload::generate(scenario, catalogue, seed)?;
    let replay = |fit| Node::new(scenario, fit)?.replay(&requests);
    Ok(Run { best: replay(Fit::Best)?, first: replay(Fit::First)? })
}

#[cfg(test)]
mod tests;
