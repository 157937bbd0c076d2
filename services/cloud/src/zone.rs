//! A writer for a hosted zone. Route 53 takes one change of a zone after the other and few requests a second, so the
//! changes of many databases travel together, one request of the writer in flight.
//!
//! *Invariant:* what one caller asks for is done whole or not at all, and one caller's mistake is nobody else's: a batch
//! that is refused is sent again in halves. A change that had to wait for too long is never sent, nor is a request that nobody
//! waits for any more or that may no longer be made: what it was decided on may no longer be so.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::{
    Batcher, Batching, Call, ChangeId, Cloud, DnsChange, Error, Fetched, HostedZoneId, RecordChange,
    ResourceKind,
};

type Answer = Result<DnsChange, Error>;
/// Carries out one request for as long as it may be made, and gives it up then.
pub type Within =
    Box<dyn Fn(BoxFuture<'static, Answer>) -> BoxFuture<'static, Answer> + std::marker::Send + Sync>;
type Send = Arc<dyn Fn(Vec<RecordChange>) -> BoxFuture<'static, Answer> + std::marker::Send + Sync>;

/// How changes are gathered.
#[derive(Clone, Copy, Debug)]
pub struct Gathering {
    /// How long the first change waits for others.
    pub window: Duration,
    /// How many changes go into one request. Route 53 takes 1000 and counts an upsert twice.
    pub size: usize,
    /// How many callers may wait; more are refused as throttled.
    pub waiting: usize,
    /// How long a change may wait until it is sent; one that waited longer is refused as throttled.
    pub longest: Duration,
}

impl Default for Gathering {
    fn default() -> Self {
        let (window, longest) = (Duration::from_millis(200), Duration::from_secs(20));
        Self { window, size: 200, waiting: 5000, longest }
    }
}

/// Writes records of one zone.
pub struct ZoneWriter {
    queue: mpsc::Sender<Wish>,
    longest: Duration,
    states: Batcher<ChangeId, Answer>,
}

struct Wish {
    changes: Vec<RecordChange>,
    /// It is not sent for the first time later than this.
    until: Instant,
    answer: oneshot::Sender<Answer>,
}

impl Wish {
    /// Itself, if it may still be sent; else nothing of it ever happens.
    fn if_in_time(self) -> Option<Self> {
        if Instant::now() <= self.until {
            return Some(self);
        }
        let call =
            Call::new(OPERATION, "the zone's earlier changes took too long, and this one was not sent");
        // A caller that went away wants no answer.
        let _ = self.answer.send(Err(Error::Throttled { retry_after: None, call: Box::new(call) }));
        None
    }
}

impl fmt::Debug for ZoneWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZoneWriter").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

impl ZoneWriter {
    /// Starts the writer's task, which ends when the writer is dropped and its queue is done.
    pub fn new(cloud: &Arc<dyn Cloud>, zone: HostedZoneId, gathering: Gathering, within: Within) -> Self {
        let (changing, asking) = (Arc::clone(cloud), Arc::clone(cloud));
        let send: Send = Arc::new(move |changes| {
            let (cloud, zone) = (Arc::clone(&changing), zone.clone());
            within(async move { cloud.change_records(&zone, &changes).await }.boxed())
        });
        let batching = Batching { window: gathering.window, size: 10, waiting: gathering.waiting };
        let states = Batcher::new("GetChange", batching, move |ids| states(Arc::clone(&asking), ids).boxed());
        Self { queue: start(send, gathering), longest: gathering.longest, states }
    }

    /// Carries out all of these changes or none, together with those of others.
    pub async fn change(&self, changes: Vec<RecordChange>) -> Answer {
        let (sender, answer) = oneshot::channel();
        let until = Instant::now() + self.longest;
        self.queue.try_send(Wish { changes, until, answer: sender }).map_err(|_| Error::Throttled {
            retry_after: None,
            call: Box::new(Call::new(OPERATION, format!("{} callers are waiting already", self.waiting()))),
        })?;
        answer.await.unwrap_or_else(|_| {
            Err(Error::Unavailable { call: Box::new(Call::new(OPERATION, "the request was abandoned")) })
        })
    }

    /// How far a change has come; asked once for all whose changes travelled together. `None` when Route 53 does not
    /// know it.
    pub async fn state(&self, change: &ChangeId) -> Result<Option<DnsChange>, Error> {
        self.states.get(change.clone()).await?.transpose()
    }

    fn waiting(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }
}

const OPERATION: &str = "ChangeResourceRecordSets";

async fn states(cloud: Arc<dyn Cloud>, ids: Vec<ChangeId>) -> Fetched<ChangeId, Answer> {
    let answers = join_all(ids.iter().map(|id| cloud.get_change(id))).await;
    let is_unknown =
        |answer: &Answer| answer.as_ref().is_err_and(|error| error.is_not_found(ResourceKind::Change));
    Ok(ids.iter().cloned().zip(answers).filter(|(_, answer)| !is_unknown(answer)).collect())
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
        // A task of its own: a panic ends this batch and not the writer.
        let _ = tokio::spawn(carry_out(Arc::clone(&send), batch).in_current_span()).await;
    }
}

