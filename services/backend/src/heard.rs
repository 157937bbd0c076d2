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
use futures::StreamExt as _;
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
/// Partitions that are asked at once.
const AT_ONCE: usize = 8;
/// After so long no further partition is asked in a round: with the last answer it ends long before [`GAP`].
const ENOUGH: Duration = Duration::from_secs(10);
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

    /// How old the knowledge of a cluster may be that still proves something: up to when its observer has seen and told everything is
    /// no longer ago than three minutes, and what it told was heard after the delay.
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
        let mut known = Known::of(self.hearing.partitions);
        while !stop.is_cancelled() {
            let wait = match self.round(&mut known).await {
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
    async fn round(&self, Known { order, answered }: &mut Known) -> Result<(), String> {
        let Hearing { topic, partitions, delay } = &self.hearing;
        // Postgres may take its time to say the time: what is told of then was still to come when it was asked.
        let (began, asked) = (Instant::now(), self.clock().await?);
        let counted = self.admin.check_partitions(topic, *partitions, LIMIT).await;
        counted.map_err(|error| runtime::telemetry::chain(&error))?;
        let all: Vec<i32> = (0..*partitions).collect();
        let stood = in_time(self.store.offsets(&self.consumer, topic, &all)).await;
        let stood = stood.map_err(|error| runtime::telemetry::chain(&error))?;
        let question = |partition| self.admin.reach(topic, partition, LIMIT);
        let answers = ask(order, Instant::now() + ENOUGH, question).await;
        let now = Instant::now();
        *order = next(order, &answers);
        answered.retain(|partition, _| !matches!(answers.get(partition), Some(Err(_))));
        let (mut reach, mut trouble) = (BTreeMap::new(), None);
        for (partition, answer) in answers {
            match answer {
                Ok(range) => drop(reach.insert(partition, range)),
                Err(error) => trouble = Some(runtime::telemetry::chain(&error)),
            }
        }
        reach.retain(|partition, range| {
            let answered = answered.entry(*partition).or_insert(Answered { since: now, last: began });
            answered.before(began, now) >= *delay && is_within(stood.get(partition), range)
        });
        if !reach.is_empty() {
            let place = (self.consumer.as_str(), topic.as_str(), *partitions);
            let noted = in_time(self.store.note_heard(place, &reach, asked - *delay)).await;
            noted.map_err(|error| runtime::telemetry::chain(&error))?;
        }
        trouble.map_or(Ok(()), Err)
    }

    async fn clock(&self) -> Result<jiff::Timestamp, String> {
        in_time(self.store.clock()).await.map_err(|error| runtime::telemetry::chain(&error))
    }
}

/// What the rounds before found out.
#[derive(Debug)]
struct Known {
    /// In which order partitions are asked.
    order: Vec<Place>,
    /// Of those that answered when they were asked last.
    answered: BTreeMap<i32, Answered>,
}

impl Known {
    /// Nothing yet, of so many partitions.
    fn of(partitions: i32) -> Self {
        let order = (0..partitions).map(|partition| Place { partition, silent: false }).collect();
        Self { order, answered: BTreeMap::new() }
    }
}

/// A partition in the order of asking, and whether it gave no answer when it was asked last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    partition: i32,
    silent: bool,
}

/// Asks partitions in this order, several at once, and after a moment no further one. One without a leader takes its own
/// time and no other's, and however many are without one, the round has an end.
async fn ask<T, E, A: Future<Output = Result<T, E>>>(
    order: &[Place],
    until: Instant,
    question: impl Fn(i32) -> A,
) -> BTreeMap<i32, Result<T, E>> {
    let order: Vec<i32> = order.iter().map(|place| place.partition).collect();
    // Each is taken when one before it has ended.
    let questions = order.into_iter().map_while(|partition| {
        (Instant::now() < until).then(|| {
            let answer = question(partition);
            async move { (partition, answer.await) }
        })
    });
    futures::stream::iter(questions).buffer_unordered(AT_ONCE).collect().await
}

