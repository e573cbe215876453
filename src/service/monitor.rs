//! What somebody who monitors learns: what is held, and then every change of it.

use std::vec;

use super::{Authorized, Service};
use crate::allocator::{Allocator, Effect, Effects};
use crate::error::Error;
use crate::journal::Entry;
use crate::model::{Allocation, Owner};
use crate::peer::Peer;
use crate::policy::Subject;
use crate::reply::{Event, EventKind};
use crate::request::Request;

impl Service {
    /// Begins to monitor for the peer of a connection. Nothing is missed between what is held now
    /// and the first change, and nothing told twice.
    pub async fn monitor(&self, peer: &Peer) -> Result<Subscription, Error> {
        let caller = peer.clone();
        let followed = self.allocator.follow(move |state| {
            let call = Authorized::new(&caller, &Request::Monitor, state)?;
            let owner = subject_owner(&call.subject);
            Ok((call.state.pool.list(owner.as_ref(), None), owner))
        });
        match followed.await {
            Ok(((held, owner), effects)) => Ok(Subscription {
                allocator: self.allocator.clone(),
                peer: peer.clone(),
                owner,
                held: held.into_iter(),
                is_ready: false,
                is_doubtful: false,
                effects,
            }),
            Err(error) => {
                self.journal.refused(&Entry::new(peer, &Request::Monitor), &error);
                Err(error)
            }
        }
    }
}

/// Whose ranges a caller may see; `None` for everybody's.
fn subject_owner(subject: &Subject) -> Option<Owner> {
    match subject {
        Subject::Node => None,
        Subject::Owner { owner, .. } => Some(owner.clone()),
    }
}

/// Somebody who monitors.
pub struct Subscription {
    allocator: Allocator,
    peer: Peer,
    /// Whose ranges are told; `None` for everybody's.
    owner: Option<Owner>,
    /// What was held and has not been told.
    held: vec::IntoIter<Allocation>,
    /// Whether it has been told that this was all.
    is_ready: bool,
    /// Whether the peer may have become somebody else.
    is_doubtful: bool,
    effects: Effects,
}

impl Subscription {
    /// The next event, when there is one. [`EventKind::Lagged`] and errors are the last. Loses
    /// nothing if it is dropped while waiting.
    pub async fn next(&mut self) -> Result<Event, Error> {
        if let Some(allocation) = self.held.next() {
            return Ok(event(EventKind::Present, Some(allocation)));
        }
        if !std::mem::replace(&mut self.is_ready, true) {
            return Ok(event(EventKind::Ready, None));
        }
        loop {
            if self.is_doubtful {
                if !self.is_still_the_same().await? {
                    return Ok(event(EventKind::Lagged, None));
                }
                self.is_doubtful = false;
            }
            // behind by too much, or the changes are not known
            let Ok(effect) = self.effects.recv().await else {
                return Ok(event(EventKind::Lagged, None));
            };
            match &*effect {
                Effect::Held(one) if self.may_see(one) => {
                    return Ok(event(EventKind::Allocated, Some(one.clone())));
                }
                Effect::Freed(one) if self.may_see(one) => {
                    return Ok(event(EventKind::Deallocated, Some(one.clone())));
                }
                Effect::Held(_) | Effect::Freed(_) => {}
                Effect::Registered(_) | Effect::Unregistered(_) => self.is_doubtful = true,
            }
        }
    }

    fn may_see(&self, allocation: &Allocation) -> bool {
        self.owner.as_ref().is_none_or(|owner| *owner == allocation.owner)
    }

    /// Whether the peer may still see the same: a module that was removed, or whose user is another
    /// now, learns no more, on an open connection too.
    async fn is_still_the_same(&self) -> Result<bool, Error> {
        let peer = self.peer.clone();
        let authorized = self.allocator.read(move |state| -> Result<_, Error> {
            let call = Authorized::new(&peer, &Request::Monitor, state)?;
            Ok(subject_owner(&call.subject))
        });
        Ok(authorized.await?? == self.owner)
    }
}

const fn event(kind: EventKind, allocation: Option<Allocation>) -> Event {
    Event { kind, allocation }
}
