//! The words of the domain: owners, protocols, ranges of ports, modules.
//!
//! Every identifier is parsed once, where it enters, and is valid from then on. Counts are counts
//! of ports; ranges are inclusive at both ends.

use std::collections::HashSet;
use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize, Serializer};

/// A text that is not a valid value of the type it was meant for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a valid {kind}")]
pub struct InvalidValue {
    kind: &'static str,
    value: String,
}

impl InvalidValue {
    fn new(kind: &'static str, value: impl Into<String>) -> Self {
        Self { kind, value: value.into() }
    }
}

/// The longest identifier, in bytes.
pub const IDENTIFIER_BYTES_MAX: usize = 64;

/// `[A-Za-z0-9][A-Za-z0-9_.-]{0,63}`
fn is_identifier(text: &str) -> bool {
    text.len() <= IDENTIFIER_BYTES_MAX
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && is_identifier_tail(text)
}

fn is_identifier_tail(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

macro_rules! text_newtype {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $is_valid:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(String);

        impl $name {
            /// Takes a text that follows the type's pattern, and nothing else.
            pub fn parse(text: &str) -> Result<Self, InvalidValue> {
                Self::try_from(text.to_owned())
            }

            /// The text as it was parsed.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidValue;

            fn try_from(text: String) -> Result<Self, InvalidValue> {
                let is_valid: fn(&str) -> bool = $is_valid;
                if is_valid(&text) { Ok(Self(text)) } else { Err(InvalidValue::new($kind, text)) }
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidValue;

            fn from_str(text: &str) -> Result<Self, InvalidValue> {
                Self::parse(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_newtype!(
    /// The name of a module instance, such as `mail1`: `[A-Za-z0-9][A-Za-z0-9_.-]{0,63}`.
    ModuleId,
    "module id",
    is_identifier
);

text_newtype!(
    /// The name of a Unix user, as the user database spells it. The pattern is a module id's,
    /// with a leading underscore allowed.
    UserName,
    "user name",
    |text| is_identifier(text)
        || (text.len() <= IDENTIFIER_BYTES_MAX && text.starts_with('_') && is_identifier_tail(text))
);

text_newtype!(
    /// The name of a range, such as `rtp`, unique per owner and protocol. The pattern is a module
    /// id's.
    RangeName,
    "range name",
    is_identifier
);

text_newtype!(
    /// Who holds a range: a module id (`mail1`), a helper owner `<module id>_<purpose>`
    /// (`mail1_rsync`), or `host/<name>` for software outside the modules.
    Owner,
    "owner",
    is_owner
);

fn is_owner(text: &str) -> bool {
    match text.strip_prefix("host/") {
        Some(name) => is_identifier(name),
        None => is_identifier(text) || is_helper(text),
    }
}

fn is_helper(text: &str) -> bool {
    text.match_indices('_').any(|(at, _)| {
        let purpose = &text[at + 1..];
        is_identifier(&text[..at])
            && (1..=IDENTIFIER_BYTES_MAX).contains(&purpose.len())
            && is_identifier_tail(purpose)
    })
}

impl Owner {
    /// The module ids that this owner may be a helper of, longest first: `a_b_c` may be a helper
    /// of `a_b` or of `a`. Which of them counts depends on the modules that exist.
    pub fn possible_modules(&self) -> impl Iterator<Item = ModuleId> + '_ {
        let text = self.as_str();
        text.rmatch_indices('_')
            .filter(|(at, _)| at + 1 < text.len())
            .filter_map(|(at, _)| ModuleId::parse(&text[..at]).ok())
    }
}

impl From<&ModuleId> for Owner {
    fn from(id: &ModuleId) -> Self {
        Self(id.0.clone())
    }
}

/// A user id of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UserId(pub u32);

impl UserId {
    /// The superuser.
    pub const ROOT: Self = Self(0);
}

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A transport protocol. The two have independent port numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
// by way of a text: serde would also take an object with the name as its key
#[serde(rename_all = "lowercase", try_from = "String")]
pub enum Protocol {
    /// TCP
    Tcp,
    /// UDP
    Udp,
}

impl Protocol {
    /// Both protocols, in the order of listings.
    pub const ALL: [Self; 2] = [Self::Tcp, Self::Udp];

    /// `tcp` or `udp`, as everywhere outside.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl TryFrom<String> for Protocol {
    type Error = InvalidValue;

    fn try_from(text: String) -> Result<Self, InvalidValue> {
        text.parse()
    }
}

impl std::str::FromStr for Protocol {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        Self::ALL
            .into_iter()
            .find(|protocol| protocol.as_str() == text)
            .ok_or_else(|| InvalidValue::new("protocol", text))
    }
}

/// Protocols that a range is wanted in: at least one, none twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Protocol>")]
pub struct Protocols(Vec<Protocol>);

impl Protocols {
    /// The protocols, in the order given.
    #[must_use]
    pub fn as_slice(&self) -> &[Protocol] {
        &self.0
    }
}

impl TryFrom<Vec<Protocol>> for Protocols {
    type Error = InvalidValue;

    fn try_from(protocols: Vec<Protocol>) -> Result<Self, InvalidValue> {
        let distinct: HashSet<_> = protocols.iter().collect();
        if protocols.is_empty() || distinct.len() < protocols.len() {
            return Err(InvalidValue::new("list of protocols", format!("{protocols:?}")));
        }
        Ok(Self(protocols))
    }
}

impl std::str::FromStr for Protocols {
    type Err = InvalidValue;

    /// Reads `tcp`, `udp` or `tcp,udp`.
    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let protocols: Result<Vec<_>, _> = text.split(',').map(str::parse).collect();
        protocols.and_then(Self::try_from)
    }
}

/// How many ports a call asks for: 1..=65535.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u16")]
pub struct PortCount(u16);

impl PortCount {
    /// The count as a number, 1 at least.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl TryFrom<u16> for PortCount {
    type Error = InvalidValue;

    fn try_from(count: u16) -> Result<Self, InvalidValue> {
        if count == 0 { Err(InvalidValue::new("count of ports", "0")) } else { Ok(Self(count)) }
    }
}

/// The ports `start..=end`. Invariant: `1 <= start <= end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Ends")]
pub struct PortRange {
    start: u16,
    end: u16,
}

/// The two ends of a range, before anybody has looked at them.
#[derive(Deserialize)]
struct Ends {
    start: u16,
    end: u16,
}

impl TryFrom<Ends> for PortRange {
    type Error = InvalidValue;

    fn try_from(Ends { start, end }: Ends) -> Result<Self, InvalidValue> {
        Self::new(start, end)
    }
}

impl PortRange {
    /// The range `start..=end`; neither end may be 0 and they may not be reversed.
    pub fn new(start: u16, end: u16) -> Result<Self, InvalidValue> {
        if 1 <= start && start <= end {
            Ok(Self { start, end })
        } else {
            Err(InvalidValue::new("port range", format!("{start}-{end}")))
        }
    }

    /// `count` ports from `start` on; `None` if they would pass port 65535 or `start` is 0.
    #[must_use]
    pub fn with_count(start: u16, count: PortCount) -> Option<Self> {
        let end = start.checked_add(count.get() - 1)?;
        Self::new(start, end).ok()
    }

    /// The lowest port.
    #[must_use]
    pub const fn start(self) -> u16 {
        self.start
    }

    /// The highest port.
    #[must_use]
    pub const fn end(self) -> u16 {
        self.end
    }

    /// How many ports the range has.
    #[must_use]
    pub const fn count(self) -> PortCount {
        // cannot overflow: start is 1 at least
        PortCount(self.end - self.start + 1)
    }

    /// Whether the two share a port.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// The ports that the two have in common, if there are any.
    #[must_use]
    pub fn intersection(self, other: Self) -> Option<Self> {
        Self::new(self.start.max(other.start), self.end.min(other.end)).ok()
    }

    /// What is left of this range below and above `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Vec<Self> {
        let below = other.start.checked_sub(1).map(|end| Self::new(self.start, end.min(self.end)));
        let above =
            other.end.checked_add(1).map(|start| Self::new(start.max(self.start), self.end));
        [below, above].into_iter().flatten().flatten().collect()
    }

    /// Whether the port lies in this range.
    #[must_use]
    pub const fn has(self, port: u16) -> bool {
        self.start <= port && port <= self.end
    }

    /// Whether every port of `other` lies in this range.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start, self.end)
    }
}

impl std::str::FromStr for PortRange {
    type Err = InvalidValue;

    /// Reads `20000-20003`, or `20000` for a single port.
    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let (start, end) = text.split_once('-').unwrap_or((text, text));
        match (start.parse(), end.parse()) {
            (Ok(start), Ok(end)) => Self::new(start, end),
            _ => Err(InvalidValue::new("port range", text)),
        }
    }
}

