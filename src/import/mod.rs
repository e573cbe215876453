//! What NS8's own allocator has kept, for Import to take over. Used by portsctl only.
//!
//! A source gives its rows in its own order. A row is a range that can be sent to the service, or a
//! problem where it can't even be sent; the service finds the problems of the others, and
//! [`problems`] puts both kinds into one report.

pub mod redis;
pub mod sqlite;

use std::fmt::Write;

use serde::Serialize;

use crate::model::Protocol;
use crate::reply;
use crate::request::ImportedRange;

/// Why nothing can be read from a source. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct Unreadable {
    place: String,
    reason: String,
}

impl Unreadable {
    fn new(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { place: place.into(), reason: reason.into() }
    }
}

/// What a source keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// Every range of it, sound or not, in its order.
    pub rows: Vec<Row>,
    /// What whoever imports it should know besides.
    pub remarks: Vec<String>,
}

/// A range as a source keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    /// It can be sent to the service, which judges it.
    Range {
        /// Where it was found.
        source: String,
        /// The range.
        range: ImportedRange,
    },
    /// It can't be sent.
    Problem(Problem),
}

/// A range that can't be taken over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where it was found: a table and row id, or a key and its field.
    pub source: String,
    /// Whose it is, if that is a text.
    pub owner: Option<String>,
    /// In which protocol, if that is known.
    pub protocol: Option<Protocol>,
    /// The lowest port, if it is a number.
    pub start: Option<i64>,
    /// The highest port, if it is a number.
    pub end: Option<i64>,
    /// Why not.
    pub reason: String,
}

impl Problem {
    /// A range that was read, but can't be taken over.
    fn of(source: &str, range: &ImportedRange, reason: String) -> Self {
        let ImportedRange { owner, protocol, start, end } = range;
        Self {
            source: source.to_owned(),
            owner: Some(owner.clone()),
            protocol: Some(*protocol),
            start: Some(*start),
            end: Some(*end),
            reason,
        }
    }
}

/// All problems in the order of the rows: those found when the rows were read, and those that the
/// service found in what it was sent. It tells them in the order in which it got the ranges, and
/// judges equal ranges equally, or takes the first one.
#[must_use]
pub fn problems(rows: &[Row], refused: &[reply::Problem]) -> Vec<Problem> {
    let mut refused = refused.iter().peekable();
    let mut problems = Vec::new();
    for row in rows {
        match row {
            Row::Problem(problem) => problems.push(problem.clone()),
            Row::Range { source, range } => {
                let found = refused.next_if(|problem| problem.range == *range);
                problems.extend(found.map(|problem| refusal(source, problem)));
            }
        }
    }
    // none, unless the service speaks of what it was not sent; even then nothing goes unsaid
    problems.extend(refused.map(|problem| refusal("portsd", problem)));
    problems
}

fn refusal(source: &str, problem: &reply::Problem) -> Problem {
    Problem::of(source, &problem.range, problem.reason.clone())
}

/// So much of a strange value is shown, in bytes.
const SHOWN_BYTES_MAX: usize = 64;

/// A value in quotes, for a report: its beginning where it is long, and nothing that a terminal
/// would act upon.
#[must_use]
pub fn shown(value: &[u8]) -> String {
    shown_up_to(SHOWN_BYTES_MAX, value)
}

fn shown_up_to(bytes_max: usize, value: &[u8]) -> String {
    let head = value.get(..bytes_max).unwrap_or(value);
    let mut text = String::from("\"");
    for chunk in head.utf8_chunks() {
        // a String takes everything
        let _ = write!(text, "{}{}", chunk.valid().escape_debug(), chunk.invalid().escape_ascii());
    }
    text.push('"');
    if head.len() < value.len() {
        let _ = write!(text, "... ({} bytes)", value.len());
    }
    text
}

/// A whole number in decimal digits and nothing else.
fn number(text: &[u8]) -> Option<i64> {
    let is_decimal = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    if is_decimal { str::from_utf8(text).ok()?.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(owner: &str, start: i64) -> ImportedRange {
        ImportedRange { owner: owner.to_owned(), protocol: Protocol::Tcp, start, end: start }
    }

    fn row(source: &str, owner: &str, start: i64) -> Row {
        Row::Range { source: source.to_owned(), range: range(owner, start) }
    }

    fn refused(owner: &str, start: i64) -> reply::Problem {
        reply::Problem { range: range(owner, start), reason: "no".to_owned() }
    }

    #[test]
    fn problems_of_both_kinds_stand_in_the_order_of_the_rows() {
        let unsendable = |source: &str| {
            Row::Problem(Problem {
                source: source.to_owned(),
                owner: None,
                protocol: None,
                start: None,
                end: None,
                reason: "odd".to_owned(),
            })
        };
        let rows = [
            row("1", "a", 1),
            unsendable("2"),
            row("3", "b", 1),
            row("4", "a", 1),
            row("5", "b", 1),
            unsendable("6"),
        ];
        let sources = |refused: &[reply::Problem]| -> Vec<String> {
            problems(&rows, refused).into_iter().map(|problem| problem.source).collect()
        };
        assert_eq!(sources(&[refused("b", 1), refused("b", 1)]), ["2", "3", "5", "6"]);
        assert_eq!(sources(&[]), ["2", "6"]);
        assert_eq!(sources(&[refused("c", 1)]), ["2", "6", "portsd"]);
    }

    #[test]
    fn strange_values_are_shown_harmless_and_short() {
        for (value, expected) in [
            (&b"abc"[..], "\"abc\""),
            (b"", "\"\""),
            (b"a\n\x1b[2J\"", "\"a\\n\\u{1b}[2J\\\"\""),
            (b"\xff\x00", "\"\\xff\\0\""),
            ("é\u{202e}x".as_bytes(), "\"é\\u{202e}x\""),
        ] {
            assert_eq!(shown(value), expected);
        }
        let long = shown(&vec![b'x'; 1_000_000]);
        assert_eq!(long, format!("\"{}\"... (1000000 bytes)", "x".repeat(SHOWN_BYTES_MAX)));
    }

    #[test]
    fn numbers_are_digits_only() {
        assert_eq!(number(b"20000"), Some(20000));
        assert_eq!(number(b"0"), Some(0));
        for text in ["", "+1", "-1", " 1", "1\n", "1.0", "1e3", "0x1", "9999999999999999999", "x"] {
            assert_eq!(number(text.as_bytes()), None, "{text:?}");
        }
    }
}
