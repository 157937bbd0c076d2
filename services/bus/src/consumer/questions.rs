//! What a consumer asks the brokers beside its poll loop, which never waits: what the last commits say of partitions
//! that were just assigned, and now and then whether the topic still has as many partitions as are configured.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;

use crate::polling::{Client, committed};
use crate::tracker::Mark;

/// Partitions that were assigned, and the number of the assignment.
pub(super) type Assigned = Vec<(i32, u64)>;

/// The brokers' word.
#[derive(Debug)]
pub(super) enum Answer {
    /// What the last commits of these partitions say; nothing of those that have none, or if nobody knows.
    Committed(Assigned, Vec<Mark>),
    /// The topic has so many partitions.
    Partitions(i32),
}

/// What there is to ask.
pub(super) struct Questions {
    pub(super) topic: String,
    /// How often the partitions are counted.
    pub(super) count_every: Duration,
    /// How long a question may take.
    pub(super) limit: Duration,
    /// Whether a partition without a commit is begun at its oldest record.
    pub(super) may_begin: bool,
    pub(super) asked: Receiver<Assigned>,
    pub(super) answers: SyncSender<Answer>,
}

impl Questions {
    /// Asks until nobody wants to know any more.
    pub(super) fn ask(self, client: &Client) {
        let mut counted = Instant::now();
        loop {
            let answer = match self.asked.recv_timeout(self.count_every.saturating_sub(counted.elapsed())) {
                Ok(assigned) => Some(self.committed(client, assigned)),
                Err(RecvTimeoutError::Timeout) => {
                    counted = Instant::now();
                    self.count(client)
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if answer.is_some_and(|answer| self.answers.send(answer).is_err()) {
                return;
            }
        }
    }

    fn committed(&self, client: &Client, assigned: Assigned) -> Answer {
        let partitions: Vec<i32> = assigned.iter().map(|(partition, _)| *partition).collect();
        let marks = match committed(client, &self.topic, &partitions, self.limit) {
            Ok(marks) => {
                self.begin(client, &partitions, &marks);
                marks
            }
            Err(reason) => {
                tracing::warn!(
                    kafka.topic = self.topic,
                    ?partitions,
                    "the last commits were not told: {reason}"
                );
                Vec::new()
            }
        };
        Answer::Committed(assigned, marks)
    }

    /// Commits where partitions begin that have no record yet. Nothing of them would ever be committed otherwise, and a later
    /// start that is to go on where the group left off would find that its offsets are lost.
    fn begin(&self, client: &Client, partitions: &[i32], marks: &[Mark]) {
        let is_new = |partition: &&i32| marks.iter().all(|mark| mark.partition != **partition);
        let mut empty = Vec::new();
        for &partition in partitions.iter().filter(|_| self.may_begin).filter(is_new) {
            // Brokers that do not answer for one are not asked for the others: somebody may wait for us to end.
            let Ok((low, high)) = client.fetch_watermarks(&self.topic, partition, self.limit) else { break };
            if low == high {
                empty.push(Mark { partition, offset: high, metadata: String::new() });
            }
        }
        if empty.is_empty() {
            return;
        }
        if let Err(error) = client.context().commit(client, &empty) {
            tracing::debug!(
                kafka.topic = self.topic,
                "the beginning of empty partitions was not committed: {error}"
            );
        }
    }

    /// `None`: nobody knows, as when brokers are away.
    fn count(&self, client: &Client) -> Option<Answer> {
        let metadata = client.fetch_metadata(Some(&self.topic), self.limit).ok()?;
        let found = metadata.topics().iter().find(|topic| topic.name() == self.topic)?;
        let count = i32::try_from(found.partitions().len()).ok().filter(|count| *count > 0)?;
        found.error().is_none().then_some(Answer::Partitions(count))
    }
}
