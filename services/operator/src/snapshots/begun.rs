//! For which snapshots this process had copies begun of which it has not seen yet whether they are the only ones.
//!
//! Losing it, with the process, costs a copy in EC2 that nobody removes, if two operators led at once meanwhile.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// By uid of the snapshot.
#[derive(Debug, Default)]
pub(super) struct Begun(Mutex<HashSet<String>>);

impl Begun {
    /// A copy was begun, or may have been.
    pub(super) fn begun(&self, uid: &str) {
        self.lock().insert(uid.to_owned());
    }

    /// All of its copies were seen since.
    pub(super) fn seen(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// Whether there may be one that this process had begun and nobody else knows of.
    pub(super) fn is_unseen(&self, uid: &str) -> bool {
        self.lock().contains(uid)
    }

    pub(super) fn retain(&self, known: impl Fn(&str) -> bool) {
        self.lock().retain(|uid| known(uid));
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_begun_is_unseen_until_it_is_seen_or_its_snapshot_is_gone() {
        let begun = Begun::default();
        assert!(!begun.is_unseen("a"));
        for uid in ["a", "a", "b"] {
            begun.begun(uid);
        }
        begun.seen("a");
        assert!(!begun.is_unseen("a") && begun.is_unseen("b"));
        begun.retain(|uid| uid != "b");
        assert!(!begun.is_unseen("b"));
    }
}