async fn gather(
    first: Wish,
    gathering: Gathering,
    wishes: &mut mpsc::Receiver<Wish>,
) -> (Vec<Wish>, Option<Wish>) {
    let mut count = first.changes.len();
    let mut batch = vec![first];
    let until = Instant::now() + gathering.window;
    while count < gathering.size {
        let Ok(Some(next)) = tokio::time::timeout_at(until, wishes.recv()).await else { break };
        count += next.changes.len();
        if count > gathering.size {
            return (batch, Some(next));
        }
        batch.push(next);
    }
    (batch, None)
}

async fn carry_out(send: Send, batch: Vec<Wish>) {
    let mut left: Vec<Vec<Wish>> = vec![batch.into_iter().filter_map(Wish::if_in_time).collect()];
    while let Some(mut batch) = left.pop() {
        batch.retain(|wish| !wish.answer.is_closed());
        if batch.is_empty() {
            continue;
        }
        let all = batch.iter().flat_map(|wish| wish.changes.iter().cloned()).collect();
        let answer = tokio::select! {
            answer = send(all) => answer,
            () = all_left(&mut batch) => continue,
        };
        if batch.len() > 1 && answer.as_ref().is_err_and(is_refusal) {
            let second = batch.split_off(batch.len() / 2);
            // Callers are served in their order.
            left.extend([second, batch]);
            continue;
        }
        for wish in batch {
            // A caller that went away wants no answer.
            let _ = wish.answer.send(answer.clone());
        }
    }
}

async fn all_left(batch: &mut [Wish]) {
    join_all(batch.iter_mut().map(|wish| wish.answer.closed())).await;
}

