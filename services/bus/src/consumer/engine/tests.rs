//! The engine without Kafka: records and partitions are given to it by hand. Nothing here waits for a time.
#![expect(
    clippy::single_range_in_vec_init,
    reason = "stretches of offsets are ranges, and one of them is a list too"
)]

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::ahead;
use crate::consumer::{Disposition, Turn};
use crate::lanes::{Class, Place};

/// A handler whose every step the test takes: it tells of a record and waits to be told what becomes of it.
struct Puppet {
    begun: mpsc::UnboundedSender<(i64, u32, oneshot::Sender<Fate>)>,
    superseded: Mutex<Vec<i64>>,
    /// Whether it panics when it is told so.
    is_touchy: AtomicBool,
    panicked: Mutex<Vec<(i64, u32)>>,
    /// In which task each record was begun.
    tasks: Mutex<Vec<tokio::task::Id>>,
}

#[derive(Debug)]
enum Fate {
    Done,
    Hold,
    Panic,
    /// Its turn is over, and it waits to be told again.
    EndTurn(oneshot::Receiver<Self>),
}

impl Handler for Puppet {
    type Work = i64;

    fn place(&self, record: Record) -> Placed<i64> {
        let order = (0, record.timestamp_ms.unwrap_or(0));
        let key = record.key_text().unwrap_or_default().into();
        let place = Place { key, order, tenant: "t".into(), group: "g".into(), class: Class::Interactive };
        Placed { place, work: record.offset }
    }

    async fn handle(&self, work: Arc<i64>, attempt: u32, turn: &Turn) -> Disposition {
        let (tell, mut told) = oneshot::channel();
        self.tasks.lock().unwrap().push(tokio::task::id());
        self.begun.send((*work, attempt, tell)).unwrap();
        loop {
            match told.await.unwrap() {
                Fate::Done => return Disposition::Done,
                Fate::Hold => return Disposition::Hold(Duration::ZERO),
                Fate::Panic => panic!("as the test wishes"),
                Fate::EndTurn(next) => {
                    turn.end();
                    told = next;
                }
            }
        }
    }

    async fn panicked(&self, work: Arc<i64>, panics: u32) -> Disposition {
        self.panicked.lock().unwrap().push((*work, panics));
        if panics == 0 { Disposition::Hold(Duration::ZERO) } else { Disposition::Done }
    }

    fn superseded(&self, work: &i64) {
        self.superseded.lock().unwrap().push(*work);
        assert!(!self.is_touchy.load(Ordering::Relaxed), "as the test wishes");
    }
}

/// How long a test waits for something before it fails.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of content of each record; keys have one more.
const PAYLOAD: usize = 99;

type Begun = (i64, u32, oneshot::Sender<Fate>);

struct Stage {
    engine: Arc<Engine<Puppet>>,
    puppet: Arc<Puppet>,
    begun: mpsc::UnboundedReceiver<Begun>,
}

impl Stage {
    fn new() -> Self {
        let (send, begun) = mpsc::unbounded_channel();
        let puppet = Arc::new(Puppet {
            begun: send,
            superseded: Mutex::default(),
            is_touchy: AtomicBool::new(false),
            panicked: Mutex::default(),
            tasks: Mutex::default(),
        });
        let limits = Limits { total: 4, group: 4 };
        let engine = Engine::new(Arc::clone(&puppet), Handle::current(), Arc::default(), limits);
        let stage = Self { engine, puppet, begun };
        stage.assign(None);
        stage
    }

    /// The partition is ours, and its last commit says this.
    fn assign(&self, mark: Option<&Mark>) {
        self.engine.assigned(&[0]);
        let [(0, epoch)] = self.engine.to_recall()[..] else { panic!("one partition was assigned") };
        self.engine.recalled(0, epoch, mark);
    }

    fn read(&self, key: &str, seq: i64, offset: i64) {
        self.engine.accept(Record {
            topic: "t".into(),
            partition: 0,
            offset,
            timestamp_ms: Some(seq),
            key: Some(key.as_bytes().to_vec()),
            payload: Some(vec![0; PAYLOAD]),
            headers: Vec::new(),
        });
    }

    /// What is to be committed: offsets, whatever is said of those beyond.
    fn commits(&self) -> Vec<(i32, i64)> {
        self.engine.take_commits().iter().map(|mark| (mark.partition, mark.offset)).collect()
    }

    fn counts(&self) -> (usize, usize) {
        let load = self.engine.load();
        (load.in_memory, load.running)
    }

