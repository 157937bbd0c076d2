//! What became of a round of the relay.

use std::time::Instant;

use bus::Delivered;
use domain::DatabaseId;

use super::Error;
use super::doubts::Asked;
use super::refusals::Refusals;
use super::round::Word;

/// What became of a round's instructions.
#[derive(Debug)]
pub(super) struct Sent {
    /// How many Kafka took.
    pub(super) taken: usize,
    /// How many were marked as long as Postgres took it.
    pub(super) marked: Result<usize, Error>,
    /// How many Kafka was not heard of.
    pub(super) in_doubt: usize,
    /// How many were in a batch that was too large, and go alone next time.
    pub(super) suspected: usize,
    /// Those that are too large by themselves.
    pub(super) too_large: Vec<(Asked, bus::Error)>,
    pub(super) failures: Vec<(DatabaseId, bus::Error)>,
}

impl Default for Sent {
    fn default() -> Self {
        let (too_large, failures) = (Vec::new(), Vec::new());
        Self { taken: 0, marked: Ok(0), in_doubt: 0, suspected: 0, too_large, failures }
    }
}

impl Sent {
    /// Both together.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.taken += other.taken;
        self.in_doubt += other.in_doubt;
        self.suspected += other.suspected;
        match (&mut self.marked, other.marked) {
            (Ok(before), Ok(marked)) => *before += marked,
            (Ok(_), Err(error)) => self.marked = Err(error),
            (Err(_), _) => {}
        }
        self.too_large.extend(other.too_large);
        self.failures.extend(other.failures);
        self
    }

    /// Hears a word. Gives where Kafka took the record, which is to be marked.
    pub(super) fn hear(
        &mut self,
        asked: Asked,
        word: Word,
        refusals: &mut Refusals,
        now: Instant,
    ) -> Option<Delivered> {
        match word {
            Ok(delivered) => {
                self.taken += 1;
                refusals.settled(asked.0);
                return Some(delivered);
            }
            // A broker refuses a whole batch when one record is too large: each is tried alone before it is set aside.
            Err(bus::Error::TooLarge { .. }) if !refusals.too_large(asked.0, now) => self.suspected += 1,
            Err(error) => self.refused(asked, error),
        }
        None
    }

    /// Notes why one was not taken, whatever else was sent with it.
    pub(super) fn refused(&mut self, asked: Asked, error: bus::Error) {
        match error {
            bus::Error::TooLarge { .. } => self.too_large.push((asked, error)),
            error => self.failures.push((asked.0, error)),
        }
    }
}

/// Says that Kafka took an instruction: aloud while they are few, because a line each of a backlog hides all others.
pub(super) fn told((database, position): Asked, delivered: Delivered, few: bool) -> Asked {
    macro_rules! tell {
        ($level:expr) => {
            tracing::event!(
                $level,
                db.id = %database,
                db.position = %position,
                kafka.partition = delivered.partition,
                kafka.offset = delivered.offset,
                "instruction published"
            )
        };
    }
    if few {
        tell!(tracing::Level::INFO);
    } else {
        tell!(tracing::Level::DEBUG);
    }
    (database, position)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half(marked: Result<usize, Error>) -> Sent {
        Sent { taken: 3, marked, ..Sent::default() }
    }

    fn failed() -> Error {
        Error::Store(store::Error::OffsetsMoved)
    }

    #[test]
    fn what_postgres_did_not_take_in_one_half_is_told_of_both() {
        assert!(matches!(half(Ok(3)).and(half(Ok(2))), Sent { taken: 6, marked: Ok(5), .. }));
        for (one, other) in [(Ok(3), Err(failed())), (Err(failed()), Ok(3)), (Err(failed()), Err(failed()))] {
            assert!(half(one).and(half(other)).marked.is_err());
        }
    }
}
