//! B2, the engine under slow work: a thousand keys, so many records in flight, and work that takes 10, 50 and 100 ms.
//!
//! Product: records handled a second by the product's consumer, from Kafka. Anchor: as many tasks that do the same work one
//! after the other, with nothing around it; as `…-formula` the number that no program can exceed, in-flight / latency.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::meter::{Running, Work, real};
use crate::pretence::Pretence;
use crate::{Results, Slice, topic};

/// Different keys.
pub(crate) const KEYS: usize = 1_000;
/// Records at work at once.
pub(crate) const IN_FLIGHT: usize = 256;
/// Enough for the shortest latency and the longest slice that is of any use.
pub(crate) const RECORDS: usize = 400_000;
const PARTITIONS: i32 = 8;
const LATENCIES: [u64; 3] = [10, 50, 100];
/// Bytes of one answer of the brokers, of all partitions together. A backlog comes partition by partition, and without
/// this what fits into memory would be of one partition and its few keys. (The product keeps only the newest of a key, so
/// that its memory holds as many keys as records.)
const FETCHED: i32 = 524_288;
/// More than one batch in the log takes. Of less, brokers give the first partition's batch in each answer and nothing of
/// the others.
const A_BATCH: i32 = 32_768;

/// Measures a slice; the latencies share its time.
pub async fn measure(slice: Slice, seconds: u32) -> anyhow::Result<Results> {
    let time = Duration::from_secs(u64::from(seconds)) / 3;
    let mut results = Results::new();
    for millis in LATENCIES {
        let latency = Duration::from_millis(millis);
        let formula = real(IN_FLIGHT.min(KEYS)) / latency.as_secs_f64();
        let (rate, most) = match slice {
            Slice::Product => {
                let rate = product(PARTITIONS, latency, time).await?;
                (rate, rate)
            }
            Slice::Anchor => (anchor(latency, time).await, formula),
        };
        results.insert(format!("{millis}ms"), rate);
        results.insert(format!("{millis}ms-formula"), most);
    }
    Ok(results)
}

/// The topic with so many partitions, filled.
async fn prepare(partitions: i32) -> anyhow::Result<String> {
    let name = format!("bench.keys-{partitions}-partitions");
    let record = |number: usize| Ok((format!("key-{}", number % KEYS), vec![7; 100]));
    topic::filled(&name, partitions, RECORDS, record).await?;
    Ok(name)
}

/// Records that the product's consumer handles a second.
pub(crate) async fn product(partitions: i32, latency: Duration, time: Duration) -> anyhow::Result<f64> {
    let name = prepare(partitions).await?;
    let fetched = (FETCHED / partitions).max(A_BATCH).to_string();
    let running = Running::start(
        &name,
        IN_FLIGHT,
        Work::Fixed(latency),
        &[("fetch.message.max.bytes", fetched.as_str())],
    );
    let rate = running.rate(time).await;
    anyhow::ensure!(running.handled() < RECORDS - IN_FLIGHT, "the topic was too short for this slice");
    running.end().await?;
    rate
}

async fn anchor(latency: Duration, time: Duration) -> f64 {
    let (pretence, done) = (Arc::new(Pretence::default()), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..IN_FLIGHT)
        .map(|_| {
            let (pretence, done) = (Arc::clone(&pretence), Arc::clone(&done));
            tokio::spawn(async move {
                loop {
                    pretence.work(latency).await;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (before, start) = (done.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(time).await;
    let rate = real(done.load(Ordering::Relaxed) - before) / start.elapsed().as_secs_f64();
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    rate
}
