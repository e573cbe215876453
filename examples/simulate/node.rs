//! A node that carries out requests, and what is counted of it.

use portsd::allocator::bound::BoundPorts;
use portsd::allocator::pool::{Claim, Conditions, Edit, Fit, NamedWish, Plan, Pool, Release, Wish};
use portsd::config::PoolConfig;
use portsd::error::Error;
use portsd::model::{Allocation, Owner, Part, PortRange, Protocol, Timestamp};

use crate::Failure;
use crate::catalogue::Module;
use crate::scenario::{DAY, Scenario};
use crate::workload::{BEGINNING, Call, Request};

/// What a run has come to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    pub requests: u32,
    /// Refused since no free block was large enough.
    pub exhausted: u32,
    /// Of these, those for which enough ports were free, but not side by side (or not at the same
    /// numbers in both protocols).
    pub scattered: u32,
    /// Of those refused, those that asked for the media ports of a NethVoice.
    pub nethvoice_exhausted: u32,
    /// Named ranges that could not grow where they are and might not move.
    pub cannot_grow: u32,
    /// Ranges that got other numbers to get another size.
    pub moved: u32,
    /// At the end of the last day.
    pub tcp: Space,
    pub udp: Space,
}

/// What is free in one protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    pub free: u32,
    pub blocks: u32,
    pub largest: u32,
    /// The lowest that `largest` has been.
    pub lowest: u32,
}

/// A pool, its policy and its owner.
pub struct Node {
    pub pool: Pool,
    pub range: PortRange,
    bound: BoundPorts,
    days: u32,
    figures: Figures,
}

impl Node {
    pub fn new(scenario: &Scenario, fit: Fit) -> Result<Self, Failure> {
        let config = PoolConfig::default();
        let range = config.range;
        let mut node = Self {
            pool: Pool::with_fit(config, fit),
            range,
            bound: BoundPorts::none(),
            days: scenario.days,
            figures: Figures::default(),
        };
        if let Some((first, last)) = scenario.claimed_tcp {
            node.claim(PortRange::new(first, last)?)?;
        }
        node.figures.tcp.lowest = u32::MAX;
        node.figures.udp.lowest = u32::MAX;
        Ok(node)
    }

    /// Ports of fixed numbers for software outside the modules.
    pub fn claim(&mut self, range: PortRange) -> Result<(), Failure> {
        let owner = Owner::parse("host/other")?;
        let claim = Claim { owner: &owner, range, protocols: &[Protocol::Tcp], name: None };
        let plan = self.pool.plan_claim(claim).map_err(|error| unexpected(&error))?;
        self.follow(plan, Timestamp::from_unix(BEGINNING))
    }

    /// Carries out all requests, with a look at the pool at the end of each day.
    pub fn replay(mut self, requests: &[Request]) -> Result<Figures, Failure> {
        let mut requests = requests.iter().peekable();
        for day in 1..=self.days {
            let end = Timestamp::from_unix(BEGINNING + day * DAY);
            while let Some(request) = requests.next_if(|request| request.at < end) {
                self.carry_out(request)?;
            }
            for protocol in Protocol::ALL {
                self.look(protocol)?;
            }
        }
        Ok(self.figures)
    }

    /// Plans a request, and changes the pool if it can be granted.
    pub fn carry_out(&mut self, request: &Request) -> Result<(), Failure> {
        self.figures.requests += 1;
        match self.plan(request) {
            Ok(plan) => {
                self.figures.moved += u32::from(moves(&plan));
                self.follow(plan, request.at)?;
            }
            Err(Error::PoolExhausted { requested, .. }) => {
                let is_nethvoice = requested == Module::nethvoice().demand.udp;
                self.figures.exhausted += 1;
                self.figures.scattered += u32::from(self.is_scattered(request)?);
                self.figures.nethvoice_exhausted += u32::from(is_nethvoice);
            }
            Err(Error::CannotGrow { .. }) => self.figures.cannot_grow += 1,
            Err(other) => return Err(unexpected(&other)),
        }
        Ok(())
    }

    fn plan(&self, Request { at, owner, call }: &Request) -> Result<Plan, Error> {
        let conditions = Conditions { now: *at, bound: &self.bound };
        let release = |protocol, part: &Part| {
            let release = Release { owner, protocol, part, may_free_claims: false };
            self.pool.plan_deallocate(release)
        };
        match call {
            Call::Allocate { protocol, ports, keep_existing } => {
                let (protocol, ports, keep_existing) = (*protocol, *ports, *keep_existing);
                let wish = Wish { owner, protocol, ports, keep_existing, demand: None };
                self.pool.plan_allocate(wish, conditions)
            }
            Call::Ensure { name, ports, protocols, may_move } => {
                let (ports, may_move) = (*ports, *may_move);
                let protocols = protocols.as_slice();
                let wish = NamedWish { owner, name, ports, protocols, may_move, demand: None };
                self.pool.plan_ensure(wish, conditions)
            }
            Call::GiveBack { protocol, ports, skip } => {
                match self.part(owner, *protocol, *ports, *skip) {
                    Some(range) => release(*protocol, &Part::Ports(range)),
                    None => Ok(Plan::default()),
                }
            }
            Call::Free { protocol } => release(*protocol, &Part::All),
            Call::Remove => Ok(self.pool.plan_removal(|held| held.owner == *owner)),
        }
    }

