//! Which databases were asked for lately, one by one, and what was seen of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Holdings;

/// How long a question counts.
const LATELY: Duration = Duration::from_secs(2);
/// So many are asked for one by one in any case.
const FEW: usize = 64;
/// Things that a page of a whole picture shows, roughly, for one database that a small picture is about.
const SHARE: usize = 30;

/// How long a whole picture does for those of a crowd who are content with what was so a moment ago. They all are, but for who has to
/// see his own last write: of these there are a few at a time, and a whole picture for them would be one of all others.
const RENEWED: Duration = Duration::from_secs(1);

/// How somebody is shown one database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// By a picture of those who ask at the same moment.
    Small,
    /// The same of all who ask for a while: there are many.
    Gathered,
    /// By a picture of everything.
    Whole,
}

/// How, where so many were asked for lately in a cluster of so many things, for who asks now and has to see what is so after `moment`;
/// `begun` is when the last whole picture was begun that has not failed.
pub(super) fn look(
    (asked, size): (usize, usize),
    begun: Option<Instant>,
    (moment, now): (Instant, Instant),
) -> Look {
    // Whom the one that is being taken will do waits for it. Who has to see more would be shown by another one right after it.
    let is_whole = |begun: Instant| begun >= moment || now.saturating_duration_since(begun) >= RENEWED;
    if asked <= few(size) {
        Look::Small
    } else if begun.is_none_or(is_whole) {
        Look::Whole
    } else {
        Look::Gathered
    }
}

/// How many databases are few in a cluster of so many things.
const fn few(size: usize) -> usize {
    if size / SHARE > FEW { size / SHARE } else { FEW }
}

/// Who asked.
#[derive(Default)]
pub(super) struct Crowd(Mutex<State>);

#[derive(Default)]
struct State {
    asked: HashMap<String, Asked>,
    swept: Option<Instant>,
}

struct Asked {
    at: Instant,
    seen: Option<Arc<Holdings>>,
}

impl Crowd {
    /// What was seen of a database after this moment.
    pub(super) fn recall(&self, database: &str, moment: Instant) -> Option<Arc<Holdings>> {
        let state = self.lock();
        let seen = state.asked.get(database)?.seen.as_ref()?;
        (seen.as_of >= moment).then(|| Arc::clone(seen))
    }

    /// Somebody asks about a database; how many were asked about lately.
    pub(super) fn join(&self, database: &str, now: Instant) -> usize {
        let mut state = self.lock();
        if state.swept.is_none_or(|swept| now.saturating_duration_since(swept) > LATELY / 4) {
            state.asked.retain(|_, asked| now.saturating_duration_since(asked.at) <= LATELY);
            state.swept = Some(now);
        }
        match state.asked.get_mut(database) {
            Some(asked) => asked.at = now,
            None => drop(state.asked.insert(database.to_owned(), Asked { at: now, seen: None })),
        }
        state.asked.len()
    }

    /// Something was seen of a database.
    pub(super) fn remember(&self, database: &str, seen: &Arc<Holdings>) {
        if let Some(asked) = self.lock().asked.get_mut(database) {
            asked.seen = Some(Arc::clone(seen));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_count_for_a_while_and_answers_as_long() {
        let (crowd, began) = (Crowd::default(), Instant::now());
        assert_eq!(crowd.join("a", began), 1);
        let seen = Holdings {
            as_of: began,
            instances: Vec::new(),
            volumes: Vec::new(),
            security_groups: Vec::new(),
        };
        crowd.remember("a", &Arc::new(seen));
        assert!(crowd.recall("a", began).is_some());
        assert!(crowd.recall("a", began + Duration::from_nanos(1)).is_none(), "it shows the past");
        assert!(crowd.recall("b", began).is_none());
        assert_eq!(crowd.join("b", began + LATELY / 2), 2);
        assert_eq!(crowd.join("b", began + LATELY + LATELY / 2), 1);
        assert!(crowd.recall("a", began).is_none(), "nothing is kept of who asks no more");
    }

    #[test]
    fn a_crowd_is_shown_everything_once_in_a_while_and_who_has_to_see_more_only_what_he_asked_for() {
        let began = Instant::now();
        let at = |millis| began + Duration::from_millis(millis);
        let check = |asked, begun: Option<u64>, (moment, now): (u64, u64), expected| {
            let found = look((asked, 1_000), begun.map(at), (at(moment), at(now)));
            assert_eq!(found, expected, "{asked} {begun:?} {moment} {now}");
        };
        check(64, None, (9_000, 9_500), Look::Small);
        check(64, Some(4_000), (9_000, 9_500), Look::Small);
        check(65, None, (9_000, 9_500), Look::Whole);
        check(65, Some(8_501), (9_000, 9_500), Look::Gathered);
        check(65, Some(8_500), (9_000, 9_500), Look::Whole);
        // It is being taken: it is waited for by whom it will do, and nobody else.
        check(65, Some(9_000), (9_000, 9_500), Look::Whole);
        check(65, Some(8_999), (9_000, 9_500), Look::Gathered);
        let few = look((65, 10_000), None, (began, began));
        assert_eq!(few, Look::Small, "these are few among so many");
    }

    #[test]
    fn how_many_are_few_grows_with_the_cluster() {
        assert_eq!((few(0), few(1_000), few(10_000)), (64, 64, 333));
    }
}
