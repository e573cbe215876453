//! The counters that NS8 handed ports out by before it had a file: the key holds the lowest port
//! that was never given. Pure: the values have been read already.

use serde::Serialize;

use super::super::{Row, number, shown};
use crate::model::{Allocation, PortRange, Protocol};

/// Where the counters began: no port below was ever handed out.
pub(super) const FIRST_PORT: u16 = 20000;

/// A counter as it stands in Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    pub(super) key: String,
    pub(super) protocol: Protocol,
    pub(super) value: Value,
}

/// What stands there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Absent,
    /// The lowest port that was never given.
    Next(i64),
    /// Something else, in words.
    Odd(String),
}

impl Value {
    pub(super) fn parse(value: Option<Vec<u8>>) -> Self {
        match value {
            None => Self::Absent,
            Some(text) => match number(&text) {
                Some(next) => Self::Next(next),
                None => Self::Odd(shown(&text)),
            },
        }
    }

    pub(super) fn wrong_type() -> Self {
        Self::Odd("of another type".to_owned())
    }
}

/// What a counter tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The counter's key.
    pub key: String,
    /// Whose ports it counts.
    pub protocol: Protocol,
    /// Whether the key is there.
    pub exists: bool,
    /// The counter, if it is a number.
    pub value: Option<i64>,
    /// Ports below it that nobody accounts for: no module of the source, and nobody in portsd.
    pub unaccounted: Vec<PortRange>,
    /// Why it can't be relied upon.
    pub remark: Option<String>,
    /// Whether the key has been removed.
    pub removed: bool,
}

impl Sequence {
    /// The lowest port that was never given, if the counter is one.
    pub(super) fn next(&self) -> Option<i64> {
        match self.value {
            Value::Next(next) => Some(next),
            Value::Absent | Value::Odd(_) => None,
        }
    }

    /// What the counter tells, given what was read and what portsd holds.
    #[must_use]
    pub fn judge(&self, rows: &[Row], held: &[Allocation]) -> Finding {
        let known = self.known(rows);
        let of_others = held.iter().filter(|one| one.protocol == self.protocol);
        let accounted = known.iter().copied().chain(of_others.map(|one| one.range)).collect();
        let (value, unaccounted, remark) = match &self.value {
            Value::Absent => (None, Vec::new(), Some(format!("{} is not there", self.key))),
            Value::Odd(found) => {
                (None, Vec::new(), Some(format!("{} is {found}, which is no counter", self.key)))
            }
            Value::Next(next) => {
                (Some(*next), unaccounted(*next, accounted), self.doubt(*next, &known))
            }
        };
        let nothing_known =
            format!("nothing tells how far {} ports were handed out", self.protocol);
        let remark = remark.map(|remark| format!("{remark}: {nothing_known}"));
        let (key, protocol) = (self.key.clone(), self.protocol);
        let exists = self.value != Value::Absent;
        Finding { key, protocol, exists, value, unaccounted, remark, removed: false }
    }

    /// The ranges of this protocol in the source, as far as they are ranges.
    fn known(&self, rows: &[Row]) -> Vec<PortRange> {
        let range = |row: &Row| match row {
            Row::Range { range, .. } if range.protocol == self.protocol => {
                PortRange::new(range.start.try_into().ok()?, range.end.try_into().ok()?).ok()
            }
            _ => None,
        };
        rows.iter().filter_map(range).collect()
    }

    /// Why a number can't be that counter, if it can't.
    fn doubt(&self, next: i64, known: &[PortRange]) -> Option<String> {
        let Self { key, protocol, .. } = self;
        if !(i64::from(FIRST_PORT)..=i64::from(u16::MAX) + 1).contains(&next) {
            return Some(format!("{key} is {next}, and counts from {FIRST_PORT} on"));
        }
        let beyond = known.iter().find(|range| i64::from(range.end()) >= next)?;
        Some(format!("{key} is {next}, but a module has {protocol} {beyond}"))
    }
}

/// The counter of a protocol on a node.
pub(super) fn key(node_id: u32, protocol: Protocol) -> String {
    format!("node/{node_id}/{protocol}_ports_sequence")
}

