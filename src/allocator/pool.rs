//! What is held, what was freed, and where ranges go. Pure: it plans and does no I/O.
//!
//! What this module promises: ranges never overlap, nothing new lies outside the pool, and no
//! range moves that need not.

mod allocate;
mod claim;
mod deallocate;
mod ensure;
mod import;
mod room;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::bound::BoundPorts;
use super::ports::PortSet;
use crate::config::PoolConfig;
use crate::error::Error;
use crate::model::{Allocation, Owner, PortRange, Protocol, RangeName, Timestamp};
use crate::reply::PoolStatus;

pub use allocate::Wish;
pub use claim::Claim;
pub use deallocate::Release;
pub use ensure::NamedWish;
pub use import::Import;
pub use room::Fit;

/// What is held, in both protocols, what was freed, and the rules of the pool.
#[derive(Clone)]
pub struct Pool {
    config: PoolConfig,
    fit: Fit,
    tcp: Space,
    udp: Space,
}

/// One protocol's port numbers. Invariant: `allocations` do not overlap, `taken` is their union,
/// `by_owner` has the start of each, and no port of `freed` is taken.
#[derive(Clone)]
struct Space {
    allocations: BTreeMap<u16, Allocation>,
    by_owner: HashMap<Owner, BTreeSet<u16>>,
    taken: PortSet,
    /// Who freed a port last, and when.
    freed: BTreeMap<u16, Arc<Freed>>,
    /// Where an owner's range of that name was when it was freed last.
    last: HashMap<(Owner, Option<RangeName>), PortRange>,
}

struct Freed {
    owner: Owner,
    at: Timestamp,
}

/// Two ranges of one protocol share a port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{protocol} {range} of {owner} overlaps {other_range} of {other}")]
pub struct Overlap {
    protocol: Protocol,
    range: PortRange,
    owner: Owner,
    other_range: PortRange,
    other: Owner,
}

/// What a plan depends on besides what is stored.
#[derive(Clone, Copy)]
pub struct Conditions<'a> {
    /// The moment of the call.
    pub now: Timestamp,
    /// Ports that some process has bound.
    pub bound: &'a BoundPorts,
}

/// How to carry out a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// What stays as it is.
    pub kept: Vec<Allocation>,
    /// What to change, in this order.
    pub edits: Vec<Edit>,
}

impl Plan {
    /// Whether the plan gives ports that the owner does not hold.
    #[must_use]
    pub fn takes_ports(&self) -> bool {
        self.edits.iter().any(|edit| match edit {
            Edit::Place { .. } => true,
            Edit::Resize(from, to) => !from.range.contains(*to),
            Edit::Free(_) | Edit::Cut(..) | Edit::Give(..) => false,
        })
    }
}

/// One change of what is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// The range goes.
    Free(Allocation),
    /// The ports go out of the range, at an end or in the middle.
    Cut(Allocation, PortRange),
    /// The range gets another end.
    Resize(Allocation, PortRange),
    /// A new range.
    Place {
        /// Whose.
        owner: Owner,
        /// In which protocol.
        protocol: Protocol,
        /// Its name.
        name: Option<RangeName>,
        /// Its ports.
        range: PortRange,
        /// Whether an administrator fixed them.
        claimed: bool,
    },
    /// The range gets another owner.
    Give(Allocation, Owner),
}

impl Pool {
    /// An empty pool.
    #[must_use]
    pub fn new(config: PoolConfig) -> Self {
        Self::with_fit(config, Fit::default())
    }

    /// An empty pool that chooses among free blocks by `fit`.
    #[must_use]
    pub fn with_fit(config: PoolConfig, fit: Fit) -> Self {
        Self { config, fit, tcp: Space::new(), udp: Space::new() }
    }

    /// Takes in a range as it is stored. It may lie outside the pool, but overlap nothing.
    pub fn insert(&mut self, allocation: Allocation) -> Result<(), Overlap> {
        self.space_mut(allocation.protocol).insert(allocation)
    }

