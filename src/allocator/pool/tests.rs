//! The promises of placement by name, and the pool against a naive model.

use proptest::prelude::*;

use super::*;
use crate::model::{RangeName, Timestamp};

impl Pool {
    /// Asserts what must always hold: ranges do not overlap, and the index agrees with them.
    fn invariant(&self) {
        for protocol in Protocol::ALL {
            let space = self.space(protocol);
            let mut taken = PortSet::new();
            let mut indexed = 0;
            for (start, allocation) in &space.allocations {
                assert_eq!(*start, allocation.range.start());
                assert_eq!(allocation.protocol, protocol);
                assert!(taken.is_disjoint(allocation.range), "{allocation:?} overlaps");
                taken.insert(allocation.range);
                assert!(space.by_owner[&allocation.owner].contains(start));
            }
            for starts in space.by_owner.values() {
                assert!(!starts.is_empty());
                indexed += starts.len();
            }
            assert_eq!(indexed, space.allocations.len());
            assert!(taken == space.taken);
            let status = self.status(protocol);
            assert_eq!(status.total, status.allocated + status.free);
        }
    }

    /// Carries out a plan as the owning thread does, and returns the range that came of it.
    fn follow(&mut self, wish: Wish<'_>, plan: Plan) -> PortRange {
        for freed in &plan.freed {
            self.remove(freed);
        }
        let range = match plan.step {
            Step::Keep(kept) => kept.range,
            Step::Resize(from, to) => {
                self.remove(&from);
                self.insert(Allocation { range: to, ..from }).unwrap();
                to
            }
            Step::Place(range) => {
                self.insert(allocation(wish.owner, wish.protocol, range)).unwrap();
                range
            }
        };
        self.invariant();
        range
    }
}

fn owner(name: &str) -> Owner {
    Owner::parse(name).unwrap()
}

fn range(start: u16, end: u16) -> PortRange {
    PortRange::new(start, end).unwrap()
}

fn ports(count: u16) -> PortCount {
    PortCount::try_from(count).unwrap()
}

fn allocation(owner: &Owner, protocol: Protocol, range: PortRange) -> Allocation {
    Allocation {
        owner: owner.clone(),
        protocol,
        name: None,
        range,
        claimed: false,
        allocated_at: Timestamp::from_unix(0),
    }
}

fn pool(start: u16, end: u16, exclude: &[PortRange]) -> Pool {
    Pool::new(PoolConfig { range: range(start, end), exclude: exclude.to_vec() })
}

/// A call with tcp, without a demand.
fn allocate(
    pool: &mut Pool,
    name: &str,
    count: u16,
    keep_existing: bool,
) -> Result<PortRange, Error> {
    let owner = owner(name);
    let wish = Wish {
        owner: &owner,
        protocol: Protocol::Tcp,
        ports: ports(count),
        keep_existing,
        demand: None,
    };
    let plan = pool.plan(wish)?;
    Ok(pool.follow(wish, plan))
}

fn free(pool: &mut Pool, name: &str) {
    for held in pool.list(Some(&owner(name)), Some(Protocol::Tcp)) {
        pool.remove(&held);
    }
    pool.invariant();
}

#[test]
fn the_first_range_starts_the_pool_and_its_last_port_is_usable() {
    let mut pool = Pool::new(PoolConfig::default());
    assert_eq!(allocate(&mut pool, "a", 4, false), Ok(range(20000, 20003)));
    assert_eq!(allocate(&mut pool, "b", 24997, false), Ok(range(20004, 45000)));
    let full = Error::PoolExhausted { protocol: Protocol::Tcp, requested: 1, largest_free: 0 };
    assert_eq!(allocate(&mut pool, "c", 1, false), Err(full));
}

#[test]
fn a_repeat_returns_the_same_range() {
    let mut pool = pool(100, 199, &[]);
    allocate(&mut pool, "other", 3, false).unwrap();
    let first = allocate(&mut pool, "a", 4, false);
    assert_eq!(allocate(&mut pool, "a", 4, false), first);
    assert_eq!(pool.list(Some(&owner("a")), None).len(), 1);
}