    /// Whether the ports that a request asks for are free, together with those that they would
    /// replace, wherever they are.
    fn is_scattered(&self, request: &Request) -> Result<bool, Failure> {
        let (ports, protocols, keeps, name) = match &request.call {
            Call::Allocate { protocol, ports, keep_existing } => {
                (*ports, std::slice::from_ref(protocol), *keep_existing, None)
            }
            Call::Ensure { name, ports, protocols, .. } => {
                (*ports, protocols.as_slice(), false, Some(name))
            }
            Call::GiveBack { .. } | Call::Free { .. } | Call::Remove => return Ok(false),
        };
        for protocol in protocols {
            let held = self.pool.list(Some(&request.owner), Some(*protocol));
            let replaced = held.iter().filter(|one| !keeps && one.name.as_ref() == name);
            let replaced: u32 = replaced.map(|one| u32::from(one.range.count().get())).sum();
            if self.space(*protocol)?.free + replaced < u32::from(ports.get()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A part of the owner's lowest unnamed range, which leaves something of it.
    fn part(&self, owner: &Owner, protocol: Protocol, ports: u16, skip: u16) -> Option<PortRange> {
        let held = self.pool.list(Some(owner), Some(protocol));
        let range = held.iter().find(|one| one.is_unnamed())?.range;
        let ports = ports.min(range.count().get() - 1);
        let start = range.start() + skip % (range.count().get() - ports + 1);
        PortRange::with_count(start, ports.try_into().ok()?)
    }

    /// Does to the pool what the owning thread does, which stores each step before.
    fn follow(&mut self, plan: Plan, now: Timestamp) -> Result<(), Failure> {
        for edit in plan.edits {
            let (freed, held) = steps(edit, now);
            if let Some(freed) = freed {
                self.pool.release(&freed, now);
            }
            for allocation in held {
                self.pool.insert(allocation)?;
            }
        }
        Ok(())
    }

    fn look(&mut self, protocol: Protocol) -> Result<(), Failure> {
        let now = self.space(protocol)?;
        let space = match protocol {
            Protocol::Tcp => &mut self.figures.tcp,
            Protocol::Udp => &mut self.figures.udp,
        };
        *space = Space { lowest: space.lowest.min(now.largest), ..now };
        Ok(())
    }

    /// What is free, reckoned from what is held and not by the pool. That no two ranges overlap
    /// and none is outside shows on the way.
    pub fn space(&self, protocol: Protocol) -> Result<Space, Failure> {
        let mut space = Space::default();
        let mut next = u32::from(self.range.start());
        for Allocation { range, .. } in self.pool.list(None, Some(protocol)) {
            let start = u32::from(range.start());
            space.add(start.checked_sub(next).ok_or("a range overlaps or is below the pool")?);
            next = u32::from(range.end()) + 1;
        }
        let end = u32::from(self.range.end()) + 1;
        space.add(end.checked_sub(next).ok_or("a range is above the pool")?);
        space.lowest = space.largest;
        Ok(space)
    }
}

impl Space {
    /// Counts a block of free ports, if it is one.
    fn add(&mut self, block: u32) {
        self.free += block;
        self.blocks += u32::from(block > 0);
        self.largest = self.largest.max(block);
    }
}

/// What goes, and what is held instead.
fn steps(edit: Edit, now: Timestamp) -> (Option<Allocation>, Vec<Allocation>) {
    match edit {
        Edit::Free(from) => (Some(from), Vec::new()),
        Edit::Resize(from, range) => (Some(from.clone()), vec![Allocation { range, ..from }]),
        Edit::Cut(from, part) => {
            let rest = from.range.without(part);
            let rest = rest.into_iter().map(|range| Allocation { range, ..from.clone() });
            (Some(from.clone()), rest.collect())
        }
        Edit::Place { owner, protocol, name, range, claimed } => {
            let placed = Allocation { owner, protocol, name, range, claimed, allocated_at: now };
            (None, vec![placed])
        }
        Edit::Give(from, owner) => (Some(from.clone()), vec![Allocation { owner, ..from }]),
    }
}

/// Whether a range goes and another comes in its place.
fn moves(plan: &Plan) -> bool {
    let frees = plan.edits.iter().any(|edit| matches!(edit, Edit::Free(_)));
    frees && plan.edits.iter().any(|edit| matches!(edit, Edit::Place { .. }))
}

/// A refusal that no request of the workload should meet.
fn unexpected(error: &Error) -> Failure {
    format!("a request was refused for another reason: {error}").into()
}
