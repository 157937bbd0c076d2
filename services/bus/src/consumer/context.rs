//! What the Kafka library calls back: rebalances and statistics. Runs on the poll loop, so nothing here waits.

use std::sync::Arc;

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::statistics::Statistics;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use crate::connection;

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
    pub(crate) membership: Arc<dyn Membership>,
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        connection::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        connection::note(&error, reason);
    }

    fn stats(&self, statistics: Statistics) {
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
