//! The relay: what Postgres shows as unpublished goes to Kafka, newest state only.
//!
//! *Invariant:* a position is marked published only after Kafka's word, and only if it is still what the database should
//! be. A crash between the two publishes twice, which readers bear: the highest position wins.

use std::time::{Duration, Instant};

use bus::{Delivered, Message, Producer};
use domain::{DatabaseId, Position};
use runtime::backoff::Retry;
use runtime::health::Heartbeat;
use runtime::{Backoff, CancellationToken};
use store::{Instruction, Store};
use wire::headers;

use crate::doorbell::Doorbell;
use crate::metrics::Metrics;

/// Most instructions of one round.
const BATCH: u32 = 500;
/// How long the table is left alone when nothing rings.
const FLOOR: Duration = Duration::from_millis(500);
/// Patience with one round: longer than the producer's own.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);
/// How often the backlog is measured.
const MEASURE_EVERY: Duration = Duration::from_secs(5);
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));

/// Publishes instructions.
#[derive(Debug)]
pub struct Relay {
    /// Where they are minted.
    pub store: Store,
    /// Where they go.
    pub producer: Producer,
    /// The topic.
    pub topic: String,
    /// Rung after each mint of this process.
    pub doorbell: Doorbell,
    /// What is counted.
    pub metrics: Metrics,
}

/// What a round did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing was unpublished.
    Idle,
    /// Kafka took all that was tried; `more` says whether others wait.
    Published {
        /// How many.
        count: usize,
        /// Whether the round was full.
        more: bool,
    },
}

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres.
    #[error("read or mark what is unpublished")]
    Store(#[source] store::Error),
    /// Kafka did not take some; the others are marked.
    #[error("publish {failed} of {count} instructions")]
    Publish {
        /// How many were not taken.
        failed: usize,
        /// How many were tried.
        count: usize,
        /// Of the first.
        #[source]
        source: bus::Error,
    },
}

impl Relay {
    /// Publishes until `stop`; a round under way is finished.
    pub async fn run(self, heartbeat: Heartbeat, stop: CancellationToken) {
        let mut retry = BACKOFF.start();
        let mut measured: Option<Instant> = None;
        while !stop.is_cancelled() {
            heartbeat.beat();
            let round = runtime::deadline(DEADLINE, "a round of the relay", self.step()).await;
            let wait = match round {
                Ok(Ok(Step::Published { more: true, .. })) => Duration::ZERO,
                Ok(Ok(Step::Idle | Step::Published { more: false, .. })) => {
                    retry.reset();
                    FLOOR
                }
                Ok(Err(error)) => self.failed(&error, &mut retry),
                Err(late) => self.failed(&late, &mut retry),
            };
            if measured.is_none_or(|last| last.elapsed() >= MEASURE_EVERY) {
                measured = Some(Instant::now());
                self.measure().await;
            }
            tokio::select! {
                () = self.doorbell.wait(wait) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// One round: reads, publishes, marks.
    pub async fn step(&self) -> Result<Step, Error> {
        let waiting = self.store.unpublished(BATCH).await.map_err(Error::Store)?;
        for unreadable in &waiting.unreadable {
            let reason = runtime::telemetry::chain(unreadable);
            tracing::error!(reason, "an instruction cannot be read: it is not published");
        }
        let count = waiting.instructions.len();
        if count == 0 {
            return Ok(Step::Idle);
        }
        let (taken, failures) = self.publish(&waiting.instructions).await;
        self.store.mark_published(&taken).await.map_err(Error::Store)?;
        self.metrics.published.inc_by(taken.len() as u64);
        let failed = failures.len();
        self.metrics.publish_failures.inc_by(failed as u64);
        match failures.into_iter().next() {
            Some(source) => Err(Error::Publish { failed, count, source }),
            None => Ok(Step::Published { count, more: waiting.more }),
        }
    }

    /// Queues all and then waits for all; says what Kafka took.
    async fn publish(&self, instructions: &[Instruction]) -> (Vec<(DatabaseId, Position)>, Vec<bus::Error>) {
        let (mut taken, mut failures) = (Vec::with_capacity(instructions.len()), Vec::new());
        let mut sent = Vec::with_capacity(instructions.len());
        for instruction in instructions {
            match self.producer.enqueue(&message(&self.topic, instruction)) {
                Ok(pending) => sent.push((instruction.database, instruction.position, pending)),
                Err(source) => failures.push(source),
            }
        }
        for (database, position, pending) in sent {
            match pending.wait().await {
                Ok(delivered) => {
                    told(database, position, delivered);
                    taken.push((database, position));
                }
                Err(source) => failures.push(source),
            }
        }
        (taken, failures)
    }

    /// Says once that rounds fail, and how long to wait.
    fn failed(&self, error: &(dyn std::error::Error + 'static), retry: &mut Retry) -> Duration {
        let reason = runtime::telemetry::chain(error);
        if retry.attempts() == 0 {
            tracing::error!(
                reason,
                kafka.topic = self.topic,
                "instructions wait: a round of the relay failed"
            );
        } else {
            tracing::debug!(reason, "a round of the relay failed again");
        }
        retry.next_delay().max(BACKOFF.ceiling(0))
    }

    async fn measure(&self) {
        match runtime::deadline(DEADLINE, "the backlog", self.store.backlog()).await {
            Ok(Ok(backlog)) => {
                self.metrics.outbox_pending.set(backlog.databases);
                self.metrics.outbox_oldest_age.set(backlog.oldest_seconds);
            }
            Ok(Err(error)) => tracing::debug!(reason = runtime::telemetry::chain(&error), "no backlog"),
            Err(late) => tracing::debug!(reason = %late, "no backlog"),
        }
        if let Ok(Ok(counts)) = runtime::deadline(DEADLINE, "what is parked", self.store.parked_count()).await
        {
            self.metrics.parked(&counts);
        }
    }
}

fn told(database: DatabaseId, position: Position, delivered: Delivered) {
    tracing::info!(
        db.id = %database,
        db.position = %position,
        kafka.partition = delivered.partition,
        kafka.offset = delivered.offset,
        "instruction published"
    );
}

/// The record of an instruction.
pub(crate) fn message(topic: &str, instruction: &Instruction) -> Message {
    let record = wire::Instruction {
        id: instruction.id,
        database: instruction.database,
        tenant: instruction.tenant.clone(),
        cluster: instruction.cluster.clone(),
        operation: instruction.operation,
        operation_kind: instruction.operation_kind,
        position: instruction.position,
        desired: instruction.desired.clone(),
        issued_at: instruction.minted_at,
        actor: instruction.actor.clone(),
    };
    let mut headers = vec![
        (headers::EPOCH.to_owned(), instruction.position.epoch.to_string().into_bytes()),
        (headers::SEQ.to_owned(), instruction.position.seq.to_string().into_bytes()),
        (headers::CLUSTER.to_owned(), instruction.cluster.as_str().as_bytes().to_vec()),
        (headers::SCHEMA.to_owned(), wire::SCHEMA.to_string().into_bytes()),
    ];
    if let Some(traceparent) = &instruction.traceparent {
        headers.push((headers::TRACEPARENT.to_owned(), traceparent.clone().into_bytes()));
    }
    Message { topic: topic.to_owned(), key: record.key(), payload: record.encode(), headers }
}