/// A moment in whole seconds, written as RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Timestamp(u32);

impl Timestamp {
    /// The present moment; the far ends of the representable time for a clock beyond them.
    #[must_use]
    pub fn now() -> Self {
        let seconds = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        Self(u32::try_from(seconds).unwrap_or(u32::MAX))
    }

    /// A moment from its seconds since 1970.
    #[must_use]
    pub const fn from_unix(seconds: u32) -> Self {
        Self(seconds)
    }

    /// The moment that was so long ago; the beginning of time for a longer one.
    #[must_use]
    pub fn before(self, time: Duration) -> Self {
        let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        Self(self.0.saturating_sub(seconds))
    }

    /// Seconds since 1970.
    #[must_use]
    pub const fn as_unix(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(self.0.into());
        humantime::format_rfc3339_seconds(time).fmt(f)
    }
}

impl TryFrom<String> for Timestamp {
    type Error = InvalidValue;

    fn try_from(text: String) -> Result<Self, InvalidValue> {
        humantime::parse_rfc3339(&text)
            .ok()
            .and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok())
            .and_then(|since| u32::try_from(since.as_secs()).ok())
            .map(Self)
            .ok_or_else(|| InvalidValue::new("time", text))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A range and who holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Allocation {
    /// Who holds it.
    pub owner: Owner,
    /// The number space it lies in.
    pub protocol: Protocol,
    /// Its name; `None` for an unnamed range.
    pub name: Option<RangeName>,
    /// The ports.
    #[serde(flatten)]
    pub range: PortRange,
    /// Whether an administrator fixed its numbers. A claim is not demand and is never moved.
    pub claimed: bool,
    /// When the range was first given.
    pub allocated_at: Timestamp,
}

impl Allocation {
    /// Whether this is an unnamed range in the sense of Allocate.
    #[must_use]
    pub fn is_unnamed(&self) -> bool {
        self.name.is_none() && !self.claimed
    }

