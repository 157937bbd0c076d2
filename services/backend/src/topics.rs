//! The two topics: made where they are missing, checked where they are there.

use std::time::Duration;

use bus::{Admin, Connection, TopicSettings};

use crate::args::Kafka;

/// Patience with the brokers.
const LIMIT: Duration = Duration::from_secs(20);

/// How to reach Kafka under a name.
pub fn connection(kafka: &Kafka, client: &str) -> Connection {
    Connection::new(&kafka.kafka_bootstrap, client)
}

/// Makes the topics that are missing and checks the partition counts of the others. Gives the names of the new ones.
pub async fn ensure(kafka: &Kafka, replication: i32) -> Result<Vec<String>, bus::Error> {
    let topic = |name: &str| TopicSettings::new(name, kafka.topic_partitions, replication);
    let topics = [topic(&kafka.instructions_topic), topic(&kafka.gossip_topic)];
    Admin::new(&connection(kafka, "slipway-topics"))?.ensure_topics(&topics, LIMIT).await
}

/// Whether a topic has as many partitions as this program is told.
pub async fn check(admin: &Admin, topic: &str, partitions: i32) -> Result<(), bus::Error> {
    admin.check_partitions(topic, partitions, LIMIT).await
}
