//! The loop of a sink: read, seek, pause, and at the end let batches under way finish.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::desk::{Desk, Member};
use super::{Settings, Sink};
use crate::consumer::context::{Context, Membership, commit, list};
use crate::consumer::poll::{Start, create, ends};
use crate::consumer::{OffsetReset, State};
use crate::{Error, Record, lock};

/// The longest wait for a record before the loop comes round.
const POLL: Duration = Duration::from_millis(100);
/// The longest wait for the library to move reading elsewhere; it does not ask the network for that.
const SEEK: Duration = Duration::from_millis(500);
/// How often offsets are shown to onlookers.
const COMMIT_EVERY: Duration = Duration::from_secs(5);

pub(crate) fn run<S: Sink>(
    settings: &Settings,
    sink: Arc<S>,
    state: &Arc<State>,
    runtime: Handle,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let desk = Desk::new(settings, sink, runtime);
    let start = Start { group: &settings.group, topic: &settings.topic, reset: OffsetReset::Error };
    let membership: Arc<dyn Membership> = Arc::new(Member(Arc::clone(&desk)));
    let consumer = create(&settings.connection, &start, membership)?;
    let mut polling =
        Polling { consumer, desk, settings, state, paused: Vec::new(), committed: Instant::now() };
    let mut result = Ok(());
    while result.is_ok() && !stop.is_cancelled() {
        result = polling.round();
    }
    polling.drain();
    result
}

struct Polling<'a, S> {
    consumer: BaseConsumer<Context>,
    desk: Arc<Desk<S>>,
    settings: &'a Settings,
    state: &'a Arc<State>,
    /// Partitions that we paused.
    paused: Vec<i32>,
    committed: Instant,
}

impl<S: Sink> Polling<'_, S> {
    fn round(&mut self) -> Result<(), Error> {
        self.consumer.context().check_standing()?;
        self.seek();
        // A partition that was just assigned is waiting for its seek: come round soon.
        let seeking = !lock(&self.desk.inner).shelves.to_seek().is_empty();
        match self.consumer.poll(if seeking { POLL / 5 } else { POLL }) {
            None => {}
            Some(Ok(message)) => {
                let record = Record::copy(&self.desk.topic, &message);
                self.state.update(|state| state.read += 1);
                self.desk.accept(record);
            }
            Some(Err(error)) => self.failed(error)?,
        }
        self.press();
        if self.committed.elapsed() >= COMMIT_EVERY {
            self.committed = Instant::now();
            self.show_offsets();
        }
        self.report();
        Ok(())
    }

    fn seek(&self) {
        let wanted = lock(&self.desk.inner).shelves.to_seek();
        for (partition, epoch, position) in wanted {
            let offset = position.map_or(Offset::Beginning, Offset::Offset);
            match self.consumer.seek(&self.settings.topic, partition, offset, SEEK) {
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

    /// Errors that pass by themselves are told and lived with.
    fn failed(&self, error: KafkaError) -> Result<(), Error> {
        let text = error.to_string();
        if let Some(end) = ends(error, &self.settings.group, &self.settings.topic) {
            return Err(end);
        }
        self.state.update(|state| {
            if state.error.as_ref() != Some(&text) {
                tracing::warn!(kafka.topic = self.settings.topic, "consuming is disturbed: {text}");
            }
            state.error = Some(text);
        });
        Ok(())
    }

    /// Pauses partitions with too many records in memory, each on its own, and lets them go at half of it.
    fn press(&mut self) {
        let bound = self.settings.in_memory;
        let waiting = lock(&self.desk.inner).shelves.waiting();
        let full = |(partition, count): &&(i32, usize)| {
            *count >= bound || (self.paused.contains(partition) && *count > bound / 2)
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
        let result =
            self.consumer.pause(&list(topic, &begin)).and_then(|()| self.consumer.resume(&list(topic, &end)));
        match result {
            Ok(()) => self.paused = now,
            Err(error) => {
                tracing::warn!(kafka.topic = topic, "partitions were not paused or resumed: {error}");
            }
        }
    }

    fn show_offsets(&self) {
        let positions = lock(&self.desk.inner).shelves.positions();
        if !positions.is_empty()
            && let Err(error) = commit(&self.consumer, &self.settings.topic, &positions, CommitMode::Async)
        {
            tracing::debug!(kafka.topic = self.settings.topic, "offsets were not shown: {error}");
        }
    }

    fn report(&self) {
        let inner = lock(&self.desk.inner);
        let positions = inner.shelves.positions();
        let positions: BTreeMap<i32, i64> = positions.into_iter().collect();
        let partitions = inner.shelves.partitions();
        let ours = inner.ends.iter().filter(|(partition, _)| partitions.contains(partition));
        let lag: BTreeMap<i32, i64> = ours
            .filter_map(|(partition, end)| Some((*partition, end.lag_at(positions.get(partition).copied())?)))
            .collect();
        let in_memory = inner.shelves.waiting().iter().map(|(_, count)| count).sum();
        let running = inner.shelves.storing();
        drop(inner);
        self.state.update(|state| {
            state.rounds += 1;
            state.paused = !self.paused.is_empty();
            state.running = running;
            state.in_memory = in_memory;
            state.partitions = partitions;
            state.lag = lag;
        });
    }

    /// Lets batches under way finish, and goes on polling so that the group keeps us.
    fn drain(&mut self) {
        lock(&self.desk.inner).open = false;
        let end = Instant::now() + self.settings.grace;
        let storing = || lock(&self.desk.inner).shelves.storing();
        while storing() > 0 && Instant::now() < end {
            drop(self.consumer.poll(Duration::from_millis(20)));
        }
        let positions = lock(&self.desk.inner).shelves.positions();
        let mut offsets = TopicPartitionList::new();
        for (partition, position) in positions {
            // An offset that cannot be listed is one that onlookers do not see.
            let _ = offsets.add_partition_offset(&self.settings.topic, partition, Offset::Offset(position));
        }
        if offsets.count() > 0 && self.consumer.commit(&offsets, CommitMode::Async).is_err() {
            tracing::debug!(kafka.topic = self.settings.topic, "the last offsets were not shown");
        }
    }
}
