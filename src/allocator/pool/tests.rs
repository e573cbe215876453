//! The promises of placement by name, and the pool against a naive model.

use proptest::prelude::*;

use std::time::Duration;

use super::*;
use crate::model::{Demand, Part, PortCount, RangeName, Timestamp};
use crate::request::ImportedRange;

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
            assert!(space.freed.keys().all(|port| !taken.has(*port)));
            let status = self.status(protocol, at(0, &BoundPorts::none()));
            assert_eq!(status.total, status.allocated + status.free + status.bound);
        }
    }

    /// Carries out a plan as the owning thread does, and returns what is held by it.
    fn follow(&mut self, plan: Plan, now: Timestamp) -> Vec<Allocation> {
        let mut held = plan.kept;
        for edit in plan.edits {
            let (freed, placed) = match edit {
                Edit::Free(from) => (Some(from), Vec::new()),
                Edit::Resize(from, range) => {
                    (Some(from.clone()), vec![Allocation { range, ..from }])
                }
                Edit::Cut(from, part) => {
                    let rest = from.range.without(part);
                    let rest = rest.into_iter().map(|range| Allocation { range, ..from.clone() });
                    (Some(from.clone()), rest.collect())
                }
                Edit::Place { owner, protocol, name, range, claimed } => {
                    let placed = allocation(&owner, protocol, range);
                    (None, vec![Allocation { name, claimed, ..placed }])
                }
                Edit::Give(from, owner) => (Some(from.clone()), vec![Allocation { owner, ..from }]),
            };
            if let Some(one) = freed {
                self.release(&one, now);
            }
            for one in placed {
                self.insert(one.clone()).unwrap();
                held.push(one);
            }
        }
        self.invariant();
        held
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
    // without quarantine: what it changes has tests of its own
    let (range, quarantine) = (range(start, end), Duration::ZERO);
    Pool::new(PoolConfig { range, exclude: exclude.to_vec(), quarantine, skip_bound: true })
}

/// The conditions so many seconds after the beginning.
fn at(seconds: u32, bound: &BoundPorts) -> Conditions<'_> {
    Conditions { now: Timestamp::from_unix(seconds), bound }
}

/// A call with tcp, without a demand, at the beginning and with no port bound.
fn allocate(
    pool: &mut Pool,
    name: &str,
    count: u16,
    keep_existing: bool,
) -> Result<PortRange, Error> {
    allocate_at(pool, name, count, keep_existing, at(0, &BoundPorts::none()))
}

fn allocate_at(
    pool: &mut Pool,
    name: &str,
    count: u16,
    keep_existing: bool,
    conditions: Conditions<'_>,
) -> Result<PortRange, Error> {
    let owner = owner(name);
    let wish = Wish {
        owner: &owner,
        protocol: Protocol::Tcp,
        ports: ports(count),
        keep_existing,
        demand: None,
    };
    let plan = pool.plan_allocate(wish, conditions)?;
    Ok(pool.follow(plan, conditions.now).last().unwrap().range)
}

fn free(pool: &mut Pool, name: &str) {
    free_at(pool, name, 0);
}

fn free_at(pool: &mut Pool, name: &str, seconds: u32) {
    release(pool, name, &Part::All, false, seconds).unwrap();
}

