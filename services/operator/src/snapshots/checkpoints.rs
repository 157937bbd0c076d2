//! What this process knows of the checkpoint of each snapshot that owes a release. Losing it costs a wait before the debt is struck; where
//! another process struck the debt of a checkpoint that this one made, which only two that lead at once do, it costs a release that a
//! person has to make.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use plan::snapshot::{Checkpoint, Known, Requests};

/// Of one of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    checkpoint: Checkpoint,
    /// When QuestDB was last silent, since a checkpoint was asked for and nobody heard an answer.
    unanswered: Option<Instant>,
}

/// Of all of them, by uid of the snapshot.
#[derive(Debug)]
pub(super) struct Checkpoints {
    /// What another process asked for, it asked for before.
    took_over: Instant,
    /// How long a request that was given up may be under way.
    lag: Duration,
    entries: Mutex<HashMap<String, Entry>>,
}

impl Checkpoints {
    pub(super) fn new(took_over: Instant, lag: Duration) -> Self {
        Self { took_over, lag, entries: Mutex::default() }
    }

    /// What is known by a look that begins now.
    pub(super) fn known(&self, uid: &str, now: Instant) -> Known {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < self.lag;
        let entry = self.lock().get(uid).copied();
        let requests = match entry {
            Some(Entry { unanswered: Some(at), .. }) if is_recent(at) => Requests::Unanswered,
            None if is_recent(self.took_over) => Requests::Unknown,
            Some(_) | None => Requests::Answered,
        };
        Known { checkpoint: entry.map_or(Checkpoint::Unknown, |entry| entry.checkpoint), requests }
    }

    /// When the checkpoint began that this process made under a debt which it has not struck; none where it made none.
    pub(super) fn own(&self, uid: &str) -> Option<Timestamp> {
        match self.lock().get(uid)?.checkpoint {
            Checkpoint::Made(since) => Some(since),
            Checkpoint::Unknown | Checkpoint::Unmade => None,
        }
    }

    /// The debt was written down just now, or nothing of ours holds the database and nothing is under way that would.
    pub(super) fn unmade(&self, uid: &str) {
        self.put(uid, Entry { checkpoint: Checkpoint::Unmade, unanswered: None });
    }

    /// One is about to be asked for; what was known before.
    pub(super) fn asks(&self, uid: &str, now: Instant) -> Option<Entry> {
        // Given up on its way, it may be made all the same.
        self.lock().insert(uid.to_owned(), Entry { checkpoint: Checkpoint::Unknown, unanswered: Some(now) })
    }

    /// It was clearly refused: what was known `before` is still so.
    pub(super) fn refused(&self, uid: &str, before: Option<Entry>) {
        match before {
            Some(before) => self.put(uid, before),
            None => self.forget(uid),
        }
    }

    /// It was answered, and so is under way no more. What was under way `before` may be still.
    pub(super) fn answered(&self, uid: &str, before: Option<Entry>) {
        let unanswered = before.map_or(Some(self.took_over), |before| before.unanswered);
        self.put(uid, Entry { checkpoint: Checkpoint::Unknown, unanswered });
    }

    /// It was made, and began then.
    pub(super) fn made(&self, uid: &str, since: Timestamp) {
        if let Some(entry) = self.lock().get_mut(uid) {
            entry.checkpoint = Checkpoint::Made(since);
        }
    }

    /// The one that was asked for got no answer, however long one was waited for: it may come from now on.
    pub(super) fn unheard(&self, uid: &str, now: Instant) {
        if let Some(entry) = self.lock().get_mut(uid) {
            entry.unanswered = Some(now);
        }
    }

    /// QuestDB did not tell anything: what it has not read by now, it may read later.
    pub(super) fn silent(&self, uid: &str, now: Instant) {
        if let Some(entry) = self.lock().get_mut(uid) {
            let is_open = |at: &Instant| now.saturating_duration_since(*at) < self.lag;
            entry.unanswered = entry.unanswered.filter(is_open).map(|_| now);
        }
    }

    /// The debt was struck, and nothing that this process made holds the database.
    pub(super) fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    pub(super) fn retain(&self, known: impl Fn(&str) -> bool) {
        self.lock().retain(|uid, _| known(uid));
    }

