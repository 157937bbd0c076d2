//! How many instructions one round takes: many, because a round waits for Postgres and Kafka once each whatever its size,
//! but of large ones fewer, so that memory does not depend on what waits.

use std::sync::atomic::{AtomicU32, Ordering};

/// Instructions of the first round, before anything is known of their sizes.
const FIRST: u32 = 500;
/// The fewest and the most of a round.
const LIMITS: (u32, u32) = (50, 2_000);
/// What the records of a round may take together, if they are as large as those of the round before.
const BYTES: usize = 8 * 1_024 * 1_024;

/// How many the next round takes.
#[derive(Debug)]
pub(crate) struct Portion(AtomicU32);

impl Default for Portion {
    fn default() -> Self {
        Self(AtomicU32::new(FIRST))
    }
}

impl Portion {
    /// How many.
    pub(crate) fn size(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Learns from a round of so many records with so many bytes.
    pub(crate) fn learn(&self, records: usize, bytes: usize) {
        // A round without records says nothing of their size.
        if let Some(each) = bytes.checked_div(records) {
            let fit = u32::try_from(BYTES / each.max(1)).unwrap_or(u32::MAX);
            self.0.store(fit.clamp(LIMITS.0, LIMITS.1), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_small_records_many_are_taken_and_of_large_ones_few() {
        for (records, bytes, expected) in [
            (500, 300_000, 2_000),
            (500, 500 * 8_192, 1_024),
            (100, 100 * 262_144, 50),
            (1, 0, 2_000),
            (0, 0, FIRST),
        ] {
            let portion = Portion::default();
            portion.learn(records, bytes);
            assert_eq!(portion.size(), expected, "{records} records of {bytes} bytes");
        }
    }
}
