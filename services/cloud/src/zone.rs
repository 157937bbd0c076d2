//! One writer for a hosted zone. Route 53 takes one change of a zone after the other and few requests a second, so the
//! changes of many databases travel together, one request in flight.
//!
//! *Invariant:* what one caller asks for is done whole or not at all, and one caller's mistake is nobody else's: a batch
//! that is refused for its content is sent again caller by caller.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument as _;

use crate::{
    Batcher, Batching, Call, ChangeId, Cloud, DnsChange, Error, HostedZoneId, RecordChange, ResourceKind,
};

type Answer = Result<DnsChange, Error>;
type Send = Box<dyn Fn(Vec<RecordChange>) -> BoxFuture<'static, Answer> + std::marker::Send + Sync>;

/// How changes are gathered.
#[derive(Clone, Copy, Debug)]
pub struct Gathering {
    /// How long the first change waits for others.
    pub window: Duration,
    /// How many changes go into one request. Route 53 takes 1000 and counts an upsert twice.
    pub size: usize,
    /// How many callers may wait; more are refused as throttled.
    pub waiting: usize,
}

impl Default for Gathering {
    fn default() -> Self {
        Self { window: Duration::from_millis(200), size: 200, waiting: 5000 }
    }
}

/// Writes records of one zone.
pub struct ZoneWriter {
    queue: mpsc::Sender<Wish>,
    states: Batcher<ChangeId, DnsChange>,
}

struct Wish {
    changes: Vec<RecordChange>,
    answer: oneshot::Sender<Answer>,
}

impl fmt::Debug for ZoneWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZoneWriter").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

impl ZoneWriter {
    /// Starts the writer's task, which ends when the writer is dropped and its queue is done.
    pub fn new(cloud: &Arc<dyn Cloud>, zone: HostedZoneId, gathering: Gathering) -> Self {
        let (changing, asking) = (Arc::clone(cloud), Arc::clone(cloud));
        let send: Send = Box::new(move |changes| {
            let (cloud, zone) = (Arc::clone(&changing), zone.clone());
            async move { cloud.change_records(&zone, &changes).await }.boxed()
        });
        let batching = Batching { window: gathering.window, size: 10, waiting: gathering.waiting };
        let states = Batcher::new("GetChange", batching, move |ids| states(Arc::clone(&asking), ids).boxed());
        Self { queue: start(send, gathering), states }
    }

    /// Carries out all of these changes or none, together with those of others.
    pub async fn change(&self, changes: Vec<RecordChange>) -> Answer {
        let (sender, answer) = oneshot::channel();
        self.queue.try_send(Wish { changes, answer: sender }).map_err(|_| Error::Throttled {
            retry_after: None,
            call: Box::new(Call::new(OPERATION, format!("{} callers are waiting already", self.waiting()))),
        })?;
        answer.await.unwrap_or_else(|_| {
            Err(Error::Unavailable {
                call: Box::new(Call::new(OPERATION, "the writer of the zone has ended")),
            })
        })
    }

    /// How far a change has come; asked once for all whose changes travelled together. `None` when Route 53 does not
    /// know it.
    pub async fn state(&self, change: &ChangeId) -> Result<Option<DnsChange>, Error> {
        self.states.get(change.clone()).await
    }

    fn waiting(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }
}

const OPERATION: &str = "ChangeResourceRecordSets";

async fn states(
    cloud: Arc<dyn Cloud>,
    ids: Vec<ChangeId>,
) -> Result<std::collections::HashMap<ChangeId, DnsChange>, Error> {
    let answers = join_all(ids.iter().map(|id| cloud.get_change(id))).await;
    let known = ids.iter().cloned().zip(answers).filter_map(|(id, answer)| match answer {
        Ok(change) => Some(Ok((id, change))),
        Err(error) if error.is_not_found(ResourceKind::Change) => None,
        Err(error) => Some(Err(error)),
    });
    known.collect()
}

fn start(send: Send, gathering: Gathering) -> mpsc::Sender<Wish> {
    let (queue, wishes) = mpsc::channel(gathering.waiting.max(1));
    tokio::spawn(work(send, gathering, wishes).instrument(tracing::debug_span!("cloud.zone")));
    queue
}

async fn work(send: Send, gathering: Gathering, mut wishes: mpsc::Receiver<Wish>) {
    // A wish that did not fit into a batch begins the next.
    let mut first = None;
    loop {
        let Some(begin) = (match first.take() {
            Some(wish) => Some(wish),
            None => wishes.recv().await,
        }) else {
            return;
        };
        let (batch, left) = gather(begin, gathering, &mut wishes).await;
        first = left;
        carry_out(&send, batch).await;
    }
}

async fn gather(
    first: Wish,
    gathering: Gathering,
    wishes: &mut mpsc::Receiver<Wish>,
) -> (Vec<Wish>, Option<Wish>) {
    let mut count = first.changes.len();
    let mut batch = vec![first];
    let until = tokio::time::Instant::now() + gathering.window;
    while count < gathering.size {
        let Ok(Some(next)) = tokio::time::timeout_at(until, wishes.recv()).await else { break };
        if next.answer.is_closed() {
            // Nobody waits for it any more, and nothing was sent: it never happened.
            continue;
        }
        count += next.changes.len();
        if count > gathering.size {
            return (batch, Some(next));
        }
        batch.push(next);
    }
    (batch, None)
}