/// In which order partitions are asked next: silent ones last, so that they take no time of those that answer, and of each
/// kind first those that had no turn.
fn next<T, E>(order: &[Place], answers: &BTreeMap<i32, Result<T, E>>) -> Vec<Place> {
    let turn = |place: &Place| match answers.get(&place.partition) {
        None => (false, *place),
        Some(answer) => (true, Place { silent: answer.is_err(), ..*place }),
    };
    let mut turns: Vec<(bool, Place)> = order.iter().map(turn).collect();
    turns.sort_by_key(|(had_turn, place)| (place.silent, *had_turn));
    turns.into_iter().map(|(_, place)| place).collect()
}

/// Since when a partition has answered, and when it was last asked.
#[derive(Debug, Clone, Copy)]
struct Answered {
    since: Instant,
    last: Instant,
}

impl Answered {
    /// It has answered by `now` in a round that began before: for how long it had answered then. While nobody asked, nobody knows.
    fn before(&mut self, began: Instant, now: Instant) -> Duration {
        if began.duration_since(self.last) > GAP {
            self.since = now;
        }
        self.last = began;
        began.saturating_duration_since(self.since)
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
        let mut before = |began, now| answered.before(at(began), at(now)).as_secs();
        let seconds = [5, 35, 80, 126, 130].map(|second| before(second, second));
        assert_eq!(seconds, [5, 35, 80, 0, 4], "a minute without a question, as while Postgres is away");
        // A round that stood still: the first answer after a minute says nothing of the time before it.
        assert_eq!([before(190, 200), before(205, 206)], [0, 5], "not before its answer");
    }

    /// As they stand in the order, those that are silent as negative numbers.
    fn told(order: &[Place]) -> Vec<i32> {
        order.iter().map(|place| if place.silent { -place.partition } else { place.partition }).collect()
    }

    #[tokio::test]
    async fn partitions_without_a_leader_hold_up_no_other() {
        // As many as would have ended the round are silent until all others have answered.
        let (count, silent) = (12, 3);
        let others = &tokio::sync::Semaphore::new(0);
        let question = move |partition: i32| async move {
            let led = partition > silent;
            let waits_for = i32::from(!led) * (count - silent);
            others.add_permits(usize::from(led));
            drop(others.acquire_many(u32::try_from(waits_for).unwrap()).await);
            led.then_some(partition).ok_or("no leader")
        };
        let order: Vec<Place> = (1..=count).map(|partition| Place { partition, silent: false }).collect();
        let asked = ask(&order, Instant::now() + Duration::from_mins(1), question);
        let answers = tokio::time::timeout(Duration::from_secs(30), asked).await.unwrap();
        let well: Vec<i32> = answers.values().flatten().copied().collect();
        assert_eq!(well, (silent + 1..=count).collect::<Vec<_>>());
        assert_eq!(answers.len(), order.len());
        assert_eq!(told(&next(&order, &answers)), [4, 5, 6, 7, 8, 9, 10, 11, 12, -1, -2, -3]);
    }

    #[tokio::test]
    async fn a_round_ends_however_many_are_silent_and_those_without_a_turn_come_first() {
        let order: Vec<Place> = (1..=3).map(|partition| Place { partition, silent: false }).collect();
        let late = ask(&order, Instant::now(), |_| std::future::ready(Err::<(), _>("asked after the end")));
        assert_eq!(late.await.len(), 0);
        assert!(
            ENOUGH + LIMIT + BACKOFF.ceiling(u32::MAX) + LIMIT < GAP,
            "what answers is known to have done so"
        );

        let answers = BTreeMap::from([(1, Err("no leader")), (2, Ok(()))]);
        let second = next(&order, &answers);
        assert_eq!(told(&second), [3, 2, -1], "the third had no turn");
        let answers = BTreeMap::from([(3, Err("no leader")), (2, Ok(()))]);
        let third = next(&second, &answers);
        assert_eq!(told(&third), [2, -1, -3], "of the silent ones the first had none");
        assert_eq!(told(&next(&third, &BTreeMap::from([(2, Ok(())), (1, Ok::<(), &str>(()))]))), [2, 1, -3]);
    }

    #[test]
    fn an_offset_beyond_the_end_is_of_another_topic() {
        for (offset, expected) in [(None, true), (Some(0), true), (Some(7), true), (Some(8), false)] {
            assert_eq!(is_within(offset.as_ref(), &(2..7)), expected, "{offset:?}");
        }
    }
}
