//! What the simulation promises of itself, on a node that fills up within weeks.

use std::collections::HashSet;

use portsd::allocator::bound::BoundPorts;
use portsd::allocator::pool::Conditions;
use portsd::model::{Demand, Owner, PortRange, Protocol, Timestamp};

use super::*;
use crate::scenario::DAY;
use crate::tables::Table;
use crate::workload::{BEGINNING, Call, Request};

const SHORT: Scenario = Scenario {
    name: "short",
    days: 40,
    install_every: DAY / 4,
    change_every: 4 * DAY,
    largest_module: 2003,
    nethvoice_stays: 2..=20,
    nethvoice_is_away: 0..=2,
    claimed_tcp: Some((20_000, 44_800)),
};

fn requests(seed: u64) -> Vec<Request> {
    workload::generate(&SHORT, &Catalogue::read().unwrap(), seed).unwrap()
}

#[test]
fn nothing_overlaps_and_nothing_lies_outside_the_pool() {
    let requests = requests(1);
    let bound = BoundPorts::none();
    for fit in [Fit::Best, Fit::First] {
        let mut node = Node::new(&SHORT, fit).unwrap();
        for request in &requests {
            node.carry_out(request).unwrap();
            for protocol in Protocol::ALL {
                let space = node.space(protocol).unwrap();
                let status =
                    node.pool.status(protocol, Conditions { now: request.at, bound: &bound });
                assert_eq!(space.free, status.free);
                assert_eq!(space.largest, u32::from(status.largest_free));
            }
        }
    }
}

#[test]
fn what_is_removed_is_free_again() {
    let requests = requests(1);
    let mut node = Node::new(&SHORT, Fit::Best).unwrap();
    let empty = Protocol::ALL.map(|protocol| node.space(protocol).unwrap());
    for request in &requests {
        node.carry_out(request).unwrap();
    }
    assert_ne!(Protocol::ALL.map(|protocol| node.space(protocol).unwrap()), empty);
    for request in &requests {
        node.carry_out(&Request { call: Call::Remove, ..request.clone() }).unwrap();
    }
    assert_eq!(Protocol::ALL.map(|protocol| node.space(protocol).unwrap()), empty);
}

#[test]
fn what_lies_outside_the_pool_is_noticed() {
    for (start, end) in [(19_999, 20_000), (45_000, 45_001)] {
        let mut node = Node::new(&Scenario { claimed_tcp: None, ..SHORT }, Fit::Best).unwrap();
        assert!(node.space(Protocol::Tcp).is_ok());
        node.claim(PortRange::new(start, end).unwrap()).unwrap();
        assert!(node.space(Protocol::Tcp).is_err(), "{start}-{end}");
    }
}

#[test]
fn a_seed_makes_the_requests_and_both_policies_get_them_all() {
    let some = requests(1);
    assert_eq!(some, requests(1));
    assert_ne!(some, requests(2));
    let run = run_once(&SHORT, &Catalogue::read().unwrap(), 1).unwrap();
    let count = u32::try_from(some.len()).unwrap();
    assert_eq!((run.best.requests, run.first.requests), (count, count));
    // what they come to differs, or there would be nothing to compare
    assert_ne!(run.best, run.first);
    assert!(run.best.exhausted > 0 && run.best.moved > 0 && run.best.cannot_grow > 0);
    let again = run_once(&SHORT, &Catalogue::read().unwrap(), 1).unwrap();
    assert_eq!((again.best, again.first), (run.best, run.first));
}

#[test]
fn every_kind_of_call_is_made_in_the_order_of_time() {
    let requests = requests(1);
    assert!(requests.is_sorted_by_key(|request| request.at));
    let end = Timestamp::from_unix(BEGINNING + SHORT.days * DAY);
    assert!(requests.iter().all(|request| request.at < end));
    let kinds: HashSet<_> =
        requests.iter().map(|request| std::mem::discriminant(&request.call)).collect();
    assert_eq!(kinds.len(), 5);
    let has_media = |request: &&Request| {
        matches!(&request.call, Call::Allocate { protocol: Protocol::Udp, ports, .. }
            if ports.get() == 2003)
    };
    let owners: HashSet<&Owner> =
        requests.iter().filter(has_media).map(|request| &request.owner).collect();
    // twelve, and some of them again under another name
    assert!(owners.len() > 12, "{owners:?}");
}

#[test]
fn the_published_modules_ask_for_what_their_labels_say() {
    let modules = Catalogue::read().unwrap().modules;
    assert_eq!(modules.len(), 124);
    let demand = |name: &str| modules.iter().find(|one| one.name == name).unwrap().demand;
    assert_eq!(demand("bigbluebutton"), Demand { tcp: 2, udp: 9216 });
    assert_eq!(demand("ldapproxy"), Demand { tcp: 1024, udp: 0 });
    assert_eq!(demand("dnshelper"), Demand::default());
}

/// The cells of the lines that are rows of tables.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
    lines.map(|line| line.split('|').map(str::trim).collect()).collect()
}

#[test]
fn the_documented_tables_have_the_rows_and_columns_that_are_printed() {
    let documented = rows(include_str!("../../docs/placement.md"));
    let comparisons: Vec<_> =
        SCENARIOS.iter().map(|scenario| Comparison { scenario, runs: Vec::new() }).collect();
    let is_name = |cell: &&str| !cell.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let names = |row: &[&str]| row.iter().copied().filter(is_name).map(str::to_owned).collect();
    let documented: Vec<Vec<String>> = documented.iter().map(|row| names(row)).collect();
    let holds = |table: Table| {
        let text = table.to_string();
        let printed: Vec<Vec<String>> = rows(&text).iter().map(|row| names(row)).collect();
        assert!(printed.len() > 2 * SCENARIOS.len());
        assert!(documented.windows(printed.len()).any(|part| part == printed), "outdated: {text}");
    };
    holds(tables::requests(&comparisons));
    holds(tables::space(&comparisons));
}
