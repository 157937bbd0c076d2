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

/// How many databases are few in a cluster of so many things.
pub(super) const fn few(size: usize) -> usize {
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
    fn how_many_are_few_grows_with_the_cluster() {
        assert_eq!((few(0), few(1_000), few(10_000)), (64, 64, 333));
    }
}
