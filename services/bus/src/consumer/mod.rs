//! Consuming by key: one poll loop on a thread of its own, work in tasks, offsets committed up to the first open record.
//!
//! The loop never waits for work: it reads, places records into lanes and keeps the group membership alive. When too much
//! is in memory it pauses the partitions and goes on polling. *Invariant:* an offset is committed only after its record
//! was dealt with, or superseded by a newer record of its key that was read too. Records that are finished behind one
//! that is not are told in the commit's metadata, and not dealt with again when the partition is read anew.
//!
//! *Partitions are paused together*, not one by one. Keys are spread over partitions by their hash, so what fills the memory
//! (a backlog, a slow cluster, nobody who could take anything) stands in all of them alike: to pause one of them would
//! protect nobody. One alone fills it only with as many different keys as the bound, because of each only the newest
//! waits; a share for each would then leave most of the memory, and of the parallel work, unused. While work goes on
//! nothing is paused at all, the loop only breathes, and a partition with little to say is read between the others. Who
//! goes first of those in memory is decided for all partitions at once, by the lanes: tenants in turn, clusters bounded,
//! people before bulk work.
//!
//! *Memory is bounded* whatever the backlog: [`Settings::in_memory`] records and [`Settings::in_memory_bytes`] bytes of
//! them, plus the one record that crosses the bound, plus what the library prefetches: a queue of 8 MiB, and one answer to
//! a fetch of at most 8 MiB from each broker. The bytes are those of key, content and headers as read; what a handler
//! makes of a record when placing it is as much again, for one whose work is the record decoded.

mod engine;
mod load;
mod poll;
mod questions;
mod state;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use crate::lanes::{Class, Keep, Limits, Place};
pub use crate::polling::Patience;
pub use state::{Snapshot, State};

use crate::polling::{COMMIT, END, QUESTION, on_thread};
use crate::{Connection, Error, Record};

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Its effect is durable, whatever it is: the offset may be committed.
    Done,
    /// Nothing can take it now: it keeps its offset open and is tried again after this time, or replaced by a newer one.
    Hold(Duration),
}

/// A record, placed.
#[derive(Debug)]
pub struct Placed<W> {
    /// Where it belongs.
    pub place: Place,
    /// What is to be done.
    pub work: W,
}

/// What is done about records.
pub trait Handler: Send + Sync + 'static {
    /// A record after decoding.
    type Work: Send + Sync + 'static;

    /// Decodes a record and says where it belongs. Runs on the poll loop: quick, no waiting, no panic, which would end the
    /// consumer. A record that cannot be understood gets a key of its own and becomes work like any other.
    fn place(&self, record: Record) -> Placed<Self::Work>;

    /// What is kept of several records of a key that wait.
    fn keep(&self) -> Keep {
        Keep::Newest
    }

    /// Deals with a record; `attempt` counts from 0. Who needs what the bounds protect no more says so to `turn`.
    fn handle(
        &self,
        work: Arc<Self::Work>,
        attempt: u32,
        turn: &Turn,
    ) -> impl Future<Output = Disposition> + Send;

    /// [`Handler::handle`] panicked on this record, as it did `panics` times before.
    fn panicked(&self, work: Arc<Self::Work>, panics: u32) -> impl Future<Output = Disposition> + Send;

    /// A newer record of the key took this one's place before it was dealt with. Quick, no waiting. A panic is told in the log, and
    /// changes nothing.
    fn superseded(&self, work: &Self::Work);
}

/// A record's turn: while it lasts, the record is one of those that [`Limits`] bound. It is over at the end of
/// [`Handler::handle`], or before.
pub struct Turn(Box<dyn Fn() + Send + Sync>);

impl Turn {
    /// One that ends so.
    pub fn new(end: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Box::new(end))
    }

    /// It is over, and another record may have its own; records of the same key still wait. Nothing happens where as many as
    /// may run on after their turn already do.
    pub fn end(&self) {
        (self.0)();
    }
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}

/// Where a group begins that has no valid offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OffsetReset {
    /// Nowhere: that is an error, for somebody to decide.
    #[default]
    Error,
    /// At the oldest record there is: right for a first start.
    Earliest,
}

impl OffsetReset {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Earliest => "earliest",
        }
    }
}

/// How to consume.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The brokers.
    pub connection: Connection,
    /// The one topic.
    pub topic: String,
    /// The consumer group.
    pub group: String,
    /// Where to begin without a valid offset.
    pub offset_reset: OffsetReset,
    /// How many records may have their turn at once; as many more may run on after it.
    pub limits: Limits,
    /// The number of partitions that the topic must have; `None` if any will do. A topic with another number ends the
    /// consumer: its keys may have changed their partitions.
    pub partitions: Option<i32>,
    /// How often the partitions are counted.
    pub count_every: Duration,
    /// How many records may be in memory before the partitions are paused.
    pub in_memory: usize,
    /// How many bytes of them.
    pub in_memory_bytes: usize,
    /// How often finished offsets are committed.
    pub commit_every: Duration,
    /// How long records under way may take to finish at a stop. Those that take longer are dropped where they stand.
    pub grace: Duration,
    /// How long a question to the brokers may take. Nobody waits for it but those who end; what is not told in time is not
    /// known, and records that were finished before are dealt with again.
    pub question: Duration,
    /// How long the brokers may take at a stop to know the last commit. Until they do it is tried again; what they do not know
    /// in time is read again.
    pub last_commit: Duration,
    /// How long the consumer may be outside of its group before it is given up.
    pub patience: Patience,
}

impl Settings {
    /// Settings that suit a provisioner of some thousand databases.
    pub fn new(connection: Connection, topic: impl Into<String>, group: impl Into<String>) -> Self {
        Self {
            connection,
            topic: topic.into(),
            group: group.into(),
            offset_reset: OffsetReset::Error,
            limits: Limits { total: 256, group: 32 },
            partitions: None,
            count_every: Duration::from_secs(15),
            in_memory: 8_192,
            in_memory_bytes: 64 * 1_024 * 1_024,
            commit_every: Duration::from_secs(1),
            grace: Duration::from_secs(10),
            question: QUESTION,
            last_commit: COMMIT,
            patience: Patience::default(),
        }
    }

    /// How long a stop may take in all.
    fn end(&self) -> Duration {
        self.grace + END + self.question.saturating_sub(QUESTION) + self.last_commit.saturating_sub(COMMIT)
    }
}

/// Consumes until `stop`, then lets what runs finish within the grace, commits and leaves the group. An error means that
/// this consumer cannot go on: make another after a while, or stop on [`Error::NoOffset`].
pub async fn run<H: Handler>(
    settings: Settings,
    handler: Arc<H>,
    state: Arc<State>,
    stop: CancellationToken,
) -> Result<(), Error> {
    let (topic, limit) = (settings.topic.clone(), settings.end());
    let runtime = tokio::runtime::Handle::current();
    let work = {
        let stop = stop.clone();
        move || poll::run(&settings, handler, &state, runtime, &stop)
    };
    on_thread(work, &topic, limit, &stop).await
}
