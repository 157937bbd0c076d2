//! The relay: what Postgres shows as unpublished goes to Kafka, newest state only.
//!
//! *Invariant:* a position is marked published only after Kafka's word, and only if it is still what the database should
//! be. A crash between the two publishes twice, which readers bear: the highest position wins. So any number of relays
//! may run. *Invariant:* nobody waits for another database: what cannot be read or sent is set aside until the next mint,
//! what somebody holds locked is marked later, what Kafka took is marked while others still wait for its word, and no round
//! waits for long for those.

mod doubts;
mod measure;
mod portion;
mod publish;
mod reading;
mod record;
mod round;
mod sent;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bus::Producer;
use domain::{DatabaseId, Position};
use runtime::backoff::Retry;
use runtime::health::Heartbeat;
use runtime::{Backoff, CancellationToken};
use store::{Instruction, SetAside, Store, Unpublished, Unreadable};
use tokio::sync::watch;

use doubts::{Asked, Doubts};
use reading::Reading;
use round::Word;
use sent::{Sent, told};

pub(crate) use record::{message, size};

use crate::doorbell::Doorbell;
use crate::metrics::Metrics;

/// Passed after Kafka took an instruction and before that is marked; its subject is the database.
pub const SENT: &str = "backend.relay.sent";

/// Instructions that are queued, and marked, at once.
const STRETCH: usize = 500;
/// How long the table is left alone when nothing rings.
const FLOOR: Duration = Duration::from_millis(500);
/// Patience with one round: longer than the producer's own.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);
/// How long a round may go on when the program is to end: brokers that are away must not hold up a restart.
const LAST_ROUND: Duration = Duration::from_secs(5);
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));

/// Publishes instructions.
#[derive(Debug)]
pub struct Relay {
    store: Store,
    producer: Producer,
    topic: String,
    doorbell: Doorbell,
    metrics: Metrics,
    /// What Kafka took in the last round and could not be marked then: it is not sent again.
    delivered: Mutex<BTreeMap<DatabaseId, Position>>,
    /// What Kafka was not heard of in earlier rounds: nothing of these databases is sent.
    doubts: Mutex<Doubts<Word>>,
    reading: Reading,
}

