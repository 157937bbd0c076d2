//! Up to when all that the clusters said was heard: the brokers are asked how far the gossip reaches, and once all of that was
//! taken in, so was all that was said before. Whatever concludes something from what was *not* said asks for it: a deadline, and
//! that there never was a volume.
//!
//! *Invariant:* what a cluster said and could not send yet is not counted as unsaid. A word has [`Hearing::delay`] to arrive,
//! and for that long the brokers must have answered.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use bus::Admin;
use domain::DatabaseId;
use runtime::backoff::Retry;
use runtime::{Backoff, CancellationToken, Program};
use store::{Ear, Store, in_time};

use crate::args::Kafka;
use crate::topics;

/// Between two questions.
const EVERY: Duration = Duration::from_secs(5);
/// How long one answer may take.
const LIMIT: Duration = Duration::from_secs(5);
/// After how long without a question nobody knows whether it would have been answered.
const GAP: Duration = Duration::from_secs(45);
/// So many partitions in a row that do not answer.
const SEVERAL: u32 = 3;
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));

/// Where databases are told of.
#[derive(Debug, Clone)]
pub struct Hearing {
    /// Topic of gossip.
    pub topic: String,
    /// Its number of partitions.
    pub partitions: i32,
    /// How long a word may take to arrive.
    pub delay: Duration,
}

impl Hearing {
    /// Where this one is told of.
    pub fn of(&self, database: DatabaseId) -> Ear<'_> {
        let partition = bus::partition_of(database.to_string().as_bytes(), self.partitions);
        Ear { topic: &self.topic, partition, partitions: self.partitions }
    }

    /// How old the knowledge of a cluster may be that still proves something: its observer says at least every three minutes
    /// that it watches and that nothing waits to be said, and what it said was heard after the delay.
    pub(crate) fn lately(&self) -> Duration {
        Duration::from_mins(4) + self.delay
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
    /// Between two questions.
    pub every: Duration,
}

/// Listens in a program that runs a sink.
pub(crate) fn start(
    program: &Program,
    kafka: &Kafka,
    (store, consumer, hearing): (Store, String, Hearing),
) -> Result<(), bus::Error> {
    let admin = Admin::new(&topics::connection(kafka, "slipway-backend-heard"))?;
    let (kafka, stop) = (kafka.clone(), program.stop());
    let listener = Listener { store, admin, consumer, hearing, every: EVERY };
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

    /// Asks once.
    async fn round(&self, answered: &mut BTreeMap<i32, Answered>) -> Result<(), String> {
        let Hearing { topic, partitions, delay } = &self.hearing;
        let (asked, began) = (self.clock().await?, Instant::now());
        let counted = self.admin.check_partitions(topic, *partitions, LIMIT).await;
        counted.map_err(|error| runtime::telemetry::chain(&error))?;
        let all: Vec<i32> = (0..*partitions).collect();
        let stood = in_time(self.store.offsets(&self.consumer, topic, &all)).await;
        let stood = stood.map_err(|error| runtime::telemetry::chain(&error))?;
        let (mut reach, trouble) = self.reach(&all).await;
        answered.retain(|partition, _| reach.contains_key(partition));
        reach.retain(|partition, range| {
            let answered = answered.entry(*partition).or_insert(Answered { since: began, last: began });
            answered.for_at(began) >= *delay && is_within(stood.get(partition), range)
        });
        if !reach.is_empty() {
            let place = (self.consumer.as_str(), topic.as_str(), *partitions);
            let noted = in_time(self.store.note_heard(place, &reach, asked - *delay)).await;
            noted.map_err(|error| runtime::telemetry::chain(&error))?;
        }
        trouble.map_or(Ok(()), Err)
    }

    /// How far the partitions reach, as far as brokers answer, and what is wrong with the rest. One without a leader holds up
    /// no other; where several in a row do not answer, nobody does.
    async fn reach(&self, partitions: &[i32]) -> (BTreeMap<i32, Range<i64>>, Option<String>) {
        let (mut reach, mut trouble, mut unanswered) = (BTreeMap::new(), None, 0);
        for partition in partitions {
            match self.admin.reach(&self.hearing.topic, *partition, LIMIT).await {
                Ok(range) => {
                    reach.insert(*partition, range);
                    unanswered = 0;
                }
                Err(error) => {
                    trouble = Some(runtime::telemetry::chain(&error));
                    unanswered += 1;
                }
            }
            if unanswered == SEVERAL {
                break;
            }
        }
        (reach, trouble)
    }

    async fn clock(&self) -> Result<jiff::Timestamp, String> {
        in_time(self.store.clock()).await.map_err(|error| runtime::telemetry::chain(&error))
    }
}

/// Since when a partition has answered, and when it did last.
#[derive(Debug, Clone, Copy)]
struct Answered {
    since: Instant,
    last: Instant,
}

impl Answered {
    /// It answers now, too: for how long it has done so. While nobody asked, nobody knows.
    fn for_at(&mut self, now: Instant) -> Duration {
        if now.duration_since(self.last) > GAP {
            self.since = now;
        }
        self.last = now;
        now.duration_since(self.since)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_asked_for_long_is_not_known_to_have_answered() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut answered = Answered { since: begun, last: begun };
        let seconds = [5, 35, 80, 126, 130].map(|second| answered.for_at(at(second)).as_secs());
        assert_eq!(seconds, [5, 35, 80, 0, 4], "a minute without a question, as while Postgres is away");
    }

    #[test]
    fn an_offset_beyond_the_end_is_of_another_topic() {
        for (offset, expected) in [(None, true), (Some(0), true), (Some(7), true), (Some(8), false)] {
            assert_eq!(is_within(offset.as_ref(), &(2..7)), expected, "{offset:?}");
        }
    }
}
