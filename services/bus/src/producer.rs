//! The idempotent producer.
//!
//! Within one producer session Kafka keeps order and drops its own repetitions; across sessions it does not, so readers
//! must bear repetition. *Invariant:* an error says whether the record is certainly not in the log or whether nobody knows.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::producer::future_producer::DeliveryFuture;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};

use crate::connection::Quiet;
use crate::{Connection, Error, Message, lock};

/// How long a record may take until its delivery is given up.
pub const DELIVERY_TIMEOUT: Duration = Duration::from_secs(20);

/// Beyond the library's own deadline, which ends nearly every wait with a reason.
const MARGIN: Duration = Duration::from_secs(5);

/// Produces records. Clones share one client.
#[derive(Clone)]
pub struct Producer(Arc<Inner>);

struct Inner {
    connection: Connection,
    session: Mutex<Session>,
}

#[derive(Clone)]
struct Session {
    number: u64,
    client: FutureProducer<Quiet>,
}

/// Where a record came to stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// Partition of the topic.
    pub partition: i32,
    /// Place in the partition.
    pub offset: i64,
}

/// A record on its way. Dropping this does not take it back.
#[must_use = "the outcome is known only after waiting"]
pub struct Pending {
    topic: String,
    bytes: usize,
    session: Session,
    producer: Producer,
    future: DeliveryFuture,
}

impl Producer {
    /// Makes the client; it connects in the background.
    pub fn new(connection: &Connection) -> Result<Self, Error> {
        let client = create(connection)?;
        let session = Mutex::new(Session { number: 1, client });
        Ok(Self(Arc::new(Inner { connection: connection.clone(), session })))
    }

    /// Sends a record and waits for the brokers' word.
    pub async fn send(&self, message: Message) -> Result<Delivered, Error> {
        self.enqueue(&message)?.wait().await
    }

    /// Queues a record behind all that were queued before and returns at once. Records of one key that are queued one
    /// after the other are written in that order.
    pub fn enqueue(&self, message: &Message) -> Result<Pending, Error> {
        let session = self.session();
        let record = FutureRecord::to(&message.topic)
            .key(&message.key)
            .payload(&message.payload)
            .headers(message.owned_headers());
        match session.client.send_result(record) {
            Ok(future) => Ok(Pending {
                topic: message.topic.clone(),
                bytes: message.payload.len(),
                session,
                producer: self.clone(),
                future,
            }),
            Err((source, _)) => {
                self.heal(&session);
                Err(refused(&message.topic, message.payload.len(), source))
            }
        }
    }

    /// Waits until everything queued is delivered or given up. For the end of a program.
    pub async fn flush(&self, limit: Duration) -> Result<(), Error> {
        let client = self.session().client;
        let flushed = tokio::task::spawn_blocking(move || client.flush(limit)).await;
        flushed
            .map_err(|source| Error::Thread { what: "the flush", source: source.into() })?
            .map_err(|source| Error::Flush { limit, source })
    }

    /// Records queued and not yet delivered.
    pub fn in_flight(&self) -> usize {
        usize::try_from(self.session().client.in_flight_count()).unwrap_or(0)
    }

    /// How often the client was made anew after a fatal error.
    pub fn rebuilds(&self) -> u64 {
        lock(&self.0.session).number - 1
    }

    fn session(&self) -> Session {
        lock(&self.0.session).clone()
    }

    /// After a fatal error a client refuses everything for ever: it is replaced, by whoever sees it first.
    fn heal(&self, seen: &Session) {
        let Some((code, reason)) = seen.client.client().fatal_error() else { return };
        let mut session = lock(&self.0.session);
        if session.number != seen.number {
            return;
        }
        tracing::error!(kafka.error = %code, "the producer is broken for good and is made anew: {reason}");
        match create(&self.0.connection) {
            Ok(client) => {
                let old = std::mem::replace(&mut *session, Session { number: seen.number + 1, client });
                // Dropping a client may block for long.
                std::thread::spawn(move || drop(old));
            }
            Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "the producer was not made anew"),
        }
    }
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").field("connection", &self.0.connection).finish_non_exhaustive()
    }
}

impl Pending {
    /// Waits for the brokers' word.
    pub async fn wait(self) -> Result<Delivered, Error> {
        let Self { topic, bytes, session, producer, future } = self;
        let unknown = |reason: String| Error::Unknown { topic: topic.clone(), reason };
        let limit = DELIVERY_TIMEOUT + MARGIN;
        let Ok(report) = tokio::time::timeout(limit, future).await else {
            producer.heal(&session);
            return Err(unknown(format!("no delivery report after {limit:?}")));
        };
        match report {
            Ok(Ok(delivery)) => Ok(Delivered { partition: delivery.partition, offset: delivery.offset }),
            Ok(Err((source, _))) => {
                producer.heal(&session);
                Err(undelivered(&topic, bytes, source))
            }
            Err(_) => Err(unknown("the producer was replaced".to_owned())),
        }
    }
}

fn create(connection: &Connection) -> Result<FutureProducer<Quiet>, Error> {
    let config = connection.config(&[
        ("enable.idempotence", "true".to_owned()),
        ("acks", "all".to_owned()),
        // Commands and status are few and waited for: never hold one back to fill a batch.
        ("linger.ms", "0".to_owned()),
        ("partitioner", "murmur2_random".to_owned()),
        ("allow.auto.create.topics", "false".to_owned()),
        ("delivery.timeout.ms", DELIVERY_TIMEOUT.as_millis().to_string()),
        ("queue.buffering.max.kbytes", "65536".to_owned()),
    ]);
    config.create_with_context(Quiet).map_err(|source| Error::Create { what: "producer", source })
}

/// An error before anything was sent.
fn refused(topic: &str, bytes: usize, source: KafkaError) -> Error {
    match source {
        KafkaError::MessageProduction(Code::MessageSizeTooLarge) => Error::TooLarge { topic: topic.to_owned(), bytes },
        source => Error::NotSent { topic: topic.to_owned(), source },
    }
}

/// An error of a delivery report: only a broker's refusal proves that the record is not there.
fn undelivered(topic: &str, bytes: usize, source: KafkaError) -> Error {
    let topic = topic.to_owned();
    match source {
        KafkaError::MessageProduction(Code::MessageSizeTooLarge | Code::InvalidMessageSize) => {
            Error::TooLarge { topic, bytes }
        }
        KafkaError::MessageProduction(
            Code::UnknownTopic
            | Code::UnknownTopicOrPartition
            | Code::UnknownPartition
            | Code::TopicAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::InvalidRecord
            | Code::PolicyViolation,
        ) => Error::NotSent { topic, source },
        source => Error::Unknown { topic, reason: source.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_whether_the_record_may_be_there() {
        let report = |code| undelivered("t", 9, KafkaError::MessageProduction(code));
        assert!(matches!(report(Code::MessageTimedOut), Error::Unknown { .. }));
        assert!(matches!(report(Code::Fatal), Error::Unknown { .. }));
        assert!(matches!(report(Code::NotEnoughReplicasAfterAppend), Error::Unknown { .. }));
        assert!(matches!(report(Code::UnknownTopicOrPartition), Error::NotSent { .. }));
        assert!(matches!(report(Code::MessageSizeTooLarge), Error::TooLarge { bytes: 9, .. }));
        let queue_full = refused("t", 9, KafkaError::MessageProduction(Code::QueueFull));
        assert!(matches!(queue_full, Error::NotSent { .. }));
    }
}
