//! Up to when all that the clusters said was heard: the brokers are asked how far the gossip reaches, and once all of that was
//! taken in, so was all that was said before. Whatever concludes something from what was *not* said asks for it: a deadline, and
//! that there never was a volume.
//!
//! *Invariant:* what a cluster said and could not send yet is not counted as unsaid. A word has [`Listener::delay`] to arrive,
//! and for that long the brokers must have answered.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use bus::Admin;
use domain::DatabaseId;
use jiff::SignedDuration;
use runtime::backoff::Retry;
use runtime::{Backoff, CancellationToken, Program};
use store::{Ear, Store};

use crate::args::Kafka;
use crate::topics;

/// Between two questions.
const EVERY: Duration = Duration::from_secs(5);
/// How long one answer may take.
const LIMIT: Duration = Duration::from_secs(5);
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// Where databases are told of.
#[derive(Debug, Clone)]
pub struct Hearing {
    /// Topic of gossip.
    pub topic: String,
    /// Its number of partitions.
    pub partitions: i32,
}

impl Hearing {
    /// Where this one is told of.
    pub fn of(&self, database: DatabaseId) -> Ear<'_> {
        let partition = bus::partition_of(database.to_string().as_bytes(), self.partitions);
        Ear { topic: &self.topic, partition }
    }
}

/// Who finds out how far a sink has come.
#[derive(Debug)]
pub struct Listener {
    /// Where it is noted.
    pub store: Store,
    /// Who asks the brokers.
    pub admin: Admin,
    /// The sink's consumer group.
    pub consumer: String,
    /// What is listened to.
    pub hearing: Hearing,
    /// How long a word may take to arrive.
    pub delay: Duration,
    /// Between two questions.
    pub every: Duration,
}

/// Listens in a program that runs a sink.
pub(crate) fn start(
    program: &Program,
    kafka: &Kafka,
    (store, consumer, hearing, delay): (Store, String, Hearing, Duration),
) -> Result<(), bus::Error> {
    let admin = Admin::new(&topics::connection(kafka, "slipway-backend-heard"))?;
    let (kafka, stop) = (kafka.clone(), program.stop());
    let listener = Listener { store, admin, consumer, hearing, delay, every: EVERY };
    program.tasks.spawn("heard", async move {
        if topics::wait(&kafka, &kafka.gossip_topic, &stop).await? {
            listener.run(stop).await;
        }
        Ok::<(), bus::Error>(())
    });
    Ok(())
}

impl Listener {
    /// Asks until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut retry = BACKOFF.start();
        let mut answered = BTreeMap::new();
        while !stop.is_cancelled() {
            let wait = match self.round(&mut answered).await {
                Ok(()) => {
                    retry.reset();
                    self.every
                }
                Err(reason) => failed(&reason, &mut retry).max(self.every),
            };
            runtime::backoff::sleep(wait, &stop).await;
        }
    }

    /// Asks once. `answered`: since when each partition is known to be there.
    async fn round(&self, answered: &mut BTreeMap<i32, Instant>) -> Result<(), String> {
        let Hearing { topic, partitions } = &self.hearing;
        let (asked, began) = (self.clock().await?, Instant::now());
        let all: Vec<i32> = (0..*partitions).collect();
        let stood = self.store.offsets(&self.consumer, topic, &all).await;
        let stood = stood.map_err(|error| runtime::telemetry::chain(&error))?;
        let mut reach = BTreeMap::new();
        let mut trouble = None;
        for partition in all {
            match self.admin.reach(topic, partition, LIMIT).await {
                Ok(range) => drop(reach.insert(partition, range)),
                Err(error) => {
                    // Whoever does not answer of this one would make all others wait.
                    trouble = Some(runtime::telemetry::chain(&error));
                    break;
                }
            }
        }
        answered.retain(|partition, _| reach.contains_key(partition));
        reach.retain(|partition, range| {
            let since = *answered.entry(*partition).or_insert(began);
            began.duration_since(since) >= self.delay && is_within(stood.get(partition), range)
        });
        if !reach.is_empty() {
            let up_to = asked - SignedDuration::try_from(self.delay).unwrap_or(SignedDuration::MAX);
            let noted = self.store.note_heard((&self.consumer, topic), &reach, up_to).await;
            noted.map_err(|error| runtime::telemetry::chain(&error))?;
        }
        trouble.map_or(Ok(()), Err)
    }

    async fn clock(&self) -> Result<jiff::Timestamp, String> {
        self.store.clock().await.map_err(|error| runtime::telemetry::chain(&error))
    }
}

/// Says once that it is not known, and how long to wait.
fn failed(reason: &str, retry: &mut Retry) -> Duration {
    if retry.attempts() == 0 {
        tracing::warn!(reason, "it is not known how much gossip waits; deadlines wait for that");
    }
    retry.next_delay()
}

/// Whether an offset can be one of this topic: one that lies beyond its end was of another, which went.
fn is_within(offset: Option<&i64>, range: &Range<i64>) -> bool {
    offset.is_none_or(|offset| *offset <= range.end)
}
