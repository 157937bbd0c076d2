//! The two topics: made where they are missing, checked where they are there.

use std::time::Duration;

use bus::{Admin, Connection, TopicSettings};
use runtime::{Backoff, CancellationToken};

use crate::args::Kafka;

/// Patience with the brokers.
const LIMIT: Duration = Duration::from_secs(20);
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));

/// How to reach Kafka under a name.
pub fn connection(kafka: &Kafka, client: &str) -> Connection {
    let properties = kafka.kafka_properties.clone();
    Connection { properties, ..Connection::new(&kafka.kafka_bootstrap, client) }
}

/// Makes the topics that are missing and checks the partition counts of the others. Gives the names of the new ones.
pub async fn ensure(kafka: &Kafka, replication: i32) -> Result<Vec<String>, bus::Error> {
    let topic = |name: &str| TopicSettings::new(name, kafka.topic_partitions, replication);
    let topics = [topic(&kafka.instructions_topic), topic(&kafka.gossip_topic)];
    Admin::new(&connection(kafka, "slipway-topics"))?.ensure_topics(&topics, LIMIT).await
}

/// Waits until a topic is there with as many partitions as this program is told: with another number, keys would stand in
/// other partitions than everybody expects. `false` when `stop` came first.
pub async fn wait(kafka: &Kafka, topic: &str, stop: &CancellationToken) -> Result<bool, bus::Error> {
    let admin = Admin::new(&connection(kafka, "slipway-topics"))?;
    let mut retry = BACKOFF.start();
    loop {
        let Err(error) = admin.check_partitions(topic, kafka.topic_partitions, LIMIT).await else {
            return Ok(true);
        };
        tracing::warn!(
            reason = runtime::telemetry::chain(&error),
            kafka.topic = topic,
            "waiting for the topic"
        );
        if !retry.wait(stop).await {
            return Ok(false);
        }
    }
}
