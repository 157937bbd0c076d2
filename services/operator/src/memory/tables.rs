//! Which WAL tables QuestDB has suspended, by the last word of the pod that each database has; when that pod is asked next, and the way
//! into it: the API server is asked for the credentials of a pod once, and for nothing of one that goes on.
//!
//! *Invariant:* a pod that does not answer changes nothing of what is known, and is asked no sooner for that. *Invariant:* with a pod all
//! of this is forgotten: its process is gone, and the next one may have other credentials.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plan::SuspendedTables;

use super::by_uid::ByUid;
use crate::database::Door;

/// What is known of a pod.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Its uid.
    pod: String,
    /// When it is asked next.
    due: Instant,
    /// By which it was asked last; none where its Secret is to be read.
    door: Option<Arc<Door>>,
    /// What it said last.
    tables: Option<SuspendedTables>,
}

/// All databases that are to serve, by uid of their resource.
pub(crate) type Tables = ByUid<Asked>;

/// For how long a pod is not asked again that is looked at once in each round: until the next such look, which may be a little early.
pub(crate) fn pause(round: Duration) -> Duration {
    round * 3 / 4
}

impl ByUid<Asked> {
    /// Whether a pod is to be asked now; one that was never, `first` after it was seen.
    pub(crate) fn is_to_ask(&self, uid: &str, pod: &str, (now, first): (Instant, Duration)) -> bool {
        let mut all = self.lock();
        if let Some(asked) = all.get(uid).filter(|asked| asked.pod == pod) {
            return now >= asked.due;
        }
        let asked = Asked { pod: pod.to_owned(), due: now + first, door: None, tables: None };
        all.insert(uid.to_owned(), asked);
        first.is_zero()
    }

    /// It is being asked, and is not before this moment asked again.
    pub(crate) fn put_off(&self, uid: &str, pod: &str, due: Instant) {
        self.of(uid, pod, |asked| asked.due = due);
    }

    /// The way by which a pod was asked last.
    pub(crate) fn door(&self, uid: &str, pod: &str) -> Option<Arc<Door>> {
        self.of(uid, pod, |asked| asked.door.clone())?
    }

    /// A pod was asked in this way; none where it is no way any more.
    pub(crate) fn entered(&self, uid: &str, pod: &str, door: Option<Arc<Door>>) {
        self.of(uid, pod, |asked| asked.door = door);
    }

    /// A pod has said which tables are suspended, and is asked again at `often` while some are. Whether that is another word than the last
    /// one or, for the first one of a pod, than a report without any; `told` says that the report has some.
    pub(crate) fn answered(
        &self,
        uid: &str,
        pod: &str,
        tables: SuspendedTables,
        (often, told): (Instant, bool),
    ) -> bool {
        let is_news = self.of(uid, pod, |asked| {
            let is_news = match &asked.tables {
                Some(before) => *before != tables,
                None => told || !tables.is_empty(),
            };
            if !tables.is_empty() {
                asked.due = often;
            }
            asked.tables = Some(tables);
            is_news
        });
        is_news.unwrap_or(false)
    }

    /// What a pod said last.
    pub(crate) fn known(&self, uid: &str, pod: &str) -> Option<SuspendedTables> {
        self.of(uid, pod, |asked| asked.tables.clone())?
    }

    /// This is the pod of a database: any other is gone.
    pub(crate) fn sees(&self, uid: &str, pod: &str) {
        let mut all = self.lock();
        if all.get(uid).is_some_and(|asked| asked.pod != pod) {
            all.remove(uid);
        }
    }