    fn put(&self, uid: &str, entry: Entry) {
        self.lock().insert(uid.to_owned(), entry);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAG: Duration = Duration::from_mins(5);
    const SINCE: Timestamp = Timestamp::UNIX_EPOCH;

    /// What is known in the end, of a process that has led for so many seconds before the first of these.
    fn known(led: u64, then: impl FnOnce(&Checkpoints, Instant) -> Instant) -> Known {
        let began = Instant::now();
        let checkpoints = Checkpoints::new(began, LAG);
        let now = then(&checkpoints, began + Duration::from_secs(led));
        checkpoints.known("u", now)
    }

    fn is(found: Known, checkpoint: Checkpoint, requests: Requests) {
        assert_eq!(found, Known { checkpoint, requests });
    }

    fn after(moment: Instant, seconds: u64) -> Instant {
        moment + Duration::from_secs(seconds)
    }

    #[test]
    fn what_another_process_asked_for_may_come_for_a_while() {
        is(known(0, |_, now| now), Checkpoint::Unknown, Requests::Unknown);
        is(known(299, |_, now| now), Checkpoint::Unknown, Requests::Unknown);
        is(known(300, |_, now| now), Checkpoint::Unknown, Requests::Answered);
        // What this one makes says nothing of it.
        let made = |all: &Checkpoints, now: Instant| {
            let before = all.asks("u", now);
            all.answered("u", before);
            all.made("u", SINCE);
            now
        };
        is(known(10, made), Checkpoint::Made(SINCE), Requests::Unanswered);
        is(known(300, made), Checkpoint::Made(SINCE), Requests::Answered);
        // Whoever writes the debt down himself knows that nobody has asked under it.
        let unmade = |all: &Checkpoints, now: Instant| {
            all.unmade("u");
            made(all, now)
        };
        is(known(10, unmade), Checkpoint::Made(SINCE), Requests::Answered);
    }

    #[test]
    fn one_is_our_own_from_its_making_until_it_is_gone() {
        let own = |then: &dyn Fn(&Checkpoints)| {
            let all = Checkpoints::new(Instant::now(), LAG);
            then(&all);
            all.own("u")
        };
        let made = |all: &Checkpoints| {
            let before = all.asks("u", Instant::now());
            all.answered("u", before);
            all.made("u", SINCE);
        };
        assert_eq!(own(&|_| {}), None);
        assert_eq!(own(&|all| all.unmade("u")), None);
        assert_eq!(own(&made), Some(SINCE));
        let gone: [fn(&Checkpoints); 2] = [|all| all.unmade("u"), |all| all.forget("u")];
        for gone in gone {
            let found = own(&|all| {
                made(all);
                gone(all);
            });
            assert_eq!(found, None);
        }
    }

    #[test]
    fn a_request_without_an_answer_may_come_until_questdb_has_told_something_for_a_while() {
        let asked = |all: &Checkpoints, now: Instant| {
            all.unmade("u");
            all.asks("u", now);
        };
        for (seconds, requests) in [(299, Requests::Unanswered), (300, Requests::Answered)] {
            let found = known(900, |all, now| {
                asked(all, now);
                after(now, seconds)
            });
            is(found, Checkpoint::Unknown, requests);
            let found = known(900, |all, now| {
                asked(all, now);
                all.silent("u", after(now, 299));
                after(now, 299 + seconds)
            });
            is(found, Checkpoint::Unknown, requests);
        }
        // It is too late then.
        let found = known(900, |all, now| {
            asked(all, now);
            all.silent("u", after(now, 300));
            after(now, 301)
        });
        is(found, Checkpoint::Unknown, Requests::Answered);
        // Another one that is answered does not answer the first.
        let found = known(900, |all, now| {
            asked(all, now);
            let before = all.asks("u", after(now, 10));
            all.answered("u", before);
            all.made("u", SINCE);
            after(now, 20)
        });
        is(found, Checkpoint::Made(SINCE), Requests::Unanswered);
    }

    #[test]
    fn an_answer_that_was_waited_for_in_vain_for_long_may_come_for_as_long_as_any() {
        for (seconds, requests) in [(299, Requests::Unanswered), (300, Requests::Answered)] {
            let found = known(10_000, |all, now| {
                all.unmade("u");
                all.asks("u", now);
                all.unheard("u", after(now, 1_800));
                after(now, 1_800 + seconds)
            });
            is(found, Checkpoint::Unknown, requests);
        }
    }

    #[test]
    fn what_was_refused_changes_nothing_and_what_was_struck_is_forgotten() {
        let refused = |all: &Checkpoints, now: Instant| {
            let before = all.asks("u", now);
            all.refused("u", before);
            now
        };
        is(known(10, refused), Checkpoint::Unknown, Requests::Unknown);
        let unmade = |all: &Checkpoints, now: Instant| {
            all.unmade("u");
            refused(all, now)
        };
        is(known(10, unmade), Checkpoint::Unmade, Requests::Answered);
        let struck = |all: &Checkpoints, now: Instant| {
            all.unmade("u");
            all.forget("u");
            now
        };
        is(known(900, struck), Checkpoint::Unknown, Requests::Answered);
        let gone = |all: &Checkpoints, now: Instant| {
            all.unmade("u");
            all.retain(|uid| uid != "u");
            now
        };
        is(known(900, gone), Checkpoint::Unknown, Requests::Answered);
    }
}
