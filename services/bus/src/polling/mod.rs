//! The loop that both ways of consuming share: a thread of its own that polls, comes round, and at the end lets work
//! finish, commits and leaves the group.
//!
//! What is done with records is a [`Duty`]. *Invariant:* the loop never waits for work for longer than a [`BREATH`] while
//! it polls; at the end it waits only for a while. *Invariant:* leaving the group, which can block for ever, is left behind after its time.

mod context;
mod standing;
#[cfg(test)]
mod tests;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::topic_partition_list::TopicPartitionListElem;
use rdkafka::{Offset, TopicPartitionList};
use tokio_util::sync::CancellationToken;

pub(crate) use context::{Begin, Context, End, Membership};
pub use standing::Patience;

use crate::connection::{STATISTICS, not_made};
use crate::consumer::{OffsetReset, Snapshot, State};
use crate::tracker::Mark;
use crate::{Connection, Error, Record};

/// A consumer of one topic.
pub(crate) type Client = BaseConsumer<Context>;

/// The longest silence of a member before its group goes on without it.
pub(crate) const MAX_POLL: Duration = Duration::from_mins(1);
/// The longest wait for a record before the loop comes round.
pub(crate) const POLL: Duration = Duration::from_millis(100);
/// The same, while something is to happen soon.
pub(crate) const SOON: Duration = Duration::from_millis(20);
/// How long the loop leaves further records with the library while there is plenty to do. Pausing partitions instead throws
/// away what the library has fetched, and it takes half a second to fetch again: that is for work that stands still.
const BREATH: Duration = Duration::from_millis(200);
/// How often those who watch are told while records come one after the other.
const REPORT: Duration = Duration::from_millis(50);
/// The longest question to the brokers; nobody waits for it but those who end.
pub(crate) const QUESTION: Duration = Duration::from_secs(2);
/// How long the brokers may take at a stop to know the last commit.
pub(crate) const COMMIT: Duration = Duration::from_secs(1);
/// Between two attempts at the last commit.
const COMMIT_AGAIN: Duration = Duration::from_millis(100);
/// How long those who are told to stop where they stand may take for it.
const ABANDON: Duration = Duration::from_secs(1);
/// How long leaving the group may take.
const LEAVE: Duration = Duration::from_secs(3);
/// The same where the group has not let us in yet, so that nothing else takes time; a little longer than the library waits for the
/// answer. The coordinator reads nothing more of a connection until it has answered the join that came by it, and it may be
/// about to wait for a member that is gone, for as long as a session. Who ends before leaves such a member behind: one that has
/// joined, may be the leader, and costs everybody the next session.
const LEAVE_UNSEEN: Duration = Duration::from_millis(5_500);
/// How long all of the end may take, beyond the grace for work. A thread that takes longer is left behind.
pub(crate) const END: Duration = Duration::from_secs(6);

/// The most that the library itself holds of records not read yet, in kilobytes: a queue, and an answer to a fetch from
/// each broker.
const QUEUE_KBYTES: u32 = 8_192;

/// A consumer's place and manners.
pub(crate) struct Start<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) group: &'a str,
    pub(crate) topic: &'a str,
    pub(crate) reset: OffsetReset,
    pub(crate) patience: Patience,
    pub(crate) grace: Duration,
    /// How long the brokers may take at the end to know the last commit.
    pub(crate) last_commit: Duration,
    /// Where it is told what the consumer does.
    pub(crate) state: &'a State,
}

/// What is done with records, and about partitions. All of it runs on the poll loop.
pub(crate) trait Duty {
    /// Before each wait for a record. Answers how long that may last; an error ends the consumer.
    fn before(&mut self, client: &Client) -> Result<Duration, Error>;

    /// Whether there is room for further records: waits for it at most so long.
    fn room(&mut self, limit: Duration) -> bool;

    /// A record was read.
    fn accept(&mut self, record: Record);

    /// After each wait. Answers what is to be committed now.
    fn after(&mut self, client: &Client) -> Vec<Mark>;

    /// What it does, for those who watch.
    fn report(&self, snapshot: &mut Snapshot);

    /// The end has come: nothing more is begun.
    fn close(&mut self);

    /// While the end is waited for: no further records are wanted.
    fn hush(&mut self, client: &Client);

    /// Work under way.
    fn running(&self) -> usize;

    /// Work under way stops where it stands.
    fn abandon(&mut self);

    /// Everything that may be committed at last, of the partitions that are ours by then.
    fn last(&mut self) -> Vec<Mark>;
}

