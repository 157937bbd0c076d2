//! The loop against the library's own mock of brokers, which can be made to fail in ways that real ones do rarely.

use std::collections::BTreeMap;
use std::future::Future;

use rdkafka::mocking::{MockCluster, MockCoordinator};
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tokio::task::JoinHandle;

use super::*;
use crate::consumer::{self, Class, Disposition, Handler, Place, Placed, Settings, Turn};
use crate::{Message, Producer, lock};

mod begun;

const TOPIC: &str = "t";
const PARTITIONS: i32 = 4;
/// How long a test waits for something before it fails.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long work has at a stop.
const GRACE: Duration = Duration::from_secs(1);

type Cluster = MockCluster<'static, DefaultProducerContext>;

fn cluster() -> Cluster {
    brokers(1)
}

fn brokers(count: i32) -> Cluster {
    let cluster = MockCluster::new(count).unwrap();
    cluster.create_topic(TOPIC, PARTITIONS, count).unwrap();
    cluster
}

fn settings(cluster: &Cluster) -> Settings {
    let mut connection = Connection::new(cluster.bootstrap_servers(), "test");
    connection.properties.push(("statistics.interval.ms".to_owned(), "100".to_owned()));
    let mut settings = Settings::new(connection, TOPIC, "g");
    settings.offset_reset = OffsetReset::Earliest;
    settings.commit_every = Duration::from_millis(100);
    settings.grace = GRACE;
    settings
}

/// Counts what it handles; works for ever on keys that begin with `slow`, and cannot bear the sight of `bad`.
#[derive(Default)]
struct Counts(std::sync::Mutex<BTreeMap<String, u32>>);

impl Handler for Counts {
    type Work = String;

    fn place(&self, record: Record) -> Placed<String> {
        let key = record.key_text().unwrap_or_default().to_owned();
        assert_ne!(key, "bad", "a record that nobody can place");
        let place = Place {
            key: key.as_str().into(),
            order: (0, record.offset),
            tenant: "t".into(),
            group: "g".into(),
            class: Class::Interactive,
        };
        Placed { place, work: key }
    }

    async fn handle(&self, work: Arc<String>, _: u32, _: &Turn) -> Disposition {
        *lock(&self.0).entry(work.to_string()).or_default() += 1;
        if work.starts_with("slow") {
            std::future::pending::<()>().await;
        }
        if work.starts_with("brief") {
            in_time("a moment", std::future::poll_fn(moment())).await;
        }
        Disposition::Done
    }

    async fn panicked(&self, _: Arc<String>, _: u32) -> Disposition {
        Disposition::Done
    }

    fn superseded(&self, _: &String) {}
}

struct Consumer {
    counts: Arc<Counts>,
    state: Arc<State>,
    stop: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
}

impl Consumer {
    fn start(settings: Settings) -> Self {
        let (counts, state, stop) =
            (Arc::<Counts>::default(), Arc::<State>::default(), CancellationToken::new());
        let running = consumer::run(settings, Arc::clone(&counts), Arc::clone(&state), stop.clone());
        Self { counts, state, stop, task: tokio::spawn(running) }
    }

    async fn handled(&self, count: usize) {
        until("records to be handled", || lock(&self.counts.0).len() == count).await;
    }

    /// Stops it and answers how it ended, and after which time.
    async fn stop(self) -> (Result<(), Error>, Duration) {
        let start = Instant::now();
        self.stop.cancel();
        let ended = in_time("the end", self.task).await.unwrap();
        (ended, start.elapsed())
    }

    /// Stops it, where nothing hangs on how long that takes.
    async fn end(self) {
        ended_well(&self.stop().await.0);
    }
}

/// Whoever is not let go in time is left behind, rightly: brokers are away, or the machine stands still.
fn ended_well(ended: &Result<(), Error>) {
    assert!(matches!(ended, Ok(()) | Err(Error::Close { .. })), "{ended:?}");
}

/// The same of one that is let go unless the machine stands still: how long that took, if it was.
fn let_go(stopped: &(Result<(), Error>, Duration)) -> Option<Duration> {
    let (ended, took) = stopped;
    ended_well(ended);
    ended.is_ok().then_some(*took)
}

/// Does something until it took less than this, three times at most: a machine that stands still for a moment does so
/// in one of them.
async fn within(limit: Duration, mut take: impl AsyncFnMut() -> Duration) {
    let mut took: Vec<Duration> = Vec::new();
    while took.last().is_none_or(|last| *last >= limit) {
        assert!(took.len() < 3, "each time it took longer than {limit:?}: {took:?}");
        took.push(Box::pin(take()).await);
    }
}

