//! Topics made and checked, brokers asked. Never touches a record.
//!
//! A client that nobody answers any more is made anew. *Invariant:* a broker's refusal is an answer: rights that are taken
//! away do not come back with another client, and each new one connects and logs in again.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::metadata::MetadataTopic;

use crate::connection::{Quiet, not_made};
use crate::{Connection, Error, lock};

/// After so long without an answer another client is tried: one that has forgotten all brokers never finds any again, and
/// nothing tells it from one whose brokers are away.
const PATIENCE: Duration = Duration::from_secs(15);

/// A topic as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSettings {
    /// Its name.
    pub name: String,
    /// Number of partitions; never changed once there are records.
    pub partitions: i32,
    /// Copies of each partition.
    pub replication: i32,
    /// How long records are kept.
    pub retention: Duration,
}

impl TopicSettings {
    /// How long records are kept unless somebody says otherwise.
    pub const RETENTION: Duration = Duration::from_hours(7 * 24);
    /// How long one file takes records in. Files are deleted whole: the first record of one is kept so much longer.
    pub const SEGMENT: Duration = Duration::from_hours(12);

    /// A topic with the usual retention.
    pub fn new(name: impl Into<String>, partitions: i32, replication: i32) -> Self {
        Self { name: name.into(), partitions, replication, retention: Self::RETENTION }
    }
}

/// Administrates. Clones share one client.
#[derive(Clone)]
pub struct Admin(Arc<Inner>);

struct Inner {
    connection: Connection,
    patience: Duration,
    held: Mutex<Held>,
}

struct Held {
    client: Arc<AdminClient<Quiet>>,
    /// Since when no question was answered.
    silent_since: Option<Instant>,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}

impl Admin {
    /// Makes the client; it connects in the background.
    pub fn new(connection: &Connection) -> Result<Self, Error> {
        Self::with_patience(connection, PATIENCE)
    }

    fn with_patience(connection: &Connection, patience: Duration) -> Result<Self, Error> {
        let held = Mutex::new(Held { client: create(connection)?, silent_since: None });
        Ok(Self(Arc::new(Inner { connection: connection.clone(), patience, held })))
    }

    /// Creates the topics that are missing and checks the partition count of all. Answers the names of those created.
    pub async fn ensure_topics(
        &self,
        topics: &[TopicSettings],
        limit: Duration,
    ) -> Result<Vec<String>, Error> {
        let retentions: Vec<String> =
            topics.iter().map(|topic| topic.retention.as_millis().to_string()).collect();
        let segment = TopicSettings::SEGMENT.as_millis().to_string();
        let wanted: Vec<NewTopic<'_>> = topics
            .iter()
            .zip(&retentions)
            .map(|(topic, retention)| {
                NewTopic::new(&topic.name, topic.partitions, TopicReplication::Fixed(topic.replication))
                    .set("retention.ms", retention)
                    .set("segment.ms", &segment)
                    .set("cleanup.policy", "delete")
            })
            .collect();
        let options = AdminOptions::new().request_timeout(Some(limit)).operation_timeout(Some(limit));
        let results = self.client().create_topics(&wanted, &options).await;
        self.note(results.as_ref().err())?;
        let results = results.map_err(|source| Error::Ask { what: "new topics".to_owned(), source })?;
        let mut created = Vec::new();
        for result in results {
            match result {
                Ok(topic) => created.push(topic),
                Err((_, Code::TopicAlreadyExists)) => {}
                Err((topic, code)) => return Err(Error::CreateTopic { topic, reason: code.to_string() }),
            }
        }
        for topic in topics.iter().filter(|topic| !created.contains(&topic.name)) {
            self.check_partitions(&topic.name, topic.partitions, limit).await?;
        }
        Ok(created)
    }

    /// Whether a topic has the configured number of partitions.
    pub async fn check_partitions(&self, topic: &str, expected: i32, limit: Duration) -> Result<(), Error> {
        let found = self.partitions(topic, limit).await?;
        if found == expected {
            Ok(())
        } else {
            Err(Error::PartitionCount { topic: topic.to_owned(), expected, found })
        }
    }

    /// How long a record of a topic may still be found at most; `None` is for ever.
    ///
    /// # Errors
    /// When no broker answers in time, or none may say (right `DescribeConfigs` on the topic).
    pub async fn kept_for(&self, topic: &str, limit: Duration) -> Result<Option<Duration>, Error> {
        let options = AdminOptions::new().request_timeout(Some(limit)).operation_timeout(Some(limit));
        let client = self.client();
        let found = client.describe_configs(&[ResourceSpecifier::Topic(topic)], &options).await;
        self.note(found.as_ref().err())?;
        let asked = |source| Error::Ask { what: format!("settings of {topic}"), source };
        let found = found.map_err(asked)?.pop().unwrap_or(Err(Code::UnknownTopicOrPartition));
        let found = found.map_err(|code| asked(KafkaError::AdminOp(code)))?;
        let setting = |name| found.get(name).and_then(|entry| entry.value.as_deref());
        let settings = (setting("cleanup.policy"), setting("retention.ms"), setting("segment.ms"));
        let (Some(policy), Some(retention), Some(segment)) = settings else {
            // What a broker refuses to say the library gives as nothing.
            return Err(Error::Unsaid { topic: topic.to_owned() });
        };
        Ok(kept(policy, retention, segment))
    }

