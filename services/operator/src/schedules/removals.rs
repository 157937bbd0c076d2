//! Removals that went wrong: each rests and is tried again by itself, ever more seldom, and keeps no other from being tried.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use runtime::Backoff;

use crate::error::Error;

/// Between two attempts at one.
const AGAIN: Backoff = Backoff::new(Duration::from_secs(15), Duration::from_mins(5));
/// Most in a pass that may go wrong in the API server, or in a webhook that it asks, before the rest is left to the next one: each may
/// take long.
pub(super) const MOST_SLOW: usize = 3;

/// What an error says of the requests that come after it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// Nothing: a policy, a webhook or a precondition is against this object.
    One,
    /// That they may go wrong as well, and take as long.
    Slow,
    /// That nobody would do them now.
    All,
}

/// What is told of those that rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) text: String,
    pub(super) lasting: bool,
    pub(super) category: &'static str,
    /// In how long one is tried again.
    pub(super) again: Duration,
}

/// One that rests.
#[derive(Debug)]
struct Rest {
    attempts: u32,
    until: Instant,
    why: String,
    lasting: bool,
    category: &'static str,
}

/// Those that rest, by uid of the schedule and name of the snapshot. Losing them costs an attempt at each.
#[derive(Debug, Default)]
pub(super) struct Removals(Mutex<HashMap<String, HashMap<String, Rest>>>);

impl Removals {
    /// Those to be tried now, of these that are due: first what did not go wrong before.
    pub(super) fn to_try(&self, schedule: &str, due: &[String], now: Instant) -> Vec<String> {
        let all = self.lock();
        let Some(resting) = all.get(schedule) else { return due.to_vec() };
        let rests = |name: &&String| resting.get(*name).is_some_and(|rest| now < rest.until);
        let mut to_try: Vec<String> = due.iter().filter(|name| !rests(name)).cloned().collect();
        to_try.sort_by_key(|name| resting.contains_key(name));
        to_try
    }

    /// Keeps in mind only these of a schedule.
    pub(super) fn keep(&self, schedule: &str, due: &[String]) {
        let mut all = self.lock();
        let Some(resting) = all.get_mut(schedule) else { return };
        resting.retain(|name, _| due.contains(name));
        if resting.is_empty() {
            all.remove(schedule);
        }
    }

    /// One went wrong; `share` of its rest is left to chance.
    pub(super) fn failed(&self, schedule: &str, name: &str, error: &Error, (now, share): (Instant, f64)) {
        let mut all = self.lock();
        let resting = all.entry(schedule.to_owned()).or_default();
        let attempts = resting.get(name).map_or(0, |rest| rest.attempts);
        let rest = Rest {
            attempts: attempts.saturating_add(1),
            until: now + AGAIN.delay(attempts, 0.5 + share / 2.0),
            why: error.stable(),
            lasting: error.is_lasting(),
            category: error.category(),
        };
        resting.insert(name.to_owned(), rest);
    }

    /// One was removed.
    pub(super) fn done(&self, schedule: &str, name: &str) {
        if let Some(resting) = self.lock().get_mut(schedule) {
            resting.remove(name);
        }
    }

    /// What is told while any rests: of one by its name, always the same.
    pub(super) fn trouble(&self, schedule: &str, now: Instant) -> Option<Trouble> {
        let all = self.lock();
        let resting = all.get(schedule)?;
        let (name, first) = resting.iter().min_by_key(|(name, _)| *name)?;
        let until = resting.values().map(|rest| rest.until).min()?;
        let others = match resting.len() - 1 {
            0 => String::new(),
            others => format!("; so it is with {others} more"),
        };
        Some(Trouble {
            text: format!("QuestDBSnapshot {name}: {}{others}", first.why),
            lasting: first.lasting,
            category: first.category,
            again: until.saturating_duration_since(now),
        })
    }

