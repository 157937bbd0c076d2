//! What is remembered of each database behind one lock, by uid of its resource. Losing it costs a question or a look.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One piece for each database.
#[derive(Debug)]
pub(crate) struct ByUid<T>(Mutex<HashMap<String, T>>);

impl<T> Default for ByUid<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> ByUid<T> {
    /// Nothing is known of this one any more: whatever comes next is the first.
    pub(crate) fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// Whether nothing is known of any.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Keeps only these.
    pub(crate) fn retain(&self, known: impl Fn(&str) -> bool) {
        self.lock().retain(|uid, _| known(uid));
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<String, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
