//! The tables, in the form in which the documentation has them.

use std::fmt;

use crate::Run;
use crate::node::{Figures, Space};
use crate::scenario::Scenario;

/// All runs of a scenario.
pub struct Comparison {
    pub scenario: &'static Scenario,
    pub runs: Vec<Run>,
}

/// A table whose first row has the titles.
pub struct Table(Vec<Vec<String>>);

/// The titles of the table of requests. "Fewer" is the number of runs in which the policy has
/// refused fewer requests than the other one.
pub const REQUESTS: [&str; 9] = [
    "node",
    "policy",
    "requests",
    "failed",
    "scattered",
    "fewer in",
    "of NethVoice",
    "can't grow",
    "moved",
];

/// The titles of the table of free space.
pub const SPACE: [&str; 7] =
    ["node", "protocol", "policy", "free", "blocks", "largest block", "at its lowest"];

/// A policy's name, its figures, and those of the other policy.
type Policy = (&'static str, fn(&Run) -> (&Figures, &Figures));

const POLICIES: [Policy; 2] =
    [("best fit", |run| (&run.best, &run.first)), ("first fit", |run| (&run.first, &run.best))];

/// A protocol's name and its figures.
type Column = (&'static str, fn(&Figures) -> &Space);

const PROTOCOLS: [Column; 2] = [("tcp", |figures| &figures.tcp), ("udp", |figures| &figures.udp)];

/// How requests fared.
pub fn requests(comparisons: &[Comparison]) -> Table {
    let mut rows = vec![titles(&REQUESTS)];
    for Comparison { scenario, runs } in comparisons {
        for (policy, figures) in POLICIES {
            let mean =
                |count: fn(&Figures) -> u32| mean(runs.iter().map(|run| count(figures(run).0)));
            let fewer =
                runs.iter().map(figures).filter(|(own, other)| own.exhausted < other.exhausted);
            rows.push(vec![
                scenario.name.to_owned(),
                policy.to_owned(),
                format!("{:.0}", mean(|figures| figures.requests)),
                format!("{:.2}", mean(|figures| figures.exhausted)),
                format!("{:.2}", mean(|figures| figures.scattered)),
                format!("{} of {}", fewer.count(), runs.len()),
                format!("{:.2}", mean(|figures| figures.nethvoice_exhausted)),
                format!("{:.1}", mean(|figures| figures.cannot_grow)),
                format!("{:.1}", mean(|figures| figures.moved)),
            ]);
        }
    }
    Table(rows)
}

/// What was free at the end, and the lowest that the largest block has been.
pub fn space(comparisons: &[Comparison]) -> Table {
    let mut rows = vec![titles(&SPACE)];
    for Comparison { scenario, runs } in comparisons {
        for (protocol, space) in PROTOCOLS {
            for (policy, figures) in POLICIES {
                let mean = |count: fn(&Space) -> u32| {
                    let counts = runs.iter().map(|run| count(space(figures(run).0)));
                    format!("{:.0}", mean(counts))
                };
                rows.push(vec![
                    scenario.name.to_owned(),
                    protocol.to_owned(),
                    policy.to_owned(),
                    mean(|space| space.free),
                    mean(|space| space.blocks),
                    mean(|space| space.largest),
                    mean(|space| space.lowest),
                ]);
            }
        }
    }
    Table(rows)
}

fn titles(titles: &[&str]) -> Vec<String> {
    titles.iter().map(|title| (*title).to_owned()).collect()
}

/// The mean; 0 of nothing.
fn mean(counts: impl Iterator<Item = u32>) -> f64 {
    let (mut sum, mut number) = (0.0, 0.0);
    for count in counts {
        sum += f64::from(count);
        number += 1.0;
    }
    if number > 0.0 { sum / number } else { 0.0 }
}

impl Table {
    /// How wide each column has to be.
    fn widths(&self) -> Vec<usize> {
        let columns = self.0.first().map_or(0, Vec::len);
        let width = |column: usize| self.0.iter().map(|row| row[column].len()).max().unwrap_or(0);
        (0..columns).map(width).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        for (index, row) in self.0.iter().enumerate() {
            for (cell, width) in row.iter().zip(&widths) {
                write!(f, "| {cell:<width$} ")?;
            }
            writeln!(f, "|")?;
            if index == 0 {
                for width in &widths {
                    write!(f, "| {:-<width$} ", "")?;
                }
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}