    /// The number of partitions of a topic.
    pub async fn partitions(&self, topic: &str, limit: Duration) -> Result<i32, Error> {
        let name = topic.to_owned();
        let count = self
            .ask(format!("partitions of {topic}"), move |client| {
                let metadata = client.inner().fetch_metadata(Some(&name), limit)?;
                let found = metadata.topics().iter().find(|t| t.name() == name);
                match found.and_then(MetadataTopic::error).map(Code::from) {
                    None => Ok(found.map_or(0, |t| t.partitions().len())),
                    // It may well be there.
                    Some(code @ Code::TopicAuthorizationFailed) => Err(KafkaError::MetadataFetch(code)),
                    Some(_) => Ok(0),
                }
            })
            .await?;
        match i32::try_from(count) {
            Ok(0) | Err(_) => Err(Error::NoTopic { topic: topic.to_owned() }),
            Ok(count) => Ok(count),
        }
    }

    /// The offset after the last record of a partition.
    pub async fn end_offset(&self, topic: &str, partition: i32, limit: Duration) -> Result<i64, Error> {
        Ok(self.reach(topic, partition, limit).await?.end)
    }

    /// The offsets of the oldest record of a partition and after its last one.
    pub async fn reach(&self, topic: &str, partition: i32, limit: Duration) -> Result<Range<i64>, Error> {
        let name = topic.to_owned();
        self.ask(format!("the reach of {topic}/{partition}"), move |client| {
            let (start, end) = client.inner().fetch_watermarks(&name, partition, limit)?;
            Ok(start..end)
        })
        .await
    }

    /// The library's own client.
    pub(crate) fn client(&self) -> Arc<AdminClient<Quiet>> {
        Arc::clone(&lock(&self.0.held).client)
    }

    /// Takes note of whether a question was answered; after a long silence the client is made anew.
    pub(crate) fn note(&self, error: Option<&KafkaError>) -> Result<(), Error> {
        let mut held = lock(&self.0.held);
        if error.is_none_or(is_answer) {
            held.silent_since = None;
        } else if held.silent_since.get_or_insert_with(Instant::now).elapsed() >= self.0.patience {
            let next = Held { client: create(&self.0.connection)?, silent_since: None };
            let last = std::mem::replace(&mut *held, next);
            // Its end may wait for brokers, which nobody else should.
            tokio::task::spawn_blocking(move || drop(last.client));
        }
        Ok(())
    }

    /// The library asks brokers by blocking.
    async fn ask<T: Send + 'static>(
        &self,
        what: String,
        question: impl FnOnce(&AdminClient<Quiet>) -> rdkafka::error::KafkaResult<T> + Send + 'static,
    ) -> Result<T, Error> {
        let client = self.client();
        let answer = tokio::task::spawn_blocking(move || question(&client)).await;
        let answer = answer
            .map_err(|source| Error::Thread { what: "a question to the brokers", source: source.into() })?;
        self.note(answer.as_ref().err())?;
        answer.map_err(|source| Error::Ask { what, source })
    }
}

/// By the settings of a topic. Records go with the file that they are in, once the newest in it is old enough.
fn kept(policy: &str, retention: &str, segment: &str) -> Option<Duration> {
    let milliseconds = |text: &str| text.parse::<u64>().ok().map(Duration::from_millis);
    let deletes = policy.split(',').any(|part| part.trim() == "delete");
    // No number is -1: without a bound.
    milliseconds(retention).filter(|_| deletes)?.checked_add(milliseconds(segment)?)
}

fn create(connection: &Connection) -> Result<Arc<AdminClient<Quiet>>, Error> {
    let client = connection.config(&[])?.create_with_context(Quiet);
    client.map(Arc::new).map_err(|source| not_made("admin client", source))
}

/// Whether an error is what a broker says, and not the library's word for a question that nobody answered. The library
/// counts its own errors below zero, among them what it makes of an answer that lacks what was asked for; the one of a
/// broker that stands there too is that of a broker that does not know what went wrong.
fn is_answer(error: &KafkaError) -> bool {
    let code = match error {
        KafkaError::AdminOp(code) => Some(*code),
        other => other.rdkafka_error_code(),
    };
    code.is_some_and(|code| {
        matches!(code, Code::Unknown | Code::UnknownTopic | Code::UnknownPartition) || code as i32 > 0
    })
}

#[cfg(test)]
mod tests;
