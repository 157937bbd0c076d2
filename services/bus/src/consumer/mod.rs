//! Consuming by key: one poll loop on a thread of its own, work in tasks, offsets committed up to the first open record.
//!
//! The loop never waits for work: it reads, places records into lanes and keeps the group membership alive. When too much
//! is in memory it pauses the partitions and goes on polling. *Invariant:* an offset is committed only after its record
//! was dealt with, or superseded by a newer record of its key that was read too.

pub(crate) mod context;
mod engine;
pub(crate) mod poll;
mod state;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use crate::lanes::{Limits, Place};
pub use state::{Snapshot, State};

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

    /// Decodes a record and says where it belongs. Runs on the poll loop: quick, no waiting, no panic. A record that
    /// cannot be understood gets a key of its own and becomes work like any other.
    fn place(&self, record: Record) -> Placed<Self::Work>;

    /// Deals with a record; `attempt` counts from 0.
    fn handle(&self, work: Arc<Self::Work>, attempt: u32) -> impl Future<Output = Disposition> + Send;

    /// [`Handler::handle`] panicked on this record.
    fn panicked(&self, work: Arc<Self::Work>, attempt: u32) -> impl Future<Output = Disposition> + Send;

    /// A newer record of the key took this one's place before it ran. Quick, no waiting.
    fn superseded(&self, work: &Self::Work);
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
    const fn as_str(self) -> &'static str {
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
    /// How many records may run at once.
    pub limits: Limits,
    /// How many records may be in memory before the partitions are paused.
    pub in_memory: usize,
    /// How often finished offsets are committed.
    pub commit_every: Duration,
    /// How long records under way may take to finish at a stop.
    pub grace: Duration,
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
            in_memory: 8_192,
            commit_every: Duration::from_secs(1),
            grace: Duration::from_secs(10),
        }
    }
}

/// How long leaving the group may take after the grace.
const CLOSE: Duration = Duration::from_secs(5);

/// Consumes until `stop`, then lets what runs finish within the grace, commits and leaves the group. An error means that
/// this consumer cannot go on: make another after a while, or stop on [`Error::NoOffset`].
pub async fn run<H: Handler>(
    settings: Settings,
    handler: Arc<H>,
    state: Arc<State>,
    stop: CancellationToken,
) -> Result<(), Error> {
    let (topic, limit) = (settings.topic.clone(), settings.grace + CLOSE);
    let runtime = tokio::runtime::Handle::current();
    let work = {
        let stop = stop.clone();
        move || poll::run(&settings, handler, &state, runtime, &stop)
    };
    on_thread(work, &topic, limit, &stop).await
}

/// Runs a poll loop on a thread of its own, because polling blocks, and so does dropping a consumer. A thread that does
/// not end within `limit` after the stop is left behind.
pub(crate) async fn on_thread(
    work: impl FnOnce() -> Result<(), Error> + Send + 'static,
    topic: &str,
    limit: Duration,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let (told, ended) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name("kafka-consumer".to_owned()).spawn(move || {
        // Nobody listens any more once the deadline below has passed.
        let _ = told.send(work());
    });
    thread.map_err(|source| Error::Thread { what: "a consumer", source: source.into() })?;
    let late = async {
        stop.cancelled().await;
        tokio::time::sleep(limit).await;
    };
    tokio::select! {
        result = ended => result.unwrap_or_else(|source| {
            Err(Error::Thread { what: "a consumer", source: source.into() })
        }),
        () = late => Err(Error::Close { topic: topic.to_owned(), limit }),
    }
}
