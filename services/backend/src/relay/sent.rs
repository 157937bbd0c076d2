//! What became of a round of the relay.

use bus::Delivered;
use store::Instruction;

use super::Error;
use super::doubts::Asked;

/// What became of a round's instructions.
#[derive(Debug)]
pub(super) struct Sent<'a> {
    /// How many Kafka took.
    pub(super) taken: usize,
    /// How many were marked as long as Postgres took it.
    pub(super) marked: Result<usize, Error>,
    /// How many Kafka was not heard of.
    pub(super) in_doubt: usize,
    pub(super) too_large: Vec<&'a Instruction>,
    pub(super) failures: Vec<bus::Error>,
}

impl Default for Sent<'_> {
    fn default() -> Self {
        Self { taken: 0, marked: Ok(0), in_doubt: 0, too_large: Vec::new(), failures: Vec::new() }
    }
}

impl<'a> Sent<'a> {
    /// Both together.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.taken += other.taken;
        self.in_doubt += other.in_doubt;
        match (&mut self.marked, other.marked) {
            (Ok(before), Ok(marked)) => *before += marked,
            (Ok(_), Err(error)) => self.marked = Err(error),
            (Err(_), _) => {}
        }
        self.too_large.extend(other.too_large);
        self.failures.extend(other.failures);
        self
    }

    pub(super) fn refused(&mut self, instruction: &'a Instruction, error: bus::Error) {
        match error {
            bus::Error::TooLarge { .. } => self.too_large.push(instruction),
            error => self.failures.push(error),
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

    fn half(marked: Result<usize, Error>) -> Sent<'static> {
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
