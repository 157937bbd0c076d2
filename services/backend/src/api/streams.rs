//! All event streams of this process, fed by one query every few hundred milliseconds while there are any.
//!
//! *Invariant:* what a stream shows is committed. A stream remembers the last number it sent, so nothing is missed when a
//! query fails or a reader is slow, and nothing is left behind when the process dies. Of an operation that ended long ago only
//! the last event is there: every stream comes to it, over the gap. *Invariant:* a stream for which nothing can come any more ends:
//! after commits were lost an operation may have fewer events than were shown of it, and its end a number that was seen. So does one
//! whose reader's token is valid no more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use domain::OperationId;
use runtime::backoff::Retry;
use runtime::{Backoff, CancellationToken};
use store::{Event, EventKind, Events, Store, UnreadableEvent};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};
use uuid::Uuid;

use crate::metrics::Metrics;

/// How often new events are looked for: half a second is promised, the query and the way to the reader included.
const POLL: Duration = Duration::from_millis(200);
/// How often it is looked whether anything can still come, and whether whoever reads still may.
const LOOK: Duration = Duration::from_secs(5);
/// Patience with one query.
const DEADLINE: Duration = Duration::from_secs(10);
/// Most streams of a process.
const STREAMS: usize = 2_000;
/// Events that a slow reader may lag behind before its stream waits for it.
const LAG: usize = 64;
/// Most events of one operation in one query: no more than a reader takes at once.
const EACH: u32 = 32;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5));

/// The streams. Clones share them.
#[derive(Debug, Clone)]
pub struct Streams(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    wake: Notify,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    open: BTreeMap<u64, Reader>,
    closed: bool,
}

#[derive(Debug)]
struct Reader {
    operation: OperationId,
    /// With which token it came.
    token: Uuid,
    /// Number of the last event that was handed over.
    sent: i64,
    events: Sender<Event>,
}

impl Streams {
    /// No streams yet.
    pub fn new(metrics: Metrics) -> Self {
        Self(Arc::new(Inner { state: Mutex::default(), wake: Notify::new(), metrics }))
    }

    /// Opens a stream of an operation's events after a number, for whoever came with a token; `None` when there are too many, or
    /// the process stops.
    pub(crate) fn follow(&self, operation: OperationId, after: i64, token: Uuid) -> Option<Receiver<Event>> {
        let (events, receiver) = channel(LAG);
        let mut state = self.lock();
        if state.closed || state.open.len() >= STREAMS {
            return None;
        }
        state.next += 1;
        let number = state.next;
        state.open.insert(number, Reader { operation, token, sent: after, events });
        self.count(&state);
        drop(state);
        self.0.wake.notify_one();
        Some(receiver)
    }

    /// Feeds the streams until `stop`; then they end, and their readers resume elsewhere.
    pub async fn run(self, store: Store, stop: CancellationToken) {
        let (mut retry, mut looked) = (BACKOFF.start(), Instant::now());
        while !stop.is_cancelled() {
            if self.lock().open.is_empty() {
                tokio::select! {
                    () = self.0.wake.notified() => {}
                    () = stop.cancelled() => break,
                }
            }
            let wait = match self.round(&store, &mut looked).await {
                Ok(more) => {
                    retry.reset();
                    pause_after(more)
                }
                Err(reason) => failed(&reason, &mut retry),
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => {}
            }
        }
        self.close();
    }

