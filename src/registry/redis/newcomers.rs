//! Patience with modules that the replica may not know yet.
//!
//! A module that has just been installed may call before the news of it has reached this node. So
//! whoever is not known is looked up again, [`PAUSES`] later each time, before it is refused. Any
//! user of the node can be unknown, in any number of connections: one look-up at a time goes on for
//! each name, for [`NAMES_MAX`] names at the most, and a name that stayed unknown is not asked about
//! again for [`UNKNOWN_FOR`]. Nobody who is known waits for any of this.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::model::UserName;

/// How long after one look-up the next one is made: three more within 2 s.
pub const PAUSES: [Duration; 3] =
    [Duration::from_millis(200), Duration::from_millis(600), Duration::from_millis(1200)];
/// For so long, a name that stayed unknown is not asked about.
pub const UNKNOWN_FOR: Duration = Duration::from_secs(1);
/// So many names are looked up again at a time. A further one is refused after its first look-up.
const NAMES_MAX: usize = 32;
/// So many names are remembered as unknown.
const UNKNOWN_MAX: usize = 1024;

/// The names that are being looked up again, and those that stayed unknown.
#[derive(Clone, Default)]
pub struct Newcomers(Arc<Mutex<Names>>);

#[derive(Default)]
struct Names {
    awaited: HashMap<UserName, watch::Receiver<()>>,
    unknown: HashMap<UserName, Instant>,
}

/// What somebody does whose name is not known.
pub enum Turn {
    /// Looks it up again until the time is over.
    Wait(Waiting),
    /// Waits until somebody else has done so, who sends nothing and then is gone.
    Follow(watch::Receiver<()>),
    /// Nothing: too many names are being waited for.
    GiveUp,
}

/// Somebody waits for a name to become known. Dropped, it lets the others go on.
pub struct Waiting {
    newcomers: Newcomers,
    user: UserName,
    _done: watch::Sender<()>,
}

impl Newcomers {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the name stayed unknown a moment ago.
    pub fn is_unknown(&self, user: &UserName) -> bool {
        self.names().unknown.get(user).is_some_and(|since| since.elapsed() < UNKNOWN_FOR)
    }

    /// The name is known.
    pub fn welcome(&self, user: &UserName) {
        self.names().unknown.remove(user);
    }

    /// What to do about a name that is not known.
    pub fn turn(&self, user: &UserName) -> Turn {
        let mut names = self.names();
        if let Some(other) = names.awaited.get(user) {
            return Turn::Follow(other.clone());
        }
        if names.awaited.len() >= NAMES_MAX {
            return Turn::GiveUp;
        }
        let (done, receiver) = watch::channel(());
        names.awaited.insert(user.clone(), receiver);
        Turn::Wait(Waiting { newcomers: self.clone(), user: user.clone(), _done: done })
    }
}

impl Waiting {
    /// The name has stayed unknown.
    pub fn in_vain(self) {
        let mut names = self.newcomers.names();
        names.unknown.retain(|_, since| since.elapsed() < UNKNOWN_FOR);
        if names.unknown.len() < UNKNOWN_MAX {
            names.unknown.insert(self.user.clone(), Instant::now());
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.newcomers.names().awaited.remove(&self.user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> UserName {
        UserName::parse(name).unwrap()
    }

    #[test]
    fn a_name_is_waited_for_once_and_a_crowd_not_at_all() {
        let newcomers = Newcomers::default();
        let mut waiting: Vec<_> = (0..NAMES_MAX)
            .map(|n| match newcomers.turn(&id(&format!("m{n}"))) {
                Turn::Wait(waiting) => waiting,
                Turn::Follow(_) | Turn::GiveUp => panic!("{n}"),
            })
            .collect();
        assert!(matches!(newcomers.turn(&id("m0")), Turn::Follow(_)));
        assert!(matches!(newcomers.turn(&id("late")), Turn::GiveUp));
        waiting.remove(0).in_vain();
        assert!(newcomers.is_unknown(&id("m0")) && !newcomers.is_unknown(&id("m1")));
        assert!(matches!(newcomers.turn(&id("late")), Turn::Wait(_)));
        newcomers.welcome(&id("m0"));
        assert!(!newcomers.is_unknown(&id("m0")));
    }

    #[tokio::test]
    async fn followers_go_on_when_the_first_is_done() {
        let newcomers = Newcomers::default();
        let Turn::Wait(waiting) = newcomers.turn(&id("m1")) else { panic!() };
        let Turn::Follow(mut other) = newcomers.turn(&id("m1")) else { panic!() };
        let follower = tokio::spawn(async move { other.changed().await });
        drop(waiting);
        assert!(follower.await.unwrap().is_err());
        assert!(matches!(newcomers.turn(&id("m1")), Turn::Wait(_)));
    }

    #[test]
    fn no_crowd_fills_the_memory() {
        let newcomers = Newcomers::default();
        for n in 0..UNKNOWN_MAX + 10 {
            let Turn::Wait(waiting) = newcomers.turn(&id(&format!("m{n}"))) else { panic!() };
            waiting.in_vain();
        }
        assert!(newcomers.names().unknown.len() <= UNKNOWN_MAX);
    }
}
