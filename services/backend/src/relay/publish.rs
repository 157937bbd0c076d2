//! A round's way to Kafka: what is queued, what is heard of it in time, and what is in doubt afterwards.

use std::time::Duration;

use store::Instruction;
use tokio::sync::mpsc;

use super::doubts::Asked;
use super::record::message;
use super::round::{Queued, Round};
use super::sent::{Sent, told};
use super::{Relay, STRETCH};

/// How long a round waits for Kafka's word. What is not answered by then is in doubt, and the next round goes on without it.
const PATIENCE: Duration = Duration::from_secs(3);
/// The same while something is in doubt already: a partition that gives no word gives none on the next records either.
const LITTLE_PATIENCE: Duration = Duration::from_millis(300);

impl Relay {
    /// Queues stretch by stretch, and marks what Kafka took meanwhile, first what it took before: Postgres marks while Kafka
    /// writes the rest, and one stretch while it is still busy with another. What Kafka does not answer for soon is in doubt.
    pub(super) async fn publish<'a>(&self, known: &[Asked], instructions: &'a [Instruction]) -> Sent<'a> {
        let mut sent = Sent::default();
        self.delivered().clear();
        self.note(known, &mut sent).await;
        let patience = if self.doubts().is_empty() { PATIENCE } else { LITTLE_PATIENCE };
        let (round, tell) = Round::begin(instructions, patience);
        let (refused, one, other) =
            tokio::join!(self.enqueue(&round, tell), self.settle(&round), self.settle(&round));
        let mut sent = sent.and(one).and(other);
        for (instruction, error) in refused {
            sent.refused(instruction, error);
        }
        if !round.is_of_few() {
            tracing::info!(count = sent.taken, kafka.topic = self.topic, "many instructions published");
        }
        sent.in_doubt = self.doubt(round);
        sent
    }

    /// Queues all; those that cannot be queued are given back.
    async fn enqueue<'a>(
        &self,
        round: &Round<'a>,
        queued: mpsc::Sender<Queued>,
    ) -> Vec<(&'a Instruction, bus::Error)> {
        let (mut refused, mut bytes) = (Vec::new(), 0);
        let instructions = round.instructions;
        for (which, instruction) in instructions.iter().enumerate() {
            if which.is_multiple_of(STRETCH) {
                // So that those before can be marked.
                tokio::task::yield_now().await;
            }
            let record = message(&self.topic, instruction);
            bytes += record.payload.len();
            match self.producer.enqueue(&record) {
                // There is room for all of them, and whoever reads stays until the last.
                Ok(pending) => drop(queued.try_send((which, pending))),
                Err(error) => {
                    round.known(which);
                    refused.push((instruction, error));
                }
            }
        }
        self.reading.learn(instructions.len(), bytes);
        refused
    }

    /// Takes Kafka's words as they come and marks what it took, stretch by stretch.
    async fn settle<'a>(&self, round: &Round<'a>) -> Sent<'a> {
        let (mut sent, instructions) = (Sent::default(), round.instructions);
        // While these are marked, the other one listens.
        while let Some(stretch) = round.next().await {
            let mut taken = Vec::with_capacity(stretch.len());
            for (which, word) in stretch {
                let instruction = &instructions[which];
                let asked = (instruction.database, instruction.position);
                match word {
                    Ok(delivered) => taken.push(told(asked, delivered, round.is_of_few())),
                    Err(error) => sent.refused(instruction, error),
                }
            }
            sent.taken += taken.len();
            self.note(&taken, &mut sent).await;
        }
        sent
    }

    /// Keeps apart what of a round Kafka was not heard of. Says how many that are.
    fn doubt(&self, round: Round<'_>) -> usize {
        let (asked, answered, words) = round.end();
        let mut doubts = self.doubts();
        let is_first = doubts.is_empty();
        let count = doubts.keep(asked, &answered, words);
        drop(doubts);
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

    /// Hears what became of what was in doubt: what Kafka took, to be marked, and why the rest is sent again.
    pub(super) fn resolve(&self) -> (Vec<Asked>, Vec<bus::Error>) {
        let answered = self.doubts().answered();
        if !answered.is_empty() {
            // These wait longest, and nothing that was read ahead has them.
            self.reading.forget();
        }
        let (mut heard, mut failures) = (Vec::new(), Vec::new());
        for (asked, word) in answered {
            match word {
                Ok(delivered) => {
                    heard.push(told(asked, delivered, true));
                    self.metrics.published.inc();
                }
                // Of this the next round makes sure.
                Err(bus::Error::TooLarge { .. }) => {}
                Err(error) => failures.push(error),
            }
        }
        // If Postgres does not take them now, they are remembered like all others.
        self.delivered().extend(heard.iter().copied());
        self.count_doubts();
        (heard, failures)
    }
}
