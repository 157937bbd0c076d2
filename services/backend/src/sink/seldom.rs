//! What is told once in a while, however often it happens. Pure: time is a parameter.

use std::time::{Duration, Instant};

/// How long nothing more is told.
const PERIOD: Duration = Duration::from_mins(1);

/// When something was told, and how often it happened since.
#[derive(Debug, Default)]
pub(super) struct Seldom {
    told_at: Option<Instant>,
    untold: u64,
}

impl Seldom {
    /// It happened so many times. Gives how many are to be told of now, those before that nobody was told of included.
    pub(super) fn happened(&mut self, times: u64, now: Instant) -> Option<u64> {
        self.untold += times;
        let is_time = self.told_at.is_none_or(|at| now.saturating_duration_since(at) >= PERIOD);
        if self.untold == 0 || !is_time {
            return None;
        }
        self.told_at = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_the_rest_together_a_period_later() {
        let (mut seldom, start) = (Seldom::default(), Instant::now());
        let second = Duration::from_secs(1);
        for (after, times, told) in [
            (Duration::ZERO, 0, None),
            (second, 2, Some(2)),
            (second * 2, 3, None),
            (PERIOD, 4, None),
            (PERIOD + second, 0, Some(7)),
            (PERIOD * 3, 0, None),
            (PERIOD * 3, 1, Some(1)),
        ] {
            assert_eq!(seldom.happened(times, start + after), told, "{after:?}");
        }
    }
}