/// Consumes until `stop` or an error, beside `aside`, which runs on another thread and must end once the duty is closed.
pub(crate) fn run<D: Duty>(
    start: &Start<'_>,
    membership: Arc<dyn Membership>,
    duty: &mut D,
    aside: impl FnOnce(&Client) + Send,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let client = create(start, membership)?;
    let mut polling = Polling {
        topic: start.topic.into(),
        client: &client,
        start,
        reported: Instant::now(),
        out_of_breath: false,
    };
    let result = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("kafka-questions".to_owned());
        let thread = thread.spawn_scoped(scope, || aside(&client));
        thread.map_err(|source| Error::Thread { what: "questions to the brokers", source: source.into() })?;
        let mut result = Ok(());
        while result.is_ok() && !stop.is_cancelled() {
            result = polling.turn(duty);
        }
        polling.drain(duty);
        result
    });
    let limit = if client.context().was_let_in() { LEAVE } else { LEAVE_UNSEEN };
    let left = leave(client, start.topic, limit);
    // No loop turns any more that could be stuck, for however long nothing follows.
    start.state.update(|snapshot| snapshot.rounds = 0);
    result.and(left)
}

/// A consumer that has subscribed.
fn create(start: &Start<'_>, membership: Arc<dyn Membership>) -> Result<Client, Error> {
    let failed = |source| not_made("consumer", source);
    let (config, refusals) = start.connection.prepare(&[
        ("group.id", start.group.to_owned()),
        ("group.protocol", "classic".to_owned()),
        ("partition.assignment.strategy", "cooperative-sticky".to_owned()),
        ("enable.auto.commit", "false".to_owned()),
        ("enable.auto.offset.store", "false".to_owned()),
        ("auto.offset.reset", start.reset.as_str().to_owned()),
        ("allow.auto.create.topics", "false".to_owned()),
        // Heartbeats come from the library's own thread, however busy we are; so a dead member is replaced soon.
        ("session.timeout.ms", "6000".to_owned()),
        ("heartbeat.interval.ms", "2000".to_owned()),
        ("max.poll.interval.ms", MAX_POLL.as_millis().to_string()),
        // What lies in the library's own queues is memory too.
        ("queued.min.messages", "1000".to_owned()),
        ("queued.max.messages.kbytes", QUEUE_KBYTES.to_string()),
        ("fetch.message.max.bytes", "2097152".to_owned()),
        // A full queue is worked off in milliseconds; the library would look at it again after a second.
        ("fetch.queue.backoff.ms", "10".to_owned()),
        ("fetch.max.bytes", (QUEUE_KBYTES * 1_024).to_string()),
        (STATISTICS.0, STATISTICS.1.to_owned()),
    ])?;
    let context = Context::new(start, membership, refusals);
    let client: Client = config.create_with_context(context).map_err(failed)?;
    client.subscribe(&[start.topic]).map_err(failed)?;
    Ok(client)
}

/// Leaves the group. Brokers that are away can make this last for ever, so it has a thread of its own.
fn leave(client: Client, topic: &str, limit: Duration) -> Result<(), Error> {
    let (told, left) = std::sync::mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name("kafka-leave".to_owned()).spawn(move || {
        drop(client);
        // Nobody listens any more once the time below has passed.
        let _ = told.send(());
    });
    thread.map_err(|source| Error::Thread { what: "leaving the group", source: source.into() })?;
    left.recv_timeout(limit).map_err(|_| Error::Close { topic: topic.to_owned(), limit })
}

struct Polling<'a> {
    topic: Arc<str>,
    client: &'a Client,
    start: &'a Start<'a>,
    reported: Instant,
    /// A breath was waited for room in vain: the next one comes after there was room again.
    out_of_breath: bool,
}

