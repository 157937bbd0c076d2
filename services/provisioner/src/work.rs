//! What is done about a record, in this order: act, tell, and only then let its offset be committed.
//!
//! An instruction is applied; refused, it becomes a dead letter; where its cluster cannot take it, it is parked. When
//! neither the cluster nor Postgres can take it, it is held, and with it, in the end, the consumption of its partition.

mod about;
mod error;
mod piece;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::Disposition;
use bus::consumer::{Placed, Turn};
use domain::{ClusterId, ClusterState};
use runtime::Backoff;
use store::{Parked, Store, in_time};
use tracing::Instrument as _;
use wire::OutcomeKind;

use self::about::{cluster, log, origin, parked, record, span};
pub use self::error::Error;
pub use self::piece::Piece;
use crate::apply::{Applied, apply};
use crate::classify::{Trouble, Verdict, code};
use crate::decide::{self, Early, Job, Reason, Work};
use crate::fleet::breaker::Refusal;
use crate::fleet::{Fleet, Found, Member};
use crate::gossip::{About, Teller};
use crate::letters::Letters;
use crate::metrics::Metrics;

/// Passed before an instruction of the topic is carried out; its subject is the database, here and in those below.
pub const BEGUN: &str = "provisioner.work.begun";
/// Passed after it was carried out, before what became of it is made durable and told.
pub const CARRIED: &str = "provisioner.work.carried";
/// Passed after it was told, before its offset may be committed.
pub const TOLD: &str = "provisioner.work.told";

/// How often an instruction is tried before it is parked, while its cluster gives no clear answer.
const TRIES: u32 = 3;
/// How long an instruction waits in all for a cluster that cannot take it this moment, before it is parked.
pub const PATIENCE: Duration = Duration::from_secs(3);
const BETWEEN_TRIES: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2));
/// How long a held record rests.
const HELD: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));
/// How long an instruction is parked at first.
pub const PARKED_FIRST: Duration = Duration::from_secs(1);
/// How long one is parked that waits for a newer program.
pub const PARKED_FOR_NEWER: Duration = Duration::from_mins(1);

/// Carries instructions out.
#[derive(Debug)]
pub struct Worker {
    /// The clusters.
    pub fleet: Arc<Fleet>,
    /// Parked instructions and dead letters.
    pub store: Store,
    /// Gossip.
    pub teller: Teller,
    /// Counters.
    pub metrics: Metrics,
    /// Name of this program among those that set records aside.
    pub consumer: String,
    /// How long one call to a cluster may take.
    pub call_timeout: Duration,
    /// What holds for every record.
    pub rules: decide::Rules,
    /// Databases whose dead letters are open.
    pub letters: Letters,
}

/// What became of an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The resource holds it.
    Applied,
    /// The resource holds something newer.
    Superseded(String),
    /// Its cluster cannot take it now.
    Park(Trouble),
    /// Is not taken, and kept among the dead letters.
    Refused(Reason),
}

impl bus::Handler for Worker {
    type Work = Piece;

    fn place(&self, record: bus::Record) -> Placed<Piece> {
        let work = decide::decide(record, &self.rules);
        Placed { place: decide::place(&work), work: Piece::of(work) }
    }

    async fn handle(&self, piece: Arc<Piece>, attempt: u32, turn: &Turn) -> Disposition {
        let span = span(&piece.work);
        async {
            match self.step(&piece, turn).await {
                Ok(()) => Disposition::Done,
                Err(error) => self.held(&piece.work, &error, attempt),
            }
        }
        .instrument(span)
        .await
    }

    async fn panicked(&self, piece: Arc<Piece>, panics: u32) -> Disposition {
        if panics < TRIES {
            return Disposition::Hold(HELD.delay(panics, runtime::backoff::random_share()));
        }
        let reason =
            Reason::new(decide::code::PANICKED, "the handling of this record panicked again and again");
        match self.bury(record(&piece.work), &reason).await {
            Ok(()) => Disposition::Done,
            Err(error) => self.held(&piece.work, &error, panics),
        }
    }

    fn superseded(&self, piece: &Piece) {
        if let Some(cluster) = cluster(&piece.work) {
            self.metrics.instruction("skipped", cluster);
        }
    }
}

impl Worker {
    async fn step(&self, piece: &Piece, turn: &Turn) -> Result<(), Error> {
        match &piece.work {
            Work::Bury(dead) => self.bury(&dead.record, &dead.reason).await,
            Work::Wait(early) => self.shelve(early).await,
            Work::Carry(job) => {
                let database = job.instruction.database;
                let ended = match piece.settled.get() {
                    Some(ended) => ended,
                    None => self.carry_and_settle(piece, job).await?,
                };
                // Its cluster and Postgres are done with it, and Kafka takes what many say together.
                turn.end();
                self.tell(job, ended).await?;
                runtime::failpoint::hit(TOLD, database).await;
                Ok(())
            }
        }
    }