#[test]
fn a_range_grows_and_shrinks_in_place() {
    let mut pool = pool(100, 199, &[]);
    assert_eq!(allocate(&mut pool, "a", 4, false), Ok(range(100, 103)));
    assert_eq!(allocate(&mut pool, "a", 9, false), Ok(range(100, 108)));
    assert_eq!(allocate(&mut pool, "a", 2, false), Ok(range(100, 101)));
}

#[test]
fn a_range_that_cant_grow_moves_as_if_it_were_free() {
    let mut pool = pool(100, 109, &[]);
    allocate(&mut pool, "a", 4, false).unwrap();
    allocate(&mut pool, "b", 2, false).unwrap();
    // 104-105 is in the way; 106-109 is too small
    assert_eq!(allocate(&mut pool, "a", 4, false), Ok(range(100, 103)));
    let refusal = Error::PoolExhausted { protocol: Protocol::Tcp, requested: 5, largest_free: 4 };
    assert_eq!(allocate(&mut pool, "a", 5, false), Err(refusal));
    assert_eq!(pool.list(Some(&owner("a")), None)[0].range, range(100, 103));
    free(&mut pool, "b");
    allocate(&mut pool, "b", 1, false).unwrap();
    assert_eq!(pool.list(Some(&owner("b")), None)[0].range, range(104, 104));
    assert_eq!(allocate(&mut pool, "a", 5, false), Ok(range(105, 109)));
}

#[test]
fn several_unnamed_ranges_become_one_that_keeps_most() {
    let mut pool = pool(100, 199, &[]);
    allocate(&mut pool, "a", 2, true).unwrap();
    allocate(&mut pool, "x", 1, true).unwrap();
    assert_eq!(allocate(&mut pool, "a", 6, true), Ok(range(103, 108)));
    // 100-101 can't grow to 4; 103-108 shrinks to it
    assert_eq!(allocate(&mut pool, "a", 4, false), Ok(range(103, 106)));
    assert_eq!(pool.list(Some(&owner("a")), None).len(), 1);
}

#[test]
fn a_range_grows_into_its_owners_other_range() {
    let mut pool = pool(100, 109, &[]);
    assert_eq!(allocate(&mut pool, "a", 2, true), Ok(range(100, 101)));
    assert_eq!(allocate(&mut pool, "a", 3, true), Ok(range(102, 104)));
    assert_eq!(allocate(&mut pool, "a", 5, false), Ok(range(100, 104)));
    assert_eq!(pool.list(None, None).len(), 1);
}

#[test]
fn an_added_range_stands_behind_the_owners_own() {
    let mut pool = pool(100, 199, &[]);
    allocate(&mut pool, "a", 2, true).unwrap();
    allocate(&mut pool, "b", 10, true).unwrap();
    allocate(&mut pool, "c", 1, true).unwrap();
    free(&mut pool, "b");
    assert_eq!(allocate(&mut pool, "a", 2, true), Ok(range(102, 103)));
    assert_eq!(allocate(&mut pool, "c", 2, true), Ok(range(113, 114)));
}

#[test]
fn a_new_place_is_the_smallest_block_that_holds_it() {
    let mut pool = pool(100, 199, &[]);
    for (name, count) in [("a", 5), ("b", 1), ("c", 3), ("d", 1), ("e", 3), ("f", 1)] {
        allocate(&mut pool, name, count, false).unwrap();
    }
    for name in ["a", "c", "e"] {
        free(&mut pool, name);
    }
    assert_eq!(allocate(&mut pool, "g", 3, false), Ok(range(106, 108)));
    assert_eq!(allocate(&mut pool, "h", 2, false), Ok(range(110, 111)));
    assert_eq!(allocate(&mut pool, "i", 5, false), Ok(range(100, 104)));
}

#[test]
fn excluded_ports_are_never_given() {
    let mut pool = pool(100, 109, &[range(102, 103), range(90, 100), range(109, 120)]);
    assert_eq!(allocate(&mut pool, "a", 1, false), Ok(range(101, 101)));
    assert_eq!(allocate(&mut pool, "a", 2, false), Ok(range(104, 105)));
    assert_eq!(allocate(&mut pool, "b", 3, false), Ok(range(106, 108)));
    assert_eq!(allocate(&mut pool, "c", 1, false), Ok(range(101, 101)));
    let full = Error::PoolExhausted { protocol: Protocol::Tcp, requested: 1, largest_free: 0 };
    assert_eq!(allocate(&mut pool, "d", 1, false), Err(full));
    let status = pool.status(Protocol::Tcp);
    assert_eq!((status.total, status.allocated, status.free), (6, 6, 0));
}

