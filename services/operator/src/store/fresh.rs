//! Objects that changed a moment ago, unpacked: a database that is being worked on is looked at several times a second, and most of
//! its objects are as they were at the look before.
//!
//! *Invariant:* an object is kept only for as long as its text is the one that it was unpacked from, or packed into. *Invariant:* of what
//! only lies there, however much it is and however often it is looked at, nothing is kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::Key;

/// How long an object is kept after it changed.
const KEPT: Duration = Duration::from_secs(30);
/// Between two looks for what was kept for so long.
const PERIOD: Duration = Duration::from_secs(10);
/// How many bytes of text may be kept of a kind as objects, which take four times that. What changes beyond it is unpacked each time.
const MOST: usize = 2 << 20;

/// What changed lately of a kind.
pub(super) struct Fresh<K> {
    slots: Mutex<Slots<K>>,
    /// There is something again.
    begun: Notify,
}

struct Slots<K> {
    by_key: HashMap<Key, Slot<K>>,
    /// Of all of their texts.
    bytes: usize,
}

struct Slot<K> {
    changed: Instant,
    bytes: usize,
    /// As it was told, or once somebody looked at it.
    object: Option<Arc<K>>,
}

impl<K> Default for Fresh<K> {
    fn default() -> Self {
        let slots = Slots { by_key: HashMap::new(), bytes: 0 };
        Self { slots: Mutex::new(slots), begun: Notify::new() }
    }
}

impl<K> Fresh<K> {
    pub(super) fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.lock().by_key.get(key)?.object.clone()
    }

    /// Keeps an object that was unpacked from the text that there is now, if it changed lately.
    pub(super) fn keep(&self, key: &Key, object: &Arc<K>) {
        if let Some(slot) = self.lock().by_key.get_mut(key) {
            slot.object = Some(Arc::clone(object));
        }
    }

    /// Keeps an object as it was told when it changed, where there is room for it: a copy costs a fraction of what it takes to unpack it.
    pub(super) fn told(&self, key: &Key, object: impl FnOnce() -> K) {
        if let Some(slot) = self.lock().by_key.get_mut(key) {
            slot.object = Some(Arc::new(object()));
        }
    }

    /// From now on an object has another text, which has so many bytes, or none at all; what it was, if that is kept.
    pub(super) fn change(&self, key: &Key, bytes: Option<usize>, now: Instant) -> Option<Arc<K>> {
        let (begins, before) = self.lock().change(key, bytes, now);
        if begins {
            self.begun.notify_one();
        }
        before
    }

    /// All texts may be other ones.
    pub(super) fn clear(&self) {
        *self.lock() = Slots { by_key: HashMap::new(), bytes: 0 };
    }

    /// Forgets in time what was kept; it never ends.
    pub(super) async fn forget_in_time(&self) {
        loop {
            self.begun.notified().await;
            while self.lock().forget(Instant::now()) {
                tokio::time::sleep(PERIOD).await;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slots<K>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Slots<K> {
    /// Whether there is something where there was nothing, and what the object was, if that is kept.
    fn change(&mut self, key: &Key, bytes: Option<usize>, now: Instant) -> (bool, Option<Arc<K>>) {
        let before = self.by_key.remove(key).and_then(|before| {
            self.bytes -= before.bytes;
            before.object
        });
        let Some(bytes) = bytes.filter(|bytes| self.bytes + bytes <= MOST) else { return (false, before) };
        let begins = self.by_key.is_empty();
        self.bytes += bytes;
        self.by_key.insert(key.clone(), Slot { changed: now, bytes, object: None });
        (begins, before)
    }

    /// Forgets what was kept for long; whether anything is left.
    fn forget(&mut self, now: Instant) -> bool {
        let is_over = |slot: &Slot<K>| now.saturating_duration_since(slot.changed) >= KEPT;
        self.by_key.retain(|_, slot| !is_over(slot));
        self.bytes = self.by_key.values().map(|slot| slot.bytes).sum();
        if self.by_key.is_empty() {
            // Nor is the room for it.
            self.by_key.shrink_to_fit();
        }
        !self.by_key.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(Some("n"), name)
    }

    #[test]
    fn what_changed_is_kept_until_it_changes_again_or_is_gone() {
        let fresh = Fresh::default();
        let now = Instant::now();
        let (a, object) = (key("a"), Arc::new(1));
        fresh.keep(&a, &object);
        assert_eq!(fresh.get(&a), None, "it has not changed: it only lies there");
        fresh.change(&a, Some(10), now);
        assert_eq!(fresh.get(&a), None, "nobody has looked at it");
        fresh.keep(&a, &object);
        assert_eq!(fresh.get(&a), Some(object.clone()));
        fresh.change(&key("b"), Some(10), now);
        assert_eq!(fresh.get(&a), Some(object.clone()), "another one changed");
        fresh.change(&a, Some(10), now);
        assert_eq!(fresh.get(&a), None);
        fresh.keep(&a, &object);
        fresh.change(&a, None, now);
        fresh.keep(&a, &object);
        assert_eq!(fresh.get(&a), None, "it is gone");
        fresh.change(&a, Some(10), now);
        fresh.keep(&a, &object);
        fresh.clear();
        assert_eq!((fresh.get(&a), fresh.lock().bytes), (None, 0));
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let fresh = Fresh::default();
        let now = Instant::now();
        let kept = |name: &str, bytes: usize| {
            fresh.change(&key(name), Some(bytes), now);
            fresh.keep(&key(name), &Arc::new(()));
            fresh.get(&key(name)).is_some()
        };
        assert!(!kept("a", MOST + 1), "it has no room alone");
        assert!(kept("a", MOST));
        assert!(!kept("b", 1));
        assert!(kept("a", MOST - 1), "it takes the place that it had");
        assert!(kept("b", 1) && !kept("c", 1));
        fresh.change(&key("a"), None, now);
        assert!(kept("c", 1));
    }

    #[test]
    fn what_changed_long_ago_is_forgotten() {
        let fresh = Fresh::default();
        let began = Instant::now();
        let second = Duration::from_secs(1);
        for (name, changed) in [("a", began), ("b", began + second)] {
            fresh.change(&key(name), Some(10), changed);
            fresh.keep(&key(name), &Arc::new(()));
        }
        let known = || ["a", "b"].map(|name| fresh.get(&key(name)).is_some());
        assert!(fresh.lock().forget(began + KEPT.saturating_sub(second)));
        assert_eq!(known(), [true, true]);
        assert!(fresh.lock().forget(began + KEPT));
        assert_eq!((known(), fresh.lock().bytes), ([false, true], 10));
        assert!(!fresh.lock().forget(began + KEPT + second));
        assert_eq!((known(), fresh.lock().bytes), ([false, false], 0));
    }

    #[tokio::test]
    async fn whatever_changes_after_a_pause_is_forgotten_too() {
        let fresh = Fresh::<()>::default();
        let long_ago = Instant::now().checked_sub(KEPT).unwrap();
        let mut forgets = Box::pin(fresh.forget_in_time());
        for _ in 0..2 {
            fresh.change(&key("a"), Some(10), long_ago);
            fresh.change(&key("b"), Some(10), long_ago);
            assert!(futures::poll!(&mut forgets).is_pending());
            assert!(fresh.lock().by_key.is_empty(), "it is over");
        }
    }
}
