//! What is told on the gossip topic: outcomes and observations, keyed by database. Never read here.

use std::sync::Arc;
use std::time::Duration;

use domain::{ClusterId, DatabaseId, InstructionId, OperationId, Position};
use wire::{Gossip, Observation, Outcome, OutcomeKind, Said, headers};

use crate::decide::Job;

/// Sends gossip.
#[derive(Debug, Clone)]
pub struct Teller {
    producer: bus::Producer,
    topic: String,
    pace: Arc<bus::Pace>,
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
    /// A teller of one topic.
    pub fn new(producer: bus::Producer, topic: impl Into<String>) -> Self {
        let pace = Arc::new(bus::Pace::new(PERIOD.0, PERIOD.1));
        Self { producer, topic: topic.into(), pace }
    }

    /// Tells what became of an instruction and waits until it is written.
    pub async fn outcome(
        &self,
        about: &About<'_>,
        kind: OutcomeKind,
        code: &str,
        message: &str,
    ) -> Result<(), bus::Error> {
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
        self.send(self.message(&gossip, trace)).await
    }

    /// The record of an observation.
    pub fn observation(&self, database: DatabaseId, cluster: &ClusterId, seen: Observation) -> bus::Message {
        let trace = Some(seen.traceparent.clone()).filter(|trace| !trace.is_empty());
        self.message(&gossip(database, cluster.clone(), Said::Observation(Box::new(seen))), trace)
    }

    /// Sends a record that was made here.
    pub async fn send(&self, message: bus::Message) -> Result<(), bus::Error> {
        self.pace.turn().await;
        self.producer.send(message).await.map(drop)
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
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_at_a_character() {
        assert_eq!(shortened("short"), "short");
        let cut = shortened(&"ä".repeat(LONGEST + 5));
        assert_eq!(cut.chars().count(), LONGEST + 2);
    }
}
