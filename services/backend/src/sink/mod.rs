//! The sink: gossip from Kafka becomes rows of Postgres, batch by batch, offsets in the same transaction.
//!
//! *Invariant:* a record that cannot be understood, or that Postgres refuses for what is in it, is kept with its bytes and a
//! reason, and its partition goes on.
//! *Invariant:* every effect bears repetition: a batch may come again, whole or in part.

mod apart;
pub mod fold;
mod seldom;
mod translate;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bus::BoxError;
use bus::sink::{Batch, Stored};
use store::{Advance, Store};

use seldom::Seldom;
use translate::Heard;

pub use translate::BODY_SCHEMA;

use crate::metrics::Metrics;

/// Passed after a batch was committed and before anybody here knows it; its subject is the partition.
pub const STORED: &str = "backend.sink.stored";

/// Why a batch was not taken.
#[derive(Debug, thiserror::Error)]
enum Refused {
    /// For something in it: it would be refused for ever.
    #[error("take in gossip: {0}")]
    Content(String),
    /// For something else, which passes.
    #[error("take in gossip")]
    Store(#[source] store::Error),
}

/// Takes gossip into the store.
#[derive(Debug, Clone)]
pub struct GossipSink {
    store: Store,
    /// Partitions of which a batch was refused for what is in it: the next one is taken apart.
    doubtful: Arc<Mutex<BTreeSet<i32>>>,
    /// When it was told last that outcomes are not believed.
    unbelieved: Arc<Mutex<Seldom>>,
    /// Name under which offsets are kept.
    consumer: String,
    topic: String,
    metrics: Metrics,
}

impl GossipSink {
    /// A sink that keeps its offsets of `topic` under the name `consumer`.
    pub fn new(
        store: Store,
        consumer: impl Into<String>,
        topic: impl Into<String>,
        metrics: Metrics,
    ) -> Self {
        let (doubtful, unbelieved) = (Arc::default(), Arc::default());
        Self { store, doubtful, unbelieved, consumer: consumer.into(), topic: topic.into(), metrics }
    }

    /// Begins anew with the oldest gossip that the topic still has. Everything that is said bears repetition.
    pub async fn forget_offsets(&self) -> Result<(), store::Error> {
        self.store.forget_offsets(&self.consumer, &self.topic).await?;
        Ok(())
    }

    /// What a batch of records means.
    fn read(&self, batch: &Batch) -> store::Batch {
        let mut taken = store::Batch {
            consumer: self.consumer.clone(),
            topic: self.topic.clone(),
            advance: Advance { partition: batch.partition, from: batch.start, to: batch.end },
            ..store::Batch::default()
        };
        let dead = |record, error: &_| translate::dead_letter(record, &self.consumer, error);
        let sightings = batch.records.iter().filter_map(|record| match translate::hear(record) {
            Ok(Heard::Sighting(sighting)) => Some(sighting),
            Ok(Heard::Outcome(outcome)) => {
                taken.outcomes.push(outcome);
                None
            }
            Err(error) => {
                taken.dead_letters.push(dead(record, &error));
                None
            }
        });
        for sighting in fold::fold(sightings) {
            match translate::observation(sighting) {
                Ok(seen) => taken.observations.push(seen),
                Err((record, error)) => taken.dead_letters.push(dead(record, &error)),
            }
        }
        taken
    }

    /// The same, where it makes no program of ours panic.
    fn understand(&self, batch: &Batch) -> Result<store::Batch, Refused> {
        let read = std::panic::catch_unwind(AssertUnwindSafe(|| self.read(batch)));
        read.map_err(|_| Refused::Content("the reading of it panicked".to_owned()))
    }