/// Frees a part, and returns what is left of the ranges that it was cut out of.
fn release(
    pool: &mut Pool,
    name: &str,
    part: &Part,
    may_free_claims: bool,
    seconds: u32,
) -> Result<Vec<PortRange>, Error> {
    let owner = owner(name);
    let release = Release { owner: &owner, protocol: Protocol::Tcp, part, may_free_claims };
    let plan = pool.plan_deallocate(release)?;
    Ok(pool.follow(plan, Timestamp::from_unix(seconds)).iter().map(|one| one.range).collect())
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
fn first_fit_takes_the_lowest_block_that_holds_it() {
    let config = PoolConfig { range: range(100, 199), ..PoolConfig::default() };
    let mut pool = Pool::with_fit(config, Fit::First);
    for (name, count) in [("a", 2), ("b", 1), ("c", 5), ("d", 1), ("e", 3), ("f", 1)] {
        allocate(&mut pool, name, count, false).unwrap();
    }
    for name in ["a", "c", "e"] {
        free(&mut pool, name);
    }
    let none = BoundPorts::none();
    // when nothing rests any more
    let after = at(1_000_000, &none);
    let mut allocate = |name, count| allocate_at(&mut pool, name, count, false, after);
    // 109-111 would be the best fit
    assert_eq!(allocate("g", 3), Ok(range(103, 105)));
    assert_eq!(allocate("h", 1), Ok(range(100, 100)));
    assert_eq!(allocate("i", 4), Ok(range(113, 116)));
    // whose it was goes first under either policy
    assert_eq!(allocate("e", 3), Ok(range(109, 111)));
}

#[test]
fn best_fit_is_what_a_pool_does_unless_told() {
    assert_eq!(Pool::new(PoolConfig::default()).fit, Fit::Best);
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
    let status = pool.status(Protocol::Tcp, at(0, &BoundPorts::none()));
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
    let none = BoundPorts::none();
    let plan = |pool: &Pool, wish| pool.plan_allocate(wish, at(0, &none));
    assert_eq!(plan(&pool, wish(3, false, 4)), exceeded(3, 2, 4));
    let planned = plan(&pool, wish(2, false, 4)).unwrap();
    pool.follow(planned, Timestamp::from_unix(0));
    assert_eq!(plan(&pool, wish(1, true, 4)), exceeded(1, 4, 4));
    assert!(plan(&pool, wish(2, false, 4)).is_ok());
    // a lowered demand takes nothing away and stops growth
    assert!(plan(&pool, wish(2, false, 1)).is_ok());
    assert!(plan(&pool, wish(1, false, 1)).is_ok());
    assert_eq!(plan(&pool, wish(3, false, 1)), exceeded(3, 4, 1));
    assert_eq!(plan(&pool, wish(1, true, 0)), exceeded(1, 4, 0));
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
    let status = pool.status(Protocol::Tcp, at(0, &BoundPorts::none()));
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

#[test]
fn an_owner_returns_to_where_it_was() {
    let mut pool = pool(100, 199, &[]);
    allocate(&mut pool, "x", 10, false).unwrap();
    assert_eq!(allocate(&mut pool, "a", 4, false), Ok(range(110, 113)));
    allocate(&mut pool, "y", 1, false).unwrap();
    free(&mut pool, "x");
    free(&mut pool, "a");
    assert_eq!(allocate(&mut pool, "b", 2, false), Ok(range(100, 101)));
    assert_eq!(allocate(&mut pool, "a", 4, false), Ok(range(110, 113)));
    // another size has the same start, if it fits
    free(&mut pool, "a");
    assert_eq!(allocate(&mut pool, "a", 2, false), Ok(range(110, 111)));
    free(&mut pool, "a");
    // and if somebody is there, a new place
    pool.insert(allocation(&owner("z"), Protocol::Tcp, range(111, 111))).unwrap();
    assert_ne!(allocate(&mut pool, "a", 2, false), Ok(range(110, 111)));
}

/// A pool whose freed ports rest for ten seconds.
fn resting_pool(start: u16, end: u16) -> Pool {
    let (range, quarantine) = (range(start, end), Duration::from_secs(10));
    Pool::new(PoolConfig { range, exclude: Vec::new(), quarantine, skip_bound: true })
}

#[test]
fn freed_ports_rest_before_others_get_them() {
    let none = BoundPorts::none();
    let mut pool = resting_pool(100, 109);
    allocate(&mut pool, "a", 2, false).unwrap();
    allocate(&mut pool, "b", 2, false).unwrap();
    free_at(&mut pool, "a", 1000);
    let status = |pool: &Pool, now| pool.status(Protocol::Tcp, at(now, &none)).quarantined;
    assert_eq!((status(&pool, 1000), status(&pool, 1009), status(&pool, 1010)), (2, 2, 0));
    let mut allocate =
        |name, count, now| allocate_at(&mut pool, name, count, false, at(now, &none));
    // 100-101 would be the best fit
    assert_eq!(allocate("c", 2, 1009), Ok(range(104, 105)));
    // it is none of the owner's own concern
    assert_eq!(allocate("a", 2, 1009), Ok(range(100, 101)));
    free_at(&mut pool, "a", 1020);
    let mut allocate =
        |name, count, now| allocate_at(&mut pool, name, count, false, at(now, &none));
    assert_eq!(allocate("d", 2, 1030), Ok(range(100, 101)));
}

#[test]
fn resting_ports_are_used_when_nothing_else_fits_oldest_first() {
    let none = BoundPorts::none();
    let mut pool = resting_pool(100, 105);
    for name in ["a", "b", "c"] {
        allocate(&mut pool, name, 2, false).unwrap();
    }
    for (name, seconds) in [("b", 1000), ("c", 1001), ("a", 1002)] {
        free_at(&mut pool, name, seconds);
    }
    let mut allocate = |name, count| allocate_at(&mut pool, name, count, false, at(1003, &none));
    assert_eq!(allocate("d", 1), Ok(range(102, 102)));
    assert_eq!(allocate("e", 2), Ok(range(103, 104)));
    assert_eq!(allocate("f", 2), Ok(range(100, 101)));
    let exhausted = |requested, largest_free| {
        Err(Error::PoolExhausted { protocol: Protocol::Tcp, requested, largest_free })
    };
    assert_eq!(allocate("g", 2), exhausted(2, 1));
    // a clock that went back keeps them resting
    free_at(&mut pool, "d", 1_000_000);
    let largest = pool.status(Protocol::Tcp, at(5, &none));
    assert_eq!((largest.quarantined, largest.largest_free), (2, 1));
}

#[test]
fn bound_ports_are_not_given() {
    let mut pool = pool(100, 109, &[]);
    let mut bound = BoundPorts::none();
    bound.insert(Protocol::Tcp, range(102, 103));
    bound.insert(Protocol::Udp, range(100, 109));
    let mut allocate = |name, count| allocate_at(&mut pool, name, count, false, at(0, &bound));
    assert_eq!(allocate("a", 2), Ok(range(100, 101)));
    // growth stops at a stranger's port
    assert_eq!(allocate("a", 3), Ok(range(104, 106)));
    assert_eq!(allocate("b", 2), Ok(range(100, 101)));
    let exhausted = Error::PoolExhausted { protocol: Protocol::Tcp, requested: 4, largest_free: 3 };
    assert_eq!(allocate("c", 4), Err(exhausted));
    let status = pool.status(Protocol::Tcp, at(0, &bound));
    assert_eq!((status.total, status.allocated, status.free, status.bound), (10, 5, 3, 2));
}

#[test]
fn a_port_bound_inside_the_owners_range_is_the_owner_at_work() {
    let mut pool = pool(100, 109, &[]);
    allocate(&mut pool, "a", 2, false).unwrap();
    let mut bound = BoundPorts::none();
    bound.insert(Protocol::Tcp, range(100, 101));
    let mut allocate = |name, count| allocate_at(&mut pool, name, count, false, at(0, &bound));
    assert_eq!(allocate("a", 4), Ok(range(100, 103)));
    assert_eq!(allocate("a", 1), Ok(range(100, 100)));
    let status = pool.status(Protocol::Tcp, at(0, &bound));
    // what was 101 has no holder any more
    assert_eq!((status.allocated, status.bound), (1, 1));
}

#[test]
fn bound_ports_do_not_matter_where_they_are_not_to() {
    let config = PoolConfig {
        range: range(100, 109),
        exclude: Vec::new(),
        quarantine: Duration::ZERO,
        skip_bound: false,
    };
    let mut pool = Pool::new(config);
    let mut bound = BoundPorts::none();
    bound.insert(Protocol::Tcp, range(100, 109));
    assert_eq!(allocate_at(&mut pool, "a", 2, false, at(0, &bound)), Ok(range(100, 101)));
    assert_eq!(pool.status(Protocol::Tcp, at(0, &bound)).bound, 0);
}

// --- named ranges

fn ensure(
    pool: &mut Pool,
    name: &str,
    count: u16,
    protocols: &str,
    may_move: bool,
) -> Result<(PortRange, bool), Error> {
    let (owner, name) = (owner("a"), RangeName::parse(name).unwrap());
    let protocols: crate::model::Protocols = protocols.parse().unwrap();
    let wish = NamedWish {
        owner: &owner,
        name: &name,
        ports: ports(count),
        protocols: protocols.as_slice(),
        may_move,
        demand: Some(Demand { tcp: 20, udp: 10 }),
    };
    let plan = pool.plan_ensure(wish, at(0, &BoundPorts::none()))?;
    let changed = !plan.edits.is_empty();
    let held = pool.follow(plan, Timestamp::from_unix(0));
    assert_eq!(held.len(), protocols.as_slice().len());
    assert!(held.iter().all(|one| one.range == held[0].range && one.name.as_ref() == Some(&name)));
    Ok((held[0].range, changed))
}

#[test]
fn a_named_range_is_there_after_any_number_of_calls() {
    let mut pool = pool(100, 199, &[]);
    assert_eq!(ensure(&mut pool, "db", 2, "tcp", false), Ok((range(100, 101), true)));
    for _ in 0..3 {
        assert_eq!(ensure(&mut pool, "db", 2, "tcp", false), Ok((range(100, 101), false)));
    }
    assert_eq!(ensure(&mut pool, "db", 4, "tcp", false), Ok((range(100, 103), true)));
    assert_eq!(ensure(&mut pool, "db", 1, "tcp", false), Ok((range(100, 100), true)));
    // names are independent of each other, and stand side by side
    assert_eq!(ensure(&mut pool, "web", 1, "tcp", false), Ok((range(101, 101), true)));
    assert_eq!(ensure(&mut pool, "db", 1, "tcp", false), Ok((range(100, 100), false)));
    assert_eq!(allocate(&mut pool, "a", 1, false), Ok(range(102, 102)));
    assert_eq!(pool.list(Some(&owner("a")), None).len(), 3);
}

#[test]
fn a_named_range_that_cant_grow_stays_unless_it_may_move() {
    let mut pool = pool(100, 199, &[]);
    ensure(&mut pool, "db", 2, "tcp", false).unwrap();
    allocate(&mut pool, "b", 1, false).unwrap();
    let refusal = Error::CannotGrow { start: 100, end: 101, requested: 3 };
    assert_eq!(ensure(&mut pool, "db", 3, "tcp", false), Err(refusal));
    assert_eq!(ensure(&mut pool, "db", 2, "tcp", false), Ok((range(100, 101), false)));
    assert_eq!(ensure(&mut pool, "db", 3, "tcp", true), Ok((range(103, 105), true)));
    assert_eq!(pool.list(Some(&owner("a")), None).len(), 1);
}

#[test]
fn a_named_range_has_the_same_numbers_in_every_protocol() {
    let mut pool = pool(100, 109, &[]);
    pool.insert(allocation(&owner("b"), Protocol::Udp, range(100, 101))).unwrap();
    assert_eq!(ensure(&mut pool, "sip", 2, "tcp,udp", false), Ok((range(102, 103), true)));
    assert_eq!(ensure(&mut pool, "sip", 2, "udp,tcp", false), Ok((range(102, 103), false)));
    assert_eq!(ensure(&mut pool, "sip", 4, "tcp,udp", false), Ok((range(102, 105), true)));
    // one that is no longer listed is left as it is
    assert_eq!(ensure(&mut pool, "sip", 1, "tcp", false), Ok((range(102, 102), true)));
    assert_eq!(pool.list(None, Some(Protocol::Udp))[1].range, range(102, 105));
    // and comes along again when it is
    assert_eq!(ensure(&mut pool, "sip", 2, "tcp,udp", false), Ok((range(102, 103), true)));
}

#[test]
fn a_protocol_that_is_listed_later_gets_the_numbers_or_all_move_together() {
    let mut pool = pool(100, 109, &[]);
    assert_eq!(ensure(&mut pool, "sip", 2, "tcp", false), Ok((range(100, 101), true)));
    pool.insert(allocation(&owner("b"), Protocol::Udp, range(101, 101))).unwrap();
    let refusal = Error::CannotGrow { start: 100, end: 101, requested: 2 };
    assert_eq!(ensure(&mut pool, "sip", 2, "tcp,udp", false), Err(refusal));
    assert_eq!(ensure(&mut pool, "sip", 2, "tcp,udp", true), Ok((range(102, 103), true)));
    assert_eq!(pool.list(Some(&owner("a")), None).len(), 2);
    // ranges of one name that stand apart can only come together by moving
    let mut pool = self::pool(100, 109, &[]);
    ensure(&mut pool, "sip", 2, "tcp", false).unwrap();
    let apart = Allocation {
        name: Some(RangeName::parse("sip").unwrap()),
        ..allocation(&owner("a"), Protocol::Udp, range(105, 106))
    };
    pool.insert(apart).unwrap();
    let refusal = Error::CannotGrow { start: 100, end: 101, requested: 2 };
    assert_eq!(ensure(&mut pool, "sip", 2, "tcp,udp", false), Err(refusal));
    assert_eq!(ensure(&mut pool, "sip", 2, "tcp,udp", true), Ok((range(100, 101), true)));
}

#[test]
fn named_ranges_count_as_demand_and_a_claims_name_is_taken() {
    let mut pool = pool(100, 199, &[]);
    ensure(&mut pool, "rtp", 10, "udp", false).unwrap();
    let exceeded = Error::DemandExceeded { requested: 11, allocated: 10, demand: 10 };
    assert_eq!(ensure(&mut pool, "rtp", 11, "udp", true), Err(exceeded));
    let exceeded = Error::DemandExceeded { requested: 1, allocated: 10, demand: 10 };
    assert_eq!(ensure(&mut pool, "sip", 1, "tcp,udp", false), Err(exceeded));
    let name = RangeName::parse("fixed").unwrap();
    pool.insert(Allocation {
        claimed: true,
        name: Some(name.clone()),
        ..allocation(&owner("a"), Protocol::Tcp, range(150, 150))
    })
    .unwrap();
    let taken = Error::NameTaken { owner: owner("a"), name };
    assert_eq!(ensure(&mut pool, "fixed", 1, "tcp", true), Err(taken));
}

#[test]
fn a_named_range_returns_to_where_it_was() {
    let mut pool = pool(100, 199, &[]);
    ensure(&mut pool, "db", 2, "tcp", false).unwrap();
    ensure(&mut pool, "web", 2, "tcp", false).unwrap();
    release(&mut pool, "a", &Part::Named(RangeName::parse("db").unwrap()), false, 0).unwrap();
    release(&mut pool, "a", &Part::Named(RangeName::parse("web").unwrap()), false, 0).unwrap();
    assert_eq!(ensure(&mut pool, "web", 2, "tcp", false), Ok((range(102, 103), true)));
    assert_eq!(ensure(&mut pool, "db", 2, "tcp", false), Ok((range(100, 101), true)));
}

// --- parts

#[test]
fn exact_ports_are_cut_out_of_what_the_owner_holds() {
    let mut pool = pool(100, 199, &[]);
    let cut =
        |pool: &mut Pool, start, end| release(pool, "a", &Part::Ports(range(start, end)), false, 0);
    allocate(&mut pool, "a", 10, false).unwrap();
    assert_eq!(cut(&mut pool, 104, 105), Ok(vec![range(100, 103), range(106, 109)]));
    assert_eq!(cut(&mut pool, 100, 100), Ok(vec![range(101, 103)]));
    assert_eq!(cut(&mut pool, 109, 109), Ok(vec![range(106, 108)]));
    assert_eq!(cut(&mut pool, 106, 108), Ok(vec![]));
    let refusal = Error::NotAllocated { owner: owner("a") };
    for (start, end) in [(104, 104), (103, 104), (100, 101), (150, 151), (101, 199)] {
        assert_eq!(cut(&mut pool, start, end), Err(refusal.clone()), "{start}-{end}");
    }
    // across two ranges that stand side by side
    pool.insert(allocation(&owner("a"), Protocol::Tcp, range(104, 109))).unwrap();
    assert_eq!(cut(&mut pool, 103, 104), Ok(vec![range(101, 102), range(105, 109)]));
    // nobody else's
    pool.insert(allocation(&owner("b"), Protocol::Tcp, range(103, 104))).unwrap();
    assert!(cut(&mut pool, 102, 105).is_err());
}

#[test]
fn named_ranges_are_trimmed_and_not_split() {
    let mut pool = pool(100, 199, &[]);
    ensure(&mut pool, "db", 6, "tcp", false).unwrap();
    let cut =
        |pool: &mut Pool, start, end| release(pool, "a", &Part::Ports(range(start, end)), false, 0);
    assert_eq!(cut(&mut pool, 102, 103), Err(Error::invalid("start")));
    assert_eq!(cut(&mut pool, 100, 101), Ok(vec![range(102, 105)]));
    assert_eq!(cut(&mut pool, 105, 105), Ok(vec![range(102, 104)]));
    assert_eq!(pool.list(None, None)[0].name, Some(RangeName::parse("db").unwrap()));
    let unknown = Part::Named(RangeName::parse("web").unwrap());
    let refusal = Error::NotAllocated { owner: owner("a") };
    assert_eq!(release(&mut pool, "a", &unknown, false, 0), Err(refusal));
}

#[test]
fn claims_go_only_when_an_administrator_names_them() {
    let mut pool = pool(100, 199, &[]);
    let name = RangeName::parse("fixed").unwrap();
    let claim = Allocation {
        claimed: true,
        name: Some(name.clone()),
        ..allocation(&owner("a"), Protocol::Tcp, range(100, 103))
    };
    let refusal = Error::PermissionDenied { owner: Some(owner("a")) };
    for part in [Part::Named(name), Part::Ports(range(100, 103)), Part::Ports(range(103, 103))] {
        pool.insert(claim.clone()).unwrap();
        release(&mut pool, "a", &Part::All, true, 0).unwrap();
        assert_eq!(release(&mut pool, "a", &part, false, 0), Err(refusal.clone()));
        assert_eq!(pool.list(None, None), std::slice::from_ref(&claim));
        release(&mut pool, "a", &part, true, 0).unwrap();
        pool.list(None, None).iter().for_each(|rest| pool.release(rest, Timestamp::from_unix(0)));
    }
}

// --- what administrators decide

fn claim(
    pool: &mut Pool,
    name: Option<&str>,
    start: u16,
    end: u16,
    protocols: &str,
) -> Result<usize, Error> {
    let (owner, name) = (owner("host/x"), name.map(|name| RangeName::parse(name).unwrap()));
    let protocols: crate::model::Protocols = protocols.parse().unwrap();
    let (range, protocols, name) = (range(start, end), protocols.as_slice(), name.as_ref());
    let plan = pool.plan_claim(Claim { owner: &owner, range, protocols, name })?;
    Ok(pool.follow(plan, Timestamp::from_unix(0)).len())
}

#[test]
fn claims_have_fixed_numbers_in_all_protocols_or_none() {
    let mut pool = pool(100, 109, &[]);
    allocate(&mut pool, "a", 2, false).unwrap();
    assert_eq!(claim(&mut pool, None, 104, 105, "tcp,udp"), Ok(2));
    assert_eq!(claim(&mut pool, Some("far"), 7, 9, "tcp"), Ok(1));
    let occupied = |name, start, end| Err(Error::Occupied { owner: owner(name), start, end });
    assert_eq!(claim(&mut pool, None, 101, 103, "udp,tcp"), occupied("a", 100, 101));
    assert_eq!(claim(&mut pool, None, 105, 106, "tcp"), occupied("host/x", 104, 105));
    let name = RangeName::parse("far").unwrap();
    let taken = Err(Error::NameTaken { owner: owner("host/x"), name });
    assert_eq!(claim(&mut pool, Some("far"), 200, 200, "tcp"), taken);
    assert_eq!(claim(&mut pool, Some("far"), 200, 200, "udp"), Ok(1));
    assert_eq!(pool.list(Some(&owner("host/x")), None).len(), 4);
    // nobody is given a claimed port
    assert_eq!(allocate(&mut pool, "a", 4, false), Ok(range(100, 103)));
    assert_eq!(allocate(&mut pool, "a", 5, false).unwrap_err().condition().row().exit_status, 5);
}

#[test]
fn a_transfer_gives_everything_and_keeps_the_numbers() {
    let mut pool = pool(100, 199, &[]);
    allocate(&mut pool, "a", 2, false).unwrap();
    ensure(&mut pool, "db", 2, "tcp,udp", false).unwrap();
    pool.insert(Allocation {
        claimed: true,
        ..allocation(&owner("a"), Protocol::Tcp, range(7, 7))
    })
    .unwrap();
    allocate(&mut pool, "a_rsync", 1, false).unwrap();
    let before = pool.list(Some(&owner("a")), None);
    let plan = pool.plan_transfer(&owner("a"), &owner("b")).unwrap();
    let moved = pool.follow(plan, Timestamp::from_unix(0));
    let given: Vec<_> =
        before.into_iter().map(|one| Allocation { owner: owner("b"), ..one }).collect();
    assert_eq!(moved, given);
    assert_eq!(pool.list(Some(&owner("a")), None), []);
    assert_eq!(pool.list(Some(&owner("a_rsync")), None).len(), 1);
    // nothing to give is no error; a name that both have is one
    assert_eq!(pool.plan_transfer(&owner("a"), &owner("b")), Ok(Plan::default()));
    ensure(&mut pool, "db", 1, "udp", false).unwrap();
    let name = RangeName::parse("db").unwrap();
    let taken = Err(Error::NameTaken { owner: owner("b"), name });
    assert_eq!(pool.plan_transfer(&owner("a"), &owner("b")), taken);
    let same = Err(Error::invalid("toOwner"));
    assert_eq!(pool.plan_transfer(&owner("b"), &owner("b")), same);
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
    /// Where an owner's unnamed range was that went last.
    last: BTreeMap<&'static str, u16>,
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
        let same = replaced.iter().find(|one| one.end - one.start + 1 == count);
        let in_place = same.map(|same| same.start).or_else(|| self.best_in_place(&replaced, count));
        let start = if let Some(start) = in_place {
            start
        } else {
            let last = self.last.get(owner).copied();
            last.filter(|last| self.all_free(*last, count, &replaced))
                .or_else(|| self.behind(&own, keep_existing, count))
                .or_else(|| {
                    let blocks = self.blocks(&replaced);
                    blocks.into_iter().filter(|(size, _)| *size >= count).min().map(|(_, at)| at)
                })?
        };
        // what goes: first the others, then the one that gets another size
        let stays = |one: &&Held| in_place == Some(one.start);
        let goes = replaced.iter().filter(|one| !stays(one));
        let resized = replaced.iter().filter(|one| same.is_none() && stays(one));
        if let Some(last) = goes.chain(resized).last() {
            self.last.insert(owner, last.start);
        }
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
        let bound = BoundPorts::none();
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
                    let conditions = at(0, &bound);
                    let got = pool
                        .plan_allocate(wish, conditions)
                        .map(|plan| pool.follow(plan, conditions.now).last().unwrap().range);
                    let expected = model.allocate(OWNERS[name], count, keep_existing, demand);
                    prop_assert_eq!(got.ok().map(|got| (got.start(), got.end())), expected);
                }
                Action::Free { owner: name } => {
                    free(&mut pool, OWNERS[name]);
                    let goes = |one: &Held| one.owner == OWNERS[name] && !one.is_claim;
                    if let Some(highest) =
                        model.held.iter().filter(|one| goes(one)).map(|one| one.start).max()
                    {
                        model.last.insert(OWNERS[name], highest);
                    }
                    model.held.retain(|one| !goes(one));
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

#[test]
fn of_what_overlaps_the_rest_is_taken_over_after_all_that_does_not() {
    let mut pool = pool(20000, 20019, &[]);
    let imported = |owner: &str, start, end| ImportedRange {
        owner: owner.to_owned(),
        protocol: Protocol::Tcp,
        start,
        end,
    };
    let ranges = [
        imported("a", 20002, 20003),
        imported("b", 20000, 20005),
        imported("c", 20005, 20006),
        imported("b", 20018, 20021),
        imported("d", 20019, 20019),
        imported("e", 20002, 20003),
    ];
    let refused = pool.plan_import(&ranges, false);
    assert_eq!((refused.plan.edits.len(), refused.problems.len()), (0, 3));
    let import = pool.plan_import(&ranges, true);
    assert_eq!(import.problems, refused.problems);
    pool.follow(import.plan, Timestamp::from_unix(0));
    pool.invariant();
    let held = pool.list(None, None);
    let held: Vec<_> = held
        .iter()
        .map(|one| (one.owner.as_str(), one.range.start(), one.range.end(), one.claimed))
        .collect();
    let expected = [
        ("b", 20000, 20001, false),
        ("a", 20002, 20003, false),
        ("b", 20004, 20004, false),
        ("c", 20005, 20006, false),
        // it leaves the pool, and so is a claim as a whole
        ("b", 20018, 20021, true),
    ];
    assert_eq!(held, expected);
    let again = pool.plan_import(&ranges, true);
    assert_eq!((again.plan.edits.len(), again.unchanged), (0, 3));
}
