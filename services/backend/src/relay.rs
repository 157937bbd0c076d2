//! The relay: what Postgres shows as unpublished goes to Kafka, newest state only.
//!
//! *Invariant:* a position is marked published only after Kafka's word, and only if it is still what the database should
//! be. A crash between the two publishes twice, which readers bear: the highest position wins. So any number of relays
//! may run. *Invariant:* nobody waits for another database: what cannot be read or sent is set aside until the next mint,
//! what somebody holds locked is marked later, what Kafka took is marked while others still wait for its word, no round
//! waits for long for those, and what failed waits for itself alone.

mod damaged;
mod doubts;
mod measure;
mod pause;
mod portion;
mod publish;
mod reading;
mod record;
mod refusals;
mod round;
mod sent;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bus::Producer;
use domain::{DatabaseId, Position};
use runtime::health::Heartbeat;
use runtime::{Backoff, CancellationToken};
use store::{Instruction, SetAside, Store, Unpublished, Unreadable};
use tokio::sync::watch;

use damaged::Damaged;
use doubts::{Asked, Doubts};
use pause::Pause;
use reading::Reading;
use refusals::Refusals;
use round::Word;
use sent::Sent;

pub(crate) use record::size;

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
/// How long what Kafka did not take waits. Who waits because it took nothing of anybody is let go once it takes something.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));

/// Publishes instructions.
#[derive(Debug)]
pub struct Relay {
    store: Store,
    producer: Producer,
    /// For records that go alone; made when the first one is to, and gone when the last one went.
    one_by_one: Mutex<Option<Producer>>,
    topic: String,
    doorbell: Doorbell,
    metrics: Metrics,
    /// What Kafka took in the last round and could not be marked then: it is not sent again.
    delivered: Mutex<BTreeMap<DatabaseId, Position>>,
    /// What Kafka was not heard of in earlier rounds: nothing of these databases is sent.
    doubts: Mutex<Doubts<Word>>,
    /// What Kafka did not take in earlier rounds: of these databases nothing is sent before they are due or let go.
    refusals: Mutex<Refusals>,
    /// What Postgres failed at lately: it is left out for a while.
    damaged: Mutex<Damaged>,
    reading: Reading,
    /// How long a round waits for Kafka's word while nothing is in doubt.
    patience: Duration,
}

