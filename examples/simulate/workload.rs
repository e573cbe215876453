//! The requests of a run. They follow from the seed alone, never from what was granted, so that
//! every policy gets the same.

use std::ops::RangeInclusive;

use fastrand::Rng;
use portsd::model::{Owner, PortCount, Protocol, Protocols, RangeName, Timestamp};

use crate::Failure;
use crate::catalogue::{Catalogue, Module};
use crate::instance::Instance;
use crate::scenario::{DAY, NETHVOICES, Scenario};

/// When the simulated time begins; any moment would do.
pub const BEGINNING: u32 = 1_700_000_000;

/// From this size on, a node has one instance of a module at a time: nobody runs
/// BigBlueButton or the LDAP proxy twice.
const ONE_AT_A_TIME: u16 = 1000;

/// A call, and when it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub at: Timestamp,
    pub owner: Owner,
    pub call: Call,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    Allocate {
        protocol: Protocol,
        ports: PortCount,
        keep_existing: bool,
    },
    Ensure {
        name: RangeName,
        ports: PortCount,
        protocols: Protocols,
        may_move: bool,
    },
    /// Deallocate of so many ports of the lowest unnamed range, from its `skip`th on.
    GiveBack {
        protocol: Protocol,
        ports: u16,
        skip: u16,
    },
    /// Deallocate of all.
    Free {
        protocol: Protocol,
    },
    Remove,
}

/// All requests of a run, in the order of time.
pub fn generate(
    scenario: &Scenario,
    catalogue: &Catalogue,
    seed: u64,
) -> Result<Vec<Request>, Failure> {
    let end = scenario.days * DAY;
    let mut workload =
        Workload { scenario, rng: Rng::with_seed(seed), end, instances: 0, requests: Vec::new() };
    for _ in 0..NETHVOICES {
        workload.nethvoice()?;
    }
    workload.published(catalogue)?;
    let mut requests = workload.requests;
    requests.retain(|request| request.at < Timestamp::from_unix(BEGINNING + end));
    // stable: the calls of one second stay in their order
    requests.sort_by_key(|request| request.at);
    Ok(requests)
}

struct Workload<'a> {
    scenario: &'a Scenario,
    rng: Rng,
    /// In seconds since the beginning, like all times here.
    end: u32,
    instances: u32,
    requests: Vec<Request>,
}

impl Workload<'_> {
    /// One of the twelve: it comes in the first year and is taken away and installed again, every
    /// time under a new name, as an instance that is restored.
    fn nethvoice(&mut self) -> Result<(), Failure> {
        let module = Module::nethvoice();
        let mut arrival = self.rng.u32(..self.end / 2);
        while arrival < self.end {
            let leaves = arrival + self.days(&self.scenario.nethvoice_stays);
            self.instance(&module, arrival, leaves)?;
            // minutes later at the earliest
            let away = self.days(&self.scenario.nethvoice_is_away);
            arrival = leaves + away + self.rng.u32(60..DAY);
        }
        Ok(())
    }

    /// Instances of the published modules, all of them equally often.
    fn published(&mut self, catalogue: &Catalogue) -> Result<(), Failure> {
        let (every, largest) = (self.scenario.install_every, self.scenario.largest_module);
        let modules: Vec<_> =
            catalogue.modules.iter().filter(|one| one.size() <= largest).collect();
        let mut gone = vec![0; modules.len()];
        let mut arrival = self.around(every);
        while arrival < self.end {
            let choice = self.rng.usize(..modules.len());
            let (module, leaves) = (modules[choice], arrival + self.stay());
            if module.size() < ONE_AT_A_TIME || gone[choice] <= arrival {
                gone[choice] = leaves;
                self.instance(module, arrival, leaves)?;
            }
            arrival += self.around(every);
        }
        Ok(())
    }

    /// Half of the instances are trials, a fifth stays for years.
    fn stay(&mut self) -> u32 {
        match self.rng.u32(..10) {
            0..5 => self.days(&(1..=14)),
            5..8 => self.days(&(30..=180)),
            _ => self.days(&(365..=1500)),
        }
    }

    /// All that one instance ever asks for.
    fn instance(&mut self, module: &Module, arrival: u32, leaves: u32) -> Result<(), Failure> {
        self.instances += 1;
        let owner = Owner::parse(&format!("{}{}", module.name, self.instances))?;
        let mut instance = Instance::new(module);
        let requests = &mut self.requests;
        let mut push = |at: u32, calls: Vec<Call>| {
            let at = Timestamp::from_unix(BEGINNING + at);
            requests.extend(calls.into_iter().map(|call| Request {
                at,
                owner: owner.clone(),
                call,
            }));
        };
        push(arrival, instance.install()?);
        let every = self.scenario.change_every;
        let mut at = arrival + self.rng.u32(0..=2 * every);
        while at < leaves.min(self.end) {
            push(at, instance.change(&mut self.rng)?);
            at += self.rng.u32(0..=2 * every);
        }
        push(leaves, vec![Call::Remove]);
        Ok(())
    }

    fn days(&mut self, days: &RangeInclusive<u32>) -> u32 {
        self.rng.u32(days.start() * DAY..=days.end() * DAY)
    }

    /// A time that is `mean` on average.
    fn around(&mut self, mean: u32) -> u32 {
        self.rng.u32(0..=2 * mean)
    }
}
