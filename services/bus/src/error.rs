//! What can go wrong with Kafka, as far as callers have to tell it apart.

use std::path::PathBuf;
use std::time::Duration;

use rdkafka::error::KafkaError;

use crate::BoxError;

/// Something about Kafka failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The client could not be made: a property is wrong.
    #[error("create a Kafka {what}")]
    Create {
        /// Producer, consumer or admin client.
        what: &'static str,
        /// What the library says.
        #[source]
        source: KafkaError,
    },
    /// The file of further properties cannot be used.
    #[error("read the Kafka properties in {}: {reason}", path.display())]
    Properties {
        /// Which file.
        path: PathBuf,
        /// Why not, without what it holds.
        reason: String,
    },
    /// Brokers refuse the login, or one side does not believe the other's certificate. A new client reads the properties again.
    #[error(
        "brokers refuse the Kafka {what}: {reason}; see SLIPWAY_KAFKA_PROPERTIES and SLIPWAY_KAFKA_PROPERTIES_FILE"
    )]
    Refused {
        /// Producer, consumer or admin client.
        what: &'static str,
        /// In the library's words.
        reason: String,
    },
    /// The group does not let the consumer in although brokers answer: the library has lost its way, a new consumer finds
    /// another.
    #[error("consume {topic}: not let into group {group} for {seconds} s ({state}) although brokers answer")]
    Adrift {
        /// The consumer group.
        group: String,
        /// The topic.
        topic: String,
        /// For how long.
        seconds: u64,
        /// What the library says of the group.
        state: String,
    },
    /// No broker has answered for a while: it may be that all are away, or that the library has lost its way.
    #[error(
        "consume {topic}: no broker has answered for {seconds} s; another consumer begins with the addresses that are configured"
    )]
    Alone {
        /// The topic.
        topic: String,
        /// For how long.
        seconds: u64,
    },
    /// The library has forgotten every broker, those it was given included: a new client begins with those again.
    #[error(
        "the Kafka {what} knows no broker any more; a new one begins with the addresses that are configured"
    )]
    NoBrokers {
        /// Producer, consumer or admin client.
        what: &'static str,
    },
    /// No broker tells the settings of a topic.
    #[error(
        "no broker says how long {topic} keeps records: it is not there, or the right DescribeConfigs on it is missing"
    )]
    Unsaid {
        /// Which.
        topic: String,
    },
    /// The record certainly did not reach the log; nothing was sent or the broker refused it.
    #[error("send to {topic}: certainly not written")]
    NotSent {
        /// Where it should have gone.
        topic: String,
        /// Why not.
        #[source]
        source: KafkaError,
    },
    /// The record is larger than producer or broker allow; trying again is of no use.
    #[error("send to {topic}: {bytes} bytes are more than is allowed")]
    TooLarge {
        /// Where it should have gone.
        topic: String,
        /// Size of the payload.
        bytes: usize,
    },
    /// Nobody knows whether the record reached the log. It may still arrive, even after this error.
    #[error("send to {topic}: outcome unknown ({reason}); the record may or may not be in the log")]
    Unknown {
        /// Where it went.
        topic: String,
        /// What happened.
        reason: String,
    },
    /// Buffered records were not delivered in time.
    #[error("flush the producer within {limit:?}")]
    Flush {
        /// The time it had.
        limit: Duration,
        /// What the library says.
        #[source]
        source: KafkaError,
    },
    /// The brokers did not answer.
    #[error("ask the brokers for {what}")]
    Ask {
        /// What was asked for.
        what: String,
        /// What the library says.
        #[source]
        source: KafkaError,
    },
    /// A blocking call was lost with its thread.
    #[error("wait for the thread of {what}")]
    Thread {
        /// What ran there.
        what: &'static str,
        /// What the runtime says.
        #[source]
        source: BoxError,
    },
    /// A topic cannot be made.
    #[error("create topic {topic}: {reason}")]
    CreateTopic {
        /// Its name.
        topic: String,
        /// What the broker says.
        reason: String,
    },
    /// A topic is not there.
    #[error("topic {topic} does not exist; create it first (`slipway-backend topics`)")]
    NoTopic {
        /// Its name.
        topic: String,
    },
    /// A topic has another number of partitions than configured: keys would map to other partitions and lose their order.
    #[error(
        "topic {topic} has {found} partitions, {expected} are configured: a key must never change its partition, \
         so set the number to what the topic has, or move to a new topic"
    )]
    PartitionCount {
        /// Its name.
        topic: String,
        /// As configured.
        expected: i32,
        /// As it is.
        found: i32,
    },
    /// The group has no valid offset for a partition and was not told where to begin.
    #[error(
        "group {group} has no valid offset in {topic}: it is new, or its offset lies outside what the topic keeps. \
         Start once with `--offset-reset earliest` (SLIPWAY_OFFSET_RESET=earliest) to read all that is there; \
         what is read again does no harm"
    )]
    NoOffset {
        /// The consumer group.
        group: String,
        /// The topic.
        topic: String,
    },
    /// The consumer is broken for good and has to be made anew.
    #[error("consume {topic}")]
    Consume {
        /// The topic.
        topic: String,
        /// What the library says.
        #[source]
        source: KafkaError,
    },
    /// The thread of a consumer did not end in time; it was left behind.
    #[error("close the consumer of {topic} within {limit:?}")]
    Close {
        /// The topic.
        topic: String,
        /// The time it had.
        limit: Duration,
    },
}