    /// Acts, and makes durable what became of it, before anybody is told.
    async fn carry_and_settle<'a>(&self, piece: &'a Piece, job: &Job) -> Result<&'a Ended, Error> {
        let database = job.instruction.database;
        runtime::failpoint::hit(BEGUN, database).await;
        let ended = self.carry(job).await?;
        runtime::failpoint::hit(CARRIED, database).await;
        self.settle(job, &ended).await?;
        Ok(piece.settled.get_or_init(|| ended))
    }

    /// Acts: applies the instruction, or says why not.
    pub async fn carry(&self, job: &Job) -> Result<Ended, Error> {
        let cluster = &job.instruction.cluster;
        let member = match self.fleet.find(cluster).await {
            Found::Member(member) => member,
            Found::Unreadable(reason) => {
                let message = format!("the registration of cluster {cluster} cannot be read: {reason}");
                return Ok(Ended::Park(Trouble::of_cluster(code::REGISTRATION, message)));
            }
            Found::NotKnown(reason) => return Err(Error::Registry { reason }),
            Found::Unknown => return Ok(Ended::Refused(unregistered(cluster))),
        };
        if member.cluster.state == ClusterState::Disabled {
            let message = format!("cluster {cluster} is out of service");
            return Ok(Ended::Park(Trouble::of_cluster(code::DISABLED, message)));
        }
        let begun = Instant::now();
        let mut retry = BETWEEN_TRIES.start();
        loop {
            let (trouble, after) = match self.timed(&member, job).await {
                Applied::Yes => return Ok(Ended::Applied),
                Applied::No(Verdict::Busy { trouble, after }) => {
                    (trouble, Some(retry.next_delay().max(after.unwrap_or_default())))
                }
                Applied::No(verdict) => return Ok(ended(verdict)),
                Applied::NotTried(Refusal { trouble, after }) => {
                    (trouble, after.map(|after| after.mul_f64(1.0 + runtime::backoff::random_share())))
                }
            };
            let patient = after.filter(|after| begun.elapsed() + *after <= PATIENCE);
            let Some(delay) = patient.filter(|_| retry.attempts() < TRIES) else {
                return Ok(Ended::Park(trouble));
            };
            tokio::time::sleep(delay).await;
        }
    }

    /// Makes durable what became of an instruction.
    async fn settle(&self, job: &Job, ended: &Ended) -> Result<(), Error> {
        match ended {
            Ended::Applied => self.settle_letters(job).await,
            Ended::Superseded(_) => {}
            Ended::Park(trouble) => {
                let row = parked(job, trouble);
                in_time(self.store.park(&row, PARKED_FIRST)).await.map_err(Error::Park)?;
                self.settle_letters(job).await;
            }
            Ended::Refused(reason) => self.bury(&job.record, reason).await?,
        }
        Ok(())
    }

    /// A record of this database was taken: dead letters before it are settled. Where Postgres does not take that now, it
    /// is found out later from what is seen of the database.
    pub async fn settle_letters(&self, job: &Job) {
        let database = job.instruction.database;
        if !self.letters.has(database) {
            return;
        }
        let record = &job.record;
        let taken = store::Taken {
            position: job.instruction.position,
            topic: &record.topic,
            partition: record.partition,
            offset: record.offset,
        };
        match in_time(self.store.supersede_dead_letters(database, &taken)).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "dead letters of the database were superseded"),
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "dead letters were not settled");
            }
        }
    }

    /// Parks an instruction that this program is too old for, without reading it.
    async fn shelve(&self, early: &Early) -> Result<(), Error> {
        match self.fleet.find(&early.cluster).await {
            Found::Member(_) | Found::Unreadable(_) => {}
            Found::NotKnown(reason) => return Err(Error::Registry { reason }),
            // Nobody would ever drain it, and nothing else would be sent to its database while it lies there.
            Found::Unknown => return self.bury(&early.record, &unregistered(&early.cluster)).await,
        }
        let trouble = Trouble::of_resource(code::NEWER_SCHEMA, early.reason.message.clone());
        let row = Parked {
            database: early.database,
            cluster: early.cluster.clone(),
            position: early.position,
            payload: early.record.payload.clone().unwrap_or_default(),
            origin: Some(origin(&early.record)),
            traceparent: early.traceparent.clone(),
            code: trouble.code.to_owned(),
            message: store::storable(&trouble.message),
            attempts: 0,
            parked_at: jiff::Timestamp::now(),
        };
        in_time(self.store.park(&row, PARKED_FOR_NEWER)).await.map_err(Error::Park)?;
        tracing::warn!(code = trouble.code, "instruction parked: {}", trouble.message);
        self.metrics.instruction("parked", &early.cluster);
        let Some((instruction, operation)) = early.identity else { return Ok(()) };
        let about = About {
            database: early.database,
            cluster: &early.cluster,
            position: early.position,
            instruction,
            operation,
            traceparent: early.traceparent.as_deref(),
        };
        let told = self.teller.outcome(&about, OutcomeKind::Parked, trouble.code, &trouble.message).await;
        told.map_err(Error::Tell)?;
        self.metrics.gossip("outcome");
        Ok(())
    }

    /// Tells what became of an instruction.
    pub async fn tell(&self, job: &Job, ended: &Ended) -> Result<(), Error> {
        let (kind, word, code, message) = match ended {
            Ended::Applied => (OutcomeKind::Applied, "applied", "", ""),
            Ended::Superseded(message) => {
                (OutcomeKind::Superseded, "superseded", "superseded", message.as_str())
            }
            Ended::Park(trouble) => (OutcomeKind::Parked, "parked", trouble.code, trouble.message.as_str()),
            Ended::Refused(reason) => (told_of(reason.code), "refused", reason.code, reason.message.as_str()),
        };
        self.teller.outcome(&About::of(job), kind, code, message).await.map_err(Error::Tell)?;
        self.metrics.gossip("outcome");
        self.metrics.instruction(word, &job.instruction.cluster);
        log(ended);
        Ok(())
    }

    /// Keeps a record that cannot be carried out.
    pub async fn bury(&self, record: &bus::Record, reason: &Reason) -> Result<(), Error> {
        let letter = decide::letter(record, reason, &self.consumer);
        let is_new = in_time(self.store.dead_letter(&letter)).await.map_err(Error::Bury)?;
        if let Some(database) = letter.database {
            self.letters.add(database);
        }
        if is_new {
            self.metrics.dead_letter(reason.code);
            tracing::error!(code = reason.code, "record kept as a dead letter: {}", reason.message);
        }
        Ok(())
    }

    async fn timed(&self, member: &Member, job: &Job) -> Applied {
        let start = Instant::now();
        let applied = apply(member, job, self.call_timeout).await;
        if !matches!(applied, Applied::NotTried(_)) {
            self.metrics.apply(&member.cluster.id, start.elapsed());
        }
        applied
    }

    fn held(&self, work: &Work, error: &Error, attempt: u32) -> Disposition {
        let after = HELD.delay(attempt, runtime::backoff::random_share()).max(Duration::from_millis(100));
        let (reason, retry_ms) = (error as &dyn std::error::Error, runtime::telemetry::millis(after));
        if error.is_silence() {
            tracing::debug!(error = reason, retry_ms, "record held");
        } else {
            tracing::warn!(error = reason, retry_ms, "record held");
        }
        if let Some(cluster) = cluster(work) {
            self.metrics.instruction(error.category(), cluster);
        }
        Disposition::Hold(after)
    }
}

