//! Which keys of server.conf databases list that may not know one which is asked for: asked once of each pod, and kept for as long as
//! that is asked for, and then until one serves.
//!
//! *Invariant:* what one pod listed counts until another one has: a QuestDB that does not answer for a moment does not get what it
//! was not given before.
//!
//! What many list alike is kept once: each list is some fifty kilobytes, and a key may be asked for of ten thousand databases at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::by_uid::ByUid;

/// Between two questions to a pod that did not answer.
const AGAIN: Duration = Duration::from_secs(30);

/// Keys that a pod lists.
pub(crate) type Keys = Arc<BTreeSet<String>>;

/// What is known of one.
#[derive(Debug)]
pub(crate) struct List {
    /// Uid of the pod that was asked last.
    pod: String,
    /// Until when it is not asked again; none where it has answered.
    until: Option<Instant>,
    /// What was answered last.
    keys: Option<Keys>,
}

/// The latest list of each database, by uid of its resource.
pub(crate) type Lists = ByUid<List>;

impl ByUid<List> {
    /// What a database listed last.
    pub(crate) fn known(&self, uid: &str) -> Option<Keys> {
        self.lock().get(uid)?.keys.clone()
    }

    /// Whether a pod is to be asked now.
    pub(crate) fn is_to_ask(&self, uid: &str, pod: &str, now: Instant) -> bool {
        let lists = self.lock();
        let known = lists.get(uid).filter(|list| list.pod == pod);
        known.is_none_or(|list| list.until.is_some_and(|until| now >= until))
    }

    /// A pod was asked, and has answered or not.
    pub(crate) fn asked(&self, uid: &str, pod: &str, (answer, now): (Option<Keys>, Instant)) {
        let mut lists = self.lock();
        let former = lists.remove(uid).and_then(|list| list.keys);
        let until = answer.is_none().then(|| now + AGAIN);
        let alike = |keys: Keys| {
            let mut known = lists.values().filter_map(|list| list.keys.as_ref());
            known.find(|known| **known == keys).map_or(keys, Arc::clone)
        };
        let keys = answer.map(alike).or(former);
        lists.insert(uid.to_owned(), List { pod: pod.to_owned(), until, keys });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_asked_until_it_answers_and_what_was_listed_counts_until_another_has() {
        let (lists, now) = (Lists::default(), Instant::now());
        let keys = |key: &str| Some(Arc::new(BTreeSet::from([key.to_owned()])));
        let asks = |pod: &str, after: Duration| lists.is_to_ask("a", pod, now + after);
        assert!(asks("one", Duration::ZERO) && lists.known("a").is_none());
        lists.asked("a", "one", (None, now));
        assert!(!asks("one", Duration::ZERO) && asks("one", AGAIN) && asks("other", Duration::ZERO));
        assert_eq!(lists.known("a"), None);
        lists.asked("a", "one", (keys("x"), now));
        assert!(!asks("one", AGAIN) && asks("other", Duration::ZERO));
        lists.asked("a", "other", (None, now));
        assert_eq!((lists.known("a"), lists.known("b")), (keys("x"), None));
        lists.asked("a", "other", (keys("y"), now));
        assert_eq!(lists.known("a"), keys("y"));
        lists.retain(|uid| uid != "a");
        assert!(lists.is_empty());
    }

    #[test]
    fn what_two_list_alike_is_kept_once() {
        let (lists, now) = (Lists::default(), Instant::now());
        let keys = |key: &str| Some(Arc::new(BTreeSet::from([key.to_owned()])));
        for (uid, key) in [("a", "x"), ("b", "y"), ("c", "y")] {
            lists.asked(uid, "pod", (keys(key), now));
        }
        let known = |uid: &str| lists.known(uid).unwrap();
        assert_eq!([known("a"), known("b")].map(Some), [keys("x"), keys("y")]);
        assert!(Arc::ptr_eq(&known("b"), &known("c")));
    }
}
