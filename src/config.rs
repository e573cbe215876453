//! The configuration file, `/etc/portsd/portsd.toml`.
//!
//! Every key is optional. [`parse`] is apart from [`load`], so that what a text means can be
//! shown without a file. An unknown key or an impossible value is an error that names it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use crate::model::PortRange;

mod registry;

pub use registry::{ClusterConfig, NodeId, RegistryConfig};

/// Where the configuration is, unless the command line says otherwise.
pub const DEFAULT_PATH: &str = "/etc/portsd/portsd.toml";

/// The whole configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// The ports that are handed out.
    pub pool: PoolConfig,
    /// Where it is known who is a module.
    pub registry: RegistryConfig,
    /// What is remembered of the past.
    pub history: HistoryConfig,
    /// Bounds on what clients can make the service hold.
    pub limits: Limits,
}

/// `[pool]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    /// The pool, both ends usable.
    pub range: PortRange,
    /// Ports inside the pool that are never given.
    pub exclude: Vec<PortRange>,
    /// For so long, ports that were freed go to others only when nothing else fits. Zero: no time.
    pub quarantine: Duration,
    /// Whether ports that some process has bound are left out.
    pub skip_bound: bool,
}

/// The first port of the pool unless configured otherwise.
pub const POOL_START: u16 = 20000;
/// The last port of the pool unless configured otherwise.
pub const POOL_END: u16 = 45000;

/// How long freed ports are kept from others unless configured otherwise.
const QUARANTINE: Duration = Duration::from_secs(10 * 60);
/// How long the history is kept unless configured otherwise.
const HISTORY_KEEP: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// `[history]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HistoryConfig {
    /// How long an event is kept. Zero: not at all, and with it goes what portsd knows of ports
    /// that were freed before its last start.
    #[serde(deserialize_with = "duration")]
    pub keep: Duration,
}

impl Default for HistoryConfig {
    fn default() -> Self {
        Self { keep: HISTORY_KEEP }
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        let range = PortRange::new(POOL_START, POOL_END).expect("the two constants are in order");
        Self { range, exclude: Vec::new(), quarantine: QUARANTINE, skip_bound: true }
    }
}

/// `[limits]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The longest message on a module socket, in bytes.
    pub message_bytes: usize,
    /// The longest message on an admin socket, in bytes.
    pub admin_message_bytes: usize,
    /// Calls in one JSON-RPC batch.
    pub batch: usize,
    /// Connections at once to the module sockets, and as many to the admin sockets.
    pub connections: usize,
    /// Connections at once per Unix user.
    pub connections_per_uid: usize,
    /// How long a message may take from its first byte to its last.
    #[serde(deserialize_with = "duration")]
    pub unfinished_message: Duration,
    /// How long a peer may leave a reply unread before it is hung up on.
    #[serde(deserialize_with = "duration")]
    pub unread_reply: Duration,
    /// How long a connection may be silent.
    #[serde(deserialize_with = "duration")]
    pub idle_connection: Duration,
    /// Calls that wait for the thread that owns the database.
    pub queue: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 64 * 1024,
            admin_message_bytes: 16 * 1024 * 1024,
            batch: 64,
            connections: 512,
            connections_per_uid: 64,
            unfinished_message: Duration::from_secs(10),
            unread_reply: Duration::from_secs(10),
            idle_connection: Duration::from_secs(300),
            queue: 1024,
        }
    }
}