    /// Drops a range that was freed at `at`, and remembers whose it was.
    pub fn release(&mut self, allocation: &Allocation, at: Timestamp) {
        self.space_mut(allocation.protocol).remove(allocation.range.start());
        self.remember(allocation, at);
    }

    /// Remembers a range that was freed at `at`, where it is not held by now.
    pub fn remember(&mut self, allocation: &Allocation, at: Timestamp) {
        self.space_mut(allocation.protocol).remember(allocation, at);
    }

    /// Every range that passes the filters, ordered by protocol and start.
    #[must_use]
    pub fn list(&self, owner: Option<&Owner>, protocol: Option<Protocol>) -> Vec<Allocation> {
        Protocol::ALL
            .into_iter()
            .filter(|candidate| protocol.is_none_or(|wanted| wanted == *candidate))
            .flat_map(|candidate| self.space(candidate).list(owner))
            .cloned()
            .collect()
    }

    /// Frees everything that `goes` picks, claims included.
    pub fn plan_removal(&self, goes: impl Fn(&Allocation) -> bool) -> Plan {
        let held = Protocol::ALL.into_iter().flat_map(|protocol| self.space(protocol).list(None));
        let edits = held.filter(|one| goes(one)).cloned().map(Edit::Free).collect();
        Plan { kept: Vec::new(), edits }
    }

    /// How full the pool is.
    #[must_use]
    pub fn status(&self, protocol: Protocol, conditions: Conditions<'_>) -> PoolStatus {
        let space = self.space(protocol);
        let pool = self.config.range;
        let allocated = space.taken.count(pool);
        let mut taken = space.taken.clone();
        self.exclude(&mut taken);
        let usable = u32::from(pool.count().get()) - taken.count(pool) + allocated;
        let unbound = count_ports(&taken.gaps(pool));
        self.bound(&mut taken, protocol, conditions);
        let gaps = taken.gaps(pool);
        let free = count_ports(&gaps);
        let young = |freed: &Freed| self.is_young(freed.at, conditions.now);
        let quarantined = space
            .freed
            .iter()
            .filter(|(port, freed)| !taken.has(**port) && pool.has(**port) && young(freed));
        PoolStatus {
            protocol,
            range: pool,
            total: usable,
            allocated,
            free,
            quarantined: u32::try_from(quarantined.count()).unwrap_or(u32::MAX),
            bound: unbound - free,
            largest_free: largest(&gaps),
            allocations: space.allocations.len(),
        }
    }

    /// Whether ports that were freed at `at` are still kept from others at `now`. A clock that went
    /// back makes nothing older than it is.
    fn is_young(&self, at: Timestamp, now: Timestamp) -> bool {
        let age = u64::from(now.as_unix().saturating_sub(at.as_unix()));
        age < self.config.quarantine.as_secs()
    }

    /// Where the owner's range of that name was when it was freed last.
    fn last_start(
        &self,
        protocol: Protocol,
        owner: &Owner,
        name: Option<&RangeName>,
    ) -> Option<u16> {
        let key = (owner.clone(), name.cloned());
        self.space(protocol).last.get(&key).map(|range| range.start())
    }

    fn bound(&self, ports: &mut PortSet, protocol: Protocol, conditions: Conditions<'_>) {
        if self.config.skip_bound {
            ports.union(conditions.bound.of(protocol));
        }
    }

    /// Whether plans depend on which ports are bound.
    #[must_use]
    pub const fn skips_bound(&self) -> bool {
        self.config.skip_bound
    }

    fn exclude(&self, ports: &mut PortSet) {
        for range in &self.config.exclude {
            ports.insert(*range);
        }
    }

    const fn space(&self, protocol: Protocol) -> &Space {
        match protocol {
            Protocol::Tcp => &self.tcp,
            Protocol::Udp => &self.udp,
        }
    }

