//! What a module may be believed to have. Pure: the values have been read already.
//!
//! A module writes its environment itself, and could claim every port that is free. So a range counts
//! only if something that modules can't write accounts for its size: the counter, which has passed
//! it, or the module's demand. Where neither is known, a module has no more than [`UNKNOWN_MAX`].

use std::collections::BTreeMap;

use super::super::{Problem, Row, number};
use super::connection::Hash;
use super::sequence::{FIRST_PORT, Sequence};
use crate::model::Protocol;
use crate::request::ImportedRange;

/// More than any published module asks for.
const UNKNOWN_MAX: i64 = 4096;

/// Replaces ranges that can't be believed by problems, and puts the smaller ranges first: where two
/// overlap, a module can't push out another with a range that is larger than that one's.
pub(super) fn apply(rows: &mut [Row], sequences: &[Sequence], demands: &BTreeMap<Protocol, Hash>) {
    for row in rows.iter_mut() {
        let Row::Range { source, range } = row else { continue };
        let counted = sequences.iter().find(|one| one.protocol == range.protocol);
        let demand = demands.get(&range.protocol).and_then(|all| all.get(range.owner.as_bytes()));
        let demand = demand.and_then(|text| number(text));
        if let Some(reason) = doubt(range, counted.and_then(Sequence::next), demand) {
            *row = Row::Problem(Problem::of(source, range, reason));
        }
    }
    rows.sort_by_key(|row| match row {
        Row::Problem(_) => None,
        Row::Range { range, .. } => Some(size(range)),
    });
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
        let mut rows = [row(20000, 20003), row(20002, 20002), row(1, 1)];
        apply(&mut rows, &[], &BTreeMap::new());
        assert!(matches!(&rows[0], Row::Problem(problem) if problem.start == Some(1)), "{rows:?}");
        assert_eq!(rows[1..], [row(20002, 20002), row(20000, 20003)]);
    }
}