#[test]
fn named_ranges_and_claims_are_never_touched() {
    let mut pool = pool(100, 199, &[]);
    let a = owner("a");
    let named = Allocation {
        name: Some(RangeName::parse("db").unwrap()),
        ..allocation(&a, Protocol::Tcp, range(100, 103))
    };
    let claim = Allocation { claimed: true, ..allocation(&a, Protocol::Tcp, range(104, 105)) };
    let outside = Allocation { claimed: true, ..allocation(&a, Protocol::Tcp, range(50, 53)) };
    for one in [&named, &claim, &outside] {
        pool.insert(one.clone()).unwrap();
    }
    assert_eq!(allocate(&mut pool, "a", 4, false), Ok(range(106, 109)));
    assert_eq!(allocate(&mut pool, "a", 2, false), Ok(range(106, 107)));
    let held = pool.list(Some(&a), None);
    for one in [&named, &claim, &outside] {
        assert!(held.contains(one));
    }
}

#[test]
fn demand_counts_everything_but_claims() {
    let mut pool = pool(100, 199, &[]);
    let a = owner("a");
    pool.insert(Allocation {
        name: Some(RangeName::parse("db").unwrap()),
        ..allocation(&a, Protocol::Tcp, range(100, 101))
    })
    .unwrap();
    pool.insert(Allocation { claimed: true, ..allocation(&a, Protocol::Tcp, range(110, 119)) })
        .unwrap();
    let wish = |count, keep_existing, demand| Wish {
        owner: &a,
        protocol: Protocol::Tcp,
        ports: ports(count),
        keep_existing,
        demand: Some(demand),
    };
    let exceeded =
        |requested, allocated, demand| Err(Error::DemandExceeded { requested, allocated, demand });
    assert_eq!(pool.plan(wish(3, false, 4)), exceeded(3, 2, 4));
    let plan = pool.plan(wish(2, false, 4)).unwrap();
    pool.follow(wish(2, false, 4), plan);
    assert_eq!(pool.plan(wish(1, true, 4)), exceeded(1, 4, 4));
    assert!(pool.plan(wish(2, false, 4)).is_ok());
    // a lowered demand takes nothing away and stops growth
    assert!(pool.plan(wish(2, false, 1)).is_ok());
    assert!(pool.plan(wish(1, false, 1)).is_ok());
    assert_eq!(pool.plan(wish(3, false, 1)), exceeded(3, 4, 1));
    assert_eq!(pool.plan(wish(1, true, 0)), exceeded(1, 4, 0));
}

#[test]
fn ranges_outside_the_pool_do_not_count_against_it() {
    let mut pool = pool(100, 109, &[]);
    for (start, end) in [(1, 99), (110, 65535)] {
        let outside = allocation(&owner("old"), Protocol::Tcp, range(start, end));
        pool.insert(outside).unwrap();
    }
    allocate(&mut pool, "a", 9, false).unwrap();
    for _ in 0..100 {
        assert_eq!(allocate(&mut pool, "b", 1, false), Ok(range(109, 109)));
        free(&mut pool, "b");
    }
    let status = pool.status(Protocol::Tcp);
    assert_eq!((status.total, status.allocated, status.free), (10, 9, 1));
}

#[test]
fn coming_and_going_wears_nothing_out() {
    let mut pool = pool(100, 119, &[]);
    allocate(&mut pool, "low", 5, false).unwrap();
    pool.insert(allocation(&owner("high"), Protocol::Tcp, range(115, 119))).unwrap();
    for _ in 0..30_000 {
        assert_eq!(allocate(&mut pool, "a", 1, false), Ok(range(105, 105)));
        free(&mut pool, "a");
    }
    assert_eq!(pool.list(None, None).len(), 2);
}

#[test]
fn counts_that_pass_the_last_port_number_are_refused() {
    let mut pool = pool(65530, 65535, &[]);
    assert_eq!(allocate(&mut pool, "a", 6, false), Ok(range(65530, 65535)));
    assert_eq!(allocate(&mut pool, "a", 2, false), Ok(range(65530, 65531)));
    let refusal =
        Error::PoolExhausted { protocol: Protocol::Tcp, requested: 65535, largest_free: 6 };
    assert_eq!(allocate(&mut pool, "a", 65535, false), Err(refusal));
}

