//! How long the relay rests between two rounds.
//!
//! What failed waits for itself (`refusals`). Beside that everybody waits together after a round that failed as a whole: Kafka
//! took nothing of anybody, or Postgres did not answer. *Invariant:* a Kafka that takes nothing is not asked more often because
//! more people ask for something; and as everybody waits for its return, never less often than every few seconds.

use std::time::Duration;

use runtime::Backoff;
use runtime::backoff::Retry;

use super::FLOOR;
use crate::doorbell::Doorbell;

/// How long all wait together: after the end of a long outage everybody has this much more to wait.
const POLICY: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2));

/// Rounds that failed in a row.
#[derive(Debug)]
pub(super) struct Pause {
    retry: Retry,
    is_told: bool,
}

impl Pause {
    /// None did yet.
    pub(super) const fn new() -> Self {
        Self { retry: POLICY.start(), is_told: false }
    }

    /// How long to rest after a round that did not fail: `more` says whether the next one has something to do at once, `is_dark`
    /// whether it looks as if Kafka took nothing of anybody.
    pub(super) const fn after_round(&mut self, more: bool, is_dark: bool) -> Duration {
        if more {
            return Duration::ZERO;
        }
        // A round in which all that failed before still wait asked Kafka for nothing: it ends no row, and not what was told.
        if !is_dark {
            self.retry.reset();
            self.is_told = false;
        }
        FLOOR
    }

    /// How long to rest after one that failed, and whether it is the first of a row, which is told.
    pub(super) fn after_failure(&mut self) -> (Duration, bool) {
        let wait = self.retry.next_delay().max(POLICY.ceiling(0));
        (wait, !std::mem::replace(&mut self.is_told, true))
    }
}

/// Rests for so long, or until a ring; but rings do not count while nothing of anybody is taken.
pub(super) async fn rest(wait: Duration, doorbell: &Doorbell, is_dark: bool) {
    if is_dark {
        tokio::time::sleep(wait).await;
    } else {
        doorbell.wait(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn rounds_in_which_all_wait_end_no_row_of_failures() {
        let mut pause = Pause::new();
        for number in 0..8 {
            let (wait, is_first) = pause.after_failure();
            assert_eq!(is_first, number == 0, "told once");
            assert!((POLICY.ceiling(0)..=POLICY.ceiling(number)).contains(&wait), "{number}: {wait:?}");
            assert_eq!(pause.after_round(false, true), FLOOR);
            assert_eq!(pause.retry.attempts(), number + 1);
        }
        assert_eq!(pause.after_round(true, false), Duration::ZERO);
        assert_eq!(pause.after_round(false, false), FLOOR);
        assert_eq!(pause.retry.attempts(), 0, "something was taken");
        assert_eq!(pause.after_failure(), (POLICY.ceiling(0), true), "the first of the next row");
    }

    #[tokio::test]
    async fn a_ring_ends_a_rest_unless_nothing_is_taken() {
        let (doorbell, long) = (Doorbell::default(), Duration::from_mins(5));
        doorbell.ring();
        assert_eq!(rest(long, &doorbell, true).now_or_never(), None);
        assert_eq!(rest(long, &doorbell, false).now_or_never(), Some(()), "it is heard afterwards");
    }
}
