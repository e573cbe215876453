//! What NS8's own allocator has kept is taken over, and reported on.

use std::fmt::{self, Write};
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use super::args::{ImportMode, ImportSqlite};
use super::failure::{Failure, OTHER};
use super::output::{Output, say};
use super::session::{self, Session};
use crate::import::{self, Contents, Problem, Row, shown};
use crate::model::{Owner, Protocol};
use crate::reply::Imported;
use crate::request::{ImportedRange, Method};

/// Takes over a file of NS8's.
pub(super) fn sqlite(
    args: &ImportSqlite,
    connect: impl FnOnce() -> Result<Session, Failure>,
) -> Result<Output, Failure> {
    let mut progress = Progress::start();
    let mut tell = |rows| progress.tell(format_args!("{rows} rows read"));
    let contents = import::sqlite::read(&args.file, &mut tell)?;
    // after the reading: calls have to be made within some time of connecting
    let mut session = connect()?;
    let report = Report::of(&mut session, contents, args.mode, &mut progress)?;
    Ok(report.show(session.is_json()))
}

/// The parameters of Import.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Parameters<'a> {
    allocations: Vec<&'a ImportedRange>,
    dry_run: bool,
    skip_invalid: bool,
}

/// What has become of an import; for machines as it stands.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    /// Whether this only tells what would be.
    dry_run: bool,
    /// How many ranges are new, or would be.
    imported: usize,
    /// How many were held already, just so.
    unchanged: usize,
    /// What is left out.
    problems: Vec<Problem>,
    /// What else there is to know.
    remarks: Vec<String>,
    /// Whether the sound ranges are taken where there are problems.
    #[serde(skip)]
    skip_invalid: bool,
    /// How many ranges there were altogether.
    #[serde(skip)]
    rows: usize,
}

impl Report {
    /// Asks the service to take over the ranges. Where there are problems that it can't see, and
    /// they are not to be skipped, it is only asked what it would say of the others.
    fn of(
        session: &mut Session,
        contents: Contents,
        mode: ImportMode,
        progress: &mut Progress,
    ) -> Result<Self, Failure> {
        let Contents { rows, remarks } = contents;
        let ImportMode { dry_run, skip_invalid } = mode;
        let allocations: Vec<_> = rows.iter().filter_map(sendable).collect();
        progress.tell(format_args!("asking portsd to take over {} ranges", allocations.len()));
        let is_blocked = allocations.len() < rows.len() && !skip_invalid;
        let dry_run_there = dry_run || is_blocked;
        let parameters = Parameters { allocations, dry_run: dry_run_there, skip_invalid };
        let reply: Imported = session.call(Method::Import, &parameters)?;
        let Imported { imported, unchanged, problems } = reply;
        Ok(Self {
            dry_run,
            imported: if is_blocked { 0 } else { imported },
            unchanged,
            problems: import::problems(&rows, &problems),
            remarks,
            skip_invalid,
            rows: rows.len(),
        })
    }

    fn show(&self, is_json: bool) -> Output {
        let shown = if is_json { session::as_json(&json!(self)) } else { self.for_people() };
        // a part of what was asked for was not done
        let status = if self.problems.is_empty() { 0 } else { OTHER };
        Output { status, ..shown }
    }

    fn for_people(&self) -> Output {
        let mut text = String::new();
        for problem in &self.problems {
            // a String takes everything
            let _ = writeln!(text, "{}", line(problem));
        }
        for remark in &self.remarks {
            let _ = writeln!(text, "{remark}");
        }
        let _ = writeln!(text, "{}", self.conclusion());
        Output { text, ..Output::default() }
    }

    /// The counts, and what to do next.
    fn conclusion(&self) -> String {
        let Self { imported, unchanged, dry_run, .. } = *self;
        let problems = self.problems.len();
        let sound = self.rows.saturating_sub(unchanged + problems);
        match (problems, self.skip_invalid, dry_run) {
            (0, _, true) => format!(
                "{imported} would be imported, {unchanged} are there already, no problems. Run it \
                 again without --dry-run"
            ),
            (0, _, false) => format!(
                "{imported} imported, {unchanged} were there already, no problems. `portsctl list` \
                 shows what is held"
            ),
            (_, false, _) => format!(
                "nothing is imported: {problems} problems. {sound} more could be imported, \
                 {unchanged} are there already. Mend the problems where they are, or take the others \
                 with --skip-invalid"
            ),
            (_, true, true) => format!(
                "{imported} would be imported, {unchanged} are there already, {problems} would be \
                 left out. Run it again without --dry-run"
            ),
            (_, true, false) => format!(
                "{imported} imported, {unchanged} were there already, {problems} left out. What of \
                 these is in use still needs a `portsctl claim`"
            ),
        }
    }
}

fn sendable(row: &Row) -> Option<&ImportedRange> {
    match row {
        Row::Range { range, .. } => Some(range),
        Row::Problem(_) => None,
    }
}

/// A problem as a line of text, whatever the source had in it.
fn line(problem: &Problem) -> String {
    let Problem { source, owner, protocol, start, end, reason } = problem;
    let number = |port: &Option<i64>| port.map_or("?".to_owned(), |port| port.to_string());
    let owner = match owner {
        None => "?".to_owned(),
        Some(owner) if Owner::parse(owner).is_ok() => owner.clone(),
        Some(owner) => shown(owner.as_bytes()),
    };
    let protocol = protocol.map_or("?", Protocol::as_str);
    format!("{source}: {protocol} {}-{} of {owner}: {reason}", number(start), number(end))
}

/// Tells people who wait how far it is: at once on a terminal, otherwise when it takes long.
struct Progress {
    next: Instant,
}

impl Progress {
    /// How long nothing is said where nobody watches.
    const PATIENCE: Duration = Duration::from_secs(2);
    const PAUSE: Duration = Duration::from_secs(1);

    fn start() -> Self {
        let is_watched = io::stderr().is_terminal();
        let patience = if is_watched { Duration::ZERO } else { Self::PATIENCE };
        Self { next: Instant::now() + patience }
    }

    fn tell(&mut self, message: fmt::Arguments<'_>) {
        let now = Instant::now();
        if now >= self.next {
            self.next = now + Self::PAUSE;
            say(&message.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_harmless_line() {
        let mut problem = Problem {
            source: "UDP_PORTS row 7".to_owned(),
            owner: Some("mail1_rsync".to_owned()),
            protocol: Some(Protocol::Udp),
            start: Some(20003),
            end: Some(20000),
            reason: "no".to_owned(),
        };
        assert_eq!(line(&problem), "UDP_PORTS row 7: udp 20003-20000 of mail1_rsync: no");
        problem.owner = Some("a\n\x1b[2J".to_owned());
        (problem.protocol, problem.start, problem.end) = (None, None, None);
        assert_eq!(line(&problem), "UDP_PORTS row 7: ? ?-? of \"a\\n\\u{1b}[2J\": no");
    }
}
