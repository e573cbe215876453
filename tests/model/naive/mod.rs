//! What the daemon is expected to hold and to answer, thought in single ports: plain vectors and
//! loops, and nothing of the program itself.

mod calls;
mod ports;
mod views;

use super::steps::Demand;
use serde_json::Value;
use support::Refusal;

use super::support;

/// The pool is small, so that it is full and in pieces all the time.
pub const FIRST: u16 = 30_000;
pub const LAST: u16 = 30_079;
/// In its midst, and its last port.
pub const EXCLUDED: [(u16, u16); 2] = [(30_020, 30_023), (30_079, 30_079)];
/// The order of listings.
pub const PROTOCOLS: [&str; 2] = ["tcp", "udp"];

/// A range and who holds it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held {
    pub owner: &'static str,
    pub protocol: &'static str,
    pub name: Option<&'static str>,
    pub start: u16,
    pub end: u16,
    pub claimed: bool,
    /// When it was first given, in seconds since 1970. Not known while a call is being judged.
    pub given: Option<u64>,
}

impl Held {
    pub fn count(&self) -> u32 {
        u32::from(self.end) - u32::from(self.start) + 1
    }

    pub fn has(&self, port: u16) -> bool {
        self.start <= port && port <= self.end
    }

    pub fn is_unnamed(&self) -> bool {
        self.name.is_none() && !self.claimed
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Module {
    pub id: &'static str,
    pub unix_user: &'static str,
    pub portsadm: bool,
    pub demand: Demand,
}

/// One line of the history.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Event {
    pub at: u64,
    pub kind: &'static str,
    pub range: Held,
    pub on_behalf_of: Option<&'static str>,
}

/// One change of what is held, and one event of the history.
#[derive(Debug, Clone, Copy)]
pub enum Edit {
    Take(Held),
    Give(Held),
}

/// One change of who is a module.
#[derive(Debug, Clone, Copy)]
pub enum Registration {
    Set(Module),
    Remove(&'static str),
}

/// What a call that is granted replies and does.
#[derive(Debug, Clone)]
pub struct Answer {
    pub reply: Value,
    pub edits: Vec<Edit>,
    pub registration: Option<Registration>,
    /// In which way it was granted: for the summary.
    pub how: String,
}

impl Answer {
    fn new(how: impl Into<String>, reply: Value, edits: Vec<Edit>) -> Self {
        Self { reply, edits, registration: None, how: how.into() }
    }

    pub fn is_change(&self) -> bool {
        !self.edits.is_empty() || self.registration.is_some()
    }
}

/// What is to come of a call.
pub type Verdict = Result<Answer, Refusal>;

/// What the daemon has stored. Owners' ranges never overlap, so that a port has one holder at most.
#[derive(Clone)]
pub struct Node {
    /// For so many seconds, what was freed goes to others only when nothing else fits.
    rest: u64,
    /// The user who makes all the calls.
    uid: u32,
    /// The newest moment that the history tells of.
    now: u64,
    pub held: Vec<Held>,
    pub modules: Vec<Module>,
    /// The oldest first.
    pub events: Vec<Event>,
}

impl Node {
    pub fn new(rest: u64, uid: u32) -> Self {
        Self { rest, uid, now: 0, held: Vec::new(), modules: Vec::new(), events: Vec::new() }
    }

    /// Follows a call that was granted, and stored at `at`.
    pub fn apply(&mut self, answer: &Answer, on_behalf_of: Option<&'static str>, at: u64) {
        self.now = self.now.max(at);
        for edit in &answer.edits {
            let (kind, range) = match *edit {
                Edit::Take(range) => {
                    let before = self.held.len();
                    self.held.retain(|one| *one != range);
                    assert_eq!(self.held.len() + 1, before, "{range:?} is not held");
                    ("deallocated", range)
                }
                Edit::Give(range) => {
                    let range = Held { given: range.given.or(Some(at)), ..range };
                    let overlaps = |one: &&Held| {
                        one.protocol == range.protocol
                            && (range.start..=range.end).any(|port| one.has(port))
                    };
                    assert_eq!(self.held.iter().find(overlaps), None, "{range:?} is not free");
                    self.held.push(range);
                    ("allocated", range)
                }
            };
            self.events.push(Event { at, kind, range, on_behalf_of });
        }
        match answer.registration {
            Some(Registration::Set(module)) => {
                self.modules.retain(|one| one.id != module.id);
                self.modules.push(module);
            }
            Some(Registration::Remove(id)) => self.modules.retain(|one| one.id != id),
            None => {}
        }
    }

    /// Everything that has happened was so many seconds earlier.
    pub fn pass(&mut self, seconds: u64) {
        for event in &mut self.events {
            event.at = event.at.saturating_sub(seconds);
        }
    }

    pub fn module(&self, id: &str) -> Option<&Module> {
        self.modules.iter().find(|module| module.id == id)
    }

    /// What the owner holds in one protocol, by start.
    pub fn own(&self, owner: &str, protocol: &str) -> Vec<Held> {
        self.all()
            .into_iter()
            .filter(|one| one.owner == owner && one.protocol == protocol)
            .collect()
    }

    /// Everything, ordered by protocol and start.
    pub fn all(&self) -> Vec<Held> {
        let mut all = self.held.clone();
        all.sort_by_key(|one| (one.protocol, one.start));
        all
    }
}