    async fn next(&mut self) -> Begun {
        tokio::time::timeout(PATIENCE, self.begun.recv()).await.expect("a record is begun in time").unwrap()
    }

    /// Waits until nothing runs, letting tasks go on.
    async fn quiet(&self) {
        self.until_running(0).await;
    }

    async fn until_running(&self, count: usize) {
        let all = async {
            while self.engine.load().running > count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, all).await.expect("what runs ends in time");
    }
}

#[tokio::test]
async fn offsets_are_committed_up_to_the_first_open_record() {
    let mut stage = Stage::new();
    for (offset, key) in [(3, "a"), (5, "b"), (9, "c")] {
        stage.read(key, 1, offset);
    }
    assert_eq!(stage.commits(), [(0, 3)]);
    let mut fates: VecDeque<Begun> = VecDeque::new();
    for _ in 0..3 {
        fates.push_back(stage.next().await);
    }
    fates.pop_back().unwrap().2.send(Fate::Done).unwrap();
    fates.pop_front().unwrap().2.send(Fate::Done).unwrap();
    stage.until_running(1).await;
    let ahead = Mark { partition: 0, offset: 5, metadata: ahead::encode(5, &[6..10]) };
    let marks = stage.engine.take_commits();
    assert_eq!(marks, [ahead], "the one in the middle is open, what is behind it is told");
    assert_eq!(stage.commits(), [], "committed once");
    stage.engine.commit_again();
    assert_eq!(stage.engine.take_commits(), marks, "but again as long as nobody knows");
    fates.pop_front().unwrap().2.send(Fate::Done).unwrap();
    stage.quiet().await;
    assert_eq!(stage.commits(), [(0, 10)]);
    assert_eq!(stage.engine.revoked(&[0]), [Mark::plain(0, 10)], "once more with what is taken");
}

#[tokio::test]
async fn a_partition_taken_and_given_back_waits_for_what_still_runs() {
    let mut stage = Stage::new();
    stage.read("a", 1, 3);
    let (_, _, first) = stage.next().await;
    assert_eq!(stage.engine.revoked(&[0]), [Mark::plain(0, 3)]);
    stage.read("a", 2, 4);
    assert_eq!(stage.counts(), (1, 1), "a record of no partition of ours");
    stage.assign(None);
    stage.read("a", 1, 3);
    assert_eq!(stage.counts(), (2, 1));
    first.send(Fate::Done).unwrap();
    let (offset, _, second) = stage.next().await;
    assert_eq!(offset, 3, "the same record, read again, runs after itself");
    assert_eq!(stage.commits(), [(0, 3)], "what ended in the earlier assignment does not count");
    second.send(Fate::Done).unwrap();
    stage.quiet().await;
    assert_eq!(stage.commits(), [(0, 4)]);
}

#[tokio::test]
async fn others_begin_when_a_turn_is_over_and_its_record_stays_open_until_its_end() {
    let mut stage = Stage::new();
    for (offset, key) in [(3, "a"), (4, "b"), (5, "c"), (6, "d"), (7, "e"), (8, "a")] {
        stage.read(key, offset, offset);
    }
    let (_, _, first) = stage.next().await;
    let mut others = Vec::new();
    for _ in 4..7 {
        others.push(stage.next().await);
    }
    assert!(stage.begun.try_recv().is_err(), "four have their turn");
    let (tell, next) = oneshot::channel();
    first.send(Fate::EndTurn(next)).unwrap();
    let fifth = stage.next().await;
    assert_eq!((fifth.0, stage.commits()), (7, vec![(0, 3)]), "another key, and the first is not dealt with");
    for (.., fate) in others.into_iter().chain([fifth]) {
        fate.send(Fate::Done).unwrap();
    }
    stage.until_running(1).await;
    assert!(stage.begun.try_recv().is_err(), "its key is locked");
    tell.send(Fate::Done).unwrap();
    let (offset, _, last) = stage.next().await;
    assert_eq!(offset, 8);
    last.send(Fate::Done).unwrap();
    stage.quiet().await;
    assert_eq!(stage.commits(), [(0, 9)]);
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
    assert_eq!(stage.commits(), [(0, 5)]);
}

