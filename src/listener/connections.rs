//! How many connections there are, and whose.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::model::UserId;
use crate::peer::{Account, Scope};

/// How often the journal is told that connections are refused.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Counts the connections that are open, so that no user can take them all. The admin sockets have
/// a count of their own: modules can't shut administrators out.
#[derive(Clone)]
pub struct Connections {
    max: usize,
    max_per_uid: usize,
    counts: Arc<Mutex<Counts>>,
    total: watch::Sender<usize>,
}

#[derive(Default)]
struct Counts {
    module: usize,
    admin: usize,
    by_account: HashMap<(Scope, Account), usize>,
    /// When the journal was told last that there is no place.
    told: Option<Instant>,
}

impl Counts {
    const fn of(&mut self, scope: Scope) -> &mut usize {
        match scope {
            Scope::Module => &mut self.module,
            Scope::Admin => &mut self.admin,
        }
    }

    /// Tells the journal, now and then: a crowd must not fill it.
    fn tell(&mut self, full: Full) -> Full {
        if self.told.is_none_or(|told| told.elapsed() > TELL_EVERY) {
            tracing::warn!("connections are refused: {full}");
            self.told = Some(Instant::now());
        }
        full
    }
}

/// A place among the connections; given back when dropped.
pub struct Place {
    scope: Scope,
    accounts: Vec<Account>,
    connections: Connections,
}

/// There is no place left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// Too many connections in all.
    #[error("too many connections")]
    Total,
    /// Too many connections of that user, or of those who are nobody.
    #[error("too many connections of {0:?}")]
    Account(Account),
}

impl From<Full> for io::Error {
    fn from(full: Full) -> Self {
        Self::other(full)
    }
}

impl Connections {
    /// At most `max` connections in each scope, `max_per_uid` of them one user's.
    #[must_use]
    pub fn new(max: usize, max_per_uid: usize) -> Self {
        Self { max, max_per_uid, counts: Arc::default(), total: watch::Sender::new(0) }
    }

    /// How many connections there are, to be watched.
    #[must_use]
    pub fn total(&self) -> watch::Receiver<usize> {
        self.total.subscribe()
    }

    /// Takes a place for a connection of `uid`.
    pub fn enter(&self, scope: Scope, uid: UserId) -> Result<Place, Full> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if *counts.of(scope) >= self.max {
            return Err(counts.tell(Full::Total));
        }
        let account = Account::User(uid);
        self.count_account(&mut counts, scope, account)?;
        *counts.of(scope) += 1;
        self.total.send_replace(counts.module + counts.admin);
        Ok(Place { scope, accounts: vec![account], connections: self.clone() })
    }

    fn count_account(
        &self,
        counts: &mut Counts,
        scope: Scope,
        account: Account,
    ) -> Result<(), Full> {
        let count = counts.by_account.entry((scope, account)).or_insert(0);
        if *count >= self.max_per_uid {
            return Err(counts.tell(Full::Account(account)));
        }
        *count += 1;
        Ok(())
    }
}

impl Place {
    /// Counts the connection against who answers for it, too: the 65536 user ids of one user's
    /// containers share that user's places.
    pub fn count_for(&mut self, account: Account) -> Result<(), Full> {
        if !self.accounts.contains(&account) {
            let connections = self.connections.clone();
            let mut counts = connections.counts.lock().unwrap_or_else(PoisonError::into_inner);
            connections.count_account(&mut counts, self.scope, account)?;
            self.accounts.push(account);
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.connections.counts.lock().unwrap_or_else(PoisonError::into_inner);
        for account in &self.accounts {
            if let Some(count) = counts.by_account.get_mut(&(self.scope, *account)) {
                *count -= 1;
                if *count == 0 {
                    counts.by_account.remove(&(self.scope, *account));
                }
            }
        }
        *counts.of(self.scope) -= 1;
        self.connections.total.send_replace(counts.module + counts.admin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_takes_all_places() {
        let connections = Connections::new(3, 2);
        let enter = |uid| connections.enter(Scope::Module, UserId(uid));
        let first = enter(1).ok().unwrap();
        let second = enter(1).ok().unwrap();
        assert_eq!(enter(1).err(), Some(Full::Account(Account::User(UserId(1)))));
        let other = enter(2).ok().unwrap();
        assert_eq!(enter(3).err(), Some(Full::Total));
        assert_eq!(*connections.total().borrow(), 3);
        // administrators have places of their own
        assert!(connections.enter(Scope::Admin, UserId(1)).is_ok());
        drop((first, other));
        assert!(enter(1).is_ok());
        drop(second);
        assert_eq!(*connections.total().borrow(), 0);
        assert!(connections.counts.lock().unwrap().by_account.is_empty());
    }

    #[test]
    fn subordinate_ids_share_their_users_places() {
        let connections = Connections::new(9, 2);
        let mut held = Vec::new();
        for uid in [100_001, 100_002] {
            let mut place = connections.enter(Scope::Module, UserId(uid)).ok().unwrap();
            place.count_for(Account::User(UserId(1))).unwrap();
            held.push(place);
        }
        let mut third = connections.enter(Scope::Module, UserId(100_003)).ok().unwrap();
        assert_eq!(
            third.count_for(Account::User(UserId(1))),
            Err(Full::Account(Account::User(UserId(1))))
        );
        drop(third);
        assert_eq!(
            connections.enter(Scope::Module, UserId(1)).err(),
            Some(Full::Account(Account::User(UserId(1))))
        );
        drop(held);
        assert!(connections.counts.lock().unwrap().by_account.is_empty());
    }

    #[test]
    fn those_who_are_nobody_share_their_places() {
        let connections = Connections::new(9, 2);
        let mut held = Vec::new();
        for uid in [1, 2] {
            let mut place = connections.enter(Scope::Module, UserId(uid)).ok().unwrap();
            place.count_for(Account::Nobody).unwrap();
            held.push(place);
        }
        let mut third = connections.enter(Scope::Module, UserId(3)).ok().unwrap();
        assert_eq!(third.count_for(Account::Nobody), Err(Full::Account(Account::Nobody)));
        third.count_for(Account::User(UserId(3))).unwrap();
    }
}
