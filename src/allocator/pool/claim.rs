//! The plans of Claim and Transfer: what administrators decide about owners and numbers.

use super::{Edit, Plan, Pool};
use crate::error::Error;
use crate::model::{Owner, PortRange, Protocol, RangeName};

/// What Claim is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// For whom.
    pub owner: &'a Owner,
    /// The ports, inside or outside the pool.
    pub range: PortRange,
    /// In which protocols. At least one, none twice.
    pub protocols: &'a [Protocol],
    /// The name of the range.
    pub name: Option<&'a RangeName>,
}

impl Pool {
    /// How to fix the numbers, or why that can't be done: somebody holds one of the ports, the
    /// same owner included, or the owner has a range of that name. Nothing changes.
    pub fn plan_claim(&self, claim: Claim<'_>) -> Result<Plan, Error> {
        let Claim { owner, range, protocols, name } = claim;
        let mut plan = Plan::default();
        for protocol in protocols {
            let space = self.space(*protocol);
            if let Some(other) = space.overlapping(range).next() {
                let (start, end) = (other.range.start(), other.range.end());
                return Err(Error::Occupied { owner: other.owner.clone(), start, end });
            }
            if let Some(name) = name {
                self.check_name(owner, *protocol, name)?;
            }
            plan.edits.push(Edit::Place {
                owner: owner.clone(),
                protocol: *protocol,
                name: name.cloned(),
                range,
                claimed: true,
            });
        }
        Ok(plan)
    }

    /// How to give `to` all that `from` holds itself, or why that can't be done: both have a range
    /// of one name. Nothing changes.
    pub fn plan_transfer(&self, from: &Owner, to: &Owner) -> Result<Plan, Error> {
        if from == to {
            return Err(Error::invalid("toOwner"));
        }
        let mut plan = Plan::default();
        for protocol in Protocol::ALL {
            for one in self.space(protocol).list(Some(from)) {
                if let Some(name) = &one.name {
                    self.check_name(to, protocol, name)?;
                }
                plan.edits.push(Edit::Give(one.clone(), to.clone()));
            }
        }
        Ok(plan)
    }

    fn check_name(&self, owner: &Owner, protocol: Protocol, name: &RangeName) -> Result<(), Error> {
        let mut held = self.space(protocol).list(Some(owner));
        if held.any(|one| one.name.as_ref() == Some(name)) {
            return Err(Error::NameTaken { owner: owner.clone(), name: name.clone() });
        }
        Ok(())
    }
}
