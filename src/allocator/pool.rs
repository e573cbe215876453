//! Where ranges go. Pure: it plans against what is held and does no I/O.
//!
//! What this module promises: ranges never overlap, nothing new lies outside the pool, and no
//! range moves that need not.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::ports::PortSet;
use crate::config::PoolConfig;
use crate::error::Error;
use crate::model::{Allocation, Owner, PortCount, PortRange, Protocol};
use crate::reply::PoolStatus;

/// What is held, in both protocols, and the rules of the pool.
#[derive(Clone)]
pub struct Pool {
    config: PoolConfig,
    tcp: Space,
    udp: Space,
}

/// One protocol's port numbers. Invariant: `allocations` do not overlap, `taken` is their union,
/// and `by_owner` has the start of each.
#[derive(Clone)]
struct Space {
    allocations: BTreeMap<u16, Allocation>,
    by_owner: HashMap<Owner, BTreeSet<u16>>,
    taken: PortSet,
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

/// What an owner wants.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// Who wants it.
    pub owner: &'a Owner,
    /// In which protocol.
    pub protocol: Protocol,
    /// How many ports.
    pub ports: PortCount,
    /// Whether it is one more range, or the only unnamed one afterwards.
    pub keep_existing: bool,
    /// How many ports the owner may hold in all; `None` for no check.
    pub demand: Option<u16>,
}

/// How to grant a wish: first free these ranges, then take the step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Ranges of the same owner that go.
    pub freed: Vec<Allocation>,
    /// What gives the owner the range.
    pub step: Step,
}

/// What gives an owner the range it wished for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// It has the range already.
    Keep(Allocation),
    /// A range it has gets another end.
    Resize(Allocation, PortRange),
    /// A new range.
    Place(PortRange),
}

impl Pool {
    /// An empty pool.
    #[must_use]
    pub fn new(config: PoolConfig) -> Self {
        Self { config, tcp: Space::new(), udp: Space::new() }
    }

    /// Takes in a range as it is stored. It may lie outside the pool, but overlap nothing.
    pub fn insert(&mut self, allocation: Allocation) -> Result<(), Overlap> {
        self.space_mut(allocation.protocol).insert(allocation)
    }

    /// Drops the range that starts at `allocation`'s start.
    pub fn remove(&mut self, allocation: &Allocation) {
        self.space_mut(allocation.protocol).remove(allocation.range.start());
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

    /// The owners that hold anything.
    pub fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.tcp.by_owner.keys().chain(self.udp.by_owner.keys())
    }

    /// How full the pool is.
    #[must_use]
    pub fn status(&self, protocol: Protocol) -> PoolStatus {
        let space = self.space(protocol);
        let gaps = self.unavailable(protocol).gaps(self.config.range);
        let free: u32 = gaps.iter().map(|gap| u32::from(gap.count().get())).sum();
        let held: u32 = u32::from(self.config.range.count().get())
            - count_ports(&space.taken.gaps(self.config.range));
        PoolStatus {
            protocol,
            range: self.config.range,
            total: held + free,
            allocated: held,
            free,
            largest_free: largest(&gaps),
            allocations: space.allocations.len(),
        }
    }

    /// How to grant a wish, or why it can't be granted. Nothing changes.
    ///
    /// An unnamed range that has the size stays as it is. Else the one that keeps most of the
    /// owner's ports grows or shrinks in place. Else the wish gets a new place, chosen as if the
    /// ranges that it replaces were free. Named ranges and claims are never touched.
    pub fn plan(&self, wish: Wish<'_>) -> Result<Plan, Error> {
        let held: Vec<&Allocation> = self.space(wish.protocol).list(Some(wish.owner)).collect();
        let replaced: Vec<&Allocation> =
            held.iter().copied().filter(|one| !wish.keep_existing && one.is_unnamed()).collect();
        check_demand(wish, &held, &replaced)?;

        let mut unavailable = self.unavailable(wish.protocol);
        for allocation in &replaced {
            unavailable.remove(allocation.range);
        }
        // a range that is replaced may hold ports that were excluded later
        self.exclude(&mut unavailable);

        let step = match self.in_place(wish.ports, &replaced, &unavailable) {
            Some(step) => step,
            None => Step::Place(self.new_place(wish, &held, &unavailable)?),
        };
        let stays = match &step {
            Step::Keep(kept) | Step::Resize(kept, _) => Some(kept.range),
            Step::Place(_) => None,
        };
        let freed = replaced.into_iter().filter(|one| Some(one.range) != stays).cloned().collect();
        Ok(Plan { freed, step })
    }

