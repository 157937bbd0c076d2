//! Between the poll loop and the work: lanes and offsets under one lock that nobody holds while waiting.
//!
//! Whoever changes the lanes (a record read, a record finished) also starts what may start next, so that the poll loop
//! need not be woken for it.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use tokio::runtime::Handle;

use super::context::{End, Membership};
use super::state::State;
use super::{Disposition, Handler, Limits, Placed};
use crate::lanes::{Entry, Lanes};
use crate::tracker::{Assignments, Ticket};
use crate::{Record, lock};

/// Lanes, offsets and those who work.
pub(crate) struct Engine<H: Handler> {
    handler: Arc<H>,
    runtime: Handle,
    state: Arc<State>,
    inner: Mutex<Inner<H::Work>>,
}

struct Inner<W> {
    lanes: Lanes<Arc<W>>,
    assignments: Assignments,
    ends: BTreeMap<i32, End>,
    /// Cleared at a stop: what runs goes on, nothing else starts.
    open: bool,
}

/// How much there is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) in_memory: usize,
    pub(crate) running: usize,
}

impl<H: Handler> Engine<H> {
    pub(crate) fn new(handler: Arc<H>, runtime: Handle, state: Arc<State>, limits: Limits) -> Arc<Self> {
        let inner = Inner {
            lanes: Lanes::new(limits),
            assignments: Assignments::default(),
            ends: BTreeMap::new(),
            open: true,
        };
        Arc::new(Self { handler, runtime, state, inner: Mutex::new(inner) })
    }

    /// A record was read.
    pub(crate) fn accept(self: &Arc<Self>, record: Record) {
        let (partition, offset) = (record.partition, record.offset);
        let Placed { place, work } = self.handler.place(record);
        let mut inner = lock(&self.inner);
        let Some(ticket) = inner.assignments.begin(partition, offset) else { return };
        let superseded = inner.lanes.offer(Entry { place, ticket, attempt: 0, work: Arc::new(work) });
        if let Some(old) = &superseded {
            inner.assignments.finish(old.ticket);
        }
        self.start(&mut inner);
        drop(inner);
        self.state.update(|state| state.read += 1);
        self.tell_superseded(superseded);
    }

    /// Nothing new is started from now on; what waits will be read again by whoever gets the partitions.
    pub(crate) fn close(&self) {
        let mut inner = lock(&self.inner);
        inner.open = false;
        inner.lanes.discard(|_| true);
    }

    pub(crate) fn load(&self) -> Load {
        let inner = lock(&self.inner);
        Load { in_memory: inner.lanes.len(), running: inner.lanes.running() }
    }

    pub(crate) fn partitions(&self) -> Vec<i32> {
        lock(&self.inner).assignments.partitions()
    }

    /// What moved since the last time, taken as committed.
    pub(crate) fn take_commits(&self) -> Vec<(i32, i64)> {
        let mut inner = lock(&self.inner);
        let offsets = inner.assignments.to_commit();
        inner.assignments.committed(&offsets);
        offsets
    }

    /// Tells those who watch.
    pub(crate) fn report(&self, paused: bool) {
        let mut inner = lock(&self.inner);
        let positions = inner.assignments.positions();
        let positions: BTreeMap<i32, i64> = positions.into_iter().collect();
        let partitions = inner.assignments.partitions();
        let ours = inner.ends.iter().filter(|(partition, _)| partitions.contains(partition));
        let lag: BTreeMap<i32, i64> = ours
            .filter_map(|(partition, end)| Some((*partition, end.lag_at(positions.get(partition).copied())?)))
            .collect();
        let (running, in_memory) = (inner.lanes.running(), inner.lanes.len());
        drop(inner);
        self.state.update(|state| {
            state.rounds += 1;
            state.paused = paused;
            state.running = running;
            state.in_memory = in_memory;
            state.partitions = partitions;
            state.lag = lag;
        });
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
        let handled = self.handler.handle(Arc::clone(&entry.work), entry.attempt);
        let disposition = match AssertUnwindSafe(handled).catch_unwind().await {
            Ok(disposition) => disposition,
            Err(_) => self.after_panic(&entry).await,
        };
        match disposition {
            Disposition::Done => self.finish(&entry),
            Disposition::Hold(after) => self.hold(entry, after),
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

    fn finish(self: &Arc<Self>, entry: &Entry<Arc<H::Work>>) {
        let mut inner = lock(&self.inner);
        inner.assignments.finish(entry.ticket);
        inner.lanes.finish(&entry.place);
        self.start(&mut inner);
    }

    fn hold(self: &Arc<Self>, mut entry: Entry<Arc<H::Work>>, after: Duration) {
        let mut inner = lock(&self.inner);
        if !inner.open || !inner.assignments.is_current(entry.ticket) {
            // Somebody else reads it again; here only its key is set free.
            inner.lanes.finish(&entry.place);
            self.start(&mut inner);
            return;
        }
        entry.attempt = entry.attempt.saturating_add(1);
        let key = Arc::clone(&entry.place.key);
        let superseded = inner.lanes.hold(entry);
        match &superseded {
            Some(old) => {
                inner.assignments.finish(old.ticket);
            }
            None => self.wake_later(key, after),
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
        }
    }

    fn revoked(&self, partitions: &[i32]) -> Vec<(i32, i64)> {
        let mut inner = lock(&self.inner);
        let mut offsets = inner.assignments.to_commit();
        offsets.retain(|(partition, _)| partitions.contains(partition));
        for partition in partitions {
            inner.assignments.revoke(*partition);
            inner.ends.remove(partition);
        }
        inner.lanes.discard(|ticket| partitions.contains(&ticket.partition));
        offsets
    }

    fn commit_failed(&self) {
        lock(&self.inner).assignments.forget_committed();
    }

    fn ends(&self, ends: &[End]) {
        let mut inner = lock(&self.inner);
        inner.ends = ends.iter().map(|end| (end.partition, *end)).collect();
    }
}

#[cfg(test)]
mod tests;