/// What a round did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing was unpublished.
    Idle,
    /// Nothing failed; `more` says whether others wait.
    Published {
        /// How many were tried and are not in doubt.
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

/// The moment at which a round that is still under way has lasted too long for a program that is to end.
async fn overtime(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(LAST_ROUND).await;
}

impl Relay {
    /// A relay from a store to a topic; `doorbell` is rung after each mint of this process.
    pub fn new(
        store: Store,
        producer: Producer,
        topic: String,
        doorbell: Doorbell,
        metrics: Metrics,
    ) -> Self {
        let (delivered, doubts, reading) = (Mutex::default(), Mutex::default(), Reading::of(store.clone()));
        Self { store, producer, topic, doorbell, metrics, delivered, doubts, reading }
    }

    /// The topic it publishes to.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Publishes until `stop`; a round under way has a few seconds more. What waits is measured beside the rounds: one that
    /// Kafka does not answer lasts as long as the producer's patience, and that is when people look.
    ///
    /// Nothing is published while the topic does not count as many partitions as everybody is told (`counted`): keys would
    /// stand in other partitions than before, and two records of one database could be read in any order.
    pub async fn run(self, heartbeat: Heartbeat, counted: watch::Receiver<bool>, stop: CancellationToken) {
        tokio::join!(self.publish_until(&heartbeat, &counted, &stop), self.measure_until(&stop));
    }

    async fn publish_until(
        &self,
        heartbeat: &Heartbeat,
        counted: &watch::Receiver<bool>,
        stop: &CancellationToken,
    ) {
        let mut retry = BACKOFF.start();
        while !stop.is_cancelled() {
            heartbeat.beat();
            if !*counted.borrow() {
                runtime::backoff::sleep(FLOOR, stop).await;
                continue;
            }
            let round = tokio::select! {
                round = runtime::deadline(DEADLINE, "a round of the relay", self.step()) => round,
                // What Kafka took meanwhile is not marked, and so is published once more by whoever comes next.
                () = overtime(stop) => return,
            };
            let wait = match round {
                Ok(Ok(Step::Published { more: true, .. })) => Duration::ZERO,
                Ok(Ok(Step::Idle | Step::Published { more: false, .. })) => {
                    retry.reset();
                    FLOOR
                }
                Ok(Err(error)) => self.failed(&error, &mut retry),
                Err(late) => self.failed(&late, &mut retry),
            };
            tokio::select! {
                () = self.doorbell.wait(wait) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// One round: reads, publishes, marks; and reads ahead meanwhile if there is more. What is in doubt is left out.
    pub async fn step(&self) -> Result<Step, Error> {
        let (heard, unsent) = self.resolve();
        // Before anything is read: a portion may hold fewer than these, and the others would be sent again.
        for stretch in heard.chunks(STRETCH) {
            self.mark(stretch).await?;
        }
        let (in_doubt, full) = {
            let doubts = self.doubts();
            (doubts.databases(), doubts.is_full())
        };
        let waiting = if full {
            Unpublished::default()
        } else {
            self.reading.next(&in_doubt).await.map_err(Error::Store)?
        };
        let count = waiting.instructions.len();
        let beside = [databases(&waiting), in_doubt].concat();
        let (known, fresh) = self.part(waiting.instructions);
        let ahead = self.reading.read_ahead(waiting.more, &beside);
        let (mut sent, ()) = tokio::join!(self.publish(&known, &fresh), ahead);
        if !matches!(sent.marked, Ok(marked) if marked == count) {
            // Some are not marked: they wait longest, and Kafka may have them already.
            self.reading.forget();
        }
        sent.failures.extend(unsent);
        self.metrics.published.inc_by(sent.taken as u64);
        self.metrics.publish_failures.inc_by(sent.failures.len() as u64);
        let marked = sent.marked?;
        // Last, because it may have to wait for whoever holds the database.
        for instruction in sent.too_large {
            self.try_alone(instruction).await?;
        }
        for unreadable in &waiting.unreadable {
            self.set_aside_unreadable(unreadable).await?;
        }
        let failed = sent.failures.len();
        match sent.failures.into_iter().next() {
            Some(source) => Err(Error::Publish { failed, count: count.max(failed), source }),
            None if count == 0 => Ok(Step::Idle),
            // A round that moved nothing is not followed by another at once.
            None => Ok(Step::Published { count: count - sent.in_doubt, more: waiting.more && marked > 0 }),
        }
    }

    /// What the last round sent and could not mark, and what is to be sent.
    fn part(&self, instructions: Vec<Instruction>) -> (Vec<Asked>, Vec<Instruction>) {
        let delivered = self.delivered();
        let is_delivered = |one: &Instruction| delivered.get(&one.database) == Some(&one.position);
        let (known, fresh): (Vec<_>, Vec<_>) = instructions.into_iter().partition(is_delivered);
        (known.into_iter().map(|one| (one.database, one.position)).collect(), fresh)
    }

    /// Marks what Kafka took. After Postgres failed once it is only remembered, to be marked in the next round.
    async fn note(&self, taken: &[Asked], sent: &mut Sent<'_>) {
        let Ok(before) = sent.marked else {
            self.delivered().extend(taken.iter().copied());
            return;
        };
        sent.marked = self.mark(taken).await.map(|marked| before + marked);
    }

    /// Marks what Kafka took, and remembers what could not be marked now.
    async fn mark(&self, sent: &[Asked]) -> Result<usize, Error> {
        self.delivered().extend(sent.iter().copied());
        if sent.is_empty() {
            return Ok(0);
        }
        for (database, _) in sent {
            runtime::failpoint::hit(SENT, database).await;
        }
        let marked: BTreeSet<DatabaseId> =
            self.store.mark(sent).await.map_err(Error::Store)?.into_iter().collect();
        // Marked, it is forgotten: whoever asks for it once more wants it sent.
        self.delivered().retain(|database, _| !marked.contains(database));
        Ok(marked.len())
    }

    /// A broker refuses a whole batch when one record is too large: each is tried alone before it is set aside.
    async fn try_alone(&self, instruction: &Instruction) -> Result<(), Error> {
        let (database, position) = (instruction.database, instruction.position);
        match self.producer.send(message(&self.topic, instruction)).await {
            Ok(delivered) => {
                told((database, position), delivered, true);
                self.metrics.published.inc();
                self.mark(&[(database, position)]).await?;
                Ok(())
            }
            Err(error @ bus::Error::TooLarge { .. }) => {
                let reason = runtime::telemetry::chain(&error);
                self.set_aside((database, position), SetAside::TooLarge, reason).await
            }
            Err(source) => Err(Error::Publish { failed: 1, count: 1, source }),
        }
    }

    async fn set_aside_unreadable(&self, unreadable: &Unreadable) -> Result<(), Error> {
        let Unreadable { database, position, error } = unreadable;
        let reason = runtime::telemetry::chain(error);
        self.set_aside((*database, *position), SetAside::Unreadable, reason).await
    }

    /// Nothing changes a minted state: what cannot be published now never can. The next mint is tried again.
    async fn set_aside(
        &self,
        (database, position): Asked,
        why: SetAside,
        reason: String,
    ) -> Result<(), Error> {
        if self.store.set_aside(database, position, why, &reason).await.map_err(Error::Store)? {
            self.metrics.set_aside(why.as_str());
            tracing::error!(
                db.id = %database,
                db.position = %position,
                why = why.as_str(),
                reason,
                "a desired state cannot be published and is set aside: its cluster learns of it only with the next change"
            );
        }
        Ok(())
    }

    fn doubts(&self) -> MutexGuard<'_, Doubts<Word>> {
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn delivered(&self) -> MutexGuard<'_, BTreeMap<DatabaseId, Position>> {
        self.delivered.lock().unwrap_or_else(PoisonError::into_inner)
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
}

/// Those of a portion.
fn databases(portion: &Unpublished) -> Vec<DatabaseId> {
    let unreadable = portion.unreadable.iter().map(|one| one.database);
    portion.instructions.iter().map(|one| one.database).chain(unreadable).collect()
}
