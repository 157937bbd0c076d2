//! What tests of the consumer by key work with: a handler that notes what it does, and a consumer to start and stop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bus::consumer::{Class, OffsetReset, Place, Placed, Settings, State, Turn, run};
use bus::{Disposition, Error, Handler, Producer, Record};
use testkit::eventually;
use tokio::task::JoinHandle;

use super::{PATIENCE, connection, message};
use runtime::CancellationToken;

/// Notes what it handles; handles nothing while the gate is shut.
pub(super) struct Notes {
    handled: Mutex<Vec<(String, i64)>>,
    running: Mutex<BTreeSet<String>>,
    held: Mutex<BTreeMap<i64, u32>>,
    begun: Mutex<Vec<(String, i64)>>,
    overlaps: Mutex<Vec<String>>,
    pub(super) open: tokio::sync::watch::Sender<bool>,
    pub(super) superseded: Mutex<Vec<i64>>,
}

impl Notes {
    pub(super) fn new(open: bool) -> Arc<Self> {
        Arc::new(Self {
            handled: Mutex::default(),
            running: Mutex::default(),
            held: Mutex::default(),
            begun: Mutex::default(),
            overlaps: Mutex::default(),
            open: tokio::sync::watch::Sender::new(open),
            superseded: Mutex::default(),
        })
    }

    pub(super) fn handled(&self) -> Vec<(String, i64)> {
        self.handled.lock().unwrap().clone()
    }

    /// What was begun, each time.
    pub(super) fn begun(&self) -> Vec<(String, i64)> {
        self.begun.lock().unwrap().clone()
    }

    /// Keys of which two records ran at once.
    pub(super) fn overlaps(&self) -> Vec<String> {
        self.overlaps.lock().unwrap().clone()
    }

    /// This number is held so often before it is done.
    pub(super) fn hold(&self, number: i64, times: u32) {
        self.held.lock().unwrap().insert(number, times);
    }
}

impl Handler for Notes {
    type Work = (String, i64);

    fn place(&self, record: Record) -> Placed<Self::Work> {
        let key = record.key_text().unwrap_or_default().to_owned();
        let number = record.header_text("number").and_then(|text| text.parse().ok()).unwrap_or(0);
        let place = Place {
            key: key.as_str().into(),
            order: (0, number),
            tenant: "all".into(),
            group: "all".into(),
            class: Class::Interactive,
        };
        Placed { place, work: (key, number) }
    }

    async fn handle(&self, work: Arc<Self::Work>, attempt: u32, _: &Turn) -> Disposition {
        let (key, number) = (*work).clone();
        if !self.running.lock().unwrap().insert(key.clone()) {
            self.overlaps.lock().unwrap().push(key);
            return Disposition::Done;
        }
        let _running = Running(&self.running, key.clone());
        self.begun.lock().unwrap().push((key.clone(), number));
        let mut open = self.open.subscribe();
        let _ = open.wait_for(|open| *open).await;
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

/// That a record of this key runs; ends with whoever works on it, even if that is dropped.
struct Running<'a>(&'a Mutex<BTreeSet<String>>, String);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap().remove(&self.1);
    }
}

pub(super) struct Consumer {
    pub(super) state: Arc<State>,
    pub(super) stop: CancellationToken,
    pub(super) task: JoinHandle<Result<(), Error>>,
}

impl Consumer {
    pub(super) fn start(settings: Settings, notes: &Arc<Notes>) -> Self {
        let (state, stop) = (Arc::new(State::default()), CancellationToken::new());
        let task = tokio::spawn(run(settings, Arc::clone(notes), Arc::clone(&state), stop.clone()));
        Self { state, stop, task }
    }

    /// Ends it. Whatever happened before, nothing is left in its counts.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        ended_well(&self.task.await.unwrap());
        let last = self.state.snapshot();
        assert_eq!((last.running, last.in_memory, last.bytes), (0, 0, 0), "{last:?}");
    }
}

/// The longest that anybody waits for brokers to let him go, and less than a thread may take that is asked to end.
const LEAVING: Duration = Duration::from_secs(6);

/// Says that one that was stopped ended well. Brokers that stand still do not let it go in time: it is left behind then, rightly, with all
/// that it did.
pub(super) fn ended_well(how: &Result<(), Error>) {
    let is_left = matches!(how, Err(Error::Close { limit, .. }) if *limit < LEAVING);
    assert!(how.is_ok() || is_left, "{how:?}");
}

/// How long brokers may take that all works with on a busy machine: what they do not say in time is done again.
const LONG: Duration = Duration::from_secs(30);

/// For how many milliseconds brokers believe in a member that they hear nothing of: what it had in its hands is handled
/// a second time afterwards, and a busy machine may stand still for longer than members usually may.
const UNHEARD: &str = "45000";

pub(super) fn settings(topic: &str, group: &str) -> Settings {
    let mut settings = Settings::new(connection(), topic, group);
    (settings.question, settings.last_commit) = (LONG, LONG);
    settings.connection.properties.push(("session.timeout.ms".to_owned(), UNHEARD.to_owned()));
    settings.offset_reset = OffsetReset::Earliest;
    settings.commit_every = Duration::from_millis(100);
    settings
}

pub(super) async fn send(producer: &Producer, topic: &str, records: impl IntoIterator<Item = (String, i64)>) {
    let pending: Vec<_> = records
        .into_iter()
        .map(|(key, number)| producer.enqueue(&message(topic, &key, number)).unwrap())
        .collect();
    for pending in pending {
        pending.wait().await.unwrap();
    }
}

/// Waits until the brokers know that all of a topic is finished: whoever is the last to leave may have no time to tell
/// them.
pub(super) async fn all_committed(group: &str, topic: &str, partitions: i32) {
    let committed = async || super::is_committed(group, topic, partitions).await.then_some(());
    eventually(PATIENCE, "everything committed", committed).await;
}

pub(super) async fn until(what: &str, mut done: impl FnMut() -> bool) {
    eventually(PATIENCE, what, async || done().then_some(())).await;
}
