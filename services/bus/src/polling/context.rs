//! What the Kafka library calls back: rebalances and statistics. Runs on the poll loop, so nothing here waits.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::statistics::Statistics;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use super::Start;
use super::standing::{Patience, Standing};
use crate::connection::{Brokers, Refusals};
use crate::tracker::Mark;
use crate::{Error, connection, lock};

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
    fn revoked(&self, partitions: &[i32]) -> Vec<Mark>;

    /// How far partitions reach, as the broker told it lately.
    fn ends(&self, ends: &[End]);

    /// Where reading of a partition that is assigned begins.
    fn begin(&self) -> Begin {
        Begin::WhereTheGroupLeftOff
    }
}

/// Where reading of a partition that is assigned begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    WhereTheGroupLeftOff,
    /// Nowhere before [`Context::read_from`] says where. It must not begin at the partition's end meanwhile: a library that is
    /// sent elsewhere while it asks the broker for the end asks once more half a second later, and goes there.
    WhereWeSay,
}

/// The context of a consumer of one topic.
pub(crate) struct Context {
    topic: String,
    group: String,
    patience: Patience,
    membership: Arc<dyn Membership>,
    standing: Mutex<Standing>,
    refusals: Refusals,
    /// A refusal that another consumer may not meet.
    curable: Mutex<Option<String>>,
    /// Partitions that the library reads. Others of ours wait to be told from where.
    reading: Mutex<BTreeSet<i32>>,
    /// The group has told what is ours, were it nothing.
    let_in: AtomicBool,
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        connection::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.refusals.hear(&error, reason);
    }

    fn stats(&self, statistics: Statistics) {
        let brokers = Brokers::of(&statistics);
        self.refusals.see(&statistics);
        *lock(&self.curable) = self.refusals.curable();
        if let Some(group) = &statistics.cgrp {
            lock(&self.standing).hear(Instant::now(), &group.join_state, brokers);
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
            self.revoke(consumer, &numbers)
        };
        if let Err(error) = result {
            tracing::error!(kafka.topic = self.topic, partitions = ?numbers, "rebalancing failed: {error}");
        }
    }
}

impl Context {
    pub(super) fn new(start: &Start<'_>, membership: Arc<dyn Membership>, refusals: Refusals) -> Self {
        Self {
            topic: start.topic.to_owned(),
            group: start.group.to_owned(),
            patience: start.patience,
            membership,
            standing: Mutex::default(),
            refusals,
            curable: Mutex::default(),
            reading: Mutex::default(),
            let_in: AtomicBool::default(),
        }
    }

    /// Whether the group has ever let us in.
    pub(super) fn was_let_in(&self) -> bool {
        self.let_in.load(Ordering::Relaxed)
    }

    /// An error once the consumer has been outside of its group for too long, or knows no broker any more: it is to be made
    /// anew.
    pub(super) fn check_standing(&self) -> Result<(), Error> {
        let (mut standing, now) = (lock(&self.standing), Instant::now());
        if standing.has_no_brokers() {
            return Err(Error::NoBrokers { what: "consumer" });
        }
        if let Some(reason) = lock(&self.curable).take() {
            return Err(Error::Refused { what: "consumer", reason });
        }
        if let Some(alone) = standing.too_lonely(now, self.patience) {
            if let Some(reason) = self.refusals.reason() {
                return Err(Error::Refused { what: "consumer", reason });
            }
            return Err(Error::Alone { topic: self.topic.clone(), seconds: alone.as_secs() });
        }
        let Some((outside, state)) = standing.too_long(now, self.patience) else { return Ok(()) };
        let (group, topic, state) = (self.group.clone(), self.topic.clone(), state.to_owned());
        Err(Error::Adrift { group, topic, seconds: outside.as_secs(), state })
    }

    /// Hands marks over to be committed. Nobody is told what becomes of it, success or not: the library has no event for that
    /// without a queue that the binding does not name (rust-rdkafka 0.39, its issue 856).
    pub(crate) fn commit(&self, consumer: &BaseConsumer<Self>, marks: &[Mark]) -> KafkaResult<()> {
        let mut list = TopicPartitionList::new();
        for mark in marks {
            let mut element = list.add_partition(&self.topic, mark.partition);
            element.set_offset(Offset::Offset(mark.offset))?;
            if !mark.metadata.is_empty() {
                element.set_metadata(&mark.metadata);
            }
        }
        consumer.commit(&list, CommitMode::Async)
    }

    /// Reading of a partition of ours goes on there. To be called from the poll loop, as rebalances are.
    pub(crate) fn read_from(
        &self,
        consumer: &BaseConsumer<Self>,
        partition: i32,
        offset: Offset,
        limit: Duration,
    ) -> KafkaResult<()> {
        if lock(&self.reading).contains(&partition) {
            return consumer.seek(&self.topic, partition, offset, limit);
        }
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.topic, partition, offset)?;
        consumer.incremental_assign(&list)?;
        lock(&self.reading).insert(partition);
        Ok(())
    }

    fn assign(
        &self,
        consumer: &BaseConsumer<Self>,
        list: &TopicPartitionList,
        partitions: &[i32],
    ) -> KafkaResult<()> {
        tracing::info!(kafka.topic = self.topic, ?partitions, "partitions assigned");
        self.let_in.store(true, Ordering::Relaxed);
        self.membership.assigned(partitions);
        match self.membership.begin() {
            Begin::WhereTheGroupLeftOff => {
                consumer.incremental_assign(list)?;
                lock(&self.reading).extend(partitions);
                Ok(())
            }
            // The group is told that the partitions are taken, all the same.
            Begin::WhereWeSay => consumer.incremental_assign(&TopicPartitionList::new()),
        }
    }

    fn revoke(&self, consumer: &BaseConsumer<Self>, partitions: &[i32]) -> KafkaResult<()> {
        let by_force = consumer.assignment_lost();
        tracing::info!(kafka.topic = self.topic, ?partitions, by_force, "partitions revoked");
        let marks = self.membership.revoked(partitions);
        if !by_force && !marks.is_empty() {
            // Queued before the partitions go; its answer is not waited for.
            if let Err(error) = self.commit(consumer, &marks) {
                tracing::warn!(kafka.topic = self.topic, "the last offsets were not committed: {error}");
            }
        }
        let read: Vec<i32> = {
            let mut reading = lock(&self.reading);
            partitions.iter().copied().filter(|partition| reading.remove(partition)).collect()
        };
        let read = super::list(&self.topic, &read);
        // The library would remember a pause, and read nothing of a partition that comes back.
        if let Err(error) = consumer.resume(&read) {
            tracing::warn!(
                kafka.topic = self.topic,
                ?partitions,
                "partitions that go were not resumed: {error}"
            );
        }
        consumer.incremental_unassign(&read)
    }
}
