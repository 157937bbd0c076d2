//! Consumer groups as their coordinator knows them: how far they came, and how to forget them. Never joins one.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::admin::AdminOptions;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};

use crate::connection::Quiet;
use crate::{Admin, Connection, Error};

impl ConsumerContext for Quiet {}

/// The committed offset of each partition of a topic that has one.
pub async fn committed(
    connection: &Connection,
    group: &str,
    topic: &str,
    partitions: i32,
    limit: Duration,
) -> Result<BTreeMap<i32, i64>, Error> {
    let what = format!("the offsets of group {group}");
    let config = connection.config(&[("group.id", group.to_owned())])?;
    let topic = topic.to_owned();
    let question = move || {
        let consumer: BaseConsumer<Quiet> = config.create_with_context(Quiet)?;
        let mut list = TopicPartitionList::new();
        for partition in 0..partitions {
            list.add_partition(&topic, partition);
        }
        let found = consumer.committed_offsets(list, limit)?;
        let known = found.elements().into_iter().filter_map(|element| match element.offset() {
            Offset::Offset(offset) => Some((element.partition(), offset)),
            _ => None,
        });
        Ok(known.collect())
    };
    let answer: Result<Result<_, KafkaError>, _> = tokio::task::spawn_blocking(question).await;
    answer
        .map_err(|source| Error::Thread { what: "a question to the brokers", source: source.into() })?
        .map_err(|source| Error::Ask { what, source })
}

impl Admin {
    /// Makes the brokers forget a group without members, and with it how far it came.
    pub async fn forget_group(&self, group: &str, limit: Duration) -> Result<(), Error> {
        let options = AdminOptions::new().request_timeout(Some(limit)).operation_timeout(Some(limit));
        let what = format!("forgetting group {group}");
        let results = self.client().delete_groups(&[group], &options).await;
        let results = results.map_err(|source| Error::Ask { what: what.clone(), source })?;
        let refused = results.into_iter().find_map(Result::err);
        refused.map_or(Ok(()), |(_, code)| Err(Error::Ask { what, source: KafkaError::AdminOp(code) }))
    }
}
