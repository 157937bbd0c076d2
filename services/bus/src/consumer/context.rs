//! What the Kafka library calls back: rebalances and statistics. Runs on the poll loop, so nothing here waits.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::statistics::Statistics;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use crate::{Error, connection};

/// How long a consumer may be outside of its group while brokers answer. Longer than any rebalance among members that
/// answer; a rebalance that waits for a member that hangs is only begun again.
const LONGEST_OUTSIDE: Duration = Duration::from_secs(30);

/// How far a partition reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) partition: i32,
    /// The offset after its last record.
    pub(crate) offset: i64,
    /// Records behind the end as the library counts them.
    pub(crate) lag: Option<i64>,
}

impl End {
    /// Records behind the end, for somebody who stands at `position`, or whose position is not known yet.
    pub(crate) fn lag_at(self, position: Option<i64>) -> Option<i64> {
        position.map(|position| (self.offset - position).max(0)).or(self.lag)
    }
}

/// Who is told of partitions.
pub(crate) trait Membership: Send + Sync {
    /// These partitions are ours from now on.
    fn assigned(&self, partitions: &[i32]);

    /// These partitions are about to be taken. Answers what may be committed of them.
    fn revoked(&self, partitions: &[i32]) -> Vec<(i32, i64)>;

    /// Offsets that were handed over did not arrive.
    fn commit_failed(&self);

    /// How far partitions reach, as the broker told it lately.
    fn ends(&self, ends: &[End]);

    /// Where to begin a partition that is assigned; `None` means where the group left off.
    fn start(&self) -> Option<Offset> {
        None
    }
}

/// The context of a consumer of one topic.
pub(crate) struct Context {
    pub(crate) topic: String,
    pub(crate) group: String,
    pub(crate) membership: Arc<dyn Membership>,
    pub(crate) standing: Mutex<Standing>,
}

/// How a consumer stands with its group, by the library's statistics.
///
/// A broker that hangs past the session and then restarts can leave the library outside its group for good. It says nothing
/// of it by itself, so somebody has to look.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// Since when it has been outside although brokers answer, and what the library called that.
    outside: Option<(Instant, String)>,
}

impl Standing {
    /// Takes in what the library says now.
    fn hear(&mut self, now: Instant, join_state: &str, reachable: bool) {
        if join_state == "steady" || !reachable {
            self.outside = None;
        } else {
            let since = self.outside.take().map_or(now, |(since, _)| since);
            self.outside = Some((since, join_state.to_owned()));
        }
    }

    /// For how long it has been outside, once that is too long.
    fn too_long(&self, now: Instant) -> Option<(Duration, &str)> {
        let (since, state) = self.outside.as_ref()?;
        let outside = now.duration_since(*since);
        (outside >= LONGEST_OUTSIDE).then_some((outside, state))
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        connection::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        connection::note(&error, reason);
    }

    fn stats(&self, statistics: Statistics) {
        let reachable = statistics.brokers.values().any(|broker| broker.nodeid >= 0 && broker.state == "UP");
        if let Some(group) = &statistics.cgrp {
            let join_state = &group.join_state;
            let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
            standing.hear(Instant::now(), join_state, reachable);
        }
        let Some(topic) = statistics.topics.get(&self.topic) else { return };
        let known = topic.partitions.values().filter(|partition| partition.hi_offset >= 0);
        let end = |partition: &rdkafka::statistics::Partition| End {
            partition: partition.partition,
            offset: partition.hi_offset,
            lag: (partition.consumer_lag >= 0).then_some(partition.consumer_lag),
        };
        let ends: Vec<End> = known.map(end).collect();
        self.membership.ends(&ends);
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, event: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let numbers: Vec<i32> = list
            .elements()
            .iter()
            .map(rdkafka::topic_partition_list::TopicPartitionListElem::partition)
            .collect();
        let result = if event == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            self.assign(consumer, list, &numbers)
        } else {
            self.revoke(consumer, list, &numbers)
        };
        if let Err(error) = result {
            tracing::error!(kafka.topic = self.topic, partitions = ?numbers, "rebalancing failed: {error}");
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _offsets: &TopicPartitionList) {
        // Offsets are committed again with the next period; a rebalance under way refuses them now and then.
        if let Err(error) = result {
            tracing::debug!(kafka.topic = self.topic, "offsets were not committed: {error}");
            self.membership.commit_failed();
        }
    }
}

