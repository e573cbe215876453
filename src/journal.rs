//! What the journal gets to know of calls: one line, with fields, for each change and each refusal.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::allocator::Effect;
use crate::error::{Condition, Error};
use crate::model::{Allocation, ModuleId, Owner, Protocol, UserId};
use crate::peer::{Identity, Peer};
use crate::request::{Method, Request};

/// So many refusals of callers who are nobody are told in each [`WINDOW`]; of more only the number.
/// They need no right to call, and must not be able to fill the journal.
const NOBODYS_LINES_MAX: u32 = 60;
const WINDOW: Duration = Duration::from_secs(60);

/// Of a parameter's name, as a client spelt it, so many characters are told.
const PARAMETER_CHARS_MAX: usize = 64;

/// The way to the journal.
#[derive(Default)]
pub struct Journal {
    nobodys: Mutex<Nobodys>,
}

/// The refusals of callers who are nobody.
#[derive(Default)]
struct Nobodys {
    since: Option<Instant>,
    lines: u32,
    untold: u32,
}

/// What is known of a call before it is carried out.
pub struct Entry {
    method: Method,
    uid: UserId,
    pid: Option<i32>,
    user: Option<String>,
    owner: Option<Owner>,
    on_behalf_of: Option<ModuleId>,
    protocol: Option<Protocol>,
}

impl Entry {
    /// The entry of a call that has been understood.
    #[must_use]
    pub fn new(peer: &Peer, request: &Request) -> Self {
        let named = request.named_owner().cloned();
        Self {
            owner: named.or_else(|| request.named_module().map(Owner::from)),
            on_behalf_of: request.on_behalf_of().cloned(),
            protocol: request.protocol(),
            ..Self::of_caller(peer, request.method())
        }
    }

    fn of_caller(peer: &Peer, method: Method) -> Self {
        let user = match &peer.identity {
            Identity::User(name) => Some(name.to_string()),
            Identity::Agent(id) => Some(format!("agent@{id}")),
            Identity::Administrator => Some("administrator".to_owned()),
            Identity::Anonymous => None,
        };
        Self {
            method,
            uid: peer.uid,
            pid: peer.pid,
            user,
            owner: None,
            on_behalf_of: None,
            protocol: None,
        }
    }

    fn line(&self, outcome: &'static str, allocation: &Allocation) {
        tracing::info!(
            method = self.method.name(),
            owner = %allocation.owner,
            user = self.user,
            uid = self.uid.0,
            pid = self.pid,
            on_behalf_of = self.on_behalf_of.as_ref().map(tracing::field::display),
            protocol = %allocation.protocol,
            name = allocation.name.as_ref().map(tracing::field::display),
            start = allocation.range.start(),
            end = allocation.range.end(),
            outcome,
            "{outcome} {} {} of {}",
            allocation.protocol,
            allocation.range,
            allocation.owner
        );
    }

    fn module(&self, id: &ModuleId, outcome: &str) {
        tracing::info!(
            method = self.method.name(),
            owner = %id,
            user = self.user,
            uid = self.uid.0,
            pid = self.pid,
            outcome,
            "{}: {outcome}",
            self.method.name()
        );
    }
}

impl Journal {
    /// Tells of all that has happened by a call: nothing, if it changed nothing. A range that got
    /// other ports or another owner is freed and allocated.
    pub fn changed(&self, entry: &Entry, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Freed(allocation) => entry.line("freed", allocation),
                Effect::Held(allocation) => entry.line("allocated", allocation),
                Effect::Registered(module) => entry.module(
                    &module.id,
                    &format!(
                        "user {}, portsadm {}, {} tcp, {} udp",
                        module.unix_user, module.portsadm, module.demand.tcp, module.demand.udp
                    ),
                ),
                Effect::Unregistered(id) => entry.module(id, "removed"),
            }
        }
    }

    /// Tells of a call that was refused, with the numbers that the caller is told.
    pub fn refused(&self, entry: &Entry, error: &Error) {
        if entry.user.is_none() && !self.may_tell_of_nobody() {
            return;
        }
        let outcome = error.condition().row().name;
        let detail = serde_json::to_string(error).unwrap_or_default();
        tracing::warn!(
            method = entry.method.name(),
            owner = entry.owner.as_ref().map(tracing::field::display),
            user = entry.user,
            uid = entry.uid.0,
            pid = entry.pid,
            on_behalf_of = entry.on_behalf_of.as_ref().map(tracing::field::display),
            protocol = entry.protocol.map(tracing::field::display),
            outcome,
            detail,
            "{} refused: {outcome}",
            entry.method.name()
        );
    }

    /// Tells of a call that was refused for a parameter before it was understood.
    pub fn misspelt(&self, peer: &Peer, method: Method, parameter: &str) {
        let entry = Entry::of_caller(peer, method);
        let told: String = parameter.chars().take(PARAMETER_CHARS_MAX).collect();
        self.refused(&entry, &Error::invalid(told));
    }

    /// Whether there is a line left for somebody who is nobody.
    fn may_tell_of_nobody(&self) -> bool {
        let mut nobodys = self.nobodys.lock().unwrap_or_else(PoisonError::into_inner);
        if nobodys.since.is_none_or(|since| since.elapsed() >= WINDOW) {
            if nobodys.untold > 0 {
                let outcome = Condition::PermissionDenied.row().name;
                tracing::warn!(outcome, "{} more refusals of nobody in particular", nobodys.untold);
            }
            *nobodys = Nobodys { since: Some(Instant::now()), lines: 0, untold: 0 };
        }
        if nobodys.lines == NOBODYS_LINES_MAX {
            nobodys.untold = nobodys.untold.saturating_add(1);
            return false;
        }
        nobodys.lines += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_so_many_lines() {
        let journal = Journal::default();
        let told = (0..NOBODYS_LINES_MAX + 100).filter(|_| journal.may_tell_of_nobody()).count();
        assert_eq!(u32::try_from(told), Ok(NOBODYS_LINES_MAX));
    }
}