fn unregistered(cluster: &ClusterId) -> Reason {
    Reason::new(decide::code::UNKNOWN_CLUSTER, format!("cluster {cluster} is not registered"))
}

/// What is told of a dead letter: its operation has failed, or waits for its reason to pass.
fn told_of(code: &str) -> OutcomeKind {
    if domain::operation::is_final(code) { OutcomeKind::Refused } else { OutcomeKind::Parked }
}

/// What a verdict on an instruction means for it.
fn ended(verdict: Verdict) -> Ended {
    match verdict {
        Verdict::Held => Ended::Applied,
        Verdict::Superseded(holder) => {
            Ended::Superseded(format!("the resource holds {}/{}", holder.epoch, holder.seq))
        }
        Verdict::Conflict(holder) => {
            let message = format!(
                "the resource holds other content at {}/{} ({})",
                holder.epoch, holder.seq, holder.hash
            );
            Ended::Refused(Reason::new(decide::code::CONFLICT, message))
        }
        Verdict::NoNamespace => {
            Ended::Park(Trouble::of_resource(code::NAMESPACE, "the namespace is missing"))
        }
        Verdict::Park(trouble) | Verdict::Busy { trouble, .. } => Ended::Park(trouble),
        Verdict::Refused(message) => Ended::Refused(Reason::new(decide::code::INVALID, message)),
    }
}
