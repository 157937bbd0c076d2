//! Namespaces of which everything is seen: what is decided about a database rests on all its objects, and one namespace may
//! be refused to us for a part while others are not.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Watched;

/// What has not been listed yet. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Whole(Arc<Mutex<BTreeSet<Watched>>>);

impl Whole {
    /// A watch is begun.
    pub(super) fn begun(&self, watched: &Watched) {
        self.lock().insert(watched.clone());
    }

    /// All that it watches was seen once.
    pub(super) fn listed(&self, watched: &Watched) {
        self.lock().remove(watched);
    }

    /// A watch said something, which may be that it has shown all.
    pub(super) fn says(&self, watched: &Watched, listed: bool) {
        if listed {
            self.listed(watched);
        }
    }

    /// Whether everything of a namespace was seen once, as far as its own watches tell.
    pub(crate) fn is_seen(&self, namespace: Option<&str>) -> bool {
        self.lock().iter().all(|watched| watched.place.is_none() || watched.place.as_deref() != namespace)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Watched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_seen_when_none_of_its_kinds_is_missing() {
        let (whole, kinds) = (Whole::default(), ["Secret", "Pod"]);
        for kind in kinds {
            whole.begun(&Watched::new(kind, Some("a")));
            whole.begun(&Watched::new(kind, Some("b")));
        }
        whole.begun(&Watched::new("Node", None));
        whole.listed(&Watched::new("Secret", Some("a")));
        let seen = |namespace: &str| whole.is_seen(Some(namespace));
        assert!(!seen("a") && !seen("b"));
        whole.listed(&Watched::new("Pod", Some("a")));
        assert!(seen("a") && !seen("b"));
    }
}
