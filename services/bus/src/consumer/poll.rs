//! The duty of a consumer by key: place what is read, commit on a period, pause when too much is in memory.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::engine::Engine;
use super::load::Bound;
use super::questions::{Answer, Assigned, Questions};
use super::state::{Snapshot, State};
use super::{Handler, OffsetReset, Settings};
use crate::polling::{self, Client, Duty, Membership, POLL, SOON, Start, list};
use crate::tracker::Mark;
use crate::{Error, Record};

/// Questions and answers that wait. A rebalance asks one question.
const WAITING: usize = 64;
/// How often offsets are committed that did not move. Of a commit that a broker refuses, as during a rebalance, nobody is
/// told, and it would stay behind until the next record of its partition.
const COMMIT_ALL: Duration = Duration::from_secs(5);

pub(crate) fn run<H: Handler>(
    settings: &Settings,
    handler: Arc<H>,
    state: &Arc<State>,
    runtime: Handle,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let engine = Engine::new(handler, runtime, Arc::clone(state), settings.limits);
    let membership: Arc<dyn Membership> = Arc::<Engine<H>>::clone(&engine);
    let start = Start {
        connection: &settings.connection,
        group: &settings.group,
        topic: &settings.topic,
        reset: settings.offset_reset,
        patience: settings.patience,
        grace: settings.grace,
        last_commit: settings.last_commit,
        state,
    };
    let (ask, asked) = sync_channel(WAITING);
    let (answers, answered) = sync_channel(WAITING);
    let questions = Questions {
        topic: settings.topic.clone(),
        count_every: settings.count_every,
        limit: settings.question,
        may_begin: settings.offset_reset == OffsetReset::Earliest,
        asked,
        answers,
    };
    let mut reading = Reading {
        engine,
        settings,
        questions: Some((ask, answered)),
        unasked: Vec::new(),
        paused: Vec::new(),
        committed: Instant::now(),
        committed_all: Instant::now(),
    };
    polling::run(&start, membership, &mut reading, |client| questions.ask(client), stop)
}

struct Reading<'a, H: Handler> {
    engine: Arc<Engine<H>>,
    settings: &'a Settings,
    /// Where the brokers are asked, and what they say; `None` once the end has come.
    questions: Option<(SyncSender<Assigned>, Receiver<Answer>)>,
    /// Assignments of which nobody was asked yet.
    unasked: Assigned,
    /// Partitions that we paused, and the numbers of their assignments: one that comes back is read until it is paused again.
    paused: Assigned,
    committed: Instant,
    /// When everything was last committed, moved or not.
    committed_all: Instant,
}

impl<H: Handler> Duty for Reading<'_, H> {
    fn before(&mut self, _: &Client) -> Result<Duration, Error> {
        let puts_by = self.engine.puts_by();
        if puts_by {
            self.unasked.extend(self.engine.to_recall());
        }
        let Some((ask, answers)) = &self.questions else { return Ok(POLL) };
        if !self.unasked.is_empty() {
            // A full queue is asked again in the next round.
            if let Err(TrySendError::Full(back)) = ask.try_send(std::mem::take(&mut self.unasked)) {
                self.unasked = back;
            }
        }
        while let Ok(answer) = answers.try_recv() {
            self.told(answer)?;
        }
        // What is put by waits for an answer: come round soon.
        Ok(if puts_by && self.engine.puts_by() { SOON } else { POLL })
    }

    /// Below the bounds at which partitions are paused, so that work that goes on never meets those.
    fn room(&mut self, limit: Duration) -> bool {
        let Settings { in_memory, in_memory_bytes, .. } = *self.settings;
        let full = Bound { in_memory: in_memory / 4 * 3, bytes: in_memory_bytes / 4 * 3 };
        let plenty = Bound { in_memory: in_memory / 8 * 5, bytes: in_memory_bytes / 8 * 5 };
        !self.engine.load().reaches(full) || self.engine.wait_below(plenty, limit)
    }

    fn accept(&mut self, record: Record) {
        self.engine.accept(record);
    }

    fn after(&mut self, client: &Client) -> Vec<Mark> {
        self.press(client);
        if self.committed.elapsed() < self.settings.commit_every {
            return Vec::new();
        }
        self.committed = Instant::now();
        if self.committed_all.elapsed() >= COMMIT_ALL {
            self.committed_all = self.committed;
            self.engine.commit_again();
        }
        self.engine.take_commits()
    }

    fn report(&self, snapshot: &mut Snapshot) {
        snapshot.paused = !self.paused.is_empty();
        self.engine.report(snapshot);
    }

    fn close(&mut self) {
        self.questions = None;
        self.engine.close();
    }

    fn hush(&mut self, client: &Client) {
        let ours = self.engine.ours();
        if !ours.is_empty() && self.paused != ours {
            self.pause(client, ours);
        }
    }

    fn running(&self) -> usize {
        self.engine.load().running
    }

    fn abandon(&mut self) {
        self.engine.abandon();
    }

    fn last(&mut self) -> Vec<Mark> {
        self.engine.commit_again();
        self.engine.take_commits()
    }
}

impl<H: Handler> Reading<'_, H> {
    fn told(&self, answer: Answer) -> Result<(), Error> {
        match answer {
            Answer::Committed(assigned, marks) => {
                for (partition, epoch) in assigned {
                    let mark = marks.iter().find(|mark| mark.partition == partition);
                    self.engine.recalled(partition, epoch, mark);
                }
                Ok(())
            }
            Answer::Partitions(found) => match self.settings.partitions {
                Some(expected) if expected != found => {
                    Err(Error::PartitionCount { topic: self.settings.topic.clone(), expected, found })
                }
                _ => Ok(()),
            },
        }
    }

    /// Pauses all partitions when too much is in memory and lets them go at half of it: pausing throws prefetched
    /// records away, so it should not happen often.
    fn press(&mut self, client: &Client) {
        let load = self.engine.load();
        let Settings { in_memory, in_memory_bytes, .. } = self.settings;
        let (count, bytes) = (load.in_memory, load.bytes);
        let pressed = if self.paused.is_empty() {
            count >= *in_memory || bytes >= *in_memory_bytes
        } else {
            count > in_memory / 2 || bytes > in_memory_bytes / 2
        };
        if !pressed && self.paused.is_empty() {
            return;
        }
        let ours = self.engine.ours();
        if pressed && self.paused != ours && !ours.is_empty() {
            // Partitions that came with a rebalance start unpaused.
            self.pause(client, ours);
        } else if !pressed {
            self.resume(client, &ours);
        }
    }

    fn pause(&mut self, client: &Client, ours: Assigned) {
        match client.pause(&list(&self.settings.topic, &numbers(&ours))) {
            Ok(()) => self.paused = ours,
            Err(error) => {
                tracing::warn!(kafka.topic = self.settings.topic, "partitions were not paused: {error}");
            }
        }
    }

    fn resume(&mut self, client: &Client, ours: &[(i32, u64)]) {
        let mut still = self.paused.clone();
        still.retain(|assigned| ours.contains(assigned));
        match client.resume(&list(&self.settings.topic, &numbers(&still))) {
            Ok(()) => self.paused.clear(),
            Err(error) => {
                tracing::warn!(kafka.topic = self.settings.topic, "partitions were not resumed: {error}");
            }
        }
    }
}

/// Which partitions were assigned.
fn numbers(assigned: &[(i32, u64)]) -> Vec<i32> {
    assigned.iter().map(|(partition, _)| *partition).collect()
}
