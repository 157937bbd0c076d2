//! What waits for a turn, what has one, and for how long: the `workqueue_*` metrics of controller-runtime, which kube's
//! own queue does not tell, and whether turns come late. Watches and decides nothing.

mod shown;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::core::ObjectMeta;
use runtime::Metrics;
use runtime::prometheus_client::metrics::counter::Counter;
use runtime::prometheus_client::metrics::family::Family;
use runtime::prometheus_client::metrics::histogram::Histogram;

use crate::metrics::{Labels, queue};
use crate::reconcile::PROGRESS;
use crate::store::Key;
use crate::turn::Next;

/// Buckets of controller-runtime's queues, in seconds: from ten nanoseconds, each ten times the one before.
const BUCKETS: [f64; 12] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1_000.0];

/// A turn is late that others kept waiting for so long: many times as long as looks are gathered.
const LATE: Duration = Duration::from_millis(250);
/// How long after a late turn the next ones are expected to be late, too.
const BEHIND: Duration = Duration::from_secs(1);

/// The queue as far as it can be seen. Clones share it.
#[derive(Clone)]
pub(crate) struct Work {
    state: Arc<Mutex<State>>,
    // Of each there is one series, of this queue.
    adds: Counter,
    retries: Counter,
    waited: Histogram,
    worked: Histogram,
}

/// A look that was asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    since: Instant,
    /// Since when only others keep it waiting: while its own object has a turn, that does.
    free: Instant,
}

/// Who waits since when, who is due when, who has a turn since when.
#[derive(Debug, Default)]
struct State {
    asked: HashMap<Key, Asked>,
    due: HashMap<Key, Instant>,
    active: HashMap<Key, Instant>,
    /// When the last late turn began.
    late: Option<Instant>,
}