impl Limits {
    /// No limit may be so low that nothing works, nor so high that it is none.
    fn check(&self) -> Result<(), String> {
        const COUNT_MAX: usize = 1_000_000;
        // a call that changes something has some hundred bytes
        const BYTES_MIN: usize = 1024;
        const BYTES_MAX: usize = 1024 * 1024 * 1024;
        const TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);
        for (name, value, min, max) in [
            ("message_bytes", self.message_bytes, BYTES_MIN, BYTES_MAX),
            ("admin_message_bytes", self.admin_message_bytes, BYTES_MIN, BYTES_MAX),
            ("batch", self.batch, 1, COUNT_MAX),
            ("connections", self.connections, 1, COUNT_MAX),
            ("connections_per_uid", self.connections_per_uid, 1, COUNT_MAX),
            ("queue", self.queue, 1, COUNT_MAX),
        ] {
            if !(min..=max).contains(&value) {
                return Err(format!("limits.{name} has to be between {min} and {max}"));
            }
        }
        for (name, time) in [
            ("unfinished_message", self.unfinished_message),
            ("unread_reply", self.unread_reply),
            ("idle_connection", self.idle_connection),
        ] {
            if time.is_zero() || time > TIME_MAX {
                return Err(format!("limits.{name} has to be more than 0 and at most a day"));
            }
        }
        Ok(())
    }
}

/// Why there is no configuration to start with.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is there but can't be read.
    #[error("{path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What reading it said.
        source: std::io::Error,
    },
    /// The file can be read but not be followed.
    #[error("{path}: {message}", path = path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, by key.
        message: String,
    },
}

