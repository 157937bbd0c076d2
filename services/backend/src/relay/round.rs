//! What one round asks of Kafka, and how long it waits for the words on it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bus::{Delivered, Pending};
use futures::StreamExt as _;
use store::Instruction;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::doubts::Doubts;
use super::words::{Words, words};

/// Instructions of a round that are told of one by one.
const FEW: usize = 50;
/// How long what Kafka took waits for more of its kind, so that many are marked at once.
const TOGETHER: Duration = Duration::from_millis(50);

/// The number of an instruction in its round, and the record that Kafka has not answered for yet.
pub(super) type Queued = (usize, Pending);
/// What Kafka answers.
pub(super) type Word = Result<Delivered, bus::Error>;

/// A round under way. However it ends, given up by its deadline too: what was sent and not answered for is in doubt.
pub(super) struct Round<'a> {
    /// What is sent.
    pub(super) instructions: &'a [Instruction],
    doubts: &'a Mutex<Doubts<Word>>,
    words: tokio::sync::Mutex<Words<Word>>,
    /// On which of them no word is waited for.
    answered: Mutex<Vec<bool>>,
    late: Instant,
}

impl<'a> Round<'a> {
    /// Begins a round that waits for this long; what is queued is to be told of.
    pub(super) fn begin(
        instructions: &'a [Instruction],
        patience: Duration,
        doubts: &'a Mutex<Doubts<Word>>,
    ) -> (Self, mpsc::Sender<Queued>) {
        let most = instructions.len().max(1);
        let (tell, queued) = mpsc::channel(most);
        let words = words(queued, most, TOGETHER, Pending::wait);
        (Self::over(instructions, patience, doubts, words), tell)
    }

    /// The same with these words to come.
    pub(super) fn over(
        instructions: &'a [Instruction],
        patience: Duration,
        doubts: &'a Mutex<Doubts<Word>>,
        words: Words<Word>,
    ) -> Self {
        let (words, answered) = (tokio::sync::Mutex::new(words), Mutex::new(vec![true; instructions.len()]));
        Self { instructions, doubts, words, answered, late: Instant::now() + patience }
    }

    /// Whether there are so few that each is told of aloud.
    pub(super) const fn is_of_few(&self) -> bool {
        self.instructions.len() <= FEW
    }

    /// The next words of Kafka; `None` when all have come, or it is too late for others.
    pub(super) async fn next(&self) -> Option<Vec<(usize, Word)>> {
        let next = async { self.words.lock().await.next().await };
        let stretch = tokio::time::timeout_at(self.late, next).await.ok().flatten()?;
        for (which, _) in &stretch {
            self.note(*which, true);
        }
        Some(stretch)
    }

    /// Notes that this one is queued: a word on it is to come.
    pub(super) fn asked(&self, which: usize) {
        self.note(which, false);
    }

    fn note(&self, which: usize, is_answered: bool) {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answered) = answered.get_mut(which) {
            *answered = is_answered;
        }
    }

    /// Ends it. Says how many are in doubt now.
    pub(super) fn end(mut self) -> usize {
        self.keep()
    }

    /// Hands on what is not answered, with the words that are to come.
    fn keep(&mut self) -> usize {
        let answered = std::mem::take(self.answered.get_mut().unwrap_or_else(PoisonError::into_inner));
        if answered.iter().all(|answered| *answered) {
            return 0;
        }
        let words = std::mem::replace(self.words.get_mut(), futures::stream::empty().boxed());
        let asked = self.instructions.iter().map(|one| (one.database, one.position)).collect();
        let mut doubts = self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
        doubts.keep(asked, &answered, words)
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.keep();
    }
}

#[cfg(test)]
mod tests {
    use bus::{Connection, Producer};

    use super::super::record::message;
    use super::super::record::tests::instruction;
    use super::*;

    #[tokio::test]
    async fn a_round_that_is_cut_off_leaves_in_doubt_what_was_sent_and_nothing_else() {
        let instructions = [instruction("sre:on-call", false), instruction("sre:on-call", false)];
        let nowhere = Producer::new(&Connection::new("127.0.0.1:1", "test")).unwrap();
        let doubts = Mutex::default();
        let (round, tell) = Round::begin(&instructions, Duration::from_mins(1), &doubts);
        let pending = nowhere.enqueue(&message("t", &instructions[0])).unwrap();
        round.asked(0);
        tell.try_send((0, pending)).unwrap();
        drop((round, tell));
        let mut doubts = doubts.into_inner().unwrap();
        assert!(doubts.answered().is_empty(), "nobody said anything");
        assert_eq!(doubts.databases(), [instructions[0].database]);
    }
}
