//! What the Kafka library calls back: rebalances and statistics. Runs on the poll loop, so nothing here waits.

use std::sync::Arc;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext};
use rdkafka::error::KafkaResult;
use rdkafka::statistics::Statistics;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

/// Who is told of partitions.
pub(crate) trait Membership: Send + Sync {
    /// These partitions are ours from now on.
    fn assigned(&self, partitions: &[i32]);

    /// These partitions are about to be taken. Answers what may be committed of them.
    fn revoked(&self, partitions: &[i32]) -> Vec<(i32, i64)>;

    /// Offsets that were handed over did not arrive.
    fn commit_failed(&self);

    /// Ends of partitions as the broker told them lately.
    fn ends(&self, ends: &[(i32, i64)]);

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
    fn stats(&self, statistics: Statistics) {
        let Some(topic) = statistics.topics.get(&self.topic) else { return };
        let known = topic.partitions.values().filter(|partition| partition.hi_offset >= 0);
        let ends: Vec<(i32, i64)> = known.map(|partition| (partition.partition, partition.hi_offset)).collect();
        self.membership.ends(&ends);
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, event: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let numbers: Vec<i32> = list.elements().iter().map(rdkafka::topic_partition_list::TopicPartitionListElem::partition).collect();
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