    /// Ends all streams, for good.
    fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.open.clear();
        self.count(&state);
    }

    /// Hands over what is new, and ends now and then those for which nothing can come. Says whether some operation has more.
    async fn round(&self, store: &Store, looked: &mut Instant) -> Result<bool, String> {
        let more = self.feed(store).await?;
        if looked.elapsed() >= LOOK {
            // Also where that fails: what is new is not held up by it each time.
            *looked = Instant::now();
            self.look_at_tokens(store).await?;
            self.look(store).await?;
        }
        Ok(more)
    }

    /// Looks whether those who read now still may.
    async fn look_at_tokens(&self, store: &Store) -> Result<(), String> {
        let asked = self.tokens();
        if asked.is_empty() {
            return Ok(());
        }
        let valid = answer("tokens of event streams", store.valid_tokens(&asked)).await?;
        self.end_without(&asked, &valid);
        Ok(())
    }

    /// The tokens of those who read.
    fn tokens(&self) -> BTreeSet<Uuid> {
        self.lock().open.values().map(|reader| reader.token).collect()
    }

    /// Ends the streams of those of the tokens that were asked for which are valid no more: whoever comes again with one is told so.
    fn end_without(&self, asked: &BTreeSet<Uuid>, valid: &BTreeSet<Uuid>) {
        let may_read = |token: &Uuid| valid.contains(token) || !asked.contains(token);
        let ended = self.keep(|_, reader| may_read(&reader.token));
        if ended > 0 {
            tracing::info!(
                streams = ended,
                "event streams end: their readers' tokens are revoked or expired"
            );
        }
    }

    /// Looks whether for those that are open now anything can still come.
    async fn look(&self, store: &Store) -> Result<(), String> {
        let asked = self.followed();
        if asked.is_empty() {
            return Ok(());
        }
        let operations: Vec<OperationId> = asked.values().copied().collect();
        let last = answer("followed operations", store.last_events(&operations)).await?;
        self.end_beyond(&asked, &last);
        Ok(())
    }

    /// The streams that are open, by their numbers.
    fn followed(&self) -> BTreeMap<u64, OperationId> {
        self.lock().open.iter().map(|(number, reader)| (*number, reader.operation)).collect()
    }

    /// Ends those of the streams that were asked for which have all of an operation that has ended, or more than there is: the number
    /// of the last event of each, and whether that is its end. Their readers come again, and are told how it stands.
    fn end_beyond(&self, asked: &BTreeMap<u64, OperationId>, last: &BTreeMap<OperationId, (i64, bool)>) {
        let is_beyond = |reader: &Reader| {
            let last = last.get(&reader.operation);
            last.is_none_or(|(last, ended)| reader.sent > *last || (*ended && reader.sent == *last))
        };
        let ended = self.keep(|number, reader| !asked.contains_key(&number) || !is_beyond(reader));
        if ended > 0 {
            tracing::warn!(
                streams = ended,
                "event streams end: of their operations less is there than was shown, so rows were lost"
            );
        }
    }

    /// Keeps only these streams, by their numbers. Says how many end.
    fn keep(&self, stays: impl Fn(u64, &Reader) -> bool) -> usize {
        let mut state = self.lock();
        let before = state.open.len();
        state.open.retain(|number, reader| stays(*number, reader));
        self.count(&state);
        before - state.open.len()
    }

    /// Reads once and hands over what is new. Says whether some operation has more.
    async fn feed(&self, store: &Store) -> Result<bool, String> {
        let positions = self.positions();
        if positions.is_empty() {
            return Ok(false);
        }
        let asked = answer("operation events", store.events_after(&positions, EACH));
        let Events { events, unreadable } = asked.await?;
        let full = events.chunk_by(|one, next| one.operation == next.operation);
        let more = full.map(<[Event]>::len).max() >= Some(EACH as usize);
        let taken = self.deliver(&events);
        for event in &unreadable {
            self.end_before(event, reached(&positions, &events, event.operation));
        }
        Ok(taken && more)
    }

    /// Of each followed operation the lowest number that some reader has who can take more; readers who left are forgotten.
    /// A reader that does not read costs nobody anything: it is asked for again when it has read.
    fn positions(&self) -> Vec<(OperationId, i64)> {
        let mut state = self.lock();
        state.open.retain(|_, reader| !reader.events.is_closed());
        self.count(&state);
        let mut positions: BTreeMap<OperationId, i64> = BTreeMap::new();
        for reader in state.open.values().filter(|reader| reader.events.capacity() > 0) {
            let lowest = positions.entry(reader.operation).or_insert(reader.sent);
            *lowest = reader.sent.min(*lowest);
        }
        positions.into_iter().collect()
    }

    /// Hands over. Says whether any reader took something.
    fn deliver(&self, events: &[Event]) -> bool {
        let mut state = self.lock();
        let taken = |state: &State| state.open.values().map(|reader| reader.sent).sum::<i64>();
        let before = taken(&state);
        state.open.retain(|_, reader| reader.take(events));
        self.count(&state);
        taken(&state) != before
    }

    /// Ends the streams that would tell an event next which this program cannot read: those that have what there is before it.
    /// Their readers come again, and a newer program may be there by then.
    fn end_before(&self, event: &UnreadableEvent, reached: i64) {
        let UnreadableEvent { operation, number, error } = event;
        let ended = self.keep(|_, reader| reader.operation != *operation || reader.sent < reached);
        if ended > 0 {
            tracing::error!(
                operation.id = %operation,
                event.number = number,
                streams = ended,
                reason = %error,
                "an event cannot be read: the streams that come to it end"
            );
        }
    }

    fn count(&self, state: &State) {
        self.0.metrics.streams.set(i64::try_from(state.open.len()).unwrap_or(i64::MAX));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reader {
    /// Takes what it has not got; `false` when it is done or gone.
    fn take(&mut self, events: &[Event]) -> bool {
        let (operation, sent) = (self.operation, self.sent);
        let fresh = events.iter().filter(|event| event.operation == operation && event.number > sent);
        for event in fresh {
            match self.events.try_send(event.clone()) {
                Ok(()) => self.sent = event.number,
                // It reads slowly: what it has not got is read again.
                Err(TrySendError::Full(_)) => return true,
                Err(TrySendError::Closed(_)) => return false,
            }
            let ends = matches!(event.kind, EventKind::State(_)) && event.state.is_terminal();
            if ends {
                return false;
            }
        }
        true
    }
}

/// Up to which number all is told that an answer has of an operation: its last event there, or the one it was asked for after. Not
/// the predecessor of the next, which may be gone: of what ended long ago only the last event is kept.
fn reached(asked: &[(OperationId, i64)], answer: &[Event], operation: OperationId) -> i64 {
    let last = answer.iter().rfind(|event| event.operation == operation).map(|event| event.number);
    let after = asked.iter().find(|(id, _)| *id == operation).map(|(_, after)| *after);
    last.or(after).unwrap_or_default()
}

/// Whoever has more to read is read for at once.
const fn pause_after(more: bool) -> Duration {
    if more { Duration::ZERO } else { POLL }
}

/// Says once that events cannot be read, and how long to wait.
fn failed(reason: &str, retry: &mut Retry) -> Duration {
    if retry.attempts() == 0 {
        tracing::warn!(reason, "event streams wait: their events cannot be read");
    }
    retry.next_delay().max(POLL)
}

/// What the store answers in time, or in words why it does not.
async fn answer<T>(
    what: &'static str,
    asked: impl Future<Output = Result<T, store::Error>>,
) -> Result<T, String> {
    let read = runtime::deadline(DEADLINE, what, asked).await.map_err(|late| late.to_string())?;
    read.map_err(|error| runtime::telemetry::chain(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::OperationState;
    use jiff::Timestamp;
    use tokio::sync::mpsc::error::TryRecvError;

    const TOKEN: Uuid = Uuid::nil();

    fn streams() -> Streams {
        Streams::new(Metrics::new(&runtime::Metrics::default()))
    }

    fn event(operation: OperationId, number: i64, state: OperationState) -> Event {
        Event { operation, number, state, kind: EventKind::State(None), at: Timestamp::UNIX_EPOCH }
    }

    async fn numbers(receiver: &mut Receiver<Event>) -> Vec<i64> {
        let mut numbers = Vec::new();
        while let Some(event) = receiver.recv().await {
            numbers.push(event.number);
        }
        numbers
    }

    #[tokio::test]
    async fn each_reader_gets_what_it_has_not_seen_and_the_end_closes() {
        let (streams, id) = (streams(), OperationId::mint());
        let mut fresh = streams.follow(id, 0, TOKEN).unwrap();
        let mut resumed = streams.follow(id, 1, TOKEN).unwrap();
        assert_eq!(streams.positions(), [(id, 0)], "one query serves both");
        streams.deliver(&[
            event(id, 1, OperationState::Pending),
            event(id, 2, OperationState::Running),
            event(id, 3, OperationState::Succeeded),
        ]);
        assert_eq!(numbers(&mut fresh).await, [1, 2, 3]);
        assert_eq!(numbers(&mut resumed).await, [2, 3]);
        assert!(streams.positions().is_empty());
    }

    #[tokio::test]
    async fn a_slow_reader_misses_nothing() {
        let (streams, id) = (streams(), OperationId::mint());
        let mut slow = streams.follow(id, 0, TOKEN).unwrap();
        let last = i64::try_from(LAG).unwrap() + 10;
        let events: Vec<Event> =
            (1..=last).map(|number| event(id, number, OperationState::Running)).collect();
        assert!(streams.deliver(&events));
        assert!(streams.positions().is_empty(), "who is full is not asked for");
        assert!(!streams.deliver(&events));
        for number in 1..=last - 10 {
            assert_eq!(slow.recv().await.unwrap().number, number);
        }
        assert_eq!(streams.positions(), [(id, last - 10)]);
        assert!(streams.deliver(&events));
        assert_eq!(slow.recv().await.unwrap().number, last - 9);
    }

    #[tokio::test]
    async fn a_reader_that_stands_still_holds_up_nobody() {
        let (streams, id) = (streams(), OperationId::mint());
        let still = streams.follow(id, 0, TOKEN).unwrap();
        let all: Vec<Event> = (1..=200).map(|number| event(id, number, OperationState::Running)).collect();
        streams.deliver(&all);
        let mut quick = streams.follow(id, 150, TOKEN).unwrap();
        assert_eq!(streams.positions(), [(id, 150)], "what the full one lacks is not read for ever");
        streams.deliver(&all[150..182]);
        assert_eq!(quick.recv().await.unwrap().number, 151);
        drop(still);
    }

    #[tokio::test]
    async fn events_of_others_are_not_shown() {
        let (streams, mine, other) = (streams(), OperationId::mint(), OperationId::mint());
        let mut reader = streams.follow(mine, 0, TOKEN).unwrap();
        streams.deliver(&[event(other, 1, OperationState::Running), event(mine, 1, OperationState::Pending)]);
        assert_eq!(reader.recv().await.unwrap().operation, mine);
        assert!(reader.try_recv().is_err());
    }

    #[tokio::test]
    async fn an_event_that_cannot_be_read_ends_the_streams_that_come_to_it_and_no_other() {
        let (streams, broken, other) = (streams(), OperationId::mint(), OperationId::mint());
        let (mut near, mut far) =
            (streams.follow(broken, 1, TOKEN).unwrap(), streams.follow(broken, 0, TOKEN).unwrap());
        let mut good = streams.follow(other, 0, TOKEN).unwrap();
        let error = store::Error::Corrupt { table: "operation_events", what: "odd".to_owned() };
        let unreadable = UnreadableEvent { operation: broken, number: 2, error };
        streams.end_before(&unreadable, 1);
        assert!(near.recv().await.is_none(), "nothing can be told to it");
        assert!(far.try_recv().is_err_and(|error| error == TryRecvError::Empty), "it has not come so far");
        streams
            .deliver(&[event(broken, 1, OperationState::Running), event(other, 1, OperationState::Running)]);
        streams.end_before(&unreadable, 1);
        assert_eq!(numbers(&mut far).await, [1]);
        assert_eq!(good.recv().await.unwrap().operation, other);
        assert_eq!(streams.positions(), [(other, 1)]);
    }

    #[test]
    fn what_is_before_an_event_is_what_the_answer_has_there_and_not_its_number() {
        let (broken, other) = (OperationId::mint(), OperationId::mint());
        let asked = [(other, 7), (broken, 2)];
        let answer = [event(broken, 3, OperationState::Running), event(broken, 4, OperationState::Running)];
        assert_eq!(reached(&asked, &answer, broken), 4);
        assert_eq!(reached(&asked, &answer[..1], broken), 3);
        assert_eq!(
            reached(&asked, &answer, other),
            7,
            "nothing of it can be read: it stays where it was asked for"
        );
        assert_eq!(reached(&asked, &[], broken), 2, "however much later the next one is");
    }

    #[tokio::test]
    async fn a_reader_of_what_is_gone_comes_to_the_end_over_the_gap() {
        let (streams, id) = (streams(), OperationId::mint());
        let mut late = streams.follow(id, 2, TOKEN).unwrap();
        streams.deliver(&[event(id, 40, OperationState::Succeeded)]);
        assert_eq!(numbers(&mut late).await, [40]);
        let mut blind = streams.follow(id, 2, TOKEN).unwrap();
        let error = store::Error::Corrupt { table: "operation_events", what: "odd".to_owned() };
        let unreadable = UnreadableEvent { operation: id, number: 40, error };
        streams.end_before(&unreadable, reached(&streams.positions(), &[], id));
        assert!(blind.recv().await.is_none(), "nothing would ever come");
    }

    #[tokio::test]
    async fn who_has_more_than_there_is_or_the_end_without_knowing_is_sent_to_ask_again() {
        let (streams, id) = (streams(), OperationId::mint());
        let table = [
            (3, Some((3, false)), true),
            (2, Some((3, true)), true),
            (3, Some((3, true)), false),
            (4, Some((3, false)), false),
            (1, None, false),
        ];
        for (sent, last, stays) in table {
            let mut reader = streams.follow(id, sent, TOKEN).unwrap();
            let asked = streams.followed();
            let mut meanwhile = streams.follow(id, 9, TOKEN).unwrap();
            let last_events: BTreeMap<_, _> = last.map(|last| (id, last)).into_iter().collect();
            streams.end_beyond(&asked, &last_events);
            let waits = |reader: &mut Receiver<Event>| reader.try_recv() == Err(TryRecvError::Empty);
            assert_eq!(waits(&mut reader), stays, "{sent} {last:?}");
            assert!(waits(&mut meanwhile), "nobody asked for it");
        }
    }

    #[tokio::test]
    async fn a_stream_ends_with_its_readers_token_and_no_other_does() {
        let (streams, id) = (streams(), OperationId::mint());
        let mut revoked = streams.follow(id, 0, Uuid::from_u128(1)).unwrap();
        let mut valid = streams.follow(id, 0, TOKEN).unwrap();
        let asked = streams.tokens();
        let mut meanwhile = streams.follow(id, 0, Uuid::from_u128(2)).unwrap();
        streams.end_without(&asked, &BTreeSet::from([TOKEN]));
        assert!(revoked.recv().await.is_none());
        for reader in [&mut valid, &mut meanwhile] {
            assert_eq!(reader.try_recv(), Err(TryRecvError::Empty));
        }
    }

    #[tokio::test]
    async fn readers_who_left_are_forgotten_and_their_number_is_bounded() {
        let (streams, id) = (streams(), OperationId::mint());
        let readers: Vec<_> = std::iter::from_fn(|| streams.follow(id, 0, TOKEN)).collect();
        assert_eq!(readers.len(), STREAMS);
        drop(readers);
        assert!(streams.positions().is_empty());
        assert!(streams.follow(id, 0, TOKEN).is_some());
    }
}
