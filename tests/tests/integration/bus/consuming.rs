//! The consumer by key: order, newest only, offsets, back-pressure, rebalances.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bus::consumer::{OffsetReset, Place, Placed, Settings, State, run};
use bus::{Disposition, Error, Handler, Producer, Record};
use testkit::{eventually, unique};
use tokio::task::JoinHandle;

use super::{PATIENCE, connection, message, producer, topic};
use runtime::CancellationToken;

/// Notes what it handles; handles nothing while the gate is shut.
struct Notes {
    handled: Mutex<Vec<(String, i64)>>,
    running: Mutex<BTreeSet<String>>,
    held: Mutex<BTreeMap<i64, u32>>,
    open: tokio::sync::watch::Sender<bool>,
    superseded: Mutex<Vec<i64>>,
}

impl Notes {
    fn new(open: bool) -> Arc<Self> {
        Arc::new(Self {
            handled: Mutex::default(),
            running: Mutex::default(),
            held: Mutex::default(),
            open: tokio::sync::watch::Sender::new(open),
            superseded: Mutex::default(),
        })
    }

    fn handled(&self) -> Vec<(String, i64)> {
        self.handled.lock().unwrap().clone()
    }

    /// This number is held so often before it is done.
    fn hold(&self, number: i64, times: u32) {
        self.held.lock().unwrap().insert(number, times);
    }
}

impl Handler for Notes {
    type Work = (String, i64);

    fn place(&self, record: Record) -> Placed<Self::Work> {
        let key = record.key_text().unwrap_or_default().to_owned();
        let number = record.header_text("number").and_then(|text| text.parse().ok()).unwrap_or(0);
        let place = Place { key: key.as_str().into(), order: (0, number), group: "all".into() };
        Placed { place, work: (key, number) }
    }

    async fn handle(&self, work: Arc<Self::Work>, attempt: u32) -> Disposition {
        let (key, number) = (*work).clone();
        assert!(self.running.lock().unwrap().insert(key.clone()), "{key} runs twice at once");
        let mut open = self.open.subscribe();
        let _ = open.wait_for(|open| *open).await;
        self.running.lock().unwrap().remove(&key);
        if self.held.lock().unwrap().get(&number).is_some_and(|times| attempt < *times) {
            return Disposition::Hold(Duration::from_millis(50));
        }
        self.handled.lock().unwrap().push((key, number));
        Disposition::Done
    }

    async fn panicked(&self, _: Arc<Self::Work>, _: u32) -> Disposition {
        Disposition::Done
    }

    fn superseded(&self, work: &Self::Work) {
        self.superseded.lock().unwrap().push(work.1);
    }
}

struct Consumer {
    state: Arc<State>,
    stop: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
}