async fn carry_out(send: &Send, batch: Vec<Wish>) {
    let all = batch.iter().flat_map(|wish| wish.changes.iter().cloned()).collect();
    let answer = send(all).await;
    let alone = batch.len() == 1;
    for wish in batch {
        let answer = match &answer {
            Err(error) if !alone && is_about_content(error) => send(wish.changes).await,
            answer => answer.clone(),
        };
        // A caller that went away wants no answer.
        let _ = wish.answer.send(answer);
    }
}

/// Whether a part of the batch may be to blame, so that the others are worth another try.
fn is_about_content(error: &Error) -> bool {
    match error {
        Error::NotFound { kind, .. } => *kind == ResourceKind::Record,
        Error::AlreadyExists { .. } | Error::IncorrectState { .. } | Error::Invalid { .. } => true,
        Error::InUse { .. }
        | Error::Throttled { .. }
        | Error::Capacity { .. }
        | Error::Quota { .. }
        | Error::ParameterMismatch { .. }
        | Error::TooSoon { .. }
        | Error::NotPermitted { .. }
        | Error::Denied { .. }
        | Error::Unavailable { .. }
        | Error::Timeout { .. }
        | Error::Unreadable { .. }
        | Error::Unrecognised { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{DnsChangeState, DnsRecord};

    type Log = Arc<Mutex<Vec<Vec<String>>>>;

    /// Refuses names that begin with "bad", whole; answers nothing at all while a name begins with "lost".
    fn answer(names: &[String], number: usize) -> Answer {
        let call = || Box::new(Call::new(OPERATION, "no"));
        if names.iter().any(|name| name.starts_with("bad")) {
            return Err(Error::AlreadyExists { call: call() });
        }
        if names.iter().any(|name| name.starts_with("lost")) {
            return Err(Error::Timeout { call: call() });
        }
        Ok(DnsChange { id: format!("C{number}").into(), state: DnsChangeState::Pending })
    }

    fn queue(gathering: Gathering) -> (mpsc::Sender<Wish>, Log) {
        let log = Log::default();
        let kept = Arc::clone(&log);
        let send: Send = Box::new(move |changes| {
            let names: Vec<_> = changes.iter().map(|change| change.record().name.clone()).collect();
            let mut kept = kept.lock().unwrap();
            kept.push(names.clone());
            let number = kept.len();
            async move { answer(&names, number) }.boxed()
        });
        (start(send, gathering), log)
    }

    async fn change(queue: &mpsc::Sender<Wish>, names: &[&str]) -> Answer {
        let changes =
            names.iter().map(|name| RecordChange::Upsert(DnsRecord::cname(name, 60, "target"))).collect();
        let (sender, answer) = oneshot::channel();
        queue.send(Wish { changes, answer: sender }).await.ok().unwrap();
        answer.await.unwrap()
    }

    #[tokio::test]
    async fn changes_of_one_window_travel_together() {
        let (queue, log) = queue(Gathering::default());
        let (one, two) = tokio::join!(change(&queue, &["a", "b"]), change(&queue, &["c"]));
        assert_eq!(one.unwrap().id, two.unwrap().id);
        assert_eq!(*log.lock().unwrap(), [["a", "b", "c"]]);
    }

    #[tokio::test]
    async fn one_callers_mistake_is_nobody_elses() {
        let (queue, log) = queue(Gathering::default());
        let (good, bad, other) =
            tokio::join!(change(&queue, &["a"]), change(&queue, &["bad"]), change(&queue, &["c"]));
        assert!(good.is_ok() && other.is_ok());
        assert_eq!(bad.unwrap_err().category(), "already_exists");
        let expect: [&[&str]; 4] = [&["a", "bad", "c"], &["a"], &["bad"], &["c"]];
        assert_eq!(*log.lock().unwrap(), expect);
    }

    #[tokio::test]
    async fn an_unknown_outcome_is_everybodys_and_nothing_is_said_twice() {
        let (queue, log) = queue(Gathering::default());
        let (one, two) = tokio::join!(change(&queue, &["a"]), change(&queue, &["lost"]));
        assert!(one.unwrap_err().outcome_unknown() && two.unwrap_err().outcome_unknown());
        assert_eq!(log.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn no_request_is_larger_than_allowed_and_no_caller_is_cut_in_two() {
        let (queue, log) = queue(Gathering { size: 3, ..Gathering::default() });
        let wishes = [["a", "b"], ["c", "d"], ["e", "f"]];
        let answers = join_all(wishes.iter().map(|names| change(&queue, names))).await;
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!(*log.lock().unwrap(), wishes);
    }

    #[tokio::test]
    async fn a_caller_who_left_before_anything_was_sent_has_asked_for_nothing() {
        let (queue, log) = queue(Gathering::default());
        let mut staying = Box::pin(change(&queue, &["a"]));
        assert!(futures::poll!(&mut staying).is_pending());
        let mut leaving = Box::pin(change(&queue, &["b"]));
        assert!(futures::poll!(&mut leaving).is_pending());
        drop(leaving);
        assert!(staying.await.is_ok());
        assert_eq!(*log.lock().unwrap(), [["a"]]);
    }
}
