//! Between the poll loop and the work: lanes and offsets under one lock that nobody holds while waiting.
//!
//! Whoever changes the lanes (a record read, a record finished) also starts what may start next, so that the poll loop
//! need not be woken for it. A partition that was just assigned is not worked on before it is known what its last commit
//! says of records that are finished; what is read of it meanwhile is put by.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::state::{Snapshot, State};
use super::{Disposition, Handler, Limits, Placed, Turn};
use crate::lanes::{Entry, Lanes, Place};
use crate::polling::{End, Membership};
use crate::tracker::{Assignments, Begun, Mark, Ticket};
use crate::{Record, lock};

/// Lanes, offsets and those who work.
pub(crate) struct Engine<H: Handler> {
    handler: Arc<H>,
    runtime: Handle,
    state: Arc<State>,
    /// Told to those who work when their consumer ends without them.
    abandoned: CancellationToken,
    inner: Mutex<Inner<H::Work>>,
    /// Told of each record that is dealt with while somebody waits for that.
    less: Condvar,
}

struct Inner<W> {
    lanes: Lanes<Arc<W>>,
    assignments: Assignments,
    /// Partitions whose last commit is not known yet.
    put_by: BTreeMap<i32, PutBy>,
    ends: BTreeMap<i32, End>,
    /// Whether somebody waits for less to do: to tell nobody would be a call of the kernel for each record all the same.
    waits: bool,
    /// Cleared at a stop: what runs goes on, nothing else starts.
    open: bool,
}

/// What was read of a partition whose last commit is not known yet.
#[derive(Default)]
struct PutBy {
    asked: bool,
    records: Vec<Record>,
    bytes: usize,
}

/// How much there is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) in_memory: usize,
    pub(crate) bytes: usize,
    pub(crate) running: usize,
}

impl<W> Inner<W> {
    fn load(&self) -> Load {
        let put_by = self.put_by.values();
        let (count, bytes) =
            put_by.fold((0, 0), |(count, bytes), next| (count + next.records.len(), bytes + next.bytes));
        Load {
            in_memory: self.lanes.len() + count,
            bytes: self.lanes.bytes() + bytes,
            running: self.lanes.running(),
        }
    }
}

impl<H: Handler> Engine<H> {
    pub(crate) fn new(handler: Arc<H>, runtime: Handle, state: Arc<State>, limits: Limits) -> Arc<Self> {
        let inner = Inner {
            lanes: Lanes::new(limits).keeping(handler.keep()),
            assignments: Assignments::default(),
            put_by: BTreeMap::new(),
            ends: BTreeMap::new(),
            waits: false,
            open: true,
        };
        let abandoned = CancellationToken::new();
        Arc::new(Self { handler, runtime, state, abandoned, inner: Mutex::new(inner), less: Condvar::new() })
    }

    /// A record was read.
    pub(crate) fn accept(self: &Arc<Self>, record: Record) {
        let mut inner = lock(&self.inner);
        if let Some(put_by) = inner.put_by.get_mut(&record.partition) {
            put_by.bytes += record.bytes();
            put_by.records.push(record);
            return;
        }
        let begun = inner.assignments.begin(record.partition, record.offset);
        drop(inner);
        match begun {
            Begun::Open(ticket) => self.offer(record, ticket),
            Begun::Finished => self.state.update(|state| {
                state.read += 1;
                state.passed_over += 1;
            }),
            Begun::NotOurs => {}
        }
    }

    fn offer(self: &Arc<Self>, record: Record, ticket: Ticket) {
        let bytes = record.bytes();
        let Placed { place, work } = self.handler.place(record);
        let mut inner = lock(&self.inner);
        let entry = Entry { place, ticket, attempt: 0, bytes, work: Arc::new(work) };
        let superseded = inner.lanes.offer(entry);
        if let Some(old) = &superseded {
            inner.assignments.finish(old.ticket);
        }
        self.start(&mut inner);
        drop(inner);
        self.state.update(|state| state.read += 1);
        self.tell_superseded(superseded);
    }

    /// Partitions of which somebody has to find out what their last commit says, each told once.
    pub(crate) fn to_recall(&self) -> Vec<(i32, u64)> {
        let mut inner = lock(&self.inner);
        let Inner { put_by, assignments, .. } = &mut *inner;
        let mut asked = Vec::new();
        for (&partition, waiting) in put_by.iter_mut().filter(|(_, waiting)| !waiting.asked) {
            if let Some(epoch) = assignments.epoch(partition) {
                waiting.asked = true;
                asked.push((partition, epoch));
            }
        }
        asked
    }