impl Context {
    /// The context of a consumer of `topic` in `group`.
    pub(crate) fn new(topic: &str, group: &str, membership: Arc<dyn Membership>) -> Self {
        let (topic, group) = (topic.to_owned(), group.to_owned());
        Self { topic, group, membership, standing: Mutex::default() }
    }

    /// An error once the consumer has been outside of its group for too long: it is to be made anew.
    pub(crate) fn check_standing(&self) -> Result<(), Error> {
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((outside, state)) = standing.too_long(Instant::now()) else { return Ok(()) };
        let (group, topic, state) = (self.group.clone(), self.topic.clone(), state.to_owned());
        Err(Error::Adrift { group, topic, seconds: outside.as_secs(), state })
    }

    fn assign(
        &self,
        consumer: &BaseConsumer<Self>,
        list: &mut TopicPartitionList,
        numbers: &[i32],
    ) -> KafkaResult<()> {
        tracing::info!(kafka.topic = self.topic, partitions = ?numbers, "partitions assigned");
        if let Some(beginning) = self.membership.start() {
            list.set_all_offsets(beginning)?;
        }
        self.membership.assigned(numbers);
        consumer.incremental_assign(list)
    }

    fn revoke(
        &self,
        consumer: &BaseConsumer<Self>,
        list: &TopicPartitionList,
        partitions: &[i32],
    ) -> KafkaResult<()> {
        let by_force = consumer.assignment_lost();
        tracing::info!(kafka.topic = self.topic, ?partitions, by_force, "partitions revoked");
        let offsets = self.membership.revoked(partitions);
        if !by_force && !offsets.is_empty() {
            // Queued before the partitions go; its answer is not waited for.
            commit(consumer, &self.topic, &offsets, CommitMode::Async)?;
        }
        consumer.incremental_unassign(list)
    }
}

/// Commits offsets of one topic.
pub(crate) fn commit(
    consumer: &BaseConsumer<Context>,
    topic: &str,
    offsets: &[(i32, i64)],
    mode: CommitMode,
) -> KafkaResult<()> {
    let mut list = TopicPartitionList::new();
    for (partition, offset) in offsets {
        list.add_partition_offset(topic, *partition, Offset::Offset(*offset))?;
    }
    consumer.commit(&list, mode)
}

/// A list of partitions of one topic.
pub(crate) fn list(topic: &str, partitions: &[i32]) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for partition in partitions {
        list.add_partition(topic, *partition);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is heard at which second, when somebody looks, and whether it is too long.
    type Case = (&'static [(u64, &'static str, bool)], u64, bool);

    #[test]
    fn a_consumer_that_stays_outside_is_noticed() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let table: &[Case] = &[
            (&[(0, "steady", true)], 100, false),
            (&[(0, "init", true)], 29, false),
            (&[(0, "init", true), (10, "wait-join", true)], 30, true),
            (&[(0, "init", true), (10, "steady", true), (20, "init", true)], 40, false),
            (&[(0, "init", true), (10, "init", false), (20, "init", true)], 40, false),
            (&[(0, "init", false)], 100, false),
        ];
        for (heard, when, expected) in table {
            let mut standing = Standing::default();
            for (seconds, state, reachable) in *heard {
                standing.hear(at(*seconds), state, *reachable);
            }
            assert_eq!(standing.too_long(at(*when)).is_some(), *expected, "{heard:?} at {when}");
        }
    }
}
