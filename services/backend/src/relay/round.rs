//! What one round asks of Kafka, and how long it waits for the words on it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bus::{Delivered, Pending};
use futures::StreamExt as _;
use store::Instruction;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::doubts::Asked;
use super::words::{Words, words};

/// Instructions of a round that are told of one by one.
const FEW: usize = 50;
/// How long what Kafka took waits for more of its kind, so that many are marked at once.
const TOGETHER: Duration = Duration::from_millis(50);

/// The number of an instruction in its round, and the record that Kafka has not answered for yet.
pub(super) type Queued = (usize, Pending);
/// What Kafka answers.
pub(super) type Word = Result<Delivered, bus::Error>;

/// A round under way.
pub(super) struct Round<'a> {
    /// What is sent.
    pub(super) instructions: &'a [Instruction],
    words: tokio::sync::Mutex<Words<Word>>,
    /// Of which of them it is known what became of them.
    answered: Mutex<Vec<bool>>,
    late: Instant,
}

impl<'a> Round<'a> {
    /// Begins a round that waits for this long; what is queued is to be told of.
    pub(super) fn begin(instructions: &'a [Instruction], patience: Duration) -> (Self, mpsc::Sender<Queued>) {
        let most = instructions.len().max(1);
        let (tell, queued) = mpsc::channel(most);
        let words = tokio::sync::Mutex::new(words(queued, most, TOGETHER, Pending::wait));
        let answered = Mutex::new(vec![false; instructions.len()]);
        (Self { instructions, words, answered, late: Instant::now() + patience }, tell)
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
            self.known(*which);
        }
        Some(stretch)
    }

    /// Notes that it is known what became of this one.
    pub(super) fn known(&self, which: usize) {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answered) = answered.get_mut(which) {
            *answered = true;
        }
    }

    /// Ends it: what was sent, of which of it it is known what became of it, and the words that are to come.
    pub(super) fn end(self) -> (Vec<Asked>, Vec<bool>, Words<Word>) {
        let asked = self.instructions.iter().map(|one| (one.database, one.position)).collect();
        let answered = self.answered.into_inner().unwrap_or_else(PoisonError::into_inner);
        (asked, answered, self.words.into_inner())
    }
}
