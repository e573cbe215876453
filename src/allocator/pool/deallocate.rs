//! The plan of Deallocate.

use super::{Edit, Plan, Pool};
use crate::error::Error;
use crate::model::{Allocation, Owner, Part, PortRange, Protocol};

/// What Deallocate is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Release<'a> {
    /// Whose ports go.
    pub owner: &'a Owner,
    /// In which protocol.
    pub protocol: Protocol,
    /// Which of them.
    pub part: &'a Part,
    /// Whether a claim may be named. Only administrators take claims away.
    pub may_free_claims: bool,
}

impl Pool {
    /// What to free, or why it can't be freed. Nothing changes.
    ///
    /// Exact ports may be a part of a range: an unnamed one is split, a named one and a claim are
    /// only trimmed at an end.
    pub fn plan_deallocate(&self, release: Release<'_>) -> Result<Plan, Error> {
        let held = || self.space(release.protocol).list(Some(release.owner));
        let edits = match release.part {
            Part::All => held().filter(|one| !one.claimed).cloned().map(Edit::Free).collect(),
            Part::Named(name) => {
                let named = held().find(|one| one.name.as_ref() == Some(name));
                let named = named.ok_or_else(|| not_allocated(release))?;
                check_claim(release, named)?;
                vec![Edit::Free(named.clone())]
            }
            Part::Ports(ports) => {
                let touched = held().filter(|one| one.range.overlaps(*ports)).collect::<Vec<_>>();
                cuts(release, *ports, &touched)?
            }
        };
        Ok(Plan { kept: Vec::new(), edits })
    }
}

/// Takes the ports out of the ranges that they lie in, which have to cover them.
fn cuts(
    release: Release<'_>,
    ports: PortRange,
    touched: &[&Allocation],
) -> Result<Vec<Edit>, Error> {
    let pieces: Vec<PortRange> =
        touched.iter().filter_map(|one| one.range.intersection(ports)).collect();
    let covered: u32 = pieces.iter().map(|piece| u32::from(piece.count().get())).sum();
    if covered < u32::from(ports.count().get()) {
        return Err(not_allocated(release));
    }
    let mut edits = Vec::new();
    for (one, part) in touched.iter().zip(pieces) {
        check_claim(release, one)?;
        let is_inner = one.range.start() < part.start() && part.end() < one.range.end();
        if is_inner && !one.is_unnamed() {
            return Err(Error::invalid("start"));
        }
        edits.push(if part == one.range {
            Edit::Free((*one).clone())
        } else {
            Edit::Cut((*one).clone(), part)
        });
    }
    Ok(edits)
}

fn not_allocated(release: Release<'_>) -> Error {
    Error::NotAllocated { owner: release.owner.clone() }
}

fn check_claim(release: Release<'_>, allocation: &Allocation) -> Result<(), Error> {
    if allocation.claimed && !release.may_free_claims {
        return Err(Error::PermissionDenied { owner: Some(release.owner.clone()) });
    }
    Ok(())
}
