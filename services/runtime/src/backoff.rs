//! How long to wait before trying again: exponential, fully jittered, capped.
//!
//! [`Backoff::delay`] is pure and takes its randomness as an argument; [`Retry`] counts attempts for a loop. Nothing here
//! decides *whether* to try again: that is each error's disposition.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// A policy: the ceiling of the wait is `base`, doubled with each attempt, never above `cap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
}

impl Backoff {
    /// A policy that starts at `base` and stops growing at `cap`.
    pub const fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap }
    }

    /// The longest wait before the given attempt (0 is the first retry).
    pub fn ceiling(&self, attempt: u32) -> Duration {
        let factor = 1_u32.checked_shl(attempt).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.cap)
    }

    /// The wait before the given attempt for a `random` number of `0.0..=1.0`: anywhere from nothing to the ceiling,
    /// which spreads many clients that failed at the same moment better than jitter around the ceiling.
    pub fn delay(&self, attempt: u32, random: f64) -> Duration {
        let share = if random.is_finite() { random.clamp(0.0, 1.0) } else { 1.0 };
        self.ceiling(attempt).mul_f64(share)
    }

    /// Starts counting attempts.
    pub const fn start(self) -> Retry {
        Retry { policy: self, attempt: 0 }
    }
}

/// The state of one retrying loop: how often it failed in a row.
#[derive(Debug, Clone)]
pub struct Retry {
    policy: Backoff,
    attempt: u32,
}

impl Retry {
    /// Counts a failure and says how long to wait.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.policy.delay(self.attempt, random_share());
        self.attempt = self.attempt.saturating_add(1);
        delay
    }

    /// Failures counted since the start or the last success.
    pub const fn attempts(&self) -> u32 {
        self.attempt
    }

    /// Forgets the failures after a success.
    pub const fn reset(&mut self) {
        self.attempt = 0;
    }

    /// Forgets the failures before where what failed now had gone on for longer than the longest wait: one that comes once in
    /// a while is the first of its row, and nobody is asked more often than at the end of a long one.
    pub fn lasted(&mut self, time: Duration) {
        if time > self.policy.cap {
            self.reset();
        }
    }

    /// Counts a failure and waits. Answers `false` when `stop` came first.
    pub async fn wait(&mut self, stop: &CancellationToken) -> bool {
        sleep(self.next_delay(), stop).await
    }
}

/// Sleeps, unless `stop` comes first: then answers `false` at once.
pub async fn sleep(delay: Duration, stop: &CancellationToken) -> bool {
    tokio::select! {
        biased;
        () = stop.cancelled() => false,
        () = tokio::time::sleep(delay) => true,
    }
}

/// A random number of `0.0..=1.0`; the longest wait if the system has no randomness to give.
pub fn random_share() -> f64 {
    let bits = getrandom::u64().map_or(u32::MAX, |random| (random >> 32) as u32);
    f64::from(bits) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POLICY: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));

    #[test]
    fn ceiling_doubles_until_the_cap() {
        let table = [
            (0, 100),
            (1, 200),
            (2, 400),
            (6, 6_400),
            (7, 10_000),
            (31, 10_000),
            (32, 10_000),
            (u32::MAX, 10_000),
        ];
        for (attempt, millis) in table {
            assert_eq!(POLICY.ceiling(attempt), Duration::from_millis(millis), "attempt {attempt}");
        }
    }

    #[test]
    fn delay_is_the_random_share_of_the_ceiling() {
        assert_eq!(POLICY.delay(3, 0.0), Duration::ZERO);
        assert_eq!(POLICY.delay(3, 0.5), Duration::from_millis(400));
        assert_eq!(POLICY.delay(3, 1.0), Duration::from_millis(800));
        assert_eq!(POLICY.delay(3, f64::NAN), Duration::from_millis(800));
    }

    #[test]
    fn retry_counts_and_forgets() {
        let mut retry = POLICY.start();
        for attempt in 0..20 {
            assert_eq!(retry.attempts(), attempt);
            assert!(retry.next_delay() <= POLICY.ceiling(attempt));
        }
        retry.reset();
        assert_eq!(retry.attempts(), 0);
    }

    #[test]
    fn what_fails_after_a_long_time_is_the_first_in_a_row() {
        let mut retry = POLICY.start();
        for (seconds, attempts) in [(0, 0), (1, 1), (10, 2), (11, 0), (3_600, 0), (0, 1)] {
            retry.lasted(Duration::from_secs(seconds));
            assert_eq!(retry.attempts(), attempts, "{seconds} s");
            retry.next_delay();
        }
    }

    #[tokio::test]
    async fn a_stop_ends_the_wait() {
        let stop = CancellationToken::new();
        stop.cancel();
        assert!(!sleep(Duration::from_hours(1), &stop).await);
        assert!(sleep(Duration::ZERO, &CancellationToken::new()).await);
    }

    #[test]
    fn random_shares_differ() {
        let shares: Vec<f64> = (0..16).map(|_| random_share()).collect();
        assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)));
        assert!(shares.windows(2).any(|pair| (pair[0] - pair[1]).abs() > f64::EPSILON));
    }

    proptest! {
        #[test]
        fn delays_stay_within_bounds(base in 0_u64..1_000_000, cap in 0_u64..10_000_000, attempt: u32, random: f64) {
            let policy = Backoff::new(Duration::from_millis(base), Duration::from_millis(cap));
            let delay = policy.delay(attempt, random);
            prop_assert!(delay <= Duration::from_millis(cap));
            prop_assert!(policy.ceiling(attempt) <= policy.ceiling(attempt.saturating_add(1)));
        }
    }
}
