//! The engine without Kafka: records and partitions are given to it by hand. Nothing here waits for a time.

use std::collections::VecDeque;

use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::lanes::Place;

/// A handler whose every step the test takes: it tells of a record and waits to be told what becomes of it.
struct Puppet {
    begun: mpsc::UnboundedSender<(i64, u32, oneshot::Sender<Fate>)>,
    superseded: Mutex<Vec<i64>>,
    panicked: Mutex<Vec<i64>>,
}

#[derive(Debug)]
enum Fate {
    Done,
    Hold,
    Panic,
}

impl Handler for Puppet {
    type Work = i64;

    fn place(&self, record: Record) -> Placed<i64> {
        let order = (0, record.timestamp_ms.unwrap_or(0));
        let key = record.key_text().unwrap_or_default().into();
        Placed { place: Place { key, order, group: "g".into() }, work: record.offset }
    }

    async fn handle(&self, work: Arc<i64>, attempt: u32) -> Disposition {
        let (tell, told) = oneshot::channel();
        self.begun.send((*work, attempt, tell)).unwrap();
        match told.await.unwrap() {
            Fate::Done => Disposition::Done,
            Fate::Hold => Disposition::Hold(Duration::ZERO),
            Fate::Panic => panic!("as the test wishes"),
        }
    }

    async fn panicked(&self, work: Arc<i64>, _: u32) -> Disposition {
        self.panicked.lock().unwrap().push(*work);
        Disposition::Done
    }

    fn superseded(&self, work: &i64) {
        self.superseded.lock().unwrap().push(*work);
    }
}

type Begun = (i64, u32, oneshot::Sender<Fate>);

struct Stage {
    engine: Arc<Engine<Puppet>>,
    puppet: Arc<Puppet>,
    begun: mpsc::UnboundedReceiver<Begun>,
}

impl Stage {
    fn new() -> Self {
        let (send, begun) = mpsc::unbounded_channel();
        let puppet =
            Arc::new(Puppet { begun: send, superseded: Mutex::default(), panicked: Mutex::default() });
        let limits = Limits { total: 4, group: 4 };
        let engine = Engine::new(Arc::clone(&puppet), Handle::current(), Arc::default(), limits);
        engine.assigned(&[0]);
        Self { engine, puppet, begun }
    }

    fn read(&self, key: &str, seq: i64, offset: i64) {
        self.engine.accept(Record {
            topic: "t".into(),
            partition: 0,
            offset,
            timestamp_ms: Some(seq),
            key: Some(key.as_bytes().to_vec()),
            payload: None,
            headers: Vec::new(),
        });
    }

    async fn next(&mut self) -> Begun {
        self.begun.recv().await.unwrap()
    }

    /// Waits until nothing runs, letting tasks go on.
    async fn quiet(&self) {
        while self.engine.load().running > 0 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn offsets_are_committed_up_to_the_first_open_record() {
    let mut stage = Stage::new();
    for (offset, key) in [(3, "a"), (5, "b"), (9, "c")] {
        stage.read(key, 1, offset);
    }
    assert_eq!(stage.engine.take_commits(), [(0, 3)]);
    let mut fates: VecDeque<Begun> = VecDeque::new();
    for _ in 0..3 {
        fates.push_back(stage.next().await);
    }
    fates.pop_back().unwrap().2.send(Fate::Done).unwrap();
    fates.pop_front().unwrap().2.send(Fate::Done).unwrap();
    while stage.engine.load().running > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(stage.engine.take_commits(), [(0, 5)], "the one in the middle is open");
    assert_eq!(stage.engine.take_commits(), [], "committed once");
    stage.engine.commit_failed();
    assert_eq!(stage.engine.take_commits(), [(0, 5)], "but again if that failed");
    fates.pop_front().unwrap().2.send(Fate::Done).unwrap();
    stage.quiet().await;
    assert_eq!(stage.engine.take_commits(), [(0, 10)]);
}

#[tokio::test]
async fn a_partition_taken_and_given_back_waits_for_what_still_runs() {
    let mut stage = Stage::new();
    stage.read("a", 1, 3);
    let (_, _, first) = stage.next().await;
    assert_eq!(stage.engine.revoked(&[0]), [(0, 3)]);
    stage.read("a", 2, 4);
    assert_eq!(stage.engine.load(), Load { in_memory: 1, running: 1 }, "a record of no partition of ours");
    stage.engine.assigned(&[0]);
    stage.read("a", 1, 3);
    assert_eq!(stage.engine.load(), Load { in_memory: 2, running: 1 });
    first.send(Fate::Done).unwrap();
    let (offset, _, second) = stage.next().await;
    assert_eq!(offset, 3, "the same record, read again, runs after itself");
    assert_eq!(stage.engine.take_commits(), [(0, 3)], "what ended in the earlier assignment does not count");
    second.send(Fate::Done).unwrap();
    stage.quiet().await;
    assert_eq!(stage.engine.take_commits(), [(0, 4)]);
}

#[tokio::test]
async fn a_held_record_is_tried_again_or_replaced() {
    let mut stage = Stage::new();
    stage.read("a", 1, 3);
    let (_, attempt, fate) = stage.next().await;
    assert_eq!(attempt, 0);
    fate.send(Fate::Hold).unwrap();
    let (offset, attempt, fate) = stage.next().await;
    assert_eq!((offset, attempt), (3, 1));
    stage.read("a", 2, 4);
    fate.send(Fate::Hold).unwrap();
    let (offset, attempt, fate) = stage.next().await;
    assert_eq!((offset, attempt), (4, 0));
    assert_eq!(*stage.puppet.superseded.lock().unwrap(), [3]);
    fate.send(Fate::Done).unwrap();
    stage.quiet().await;
    assert_eq!(stage.engine.take_commits(), [(0, 5)]);
}

#[tokio::test]
async fn a_panic_is_a_record_like_any_other() {
    let mut stage = Stage::new();
    stage.read("a", 1, 3);
    stage.read("b", 1, 4);
    let (_, _, first) = stage.next().await;
    first.send(Fate::Panic).unwrap();
    let (_, _, second) = stage.next().await;
    second.send(Fate::Done).unwrap();
    stage.quiet().await;
    assert_eq!(*stage.puppet.panicked.lock().unwrap(), [3]);
    assert_eq!(stage.engine.take_commits(), [(0, 5)]);
    stage.read("a", 2, 5);
    let (offset, _, fate) = stage.next().await;
    assert_eq!(offset, 5, "the key is free again");
    fate.send(Fate::Done).unwrap();
    stage.quiet().await;
}

#[tokio::test]
async fn a_closed_engine_starts_nothing_and_commits_nothing_unfinished() {
    let mut stage = Stage::new();
    stage.read("a", 1, 3);
    stage.read("a", 2, 4);
    let (_, _, fate) = stage.next().await;
    stage.engine.close();
    fate.send(Fate::Done).unwrap();
    stage.quiet().await;
    assert_eq!(stage.engine.load(), Load { in_memory: 0, running: 0 });
    assert_eq!(
        stage.engine.take_commits(),
        [(0, 4)],
        "the one that waited is read again by whoever comes next"
    );
    assert!(stage.begun.try_recv().is_err());
}