    /// Whether records are put by.
    pub(crate) fn puts_by(&self) -> bool {
        !lock(&self.inner).put_by.is_empty()
    }

    /// What the last commit says, or that nobody knows. Records that were put by are worked on now.
    pub(crate) fn recalled(self: &Arc<Self>, partition: i32, epoch: u64, mark: Option<&Mark>) {
        let mut inner = lock(&self.inner);
        if inner.assignments.epoch(partition) != Some(epoch) {
            return;
        }
        let Some(put_by) = inner.put_by.remove(&partition) else { return };
        let finished = mark.map_or(0, |mark| inner.assignments.recall(mark));
        drop(inner);
        if finished > 0 {
            tracing::info!(kafka.partition = partition, finished, "records behind open ones are finished");
        }
        for record in put_by.records {
            self.accept(record);
        }
    }

    /// Nothing new is started from now on; what waits will be read again by whoever gets the partitions.
    pub(crate) fn close(&self) {
        let mut inner = lock(&self.inner);
        inner.open = false;
        inner.put_by.clear();
        inner.lanes.discard(|_| true);
    }

    /// Those who still work stop where they stand: their records will be read again, and a consumer that follows in this
    /// process must not meet them.
    pub(crate) fn abandon(&self) {
        self.abandoned.cancel();
    }

    pub(crate) fn load(&self) -> Load {
        lock(&self.inner).load()
    }

