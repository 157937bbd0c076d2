//! The sink: gossip from Kafka becomes rows of Postgres, batch by batch, offsets in the same transaction.
//!
//! *Invariant:* a record that cannot be understood is kept with its bytes and a reason, and its partition goes on.
//! *Invariant:* every effect bears repetition: a batch may come again, whole or in part.

pub mod fold;
mod translate;

use std::collections::BTreeMap;
use std::sync::Arc;

use bus::BoxError;
use bus::sink::{Batch, Stored};
use store::{Advance, Store};

use translate::Heard;

pub use translate::BODY_SCHEMA;

use crate::metrics::Metrics;

/// Passed after a batch was committed and before anybody here knows it; its subject is the partition.
pub const STORED: &str = "backend.sink.stored";

/// Takes gossip into the store.
#[derive(Debug, Clone)]
pub struct GossipSink {
    store: Store,
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
        Self { store, consumer: consumer.into(), topic: topic.into(), metrics }
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
}

impl bus::sink::Sink for GossipSink {
    async fn offsets(&self, partitions: Vec<i32>) -> Result<BTreeMap<i32, i64>, BoxError> {
        Ok(self.store.offsets(&self.consumer, &self.topic, &partitions).await?)
    }

    async fn store(&self, batch: Arc<Batch>) -> Result<Stored, BoxError> {
        let (taken, records) = (self.read(&batch), batch.records.len());
        // What was understood is all that is needed, and Postgres takes its time.
        drop(batch);
        match self.store.absorb(&taken).await {
            Ok(report) => {
                runtime::failpoint::hit(STORED, taken.advance.partition).await;
                self.report(records, taken.advance, &report);
                Ok(Stored::Done)
            }
            Err(store::Error::OffsetsMoved) => Ok(Stored::OutOfStep),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests;