/// Reads the file at `path`. `None` is [`DEFAULT_PATH`], which may be absent.
pub fn load(path: Option<&Path>) -> Result<Config, ConfigError> {
    let file = path.unwrap_or(Path::new(DEFAULT_PATH));
    match std::fs::read_to_string(file) {
        Ok(text) => {
            parse(&text).map_err(|message| ConfigError::Invalid { path: file.to_owned(), message })
        }
        Err(error) if path.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
            Ok(Config::default())
        }
        Err(source) => Err(ConfigError::Read { path: file.to_owned(), source }),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    pool: PoolSection,
    #[serde(default)]
    registry: registry::Section,
    #[serde(default)]
    history: HistoryConfig,
    #[serde(default)]
    limits: Limits,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PoolSection {
    start: u16,
    end: u16,
    exclude: Vec<String>,
    #[serde(deserialize_with = "duration")]
    quarantine: Duration,
    skip_bound: bool,
}

impl Default for PoolSection {
    fn default() -> Self {
        Self {
            start: POOL_START,
            end: POOL_END,
            exclude: Vec::new(),
            quarantine: QUARANTINE,
            skip_bound: true,
        }
    }
}

/// What `text` configures. The error is a message for people that names the key.
pub fn parse(text: &str) -> Result<Config, String> {
    let File { pool, registry, history, limits } =
        toml::from_str(text).map_err(|error| without_secrets(text, &error))?;
    limits.check()?;
    Ok(Config { pool: pool.try_into()?, registry: registry.try_into()?, history, limits })
}

/// What is wrong with `text`. The message quotes the line, but not from a file in which an address
/// may have a password: that is told by the line's number and key.
fn without_secrets(text: &str, error: &toml::de::Error) -> String {
    if !text.contains('@') && !text.contains("pass=") {
        return error.to_string();
    }
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count();
    let key = text.lines().nth(line).and_then(|line| line.split_once('='));
    match key {
        Some((key, _)) => format!("line {}: {} is not understood", line + 1, key.trim()),
        None => format!("line {} is not understood", line + 1),
    }
}

impl TryFrom<PoolSection> for PoolConfig {
    type Error = String;

    fn try_from(section: PoolSection) -> Result<Self, String> {
        let PoolSection { start, end, exclude, quarantine, skip_bound } = section;
        let range = PortRange::new(start, end)
            .map_err(|_| format!("pool.start {start} and pool.end {end} are not a port range"))?;
        let exclude = exclude
            .iter()
            .map(|text| text.parse().map_err(|error| format!("pool.exclude: {error}")))
            .collect::<Result<Vec<PortRange>, String>>()?;
        if covers(&exclude, range) {
            return Err("pool.exclude leaves nothing of the pool".to_owned());
        }
        Ok(Self { range, exclude, quarantine, skip_bound })
    }
}

/// Whether every port of `range` is in one of `ranges`.
fn covers(ranges: &[PortRange], range: PortRange) -> bool {
    let mut ranges = ranges.to_vec();
    ranges.sort_unstable();
    let mut first_left = Some(range.start());
    for one in ranges {
        if first_left.is_some_and(|port| one.has(port)) {
            first_left = one.end().checked_add(1);
        }
    }
    first_left.is_none_or(|port| port > range.end())
}

/// A duration as a text such as `"10m"`, or as whole seconds.
fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a time such as \"10m\", or whole seconds")]
    enum Text {
        Seconds(u32),
        Text(String),
    }
    match Text::deserialize(deserializer)? {
        Text::Seconds(seconds) => Ok(Duration::from_secs(seconds.into())),
        Text::Text(text) => humantime::parse_duration(&text).map_err(serde::de::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_configured_is_the_default() {
        assert_eq!(parse(""), Ok(Config::default()));
        assert_eq!(parse("[registry]\nsource = \"local\""), Ok(Config::default()));
    }

    #[test]
    fn the_example_is_the_default() {
        assert_eq!(parse(include_str!("../packaging/portsd.toml.example")), Ok(Config::default()));
    }

    #[test]
    fn values_are_taken() {
        let config = parse(
            "[pool]\nstart = 30000\nend = 30099\nexclude = [\"30010-30019\", \"30050\"]\n\
             quarantine = 0\nskip_bound = false\n[history]\nkeep = \"1d\"\n\
             [limits]\nbatch = 8\nunread_reply = \"2m\"\nidle_connection = 90\n",
        )
        .unwrap();
        assert_eq!(config.pool.range, PortRange::new(30000, 30099).unwrap());
        assert_eq!(config.pool.exclude[1], PortRange::new(30050, 30050).unwrap());
        assert!(config.pool.quarantine.is_zero() && !config.pool.skip_bound);
        assert_eq!(config.history.keep, Duration::from_secs(86_400));
        assert_eq!(config.limits.batch, 8);
        assert_eq!(config.limits.unread_reply, Duration::from_secs(120));
        assert_eq!(config.limits.idle_connection, Duration::from_secs(90));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            ("[pool]\nbegin = 1", "begin"),
            ("[pol]\nstart = 1", "pol"),
            ("[pool]\nstart = \"20000\"", "start"),
            ("[pool]\nstart = 70000", "start"),
            ("[pool]\nstart = 45001", "pool.start 45001"),
            ("[pool]\nstart = 0", "pool.start 0"),
            ("[pool]\nexclude = [\"30010-30000\"]", "30010-30000"),
            ("[pool]\nexclude = [30000]", "exclude"),
            ("[pool]\nexclude = [\"30000-65535\", \"1-25000\", \"25001-29999\"]", "exclude"),
            ("[pool]\nquarantine = -1", "quarantine"),
            ("[pool]\nskip_bound = \"no\"", "skip_bound"),
            ("[history]\nkeep = \"for ever\"", "keep"),
            ("[registry]\nsource = \"ldap\"", "ldap"),
            ("[limits]\nbatch = 0", "limits.batch"),
            ("[limits]\nmessage_bytes = 1023", "limits.message_bytes"),
            ("[limits]\nbatch = -1", "batch"),
            ("[limits]\nunread_reply = \"soon\"", "unread_reply"),
            ("[limits]\nqueue = 9000000000000000000", "limits.queue"),
            ("[limits]\nidle_connection = \"400000000000y\"", "limits.idle_connection"),
            ("[limits]\nidle_connection = 0", "limits.idle_connection"),
            ("[pool", "pool"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(named), "{text:?}: {message}");
        }
    }

    #[test]
    fn what_leaves_a_port_is_taken() {
        for exclude in ["20000-44999", "20001-65535", "20000-29999\", \"30001-45000"] {
            assert!(parse(&format!("[pool]\nexclude = [\"{exclude}\"]")).is_ok(), "{exclude}");
        }
    }

    #[test]
    fn only_the_default_file_may_be_absent() {
        let absent = Path::new("/nonexistent/portsd.toml");
        assert!(load(Some(absent)).unwrap_err().to_string().contains("/nonexistent/portsd.toml"));
    }
}