impl Polling<'_> {
    /// A round. A panic in it is an error like any other: the loop must not leave those behind who run beside it, and wait for its end.
    fn turn(&mut self, duty: &mut impl Duty) -> Result<(), Error> {
        let round = std::panic::catch_unwind(AssertUnwindSafe(|| self.round(duty)));
        round.unwrap_or_else(|_| Err(Error::Thread { what: "a consumer", source: "it panicked".into() }))
    }

    fn round(&mut self, duty: &mut impl Duty) -> Result<(), Error> {
        self.client.context().check_standing()?;
        let wait = duty.before(self.client)?;
        self.out_of_breath = !duty.room(if self.out_of_breath { Duration::ZERO } else { BREATH });
        let read = self.client.poll(wait);
        let idle = read.is_none();
        match read {
            None => {}
            Some(Ok(message)) => duty.accept(Record::copy(&self.topic, &message)),
            Some(Err(error)) => self.failed(error)?,
        }
        self.commit(&duty.after(self.client));
        if idle || self.reported.elapsed() >= REPORT {
            self.reported = Instant::now();
            self.report(duty);
        }
        Ok(())
    }

    fn report(&self, duty: &impl Duty) {
        self.start.state.update(|snapshot| {
            snapshot.rounds += 1;
            duty.report(snapshot);
        });
    }

    /// Errors that pass by themselves are told and lived with.
    fn failed(&self, error: KafkaError) -> Result<(), Error> {
        let text = error.to_string();
        if let Some(end) = ends(error, self.start.group, self.start.topic) {
            return Err(end);
        }
        self.start.state.update(|state| {
            if state.error.as_ref() != Some(&text) {
                tracing::warn!(kafka.topic = %self.topic, "consuming is disturbed: {text}");
            }
            state.error = Some(text);
        });
        Ok(())
    }

    fn commit(&self, marks: &[Mark]) {
        if marks.is_empty() {
            return;
        }
        if let Err(error) = self.client.context().commit(self.client, marks) {
            tracing::warn!(kafka.topic = %self.topic, ?marks, "offsets were not committed: {error}");
        }
    }

    /// Lets what runs finish, goes on polling so that the group keeps us, and commits.
    fn drain(&self, duty: &mut impl Duty) {
        duty.close();
        self.poll_until(self.start.grace, |client| {
            duty.hush(client);
            duty.running() == 0
        });
        let running = duty.running();
        if running > 0 {
            tracing::warn!(kafka.topic = %self.topic, running, "stopped with records under way; they will be read again");
            duty.abandon();
            self.poll_until(ABANDON, |_| duty.running() == 0);
        }
        self.commit_last(duty);
        self.report(duty);
    }

    /// Commits until the brokers know all of it: a rebalance under way makes them refuse, of which nobody is told.
    fn commit_last(&self, duty: &mut impl Duty) {
        let end = Instant::now() + self.start.last_commit;
        loop {
            let marks = duty.last();
            if marks.is_empty() {
                return;
            }
            self.commit(&marks);
            let partitions: Vec<i32> = marks.iter().map(|mark| mark.partition).collect();
            // Behind the commit on the same connection.
            let left = end.saturating_duration_since(Instant::now());
            let known = committed(self.client, &self.topic, &partitions, left);
            if known.as_ref().is_ok_and(|known| marks.iter().all(|mark| known.contains(mark))) {
                return;
            }
            if Instant::now() >= end {
                let reason = known.err().unwrap_or_else(|| "the brokers refuse it".to_owned());
                tracing::warn!(
                    kafka.topic = %self.topic,
                    "it is not known that the last commit arrived; some records may be read again: {reason}"
                );
                return;
            }
            self.poll_until(COMMIT_AGAIN, |_| false);
        }
    }

    /// Goes on polling until it is `done`, or the time is over.
    fn poll_until(&self, limit: Duration, mut done: impl FnMut(&Client) -> bool) {
        let end = Instant::now() + limit;
        while !done(self.client) && Instant::now() < end {
            // A record that slips through is not begun and will be read again.
            drop(self.client.poll(SOON));
        }
    }
}

/// What an error of the library means: `Some` if the consumer cannot go on.
fn ends(source: KafkaError, group: &str, topic: &str) -> Option<Error> {
    match source {
        KafkaError::MessageConsumption(Code::AutoOffsetReset) => {
            Some(Error::NoOffset { group: group.to_owned(), topic: topic.to_owned() })
        }
        KafkaError::MessageConsumptionFatal(_) => Some(Error::Consume { topic: topic.to_owned(), source }),
        _ => None,
    }
}

/// What the last commits of partitions say, of those that have one; or why nobody knows.
pub(crate) fn committed(
    client: &Client,
    topic: &str,
    partitions: &[i32],
    limit: Duration,
) -> Result<Vec<Mark>, String> {
    let ask = || client.committed_offsets(list(topic, partitions), limit).map(|found| marks(&found));
    // The library panics on metadata that is no text.
    let asked = std::panic::catch_unwind(AssertUnwindSafe(ask));
    let told = asked.map_err(|_| "what a commit says of itself cannot be read".to_owned())?;
    told.map_err(|error| error.to_string())
}

fn marks(committed: &TopicPartitionList) -> Vec<Mark> {
    let mark = |element: &TopicPartitionListElem<'_>| {
        let Offset::Offset(offset) = element.offset() else { return None };
        let metadata = element.metadata().to_owned();
        Some(Mark { partition: element.partition(), offset, metadata })
    };
    committed.elements().iter().filter_map(mark).collect()
}

/// A list of partitions of one topic.
pub(crate) fn list(topic: &str, partitions: &[i32]) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for partition in partitions {
        list.add_partition(topic, *partition);
    }
    list
}

/// Runs a poll loop on a thread of its own, because polling blocks. A thread that does not end within `limit` after the
/// stop is left behind.
pub(crate) async fn on_thread(
    work: impl FnOnce() -> Result<(), Error> + Send + 'static,
    topic: &str,
    limit: Duration,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let (told, ended) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name("kafka-consumer".to_owned()).spawn(move || {
        // Nobody listens any more once the deadline below has passed.
        let _ = told.send(work());
    });
    thread.map_err(|source| Error::Thread { what: "a consumer", source: source.into() })?;
    let late = async {
        stop.cancelled().await;
        tokio::time::sleep(limit).await;
    };
    tokio::select! {
        result = ended => result.unwrap_or_else(|source| {
            Err(Error::Thread { what: "a consumer", source: source.into() })
        }),
        () = late => Err(Error::Close { topic: topic.to_owned(), limit }),
    }
}