impl Work {
    /// Registers everything.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        let state = Arc::<Mutex<State>>::default();
        metrics.with_registry(|registry| {
            registry.register_collector(Box::new(shown::Shown(Arc::clone(&state))));
        });
        let counter = |name: &str, help: &str| {
            let family = metrics.register(name, help, Family::<Labels, Counter>::default());
            family.get_or_create_owned(&queue())
        };
        let length = |name: &str, help: &str| {
            let family = Family::<Labels, Histogram, fn() -> Histogram>::new_with_constructor(histogram);
            metrics.register(name, help, family).get_or_create_owned(&queue())
        };
        Self {
            state,
            adds: counter("workqueue_adds", "Databases put into the queue"),
            retries: counter("workqueue_retries", "Databases put into the queue again after a failure"),
            waited: length("workqueue_queue_duration_seconds", "How long databases wait for their turn"),
            worked: length("workqueue_work_duration_seconds", "How long turns take"),
        }
    }

    /// A look was asked for.
    pub(crate) fn asked(&self, namespace: Option<&str>, name: &str) {
        let key = Key::new(namespace, name);
        let mut state = self.lock();
        if let Entry::Vacant(vacant) = state.asked.entry(key) {
            let now = Instant::now();
            vacant.insert(Asked { since: now, free: now });
            drop(state);
            self.adds.inc();
        }
    }

    /// A turn begins.
    pub(crate) fn begin(&self, metadata: &ObjectMeta) -> Turn {
        let ObjectMeta { namespace, name, .. } = metadata;
        let key = Key::new(namespace.as_deref(), name.as_deref().unwrap_or_default());
        let now = Instant::now();
        let (asked, waited) = self.lock().begin(key.clone(), now);
        if !asked {
            self.adds.inc();
        }
        self.waited.observe(waited.as_secs_f64());
        Turn { work: self.clone(), key, began: now }
    }

    /// Whether databases wait long for their turns, so that what can wait is not to be done.
    pub(crate) fn is_behind(&self) -> bool {
        self.lock().was_behind(BEHIND, Instant::now())
    }

    /// The same for as long after a late turn as two statuses that only say how far a database is keep apart. Many are made in waves, with
    /// little to do between two of them: all would say so just then. Who waits for EC2 is looked at as ever meanwhile: nobody else tells
    /// that it is done.
    pub(crate) fn was_behind(&self) -> bool {
        self.lock().was_behind(PROGRESS, Instant::now())
    }

    /// What is asked for has its turn only so much later, and does not wait meanwhile.
    pub(crate) fn put_off(&self, key: Key, by: Duration) {
        let due = Instant::now() + by;
        let mut state = self.lock();
        state.asked.remove(&key);
        state.due.insert(key, due);
    }

    /// What is asked for and not there has no turn.
    pub(crate) fn forget(&self, namespace: Option<&str>, name: &str) {
        let key = Key::new(namespace, name);
        let mut state = self.lock();
        state.asked.remove(&key);
        state.due.remove(&key);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A turn; given up when dropped.
pub(crate) struct Turn {
    work: Work,
    key: Key,
    began: Instant,
}

impl Turn {
    /// The turn ends; how long it took.
    pub(crate) fn end(self, next: Next) -> Duration {
        let now = Instant::now();
        if let Some(due) = next.delay().and_then(|delay| now.checked_add(delay)) {
            self.work.lock().due.insert(self.key.clone(), due);
        }
        if matches!(next, Next::Failed { .. }) {
            self.work.retries.inc();
        }
        let took = now.saturating_duration_since(self.began);
        self.work.worked.observe(took.as_secs_f64());
        took
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.work.lock().end(&self.key, Instant::now());
    }
}

impl State {
    /// A turn begins: whether it was asked for, and for how long it was waited for.
    fn begin(&mut self, key: Key, now: Instant) -> (bool, Duration) {
        let (asked, due) = (self.asked.remove(&key), self.due.remove(&key));
        self.active.insert(key, now);
        let waited = |asked: Option<Instant>| {
            let since = asked.into_iter().chain(due).min();
            since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
        };
        if waited(asked.map(|asked| asked.free)) >= LATE {
            self.late = Some(now);
        }
        (asked.is_some(), waited(asked.map(|asked| asked.since)))
    }

    /// A turn is over.
    fn end(&mut self, key: &Key, now: Instant) {
        self.active.remove(key);
        if let Some(asked) = self.asked.get_mut(key) {
            asked.free = now;
        }
    }

    /// How many wait for a turn: asked for, or due by now. Who has a turn is asked for anew only afterwards.
    fn depth(&self, now: Instant) -> usize {
        let waits = |key: &&Key| !self.active.contains_key(*key);
        let asked = self.asked.keys().filter(waits).count();
        let due = self.due.iter().filter(|(key, at)| **at <= now && !self.asked.contains_key(*key));
        asked + due.map(|(key, _)| key).filter(waits).count()
    }

    /// Whether the last late turn is no longer ago.
    fn was_behind(&self, within: Duration, now: Instant) -> bool {
        self.late.is_some_and(|late| now.saturating_duration_since(late) < within)
    }

    /// How long turns under way have taken so far, together and at most.
    fn unfinished(&self, now: Instant) -> (Duration, Duration) {
        let times = self.active.values().map(|began| now.saturating_duration_since(*began));
        times.fold(Default::default(), |(sum, longest), time| (sum + time, longest.max(time)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(name: &str) -> ObjectMeta {
        ObjectMeta { namespace: Some("n".into()), name: Some(name.into()), ..ObjectMeta::default() }
    }

    fn depth(work: &Work, later: Duration) -> usize {
        work.lock().depth(Instant::now() + later)
    }

    #[test]
    fn who_waits_is_counted_until_the_turn_and_again_when_due() {
        let work = Work::new(&Metrics::default());
        work.asked(Some("n"), "a");
        work.asked(Some("n"), "a");
        work.asked(Some("n"), "b");
        assert_eq!((depth(&work, Duration::ZERO), work.adds.get()), (2, 2));
        let turn = work.begin(&metadata("a"));
        assert_eq!(depth(&work, Duration::ZERO), 1);
        work.asked(Some("n"), "a");
        assert_eq!(depth(&work, Duration::ZERO), 1, "who has a turn gets the next one only afterwards");
        let (sum, longest) = work.lock().unfinished(Instant::now() + Duration::from_secs(5));
        assert!(sum >= Duration::from_secs(5) && sum == longest);
        turn.end(Next::Failed { delay: Duration::from_secs(10), lasting: false, category: "aws" });
        assert_eq!(depth(&work, Duration::ZERO), 2);
        work.forget(Some("n"), "b");
        drop(work.begin(&metadata("a")));
        assert_eq!((depth(&work, Duration::ZERO), depth(&work, Duration::from_secs(11))), (0, 0));
        let turn = work.begin(&metadata("a"));
        turn.end(Next::Rest(Duration::from_secs(10)));
        assert_eq!((depth(&work, Duration::ZERO), depth(&work, Duration::from_secs(11))), (0, 1));
        assert_eq!(work.retries.get(), 1);
        assert_eq!(work.lock().unfinished(Instant::now()), (Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn it_is_behind_for_a_while_after_a_late_turn() {
        let (mut state, since) = (State::default(), Instant::now());
        let key = || Key::new(Some("n"), "a");
        let behind =
            |state: &State, now: Instant| [BEHIND, PROGRESS].map(|within| state.was_behind(within, now));
        assert_eq!(state.begin(key(), since), (false, Duration::ZERO));
        state.asked.insert(key(), Asked { since, free: since });
        assert_eq!(state.begin(key(), since + LATE / 5), (true, LATE / 5));
        assert_eq!(behind(&state, since + LATE / 5), [false, false]);
        state.asked.insert(key(), Asked { since, free: since });
        assert_eq!(state.begin(key(), since + LATE), (true, LATE));
        assert_eq!(behind(&state, since + LATE), [true, true]);
        assert_eq!(
            behind(&state, since + LATE + BEHIND),
            [false, true],
            "statuses of progress wait for longer"
        );
        assert_eq!(behind(&state, since + LATE + PROGRESS), [false, false], "none was late since");
        // One that was due before it was asked for waits since then.
        let asked = since + LATE * 2 + PROGRESS;
        state.due.insert(key(), since + LATE + PROGRESS);
        state.asked.insert(key(), Asked { since: asked, free: asked });
        assert_eq!(behind(&state, asked), [false, false]);
        assert_eq!(state.begin(key(), asked), (true, LATE));
        assert_eq!(behind(&state, asked), [true, true]);
    }

    #[test]
    fn what_its_own_turn_keeps_waiting_says_nothing_of_others() {
        let (mut state, since) = (State::default(), Instant::now());
        let key = Key::new(Some("n"), "a");
        state.begin(key.clone(), since);
        state.asked.insert(key.clone(), Asked { since, free: since });
        let ended = since + LATE * 2;
        state.end(&key, ended);
        assert_eq!(state.begin(key, ended), (true, LATE * 2));
        assert!(!state.was_behind(PROGRESS, ended));
    }

    #[test]
    fn what_is_put_off_waits_only_once_it_is_due() {
        let work = Work::new(&Metrics::default());
        let (hour, key) = (Duration::from_hours(1), Key::new(Some("n"), "a"));
        work.asked(Some("n"), "a");
        work.put_off(key.clone(), hour);
        assert_eq!((depth(&work, Duration::ZERO), depth(&work, hour * 2)), (0, 1));
        work.asked(Some("n"), "a");
        assert_eq!((depth(&work, Duration::ZERO), work.adds.get()), (1, 2), "it is asked for anew");
        drop(work.begin(&metadata("a")));
        assert_eq!(depth(&work, hour * 2), 0);
        work.put_off(key, hour);
        work.forget(Some("n"), "a");
        assert_eq!(depth(&work, hour * 2), 0);
    }

    #[test]
    fn all_names_of_controller_runtime_are_shown() {
        let metrics = Metrics::default();
        let work = Work::new(&metrics);
        work.begin(&metadata("a")).end(Next::Change);
        let text = metrics.encode().unwrap();
        for name in [
            "workqueue_depth",
            "workqueue_adds_total",
            "workqueue_queue_duration_seconds_count",
            "workqueue_work_duration_seconds_bucket",
            "workqueue_unfinished_work_seconds",
            "workqueue_longest_running_processor_seconds",
            "workqueue_retries_total",
        ] {
            let of_queue = |line: &&str| line.contains("name=\"questdb\",controller=\"questdb\"");
            let mut lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
            assert!(lines.any(|line| of_queue(&line)), "{name} in {text}");
        }
    }
}
