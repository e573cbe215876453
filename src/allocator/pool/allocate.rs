//! The plan of Allocate.

use std::cmp::Reverse;

use super::room::Room;
use super::{Conditions, Edit, Plan, Pool, check_demand, counted};
use crate::error::Error;
use crate::model::{Allocation, Owner, PortCount, PortRange, Protocol};

/// What Allocate is asked for.
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

impl Pool {
    /// How to grant a wish, or why it can't be granted. Nothing changes.
    ///
    /// An unnamed range that has the size stays as it is. Else the one that keeps most of the
    /// owner's ports grows or shrinks in place. Of several, the one that is held longest: that of a
    /// module which gave its ports to this one is older than what this one was given itself. Else
    /// the wish gets a new place, chosen as if the ranges that it replaces were free. Named ranges
    /// and claims are never touched.
    pub fn plan_allocate(&self, wish: Wish<'_>, conditions: Conditions<'_>) -> Result<Plan, Error> {
        let Wish { owner, protocol, ports, keep_existing, demand } = wish;
        let held: Vec<&Allocation> = self.space(protocol).list(Some(owner)).collect();
        let replaced: Vec<&Allocation> =
            held.iter().copied().filter(|one| !keep_existing && one.is_unnamed()).collect();
        let freed = counted(replaced.iter().copied());
        check_demand(demand, counted(held.iter().copied()), freed, ports.get())?;

        let same = replaced.iter().filter(|one| one.range.count() == ports);
        if let Some(same) = same.min_by_key(|one| one.held_since()) {
            return Ok(Plan { kept: vec![(*same).clone()], edits: frees(&replaced, Some(same)) });
        }
        let room = self.room(owner, &[protocol], &replaced, conditions);
        if let Some((from, to)) = in_place(ports, &replaced, &room) {
            let mut edits = frees(&replaced, Some(from));
            edits.push(Edit::Resize(from.clone(), to));
            return Ok(Plan { kept: Vec::new(), edits });
        }
        let last = self.last_start(protocol, owner, None);
        let behind =
            held.iter().filter(|_| keep_existing).filter_map(|one| one.range.end().checked_add(1));
        let range = room.place(ports, last.into_iter().chain(behind)).map_err(|largest_free| {
            Error::PoolExhausted { protocol, requested: ports.get(), largest_free }
        })?;
        let mut edits = frees(&replaced, None);
        edits.push(Edit::Place {
            owner: owner.clone(),
            protocol,
            name: None,
            range,
            claimed: false,
        });
        Ok(Plan { kept: Vec::new(), edits })
    }
}

/// Frees what is replaced, but for one.
fn frees(replaced: &[&Allocation], except: Option<&Allocation>) -> Vec<Edit> {
    let others = replaced.iter().filter(|one| Some(**one) != except);
    others.map(|one| Edit::Free((*one).clone())).collect()
}

/// The range among `replaced` that can have the size where it is, and what it becomes.
fn in_place<'a>(
    ports: PortCount,
    replaced: &[&'a Allocation],
    room: &Room,
) -> Option<(&'a Allocation, PortRange)> {
    replaced
        .iter()
        .filter_map(|one| {
            let range = PortRange::with_count(one.range.start(), ports)?;
            (one.range.contains(range) || room.fits(range)).then_some((*one, range))
        })
        .max_by_key(|(one, range)| {
            let kept: u32 = replaced.iter().map(|old| shared(old.range, *range)).sum();
            (kept, Reverse(one.held_since()))
        })
}

/// How many ports the two have in common.
fn shared(a: PortRange, b: PortRange) -> u32 {
    a.intersection(b).map_or(0, |both| u32::from(both.count().get()))
}