    /// Keeps in mind only these schedules.
    pub(super) fn retain(&self, known: impl Fn(&str) -> bool) {
        self.lock().retain(|schedule, _| known(schedule));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, HashMap<String, Rest>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How much of what comes after it an error says something of. Pure.
pub(super) fn weight(error: &Error) -> Weight {
    let source = match error {
        Error::Kubernetes { source, .. } => source,
        Error::Deadline { .. } => return Weight::Slow,
        _ => return Weight::All,
    };
    let kube::Error::Api(status) = source.as_ref() else { return Weight::All };
    match status.code {
        400 | 402..=428 | 430..=499 => Weight::One,
        500 | 504 => Weight::Slow,
        // Who asks (401) and how often (429) has nothing to do with the object, nor has it that nobody answers.
        _ => Weight::All,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16) -> Error {
        let status = kube::core::Status::failure("no", "No").with_code(code).boxed();
        Error::kubernetes("remove a snapshot")(kube::Error::Api(status))
    }

    #[test]
    fn what_is_refused_of_one_says_nothing_of_another() {
        for (codes, expected) in [
            (&[400, 403, 404, 409, 422][..], Weight::One),
            (&[500, 504][..], Weight::Slow),
            (&[401, 429, 502, 503][..], Weight::All),
        ] {
            for code in codes {
                assert_eq!(weight(&answer(*code)), expected, "{code}");
            }
        }
        let late = Error::Deadline { call: "remove a snapshot", limit: Duration::from_secs(15) };
        assert_eq!(weight(&late), Weight::Slow, "a webhook that does not answer");
        assert_eq!(weight(&Error::Lease), Weight::All);
        let what = "delete questdbsnapshots.crd.questdb.io".to_owned();
        let denied = Error::Denied { call: "remove a snapshot", what };
        assert_eq!(weight(&denied), Weight::All, "none may be removed");
    }

    /// Of four that are due, those of which the API server answers with 500, pass by pass, each as soon as one is due.
    #[test]
    fn whatever_goes_wrong_all_are_tried() {
        let (removals, mut now) = (Removals::default(), Instant::now());
        let mut due: Vec<String> = ["d", "c", "b", "a"].map(str::to_owned).into();
        let mut passes = 0;
        while due.iter().any(|name| name == "a") {
            passes += 1;
            assert!(passes < 3, "{due:?}");
            let tried = removals.to_try("s", &due, now);
            for slow in tried.iter().filter(|name| *name != "a").take(MOST_SLOW) {
                removals.failed("s", slow, &answer(500), (now, 1.0));
            }
            // Nothing is tried after so many slow ones.
            if tried.iter().position(|name| name == "a").is_some_and(|at| at < MOST_SLOW) {
                removals.done("s", "a");
                due.retain(|name| name != "a");
            }
            now += Duration::from_secs(1);
        }
        assert_eq!(removals.to_try("s", &due, now), Vec::<String>::new(), "they rest");
    }

    #[test]
    fn each_rests_by_itself_ever_longer_until_it_is_removed() {
        let (removals, begin) = (Removals::default(), Instant::now());
        let due: Vec<String> = ["b", "a", "c"].map(str::to_owned).into();
        let tried = |after: u64| removals.to_try("s", &due, begin + Duration::from_secs(after));
        assert_eq!(tried(0), due);
        removals.failed("s", "b", &answer(403), (begin, 1.0));
        assert_eq!(tried(14), ["a", "c"]);
        assert_eq!(tried(15), ["a", "c", "b"], "after what did not go wrong");
        removals.failed("s", "b", &answer(403), (begin, 1.0));
        assert_eq!((tried(29).len(), tried(30).len()), (2, 3));
        for _ in 0..10 {
            removals.failed("s", "b", &answer(403), (begin, 1.0));
        }
        assert_eq!((tried(299).len(), tried(300).len()), (2, 3));
        removals.failed("s", "b", &answer(403), (begin, 0.0));
        assert_eq!(tried(150).len(), 3, "by chance sooner");
        assert_eq!(removals.to_try("other", &due, begin), due, "each schedule for itself");
        removals.done("s", "b");
        assert_eq!(tried(0), due);
        removals.failed("s", "b", &answer(403), (begin, 1.0));
        // It has come to be kept.
        removals.keep("s", &due[1..]);
        assert_eq!(tried(0), due);
    }

    #[test]
    fn what_rests_is_told_all_the_time() {
        let (removals, begin) = (Removals::default(), Instant::now());
        let after = |seconds: u64| begin + Duration::from_secs(seconds);
        assert_eq!(removals.trouble("s", begin), None);
        removals.failed("s", "b", &answer(500), (begin, 1.0));
        let told = removals.trouble("s", after(5)).unwrap();
        assert!(told.text.starts_with("QuestDBSnapshot b: remove a snapshot: "), "{}", told.text);
        assert_eq!((told.lasting, told.category, told.again), (false, "kubernetes", Duration::from_secs(10)));
        removals.failed("s", "a", &answer(403), (after(10), 1.0));
        let told = removals.trouble("s", after(10)).unwrap();
        assert!(told.text.starts_with("QuestDBSnapshot a: "), "{}", told.text);
        assert!(told.text.ends_with("so it is with 1 more"), "{}", told.text);
        assert_eq!((told.lasting, told.again), (true, Duration::from_secs(5)));
        assert_eq!(removals.trouble("s", after(60)).unwrap().again, Duration::ZERO);
        removals.done("s", "a");
        removals.done("s", "b");
        assert_eq!(removals.trouble("s", begin), None);
        removals.failed("s", "a", &answer(403), (begin, 1.0));
        removals.retain(|schedule| schedule != "s");
        assert_eq!(removals.trouble("s", begin), None);
    }
}