    /// Takes in what was understood of so many records, if they were.
    async fn take(
        &self,
        understood: Result<store::Batch, Refused>,
        records: usize,
    ) -> Result<Stored, Refused> {
        let taken = understood?;
        match self.store.absorb(&taken).await {
            Ok(report) => {
                runtime::failpoint::hit(STORED, taken.advance.partition).await;
                self.report(records, taken.advance, &report);
                Ok(Stored::Done)
            }
            Err(store::Error::OffsetsMoved) => Ok(Stored::OutOfStep),
            Err(error) if error.is_about_content() => {
                Err(Refused::Content(runtime::telemetry::chain(&error)))
            }
            Err(error) => Err(Refused::Store(error)),
        }
    }

    fn doubted(&self, partition: i32) -> bool {
        self.doubtful.lock().unwrap_or_else(PoisonError::into_inner).contains(&partition)
    }

    fn doubt(&self, partition: i32, doubtful: bool) {
        let mut all = self.doubtful.lock().unwrap_or_else(PoisonError::into_inner);
        if doubtful {
            all.insert(partition);
        } else {
            all.remove(&partition);
        }
    }

    fn report(&self, records: usize, advance: Advance, report: &store::Report) {
        self.metrics.gossip.inc_by(records as u64);
        self.metrics.gossip_stale.inc_by(report.stale as u64);
        self.metrics.dead_letters.inc_by(report.dead_letters as u64);
        if report.dead_letters > 0 {
            tracing::warn!(
                kafka.topic = self.topic,
                kafka.partition = advance.partition,
                count = report.dead_letters,
                "gossip that cannot be understood was set aside as dead letters"
            );
        }
        for (database, cluster, code) in &report.unclaimed {
            self.metrics.unclaimed(code.as_str());
            tracing::warn!(
                db.id = %database,
                cluster.name = %cluster,
                code = code.as_str(),
                "gossip is not believed as it stands"
            );
        }
        self.report_unbelieved(report);
        for reason in &report.unreadable {
            tracing::error!(reason, "an operation cannot be read: it does not move");
        }
        for ended in &report.ended {
            self.metrics.operations.ended(ended);
            tracing::info!(
                operation.id = %ended.operation,
                operation.kind = %ended.kind,
                operation.state = %ended.state,
                code = ended.code.as_deref().unwrap_or_default(),
                "operation ended"
            );
        }
        tracing::debug!(
            kafka.partition = advance.partition,
            kafka.offset = advance.to,
            news = report.news,
            stale = report.stale,
            "gossip taken in"
        );
    }

    /// A cluster that says such things may say very many: each is counted, and one is told of once in a while.
    fn report_unbelieved(&self, report: &store::Report) {
        for (_, _, code) in &report.unbelieved {
            self.metrics.unbelieved(code.as_str());
        }
        let Some((database, cluster, code)) = report.unbelieved.last() else { return };
        let times = report.unbelieved.len() as u64;
        let mut seldom = self.unbelieved.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = seldom.happened(times, Instant::now()) {
            tracing::warn!(
                db.id = %database,
                cluster.name = %cluster,
                code = code.as_str(),
                count,
                "outcomes of instructions are not believed: whoever said them does not have the database; this is the last of them"
            );
        }
    }
}

impl bus::sink::Sink for GossipSink {
    async fn offsets(&self, partitions: Vec<i32>) -> Result<BTreeMap<i32, i64>, BoxError> {
        Ok(self.store.offsets(&self.consumer, &self.topic, &partitions).await?)
    }

    async fn store(&self, batch: Arc<Batch>) -> Result<Stored, BoxError> {
        if self.doubted(batch.partition) {
            return apart::store(self, &batch).await;
        }
        let (partition, understood) = (batch.partition, self.understand(&batch));
        let records = batch.records.len();
        // What was understood is all that is needed, and Postgres takes its time.
        drop(batch);
        let stored = self.take(understood, records).await;
        if let Err(Refused::Content(_)) = &stored {
            self.doubt(partition, true);
        }
        Ok(stored?)
    }
}

#[cfg(test)]
mod tests;