/// What a round did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing was to be sent.
    Idle,
    /// Some were sent, and not all of them failed; `more` says whether others wait.
    Published {
        /// How many were tried and are not in doubt.
        count: usize,
        /// Whether the next round has something to do at once.
        more: bool,
    },
}

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres.
    #[error("read or mark what is unpublished")]
    Store(#[source] store::Error),
    /// Kafka took none, for all that is known nobody's: all wait.
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
        let (one_by_one, delivered, doubts) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (refusals, reading) = (Mutex::new(Refusals::new(BACKOFF)), Reading::of(store.clone()));
        let damaged = Mutex::new(Damaged::new(damaged::PATIENCE));
        let patience = publish::PATIENCE;
        Self {
            store,
            producer,
            one_by_one,
            topic,
            doorbell,
            metrics,
            delivered,
            doubts,
            refusals,
            damaged,
            reading,
            patience,
        }
    }

    /// The same, each of whose rounds waits for so long for Kafka's word, which is a few seconds usually: for whoever asks for single
    /// rounds and has to know what came of each, however busy the brokers are.
    #[must_use]
    pub fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
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
        let mut pause = Pause::new();
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
            let is_dark = self.refusals().is_dark();
            let wait = match round {
                Ok(Ok(Step::Idle)) => pause.after_round(false, is_dark),
                Ok(Ok(Step::Published { more, .. })) => pause.after_round(more, is_dark),
                Ok(Err(error)) => self.failed(&error, &mut pause),
                Err(late) => self.failed(&late, &mut pause),
            };
            tokio::select! {
                () = pause::rest(wait, &self.doorbell, is_dark) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// One round: reads, publishes, marks; and reads ahead meanwhile if there is more. What is in doubt is left out, and what
    /// failed until it is due.
    pub async fn step(&self) -> Result<Step, Error> {
        let was_calm = self.refusals().is_calm();
        self.leave_one_by_one();
        let (heard, before) = self.resolve();
        // Before anything is read: a portion may hold fewer than these, and the others would be sent again.
        for stretch in heard.chunks(STRETCH) {
            self.mark(stretch).await?;
        }
        let (mut left_out, full) = left_out_of(&self.doubts(), &mut self.refusals(), Instant::now());
        left_out.extend(self.damaged().waiting(Instant::now()));
        let waiting = if full {
            Unpublished::default()
        } else {
            self.reading.next(&left_out).await.map_err(Error::Store)?
        };
        let count = waiting.instructions.len();
        let lasting = self.meet(&waiting.instructions, &waiting.damaged);
        let beside = [databases(&waiting), left_out].concat();
        let (known, fresh) = self.part(waiting.instructions);
        let ahead = self.reading.read_ahead(waiting.more, &beside);
        let (sent, ()) = tokio::join!(self.publish(&known, &fresh), ahead);
        if !matches!(sent.marked, Ok(marked) if marked == count) {
            // Some are not marked: they wait longest, and Kafka may have them already.
            self.reading.forget();
        }
        self.take_in(&sent);
        let sent = before.and(sent);
        self.tell_failures(&sent, was_calm);
        let marked = sent.marked?;
        for (asked, error) in sent.too_large {
            self.set_aside(asked, SetAside::TooLarge, runtime::telemetry::chain(&error)).await?;
        }
        for unreadable in waiting.unreadable.iter().chain(lasting) {
            self.set_aside_unreadable(unreadable).await?;
        }
        let failed = sent.failures.len();
        match sent.failures.into_iter().next() {
            Some((_, source)) if self.refusals().is_dark() => {
                Err(Error::Publish { failed, count: count.max(failed), source })
            }
            _ if count == 0 => Ok(Step::Idle),
            // A round that moved nothing is not followed by another at once.
            _ => Ok(Step::Published {
                count: count - sent.in_doubt,
                more: sent.suspected > 0 || (waiting.more && marked > 0),
            }),
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
    async fn note(&self, taken: &[Asked], sent: &mut Sent) {
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

    async fn set_aside_unreadable(&self, unreadable: &Unreadable) -> Result<(), Error> {
        let Unreadable { database, position, error } = unreadable;
        let reason = runtime::telemetry::chain(error);
        self.set_aside((*database, *position), SetAside::Unreadable, reason).await
    }

    /// Nothing changes a minted state: what cannot be published now never can. The next mint is tried again, and so is what somebody
    /// holds locked.
    async fn set_aside(
        &self,
        (database, position): Asked,
        why: SetAside,
        reason: String,
    ) -> Result<(), Error> {
        let is_aside = self.store.set_aside(database, position, why, &reason).await.map_err(Error::Store)?;
        if is_aside {
            self.refusals().settled(database);
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

    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn delivered(&self) -> MutexGuard<'_, BTreeMap<DatabaseId, Position>> {
        self.delivered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says once, until all are taken, that some are not; that none is says whoever waits for it.
    fn tell_failures(&self, sent: &Sent, was_calm: bool) {
        let told = !was_calm || self.refusals().is_dark();
        let Some((_, error)) = sent.failures.first().filter(|_| !told) else { return };
        tracing::warn!(
            count = sent.failures.len(),
            reason = runtime::telemetry::chain(error),
            kafka.topic = self.topic,
            "Kafka did not take some instructions: each is sent again after a while, and others go on"
        );
    }

    /// Says that rounds fail unless that was told, and how long to rest.
    fn failed(&self, error: &(dyn std::error::Error + 'static), pause: &mut Pause) -> Duration {
        let reason = runtime::telemetry::chain(error);
        let (wait, is_first) = pause.after_failure();
        if is_first {
            tracing::error!(
                reason,
                kafka.topic = self.topic,
                "instructions wait: a round of the relay failed"
            );
        } else {
            tracing::debug!(reason, "a round of the relay failed again");
        }
        wait
    }
}

/// The databases of which nothing is to be sent now, and whether they are so many that nothing is to be sent at all.
fn left_out_of(doubts: &Doubts<Word>, refusals: &mut Refusals, now: Instant) -> (Vec<DatabaseId>, bool) {
    let waiting = refusals.waiting(now);
    let full = doubts.is_full() || Refusals::are_enough(waiting.len());
    ([doubts.databases(), waiting].concat(), full)
}

/// Those of a portion.
fn databases(portion: &Unpublished) -> Vec<DatabaseId> {
    let unreadable = portion.unreadable.iter().chain(&portion.damaged).map(|one| one.database);
    portion.instructions.iter().map(|one| one.database).chain(unreadable).collect()
}

#[cfg(test)]
mod tests;