#[tokio::test]
async fn a_held_record_is_tried_again_though_an_older_one_stands_where_it_stood() {
    let mut stage = Stage::new();
    stage.read("a", 2, 3);
    let (_, _, fate) = stage.next().await;
    // Reading went back, and there is another record of the key by now.
    stage.read("a", 1, 3);
    fate.send(Fate::Hold).unwrap();
    let (offset, attempt, fate) = stage.next().await;
    assert_eq!((offset, attempt, stage.commits()), (3, 1, vec![(0, 3)]));
    fate.send(Fate::Done).unwrap();
    stage.quiet().await;
    assert_eq!(stage.commits(), [(0, 4)]);
}

#[tokio::test]
async fn a_record_that_waits_and_is_read_once_more_stays_open() {
    let mut stage = Stage::new();
    stage.read("a", 1, 3);
    stage.read("a", 2, 4);
    let (_, _, first) = stage.next().await;
    // Reading went back: the former reading is superseded by this one.
    stage.read("a", 2, 4);
    first.send(Fate::Done).unwrap();
    let (offset, _, fate) = stage.next().await;
    assert_eq!((offset, stage.commits()), (4, vec![(0, 4)]), "nobody has dealt with it");
    fate.send(Fate::Done).unwrap();
    stage.quiet().await;
    assert_eq!(stage.commits(), [(0, 5)]);
}

#[tokio::test]
async fn a_panic_is_a_record_like_any_other() {
    let mut stage = Stage::new();
    stage.read("a", 1, 3);
    stage.read("b", 1, 4);
    let (_, _, first) = stage.next().await;
    first.send(Fate::Hold).unwrap();
    let (_, _, second) = stage.next().await;
    second.send(Fate::Done).unwrap();
    for tried in [1, 2] {
        let (offset, attempt, again) = stage.next().await;
        assert_eq!((offset, attempt), (3, tried));
        again.send(Fate::Panic).unwrap();
    }
    stage.quiet().await;
    assert_eq!(*stage.puppet.panicked.lock().unwrap(), [(3, 0), (3, 1)], "to be held is no panic");
    assert_eq!(stage.commits(), [(0, 5)]);
    stage.read("a", 2, 5);
    let (offset, _, fate) = stage.next().await;
    assert_eq!(offset, 5, "the key is free again");
    fate.send(Fate::Done).unwrap();
    stage.quiet().await;
}

#[tokio::test]
async fn a_panic_about_a_superseded_record_loses_no_other() {
    let mut stage = Stage::new();
    stage.puppet.is_touchy.store(true, Ordering::Relaxed);
    stage.read("a", 1, 3);
    let (_, _, held) = stage.next().await;
    stage.read("a", 2, 4);
    stage.read("a", 3, 5);
    // Whoever held it has taken the next one when it is told.
    held.send(Fate::Hold).unwrap();
    let (offset, _, fate) = stage.next().await;
    assert_eq!((offset, stage.commits()), (5, vec![(0, 5)]));
    fate.send(Fate::Done).unwrap();
    stage.quiet().await;
    assert_eq!(*stage.puppet.superseded.lock().unwrap(), [4, 3]);
    assert_eq!(stage.commits(), [(0, 6)]);
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
    assert_eq!(stage.engine.load(), Load { in_memory: 0, bytes: 0, running: 0 });
    assert_eq!(stage.commits(), [(0, 4)], "the one that waited is read again by whoever comes next");
    assert!(stage.begun.try_recv().is_err());
}

#[tokio::test]
async fn a_partition_is_not_worked_on_before_its_last_commit_is_known() {
    let mut stage = Stage::new();
    stage.engine.revoked(&[0]);
    stage.engine.assigned(&[0]);
    for (offset, key) in [(3, "a"), (4, "b"), (5, "c"), (6, "d")] {
        stage.read(key, 1, offset);
    }
    let put_by = stage.engine.load();
    assert_eq!(put_by, Load { in_memory: 4, bytes: 4 * (PAYLOAD + 1), running: 0 }, "they count");
    assert!(stage.engine.puts_by());
    let [(0, epoch)] = stage.engine.to_recall()[..] else { panic!("one partition was assigned") };
    assert_eq!(stage.engine.to_recall(), [], "told once");
    let mark = Mark { partition: 0, offset: 3, metadata: ahead::encode(3, &[4..6]) };
    stage.engine.recalled(0, epoch - 1, Some(&mark));
    assert_eq!(stage.engine.load().running, 0, "an answer for an earlier assignment is none");
    stage.engine.recalled(0, epoch, Some(&mark));
    assert!(!stage.engine.puts_by());
    for expected in [3, 6] {
        let (offset, _, fate) = stage.next().await;
        assert_eq!(offset, expected);
        fate.send(Fate::Done).unwrap();
    }
    stage.quiet().await;
    assert_eq!(stage.commits(), [(0, 7)]);
    assert_eq!(stage.engine.state.snapshot().passed_over, 2);
    assert_eq!(stage.engine.load(), Load { in_memory: 0, bytes: 0, running: 0 });
}

