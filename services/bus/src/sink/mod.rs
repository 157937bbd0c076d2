//! Consuming into a store that keeps the offsets itself, in the transaction of what it stores.
//!
//! Each partition is read in order, in batches that grow while the batch before is stored; partitions in parallel up to a
//! bound. When a partition is assigned, and whenever storing failed or the store's offset is not where the batch began,
//! the store is asked for its offset and reading starts again there. Of partitions at rest it is asked now and then, so that
//! a store that was set back gets again what it has lost. *Invariant:* batches of a partition join without a gap: each
//! starts at the offset where the one before ended. Offsets committed to Kafka are for onlookers only.

mod desk;
mod poll;
mod shelves;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::consumer::State;
use crate::polling::{END, on_thread};
use crate::{BoxError, Connection, Error, Record};

/// Consecutive records of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: i32,
    /// The offset the store must stand at for this batch to fit; `None` if it has none for this partition.
    pub start: Option<i64>,
    /// The offset the store stands at afterwards.
    pub end: i64,
    /// The records, in order; never empty. Offsets may have gaps.
    pub records: Vec<Record>,
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// It is stored, and the offset with it.
    Done,
    /// The store stood at another offset than the batch's start; nothing was stored. Its offset is asked for again.
    OutOfStep,
}

/// A store that keeps offsets.
pub trait Sink: Send + Sync + 'static {
    /// The offsets at which to go on, for those of the partitions that have one.
    fn offsets(
        &self,
        partitions: Vec<i32>,
    ) -> impl Future<Output = Result<BTreeMap<i32, i64>, BoxError>> + Send;

    /// Stores a batch and moves the partition's offset from `start` to `end`, in one transaction. After an error, or
    /// no answer within the deadline, the offset is asked for again, so a commit whose outcome is unknown does no harm.
    fn store(&self, batch: Arc<Batch>) -> impl Future<Output = Result<Stored, BoxError>> + Send;
}

/// How to consume into a store.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The brokers.
    pub connection: Connection,
    /// The one topic.
    pub topic: String,
    /// The consumer group; only shares out partitions.
    pub group: String,
    /// Records in a batch.
    pub batch: usize,
    /// Different keys in a batch: what is stored of many records is often the newest of each key. What is understood of a record
    /// and written takes many times its bytes, so this bounds the memory that batches need, where [`Self::in_memory_bytes`] bounds it for
    /// records that are large.
    pub keys: usize,
    /// Partitions that are stored at once.
    pub parallel: usize,
    /// The least time from one batch to the next in each of these places. What comes after a silence is stored at once; what
    /// comes in a stream is stored together, because a batch costs the store far more than a record.
    pub pace: Duration,
    /// Records that wait to be stored, of all partitions together, before partitions are paused.
    pub in_memory: usize,
    /// Their bytes. As much again may be in batches that are being stored.
    pub in_memory_bytes: usize,
    /// How long storing a batch may take.
    pub deadline: Duration,
    /// How long batches under way may take to finish at a stop.
    pub grace: Duration,
}

impl Settings {
    /// Settings that suit the status of some thousand databases.
    pub fn new(connection: Connection, topic: impl Into<String>, group: impl Into<String>) -> Self {
        Self {
            connection,
            topic: topic.into(),
            group: group.into(),
            batch: 4_000,
            keys: 600,
            parallel: 4,
            pace: Duration::from_millis(50),
            in_memory: 8_000,
            in_memory_bytes: 8 * 1_024 * 1_024,
            deadline: Duration::from_secs(30),
            grace: Duration::from_secs(10),
        }
    }
}

/// Consumes until `stop`, lets batches under way finish within the grace, and leaves the group. An error means that this
/// consumer cannot go on: make another after a while. An offset of the store that the topic does not have (any more) is
/// [`Error::NoOffset`].
pub async fn run<S: Sink>(
    settings: Settings,
    sink: Arc<S>,
    state: Arc<State>,
    stop: CancellationToken,
) -> Result<(), Error> {
    let (topic, limit) = (settings.topic.clone(), settings.grace + END);
    let runtime = tokio::runtime::Handle::current();
    let work = {
        let stop = stop.clone();
        move || poll::run(&settings, sink, &state, runtime, &stop)
    };
    on_thread(work, &topic, limit, &stop).await
}
