//! What one owner can be given at one moment.

use std::collections::BTreeMap;

use super::{Conditions, Pool, largest};
use crate::allocator::ports::PortSet;
use crate::model::{Allocation, Owner, PortCount, PortRange, Protocol, Timestamp};

/// Which of the free blocks that are large enough is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fit {
    /// The smallest, the lowest of several.
    #[default]
    Best,
    /// The lowest. The service never uses it; it is what [`Fit::Best`] is measured against, see
    /// `docs/placement.md`.
    First,
}

impl Fit {
    /// The low end of the block of choice, as many ports as asked for.
    fn choose(self, gaps: &[PortRange], ports: PortCount) -> Option<PortRange> {
        // lowest first, of which `min_by_key` returns the first
        let mut fitting = gaps.iter().filter(|gap| gap.count() >= ports);
        let gap = match self {
            Self::Best => fitting.min_by_key(|gap| gap.count()),
            Self::First => fitting.next(),
        };
        gap.and_then(|gap| PortRange::with_count(gap.start(), ports))
    }
}

/// The ports that an owner can get at the same numbers in one or more protocols.
pub(super) struct Room {
    pool: PortRange,
    fit: Fit,
    /// Held, bound by some process, or excluded.
    taken: PortSet,
    /// Of the others, those that somebody else freed a short while ago.
    quarantined: BTreeMap<u16, Timestamp>,
}

impl Pool {
    /// The room for `owner` in all of `protocols`, as if what is `replaced` were free. A port that
    /// is bound inside the owner's own range is the owner at work.
    pub(super) fn room(
        &self,
        owner: &Owner,
        protocols: &[Protocol],
        replaced: &[&Allocation],
        conditions: Conditions<'_>,
    ) -> Room {
        let mut taken = PortSet::new();
        let mut quarantined = BTreeMap::new();
        for protocol in protocols {
            let space = self.space(*protocol);
            let mut here = space.taken.clone();
            self.bound(&mut here, *protocol, conditions);
            for allocation in replaced.iter().filter(|one| one.protocol == *protocol) {
                here.remove(allocation.range);
            }
            taken.union(&here);
            for (port, freed) in &space.freed {
                if self.is_young(freed.at, conditions.now) && freed.owner != *owner {
                    let at = quarantined.entry(*port).or_insert(freed.at);
                    *at = freed.at.max(*at);
                }
            }
        }
        self.exclude(&mut taken);
        Room { pool: self.config.range, fit: self.fit, taken, quarantined }
    }
}

impl Room {
    /// Whether the range can be given.
    pub(super) fn fits(&self, range: PortRange) -> bool {
        self.pool.contains(range) && self.taken.is_disjoint(range)
    }

    /// Whether the range can be given without reaching into what others have just freed.
    fn is_rested(&self, range: PortRange) -> bool {
        self.fits(range) && self.quarantined.range(range.start()..=range.end()).next().is_none()
    }

    /// A place for so many ports: at the first of the `favoured` starts where they fit, else at
    /// the low end of the block that [`Fit`] chooses. What others have just freed is used only when
    /// nothing else fits, oldest first. The error is the size of the largest block.
    pub(super) fn place(
        &self,
        ports: PortCount,
        favoured: impl IntoIterator<Item = u16>,
    ) -> Result<PortRange, u16> {
        let mut favoured =
            favoured.into_iter().filter_map(|start| PortRange::with_count(start, ports));
        if let Some(range) = favoured.find(|range| self.is_rested(*range)) {
            return Ok(range);
        }
        let mut times: Vec<_> = self.quarantined.values().copied().collect();
        times.sort_unstable();
        times.dedup();
        // first with none of the quarantined ports, then with the oldest, and so on
        let limits = std::iter::once(None).chain(times.into_iter().map(Some));
        for limit in limits {
            if let Some(range) = self.fit.choose(&self.gaps(limit), ports) {
                return Ok(range);
            }
        }
        Err(largest(&self.taken.gaps(self.pool)))
    }

    /// The free blocks, with quarantined ports that were freed until `limit`.
    fn gaps(&self, limit: Option<Timestamp>) -> Vec<PortRange> {
        let mut taken = self.taken.clone();
        let kept = self.quarantined.iter().filter(|(_, at)| limit.is_none_or(|limit| **at > limit));
        taken.extend(kept.filter_map(|(port, _)| PortRange::new(*port, *port).ok()));
        taken.gaps(self.pool)
    }
}
