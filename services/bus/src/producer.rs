//! The idempotent producer.
//!
//! Within one producer session Kafka keeps order and drops its own repetitions; across sessions it does not, so readers
//! must bear repetition. *Invariant:* an error says whether the record is certainly not in the log or whether nobody knows.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext, PurgeConfig};
use rdkafka::statistics::Statistics;
use rdkafka::{ClientContext, Message as _};
use tokio::sync::oneshot;

use crate::connection::{Brokers, Refusals, STATISTICS, not_made};
use crate::{Connection, Error, Message, connection, lock};

/// How long a record may take until its delivery is given up.
pub const DELIVERY_TIMEOUT: Duration = Duration::from_secs(20);

/// Beyond the library's own deadline, which ends nearly every wait with a reason.
const MARGIN: Duration = Duration::from_secs(5);

/// Statistics without a broker that answers, one every five seconds, until another client is tried.
const AWAY: u32 = 4;

/// Between two attempts to make another client.
const RETRY: Duration = Duration::from_secs(2);

/// Produces records. Clones share one client.
#[derive(Clone)]
pub struct Producer(Arc<Inner>);

struct Inner {
    connection: Connection,
    batches: Batches,
    session: Mutex<Session>,
}

/// What goes to a broker at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Batches {
    /// As many records as wait.
    Many,
    /// One record, and the next after the word on it.
    One,
}

type Client = BaseProducer<Reports>;
type Report = Result<Delivered, KafkaError>;

#[derive(Clone)]
struct Session {
    number: u64,
    client: Arc<Client>,
    /// When another one could not be made.
    failed: Option<Instant>,
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
    report: oneshot::Receiver<Report>,
}

impl Producer {
    /// Makes the client; it connects in the background.
    pub fn new(connection: &Connection) -> Result<Self, Error> {
        Self::with(connection, Batches::Many)
    }

    /// Another client of the same brokers, whose records go one by one. Brokers refuse whole batches: what they refuse of this one's
    /// is the record itself. Slow: a broker has one record of it at a time.
    pub fn one_by_one(&self) -> Result<Self, Error> {
        Self::with(&self.0.connection, Batches::One)
    }

    fn with(connection: &Connection, batches: Batches) -> Result<Self, Error> {
        let client = create(connection, batches)?;
        let session = Mutex::new(Session { number: 1, client, failed: None });
        Ok(Self(Arc::new(Inner { connection: connection.clone(), batches, session })))
    }

    /// Sends a record and waits for the brokers' word.
    pub async fn send(&self, message: Message) -> Result<Delivered, Error> {
        self.enqueue(&message)?.wait().await
    }