/// What lies below the counter and in no range.
fn unaccounted(next: i64, mut accounted: Vec<PortRange>) -> Vec<PortRange> {
    let last = next.saturating_sub(1).min(i64::from(u16::MAX));
    let Ok(last) = u16::try_from(last) else { return Vec::new() };
    accounted.sort_unstable();
    let mut found = Vec::new();
    let mut from = FIRST_PORT;
    for range in accounted {
        // where nothing lies between, there is no such range
        found.extend(PortRange::new(from, last.min(range.start() - 1)).ok());
        let Some(above) = range.end().checked_add(1) else { return found };
        from = from.max(above);
    }
    found.extend(PortRange::new(from, last).ok());
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Owner, Timestamp};
    use crate::request::ImportedRange;

    fn range(start: u16, end: u16) -> PortRange {
        PortRange::new(start, end).unwrap()
    }

    fn ranges(ends: &[(u16, u16)]) -> Vec<PortRange> {
        ends.iter().map(|(start, end)| range(*start, *end)).collect()
    }

    #[test]
    fn what_lies_below_the_counter_and_in_no_range_is_unaccounted() {
        for (next, accounted, expected) in [
            (20000, &[][..], &[][..]),
            (20001, &[], &[(20000, 20000)]),
            (20010, &[], &[(20000, 20009)]),
            (20010, &[(20000, 20009)], &[]),
            (20010, &[(20000, 20003), (20006, 20007)], &[(20004, 20005), (20008, 20009)]),
            (20010, &[(20006, 20020), (1, 5), (19990, 20001)], &[(20002, 20005)]),
            (20010, &[(20000, 20005), (20002, 20003)], &[(20006, 20009)]),
            (20010, &[(30000, 30000)], &[(20000, 20009)]),
            (45001, &[(20000, 44999)], &[(45000, 45000)]),
            (65536, &[(20000, 65534)], &[(65535, 65535)]),
            (65536, &[(20000, 65535), (20000, 20000)], &[]),
            (i64::MAX, &[(20001, 65535)], &[(20000, 20000)]),
            (0, &[], &[]),
        ] {
            assert_eq!(
                unaccounted(next, ranges(accounted)),
                ranges(expected),
                "{next} {accounted:?}"
            );
        }
    }

    fn judge(value: Value) -> Finding {
        let sequence = Sequence { key: key(3, Protocol::Tcp), protocol: Protocol::Tcp, value };
        let row = |protocol, start, end| Row::Range {
            source: "x".to_owned(),
            range: ImportedRange { owner: "a".to_owned(), protocol, start, end },
        };
        let rows = [
            row(Protocol::Tcp, 20000, 20003),
            row(Protocol::Udp, 20004, 20007),
            row(Protocol::Tcp, 20009, 20008),
        ];
        let held = |protocol, start, end| Allocation {
            owner: Owner::parse("b").unwrap(),
            protocol,
            name: None,
            range: range(start, end),
            claimed: false,
            allocated_at: Timestamp::from_unix(0),
        };
        sequence.judge(&rows, &[held(Protocol::Tcp, 20006, 30000), held(Protocol::Udp, 1, 65535)])
    }

    #[test]
    fn a_counter_is_held_against_what_is_known_of_its_protocol() {
        let sound = judge(Value::Next(20008));
        assert_eq!(sound.key, "node/3/tcp_ports_sequence");
        assert_eq!((sound.value, sound.remark), (Some(20008), None));
        assert_eq!(sound.unaccounted, [range(20004, 20005)]);
        let low = judge(Value::Next(20003));
        assert!(low.remark.unwrap().contains("is 20003, but a module has tcp 20000-20003"));
        assert_eq!(judge(Value::Next(20004)).remark, None);
    }

    #[test]
    fn what_is_no_counter_is_told_and_nothing_is_made_of_it() {
        for (value, words) in [
            (
                Value::parse(None),
                "node/3/tcp_ports_sequence is not there: nothing tells how far tcp",
            ),
            (Value::parse(Some(b"".to_vec())), "is \"\", which is no counter: nothing"),
            (Value::parse(Some(b"20010\n".to_vec())), "is \"20010\\n\", which is no counter"),
            (Value::wrong_type(), "is of another type, which is no counter"),
        ] {
            let finding = judge(value);
            assert!(finding.remark.as_ref().unwrap().contains(words), "{finding:?}");
            assert_eq!((finding.value, finding.unaccounted), (None, Vec::new()));
        }
        for next in [0, 19999, 65537, i64::MAX] {
            let finding = judge(Value::Next(next));
            assert!(finding.remark.as_ref().unwrap().contains("counts from 20000 on"));
        }
    }
}