/// Work that lasts as long as somebody else's turn, some times over.
fn moment() -> impl FnMut(&mut std::task::Context<'_>) -> std::task::Poll<()> {
    let mut turns = 2_000;
    move |context| {
        turns -= 1;
        context.waker().wake_by_ref();
        if turns == 0 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    }
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(PATIENCE, future).await;
    waited.unwrap_or_else(|_| panic!("waited for {what}"))
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    in_time(what, async {
        let mut beat = tokio::time::interval(Duration::from_millis(10));
        while !done() {
            beat.tick().await;
        }
    })
    .await;
}

async fn send(settings: &Settings, keys: impl IntoIterator<Item = &str>) {
    send_by(&Producer::new(&settings.connection).unwrap(), keys).await;
}

async fn send_by(producer: &Producer, keys: impl IntoIterator<Item = &str>) {
    for key in keys {
        let message =
            Message { topic: TOPIC.to_owned(), key: key.to_owned(), payload: vec![1], headers: Vec::new() };
        producer.send(message).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_its_group_does_not_let_in_gives_up() {
    let cluster = cluster();
    cluster.request_errors(
        RDKafkaApiKey::JoinGroup,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS; 500],
    );
    let mut settings = settings(&cluster);
    settings.patience = Patience { own: Duration::from_secs(2), ..Patience::default() };
    let consumer = Consumer::start(settings.clone());
    let ended = in_time("the consumer to give up", consumer.task).await.unwrap();
    assert!(matches!(&ended, Err(Error::Adrift { group, .. }) if group == "g"), "{ended:?}");
    assert_eq!(
        consumer.state.snapshot().rounds,
        0,
        "a loop that has ended is not stuck, whatever is waited for"
    );

    cluster.clear_request_errors(RDKafkaApiKey::JoinGroup);
    settings.patience = Patience::default();
    send(&settings, ["a"]).await;
    let next = Consumer::start(settings);
    next.handled(1).await;
    next.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_that_are_away_do_not_keep_a_consumer_from_ending() {
    within(GRACE + END, async || {
        let cluster = cluster();
        let settings = settings(&cluster);
        send(&settings, ["a", "b", "c"]).await;
        let consumer = Consumer::start(settings.clone());
        consumer.handled(3).await;
        cluster.broker_down(1).unwrap();
        let state = Arc::clone(&consumer.state);
        until("the broker to be missed", || state.snapshot().error.is_some()).await;
        let (ended, took) = consumer.stop().await;
        ended_well(&ended);
        assert_eq!((state.snapshot().running, state.snapshot().in_memory), (0, 0));
        took
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_that_panics_ends_its_consumer_and_passes_nothing_over() {
    let cluster = cluster();
    let settings = settings(&cluster);
    send(&settings, ["bad"]).await;
    let consumer = Consumer::start(settings.clone());
    let ended = in_time("the consumer to give up", consumer.task).await.unwrap();
    assert!(matches!(ended, Err(Error::Thread { .. })), "{ended:?}");
    assert_eq!(consumer.state.snapshot().rounds, 0, "no loop turns any more");
    assert_eq!(committed_records(&settings), 0, "it is read again");
}

/// The group's offsets, a partition each.
fn group_offsets(settings: &Settings) -> Vec<Offset> {
    let group = [("group.id", settings.group.clone())];
    let reader: BaseConsumer = settings.connection.config(&group).unwrap().create().unwrap();
    let all: Vec<i32> = (0..PARTITIONS).collect();
    let committed = reader.committed_offsets(list(TOPIC, &all), PATIENCE).unwrap();
    committed.elements().iter().map(TopicPartitionListElem::offset).collect()
}

/// Records of all partitions that are committed.
fn committed_records(settings: &Settings) -> i64 {
    let counted = |offset: Offset| if let Offset::Offset(offset) = offset { offset } else { 0 };
    group_offsets(settings).into_iter().map(counted).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_as_soon_as_the_last_commit_has_arrived_which_is_tried_again_when_it_is_refused() {
    // An answer that comes is not waited for any longer.
    within(PATIENCE / 2, async || {
        let cluster = cluster();
        let mut settings = settings(&cluster);
        // Nothing is committed before the end, which has all the time there is.
        settings.commit_every = PATIENCE;
        settings.last_commit = PATIENCE;
        send(&settings, ["a", "b", "c"]).await;
        let consumer = Consumer::start(settings.clone());
        consumer.handled(3).await;
        assert_eq!(committed_records(&settings), 0);
        let refused = RDKafkaRespErr::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS;
        cluster.request_errors(RDKafkaApiKey::OffsetCommit, &[refused; 3]);
        let Some(took) = let_go(&consumer.stop().await) else { return Duration::MAX };
        assert_eq!(committed_records(&settings), 3);
        took
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_last_commit_that_never_arrives_is_given_up_in_time() {
    within(GRACE + END, async || {
        let cluster = cluster();
        let mut settings = settings(&cluster);
        settings.commit_every = PATIENCE;
        send(&settings, ["a", "b", "c"]).await;
        let consumer = Consumer::start(settings.clone());
        consumer.handled(3).await;
        let refused = RDKafkaRespErr::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS;
        cluster.request_errors(RDKafkaApiKey::OffsetCommit, &[refused; 500]);
        let Some(took) = let_go(&consumer.stop().await) else { return Duration::MAX };
        cluster.clear_request_errors(RDKafkaApiKey::OffsetCommit);
        assert_eq!(committed_records(&settings), 0, "the fault did not fire");
        took
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_end_whatever_they_are_about_when_brokers_go() {
    // Connecting, joining, just assigned, reading, working.
    let moments: [fn(&Snapshot) -> bool; 6] = [
        |_| true,
        |now| now.rounds >= 1,
        |now| now.rounds >= 20,
        |now| !now.partitions.is_empty(),
        |now| now.read >= 1,
        |now| now.running >= 1,
    ];
    for (at, moment) in moments.into_iter().enumerate() {
        eprintln!("moment {at}");
        within(GRACE + END + Duration::from_secs(1), async || {
            let cluster = cluster();
            let settings = settings(&cluster);
            send(&settings, ["a", "slow"]).await;
            let consumer = Consumer::start(settings.clone());
            until("the moment", || moment(&consumer.state.snapshot())).await;
            cluster.broker_down(1).unwrap();
            let (ended, took) = consumer.stop().await;
            ended_well(&ended);
            took
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_is_worked_off_without_a_pause_and_work_that_stands_still_pauses() {
    const RECORDS: usize = 2_000;
    const TRIES: usize = 3;
    let mut seen: Vec<(usize, usize, usize)> = Vec::new();
    // A machine that gives us nothing for a while looks like work that stands still, or shows nothing of it. Each time
    // all is there before anybody reads: who reads while it is sent has no backlog.
    while seen.iter().all(|(looks, paused, most)| paused * 10 > *looks || *most < 32) {
        assert!(
            seen.len() < TRIES,
            "work goes on, but of so many looks so many saw a pause, and so much at most in memory: {seen:?}"
        );
        let cluster = cluster();
        let mut settings = settings(&cluster);
        settings.limits = consumer::Limits { total: 2, group: 2 };
        settings.in_memory = 64;
        let keys: Vec<String> = (0..RECORDS).map(|number| format!("brief-{number}")).collect();
        send(&settings, keys.iter().map(String::as_str)).await;
        let consumer = Consumer::start(settings.clone());
        let (counts, state) = (Arc::clone(&consumer.counts), Arc::clone(&consumer.state));
        let (mut most, mut looks, mut paused) = (0, 0, 0);
        until("the backlog to be worked off", || {
            let now = state.snapshot();
            most = most.max(now.in_memory);
            looks += 1;
            paused += usize::from(now.paused);
            lock(&counts.0).len() == RECORDS
        })
        .await;
        assert!(most <= 64, "{most} at most in memory");
        seen.push((looks, paused, most));

        let keys: Vec<String> = (0..200).map(|number| format!("slow-{number}")).collect();
        send(&settings, keys.iter().map(String::as_str)).await;
        until("partitions to be paused", || state.snapshot().paused).await;
        assert!(state.snapshot().in_memory <= settings.in_memory);
        consumer.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_that_come_back_while_work_stands_still_are_paused_anew() {
    let cluster = cluster();
    let mut settings = settings(&cluster);
    settings.in_memory = 16;
    let keys: Vec<String> = (0..200).map(|number| format!("slow-{number}")).collect();
    send(&settings, keys.iter().map(String::as_str)).await;
    let consumer = Consumer::start(settings.clone());
    let state = Arc::clone(&consumer.state);
    until("partitions to be paused", || state.snapshot().paused).await;
    // The group went on without it: all its partitions go by force, and come back together, once it was seen that they
    // went.
    cluster.request_errors(
        RDKafkaApiKey::JoinGroup,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS; 500],
    );
    cluster.request_errors(RDKafkaApiKey::Heartbeat, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION]);
    until("the partitions to go", || state.snapshot().partitions.is_empty()).await;
    cluster.clear_request_errors(RDKafkaApiKey::JoinGroup);
    until("the partitions to come back", || state.snapshot().partitions.len() == 4).await;
    let rounds = state.snapshot().rounds;
    let turned = || state.snapshot().rounds > rounds + 20 && state.snapshot().paused;
    until("the loop to turn on, while they are paused", turned).await;
    let held = state.snapshot();
    assert!(held.in_memory < 2 * settings.in_memory, "{held:?}");
    consumer.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_outlasts_the_grace_is_dropped_and_read_again() {
    within(GRACE + END, async || {
        let cluster = cluster();
        // What is not committed in time is read again too, and is not meant here.
        let settings = Settings { last_commit: PATIENCE / 2, ..settings(&cluster) };
        send(&settings, ["slow", "a", "b"]).await;
        let consumer = Consumer::start(settings.clone());
        consumer.handled(3).await;
        let (counts, state) = (Arc::clone(&consumer.counts), Arc::clone(&consumer.state));
        let Some(took) = let_go(&consumer.stop().await) else { return Duration::MAX };
        assert!(took >= settings.grace, "{took:?}");
        assert_eq!((state.snapshot().running, state.snapshot().in_memory), (0, 0));
        assert_eq!(Arc::strong_count(&counts), 1, "nobody works on behind our back");
        let next = Consumer::start(settings);
        next.handled(1).await;
        assert_eq!(*lock(&next.counts.0), BTreeMap::from([("slow".to_owned(), 1)]));
        next.end().await;
        took
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_of_one_partition_does_not_hold_up_the_others() {
    const RECORDS: usize = 6_000;
    // Where the machine stands still, the backlog may be worked off before the other record is sent, or before it is
    // seen.
    let mut done: Vec<usize> = Vec::new();
    while done.last().is_none_or(|last| *last >= RECORDS) {
        assert!(done.len() < 3, "each time it waited for the whole backlog: {done:?}");
        done.push(Box::pin(done_beside_a_backlog_of(RECORDS)).await);
    }
}

/// How many records are done when that of another partition is.
async fn done_beside_a_backlog_of(records: usize) -> usize {
    let cluster = cluster();
    let mut settings = settings(&cluster);
    settings.limits = consumer::Limits { total: 2, group: 2 };
    settings.in_memory = 64;
    let of = |partition| {
        let names = (0..).map(|number| format!("brief-{number}"));
        names.filter(move |name| crate::partition_of(name.as_bytes(), PARTITIONS) == partition)
    };
    let keys: Vec<String> = of(0).take(records).collect();
    // One that is connected: while another one did that, the backlog might be worked off.
    let producer = Producer::new(&settings.connection).unwrap();
    send_by(&producer, keys.iter().map(String::as_str)).await;
    let consumer = Consumer::start(settings.clone());
    let counts = Arc::clone(&consumer.counts);
    until("the backlog to fill the memory", || lock(&counts.0).len() > 100).await;
    let other = of(1).next().unwrap();
    send_by(&producer, [other.as_str()]).await;
    until("the other partition's record", || lock(&counts.0).contains_key(&other)).await;
    let done = lock(&counts.0).len();
    consumer.end().await;
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consuming_goes_on_when_the_coordinator_moves_and_ends_when_there_is_none() {
    within(GRACE + END, async || {
        let cluster = brokers(2);
        let coordinated_by = |broker| {
            cluster.coordinator(MockCoordinator::Group("g".to_owned()), broker).unwrap();
        };
        (0..PARTITIONS).for_each(|partition| cluster.partition_leader(TOPIC, partition, Some(2)).unwrap());
        coordinated_by(1);
        let settings = settings(&cluster);
        send(&settings, ["a", "b"]).await;
        // A client may take a while to find the coordinator that its last commit goes to.
        let consumer = Consumer::start(Settings { last_commit: PATIENCE / 2, ..settings.clone() });
        consumer.handled(2).await;

        coordinated_by(2);
        cluster.broker_down(1).unwrap();
        send(&settings, ["c", "d"]).await;
        consumer.handled(4).await;
        consumer.end().await;

        // What the first one committed, it committed with the new coordinator: nothing else could answer.
        send(&settings, ["e"]).await;
        let next = Consumer::start(settings.clone());
        next.handled(1).await;
        assert_eq!(lock(&next.counts.0).keys().collect::<Vec<_>>(), ["e"]);

        coordinated_by(1);
        let (ended, took) = next.stop().await;
        ended_well(&ended);
        took
    })
    .await;
}
