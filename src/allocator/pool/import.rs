//! The plan of Import: what others have handed out before.

use super::{Edit, Overlap, Plan, Pool};
use crate::model::{Allocation, Owner, PortRange, Protocol, Timestamp};
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
    /// How to take over the ranges, in their order: of two that overlap, the first one is taken, and of
    /// the other one what nobody has after all of them. It is in use, too, most likely, and nobody else
    /// shall get it. What lies outside the pool becomes a claim, since nothing else may. With problems
    /// it takes over nothing, unless those are to be skipped. Nothing changes.
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
        if import.problems.is_empty() {
            return import;
        }
        if !skip_invalid {
            import.plan = Plan::default();
            return import;
        }
        for problem in &import.problems {
            import.plan.edits.extend(after.take_over_rest(&problem.range));
        }
        import
    }

    /// Takes over one range in this pool. `None` if it is held already, just so; the error says why
    /// it can't be taken.
    fn take_over(&mut self, imported: &ImportedRange) -> Result<Option<Edit>, String> {
        let protocol = imported.protocol;
        let owner = Owner::parse(&imported.owner).map_err(|error| error.to_string())?;
        let range = ports(imported).ok_or("not a range of ports from 1 to 65535")?;
        let held = || self.space(protocol).overlapping(range);
        // what another one has says more than what was taken over of the same range before
        if let Some(other) = held().find(|one| one.owner != owner).or(held().next()) {
            let is_same = other.owner == owner && other.range == range;
            let overlap = || format!("overlaps {protocol} {} of {}", other.range, other.owner);
            return if is_same { Ok(None) } else { Err(overlap()) };
        }
        self.place(owner, protocol, range).map(Some).map_err(|error| error.to_string())
    }

    /// Takes over what nobody has of a range that overlaps. Nothing, if it is none.
    fn take_over_rest(&mut self, imported: &ImportedRange) -> Vec<Edit> {
        let protocol = imported.protocol;
        let (Ok(owner), Some(range)) = (Owner::parse(&imported.owner), ports(imported)) else {
            return Vec::new();
        };
        let gaps = self.space(protocol).taken.gaps(range);
        gaps.into_iter().filter_map(|gap| self.place(owner.clone(), protocol, gap).ok()).collect()
    }

    fn place(
        &mut self,
        owner: Owner,
        protocol: Protocol,
        range: PortRange,
    ) -> Result<Edit, Overlap> {
        let claimed = !self.config.range.contains(range);
        let allocated_at = Timestamp::from_unix(0);
        let taken =
            Allocation { owner: owner.clone(), protocol, name: None, range, claimed, allocated_at };
        self.insert(taken)?;
        Ok(Edit::Place { owner, protocol, name: None, range, claimed })
    }
}

/// The range, if it is one.
fn ports(imported: &ImportedRange) -> Option<PortRange> {
    let port = |number: i64| u16::try_from(number).ok();
    PortRange::new(port(imported.start)?, port(imported.end)?).ok()
}