    const fn space_mut(&mut self, protocol: Protocol) -> &mut Space {
        match protocol {
            Protocol::Tcp => &mut self.tcp,
            Protocol::Udp => &mut self.udp,
        }
    }
}

/// For a module, the sum after the call may not pass its demand: the ports that it holds `before`,
/// claims aside, less those `freed`, and those `requested`. A demand that was lowered below what
/// the module holds only stops growth.
fn check_demand(demand: Option<u16>, before: u32, freed: u32, requested: u16) -> Result<(), Error> {
    let Some(demand) = demand else { return Ok(()) };
    let after = before - freed + u32::from(requested);
    if after > u32::from(demand) && after > before {
        return Err(Error::DemandExceeded { requested, allocated: before, demand });
    }
    Ok(())
}

/// The ports of the ranges that count as demand: all but claims.
fn counted<'a>(held: impl IntoIterator<Item = &'a Allocation>) -> u32 {
    let ranges = held.into_iter().filter(|one| !one.claimed).map(|one| one.range);
    count_ports(&ranges.collect::<Vec<_>>())
}

fn count_ports(ranges: &[PortRange]) -> u32 {
    ranges.iter().map(|range| u32::from(range.count().get())).sum()
}

fn largest(gaps: &[PortRange]) -> u16 {
    gaps.iter().map(|gap| gap.count().get()).max().unwrap_or(0)
}

impl Space {
    fn new() -> Self {
        Self {
            allocations: BTreeMap::new(),
            by_owner: HashMap::new(),
            taken: PortSet::new(),
            freed: BTreeMap::new(),
            last: HashMap::new(),
        }
    }

    fn insert(&mut self, allocation: Allocation) -> Result<(), Overlap> {
        let range = allocation.range;
        if let Some(other) = self.overlapping(range).next() {
            return Err(Overlap {
                protocol: allocation.protocol,
                range,
                owner: allocation.owner,
                other_range: other.range,
                other: other.owner.clone(),
            });
        }
        self.taken.insert(range);
        let ports: Vec<u16> =
            self.freed.range(range.start()..=range.end()).map(|(port, _)| *port).collect();
        for port in ports {
            self.freed.remove(&port);
        }
        self.by_owner.entry(allocation.owner.clone()).or_default().insert(range.start());
        self.allocations.insert(range.start(), allocation);
        Ok(())
    }

    /// The ranges that share a port with `range`, the highest first: the last ones that begin before
    /// its end, since ranges don't overlap each other.
    fn overlapping(&self, range: PortRange) -> impl Iterator<Item = &Allocation> {
        let below = self.allocations.range(..=range.end()).rev().map(|(_, other)| other);
        below.take_while(move |other| other.range.overlaps(range))
    }

    fn remove(&mut self, start: u16) {
        let Some(allocation) = self.allocations.remove(&start) else { return };
        self.taken.remove(allocation.range);
        if let Some(starts) = self.by_owner.get_mut(&allocation.owner) {
            starts.remove(&start);
            if starts.is_empty() {
                self.by_owner.remove(&allocation.owner);
            }
        }
    }

    fn remember(&mut self, allocation: &Allocation, at: Timestamp) {
        let Allocation { owner, name, range, .. } = allocation;
        let freed = Arc::new(Freed { owner: owner.clone(), at });
        for port in range.start()..=range.end() {
            if !self.taken.has(port) {
                self.freed.insert(port, Arc::clone(&freed));
            }
        }
        // what an administrator fixed is not what the owner would be given
        if !allocation.claimed {
            self.last.insert((owner.clone(), name.clone()), *range);
        }
    }

    fn list(&self, owner: Option<&Owner>) -> Box<dyn Iterator<Item = &Allocation> + '_> {
        match owner {
            None => Box::new(self.allocations.values()),
            Some(owner) => Box::new(
                self.by_owner
                    .get(owner)
                    .into_iter()
                    .flatten()
                    .filter_map(|start| self.allocations.get(start)),
            ),
        }
    }
}

#[cfg(test)]
mod tests;
