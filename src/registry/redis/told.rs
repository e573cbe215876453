//! What the journal has been told of entries, and which of them are memories.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::entry::Problem;
use crate::model::UserName;

/// So many problems are known to have been told. Beyond, all are forgotten, and may be told again.
const PROBLEMS_MAX: usize = 1024;

#[derive(Default)]
pub struct Told {
    /// The hashes of the problems that were told.
    problems: Mutex<HashSet<u64>>,
    /// The users whose entries could not be read when they were wanted last.
    memories: Mutex<HashSet<UserName>>,
}

impl Told {
    /// Tells of each problem once. A value that can't be understood is read with every call.
    pub fn tell(&self, problems: &[Problem]) {
        for problem in problems.iter().filter(|problem| self.is_new(problem)) {
            let Problem { key, what } = problem;
            tracing::warn!(key, what, "{key}: {what}");
        }
    }

    fn is_new(&self, problem: &Problem) -> bool {
        let mut hasher = DefaultHasher::new();
        problem.hash(&mut hasher);
        let mut told = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= PROBLEMS_MAX {
            told.clear();
        }
        told.insert(hasher.finish())
    }

    /// Whether the entry of that user is a memory.
    pub fn is_memory(&self, user: &UserName) -> bool {
        self.memories().contains(user)
    }

    /// The entry of that user is a memory, or is not. Only for users that have one, so that their
    /// number is the bound.
    pub fn remember(&self, user: &UserName, is_memory: bool) {
        if is_memory {
            self.memories().insert(user.clone());
        } else {
            self.memories().remove(user);
        }
    }

    fn memories(&self) -> MutexGuard<'_, HashSet<UserName>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_told_once() {
        let told = Told::default();
        let problem = |what: &str| Problem { key: "k".to_owned(), what: what.to_owned() };
        assert!(told.is_new(&problem("x")) && told.is_new(&problem("y")));
        assert!(!told.is_new(&problem("x")));
    }
}
