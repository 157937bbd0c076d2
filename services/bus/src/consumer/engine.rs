//! Between the poll loop and the work: lanes and offsets under one lock that nobody holds while waiting.
//!
//! Whoever changes the lanes (a record read, a record finished) also starts what may start next, so that the poll loop
//! need not be woken for it. A partition that was just assigned is not worked on before it is known what its last commit
//! says of records that are finished; what is read of it meanwhile is put by.

mod running;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::load::{Bound, Load};
use super::state::{Snapshot, State};
use super::{Handler, Limits, Placed};
use crate::lanes::{Entry, Lanes};
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
    /// Told once there is less to do than somebody waits for.
    less: Condvar,
}

struct Inner<W> {
    lanes: Lanes<Arc<W>>,
    assignments: Assignments,
    /// Partitions whose last commit is not known yet.
    put_by: BTreeMap<i32, PutBy>,
    ends: BTreeMap<i32, End>,
    /// Somebody waits for less to do than this. To be told of each record would wake a thread for each, to no purpose; and to
    /// tell nobody would be a call of the kernel all the same.
    waits_for: Option<Bound>,
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
            waits_for: None,
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
        let entry = Entry { place, ticket, attempt: 0, panics: 0, bytes, work: Arc::new(work) };
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

    /// Waits until there is less to do than this, at most for the limit. Answers whether there is.
    pub(crate) fn wait_below(&self, bound: Bound, limit: Duration) -> bool {
        let mut inner = lock(&self.inner);
        inner.waits_for = Some(bound);
        let waited = self.less.wait_timeout_while(inner, limit, |inner| inner.load().reaches(bound));
        let (mut inner, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        inner.waits_for = None;
        !waited.timed_out()
    }

    /// The partitions that are ours, and the numbers of their assignments.
    pub(crate) fn ours(&self) -> Vec<(i32, u64)> {
        lock(&self.inner).assignments.ours()
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

    /// Whoever tells has other things to do, such as the record that it took to work on next: a panic is no reason to lose them.
    fn tell_superseded(&self, superseded: Option<Entry<Arc<H::Work>>>) {
        let Some(old) = superseded else { return };
        self.state.update(|state| state.superseded += 1);
        if catch_unwind(AssertUnwindSafe(|| self.handler.superseded(&old.work))).is_err() {
            let Ticket { partition, offset, .. } = old.ticket;
            tracing::error!(
                kafka.partition = partition,
                kafka.offset = offset,
                "a record that is superseded made its handler panic"
            );
        }
    }
}

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