    /// The range among `replaced` that can have the size where it is.
    fn in_place(
        &self,
        ports: PortCount,
        replaced: &[&Allocation],
        unavailable: &PortSet,
    ) -> Option<Step> {
        if let Some(same) = replaced.iter().find(|one| one.range.count() == ports) {
            return Some(Step::Keep((*same).clone()));
        }
        replaced
            .iter()
            .filter_map(|one| {
                let range = PortRange::with_count(one.range.start(), ports)?;
                let shrinks = one.range.contains(range);
                let grows = self.config.range.contains(range) && unavailable.is_disjoint(range);
                (shrinks || grows).then_some((*one, range))
            })
            .max_by_key(|(_, range)| {
                let kept: u32 = replaced.iter().map(|old| shared(old.range, *range)).sum();
                (kept, std::cmp::Reverse(range.start()))
            })
            .map(|(from, to)| Step::Resize(from.clone(), to))
    }

    /// A new place: directly behind one of the owner's own ranges when adding, else the smallest
    /// block that is large enough, the lowest of several, at its low end.
    fn new_place(
        &self,
        wish: Wish<'_>,
        held: &[&Allocation],
        unavailable: &PortSet,
    ) -> Result<PortRange, Error> {
        if wish.keep_existing {
            let behind = held
                .iter()
                .filter_map(|one| one.range.end().checked_add(1))
                .filter_map(|start| PortRange::with_count(start, wish.ports))
                .find(|at| self.config.range.contains(*at) && unavailable.is_disjoint(*at));
            if let Some(range) = behind {
                return Ok(range);
            }
        }
        let gaps = unavailable.gaps(self.config.range);
        gaps.iter()
            .filter(|gap| gap.count() >= wish.ports)
            .min_by_key(|gap| (gap.count(), gap.start()))
            .and_then(|gap| PortRange::with_count(gap.start(), wish.ports))
            .ok_or(Error::PoolExhausted {
                protocol: wish.protocol,
                requested: wish.ports.get(),
                largest_free: largest(&gaps),
            })
    }

    /// The ports that can't be given: held ones and excluded ones.
    fn unavailable(&self, protocol: Protocol) -> PortSet {
        let mut ports = self.space(protocol).taken.clone();
        self.exclude(&mut ports);
        ports
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

/// For a module, the sum after the call may not pass its demand. A demand that was lowered below
/// what the module holds only stops growth.
fn check_demand(
    wish: Wish<'_>,
    held: &[&Allocation],
    replaced: &[&Allocation],
) -> Result<(), Error> {
    let Some(demand) = wish.demand else { return Ok(()) };
    let counted = held.iter().filter(|one| !one.claimed).map(|one| one.range);
    let before = count_ports(&counted.collect::<Vec<_>>());
    let freed = count_ports(&replaced.iter().map(|one| one.range).collect::<Vec<_>>());
    let after = before - freed + u32::from(wish.ports.get());
    if after > u32::from(demand) && after > before {
        return Err(Error::DemandExceeded {
            requested: wish.ports.get(),
            allocated: before,
            demand,
        });
    }
    Ok(())
}

fn count_ports(ranges: &[PortRange]) -> u32 {
    ranges.iter().map(|range| u32::from(range.count().get())).sum()
}

fn largest(gaps: &[PortRange]) -> u16 {
    gaps.iter().map(|gap| gap.count().get()).max().unwrap_or(0)
}

/// How many ports the two have in common.
fn shared(a: PortRange, b: PortRange) -> u32 {
    PortRange::new(a.start().max(b.start()), a.end().min(b.end()))
        .map_or(0, |both| u32::from(both.count().get()))
}

impl Space {
    fn new() -> Self {
        Self { allocations: BTreeMap::new(), by_owner: HashMap::new(), taken: PortSet::new() }
    }

    fn insert(&mut self, allocation: Allocation) -> Result<(), Overlap> {
        let range = allocation.range;
        let below = self.allocations.range(..=range.end()).next_back();
        if let Some((_, other)) = below.filter(|(_, other)| other.range.overlaps(range)) {
            return Err(Overlap {
                protocol: allocation.protocol,
                range,
                owner: allocation.owner,
                other_range: other.range,
                other: other.owner.clone(),
            });
        }
        self.taken.insert(range);
        self.by_owner.entry(allocation.owner.clone()).or_default().insert(range.start());
        self.allocations.insert(range.start(), allocation);
        Ok(())
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