#[test]
fn big_blocks_fit_as_often_as_they_can_and_return_to_their_hole() {
    let mut pool = Pool::new(PoolConfig::default());
    let mut places = Vec::new();
    for n in 1..=12 {
        places.push(allocate(&mut pool, &format!("nethvoice{n}"), 2003, false).unwrap());
    }
    let refusal =
        Error::PoolExhausted { protocol: Protocol::Tcp, requested: 2003, largest_free: 965 };
    assert_eq!(allocate(&mut pool, "nethvoice13", 2003, false), Err(refusal));
    free(&mut pool, "nethvoice5");
    assert_eq!(allocate(&mut pool, "nethvoice13", 2003, false), Ok(places[4]));
}

#[test]
fn overlapping_rows_are_not_taken_in() {
    let mut pool = pool(100, 199, &[]);
    pool.insert(allocation(&owner("a"), Protocol::Tcp, range(110, 119))).unwrap();
    for (start, end) in [(100, 110), (119, 130), (112, 113), (100, 150), (110, 119)] {
        let row = allocation(&owner("b"), Protocol::Tcp, range(start, end));
        assert!(pool.insert(row).is_err(), "{start}-{end}");
    }
    pool.insert(allocation(&owner("b"), Protocol::Udp, range(110, 119))).unwrap();
    pool.insert(allocation(&owner("b"), Protocol::Tcp, range(120, 120))).unwrap();
    pool.invariant();
}

// --- the pool against a model that thinks in single ports

const FIRST: u16 = 100;
const LAST: u16 = 163;
const EXCLUDED: u16 = 120;
const OWNERS: [&str; 4] = ["a", "b", "c", "c_rsync"];

/// A range as the model keeps it.
#[derive(Debug, Clone, PartialEq)]
struct Held {
    owner: &'static str,
    start: u16,
    end: u16,
    is_claim: bool,
}

#[derive(Debug, Clone)]
enum Action {
    Allocate { owner: usize, count: u16, keep_existing: bool, demand: Option<u16> },
    Free { owner: usize },
    Claim { owner: usize, start: u16, count: u16 },
}

fn action() -> impl Strategy<Value = Action> {
    let owner = 0..OWNERS.len();
    prop_oneof![
        6 => (owner.clone(), 1..20u16, any::<bool>(), proptest::option::of(0..24u16)).prop_map(
            |(owner, count, keep_existing, demand)| {
                Action::Allocate { owner, count, keep_existing, demand }
            }
        ),
        2 => owner.clone().prop_map(|owner| Action::Free { owner }),
        1 => (owner, 90..170u16, 1..4u16)
            .prop_map(|(owner, start, count)| Action::Claim { owner, start, count }),
    ]
}

#[derive(Default)]
struct Model {
    held: Vec<Held>,
}

impl Model {
    fn is_free(&self, port: u16, ignored: &[Held]) -> bool {
        (FIRST..=LAST).contains(&port)
            && port != EXCLUDED
            && !self
                .held
                .iter()
                .any(|one| !ignored.contains(one) && one.start <= port && port <= one.end)
    }

    fn all_free(&self, start: u16, count: u16, ignored: &[Held]) -> bool {
        (start..start + count).all(|port| self.is_free(port, ignored))
    }

    /// Where a range may begin in a block of its own, with the size of the block.
    fn blocks(&self, ignored: &[Held]) -> Vec<(u16, u16)> {
        let mut blocks = Vec::new();
        let mut port = FIRST;
        while port <= LAST {
            let size = (port..=LAST).take_while(|port| self.is_free(*port, ignored)).count();
            let size = u16::try_from(size).unwrap();
            if size > 0 {
                blocks.push((size, port));
            }
            port += size.max(1);
        }
        blocks
    }

