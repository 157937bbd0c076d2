//! The reader whose offsets lie with what it stores.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bus::consumer::State;
use bus::sink::{Settings, run};
use bus::{Batch, BoxError, Sink, Stored};
use runtime::CancellationToken;
use testkit::{eventually, unique};

use super::stage::ended_well;
use super::{PATIENCE, connection, message, producer, topic};

/// A store in memory that compares and sets, and fails now and then: before the commit, or with its answer lost.
#[derive(Default)]
struct Memory {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    offsets: BTreeMap<i32, i64>,
    stored: BTreeMap<i32, Vec<i64>>,
    calls: u32,
    largest: usize,
    /// When it was called first.
    first: Option<Instant>,
}

impl Memory {
    fn total(&self) -> usize {
        self.inner.lock().unwrap().stored.values().map(Vec::len).sum()
    }
}

impl Sink for Memory {
    async fn offsets(&self, partitions: Vec<i32>) -> Result<BTreeMap<i32, i64>, BoxError> {
        let inner = self.inner.lock().unwrap();
        Ok(partitions.into_iter().filter_map(|number| Some((number, *inner.offsets.get(&number)?))).collect())
    }

    async fn store(&self, batch: Arc<Batch>) -> Result<Stored, BoxError> {
        let mut inner = self.inner.lock().unwrap();
        inner.calls += 1;
        inner.first.get_or_insert_with(Instant::now);
        let fate = inner.calls % 7;
        if fate == 3 {
            return Err("nothing was stored".into());
        }
        if inner.offsets.get(&batch.partition).copied() != batch.start {
            return Ok(Stored::OutOfStep);
        }
        inner.offsets.insert(batch.partition, batch.end);
        inner.largest = inner.largest.max(batch.records.len());
        let offsets = batch.records.iter().map(|record| record.offset);
        inner.stored.entry(batch.partition).or_default().extend(offsets);
        if fate == 5 { Err("stored, but the answer is lost".into()) } else { Ok(Stored::Done) }
    }
}

struct Reader {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), bus::Error>>,
}

fn start(topic: &str, group: &str, memory: &Arc<Memory>) -> Reader {
    let mut settings = Settings::new(connection(), topic, group);
    settings.batch = 50;
    let stop = CancellationToken::new();
    let state = Arc::new(State::default());
    let task = tokio::spawn(run(settings, Arc::clone(memory), state, stop.clone()));
    Reader { stop, task }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_record_is_stored_once_whatever_fails_and_whoever_reads() {
    const RECORDS: usize = 3_000;
    let (topic, group, producer, memory) =
        (topic(4).await, unique("group"), producer(), Arc::new(Memory::default()));
    let first = start(&topic, &group, &memory);
    let mut second = None;
    for part in 0..3 {
        let numbers = (0..RECORDS / 3).map(|number| i64::try_from(part * RECORDS / 3 + number).unwrap());
        let pending: Vec<_> = numbers
            .map(|number| producer.enqueue(&message(&topic, &format!("key-{number}"), number)).unwrap())
            .collect();
        for pending in pending {
            pending.wait().await.unwrap();
        }
        if part == 0 {
            second = Some(start(&topic, &group, &memory));
        }
    }
    eventually(PATIENCE, "all records", async || (memory.total() >= RECORDS).then_some(())).await;
    first.stop.cancel();
    ended_well(&first.task.await.unwrap());
    let last = producer.send(message(&topic, "key-1", 1)).await.unwrap();
    eventually(PATIENCE, "one more record", async || {
        let inner = memory.inner.lock().unwrap();
        (inner.offsets.get(&last.partition) == Some(&(last.offset + 1))).then_some(())
    })
    .await;
    let second = second.unwrap();
    second.stop.cancel();
    ended_well(&second.task.await.unwrap());
    assert_eq!(memory.total(), RECORDS + 1);
    let inner = memory.inner.lock().unwrap();
    for (partition, offsets) in &inner.stored {
        let expected: Vec<i64> = (0..i64::try_from(offsets.len()).unwrap()).collect();
        assert_eq!(offsets, &expected, "partition {partition}: each once and in order");
    }
    assert!(inner.largest > 1, "records are stored in batches");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_in_a_stream_is_stored_together_and_what_comes_alone_at_once() {
    const PACE: Duration = Duration::from_secs(4);
    let (topic, group, producer, memory) =
        (topic(1).await, unique("group"), producer(), Arc::new(Memory::default()));
    let mut settings = Settings::new(connection(), topic.as_str(), group.as_str());
    settings.pace = PACE;
    let (state, stop) = (Arc::new(State::default()), CancellationToken::new());
    let task = tokio::spawn(run(settings, Arc::clone(&memory), Arc::clone(&state), stop.clone()));
    producer.send(message(&topic, "key", 0)).await.unwrap();
    eventually(PATIENCE, "the first record", async || (memory.total() == 1).then_some(())).await;
    let begun = memory.inner.lock().unwrap().first.expect("it was called");
    for number in 1..=20 {
        producer.send(message(&topic, "key", number)).await.unwrap();
    }
    eventually(PATIENCE, "all to be read", async || (state.snapshot().read >= 21).then_some(())).await;
    let in_time = begun.elapsed() < PACE / 2;
    eventually(PATIENCE, "all records", async || (memory.total() == 21).then_some(())).await;
    stop.cancel();
    ended_well(&task.await.unwrap());
    // A machine that takes so long to send twenty records, or to read them, shows nothing.
    let calls = memory.inner.lock().unwrap().calls;
    assert!(calls == 2 || !in_time, "{calls} batches");
}
