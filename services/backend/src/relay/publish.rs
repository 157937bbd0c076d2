//! A round's way to Kafka: what is queued, what is heard of it in time, and what is in doubt afterwards.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use bus::{Message, Pending, Producer};
use domain::DatabaseId;
use store::Instruction;
use tokio::sync::mpsc;

use super::doubts::Asked;
use super::record::message;
use super::round::{Queued, Round, Word};
use super::sent::{Sent, told};
use super::{Relay, STRETCH};

/// How long a round waits for Kafka's word, unless it is told otherwise. What is not answered by then is in doubt, and the next round
/// goes on without it.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// The same while something is in doubt already: a partition that gives no word gives none on the next records either.
const LITTLE_PATIENCE: Duration = Duration::from_millis(300);

impl Relay {
    /// Queues stretch by stretch, and marks what Kafka took meanwhile, first what it took before: Postgres marks while Kafka
    /// writes the rest, and one stretch while it is still busy with another. What Kafka does not answer for soon is in doubt.
    pub(super) async fn publish(&self, known: &[Asked], instructions: &[Instruction]) -> Sent {
        let mut sent = Sent::default();
        self.delivered().clear();
        self.note(known, &mut sent).await;
        let patience = if self.doubts().is_empty() { self.patience } else { LITTLE_PATIENCE };
        let (round, tell) = Round::begin(instructions, patience, &self.doubts);
        let (refused, one, other) =
            tokio::join!(self.enqueue(&round, tell), self.settle(&round), self.settle(&round));
        let mut sent = sent.and(refused).and(one).and(other);
        if !round.is_of_few() {
            tracing::info!(count = sent.taken, kafka.topic = self.topic, "many instructions published");
        }
        sent.in_doubt = self.doubt(round);
        sent
    }

    /// Queues all. What cannot be queued is refused for what it is, whatever else is sent.
    async fn enqueue(&self, round: &Round<'_>, queued: mpsc::Sender<Queued>) -> Sent {
        let (mut refused, mut bytes) = (Sent::default(), 0);
        let instructions = round.instructions;
        for (which, instruction) in instructions.iter().enumerate() {
            if which.is_multiple_of(STRETCH) {
                // So that those before can be marked.
                tokio::task::yield_now().await;
            }
            let record = message(&self.topic, instruction);
            bytes += record.payload.len();
            match self.send(instruction.database, &record) {
                Ok(pending) => {
                    round.asked(which);
                    // There is room for all of them, and whoever reads stays until the last.
                    drop(queued.try_send((which, pending)));
                }
                Err(error) => refused.refused((instruction.database, instruction.position), error),
            }
        }
        self.reading.learn(instructions.len(), bytes);
        refused
    }

    /// Queues a record behind all others, or where it is alone.
    fn send(&self, database: DatabaseId, record: &Message) -> Result<Pending, bus::Error> {
        if self.refusals().is_alone(database) {
            self.one_by_one()?.enqueue(record)
        } else {
            self.producer.enqueue(record)
        }
    }

    /// Whoever sends records alone.
    fn one_by_one(&self) -> Result<Producer, bus::Error> {
        let mut one_by_one = self.one_by_one.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(producer) = &*one_by_one {
            return Ok(producer.clone());
        }
        let producer = self.producer.one_by_one()?;
        *one_by_one = Some(producer.clone());
        Ok(producer)
    }

    /// Lets go of whoever sends records alone once none is to go alone. Seldom needed, it would knock at the brokers for days with
    /// the password that it was made with; and whoever waits for a word holds it until then.
    pub(super) fn leave_one_by_one(&self) {
        if self.refusals().is_nobody_alone() {
            drop(self.one_by_one.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }

    /// Takes Kafka's words as they come and marks what it took, stretch by stretch.
    async fn settle(&self, round: &Round<'_>) -> Sent {
        let (mut sent, instructions) = (Sent::default(), round.instructions);
        // While these are marked, the other one listens.
        while let Some(stretch) = round.next().await {
            let mut taken = Vec::with_capacity(stretch.len());
            for (which, word) in stretch {
                let asked = (instructions[which].database, instructions[which].position);
                taken.extend(self.hear(asked, word, round.is_of_few(), &mut sent));
            }
            self.note(&taken, &mut sent).await;
        }
        sent
    }

    /// Hears a word. What Kafka took is given back, to be marked.
    fn hear(&self, asked: Asked, word: Word, few: bool, sent: &mut Sent) -> Option<Asked> {
        let delivered = sent.hear(asked, word, &mut self.refusals(), Instant::now())?;
        Some(told(asked, delivered, few))
    }

    /// Counts what was heard; what failed waits, each database for itself.
    pub(super) fn take_in(&self, sent: &Sent) {
        self.metrics.published.inc_by(sent.taken as u64);
        self.metrics.publish_failures.inc_by(sent.failures.len() as u64);
        let failed = sent.failures.iter().map(|(database, _)| *database);
        self.refusals().heard(failed, sent.taken, Instant::now(), runtime::backoff::random_share);
    }

    /// Keeps apart what of a round Kafka was not heard of. Says how many that are.
    fn doubt(&self, round: Round<'_>) -> usize {
        let is_first = self.doubts().is_empty();
        let count = round.end();
        if is_first && count > 0 {
            tracing::warn!(
                count,
                kafka.topic = self.topic,
                "Kafka gives no word on some instructions: they are in doubt, and others go on"
            );
        }
        self.count_doubts();
        count
    }

    fn count_doubts(&self) {
        self.metrics.in_doubt.set(i64::try_from(self.doubts().len()).unwrap_or(i64::MAX));
    }

    /// Hears what became of what was in doubt: what Kafka took, to be marked, and why the rest is not taken.
    pub(super) fn resolve(&self) -> (Vec<Asked>, Sent) {
        let answered = self.doubts().answered();
        if !answered.is_empty() {
            // These wait longest, and nothing that was read ahead has them.
            self.reading.forget();
        }
        let mut sent = Sent::default();
        let of_each = |(asked, word)| self.hear(asked, word, true, &mut sent);
        let heard: Vec<Asked> = answered.into_iter().filter_map(of_each).collect();
        // If Postgres does not take them now, they are remembered like all others.
        self.delivered().extend(heard.iter().copied());
        self.take_in(&sent);
        self.count_doubts();
        (heard, sent)
    }
}
