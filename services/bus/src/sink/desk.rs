//! What is done about the records of a sink: offsets asked for, batches stored, each in a task of its own.

use std::collections::BTreeMap;
use std::mem;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use runtime::backoff::{Backoff, random_share};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::shelves::{Most, Shelves, Stretch, Waiting};
use super::{Batch, Settings, Sink, Stored};
use crate::polling::{Begin, End, Membership};
use crate::tracker::Mark;
use crate::{BoxError, Record, lock};

/// Between a failure and the next try, whether the store did not tell its offsets or took no batch.
const RETRY: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// Shelves under a lock that nobody holds while waiting, and those who ask and store.
pub(super) struct Desk<S> {
    sink: Arc<S>,
    runtime: Handle,
    pub(super) topic: Arc<str>,
    most: Most,
    deadline: Duration,
    pace: Duration,
    /// Of the longest wait after a failure, by chance.
    share: fn() -> f64,
    pub(super) inner: Mutex<Inner>,
    /// Told whenever records were taken to be stored.
    fewer: Condvar,
}

pub(super) struct Inner {
    pub(super) shelves: Shelves,
    pub(super) ends: BTreeMap<i32, End>,
    pub(super) open: bool,
    /// Whether the store is being asked if it still stands where it stood.
    comparing: bool,
}

impl<S: Sink> Desk<S> {
    pub(super) fn new(settings: &Settings, sink: Arc<S>, runtime: Handle) -> Arc<Self> {
        let shelves = Shelves::new(settings.parallel);
        Arc::new(Self {
            sink,
            runtime,
            topic: settings.topic.as_str().into(),
            most: Most {
                records: settings.batch,
                keys: settings.keys,
                bytes: settings.in_memory_bytes / settings.parallel.max(1),
            },
            deadline: settings.deadline,
            pace: settings.pace,
            share: random_share,
            inner: Mutex::new(Inner { shelves, ends: BTreeMap::new(), open: true, comparing: false }),
            fewer: Condvar::new(),
        })
    }

    pub(super) fn accept(self: &Arc<Self>, record: Record) {
        let mut inner = lock(&self.inner);
        inner.shelves.accept(record);
        self.start(&mut inner);
    }

    /// What waits to be stored.
    pub(super) fn waiting(&self) -> Waiting {
        lock(&self.inner).shelves.waiting_in_all()
    }