#[tokio::test]
async fn without_an_answer_everything_is_dealt_with() {
    let mut stage = Stage::new();
    stage.engine.revoked(&[0]);
    stage.engine.assigned(&[0]);
    stage.read("a", 1, 3);
    let [(0, epoch)] = stage.engine.to_recall()[..] else { panic!("one partition was assigned") };
    stage.engine.recalled(0, epoch, None);
    assert_eq!(stage.next().await.0, 3);
}

#[tokio::test]
async fn a_held_record_that_an_older_one_waits_behind_is_tried_again() {
    let mut stage = Stage::new();
    stage.read("a", 2, 3);
    let (_, _, fate) = stage.next().await;
    stage.read("a", 1, 4);
    fate.send(Fate::Hold).unwrap();
    let (offset, attempt, fate) = stage.next().await;
    assert_eq!((offset, attempt), (3, 1), "it is the newer one");
    fate.send(Fate::Done).unwrap();
    stage.quiet().await;
    assert_eq!(*stage.puppet.superseded.lock().unwrap(), [4]);
    assert_eq!(stage.commits(), [(0, 5)]);
}

#[tokio::test]
async fn those_who_are_abandoned_stop_and_finish_nothing() {
    let mut stage = Stage::new();
    stage.read("a", 1, 3);
    let (_, _, fate) = stage.next().await;
    stage.engine.close();
    stage.engine.abandon();
    stage.quiet().await;
    assert!(fate.is_closed(), "nobody works on");
    assert_eq!(stage.commits(), [(0, 3)], "it is read again");
    assert_eq!(stage.engine.load(), Load { in_memory: 0, bytes: 0, running: 0 });
}

#[tokio::test]
async fn who_has_ended_a_record_works_on_the_next() {
    let mut stage = Stage::new();
    // One more than may run at once.
    for (offset, key) in [(3, "a"), (4, "b"), (5, "c"), (6, "d"), (7, "e")] {
        stage.read(key, 1, offset);
    }
    let mut fates = Vec::new();
    for _ in 3..7 {
        fates.push(stage.next().await.2);
    }
    fates.pop().unwrap().send(Fate::Done).unwrap();
    let (offset, _, fifth) = stage.next().await;
    assert_eq!(offset, 7);
    for fate in fates.into_iter().chain([fifth]) {
        fate.send(Fate::Done).unwrap();
    }
    stage.quiet().await;
    assert_eq!(stage.puppet.tasks.lock().unwrap().iter().collect::<HashSet<_>>().len(), 4);
    assert_eq!(stage.commits(), [(0, 8)]);
}

#[tokio::test]
async fn who_waits_for_less_to_do_is_told_once_there_is() {
    let mut stage = Stage::new();
    for (offset, key) in [(3, "a"), (4, "b"), (5, "c"), (6, "d")] {
        stage.read(key, 1, offset);
    }
    let bound = Bound { in_memory: 3, bytes: usize::MAX };
    let engine = Arc::clone(&stage.engine);
    let waiting = tokio::task::spawn_blocking(move || engine.wait_below(bound, PATIENCE));
    let waits = |stage: &Stage| lock(&stage.engine.inner).waits_for.is_some();
    let begun = async {
        while !waits(&stage) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, begun).await.expect("it waits");
    stage.next().await.2.send(Fate::Done).unwrap();
    stage.until_running(3).await;
    assert!(waits(&stage), "there is as much as the bound");
    stage.next().await.2.send(Fate::Done).unwrap();
    assert!(waiting.await.unwrap(), "told, long before its time is over");
    stage.until_running(2).await;
    assert!(!waits(&stage));
    assert!(!stage.engine.wait_below(Bound { in_memory: 2, bytes: usize::MAX }, Duration::ZERO));
    assert!(!stage.engine.wait_below(Bound { in_memory: 9, bytes: 2 * (PAYLOAD + 1) }, Duration::ZERO));
    assert!(stage.engine.wait_below(Bound { in_memory: 9, bytes: 999 }, Duration::ZERO));
}
