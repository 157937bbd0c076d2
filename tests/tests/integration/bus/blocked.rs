//! A poll loop that stands still for longer than its group bears: its partitions move, and nothing is lost or mixed up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bus::consumer::{Placed, Settings, State, Turn, run};
use bus::{Disposition, Handler, Record};
use runtime::CancellationToken;
use testkit::unique;

use super::stage::{Consumer, Notes, all_committed, ended_well, send, settings, until};
use super::{producer, topic};

const KEYS: i64 = 30;
/// The longest silence that the group bears, and longer than a busy machine stands still.
const SILENCE: &str = "15000";

/// Notes what it handles, and blocks the poll loop itself when it is told to, as no handler should.
struct Blocking {
    notes: Arc<Notes>,
    armed: AtomicBool,
    blocked: AtomicBool,
    go_on: Mutex<Receiver<()>>,
}

impl Blocking {
    fn new(notes: &Arc<Notes>) -> (Arc<Self>, Sender<()>) {
        let (tell, go_on) = channel();
        let blocking = Self {
            notes: Arc::clone(notes),
            armed: AtomicBool::new(false),
            blocked: AtomicBool::new(false),
            go_on: Mutex::new(go_on),
        };
        (Arc::new(blocking), tell)
    }
}

impl Handler for Blocking {
    type Work = (String, i64);

    fn place(&self, record: Record) -> Placed<Self::Work> {
        if self.armed.swap(false, Ordering::SeqCst) {
            self.blocked.store(true, Ordering::SeqCst);
            self.go_on.lock().unwrap().recv_timeout(Duration::from_mins(10)).unwrap();
            self.blocked.store(false, Ordering::SeqCst);
        }
        self.notes.place(record)
    }

    async fn handle(&self, work: Arc<Self::Work>, attempt: u32, turn: &Turn) -> Disposition {
        self.notes.handle(work, attempt, turn).await
    }

    async fn panicked(&self, work: Arc<Self::Work>, panics: u32) -> Disposition {
        self.notes.panicked(work, panics).await
    }

    fn superseded(&self, work: &Self::Work) {
        self.notes.superseded(work);
    }
}

fn impatient(topic: &str, group: &str) -> Settings {
    let mut settings = settings(topic, group);
    for name in ["max.poll.interval.ms", "session.timeout.ms"] {
        settings.connection.properties.push((name.to_owned(), SILENCE.to_owned()));
    }
    settings
}

/// The newest number of each key that a member handled.
fn newest(notes: &Notes) -> BTreeMap<String, i64> {
    let mut newest = BTreeMap::new();
    for (key, number) in notes.handled() {
        let entry = newest.entry(key).or_insert(number);
        *entry = number.max(*entry);
    }
    newest
}

fn all_at(notes: &Notes, number: i64) -> bool {
    let newest = newest(notes);
    newest.len() == usize::try_from(KEYS).unwrap() && newest.values().all(|found| *found == number)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poll_loop_that_stands_still_loses_its_partitions_and_nothing_else() {
    let (topic, group, producer) = (topic(4).await, unique("group"), producer());
    let (mine, others) = (Notes::new(true), Notes::new(true));
    let (blocking, go_on) = Blocking::new(&mine);
    let (state, stop) = (Arc::new(State::default()), CancellationToken::new());
    let task =
        tokio::spawn(run(impatient(&topic, &group), Arc::clone(&blocking), Arc::clone(&state), stop.clone()));
    let round = async |number: i64| {
        send(&producer, &topic, (0..KEYS).map(|key| (format!("key-{key}"), number))).await;
    };
    round(1).await;
    until("the first round", || all_at(&mine, 1)).await;
    blocking.armed.store(true, Ordering::SeqCst);
    round(2).await;
    until("the loop to stand still", || blocking.blocked.load(Ordering::SeqCst)).await;
    let second = Consumer::start(settings(&topic, &group), &others);
    until("all partitions to move", || second.state.snapshot().partitions.len() == 4).await;
    assert!(blocking.blocked.load(Ordering::SeqCst), "the fault did not fire: it went on too early");
    round(3).await;
    until("the newest of every key by the other one", || all_at(&others, 3)).await;

    // Awake again it is a member like any other, and what it had in its hands moves no offset.
    go_on.send(()).unwrap();
    until("a share of the partitions", || {
        let shares = [state.snapshot().partitions, second.state.snapshot().partitions];
        let owned: BTreeSet<i32> = shares.iter().flatten().copied().collect();
        owned.len() == 4 && shares.iter().all(|share| share.len() == 2)
    })
    .await;
    round(4).await;
    until("the newest of every key by both", || {
        let mut both = newest(&mine);
        for (key, number) in newest(&others) {
            let entry = both.entry(key).or_default();
            *entry = number.max(*entry);
        }
        both.values().all(|number| *number == 4)
    })
    .await;
    for notes in [&mine, &others] {
        assert!(notes.overlaps().is_empty(), "of a key two ran at once");
        in_order(&notes.handled());
    }
    all_committed(&group, &topic, 4).await;
    second.stop().await;
    stop.cancel();
    ended_well(&task.await.unwrap());
    let rest = Notes::new(true);
    let last = Consumer::start(settings(&topic, &group), &rest);
    round(5).await;
    until("the last round", || all_at(&rest, 5)).await;
    last.stop().await;
    assert!(rest.handled().iter().all(|(_, number)| *number == 5), "everything before was committed");
}

/// In one member the numbers of a key never fall.
fn in_order(handled: &[(String, i64)]) {
    let mut newest: BTreeMap<&str, i64> = BTreeMap::new();
    for (key, number) in handled {
        let before = newest.insert(key, *number);
        assert!(before.is_none_or(|before| before <= *number), "{key}: {number} after {before:?}");
    }
}
