//! What is held for modules that are not registered.

use std::collections::BTreeMap;

use super::service::Answers;
use super::{Check, Report};
use crate::model::{Allocation, Owner};

pub(super) fn check(answers: &Answers) -> Report {
    let mut report = Report::default();
    match &answers.gone {
        Some(gone) => {
            for (owner, ranges) in by_owner(gone) {
                report.find(
                    Check::Owners,
                    format!("{owner} belongs to no registered module and holds {ranges}"),
                    "if the module exists, register it with `portsctl set-module`, or in the cluster \
                     where that is the registry; if it is gone, `portsctl reclaim` frees what it held",
                );
            }
        }
        None => report.add(nobody_registered(&answers.allocations)),
    }
    report
}

/// Nobody can tell then who is gone, so that Reclaim would free nothing.
fn nobody_registered(allocations: &[Allocation]) -> Report {
    let mut report = Report::default();
    let of_modules: Vec<_> =
        allocations.iter().filter(|one| !is_outside(&one.owner)).cloned().collect();
    let owners: Vec<_> = by_owner(&of_modules).keys().map(|owner| owner.as_str()).collect();
    if !owners.is_empty() {
        report.find(
            Check::Owners,
            format!(
                "no module is registered, or the cluster can't be asked for them, though ports are \
                 held for {}",
                owners.join(", ")
            ),
            "register the modules of this node with `portsctl set-module`, or free the ports with \
             `portsctl remove-module`; where the cluster is the registry, see to its Redis",
        );
    }
    report
}

/// Software outside the modules.
fn is_outside(owner: &Owner) -> bool {
    owner.as_str().contains('/')
}

/// So many ranges of an owner are named.
const NAMED_MAX: usize = 5;

/// What each owner holds, such as `tcp 20000-20003, udp 20000-20000`.
fn by_owner(allocations: &[Allocation]) -> BTreeMap<&Owner, String> {
    let mut owners: BTreeMap<&Owner, Vec<String>> = BTreeMap::new();
    for one in allocations {
        let ranges = owners.entry(&one.owner).or_default();
        ranges.push(format!("{} {}", one.protocol, one.range));
    }
    let listed = |ranges: Vec<String>| match ranges.len().checked_sub(NAMED_MAX) {
        None | Some(0) => ranges.join(", "),
        Some(more) => format!("{} and {more} more ranges", ranges[..NAMED_MAX].join(", ")),
    };
    owners.into_iter().map(|(owner, ranges)| (owner, listed(ranges))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::held;
    use super::*;

    fn messages(allocations: &[Allocation], gone: Option<Vec<Allocation>>) -> Vec<String> {
        let answers = Answers {
            pools: Vec::new(),
            allocations: allocations.to_vec(),
            modules: Vec::new(),
            gone,
        };
        check(&answers).findings.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn each_owner_is_one_line() {
        let gone = held(&[
            ("web1", "tcp", 20000, 20003),
            ("mail1_rsync", "tcp", 20004, 20004),
            ("web1", "udp", 20000, 20000),
        ]);
        let found = messages(&gone, Some(gone.clone()));
        assert_eq!(
            found,
            [
                "mail1_rsync belongs to no registered module and holds tcp 20004-20004",
                "web1 belongs to no registered module and holds tcp 20000-20003, udp 20000-20000",
            ]
        );
        assert!(messages(&gone, Some(Vec::new())).is_empty());
    }

    #[test]
    fn a_registry_without_modules_is_one_finding_if_modules_hold_ports() {
        let held = held(&[
            ("web1", "tcp", 20000, 20003),
            ("host/a", "tcp", 20004, 20004),
            ("web1", "udp", 20000, 20000),
            ("mail1", "udp", 20001, 20001),
        ]);
        let expected = "no module is registered, or the cluster can't be asked for them, though \
                        ports are held for mail1, web1";
        assert_eq!(messages(&held, None), [expected]);
        assert!(messages(&held[1..2], None).is_empty());
        assert!(messages(&[], None).is_empty());
    }
}
