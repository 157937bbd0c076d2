//! What EC2 refused of the copies of snapshots: for a while it is not asked again. Losing it costs an attempt.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plan::snapshot::Refused;
use runtime::Backoff;

/// Between two attempts: before each the database is held anew.
const AGAIN: Backoff = Backoff::new(Duration::from_secs(30), Duration::from_mins(10));

#[derive(Debug)]
struct Refusal {
    attempts: u32,
    until: Instant,
    /// None since EC2 took one.
    why: Option<String>,
}

/// By uid of the snapshot.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<HashMap<String, Refusal>>);

impl Refusals {
    /// Something was refused; `share` of the rest is left to chance.
    pub(super) fn refused(&self, uid: &str, why: String, (now, share): (Instant, f64)) {
        let mut all = self.lock();
        let attempts = all.get(uid).map_or(0, |refusal| refusal.attempts);
        let until = now + AGAIN.delay(attempts, 0.5 + share / 2.0);
        let refusal = Refusal { attempts: attempts.saturating_add(1), until, why: Some(why) };
        all.insert(uid.to_owned(), refusal);
    }

    /// A copy was begun: what EC2 refused before holds nothing up any more. Should it refuse something again, that rests longer all the
    /// same.
    pub(super) fn begun(&self, uid: &str) {
        if let Some(refusal) = self.lock().get_mut(uid) {
            refusal.why = None;
        }
    }

    /// What was refused last.
    pub(super) fn known(&self, uid: &str, now: Instant) -> Option<Refused> {
        let all = self.lock();
        let Refusal { until, why, .. } = all.get(uid)?;
        Some(Refused { why: why.clone()?, rests: now < *until })
    }

    /// Nothing more is asked for.
    pub(super) fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    pub(super) fn retain(&self, known: impl Fn(&str) -> bool) {
        self.lock().retain(|uid, _| known(uid));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Refusal>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_again_rests_longer_and_is_known_until_all_is_done() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let known = |seconds: u64| refusals.known("a", now + Duration::from_secs(seconds));
        let rests = |seconds: u64| known(seconds).map(|refused| (refused.why, refused.rests));
        assert_eq!(rests(0), None);
        let refuse = |why: &str, share: f64| refusals.refused("a", why.to_owned(), (now, share));
        for (longest, why) in [(30, "a quota"), (60, "a right"), (120, "a quota")] {
            refuse(why, 1.0);
            assert_eq!(rests(longest - 1), Some((why.to_owned(), true)));
            assert_eq!(rests(longest), Some((why.to_owned(), false)), "{longest}");
        }
        refusals.begun("a");
        assert_eq!(known(0), None, "it is refused no more");
        refuse("a right", 1.0);
        assert_eq!(rests(239), Some(("a right".to_owned(), true)), "by then that is the fourth");
        for _ in 0..10 {
            refuse("a quota", 0.0);
        }
        assert_eq!(known(299).map(|refused| refused.rests), Some(true), "by chance half as long");
        assert_eq!(known(300).map(|refused| refused.rests), Some(false));
        assert_eq!(refusals.known("b", now), None);
        refusals.forget("a");
        assert_eq!(known(0), None);
        refuse("a quota", 1.0);
        refusals.retain(|uid| uid != "a");
        assert_eq!(known(0), None);
    }
}
