//! What NS8's own allocator has kept is taken over, and reported on.

mod password;

use std::fmt::{self, Write};
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use super::args::{ImportMode, ImportRedis, ImportSqlite};
use super::failure::{Failure, OTHER};
use super::output::{Output, say};
use super::session::{self, Session};
use crate::import::redis::{Finding, Node, Sequence};
use crate::import::{self, Contents, Problem, Row, shown};
use crate::model::{Owner, PortRange, Protocol};
use crate::redis_url::RedisUrl;
use crate::reply::{Imported, Listed};
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

/// Takes over what a node has in NS8's Redis.
pub(super) fn redis(
    args: &ImportRedis,
    connect: impl FnOnce() -> Result<Session, Failure>,
) -> Result<Output, Failure> {
    let url = url(args)?;
    let mut progress = Progress::start();
    let mut tell = |rows| progress.tell(format_args!("{rows} ranges read"));
    let Node { contents, sequences } = import::redis::read(&url, args.node_id, &mut tell)?;
    let mut session = connect()?;
    // before the import: nothing may come between that and its report
    let held: Listed = session.call(Method::List, &json!({}))?;
    let judge = |sequence: &Sequence| sequence.judge(&contents.rows, &held.allocations);
    let findings = sequences.iter().map(judge).collect();
    let mut report = Report::of(&mut session, contents, args.mode, &mut progress)?;
    report.sequences = Some(findings);
    if args.remove_sequences && !args.mode.dry_run {
        report.remove_counters(&url);
    }
    Ok(report.show(session.is_json()))
}

fn url(args: &ImportRedis) -> Result<RedisUrl, Failure> {
    let url = RedisUrl::parse(&args.url);
    let url = url.map_err(|error| Failure::Usage(format!("the URL {error}")))?;
    let from_file = args.password_file.as_deref().map(password::of_file).transpose()?;
    Ok(url.with_password(from_file, password::of_environment()?))
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
    /// The counters, where the source has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    sequences: Option<Vec<Finding>>,
    /// Whether something else than the import was not done.
    #[serde(skip)]
    is_unfinished: bool,
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
            sequences: None,
            is_unfinished: false,
            skip_invalid,
            rows: rows.len(),
        })
    }

    /// Removes the counters, now that what they stood for has been stored.
    fn remove_counters(&mut self, url: &RedisUrl) {
        if !self.problems.is_empty() && !self.skip_invalid {
            self.remarks.push("the counters stay, since nothing was imported".to_owned());
            return;
        }
        let mut there: Vec<_> =
            self.sequences.iter_mut().flatten().filter(|finding| finding.exists).collect();
        if there.is_empty() {
            return;
        }
        let keys: Vec<_> = there.iter().map(|finding| finding.key.clone()).collect();
        let outcomes = import::redis::remove_sequences(url, &keys)
            .unwrap_or_else(|error| keys.iter().map(|_| Err(error.to_string())).collect());
        for (finding, outcome) in there.iter_mut().zip(outcomes) {
            match outcome {
                Ok(()) => finding.removed = true,
                Err(reason) => {
                    self.is_unfinished = true;
                    self.remarks.push(format!("{} was not removed: {reason}", finding.key));
                }
            }
        }
    }

    fn show(&self, is_json: bool) -> Output {
        let shown = if is_json { session::as_json(&json!(self)) } else { self.for_people() };
        // a part of what was asked for was not done
        let is_done = self.problems.is_empty() && !self.is_unfinished;
        let status = if is_done { 0 } else { OTHER };
        Output { status, ..shown }
    }

    fn for_people(&self) -> Output {
        let mut text = String::new();
        for problem in &self.problems {
            // a String takes everything
            let _ = writeln!(text, "{}", line(problem));
        }
        let findings = self.sequences.iter().flatten().flat_map(counter_lines);
        for remark in self.remarks.iter().cloned().chain(findings) {
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
                "nothing is imported: {problems} {}. {sound} more could be imported, {unchanged} \
                 are there already. Mend the problems where they are, or take the others with \
                 --skip-invalid",
                if problems == 1 { "problem" } else { "problems" }
            ),
            (_, true, true) => format!(
                "{imported} would be imported, {unchanged} are there already, {problems} would be \
                 left out, but for what of them nobody else has. Run it again without --dry-run"
            ),
            (_, true, false) => format!(
                "{imported} imported, {unchanged} were there already, {problems} left out, but for \
                 what of them nobody else has. What else of these is in use needs a `portsctl claim`"
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
    if (protocol, start, end) == (&None, &None, &None) {
        return format!("{source}: {reason}");
    }
    let number = |port: &Option<i64>| port.map_or("?".to_owned(), |port| port.to_string());
    let owner = match owner {
        None => "?".to_owned(),
        Some(owner) if Owner::parse(owner).is_ok() => owner.clone(),
        Some(owner) => shown(owner.as_bytes()),
    };
    let protocol = protocol.map_or("?", Protocol::as_str);
    format!("{source}: {protocol} {}-{} of {owner}: {reason}", number(start), number(end))
}

/// So many ranges that nobody accounts for are shown to people.
const UNACCOUNTED_MAX: usize = 10;

/// What a counter tells, as lines of text.
fn counter_lines(finding: &Finding) -> Vec<String> {
    let Finding { key, protocol, value, unaccounted, remark, removed, .. } = finding;
    let mut lines: Vec<_> = remark.iter().cloned().collect();
    if let (Some(value), false) = (value, unaccounted.is_empty()) {
        let shown = unaccounted.iter().take(UNACCOUNTED_MAX).map(PortRange::to_string);
        let shown = shown.collect::<Vec<_>>().join(", ");
        let more = match unaccounted.len().saturating_sub(UNACCOUNTED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        lines.push(format!(
            "{protocol} {shown}{more}: {key} has passed them ({value}), but no module accounts for \
             them. If anything uses them still, `portsctl claim` them"
        ));
    }
    if *removed {
        lines.push(format!("{key} is removed"));
    }
    lines
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
    fn people_see_the_first_of_many_ranges_that_nobody_accounts_for() {
        let range = |port| PortRange::new(port, port).unwrap();
        let mut finding = Finding {
            key: "k".to_owned(),
            protocol: Protocol::Tcp,
            exists: true,
            value: Some(20100),
            unaccounted: (0..12).map(|n| range(20000 + 2 * n)).collect(),
            remark: None,
            removed: false,
        };
        let lines = counter_lines(&finding);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("tcp 20000-20000, 20002-20002, "), "{lines:?}");
        assert!(lines[0].contains(", 20018-20018 and 2 more: k has passed them (20100)"));
        finding.unaccounted.truncate(10);
        assert!(counter_lines(&finding)[0].contains(", 20018-20018: k has passed"));
        finding.unaccounted.clear();
        assert!(counter_lines(&finding).is_empty());
    }

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
        problem.start = None;
        assert_eq!(line(&problem), "UDP_PORTS row 7: udp ?-20000 of \"a\\n\\u{1b}[2J\": no");
        (problem.protocol, problem.end) = (None, None);
        assert_eq!(line(&problem), "UDP_PORTS row 7: no");
    }
}
