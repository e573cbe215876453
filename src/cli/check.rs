//! What is wrong with this node, and what to do about it.
//!
//! Each check is apart from the others, and says what is wrong as findings, and what it can't look
//! at as remarks. Where the service can't be asked, that is a finding, and the checks that need its
//! answers are left out. Nothing is changed, and nothing is waited for without an end.

mod database;
mod ephemeral;
mod foreign;
mod labels;
mod owners;
mod service;
mod sockets;
mod units;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::failure::OTHER;
use super::output::Output;
use super::session;

/// How long a check may take: longer than a locked database or a slow user database should.
const PATIENCE: Duration = Duration::from_secs(30);

/// The checks, in the order in which they are made and told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Check {
    Units,
    Service,
    Labels,
    Database,
    Ephemeral,
    Foreign,
    Owners,
}

impl Check {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Units => "units",
            Self::Service => "service",
            Self::Labels => "labels",
            Self::Database => "database",
            Self::Ephemeral => "ephemeral",
            Self::Foreign => "foreign",
            Self::Owners => "owners",
        }
    }
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    /// Who found it.
    check: Check,
    /// What is wrong.
    message: String,
    /// What to do about it.
    advice: String,
}

/// What has come of a check.
#[derive(Debug, Default, PartialEq, Eq)]
struct Report {
    findings: Vec<Finding>,
    /// What could not be looked at, and why.
    remarks: Vec<String>,
}

impl Report {
    fn find(&mut self, check: Check, message: impl Into<String>, advice: impl Into<String>) {
        let (message, advice) = (message.into(), advice.into());
        self.findings.push(Finding { check, message, advice });
    }

    fn remark(&mut self, remark: impl Into<String>) {
        self.remarks.push(remark.into());
    }

    fn add(&mut self, other: Self) {
        self.findings.extend(other.findings);
        self.remarks.extend(other.remarks);
    }

    fn show(self, json: bool) -> Output {
        let mut remarks = self.remarks;
        if self.findings.is_empty() {
            remarks.push("nothing is wrong".to_owned());
        }
        let status = if self.findings.is_empty() { 0 } else { OTHER };
        let text = if json {
            session::as_json(&json!({ "findings": self.findings })).text
        } else {
            self.findings.iter().map(line).collect()
        };
        Output { text, remarks, status }
    }
}

/// A finding on one line, whatever texts from elsewhere are in it.
fn line(finding: &Finding) -> String {
    let Finding { check, message, advice } = finding;
    let text = format!("{}: {message}. {}", check.as_str(), capitalized(advice));
    format!("{}\n", text.replace(char::is_control, " "))
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Makes all checks. The service comes second: asking it starts it, and makes its database.
pub(super) fn show(socket: &Path, state: PathBuf, json: bool) -> Output {
    let mut report = within(PATIENCE, Check::Units, || {
        let mut report = units::check();
        report.add(sockets::check());
        report
    });
    let answers = service::ask(socket);
    let directory = state.clone();
    report.add(within(PATIENCE, Check::Labels, move || labels::check(&directory)));
    report.add(within(PATIENCE, Check::Database, move || database::check(&state)));
    match answers {
        Ok(answers) => report.add(judge(answers)),
        Err(finding) => {
            report.findings.push(finding);
            report.remark(
                "not looked at, since they need the service's answers: the pool and the ephemeral \
                 ports, ports that others have bound, owners without a module",
            );
        }
    }
    report.findings.sort_by_key(|finding| finding.check);
    report.show(json)
}

/// The checks of what the service says.
fn judge(answers: service::Answers) -> Report {
    let mut report = ephemeral::check(&answers.pools);
    report.add(owners::check(&answers));
    let service::Answers { allocations, modules, .. } = answers;
    report.add(within(PATIENCE, Check::Foreign, move || foreign::check(&allocations, &modules)));
    report
}

/// Makes a check on a thread of its own, which is left behind if it has not ended in time: a disk
/// or a user database that does not answer can't be told to give up.
fn within(
    patience: Duration,
    check: Check,
    work: impl FnOnce() -> Report + Send + 'static,
) -> Report {
    let (sender, receiver) = mpsc::channel();
    // without a thread, the sender is gone at once
    let _ = thread::Builder::new().spawn(move || sender.send(work()));
    receiver.recv_timeout(patience).unwrap_or_else(|error| {
        let mut report = Report::default();
        match error {
            RecvTimeoutError::Timeout => report.find(
                check,
                format!("this check has not ended within {} seconds", patience.as_secs()),
                "something that it reads does not answer; the kernel's log, `dmesg`, may name it",
            ),
            RecvTimeoutError::Disconnected => {
                report.find(check, "this check could not be made", "try again");
            }
        }
        report
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Allocation;

    /// Unnamed ranges, by owner, protocol and both ends.
    pub(super) fn held(rows: &[(&str, &str, u16, u16)]) -> Vec<Allocation> {
        let one = |(owner, protocol, start, end): &(&str, &str, u16, u16)| {
            serde_json::from_value(json!({
                "owner": owner, "protocol": protocol, "name": null, "start": start, "end": end,
                "claimed": false, "allocatedAt": "2025-12-01T00:00:00Z"
            }))
            .unwrap()
        };
        rows.iter().map(one).collect()
    }

    fn found(message: &str, advice: &str) -> Report {
        let mut report = Report::default();
        report.find(Check::Owners, message, advice);
        report
    }

    #[test]
    fn a_finding_is_a_line_and_a_status() {
        let output = found("a is\nwrong", "éndo it").show(false);
        assert_eq!((output.text.as_str(), output.status), ("owners: a is wrong. Éndo it\n", 1));
        assert!(output.remarks.is_empty());
    }

    #[test]
    fn findings_are_an_array_in_json() {
        let parse = |report: Report| -> serde_json::Value {
            serde_json::from_str(&report.show(true).text).unwrap()
        };
        let finding = json!({"check": "owners", "message": "a", "advice": "b"});
        assert_eq!(parse(found("a", "b")), json!({ "findings": [finding] }));
        assert_eq!(parse(Report::default()), json!({ "findings": [] }));
    }

    #[test]
    fn without_a_finding_only_a_remark_is_made() {
        let output = Report::default().show(false);
        assert_eq!((output.text.as_str(), output.status), ("", 0));
        assert_eq!(output.remarks, ["nothing is wrong"]);
    }

    #[test]
    fn names_are_those_of_json() {
        for check in [
            Check::Units,
            Check::Service,
            Check::Labels,
            Check::Database,
            Check::Ephemeral,
            Check::Foreign,
            Check::Owners,
        ] {
            assert_eq!(json!(check), json!(check.as_str()));
        }
    }

    #[test]
    fn a_check_that_hangs_or_dies_is_a_finding() {
        let (_sender, never) = mpsc::channel::<()>();
        let stuck = within(Duration::from_millis(20), Check::Database, move || {
            let _ = never.recv();
            Report::default()
        });
        assert!(stuck.findings[0].message.contains("not ended"), "{stuck:?}");
        let dead = within(PATIENCE, Check::Labels, || panic!("on purpose"));
        assert!(dead.findings[0].message.contains("could not"), "{dead:?}");
        assert_eq!(within(PATIENCE, Check::Labels, || found("a", "b")), found("a", "b"));
    }
}
