//! Against the library's own mock of brokers, which answers as late as it is told.

use std::sync::Mutex;

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::{Message, Producer, lock};

const TOPIC: &str = "t";
const PARTITIONS: i32 = 2;
const RECORDS: usize = 40;
/// How long a test waits for something before it fails.
const PATIENCE: Duration = Duration::from_mins(1);

/// A store in memory that answers at once.
#[derive(Default)]
struct Memory(Mutex<BTreeMap<i32, (i64, Vec<i64>)>>);

impl Memory {
    fn stored(&self) -> usize {
        lock(&self.0).values().map(|(_, offsets)| offsets.len()).sum()
    }
}

impl Sink for Memory {
    async fn offsets(&self, partitions: Vec<i32>) -> Result<BTreeMap<i32, i64>, BoxError> {
        let inner = lock(&self.0);
        let stands = |partition| Some((partition, inner.get(&partition)?.0));
        Ok(partitions.into_iter().filter_map(stands).collect())
    }

    async fn store(&self, batch: Arc<Batch>) -> Result<Stored, BoxError> {
        let mut inner = lock(&self.0);
        let stands = inner.get(&batch.partition).map(|(offset, _)| *offset);
        if stands != batch.start {
            return Ok(Stored::OutOfStep);
        }
        let (offset, stored) = inner.entry(batch.partition).or_default();
        *offset = batch.end;
        stored.extend(batch.records.iter().map(|record| record.offset));
        Ok(Stored::Done)
    }
}

/// Two partitions with records in them.
async fn filled() -> (MockCluster<'static, DefaultProducerContext>, Settings) {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(TOPIC, PARTITIONS, 1).unwrap();
    let settings = Settings::new(Connection::new(cluster.bootstrap_servers(), "test"), TOPIC, "g");
    let producer = Producer::new(&settings.connection).unwrap();
    for number in 0..RECORDS {
        let key = format!("key-{number}");
        let message = Message { topic: TOPIC.to_owned(), key, payload: vec![1], headers: Vec::new() };
        producer.send(message).await.unwrap();
    }
    (cluster, settings)
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let waiting = async {
        let mut beat = tokio::time::interval(Duration::from_millis(10));
        while !done() {
            beat.tick().await;
        }
    };
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("waited for {what}"));
}

/// A sink that runs.
struct Running {
    state: Arc<State>,
    stop: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
}

impl Running {
    fn start(settings: &Settings, sink: &Arc<impl Sink>) -> Self {
        let (state, stop) = (Arc::<State>::default(), CancellationToken::new());
        let task = tokio::spawn(run(settings.clone(), Arc::clone(sink), Arc::clone(&state), stop.clone()));
        Self { state, stop, task }
    }

    async fn stop(self) {
        self.stop.cancel();
        let ended = timeout(PATIENCE, self.task).await.unwrap().unwrap();
        // Who is not let go in time is left behind, rightly, as on a machine that stands still.
        assert!(matches!(ended, Ok(()) | Err(Error::Close { .. })), "{ended:?}");
    }
}

/// A store that answers before the broker does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_is_read_from_where_the_store_stands_however_late_the_broker_answers() {
    for (late, stands) in [(0, None), (100, None), (100, Some(3))] {
        let (cluster, settings) = filled().await;
        cluster.broker_round_trip_time(1, Duration::from_millis(late)).unwrap();
        let memory = Arc::new(Memory::default());
        for partition in stands.iter().flat_map(|_| 0..PARTITIONS) {
            let offset = stands.unwrap_or(0);
            lock(&memory.0).insert(partition, (offset, (0..offset).collect()));
        }
        let running = Running::start(&settings, &memory);
        until("all records to be stored", || memory.stored() == RECORDS).await;
        for (offset, stored) in lock(&memory.0).values() {
            assert_eq!(*stored, (0..*offset).collect::<Vec<_>>(), "{late} ms late, from {stands:?}");
        }
        cluster.broker_round_trip_time(1, Duration::ZERO).unwrap();
        running.stop().await;
    }
}

/// A store that never says where it stands.
struct Silent;

impl Sink for Silent {
    async fn offsets(&self, _: Vec<i32>) -> Result<BTreeMap<i32, i64>, BoxError> {
        std::future::pending().await
    }

    async fn store(&self, _: Arc<Batch>) -> Result<Stored, BoxError> {
        Err("nothing was to be read".into())
    }
}

/// Partitions of which it is not known yet where to begin are ours, and are given away like others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_that_wait_for_the_store_are_shared_out_like_others() {
    let (_cluster, settings) = filled().await;
    let silent = Running::start(&settings, &Arc::new(Silent));
    until("the first to have all", || silent.state.snapshot().partitions.len() == 2).await;
    let memory = Arc::new(Memory::default());
    let second = Running::start(&settings, &memory);
    until("the second to have its share", || second.state.snapshot().partitions.len() == 1).await;
    until("the first to have less", || silent.state.snapshot().partitions.len() == 1).await;
    until("the share to be stored", || memory.stored() > 0).await;
    assert_eq!((lock(&memory.0).len(), silent.state.snapshot().read), (1, 0));
    silent.stop().await;
    until("all records to be stored", || memory.stored() == RECORDS).await;
    second.stop().await;
}

/// A store that stores nothing before it may.
struct Gated {
    memory: Memory,
    may: tokio::sync::Semaphore,
}

impl Sink for Gated {
    async fn offsets(&self, partitions: Vec<i32>) -> Result<BTreeMap<i32, i64>, BoxError> {
        self.memory.offsets(partitions).await
    }

    async fn store(&self, batch: Arc<Batch>) -> Result<Stored, BoxError> {
        let _open = self.may.acquire().await?;
        self.memory.store(batch).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_was_paused_when_it_went_is_read_when_it_comes_back() {
    let (_cluster, mut settings) = filled().await;
    (settings.in_memory, settings.grace) = (2, Duration::from_secs(1));
    let store = Arc::new(Gated { memory: Memory::default(), may: tokio::sync::Semaphore::new(0) });
    let first = Running::start(&settings, &store);
    until("partitions to be paused", || first.state.snapshot().paused).await;
    let second = Running::start(&settings, &store);
    until("the second to have its share", || second.state.snapshot().partitions.len() == 1).await;
    until("the first to have less", || first.state.snapshot().partitions.len() == 1).await;
    second.stop().await;
    until("the first to have all", || first.state.snapshot().partitions.len() == 2).await;
    store.may.add_permits(10);
    until("all records to be stored", || store.memory.stored() == RECORDS).await;
    first.stop().await;
}