    /// Waits while there is so much, at most for the limit. Answers whether it became less.
    pub(super) fn wait_while(&self, much: impl Fn(Waiting) -> bool, limit: Duration) -> bool {
        let inner = lock(&self.inner);
        let many = |inner: &mut Inner| much(inner.shelves.waiting_in_all());
        let waited = self.fewer.wait_timeout_while(inner, limit, many);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn start(self: &Arc<Self>, inner: &mut Inner) {
        while let Some(stretch) = inner.open.then(|| inner.shelves.take(self.most)).flatten() {
            let desk = Arc::clone(self);
            self.runtime.spawn(async move { desk.store(stretch).await });
            // Whoever waits looks once the lock is free. For a record that only waits nobody is told: even of nobody the kernel is asked.
            self.fewer.notify_one();
        }
    }

    async fn store(self: Arc<Self>, stretch: Stretch) {
        let Stretch { partition, epoch, start, end, records } = stretch;
        let count = records.len();
        let batch = Arc::new(Batch { topic: Arc::clone(&self.topic), partition, start, end, records });
        let begun = Instant::now();
        let stored = within(self.deadline, self.sink.store(batch)).await;
        let delay = match stored {
            Ok(Stored::Done) => {
                // Until then the place is not free: more comes together meanwhile.
                let rest = self.pace * lock(&self.inner).shelves.rest(count);
                tokio::time::sleep_until(begun + rest).await;
                let mut inner = lock(&self.inner);
                inner.shelves.stored(partition, epoch, end);
                self.start(&mut inner);
                return;
            }
            Ok(Stored::OutOfStep) => {
                tracing::info!(
                    kafka.partition = partition,
                    "the store stands elsewhere, its offset is asked for again"
                );
                Duration::ZERO
            }
            Err(error) => {
                tracing::warn!(kafka.partition = partition, error = &*error, "a batch was not stored");
                // What is refused again and again is read anew each time: less and less often, as its cause may last.
                let before = lock(&self.inner).shelves.count_failure(partition, epoch);
                RETRY.delay(before, (self.share)())
            }
        };
        let again = lock(&self.inner).shelves.failed(partition, epoch);
        if again {
            self.ask(vec![(partition, epoch)], delay);
        }
    }

    /// Asks the store for its offsets until it answers or the partitions are gone.
    fn ask(self: &Arc<Self>, partitions: Vec<(i32, u64)>, delay: Duration) {
        let desk = Arc::clone(self);
        self.runtime.spawn(async move { desk.keep_asking(partitions, delay).await });
    }

    async fn keep_asking(&self, mut partitions: Vec<(i32, u64)>, mut delay: Duration) {
        let mut retry = RETRY.start();
        loop {
            tokio::time::sleep(delay).await;
            partitions.retain(|(partition, epoch)| self.is_open(*partition, *epoch));
            if partitions.is_empty() {
                return;
            }
            let numbers = partitions.iter().map(|(partition, _)| *partition).collect();
            match within(self.deadline, self.sink.offsets(numbers)).await {
                Ok(offsets) => return self.answered(&partitions, &offsets),
                Err(error) => {
                    tracing::warn!(?partitions, error = &*error, "the store did not tell its offsets");
                }
            }
            delay = retry.next_delay();
        }
    }

    /// Asks the store whether it still stands where it stood, of partitions that no batch would ask about. A store that was
    /// set back, such as a standby that lagged when it was promoted, has lost what was read before: it is read again.
    pub(super) fn compare(self: &Arc<Self>) {
        let mut inner = lock(&self.inner);
        let resting = inner.shelves.resting();
        if resting.is_empty() || mem::replace(&mut inner.comparing, true) {
            return;
        }
        let desk = Arc::clone(self);
        self.runtime.spawn(async move { desk.compare_with(resting).await });
    }

    async fn compare_with(&self, resting: Vec<(i32, u64, Option<i64>)>) {
        let numbers = resting.iter().map(|(partition, ..)| *partition).collect();
        let answer = within(self.deadline, self.sink.offsets(numbers)).await;
        let mut inner = lock(&self.inner);
        inner.comparing = false;
        // No answer is no news: it is asked again soon.
        let Ok(offsets) = answer else { return };
        for (partition, epoch, before) in resting {
            let now = offsets.get(&partition).copied();
            if inner.shelves.compared(partition, epoch, before, now) {
                tracing::warn!(
                    kafka.partition = partition,
                    before,
                    now,
                    "the store was set back or moved by others"
                );
            }
        }
    }

    fn is_open(&self, partition: i32, epoch: u64) -> bool {
        let inner = lock(&self.inner);
        inner.open && inner.shelves.is_current(partition, epoch)
    }

    fn answered(&self, partitions: &[(i32, u64)], offsets: &BTreeMap<i32, i64>) {
        let mut inner = lock(&self.inner);
        for (partition, epoch) in partitions {
            inner.shelves.answered(*partition, *epoch, offsets.get(partition).copied());
        }
    }
}

/// An answer in time that is no panic.
async fn within<T>(limit: Duration, work: impl Future<Output = Result<T, BoxError>>) -> Result<T, BoxError> {
    match tokio::time::timeout(limit, AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err("the store panicked".into()),
        Err(_) => Err(format!("the store did not answer within {limit:?}").into()),
    }
}

/// What the library tells of partitions goes to the desk.
pub(super) struct Member<S>(pub(super) Arc<Desk<S>>);

impl<S: Sink> Membership for Member<S> {
    fn assigned(&self, partitions: &[i32]) {
        let mut inner = lock(&self.0.inner);
        let assigned: Vec<(i32, u64)> =
            partitions.iter().map(|&partition| (partition, inner.shelves.assign(partition))).collect();
        drop(inner);
        self.0.ask(assigned, Duration::ZERO);
    }

    fn revoked(&self, partitions: &[i32]) -> Vec<Mark> {
        let mut inner = lock(&self.0.inner);
        for partition in partitions {
            inner.shelves.revoke(*partition);
            inner.ends.remove(partition);
        }
        Vec::new()
    }

    fn ends(&self, ends: &[End]) {
        let mut inner = lock(&self.0.inner);
        inner.ends = ends.iter().map(|end| (end.partition, *end)).collect();
    }

