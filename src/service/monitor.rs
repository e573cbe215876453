//! What somebody who monitors learns: what is held, and then every change of it.

use std::sync::Arc;
use std::time::{Duration, Instant};
use std::vec;

use tokio::time::timeout;

use super::{Authorized, Patience, Service};
use crate::allocator::{Effect, Effects, LOCK_PATIENCE};
use crate::error::Error;
use crate::journal::Entry;
use crate::model::{Allocation, Owner};
use crate::peer::Peer;
use crate::reply::{Event, EventKind};
use crate::request::Request;

/// How long a change by another program may go unnoticed where nobody calls.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Service {
    /// Begins to monitor for the peer of a connection. Nothing is missed between what is held now
    /// and the first change, and nothing told twice.
    pub async fn monitor(&self, peer: &Peer) -> Result<Subscription, Error> {
        let subscribed = self.subscribe(peer).await;
        if let Err(error) = &subscribed {
            self.journal.refused(&Entry::new(peer, &Request::Monitor), error);
        }
        subscribed
    }

    async fn subscribe(&self, peer: &Peer) -> Result<Subscription, Error> {
        let patience_ends = Instant::now() + LOCK_PATIENCE;
        self.refresh(peer, &Request::Monitor, Patience::WithNewcomers, patience_ends).await?;
        let caller = peer.clone();
        let followed = self.allocator.follow(move |state| {
            let call = Authorized::new(&caller, &Request::Monitor, state)?;
            let owner = call.only_owner();
            Ok((call.state.pool.list(owner, None), owner.cloned()))
        });
        let ((held, owner), effects) = followed.await?;
        Ok(Subscription {
            service: self.clone(),
            peer: peer.clone(),
            owner,
            held: held.into_iter(),
            stored: Arc::new([]),
            told: 0,
            is_ready: false,
            is_doubtful: false,
            effects,
        })
    }
}

/// Somebody who monitors.
pub struct Subscription {
    service: Service,
    peer: Peer,
    /// Whose ranges are told; `None` for everybody's.
    owner: Option<Owner>,
    /// What was held and has not been told.
    held: vec::IntoIter<Allocation>,
    /// What one change has stored.
    stored: Arc<[Effect]>,
    /// How much of that has been told, or is not for the peer.
    told: usize,
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
                match self.is_still_the_same().await {
                    Ok(true) => self.is_doubtful = false,
                    Ok(false) => return Ok(event(EventKind::Lagged, None)),
                    Err(error) => {
                        self.service
                            .journal
                            .refused(&Entry::new(&self.peer, &Request::Monitor), &error);
                        return Err(error);
                    }
                }
            }
            if let Some(event) = self.next_stored() {
                return Ok(event);
            }
            if self.is_doubtful {
                continue;
            }
            match timeout(LOOK_AGAIN, self.effects.recv()).await {
                Ok(Ok(effects)) => self.take(effects),
                // behind by too much, or the changes are not known
                Ok(Err(_)) => return Ok(event(EventKind::Lagged, None)),
                // any look finds out whether another program has written; one that fails says nothing
                Err(_) => drop(self.service.allocator.read(|_| ()).await),
            }
        }
    }

    /// The next event of what was stored.
    fn next_stored(&mut self) -> Option<Event> {
        while let Some(effect) = self.stored.get(self.told) {
            self.told += 1;
            match effect {
                Effect::Held(one) if self.may_see(one) => {
                    return Some(event(EventKind::Allocated, Some(one.clone())));
                }
                Effect::Freed(one) if self.may_see(one) => {
                    return Some(event(EventKind::Deallocated, Some(one.clone())));
                }
                Effect::Held(_) | Effect::Freed(_) => {}
                Effect::Registered(_) | Effect::Unregistered(_) => {
                    self.is_doubtful = true;
                    return None;
                }
            }
        }
        None
    }

    /// Takes what a change has stored. Where the cluster says who is a module, the peer may have gone
    /// without a word of it here, and is looked up before it learns of anything.
    fn take(&mut self, effects: Arc<[Effect]>) {
        let is_told = |effect: &Effect| match effect {
            Effect::Held(one) | Effect::Freed(one) => self.may_see(one),
            Effect::Registered(_) | Effect::Unregistered(_) => false,
        };
        let is_of_cluster = self.owner.is_some() && self.service.source.cluster().is_some();
        self.is_doubtful = is_of_cluster && effects.iter().any(is_told);
        (self.stored, self.told) = (effects, 0);
    }

    fn may_see(&self, allocation: &Allocation) -> bool {
        self.owner.as_ref().is_none_or(|owner| *owner == allocation.owner)
    }

    /// Whether the peer may still see the same: a module that was removed, or whose user is another
    /// now, learns no more, on an open connection too.
    async fn is_still_the_same(&self) -> Result<bool, Error> {
        let patience_ends = Instant::now() + LOCK_PATIENCE;
        let refreshed =
            self.service.refresh(&self.peer, &Request::Monitor, Patience::None, patience_ends);
        refreshed.await?;
        let peer = self.peer.clone();
        let authorized = self.service.allocator.read(move |state| -> Result<_, Error> {
            let call = Authorized::new(&peer, &Request::Monitor, state)?;
            Ok(call.only_owner().cloned())
        });
        Ok(authorized.await?? == self.owner)
    }
}

const fn event(kind: EventKind, allocation: Option<Allocation>) -> Event {
    Event { kind, allocation }
}
