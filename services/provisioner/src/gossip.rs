//! What is told on the gossip topic: outcomes and observations, keyed by database. Never read here.

mod silence;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use domain::{ClusterId, DatabaseId, InstructionId, OperationId, Position};
use runtime::health::Component;
use wire::{Gossip, Observation, Outcome, OutcomeKind, Said, headers};

use self::silence::Silences;
use crate::decide::Job;

/// Sends gossip.
#[derive(Debug, Clone)]
pub struct Teller {
    producer: bus::Producer,
    topic: String,
    partitions: i32,
    pace: Arc<bus::Pace>,
    silences: Arc<Mutex<Silences>>,
    /// Where it is told which partitions take nothing.
    component: Component,
}

/// An outcome was not told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It was sent, and did not arrive, or nobody knows.
    #[error("send it")]
    Send(#[source] bus::Error),
    /// It was not sent: its partition took nothing lately.
    #[error(
        "partition {partition} of {topic} took nothing when it was sent something last, and is tried again soon: {reason}"
    )]
    Silent {
        /// The topic of gossip.
        topic: String,
        /// Its partition.
        partition: i32,
        /// What became of the last send.
        reason: String,
    },
}

/// What is told within this time goes together, beyond so many that come after a silence.
const PERIOD: (Duration, u32) = (Duration::from_millis(50), 8);

/// The instruction that an outcome is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About<'a> {
    /// Of which database.
    pub database: DatabaseId,
    /// For which cluster.
    pub cluster: &'a ClusterId,
    /// Its position.
    pub position: Position,
    /// Its identity.
    pub instruction: InstructionId,
    /// The operation that asked for it.
    pub operation: OperationId,
    /// Trace of the request.
    pub traceparent: Option<&'a str>,
}

impl<'a> About<'a> {
    /// About this one.
    pub fn of(job: &'a Job) -> Self {
        let instruction = &job.instruction;
        Self {
            database: instruction.database,
            cluster: &instruction.cluster,
            position: instruction.position,
            instruction: instruction.id,
            operation: instruction.operation,
            traceparent: job.traceparent.as_deref(),
        }
    }
}

impl Teller {
    /// A teller of one topic of so many partitions.
    pub fn new(producer: bus::Producer, (topic, partitions): (&str, i32), component: Component) -> Self {
        let (pace, silences) = (Arc::new(bus::Pace::new(PERIOD.0, PERIOD.1)), Arc::default());
        component.set_ok();
        Self { producer, topic: topic.to_owned(), partitions, pace, silences, component }
    }

    /// Tells what became of an instruction and waits until it is written; not where others have just waited in vain.
    pub async fn outcome(
        &self,
        about: &About<'_>,
        kind: OutcomeKind,
        code: &str,
        message: &str,
    ) -> Result<(), Error> {
        let outcome = Outcome {
            position: about.position,
            instruction: about.instruction,
            operation: about.operation,
            kind,
            code: code.to_owned(),
            message: shortened(message),
        };
        let trace =
            runtime::trace::current_traceparent().or_else(|| about.traceparent.map(ToOwned::to_owned));
        let gossip = gossip(about.database, about.cluster.clone(), Said::Outcome(outcome));
        let message = self.message(&gossip, trace);
        let partition = self.partition(&message.key);
        let refused = self.silences().refuses(partition, Instant::now());
        if let Some(reason) = refused {
            return Err(Error::Silent { topic: self.topic.clone(), partition, reason });
        }
        self.send(message).await.map_err(Error::Send)
    }

    /// The record of an observation.
    pub fn observation(&self, database: DatabaseId, cluster: &ClusterId, seen: Observation) -> bus::Message {
        let trace = Some(seen.traceparent.clone()).filter(|trace| !trace.is_empty());
        self.message(&gossip(database, cluster.clone(), Said::Observation(Box::new(seen))), trace)
    }

    /// Sends a record that was made here.
    pub async fn send(&self, message: bus::Message) -> Result<(), bus::Error> {
        let partition = self.partition(&message.key);
        self.pace.turn().await;
        let sent = self.producer.send(message).await.map(drop);
        self.note(partition, sent.as_ref().err());
        sent
    }

    /// Forgets the partitions that took nothing where nobody has anything to tell any more: whether they take something by now is not
    /// known. To be asked now and then.
    pub fn forget(&self, now: Instant) {
        let mut silences = self.silences();
        if silences.forget(now) {
            self.show(&silences);
        }
    }

    fn show(&self, silences: &Silences) {
        match silences.complaint(&self.topic) {
            None => self.component.set_ok(),
            Some(complaint) => self.component.set_failing(complaint),
        }
    }

    fn partition(&self, key: &str) -> i32 {
        bus::partition_of(key.as_bytes(), self.partitions)
    }