    /// Nothing is fetched before the store has said where to begin.
    fn begin(&self) -> Begin {
        Begin::WhereWeSay
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::StreamExt as _;

    use super::*;
    use crate::Connection;

    /// Stores nothing unless it is told to.
    #[derive(Default)]
    struct Stubborn(AtomicBool);

    impl Sink for Stubborn {
        async fn offsets(&self, _: Vec<i32>) -> Result<BTreeMap<i32, i64>, BoxError> {
            Ok(BTreeMap::new())
        }

        async fn store(&self, _: Arc<Batch>) -> Result<Stored, BoxError> {
            if self.0.load(Ordering::SeqCst) { Ok(Stored::Done) } else { Err("no".into()) }
        }
    }

    async fn until(desk: &Desk<Stubborn>, done: impl Fn(&Shelves) -> bool) {
        let mut beat = tokio::time::interval(Duration::from_millis(5));
        while !done(&lock(&desk.inner).shelves) {
            beat.tick().await;
        }
    }

    fn settings() -> Settings {
        Settings { pace: Duration::ZERO, ..Settings::new(Connection::new("nobody:1", "test"), "t", "g") }
    }

    /// A desk that waits for this share of the longest wait, and one partition.
    fn desk(stubborn: &Arc<Stubborn>, share: fn() -> f64) -> (Arc<Desk<Stubborn>>, u64) {
        let desk = Desk::new(&settings(), Arc::clone(stubborn), Handle::current());
        let mut desk = Arc::into_inner(desk).unwrap();
        desk.share = share;
        let desk = Arc::new(desk);
        let epoch = lock(&desk.inner).shelves.assign(0);
        lock(&desk.inner).shelves.answered(0, epoch, None);
        (desk, epoch)
    }

    /// Has one record stored, until it is or the store has been asked again where it stands.
    async fn offer((desk, epoch): &(Arc<Desk<Stubborn>>, u64), offset: i64, works: bool) {
        desk.sink.0.store(works, Ordering::SeqCst);
        lock(&desk.inner).shelves.sought(0, *epoch);
        desk.accept(Record::bare(0, offset));
        let stored = |shelves: &Shelves| shelves.storing() == 0;
        let asked_again = |shelves: &Shelves| !shelves.to_seek().is_empty();
        let done = until(desk, |shelves| (works && stored(shelves)) || asked_again(shelves));
        tokio::time::timeout(Duration::from_secs(30), done).await.unwrap();
    }

    /// Remembers when which batch was stored.
    #[derive(Default)]
    struct Notes(Mutex<Vec<(Instant, usize)>>);

    impl Notes {
        /// Until so many records are stored.
        async fn count(&self, records: usize) {
            let mut beat = tokio::time::interval(Duration::from_millis(5));
            while lock(&self.0).iter().map(|(_, count)| count).sum::<usize>() < records {
                beat.tick().await;
            }
        }
    }

    impl Sink for Notes {
        async fn offsets(&self, _: Vec<i32>) -> Result<BTreeMap<i32, i64>, BoxError> {
            Ok(BTreeMap::new())
        }

        async fn store(&self, batch: Arc<Batch>) -> Result<Stored, BoxError> {
            lock(&self.0).push((Instant::now(), batch.records.len()));
            Ok(Stored::Done)
        }
    }

    #[tokio::test]
    async fn what_comes_alone_is_stored_at_once_and_what_follows_is_stored_together() {
        const PACE: Duration = Duration::from_millis(300);
        let connection = Connection::new("nobody:1", "test");
        let settings = Settings { pace: PACE, ..Settings::new(connection, "t", "g") };
        let notes = Arc::new(Notes::default());
        let desk = Desk::new(&settings, Arc::clone(&notes), Handle::current());
        {
            let mut inner = lock(&desk.inner);
            let epoch = inner.shelves.assign(0);
            inner.shelves.answered(0, epoch, None);
            inner.shelves.sought(0, epoch);
        }
        let begun = Instant::now();
        for offset in 0..5 {
            desk.accept(Record::bare(0, offset));
        }
        tokio::time::timeout(Duration::from_secs(30), notes.count(5)).await.unwrap();
        let stored = lock(&notes.0).clone();
        assert_eq!(stored.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [1, 4]);
        assert!(stored[1].0 - begun >= PACE, "the place rests: {stored:?}");
    }

    #[tokio::test]
    async fn a_store_that_takes_nothing_is_tried_less_and_less_often_until_it_takes_something() {
        let desk = desk(&Arc::default(), || 1.0);
        let mut offsets = 0..;
        let mut wait = async |stores: bool| {
            let begun = Instant::now();
            offer(&desk, offsets.next().unwrap(), stores).await;
            begun.elapsed()
        };
        let [first, second, third, fourth] = [0, 1, 2, 3].map(|attempt| RETRY.ceiling(attempt));
        for least in [first, second, third] {
            let waited = wait(false).await;
            assert!(waited >= least, "{waited:?} of {least:?}");
        }
        // A machine that stands still for a moment does so in one of them.
        let mut waits: Vec<Duration> = Vec::new();
        while waits.last().is_none_or(|last| *last >= fourth) {
            assert!(waits.len() < 3, "it took something: {waits:?}");
            wait(true).await;
            waits.push(wait(false).await);
        }
        assert!(waits.iter().all(|waited| *waited >= first), "{waits:?}");
    }

    /// Those that failed at the same moment, since one store failed them all, do not come again at the same moment.
    #[tokio::test]
    async fn of_the_longest_wait_only_a_share_is_waited_for_by_chance() {
        let chosen = Desk::new(&settings(), Arc::<Stubborn>::default(), Handle::current()).share;
        let shares: Vec<f64> = (0..16).map(|_| chosen()).collect();
        assert!(shares.windows(2).any(|pair| (pair[0] - pair[1]).abs() > f64::EPSILON), "{shares:?}");
        let longest: Duration = (0..6).map(|attempt| RETRY.ceiling(attempt)).sum();
        let at_once = async || {
            let desk = desk(&Arc::default(), || 0.0);
            let failures = futures::stream::iter(0..6).for_each(|offset| offer(&desk, offset, false));
            tokio::time::timeout(longest / 2, failures).await.is_ok()
        };
        // A machine that stands still for a moment does so in one of them.
        let mut tries = 1;
        while !at_once().await {
            assert!(tries < 3, "nothing is waited for");
            tries += 1;
        }
    }
}
