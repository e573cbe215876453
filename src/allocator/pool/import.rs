//! The plan of Import: what others have handed out before.

use super::{Edit, Plan, Pool};
use crate::model::{Allocation, Owner, PortRange, Timestamp};
use crate::reply::Problem;
use crate::request::ImportedRange;

/// What an import would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Import {
    /// What is new.
    pub plan: Plan,
    /// How many of the ranges are held already, just so.
    pub unchanged: usize,
    /// What can't be taken, and why.
    pub problems: Vec<Problem>,
}

impl Pool {
    /// How to take over the ranges, in their order: of two that overlap, the first one is taken.
    /// What lies outside the pool becomes a claim, since nothing else may. With problems it takes
    /// over nothing, unless those are to be skipped. Nothing changes.
    #[must_use]
    pub fn plan_import(&self, ranges: &[ImportedRange], skip_invalid: bool) -> Import {
        let mut import = Import::default();
        let mut after = self.clone();
        for range in ranges {
            match after.take_over(range) {
                Ok(Some(edit)) => import.plan.edits.push(edit),
                Ok(None) => import.unchanged += 1,
                Err(reason) => import.problems.push(Problem { range: range.clone(), reason }),
            }
        }
        if !import.problems.is_empty() && !skip_invalid {
            import.plan = Plan::default();
        }
        import
    }

    /// Takes over one range in this pool. `None` if it is held already, just so; the error says why
    /// it can't be taken.
    fn take_over(&mut self, imported: &ImportedRange) -> Result<Option<Edit>, String> {
        let protocol = imported.protocol;
        let owner = Owner::parse(&imported.owner).map_err(|error| error.to_string())?;
        let range = ports(imported).ok_or("not a range of ports from 1 to 65535")?;
        if let Some(other) = self.space(protocol).overlapping(range) {
            let is_same = other.owner == owner && other.range == range;
            let overlap = || format!("overlaps {protocol} {} of {}", other.range, other.owner);
            return if is_same { Ok(None) } else { Err(overlap()) };
        }
        let claimed = !self.config.range.contains(range);
        let allocated_at = Timestamp::from_unix(0);
        let taken =
            Allocation { owner: owner.clone(), protocol, name: None, range, claimed, allocated_at };
        self.insert(taken).map_err(|error| error.to_string())?;
        Ok(Some(Edit::Place { owner, protocol, name: None, range, claimed }))
    }
}

/// The range, if it is one.
fn ports(imported: &ImportedRange) -> Option<PortRange> {
    let port = |number: i64| u16::try_from(number).ok();
    PortRange::new(port(imported.start)?, port(imported.end)?).ok()
}