    fn silences(&self) -> MutexGuard<'_, Silences> {
        self.silences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what became of a send. One that is too large for any partition says nothing of this one.
    fn note(&self, partition: i32, error: Option<&bus::Error>) {
        if matches!(error, Some(bus::Error::TooLarge { .. })) {
            return;
        }
        let refusal = error.map(|error| runtime::telemetry::chain(error));
        let (topic, reason) = (self.topic.as_str(), refusal.clone());
        let mut silences = self.silences();
        if !silences.heard(partition, refusal, Instant::now()) {
            return;
        }
        self.show(&silences);
        drop(silences);
        match reason {
            None => tracing::info!(
                kafka.topic = topic,
                kafka.partition = partition,
                "the partition of gossip takes what is told again"
            ),
            Some(reason) => tracing::warn!(
                kafka.topic = topic,
                kafka.partition = partition,
                reason,
                "a partition of gossip takes nothing: what became of instructions of its databases is told when it does, and \
                 others go on; see whether it has a leader (kafka-topics.sh --describe --unavailable-partitions)"
            ),
        }
    }

    fn message(&self, gossip: &Gossip, trace: Option<String>) -> bus::Message {
        let position = match &gossip.said {
            Said::Outcome(outcome) => outcome.position,
            Said::Observation(seen) => seen.position,
        };
        let mut headers = vec![
            (headers::SCHEMA.to_owned(), Gossip::SCHEMA.to_string().into_bytes()),
            (headers::CLUSTER.to_owned(), gossip.cluster.to_string().into_bytes()),
            (headers::EPOCH.to_owned(), position.epoch.to_string().into_bytes()),
            (headers::SEQ.to_owned(), position.seq.to_string().into_bytes()),
        ];
        headers.extend(trace.map(|trace| (headers::TRACEPARENT.to_owned(), trace.into_bytes())));
        bus::Message { topic: self.topic.clone(), key: gossip.key(), payload: gossip.encode(), headers }
    }
}

fn gossip(database: DatabaseId, cluster: ClusterId, said: Said) -> Gossip {
    Gossip { database, cluster, said_at: jiff::Timestamp::now(), said }
}

/// The most characters of an API server's message that are passed on.
const LONGEST: usize = 2_000;

fn shortened(message: &str) -> String {
    match message.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} …", &message[..end]),
        None => message.to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use runtime::Health;
    use runtime::health::State;

    use super::*;
    use crate::decide::tests::{RULES, record};
    use crate::decide::{Work, decide};

    /// Of brokers where nothing listens.
    pub(crate) fn teller() -> (Teller, Health) {
        let producer = bus::Producer::new(&bus::Connection::new("127.0.0.1:1", "test")).unwrap();
        let health = Health::new();
        let component = health.readiness.informative("gossip");
        (Teller::new(producer, ("gossip", 64), component), health)
    }

    /// The partition of a database took nothing just now.
    pub(crate) fn silent_to(teller: &Teller, database: DatabaseId) {
        let lost = bus::Error::Unknown { topic: "gossip".to_owned(), reason: "no leader".to_owned() };
        teller.note(teller.partition(&database.to_string()), Some(&lost));
    }

    #[tokio::test]
    async fn nobody_waits_for_a_partition_that_took_nothing_and_it_is_told_which_that_is() {
        let Work::Carry(job) = decide(record(), &RULES) else { panic!("it was not taken") };
        let (teller, health) = teller();
        let state = || health.readiness.report()["gossip"].state.clone();
        assert_eq!(state(), State::Ok);
        let database = job.instruction.database;
        let partition = teller.partition(&database.to_string());
        silent_to(&teller, database);
        let refused = teller.outcome(&About::of(&job), OutcomeKind::Applied, "", "").await.unwrap_err();
        assert!(
            matches!(refused, Error::Silent { partition: found, .. } if found == partition),
            "{refused:?}"
        );
        assert!(matches!(state(), State::Failing(text) if text.contains(&format!("({partition})"))));
        let large = bus::Error::TooLarge { topic: "gossip".to_owned(), bytes: 7 };
        teller.note(partition, None);
        teller.note(partition, Some(&large));
        assert_eq!(state(), State::Ok);
    }

    #[test]
    fn a_partition_where_nobody_has_anything_to_tell_any_more_is_not_complained_of_for_ever() {
        let (teller, health) = teller();
        let state = || health.readiness.report()["gossip"].state.clone();
        silent_to(&teller, DatabaseId::mint());
        let now = Instant::now();
        teller.forget(now);
        assert!(matches!(state(), State::Failing(_)), "it may still be tried");
        teller.forget(now + Duration::from_hours(1));
        assert_eq!(state(), State::Ok);
    }

    #[test]
    fn long_messages_are_cut_at_a_character() {
        assert_eq!(shortened("short"), "short");
        let cut = shortened(&"ä".repeat(LONGEST + 5));
        assert_eq!(cut.chars().count(), LONGEST + 2);
    }
}