    /// Waits while there is so much to do, at most for the limit. Answers whether it became less.
    pub(crate) fn wait_while(&self, much: impl Fn(&Load) -> bool, limit: Duration) -> bool {
        let mut inner = lock(&self.inner);
        inner.waits = true;
        let waited = self.less.wait_timeout_while(inner, limit, |inner| much(&inner.load()));
        let (mut inner, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        inner.waits = false;
        !waited.timed_out()
    }

    pub(crate) fn partitions(&self) -> Vec<i32> {
        lock(&self.inner).assignments.partitions()
    }

    /// What moved since the last time, taken as committed.
    pub(crate) fn take_commits(&self) -> Vec<Mark> {
        let mut inner = lock(&self.inner);
        let marks = inner.assignments.to_commit();
        inner.assignments.committed(&marks);
        marks
    }

    /// Nothing counts as committed any more: whether it was is not known.
    pub(crate) fn commit_again(&self) {
        lock(&self.inner).assignments.forget_committed();
    }

    /// Tells those who watch.
    pub(crate) fn report(&self, snapshot: &mut Snapshot) {
        let mut inner = lock(&self.inner);
        let positions: BTreeMap<i32, i64> = inner.assignments.positions().into_iter().collect();
        let partitions = inner.assignments.partitions();
        let ours = inner.ends.iter().filter(|(partition, _)| partitions.contains(partition));
        snapshot.lag = ours
            .filter_map(|(partition, end)| Some((*partition, end.lag_at(positions.get(partition).copied())?)))
            .collect();
        let load = inner.load();
        drop(inner);
        snapshot.partitions = partitions;
        snapshot.running = load.running;
        snapshot.in_memory = load.in_memory;
        snapshot.bytes = load.bytes;
    }

    fn start(self: &Arc<Self>, inner: &mut Inner<H::Work>) {
        if !inner.open {
            return;
        }
        while let Some(entry) = inner.lanes.take() {
            let engine = Arc::clone(self);
            self.runtime.spawn(async move { engine.work(entry).await });
        }
    }

    async fn work(self: Arc<Self>, entry: Entry<Arc<H::Work>>) {
        match self.abandoned.run_until_cancelled(self.disposition(&entry)).await {
            Some(Disposition::Done) => self.finish(&entry),
            Some(Disposition::Hold(after)) => self.hold(entry, after),
            None => self.set_free(&entry),
        }
    }

    async fn disposition(self: &Arc<Self>, entry: &Entry<Arc<H::Work>>) -> Disposition {
        let (engine, place) = (Arc::clone(self), entry.place.clone());
        let turn = Turn::new(move || engine.end_turn(&place));
        let handled = self.handler.handle(Arc::clone(&entry.work), entry.attempt, &turn);
        match AssertUnwindSafe(handled).catch_unwind().await {
            Ok(disposition) => disposition,
            Err(_) => self.after_panic(entry).await,
        }
    }

    async fn after_panic(&self, entry: &Entry<Arc<H::Work>>) -> Disposition {
        let Ticket { partition, offset, .. } = entry.ticket;
        tracing::error!(
            kafka.partition = partition,
            kafka.offset = offset,
            "a record made its handler panic"
        );
        let handled = self.handler.panicked(Arc::clone(&entry.work), entry.attempt);
        AssertUnwindSafe(handled).catch_unwind().await.unwrap_or(Disposition::Hold(AFTER_PANIC))
    }

    fn end_turn(self: &Arc<Self>, place: &Place) {
        let mut inner = lock(&self.inner);
        if inner.lanes.end_turn(place) {
            self.start(&mut inner);
        }
    }

    fn finish(self: &Arc<Self>, entry: &Entry<Arc<H::Work>>) {
        let mut inner = lock(&self.inner);
        inner.assignments.finish(entry.ticket);
        inner.lanes.finish(entry);
        self.start(&mut inner);
        let waits = inner.waits;
        drop(inner);
        if waits {
            self.less.notify_one();
        }
    }

    /// The record is not dealt with, and somebody reads it again; here only its key is set free.
    fn set_free(self: &Arc<Self>, entry: &Entry<Arc<H::Work>>) {
        let mut inner = lock(&self.inner);
        inner.lanes.finish(entry);
        self.start(&mut inner);
    }

    fn hold(self: &Arc<Self>, mut entry: Entry<Arc<H::Work>>, after: Duration) {
        let mut inner = lock(&self.inner);
        if !inner.open || !inner.assignments.is_current(entry.ticket) {
            drop(inner);
            return self.set_free(&entry);
        }
        entry.attempt = entry.attempt.saturating_add(1);
        let key = Arc::clone(&entry.place.key);
        let ticket = entry.ticket;
        let superseded = inner.lanes.hold(entry);
        if let Some(old) = &superseded {
            inner.assignments.finish(old.ticket);
        }
        if superseded.as_ref().is_none_or(|old| old.ticket != ticket) {
            self.wake_later(key, after);
        }
        self.start(&mut inner);
        drop(inner);
        self.tell_superseded(superseded);
    }

    fn wake_later(self: &Arc<Self>, key: Arc<str>, after: Duration) {
        let engine = Arc::downgrade(self);
        self.runtime.spawn(async move {
            tokio::time::sleep(after).await;
            let Some(engine) = engine.upgrade() else { return };
            let mut inner = lock(&engine.inner);
            inner.lanes.wake(&key);
            engine.start(&mut inner);
        });
    }

    fn tell_superseded(&self, superseded: Option<Entry<Arc<H::Work>>>) {
        if let Some(old) = superseded {
            self.state.update(|state| state.superseded += 1);
            self.handler.superseded(&old.work);
        }
    }
}

/// How long a record rests that made even the handling of its panic panic.
const AFTER_PANIC: Duration = Duration::from_secs(30);

impl<H: Handler> Membership for Engine<H> {
    fn assigned(&self, partitions: &[i32]) {
        let mut inner = lock(&self.inner);
        for partition in partitions {
            inner.assignments.assign(*partition);
            inner.put_by.insert(*partition, PutBy::default());
        }
    }

    fn revoked(&self, partitions: &[i32]) -> Vec<Mark> {
        let mut inner = lock(&self.inner);
        // Of these nobody commits again what the rebalance itself may have made the brokers refuse.
        inner.assignments.forget_committed();
        let mut marks = inner.assignments.to_commit();
        marks.retain(|mark| partitions.contains(&mark.partition));
        for partition in partitions {
            inner.assignments.revoke(*partition);
            inner.put_by.remove(partition);
            inner.ends.remove(partition);
        }
        inner.lanes.discard(|ticket| partitions.contains(&ticket.partition));
        marks
    }

    fn ends(&self, ends: &[End]) {
        let mut inner = lock(&self.inner);
        inner.ends = ends.iter().map(|end| (end.partition, *end)).collect();
    }
}

#[cfg(test)]
mod tests;