/// Whether nothing was done and a part of the batch may be to blame, so that the others are worth another try.
fn is_refusal(error: &Error) -> bool {
    match error {
        Error::NotFound { kind, .. } => *kind == ResourceKind::Record,
        // Rights may be bound to names. Credentials and the clock are everybody's.
        Error::Denied { call } => call.code.as_deref().is_some_and(|code| code.starts_with("AccessDenied")),
        Error::Throttled { .. } | Error::Quota { .. } | Error::WrongTime { .. } => false,
        other => !other.outcome_unknown(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::SeqCst;

    use tokio::sync::Semaphore;

    use super::*;
    use crate::{DnsChangeState, DnsRecord};

    type Log = Arc<Mutex<Vec<Vec<String>>>>;

    /// Refuses names that begin with "bad", whole; answers nothing at all while a name begins with "lost".
    fn answer(names: &[String], number: usize) -> Answer {
        let call = || Box::new(Call::new(OPERATION, "no"));
        if names.iter().any(|name| name.starts_with("bad")) {
            return Err(Error::AlreadyExists { call: call() });
        }
        assert!(!names.iter().any(|name| name == "panic"), "asked to break");
        if names.iter().any(|name| name.starts_with("lost")) {
            return Err(Error::Timeout { call: call() });
        }
        Ok(DnsChange { id: format!("C{number}").into(), state: DnsChangeState::Pending })
    }

    fn queue(gathering: Gathering) -> (mpsc::Sender<Wish>, Log) {
        let log = Log::default();
        let kept = Arc::clone(&log);
        let send: Send = Arc::new(move |changes| {
            let names: Vec<_> = changes.iter().map(|change| change.record().name.clone()).collect();
            let mut kept = kept.lock().unwrap();
            kept.push(names.clone());
            let number = kept.len();
            async move { answer(&names, number) }.boxed()
        });
        (start(send, gathering), log)
    }

    async fn change(queue: &mpsc::Sender<Wish>, names: &[&str]) -> Answer {
        sent(queue, names).await.await.unwrap()
    }

    async fn sent(queue: &mpsc::Sender<Wish>, names: &[&str]) -> oneshot::Receiver<Answer> {
        let changes =
            names.iter().map(|name| RecordChange::Upsert(DnsRecord::cname(name, 60, "target"))).collect();
        let (sender, answer) = oneshot::channel();
        let until = Instant::now() + Gathering::default().longest;
        queue.send(Wish { changes, until, answer: sender }).await.ok().unwrap();
        answer
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
        let expect: [&[&str]; 5] = [&["a", "bad", "c"], &["a"], &["bad", "c"], &["bad"], &["c"]];
        assert_eq!(*log.lock().unwrap(), expect);
    }

    #[tokio::test]
    async fn one_mistake_among_many_takes_few_requests() {
        let (queue, log) = queue(Gathering::default());
        let names: Vec<String> =
            (0..128).map(|number| if number == 77 { "bad".to_owned() } else { number.to_string() }).collect();
        let singly: Vec<[&str; 1]> = names.iter().map(|name| [name.as_str()]).collect();
        let answers = join_all(singly.iter().map(|name| change(&queue, name))).await;
        let refused: Vec<_> = (0..128).filter(|number| answers[*number].is_err()).collect();
        assert_eq!((refused, log.lock().unwrap().len()), (vec![77], 15));
    }

    #[test]
    fn only_what_a_part_may_be_to_blame_for_is_sent_again_in_halves() {
        let call = || Box::new(Call::new(OPERATION, "no"));
        let denied =
            |code: &str| Error::Denied { call: Box::new(Call::new(OPERATION, "no").with_code(code)) };
        for (error, expected) in [
            (Error::AlreadyExists { call: call() }, true),
            (Error::Invalid { call: call() }, true),
            (denied("AccessDenied"), true),
            (denied("ExpiredToken"), false),
            (Error::Denied { call: call() }, false),
            (Error::WrongTime { call: call() }, false),
            (Error::Throttled { retry_after: None, call: call() }, false),
            (Error::Timeout { call: call() }, false),
        ] {
            assert_eq!(is_refusal(&error), expected, "{error:?}");
        }
    }

    /// Says that it was begun, and is carried out once it may be.
    async fn gated(
        begun: mpsc::UnboundedSender<()>,
        gate: Arc<Semaphore>,
        carried_out: Arc<AtomicUsize>,
    ) -> Answer {
        begun.send(()).unwrap();
        gate.acquire().await.unwrap().forget();
        let number = carried_out.fetch_add(1, SeqCst);
        Ok(DnsChange { id: format!("C{number}").into(), state: DnsChangeState::Pending })
    }

    #[tokio::test]
    async fn a_request_that_nobody_waits_for_any_more_is_given_up() {
        let (begun, mut begins) = mpsc::unbounded_channel();
        // A turn of the account's rate is waited for before anything is sent.
        let (gate, carried_out) = (Arc::new(Semaphore::new(0)), Arc::<AtomicUsize>::default());
        let (opens, count) = (Arc::clone(&gate), Arc::clone(&carried_out));
        let send: Send =
            Arc::new(move |_| gated(begun.clone(), Arc::clone(&gate), Arc::clone(&carried_out)).boxed());
        let queue = start(send, Gathering::default());
        let mut begins = async || {
            let begun = tokio::time::timeout(Duration::from_secs(30), begins.recv()).await;
            begun.expect("the request before is given up").unwrap();
        };
        let leaving = sent(&queue, &["a"]).await;
        begins().await;
        drop(leaving);
        let (leaving, staying) = (sent(&queue, &["b"]).await, sent(&queue, &["c"]).await);
        begins().await;
        drop(leaving);
        tokio::task::yield_now().await;
        opens.add_permits(2);
        assert!(staying.await.unwrap().is_ok(), "somebody waits for it still");
        assert_eq!(count.load(SeqCst), 1);
    }

    #[tokio::test]
    async fn a_panic_ends_its_batch_and_not_the_writer() {
        let (queue, _) = queue(Gathering::default());
        assert!(sent(&queue, &["panic"]).await.await.is_err(), "the caller is told that nobody answers");
        assert!(change(&queue, &["a"]).await.is_ok());
    }

    #[tokio::test]
    async fn what_waited_too_long_is_refused_and_was_never_sent() {
        let (queue, log) = queue(Gathering::default());
        let (sender, late) = oneshot::channel();
        let changes = vec![RecordChange::Upsert(DnsRecord::cname("late", 60, "target"))];
        queue.send(Wish { changes, until: Instant::now(), answer: sender }).await.ok().unwrap();
        assert!(change(&queue, &["in time"]).await.is_ok());
        let late = late.await.unwrap().unwrap_err();
        assert!(matches!(late, Error::Throttled { .. }), "{late:?}");
        assert_eq!(*log.lock().unwrap(), [["in time"]]);
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
        // Gathered already, too.
        let mut gathered = Box::pin(change(&queue, &["c"]));
        assert!(futures::poll!(&mut gathered).is_pending());
        tokio::task::yield_now().await;
        drop(gathered);
        assert!(change(&queue, &["d"]).await.is_ok());
        assert_eq!(*log.lock().unwrap(), [["a"], ["d"]]);
    }
}
