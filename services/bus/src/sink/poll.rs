//! The duty of a sink: seek where the store stands, store what is read, pause partitions of which too much waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::Offset;
use rdkafka::consumer::Consumer as _;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::desk::{Desk, Member};
use super::shelves::Waiting;
use super::{Settings, Sink};
use crate::consumer::{OffsetReset, Patience, Snapshot, State};
use crate::polling::{self, COMMIT, Client, Duty, Membership, POLL, SOON, Start, list};
use crate::tracker::Mark;
use crate::{Error, Record, lock};

/// The longest wait for the library to move reading elsewhere; it does not ask the network for that.
const SEEK: Duration = Duration::from_millis(500);
/// How often offsets are shown to onlookers.
const COMMIT_EVERY: Duration = Duration::from_secs(5);
/// How often the store is asked whether it still stands where it stood.
const COMPARE_EVERY: Duration = Duration::from_secs(5);

pub(crate) fn run<S: Sink>(
    settings: &Settings,
    sink: Arc<S>,
    state: &Arc<State>,
    runtime: Handle,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let desk = Desk::new(settings, sink, runtime);
    let start = Start {
        connection: &settings.connection,
        group: &settings.group,
        topic: &settings.topic,
        reset: OffsetReset::Error,
        patience: Patience::default(),
        grace: settings.grace,
        last_commit: COMMIT,
        state,
    };
    let membership: Arc<dyn Membership> = Arc::new(Member(Arc::clone(&desk)));
    let mut storing = Storing {
        desk,
        settings,
        state,
        paused: Vec::new(),
        committed: Instant::now(),
        compared: Instant::now(),
    };
    polling::run(&start, membership, &mut storing, |_| {}, stop)
}

struct Storing<'a, S> {
    desk: Arc<Desk<S>>,
    settings: &'a Settings,
    state: &'a State,
    /// Partitions that we paused.
    paused: Vec<i32>,
    committed: Instant,
    compared: Instant,
}

impl<S: Sink> Duty for Storing<'_, S> {
    fn before(&mut self, client: &Client) -> Result<Duration, Error> {
        self.seek(client);
        // A partition that was just assigned is waiting for its seek: come round soon.
        let seeking = !lock(&self.desk.inner).shelves.to_seek().is_empty();
        Ok(if seeking { SOON } else { POLL })
    }

    /// Below the bound at which partitions are paused, so that storing that goes on never meets it.
    fn room(&mut self, limit: Duration) -> bool {
        let bound = self.bound();
        let full = self.desk.waiting().reaches(bound, (3, 4));
        !full || self.desk.wait_while(|waiting| waiting.reaches(bound, (5, 8)), limit)
    }

    fn accept(&mut self, record: Record) {
        self.state.update(|state| state.read += 1);
        self.desk.accept(record);
    }

    fn after(&mut self, client: &Client) -> Vec<Mark> {
        self.press(client);
        if self.compared.elapsed() >= COMPARE_EVERY {
            self.compared = Instant::now();
            self.desk.compare();
        }
        if self.committed.elapsed() < COMMIT_EVERY {
            return Vec::new();
        }
        self.committed = Instant::now();
        self.last()
    }

    fn report(&self, snapshot: &mut Snapshot) {
        let inner = lock(&self.desk.inner);
        let positions: BTreeMap<i32, i64> = inner.shelves.positions().into_iter().collect();
        let partitions = inner.shelves.partitions();
        let ours = inner.ends.iter().filter(|(partition, _)| partitions.contains(partition));
        snapshot.lag = ours
            .filter_map(|(partition, end)| Some((*partition, end.lag_at(positions.get(partition).copied())?)))
            .collect();
        snapshot.partitions = partitions;
        snapshot.paused = !self.paused.is_empty();
        let waiting = inner.shelves.waiting_in_all();
        (snapshot.in_memory, snapshot.bytes) = (waiting.records, waiting.bytes);
        snapshot.running = inner.shelves.storing();
    }

    fn close(&mut self) {
        lock(&self.desk.inner).open = false;
    }

    /// Records that still come are few, and are not stored.
    fn hush(&mut self, _: &Client) {}

    fn running(&self) -> usize {
        lock(&self.desk.inner).shelves.storing()
    }

    /// A batch that is stored after all does no harm: the store compares and sets.
    fn abandon(&mut self) {}

    /// For onlookers only.
    fn last(&mut self) -> Vec<Mark> {
        let positions = lock(&self.desk.inner).shelves.positions();
        positions.into_iter().map(|(partition, offset)| Mark::plain(partition, offset)).collect()
    }
}

impl<S: Sink> Storing<'_, S> {
    fn seek(&self, client: &Client) {
        let wanted = lock(&self.desk.inner).shelves.to_seek();
        for (partition, epoch, position) in wanted {
            let offset = position.map_or(Offset::Beginning, Offset::Offset);
            match client.context().read_from(client, partition, offset, SEEK) {
                Ok(()) => lock(&self.desk.inner).shelves.sought(partition, epoch),
                Err(error) => {
                    tracing::debug!(
                        kafka.partition = partition,
                        "reading was not moved, tried again: {error}"
                    );
                }
            }
        }
    }

    /// What may wait.
    fn bound(&self) -> Waiting {
        Waiting { records: self.settings.in_memory, bytes: self.settings.in_memory_bytes }
    }

    /// Pauses partitions when too much waits, but only those of which more waits than their share, and lets each go at half
    /// of it: one that is not stored for a while leaves the others going. So never twice the bound waits.
    fn press(&mut self, client: &Client) {
        let bound = self.bound();
        let much = self.desk.waiting().reaches(bound, (1, 1));
        if !much && self.paused.is_empty() {
            return;
        }
        let waiting = lock(&self.desk.inner).shelves.waiting();
        let share = waiting.len();
        let full = |(partition, own): &&(i32, Waiting)| {
            let is_paused = self.paused.contains(partition);
            (much && own.reaches(bound, (1, share))) || (is_paused && own.reaches(bound, (1, share * 2)))
        };
        let now: Vec<i32> = waiting.iter().filter(full).map(|(partition, _)| *partition).collect();
        if now == self.paused {
            return;
        }
        let ours = |partition: &i32| waiting.iter().any(|(other, _)| other == partition);
        let begin: Vec<i32> =
            now.iter().copied().filter(|partition| !self.paused.contains(partition)).collect();
        let end: Vec<i32> = self.paused.iter().copied().filter(|p| !now.contains(p) && ours(p)).collect();
        let topic = &self.settings.topic;
        let result = client.pause(&list(topic, &begin)).and_then(|()| client.resume(&list(topic, &end)));
        match result {
            Ok(()) => self.paused = now,
            Err(error) => {
                tracing::warn!(kafka.topic = topic, "partitions were not paused or resumed: {error}");
            }
        }
    }
}