    /// What orders ranges by how long they are held: of several of one size, Allocate keeps the
    /// first. Those that were given in the same second stand in the order of their numbers.
    #[must_use]
    pub const fn held_since(&self) -> (Timestamp, PortRange) {
        (self.allocated_at, self.range)
    }
}

/// Which of an owner's ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// All of them, claims aside.
    All,
    /// The range of that name.
    Named(RangeName),
    /// Exactly these ports.
    Ports(PortRange),
}

/// Who made a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The user id of the caller.
    pub uid: UserId,
    /// The module on whose behalf it called.
    pub on_behalf_of: Option<ModuleId>,
}

/// What an event of the history is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HistoryKind {
    /// The owner got the range.
    Allocated,
    /// The owner lost it.
    Deallocated,
}

impl HistoryKind {
    /// `allocated` or `deallocated`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allocated => "allocated",
            Self::Deallocated => "deallocated",
        }
    }
}

impl std::str::FromStr for HistoryKind {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        [Self::Allocated, Self::Deallocated]
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| InvalidValue::new("kind of event", text))
    }
}

/// Who got or lost which ports, when, and who made the change. A range that gets another end or
/// another owner is lost and got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEvent {
    /// When it was stored.
    pub at: Timestamp,
    /// What happened.
    pub kind: HistoryKind,
    /// To whom.
    pub owner: Owner,
    /// In which protocol.
    pub protocol: Protocol,
    /// The name of the range; `None` for an unnamed one.
    pub name: Option<RangeName>,
    /// The ports.
    #[serde(flatten)]
    pub range: PortRange,
    /// Who made the call.
    pub uid: UserId,
    /// The module on whose behalf it was made.
    pub on_behalf_of: Option<ModuleId>,
}

