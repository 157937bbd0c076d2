//! The loop: read, place, commit on a period, pause when too much is in memory; at the end drain and leave.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::context::{Context, Membership, commit, list};
use super::engine::Engine;
use super::state::State;
use super::{Handler, OffsetReset, Settings};
use crate::{Connection, Error, Record};

/// The longest wait for a record before the loop comes round.
const POLL: Duration = Duration::from_millis(100);

pub(crate) fn run<H: Handler>(
    settings: &Settings,
    handler: Arc<H>,
    state: &Arc<State>,
    runtime: Handle,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let engine = Engine::new(handler, runtime, Arc::clone(state), settings.limits);
    let membership: Arc<dyn Membership> = Arc::<Engine<H>>::clone(&engine);
    let start = Start { group: &settings.group, topic: &settings.topic, reset: settings.offset_reset };
    let consumer = create(&settings.connection, &start, membership)?;
    let mut polling = Polling {
        topic: settings.topic.as_str().into(),
        consumer,
        engine,
        state,
        settings,
        paused: Vec::new(),
        committed: Instant::now(),
    };
    let mut result = Ok(());
    while result.is_ok() && !stop.is_cancelled() {
        result = polling.round();
    }
    polling.drain();
    result
}

/// A consumer's group, topic and beginning.
pub(crate) struct Start<'a> {
    pub(crate) group: &'a str,
    pub(crate) topic: &'a str,
    pub(crate) reset: OffsetReset,
}

/// A consumer that has subscribed.
pub(crate) fn create(
    connection: &Connection,
    start: &Start<'_>,
    membership: Arc<dyn Membership>,
) -> Result<BaseConsumer<Context>, Error> {
    let failed = |source| Error::Create { what: "consumer", source };
    let config = connection.config(&[
        ("group.id", start.group.to_owned()),
        ("group.protocol", "classic".to_owned()),
        ("partition.assignment.strategy", "cooperative-sticky".to_owned()),
        ("enable.auto.commit", "false".to_owned()),
        ("enable.auto.offset.store", "false".to_owned()),
        ("auto.offset.reset", start.reset.as_str().to_owned()),
        ("allow.auto.create.topics", "false".to_owned()),
        // Heartbeats come from the library's own thread, however busy we are; so a dead member is replaced soon.
        ("session.timeout.ms", "6000".to_owned()),
        ("heartbeat.interval.ms", "2000".to_owned()),
        ("max.poll.interval.ms", "60000".to_owned()),
        // What lies in the library's own queues is memory too.
        ("queued.min.messages", "1000".to_owned()),
        ("queued.max.messages.kbytes", "8192".to_owned()),
        ("fetch.message.max.bytes", "2097152".to_owned()),
        ("statistics.interval.ms", "10000".to_owned()),
    ]);
    let context = Context::new(start.topic, start.group, membership);
    let consumer: BaseConsumer<Context> = config.create_with_context(context).map_err(failed)?;
    consumer.subscribe(&[start.topic]).map_err(failed)?;
    Ok(consumer)
}

/// What an error of the library means: `Some` if the consumer cannot go on.
pub(crate) fn ends(source: KafkaError, group: &str, topic: &str) -> Option<Error> {
    match source {
        KafkaError::MessageConsumption(Code::AutoOffsetReset) => {
            Some(Error::NoOffset { group: group.to_owned(), topic: topic.to_owned() })
        }
        KafkaError::MessageConsumptionFatal(_) => Some(Error::Consume { topic: topic.to_owned(), source }),
        _ => None,
    }
}

struct Polling<'a, H: Handler> {
    topic: Arc<str>,
    consumer: BaseConsumer<Context>,
    engine: Arc<Engine<H>>,
    state: &'a Arc<State>,
    settings: &'a Settings,
    /// Partitions that we paused.
    paused: Vec<i32>,
    committed: Instant,
}

impl<H: Handler> Polling<'_, H> {
    fn round(&mut self) -> Result<(), Error> {
        self.consumer.context().check_standing()?;
        match self.consumer.poll(POLL) {
            None => {}
            Some(Ok(message)) => self.engine.accept(Record::copy(&self.topic, &message)),
            Some(Err(error)) => self.failed(error)?,
        }
        self.press();
        if self.committed.elapsed() >= self.settings.commit_every {
            self.committed = Instant::now();
            let offsets = self.engine.take_commits();
            self.commit(&offsets, CommitMode::Async);
        }
        self.engine.report(!self.paused.is_empty());
        Ok(())
    }

    /// Errors that pass by themselves are told and lived with.
    fn failed(&self, error: KafkaError) -> Result<(), Error> {
        let text = error.to_string();
        if let Some(end) = ends(error, &self.settings.group, &self.settings.topic) {
            return Err(end);
        }
        self.state.update(|state| {
            if state.error.as_ref() != Some(&text) {
                tracing::warn!(kafka.topic = %self.topic, "consuming is disturbed: {text}");
            }
            state.error = Some(text);
        });
        Ok(())
    }

    /// Pauses all partitions when too much is in memory and lets them go at half of it: pausing throws prefetched
    /// records away, so it should not happen often.
    fn press(&mut self) {
        let load = self.engine.load().in_memory;
        let bound = self.settings.in_memory;
        let ours = self.engine.partitions();
        let pressed = if self.paused.is_empty() { load >= bound } else { load > bound / 2 };
        if pressed && self.paused != ours && !ours.is_empty() {
            // Partitions that came with a rebalance start unpaused.
            match self.consumer.pause(&list(&self.topic, &ours)) {
                Ok(()) => self.paused = ours,
                Err(error) => {
                    tracing::warn!(kafka.topic = %self.topic, "partitions were not paused: {error}");
                }
            }
        } else if !pressed && !self.paused.is_empty() {
            let still: Vec<i32> =
                self.paused.iter().copied().filter(|partition| ours.contains(partition)).collect();
            match self.consumer.resume(&list(&self.topic, &still)) {
                Ok(()) => self.paused.clear(),
                Err(error) => {
                    tracing::warn!(kafka.topic = %self.topic, "partitions were not resumed: {error}");
                }
            }
        }
    }

    /// Lets what runs finish, goes on polling so that the group keeps us, and commits.
    fn drain(&mut self) {
        self.engine.close();
        let end = Instant::now() + self.settings.grace;
        while self.engine.load().running > 0 && Instant::now() < end {
            let ours = self.engine.partitions();
            if !ours.is_empty()
                && self.paused != ours
                && self.consumer.pause(&list(&self.topic, &ours)).is_ok()
            {
                self.paused = ours;
            }
            // A record that slips through is not begun and will be read again.
            drop(self.consumer.poll(Duration::from_millis(20)));
        }
        let running = self.engine.load().running;
        if running > 0 {
            tracing::warn!(kafka.topic = %self.topic, running, "stopped with records under way; they will be read again");
        }
        let offsets = self.engine.take_commits();
        self.commit(&offsets, CommitMode::Sync);
    }

    fn commit(&self, offsets: &[(i32, i64)], mode: CommitMode) {
        if offsets.is_empty() {
            return;
        }
        if let Err(error) = commit(&self.consumer, &self.topic, offsets, mode) {
            tracing::warn!(kafka.topic = %self.topic, ?offsets, "offsets were not committed: {error}");
        }
    }
}