    /// Queues a record behind all that were queued before and returns at once. Records of one key that are queued one
    /// after the other are written in that order.
    pub fn enqueue(&self, message: &Message) -> Result<Pending, Error> {
        let mut session = self.session();
        if session.client.context().lost().is_some() {
            self.heal(&session);
            session = self.session();
        }
        let (tell, report) = oneshot::channel();
        let record = BaseRecord::with_opaque_to(&message.topic, Box::new(tell))
            .key(&message.key)
            .payload(&message.payload)
            .headers(message.owned_headers());
        match session.client.send(record) {
            Ok(()) => Ok(Pending {
                topic: message.topic.clone(),
                bytes: message.payload.len(),
                session,
                producer: self.clone(),
                report,
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

    /// How often the client was made anew because it could not go on.
    pub fn rebuilds(&self) -> u64 {
        lock(&self.0.session).number - 1
    }

    fn session(&self) -> Session {
        lock(&self.0.session).clone()
    }

    /// After a fatal error a client refuses everything for ever, without a broker that it knows it sends nothing for ever, and
    /// nothing to one that refuses it: it is replaced, by whoever sees it first. What it has in hand it sees to its end.
    fn heal(&self, seen: &Session) {
        let reason = match (seen.client.client().fatal_error(), seen.client.context().lost()) {
            (Some((code, reason)), _) => format!("{code}: {reason}"),
            (None, Some(lost)) => lost,
            (None, None) => return,
        };
        let mut session = lock(&self.0.session);
        if session.number != seen.number || session.failed.is_some_and(|failed| failed.elapsed() < RETRY) {
            return;
        }
        tracing::error!("the producer cannot go on and is made anew: {reason}");
        match create(&self.0.connection, self.0.batches) {
            Ok(client) => {
                *session = Session { number: seen.number + 1, client, failed: None };
            }
            Err(error) => {
                session.failed = Some(Instant::now());
                tracing::error!(error = &error as &dyn std::error::Error, "the producer was not made anew");
            }
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
        let Self { topic, bytes, session, producer, report } = self;
        let unknown = |reason: String| Error::Unknown { topic: topic.clone(), reason };
        let limit = DELIVERY_TIMEOUT + MARGIN;
        let Ok(report) = tokio::time::timeout(limit, report).await else {
            producer.heal(&session);
            return Err(unknown(format!("no delivery report after {limit:?}")));
        };
        match report {
            Ok(Ok(delivered)) => Ok(delivered),
            Ok(Err(source)) => {
                producer.heal(&session);
                Err(undelivered(&topic, bytes, source))
            }
            Err(_) => Err(unknown("the producer was replaced".to_owned())),
        }
    }
}

/// Hands delivery reports to those who wait for them.
struct Reports {
    no_brokers: AtomicBool,
    refusals: Refusals,
    /// How many statistics in a row know of no broker that answers.
    away: AtomicU32,
    /// A refusal that another client may not meet.
    curable: Mutex<Option<String>>,
}

impl Reports {
    fn new(refusals: Refusals) -> Self {
        let (no_brokers, away) = (AtomicBool::new(false), AtomicU32::new(0));
        Self { no_brokers, refusals, away, curable: Mutex::default() }
    }

    /// Whether there is no broker left that anything could be sent to.
    fn no_brokers(&self) -> bool {
        self.no_brokers.load(Ordering::Relaxed)
    }

    /// Why another client is to be made: this one knows no broker, or one refuses it that may let another in.
    fn lost(&self) -> Option<String> {
        let what = "producer";
        if self.no_brokers() {
            return Some(Error::NoBrokers { what }.to_string());
        }
        if let Some(reason) = lock(&self.curable).clone() {
            return Some(Error::Refused { what, reason }.to_string());
        }
        // Not every refusal is told as one, and files that the properties name may have changed.
        let long_away = self.refusals.has_file() && self.away.load(Ordering::Relaxed) >= AWAY;
        long_away
            .then(|| self.refusals.reason().unwrap_or_else(|| "no broker has answered for long".to_owned()))
    }
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        connection::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.refusals.hear(&error, reason);
    }

    fn stats(&self, statistics: Statistics) {
        let brokers = Brokers::of(&statistics);
        self.no_brokers.store(brokers == Brokers::Forgotten, Ordering::Relaxed);
        let before = self.away.load(Ordering::Relaxed);
        let away = if brokers == Brokers::Reachable { 0 } else { before.saturating_add(1) };
        self.away.store(away, Ordering::Relaxed);
        self.refusals.see(&statistics);
        *lock(&self.curable) = self.refusals.curable();
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<oneshot::Sender<Report>>;

    fn delivery(&self, result: &DeliveryResult<'_>, tell: Self::DeliveryOpaque) {
        let report = match result {
            Ok(message) => Ok(Delivered { partition: message.partition(), offset: message.offset() }),
            Err((error, _)) => Err(error.clone()),
        };
        // Nobody may be waiting any more.
        let _ = tell.send(report);
    }
}

/// Waits for reports until the client is held by nobody else, and then drops it, which may block for long. Each wait
/// ends with up to a millisecond of spinning in the library, so it is a long one; reports end it at once.
fn poll(client: &Weak<Client>) {
    while let Some(client) = client.upgrade() {
        client.poll(Duration::from_secs(1));
        if client.context().no_brokers() {
            // Nothing will ever be sent: those who wait are told now, and try again with another client.
            client.purge(PurgeConfig::default().queue().inflight());
        }
    }
}

fn create(connection: &Connection, batches: Batches) -> Result<Arc<Client>, Error> {
    let (mut config, refusals) = connection.prepare(&[
        ("enable.idempotence", "true".to_owned()),
        ("acks", "all".to_owned()),
        // Commands and status are few and waited for: never hold one back to fill a batch.
        ("linger.ms", "0".to_owned()),
        ("partitioner", "murmur2_random".to_owned()),
        ("allow.auto.create.topics", "false".to_owned()),
        ("delivery.timeout.ms", DELIVERY_TIMEOUT.as_millis().to_string()),
        ("queue.buffering.max.kbytes", "65536".to_owned()),
        (STATISTICS.0, STATISTICS.1.to_owned()),
    ])?;
    if batches == Batches::One {
        // Whatever else is asked for. One at a time, because what is on its way behind a refused record is refused, too.
        config.set("batch.num.messages", "1").set("max.in.flight.requests.per.connection", "1");
    }
    let client = config.create_with_context(Reports::new(refusals));
    let client: Arc<Client> = Arc::new(client.map_err(|source| not_made("producer", source))?);
    let weak = Arc::downgrade(&client);
    let thread = std::thread::Builder::new().name("kafka-producer".to_owned()).spawn(move || poll(&weak));
    thread.map_err(|source| Error::Thread { what: "the producer", source: source.into() })?;
    Ok(client)
}

/// An error before anything was sent.
fn refused(topic: &str, bytes: usize, source: KafkaError) -> Error {
    match source {
        KafkaError::MessageProduction(Code::MessageSizeTooLarge) => {
            Error::TooLarge { topic: topic.to_owned(), bytes }
        }
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
mod tests;
