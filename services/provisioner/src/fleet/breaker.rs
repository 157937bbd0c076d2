//! Whether a cluster is worth a call. Pure: time is a parameter.
//!
//! Opens after calls in a row without an answer and is closed by any answer; a probe on a period, not the traffic, finds
//! out whether a cluster is back.

use std::time::{Duration, Instant};

/// Calls in a row without an answer that open it.
const TOLERATED: u32 = 3;
/// Failures that come this quickly after each other count as one: they were in flight together.
const TOGETHER: Duration = Duration::from_millis(250);

/// The breaker of one cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Breaker {
    failures: u32,
    last: Option<Instant>,
    reason: String,
}

impl Breaker {
    /// A call was answered.
    pub fn answered(&mut self) {
        *self = Self::default();
    }

    /// A call was not answered.
    pub fn unanswered(&mut self, reason: &str, now: Instant) {
        let together = self.last.is_some_and(|last| now.saturating_duration_since(last) < TOGETHER);
        if !together {
            self.failures = self.failures.saturating_add(1);
            self.last = Some(now);
        }
        reason.clone_into(&mut self.reason);
    }

    /// Why no call should be tried; `None` while calls may be.
    pub fn open_since(&self) -> Option<&str> {
        (self.failures >= TOLERATED).then_some(self.reason.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_failures_in_a_row_and_any_answer_closes_it() {
        let (mut breaker, start) = (Breaker::default(), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        breaker.unanswered("refused", at(0));
        breaker.unanswered("refused", at(1));
        assert_eq!(breaker.open_since(), None);
        breaker.answered();
        breaker.unanswered("refused", at(2));
        breaker.unanswered("refused", at(3));
        breaker.unanswered("timed out", at(4));
        assert_eq!(breaker.open_since(), Some("timed out"));
        breaker.answered();
        assert_eq!(breaker.open_since(), None);
    }

    #[test]
    fn a_burst_counts_once() {
        let (mut breaker, start) = (Breaker::default(), Instant::now());
        for _ in 0..100 {
            breaker.unanswered("reset", start);
        }
        assert_eq!(breaker.open_since(), None);
    }
}
