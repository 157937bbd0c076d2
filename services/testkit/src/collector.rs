//! What stands on a topic, for a test to look at.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bus::{Batch, BoxError, Record, Sink, Stored};

/// Keeps all records of a topic, each once. It says where it stands: whoever reads asks for that again every few seconds, and reads all
/// again for a store that says nothing.
#[derive(Debug, Default)]
pub struct Collector(Mutex<Collected>);

#[derive(Debug, Default)]
struct Collected {
    records: Vec<Record>,
    offsets: BTreeMap<i32, i64>,
}

impl Collector {
    /// The records so far, those of each partition in order.
    pub fn records(&self) -> Vec<Record> {
        self.lock().records.clone()
    }

    /// Up to where each partition was read. Whoever sees that sees the records before it.
    pub fn read_to(&self) -> BTreeMap<i32, i64> {
        self.lock().offsets.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Collected> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Collector {
    async fn offsets(&self, _: Vec<i32>) -> Result<BTreeMap<i32, i64>, BoxError> {
        Ok(self.read_to())
    }

    async fn store(&self, batch: Arc<Batch>) -> Result<Stored, BoxError> {
        let mut collected = self.lock();
        if collected.offsets.get(&batch.partition).copied() != batch.start {
            return Ok(Stored::OutOfStep);
        }
        collected.records.extend(batch.records.iter().cloned());
        collected.offsets.insert(batch.partition, batch.end);
        Ok(Stored::Done)
    }
}
