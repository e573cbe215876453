//! The plan of Ensure.

use super::room::Room;
use super::{Conditions, Edit, Plan, Pool, check_demand, counted};
use crate::error::Error;
use crate::model::{Allocation, Demand, Owner, PortCount, PortRange, Protocol, RangeName};

/// What Ensure is asked for.
#[derive(Debug, Clone, Copy)]
pub struct NamedWish<'a> {
    /// Who wants it.
    pub owner: &'a Owner,
    /// The name of the range.
    pub name: &'a RangeName,
    /// How many ports.
    pub ports: PortCount,
    /// In which protocols, at the same numbers. At least one, none twice.
    pub protocols: &'a [Protocol],
    /// Whether the range may get other numbers where it can't grow.
    pub may_move: bool,
    /// How many ports the owner may hold in all; `None` for no check.
    pub demand: Option<Demand>,
}

/// What the owner has under the name in the protocols listed.
struct Named<'a> {
    held: Vec<&'a Allocation>,
}

impl<'a> Named<'a> {
    fn of(&self, protocol: Protocol) -> Option<&'a Allocation> {
        self.held.iter().copied().find(|one| one.protocol == protocol)
    }

    /// The numbers at which the range stands, lowest first: one start where all agree.
    fn starts(&self) -> Vec<u16> {
        let mut starts: Vec<_> = self.held.iter().map(|one| one.range.start()).collect();
        starts.sort_unstable();
        starts.dedup();
        starts
    }
}

impl Pool {
    /// How to give the owner that named range, or why it can't be given. Nothing changes.
    ///
    /// A range that is there grows and shrinks at its end. A protocol that is listed for the first
    /// time gets the numbers of those that have the range. Where that is not possible, all move
    /// together if they may, and else nothing does.
    pub fn plan_ensure(
        &self,
        wish: NamedWish<'_>,
        conditions: Conditions<'_>,
    ) -> Result<Plan, Error> {
        let NamedWish { owner, name, ports, protocols, may_move, .. } = wish;
        let named = Named { held: self.named(wish)? };
        self.check_named_demand(wish, &named)?;
        let starts = named.starts();
        let is_settled = starts.len() == 1;
        if is_settled || may_move {
            let rooms: Vec<Room> = protocols
                .iter()
                .map(|protocol| self.room(owner, &[*protocol], &named.held, conditions))
                .collect();
            let stays = |range: &PortRange| {
                protocols.iter().zip(&rooms).all(|(protocol, room)| {
                    let held = named.of(*protocol);
                    held.is_some_and(|one| one.range.contains(*range)) || room.fits(*range)
                })
            };
            let candidates = starts.iter().filter_map(|start| PortRange::with_count(*start, ports));
            if let Some(range) = candidates.clone().find(stays) {
                return Ok(named_plan(wish, &named, range));
            }
        }
        if let (Some(held), false) = (named.held.first(), may_move) {
            let (start, end) = (held.range.start(), held.range.end());
            return Err(Error::CannotGrow { start, end, requested: ports.get() });
        }
        let room = self.room(owner, protocols, &named.held, conditions);
        let last = |protocol: &Protocol| self.last_start(*protocol, owner, Some(name));
        // a range that moves is not added
        let own = protocols.iter().flat_map(|protocol| self.space(*protocol).list(Some(owner)));
        let own = own.filter(|_| named.held.is_empty());
        let behind = own.filter_map(|one| one.range.end().checked_add(1));
        let favoured = protocols.iter().filter_map(last).chain(behind);
        let range = room.place(ports, favoured).map_err(|largest_free| Error::PoolExhausted {
            protocol: protocols[0],
            requested: ports.get(),
            largest_free,
        })?;
        Ok(named_plan(wish, &named, range))
    }

    /// The ranges of that name in the protocols listed. A claim of that name is not the owner's to
    /// change.
    fn named(&self, wish: NamedWish<'_>) -> Result<Vec<&Allocation>, Error> {
        let lists = |protocol: &Protocol| self.space(*protocol).list(Some(wish.owner));
        let held: Vec<_> = wish
            .protocols
            .iter()
            .flat_map(lists)
            .filter(|one| one.name.as_ref() == Some(wish.name))
            .collect();
        if held.iter().any(|one| one.claimed) {
            return Err(Error::NameTaken { owner: wish.owner.clone(), name: wish.name.clone() });
        }
        Ok(held)
    }

    fn check_named_demand(&self, wish: NamedWish<'_>, named: &Named<'_>) -> Result<(), Error> {
        for protocol in wish.protocols {
            let demand = wish.demand.map(|demand| demand.of(*protocol));
            let before = counted(self.space(*protocol).list(Some(wish.owner)));
            check_demand(demand, before, counted(named.of(*protocol)), wish.ports.get())?;
        }
        Ok(())
    }
}

/// What makes the named range be at `range` in every protocol listed.
fn named_plan(wish: NamedWish<'_>, named: &Named<'_>, range: PortRange) -> Plan {
    let mut plan = Plan { kept: Vec::new(), edits: Vec::new() };
    for protocol in wish.protocols {
        match named.of(*protocol) {
            Some(held) if held.range == range => plan.kept.push(held.clone()),
            Some(held) if held.range.start() == range.start() => {
                plan.edits.push(Edit::Resize(held.clone(), range));
            }
            held => {
                plan.edits.extend(held.cloned().map(Edit::Free));
                plan.edits.push(Edit::Place {
                    owner: wish.owner.clone(),
                    protocol: *protocol,
                    name: Some(wish.name.clone()),
                    range,
                    claimed: false,
                });
            }
        }
    }
    plan
}
