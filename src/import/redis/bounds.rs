//! What a module may be believed to have. Pure: the values have been read already.
//!
//! A module writes its environment itself, and could claim every port that is free. So a range counts
//! only if something that modules can't write accounts for its size: the counter, which has passed
//! it, or the module's demand. Where neither is known, a module has no more than [`UNKNOWN_MAX`].

use std::collections::BTreeMap;

use super::super::{Contents, Problem, Row, number};
use super::connection::Hash;
use super::sequence::{FIRST_PORT, Sequence};
use crate::model::Protocol;
use crate::request::ImportedRange;

/// More than any published module asks for.
const UNKNOWN_MAX: i64 = 4096;

/// Replaces ranges that can't be believed by problems, and orders the others: of two that overlap, the
/// first one will count. That is the one that its module's demand allows, and then the smaller one, so
/// that a module can't push out another with a range that is larger than that one's.
///
/// A range that is believed although it is larger than the demand gets a remark: only somebody who
/// knows the module can tell whether it was given so many once.
pub(super) fn apply(
    contents: &mut Contents,
    sequences: &[Sequence],
    demands: &BTreeMap<Protocol, Hash>,
) {
    let Contents { rows, remarks } = contents;
    let mut judged = Vec::new();
    for row in rows.drain(..) {
        let Row::Range { source, range } = row else {
            judged.push((None, row));
            continue;
        };
        let counted = sequences.iter().find(|one| one.protocol == range.protocol);
        let demand = demands.get(&range.protocol).and_then(|all| all.get(range.owner.as_bytes()));
        let demand = demand.and_then(|text| number(text));
        if let Some(reason) = doubt(&range, counted.and_then(Sequence::next), demand) {
            judged.push((None, Row::Problem(Problem::of(&source, &range, reason))));
            continue;
        }
        if let Some(demand) = demand.filter(|demand| size(&range) > *demand) {
            let ImportedRange { owner, protocol, start, end } = &range;
            remarks.push(format!(
                "{source}: {protocol} {start}-{end} of {owner} is more than the module's demand, \
                 {demand}"
            ));
        }
        let is_demanded = demand.is_some_and(|demand| size(&range) <= demand);
        judged.push((Some((!is_demanded, size(&range))), Row::Range { source, range }));
    }
    judged.sort_by_key(|(order, _)| *order);
    rows.extend(judged.into_iter().map(|(_, row)| row));
}

fn size(range: &ImportedRange) -> i64 {
    range.end.saturating_sub(range.start).saturating_add(1)
}

/// Why a range can't be believed, if it can't.
fn doubt(range: &ImportedRange, next: Option<i64>, demand: Option<i64>) -> Option<String> {
    if range.start < FIRST_PORT.into() {
        return Some(format!("no ports below {FIRST_PORT} were handed out"));
    }
    let is_counted = next.is_some_and(|next| range.end < next);
    let most = demand.unwrap_or(UNKNOWN_MAX);
    if is_counted || size(range) <= most {
        return None;
    }
    Some(match demand {
        Some(demand) => {
            format!("the counter has not passed it, and the module's demand is {demand}")
        }
        None => format!("the counter has not passed it, and it has more than {UNKNOWN_MAX} ports"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: i64, end: i64) -> ImportedRange {
        ImportedRange { owner: "mail1".to_owned(), protocol: Protocol::Tcp, start, end }
    }

    #[test]
    fn a_range_counts_if_the_counter_has_passed_it_or_the_module_may_have_so_many() {
        for (ends, next, demand, is_believed) in [
            ((20000, 20003), None, None, true),
            ((20000, 24095), None, None, true),
            ((20000, 24096), None, None, false),
            ((20000, 24096), Some(24097), None, true),
            ((20000, 24096), Some(24096), None, false),
            ((20000, 24096), None, Some(4097), true),
            ((20000, 20003), None, Some(3), false),
            ((20000, 20003), Some(20004), Some(0), true),
            ((1, 65535), Some(45001), None, false),
            ((19999, 20000), Some(45001), Some(9), false),
            // the service says what is wrong with this
            ((20003, 20000), None, None, true),
        ] {
            let found = doubt(&range(ends.0, ends.1), next, demand);
            assert_eq!(found.is_none(), is_believed, "{ends:?} {next:?} {demand:?}: {found:?}");
        }
    }

    #[test]
    fn smaller_ranges_come_first_and_problems_before_them() {
        let row = |start, end| Row::Range { source: "x".to_owned(), range: range(start, end) };
        let rows = vec![row(20000, 20003), row(20002, 20002), row(1, 1)];
        let mut contents = Contents { rows, remarks: Vec::new() };
        apply(&mut contents, &[], &BTreeMap::new());
        let rows = contents.rows;
        assert!(matches!(&rows[0], Row::Problem(problem) if problem.start == Some(1)), "{rows:?}");
        assert_eq!(rows[1..], [row(20002, 20002), row(20000, 20003)]);
    }

    #[test]
    fn what_a_demand_allows_comes_before_what_is_smaller() {
        let row = |owner: &str, start, end| {
            let range = ImportedRange { owner: owner.to_owned(), ..range(start, end) };
            Row::Range { source: "x".to_owned(), range }
        };
        let demand = |owner: &str, ports: &str| (owner.into(), ports.into());
        let demands: Hash = [demand("mail1", "4"), demand("web1", "1")].into_iter().collect();
        let rows =
            vec![row("a1", 20001, 20001), row("web1", 20002, 20003), row("mail1", 20000, 20003)];
        let mut contents = Contents { rows, remarks: Vec::new() };
        let value = super::super::sequence::Value::Next(20004);
        let counter = Sequence { key: "k".to_owned(), protocol: Protocol::Tcp, value };
        apply(&mut contents, &[counter], &[(Protocol::Tcp, demands)].into());
        let owners = contents.rows.iter().map(|row| match row {
            Row::Range { range, .. } => range.owner.as_str(),
            Row::Problem(problem) => panic!("{problem:?}"),
        });
        assert_eq!(owners.collect::<Vec<_>>(), ["mail1", "a1", "web1"]);
        let remark = "x: tcp 20002-20003 of web1 is more than the module's demand, 1";
        assert_eq!(contents.remarks, [remark]);
    }
}