    /// What is known of this pod of a database, if it is the one that was seen last.
    fn of<T>(&self, uid: &str, pod: &str, take: impl FnOnce(&mut Asked) -> T) -> Option<T> {
        let mut all = self.lock();
        all.get_mut(uid).filter(|asked| asked.pod == pod).map(take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn tables(names: &[&str]) -> SuspendedTables {
        SuspendedTables { names: names.iter().map(|name| (*name).to_owned()).collect(), more: 0 }
    }

    #[test]
    fn a_pod_is_asked_some_time_after_it_was_seen_and_from_then_on_at_the_looks_that_come_by_themselves() {
        let (all, now) = (Tables::default(), Instant::now());
        let asks = |uid: &str, pod: &str, after: Duration| all.is_to_ask(uid, pod, (now + after, MINUTE));
        assert!(!asks("a", "one", Duration::ZERO), "all are seen at once when a process begins to lead");
        assert!(!asks("a", "one", MINUTE / 2) && asks("a", "one", MINUTE));
        all.put_off("a", "one", now + MINUTE + pause(MINUTE));
        assert!(
            !asks("a", "one", MINUTE) && asks("a", "one", MINUTE * 2),
            "each look but not one in between"
        );
        assert!(!asks("a", "other", MINUTE * 2) && asks("a", "other", MINUTE * 3), "it was seen only now");
        // Of which something is told whose QuestDB nobody has asked.
        assert!(all.is_to_ask("b", "one", (now, Duration::ZERO)));
    }

    #[test]
    fn while_tables_are_suspended_it_is_asked_often_and_only_another_word_is_news() {
        let (all, now) = (Tables::default(), Instant::now());
        let seen = |uid: &str| {
            assert!(!all.is_to_ask(uid, "one", (now, MINUTE)));
            all.put_off(uid, "one", now + MINUTE * 60);
        };
        let says =
            |uid: &str, names: &[&str], told| all.answered(uid, "one", tables(names), (now + MINUTE, told));
        seen("a");
        assert!(!says("a", &[], false) && !says("a", &[], false), "it is as it should be");
        assert!(!all.is_to_ask("a", "one", (now + MINUTE, MINUTE)));
        assert!(says("a", &["x"], false) && !says("a", &["x"], true) && says("a", &["x", "y"], true));
        assert!(all.is_to_ask("a", "one", (now + MINUTE, MINUTE)));
        assert_eq!(all.known("a", "one"), Some(tables(&["x", "y"])));
        all.put_off("a", "one", now + MINUTE * 60);
        assert!(says("a", &[], true) && !says("a", &[], true));
        assert!(!all.is_to_ask("a", "one", (now + MINUTE, MINUTE)), "it is over");
        // The first word after what an earlier process told.
        for names in [vec!["x"], Vec::new()] {
            all.forget("b");
            seen("b");
            assert!(says("b", &names, true), "{names:?}");
        }
    }

    #[test]
    fn with_a_pod_all_is_forgotten_and_what_a_former_one_says_late_counts_for_nothing() {
        let (all, now) = (Tables::default(), Instant::now());
        let door = || Some(Arc::new(Door::played("swordfish")));
        all.is_to_ask("a", "one", (now, MINUTE));
        all.entered("a", "one", door());
        all.answered("a", "one", tables(&["x"]), (now, false));
        all.sees("a", "one");
        assert!(all.door("a", "one").is_some() && all.known("a", "one").is_some());
        assert!(all.door("a", "other").is_none() && all.known("a", "other").is_none());
        assert!(!format!("{all:?}").contains("swordfish"));
        all.sees("a", "other");
        assert!(all.is_empty(), "the other one does not serve yet");
        all.is_to_ask("a", "other", (now, MINUTE));
        all.entered("a", "one", door());
        assert!(!all.answered("a", "one", tables(&["x"]), (now, false)));
        for pod in ["one", "other"] {
            assert!(all.door("a", pod).is_none() && all.known("a", pod).is_none(), "{pod}");
        }
        all.entered("a", "other", door());
        assert!(all.door("a", "other").is_some());
        all.entered("a", "other", None);
        assert!(all.door("a", "other").is_none());
        all.retain(|uid| uid != "a");
        assert!(all.is_empty());
    }
}
