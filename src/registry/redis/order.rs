//! Which of two answers about a module is the newer one.
//!
//! Two calls of a module may have it looked up at the same time, and the answer that was asked for
//! first may come to the database last. It must not take the place of the newer one: a role that was
//! taken away would be back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::model::UserName;

/// So many users are remembered; a node has some dozens. Beyond, all are forgotten, and a race that
/// is on at that moment may be lost.
const USERS_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub struct Order {
    last: AtomicU64,
    /// When that was asked which was taken over last.
    taken: Mutex<HashMap<UserName, u64>>,
}

/// When the cluster was asked: each time is later than all before.
#[derive(Debug, Clone)]
pub struct Asked {
    order: Arc<Order>,
    number: u64,
}

impl Asked {
    /// Whether the answer of this time may be taken over for `user`: nothing newer has been, and
    /// from now on nothing older will be. Only for the owning thread, in the turn in which that is
    /// done.
    #[must_use]
    pub fn take(&self, user: &UserName) -> bool {
        let mut taken = self.order.taken();
        if taken.len() >= USERS_MAX && !taken.contains_key(user) {
            taken.clear();
        }
        let newest = taken.entry(user.clone()).or_insert(self.number);
        *newest = self.number.max(*newest);
        *newest == self.number
    }

    /// Whether a newer answer has been taken over for `user`.
    #[must_use]
    pub fn is_outdated(&self, user: &UserName) -> bool {
        self.order.taken().get(user).is_some_and(|newest| *newest > self.number)
    }
}

impl Order {
    /// From now on.
    pub fn now(self: &Arc<Self>) -> Asked {
        let number = self.last.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        Asked { order: Arc::clone(self), number }
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<UserName, u64>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_answers_come_too_late() {
        let order = Arc::new(Order::default());
        let [mail, web] = ["mail1", "web1"].map(|id| UserName::parse(id).unwrap());
        let (first, second) = (order.now(), order.now());
        assert!(!first.is_outdated(&mail));
        assert!(second.take(&mail) && second.take(&mail));
        assert!(first.is_outdated(&mail) && !first.take(&mail) && !second.is_outdated(&mail));
        assert!(first.take(&web) && second.take(&web) && !first.take(&web));
    }
}
