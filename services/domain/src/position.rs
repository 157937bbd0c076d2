//! Where a desired state stands in a database's history. The one order that every fence compares.

use std::fmt;

/// The greatest epoch or sequence number: what every JSON reader holds exactly (2^53 - 1), and far from wrapping.
pub const MAXIMUM: i64 = 9_007_199_254_740_991;

/// (epoch, seq), compared in this order. `seq` rises by one with every accepted change; `epoch` rises only when
/// acknowledged rows were lost and the current state is minted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// Raised when Postgres lost rows that had been acknowledged.
    pub epoch: i64,
    /// Raised with every accepted change.
    pub seq: i64,
}

impl Position {
    /// The position of a database's first desired state.
    pub const FIRST: Self = Self { epoch: 1, seq: 1 };

    /// The position of the next change; `None` when the numbers are used up.
    pub const fn next(self) -> Option<Self> {
        if self.seq < MAXIMUM { Some(Self { epoch: self.epoch, seq: self.seq + 1 }) } else { None }
    }

    /// The position of the next change after `held` was found in a cluster although it was never minted; `None` when the
    /// numbers are used up. `seq` rises as with every change.
    pub const fn above(self, held: Self) -> Option<Self> {
        let epoch = if held.epoch > self.epoch { held.epoch } else { self.epoch };
        if epoch < MAXIMUM && self.seq < MAXIMUM {
            Some(Self { epoch: epoch + 1, seq: self.seq + 1 })
        } else {
            None
        }
    }

    /// Whether both numbers lie in 1..=MAXIMUM.
    pub const fn is_valid(self) -> bool {
        self.epoch >= 1 && self.seq >= 1 && self.epoch <= MAXIMUM && self.seq <= MAXIMUM
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.epoch, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoch_outranks_seq() {
        assert!(Position { epoch: 2, seq: 1 } > Position { epoch: 1, seq: 99 });
        assert!(Position { epoch: 1, seq: 3 } > Position { epoch: 1, seq: 2 });
    }

    #[test]
    fn what_was_lost_is_outranked() {
        let minted = Position { epoch: 2, seq: 5 };
        for held in [(2, 9), (2, 5), (4, 1), (1, 99)].map(|(epoch, seq)| Position { epoch, seq }) {
            let next = minted.above(held).unwrap();
            assert!(next > held && next > minted && next.seq == 6, "{held}: {next}");
        }
        assert_eq!(minted.above(Position { epoch: MAXIMUM, seq: 1 }), None);
    }

    #[test]
    fn next_stops_at_the_maximum() {
        assert_eq!(Position::FIRST.next(), Some(Position { epoch: 1, seq: 2 }));
        assert_eq!(Position { epoch: 1, seq: MAXIMUM }.next(), None);
        assert!(!Position { epoch: 1, seq: i64::MAX }.is_valid());
    }
}