impl Consumer {
    fn start(settings: Settings, notes: &Arc<Notes>) -> Self {
        let (state, stop) = (Arc::new(State::default()), CancellationToken::new());
        let task = tokio::spawn(run(settings, Arc::clone(notes), Arc::clone(&state), stop.clone()));
        Self { state, stop, task }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

fn settings(topic: &str, group: &str) -> Settings {
    let mut settings = Settings::new(connection(), topic, group);
    settings.offset_reset = OffsetReset::Earliest;
    settings.commit_every = Duration::from_millis(100);
    settings
}

async fn send(producer: &Producer, topic: &str, records: impl IntoIterator<Item = (String, i64)>) {
    let pending: Vec<_> = records
        .into_iter()
        .map(|(key, number)| producer.enqueue(&message(topic, &key, number)).unwrap())
        .collect();
    for pending in pending {
        pending.wait().await.unwrap();
    }
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    eventually(PATIENCE, what, async || done().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_newest_of_a_key_is_handled_and_offsets_go_on() {
    let (topic, group, producer, notes) = (topic(1).await, unique("group"), producer(), Notes::new(false));
    let consumer = Consumer::start(settings(&topic, &group), &notes);
    send(&producer, &topic, [("a".to_owned(), 0)]).await;
    until("the first record to run", || consumer.state.snapshot().running == 1).await;
    send(&producer, &topic, (1..=200).map(|number| ("a".to_owned(), number))).await;
    until("all records to be read", || consumer.state.snapshot().read == 201).await;
    assert_eq!(consumer.state.snapshot().in_memory, 2, "the one that runs and the newest");
    notes.open.send_replace(true);
    until("the newest to be handled", || notes.handled().len() == 2).await;
    consumer.stop().await;
    assert_eq!(notes.handled(), [("a".to_owned(), 0), ("a".to_owned(), 200)]);
    assert_eq!(notes.superseded.lock().unwrap().len(), 199);
    let again = Notes::new(true);
    let mut strict = settings(&topic, &group);
    strict.offset_reset = OffsetReset::Error;
    let consumer = Consumer::start(strict, &again);
    send(&producer, &topic, [("b".to_owned(), 1)]).await;
    until("the next record", || !again.handled().is_empty()).await;
    consumer.stop().await;
    assert_eq!(again.handled(), [("b".to_owned(), 1)], "everything before was committed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_record_holds_its_offset_and_nobody_elses_work() {
    let (topic, group, producer, notes) = (topic(1).await, unique("group"), producer(), Notes::new(true));
    notes.hold(7, u32::MAX);
    let consumer = Consumer::start(settings(&topic, &group), &notes);
    send(&producer, &topic, [("sick".to_owned(), 7)]).await;
    send(&producer, &topic, (0..50).map(|number| (format!("key-{number}"), 100 + number))).await;
    until("the others", || notes.handled().len() == 50).await;
    consumer.stop().await;
    let again = Notes::new(true);
    again.hold(7, 3);
    let consumer = Consumer::start(settings(&topic, &group), &again);
    until("the held record and all behind it", || again.handled().len() == 51).await;
    assert!(again.handled().contains(&("sick".to_owned(), 7)));
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_much_in_memory_pauses_and_polling_goes_on() {
    let (topic, group, producer, notes) = (topic(2).await, unique("group"), producer(), Notes::new(false));
    send(&producer, &topic, (0..2_000).map(|number| (format!("key-{number}"), number))).await;
    let mut settings = settings(&topic, &group);
    settings.in_memory = 100;
    let consumer = Consumer::start(settings, &notes);
    until("the pause", || consumer.state.snapshot().paused).await;
    let rounds = consumer.state.snapshot().rounds;
    until("the loop to turn on", || consumer.state.snapshot().rounds > rounds + 5).await;
    assert!(consumer.state.snapshot().in_memory <= 100, "{:?}", consumer.state.snapshot());
    notes.open.send_replace(true);
    until("everything", || notes.handled().len() == 2_000).await;
    until("the end of the pause", || !consumer.state.snapshot().paused).await;
    until("nothing to run", || consumer.state.snapshot().running == 0).await;
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_come_and_go_and_nothing_is_lost() {
    let (topic, group, producer) = (topic(8).await, unique("group"), producer());
    let notes: Vec<_> = (0..3).map(|_| Notes::new(true)).collect();
    let mut first = Some(Consumer::start(settings(&topic, &group), &notes[0]));
    let mut others = Vec::new();
    for part in 0..6_i64 {
        send(&producer, &topic, (0..200).map(|key| (format!("key-{key}"), part))).await;
        match part {
            1 => others.push(Consumer::start(settings(&topic, &group), &notes[1])),
            2 => others.push(Consumer::start(settings(&topic, &group), &notes[2])),
            4 => first.take().unwrap().stop().await,
            _ => {}
        }
    }
    let newest = || {
        let mut newest: BTreeMap<String, i64> = BTreeMap::new();
        for (key, number) in notes.iter().flat_map(|notes| notes.handled()) {
            let seen = newest.entry(key).or_default();
            *seen = number.max(*seen);
        }
        newest
    };
    until("the newest of every key", || {
        let newest = newest();
        newest.len() == 200 && newest.values().all(|number| *number == 5)
    })
    .await;
    until("all partitions to have an owner", || {
        let owned: BTreeSet<i32> = others.iter().flat_map(|one| one.state.snapshot().partitions).collect();
        owned.len() == 8
    })
    .await;
    for consumer in others {
        consumer.stop().await;
    }
    let rest = Notes::new(true);
    let last = Consumer::start(settings(&topic, &group), &rest);
    send(&producer, &topic, (0..200).map(|key| (format!("key-{key}"), 6))).await;
    until("the last round", || rest.handled().len() >= 200).await;
    last.stop().await;
    assert!(rest.handled().iter().all(|(_, number)| *number == 6), "everything before was committed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_without_an_offset_is_told_so() {
    let (topic, notes) = (topic(1).await, Notes::new(true));
    let mut settings = settings(&topic, &unique("group"));
    settings.offset_reset = OffsetReset::Error;
    let consumer = Consumer::start(settings, &notes);
    let ended = tokio::time::timeout(PATIENCE, consumer.task).await.unwrap().unwrap();
    assert!(matches!(ended, Err(Error::NoOffset { .. })), "{ended:?}");
}