    /// What the call should do: the range, or `None` for a refusal.
    fn allocate(
        &mut self,
        owner: &'static str,
        count: u16,
        keep_existing: bool,
        demand: Option<u16>,
    ) -> Option<(u16, u16)> {
        let mut own: Vec<Held> =
            self.held.iter().filter(|one| one.owner == owner).cloned().collect();
        // of several that serve, the lowest
        own.sort_by_key(|one| one.start);
        let unnamed: Vec<Held> = own.iter().filter(|one| !one.is_claim).cloned().collect();
        let before: u16 = unnamed.iter().map(|one| one.end - one.start + 1).sum();
        let after = if keep_existing { before + count } else { count };
        if demand.is_some_and(|demand| after > demand && after > before) {
            return None;
        }
        let replaced = if keep_existing { Vec::new() } else { unnamed.clone() };
        let start = if let Some(same) = replaced.iter().find(|one| one.end - one.start + 1 == count)
        {
            same.start
        } else {
            self.best_in_place(&replaced, count)
                .or_else(|| self.behind(&own, keep_existing, count))
                .or_else(|| {
                    let blocks = self.blocks(&replaced);
                    blocks.into_iter().filter(|(size, _)| *size >= count).min().map(|(_, at)| at)
                })?
        };
        self.held.retain(|one| !replaced.contains(one));
        self.held.push(Held { owner, start, end: start + count - 1, is_claim: false });
        Some((start, start + count - 1))
    }

    /// The start of the replaced range that keeps most ports in place.
    fn best_in_place(&self, replaced: &[Held], count: u16) -> Option<u16> {
        let mut best: Option<(usize, u16)> = None;
        for one in replaced {
            let shrinks = one.end - one.start + 1 > count;
            if !shrinks && !self.all_free(one.start, count, replaced) {
                continue;
            }
            let kept = (one.start..one.start + count)
                .filter(|port| replaced.iter().any(|r| r.start <= *port && *port <= r.end))
                .count();
            if best.is_none_or(|(most, _)| kept > most) {
                best = Some((kept, one.start));
            }
        }
        best.map(|(_, start)| start)
    }

    fn behind(&self, own: &[Held], keep_existing: bool, count: u16) -> Option<u16> {
        own.iter()
            .map(|one| one.end + 1)
            .find(|start| keep_existing && self.all_free(*start, count, &[]))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_pool_does_what_the_model_does(actions in proptest::collection::vec(action(), 1..60)) {
        let excluded = range(EXCLUDED, EXCLUDED);
        let mut pool = pool(FIRST, LAST, &[excluded]);
        let mut model = Model::default();
        for action in actions {
            match action {
                Action::Allocate { owner: name, count, keep_existing, demand } => {
                    let owner = owner(OWNERS[name]);
                    let wish = Wish {
                        owner: &owner,
                        protocol: Protocol::Tcp,
                        ports: ports(count),
                        keep_existing,
                        demand,
                    };
                    let got = pool.plan(wish).map(|plan| pool.follow(wish, plan));
                    let expected = model.allocate(OWNERS[name], count, keep_existing, demand);
                    prop_assert_eq!(got.ok().map(|got| (got.start(), got.end())), expected);
                }
                Action::Free { owner: name } => {
                    let held = pool.list(Some(&owner(OWNERS[name])), None);
                    held.iter().filter(|one| !one.claimed).for_each(|one| pool.remove(one));
                    model.held.retain(|one| one.owner != OWNERS[name] || one.is_claim);
                }
                Action::Claim { owner: name, start, count } => {
                    let claim = Allocation {
                        claimed: true,
                        ..allocation(
                            &owner(OWNERS[name]),
                            Protocol::Tcp,
                            range(start, start + count - 1),
                        )
                    };
                    let taken = model
                        .held
                        .iter()
                        .any(|one| one.start < start + count && start <= one.end);
                    prop_assert_eq!(pool.insert(claim).is_err(), taken);
                    if !taken {
                        let end = start + count - 1;
                        model.held.push(Held { owner: OWNERS[name], start, end, is_claim: true });
                    }
                }
            }
            pool.invariant();
            let mut held: Vec<_> =
                model.held.iter().map(|one| (one.start, one.end, one.owner)).collect();
            held.sort_unstable();
            let listed = pool.list(None, None);
            let listed: Vec<_> = listed
                .iter()
                .map(|one| (one.range.start(), one.range.end(), one.owner.as_str()))
                .collect();
            prop_assert_eq!(listed, held);
        }
    }
}