/// Which events of the history to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Only those of this owner.
    pub owner: Option<Owner>,
    /// Only those of this protocol.
    pub protocol: Option<Protocol>,
    /// Only those of ranges that have this port.
    pub port: Option<u16>,
    /// So many at most, the newest.
    pub limit: u32,
}

/// How many ports a module may hold, per protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Demand {
    /// TCP ports
    pub tcp: u16,
    /// UDP ports
    pub udp: u16,
}

impl Demand {
    /// The demand in one protocol, in ports.
    #[must_use]
    pub const fn of(self, protocol: Protocol) -> u16 {
        match protocol {
            Protocol::Tcp => self.tcp,
            Protocol::Udp => self.udp,
        }
    }
}

/// A module as the registry knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// The module's id.
    pub id: ModuleId,
    /// The Unix user that its processes run as.
    pub unix_user: UserName,
    /// Whether it may change its own ports.
    pub portsadm: bool,
    /// How many ports it may hold.
    pub demand: Demand,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_ids_follow_their_pattern() {
        let longest = "a".repeat(64);
        for good in ["mail1", "1", "A.b-c_d", &longest] {
            assert_eq!(ModuleId::parse(good).map(|id| id.to_string()), Ok(good.to_owned()));
        }
        let too_long = "a".repeat(65);
        for bad in ["", "_a", "-a", ".a", "a b", "a/b", "a\0b", "a\n", "é", &too_long] {
            assert!(ModuleId::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn owners_are_modules_helpers_or_host_software() {
        let long_helper = format!("{}_{}", "a".repeat(64), "b".repeat(64));
        for good in ["mail1", "mail1_rsync", "host/rustdesk", &long_helper] {
            assert!(Owner::parse(good).is_ok(), "{good:?}");
        }
        let unsplit = "a".repeat(65);
        for bad in ["", "host/", "host/_a", "host/a/b", "/a", "a/b", "root/a", &unsplit] {
            assert!(Owner::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_helper_may_belong_to_any_prefix() {
        let names = |owner: &str| -> Vec<String> {
            Owner::parse(owner).unwrap().possible_modules().map(|id| id.to_string()).collect()
        };
        assert_eq!(names("a_b_c"), ["a_b", "a"]);
        assert_eq!(names("mail1"), [""; 0]);
        assert_eq!(names("mail1_"), [""; 0]);
        assert_eq!(names("host/a_b"), [""; 0]);
    }

    #[test]
    fn ranges_are_inclusive_and_ordered() {
        let range = PortRange::new(20000, 20003).unwrap();
        assert_eq!(range.count().get(), 4);
        assert_eq!(range.to_string(), "20000-20003");
        assert_eq!("20000-20003".parse(), Ok(range));
        assert_eq!("7".parse(), PortRange::new(7, 7));
        assert!(PortRange::new(0, 5).is_err());
        assert!(PortRange::new(6, 5).is_err());
        assert_eq!(PortRange::new(1, 65535).unwrap().count().get(), 65535);
        for bad in ["", "-", "1-", "-1", "2-1", "0-1", "1-65536", "a-b", "1-2-3"] {
            assert!(bad.parse::<PortRange>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_count_never_passes_the_last_port() {
        let count = |n| PortCount::try_from(n).unwrap();
        assert_eq!(PortRange::with_count(65535, count(1)), PortRange::new(65535, 65535).ok());
        assert_eq!(PortRange::with_count(65535, count(2)), None);
        assert_eq!(PortRange::with_count(1, count(65535)), PortRange::new(1, 65535).ok());
        assert!(PortCount::try_from(0).is_err());
    }

    #[test]
    fn timestamps_are_rfc_3339_in_utc() {
        assert_eq!(Timestamp::from_unix(0).to_string(), "1970-01-01T00:00:00Z");
        let time = Timestamp::from_unix(1_764_547_200);
        assert_eq!(time.to_string(), "2025-12-01T00:00:00Z");
        assert_eq!(Timestamp::try_from(time.to_string()), Ok(time));
        for bad in ["", "yesterday", "1969-12-31T23:59:59Z", "2300-01-01T00:00:00Z"] {
            assert!(Timestamp::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
