//! B11b, memory under a backlog of 200 000 records: of the provisioner whose cluster is slow, of the sink, and of the relay.
//!
//! Product: the most memory each ever had resident while it worked on the backlog. Anchor: the bound that is promised.
//! *Invariant:* the bound does not depend on the backlog. It is made of what a program takes at rest (less than 60 MB), the
//! records the Kafka library fetches ahead (8 MB) with their copies, and the records taken and not done: 8 192 instructions
//! of the provisioner; of the sink 8 000 records or 8 MB that wait, and four batches of at most 4 000 records, 2 MB and
//! 600 databases on their way to Postgres; one round of 2 000 instructions of the relay.

use std::time::Duration;

use crate::fake::Manner;
use crate::fleet::{self, Fleet, PARTITIONS};
use crate::{Results, Slice, drain, ingest, topic};

/// Records that wait.
pub(crate) const RECORDS: usize = 200_000;
/// What is promised, in MB.
const BOUNDS: [(&str, f64); 3] = [("provisioner", 128.0), ("sink", 128.0), ("relay", 96.0)];
/// Slow enough that the backlog outlives the slice.
const LATENCY: Duration = Duration::from_millis(100);

/// Measures a slice.
pub async fn measure(slice: Slice, seconds: u32) -> anyhow::Result<Results> {
    let mut results = Results::new();
    for (name, bound) in BOUNDS {
        let value = match (slice, name) {
            (Slice::Anchor, _) => bound,
            (Slice::Product, "provisioner") => provisioner(seconds).await?,
            (Slice::Product, "sink") => ingest::peak(RECORDS).await?,
            (Slice::Product, _) => drain::peak(RECORDS).await?,
        };
        results.insert(name.to_owned(), value);
    }
    Ok(results)
}

async fn provisioner(seconds: u32) -> anyhow::Result<f64> {
    let name = "bench.backlog";
    topic::filled(name, PARTITIONS, RECORDS, |database| fleet::record(database, 0)).await?;
    let mut fleet = Fleet::start(&[Manner::Answers(LATENCY)], Some(name.to_owned())).await?;
    fleet.next().await?;
    tokio::time::sleep(Duration::from_secs(u64::from(seconds))).await;
    let peak = fleet.provisioner.peak();
    fleet.end().await?;
    peak
}
