//! A rate limiter shared by everything that talks to one account in one region: token buckets, as AWS keeps them.
//!
//! It exists to be fair among ourselves and to stay under AWS's limits; AWS remains the authority, and its answers
//! drain our buckets. The bucket is pure (time is a parameter). Waiting is first come, first served, and has a
//! deadline: a call that could not be sent in time fails at once and loudly instead of queueing for minutes.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::{Call, Error};

/// The longest pause that an answer can ask for: AWS asks for none, and what stands before it may ask for hours.
const PAUSE: Duration = Duration::from_mins(1);

/// A bucket's size and how fast it fills.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    burst: f64,
    per_second: f64,
}

impl Rate {
    /// At least one token, and at least one in a hundred seconds: a rate of nothing would be a wait without end.
    pub fn new(burst: u32, per_second: f64) -> Self {
        let per_second = if per_second.is_finite() { per_second.max(0.01) } else { 0.01 };
        Self { burst: f64::from(burst.max(1)), per_second }
    }
}

/// A token bucket in which waiting callers are a negative balance.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    rate: Rate,
    tokens: f64,
    at: Duration,
}

/// The wait would be longer than allowed. Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// How long it would be.
    pub wait: Duration,
}

impl Bucket {
    /// A full bucket at time `now` (since any fixed moment).
    pub fn full(rate: Rate, now: Duration) -> Self {
        Self { rate, tokens: rate.burst, at: now }
    }

    /// Takes a token and says how long to wait before using it, or takes none when that is longer than `longest`.
    pub fn take(&mut self, now: Duration, longest: Duration) -> Result<Duration, TooLong> {
        self.fill(now);
        let after = self.tokens - 1.0;
        let wait = seconds(-after / self.rate.per_second);
        if wait > longest {
            return Err(TooLong { wait });
        }
        self.tokens = after;
        Ok(wait)
    }

    /// AWS said that we are too fast: whatever we thought was left is not there, for `pause` at least.
    pub fn drain(&mut self, now: Duration, pause: Duration) {
        self.fill(now);
        self.tokens = self.tokens.min(-pause.as_secs_f64() * self.rate.per_second);
    }

    /// Gives a token back that was taken and not used.
    pub fn give_back(&mut self, now: Duration) {
        self.fill(now);
        self.tokens = (self.tokens + 1.0).min(self.rate.burst);
    }

    fn fill(&mut self, now: Duration) {
        // A clock that steps back fills nothing.
        let passed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        self.tokens = (self.tokens + passed.as_secs_f64() * self.rate.per_second).min(self.rate.burst);
    }
}

/// Zero for negative numbers, the longest possible for absurd ones.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}

/// Kinds of requests with a rate of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// EC2, reading. Each operation has a bucket of its own.
    Read,
    /// EC2, changing. Each operation has a bucket of its own.
    Write,
    /// EC2, launching instances.
    Launch,
    /// Route 53: one bucket for all operations of the account.
    Dns,
}

/// Rates by family. AWS changes its limits and raises them on request: they are configuration, these are its defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// EC2, reading, each operation.
    pub read: Rate,
    /// EC2, changing, each operation.
    pub write: Rate,
    /// EC2, launching.
    pub launch: Rate,
    /// Route 53, all operations together.
    pub dns: Rate,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            read: Rate::new(100, 20.0),
            write: Rate::new(50, 5.0),
            launch: Rate::new(5, 2.0),
            dns: Rate::new(50, 10.0),
        }
    }
}

impl Rates {
    /// The same with another rate of one family.
    #[must_use]
    pub fn with(mut self, family: Family, rate: Rate) -> Self {
        *match family {
            Family::Read => &mut self.read,
            Family::Write => &mut self.write,
            Family::Launch => &mut self.launch,
            Family::Dns => &mut self.dns,
        } = rate;
        self
    }

    fn of(&self, family: Family) -> Rate {
        match family {
            Family::Read => self.read,
            Family::Write => self.write,
            Family::Launch => self.launch,
            Family::Dns => self.dns,
        }
    }
}

/// The buckets of one account in one region. Share one among all clients of them.
#[derive(Debug)]
pub struct Limiter {
    rates: Rates,
    started: Instant,
    buckets: Mutex<HashMap<&'static str, Bucket>>,
}

impl Limiter {
    /// All buckets full.
    pub fn new(rates: Rates) -> Self {
        Self { rates, started: Instant::now(), buckets: Mutex::new(HashMap::new()) }
    }

    /// Waits for this operation's turn, at most `longest`, and says how long it was. A caller that goes away while
    /// waiting gives its turn back: else callers with short deadlines, more than there are turns, would let none through.
    pub async fn acquire(
        &self,
        family: Family,
        operation: &'static str,
        longest: Duration,
    ) -> Result<Duration, Error> {
        let taken = self.with(family, operation, |bucket, now| bucket.take(now, longest));
        match taken {
            Ok(wait) if wait.is_zero() => Ok(wait),
            Ok(wait) => {
                let turn = Turn { limiter: self, family, operation };
                tokio::time::sleep(wait).await;
                std::mem::forget(turn);
                Ok(wait)
            }
            Err(TooLong { wait }) => Err(Error::Throttled {
                retry_after: Some(wait.saturating_sub(longest)),
                call: Box::new(Call::new(
                    operation,
                    format!("held back by our own rate limit: {wait:.1?} to wait, {longest:.1?} allowed"),
                )),
            }),
        }
    }

    /// Tells that AWS throttled this operation, and for how long, up to a minute.
    pub fn throttled(&self, family: Family, operation: &'static str, retry_after: Option<Duration>) {
        let pause = retry_after.unwrap_or_default().min(PAUSE);
        self.with(family, operation, |bucket, now| bucket.drain(now, pause));
    }

    fn with<T>(
        &self,
        family: Family,
        operation: &'static str,
        use_it: impl FnOnce(&mut Bucket, Duration) -> T,
    ) -> T {
        let key = match family {
            Family::Dns => "route53",
            Family::Read | Family::Write | Family::Launch => operation,
        };
        let now = self.started.elapsed();
        // A panic elsewhere cannot leave a bucket half changed, so a poisoned lock is as good as any.
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.entry(key).or_insert_with(|| Bucket::full(self.rates.of(family), now));
        use_it(bucket, now)
    }
}

/// A turn that is waited for, given back when nobody waits any more.
struct Turn<'a> {
    limiter: &'a Limiter,
    family: Family,
    operation: &'static str,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.limiter.with(self.family, self.operation, Bucket::give_back);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LONG: Duration = Duration::from_hours(1);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_burst_passes_and_then_the_rate_rules() {
        let mut bucket = Bucket::full(Rate::new(2, 10.0), ms(0));
        let waits: Vec<_> = (0..5).map(|_| bucket.take(ms(0), LONG).unwrap()).collect();
        assert_eq!(waits, [ms(0), ms(0), ms(100), ms(200), ms(300)]);
        // After a second, ten have been added: three pay the debt, two fill the bucket, five are lost.
        assert_eq!(bucket.take(ms(1000), LONG), Ok(ms(0)));
        assert_eq!(bucket.take(ms(1000), LONG), Ok(ms(0)));
        assert_eq!(bucket.take(ms(1000), LONG), Ok(ms(100)));
    }

    #[tokio::test]
    async fn who_goes_away_gives_the_turn_back() {
        let one = Rate::new(1, 0.1);
        let limiter = Limiter::new(Rates { read: one, write: one, launch: one, dns: one });
        let longest = Duration::from_secs(11);
        limiter.acquire(Family::Write, "DeleteVolume", longest).await.unwrap();
        for _ in 0..50 {
            // Its turn is at most ten seconds away, however many went away before it.
            let gone = limiter.acquire(Family::Write, "DeleteVolume", longest);
            tokio::time::timeout(ms(1), gone).await.unwrap_err();
        }
    }

    #[test]
    fn who_cannot_wait_takes_nothing() {
        let mut bucket = Bucket::full(Rate::new(1, 1.0), ms(0));
        assert_eq!(bucket.take(ms(0), ms(0)), Ok(ms(0)));
        for _ in 0..100 {
            assert_eq!(bucket.take(ms(0), ms(900)), Err(TooLong { wait: ms(1000) }));
        }
        assert_eq!(bucket.take(ms(100), ms(900)), Ok(ms(900)));
    }

    #[test]
    fn a_throttle_of_aws_empties_the_bucket() {
        let mut bucket = Bucket::full(Rate::new(100, 10.0), ms(0));
        bucket.drain(ms(0), ms(0));
        assert_eq!(bucket.take(ms(0), LONG), Ok(ms(100)));
        bucket.drain(ms(0), ms(2000));
        assert_eq!(bucket.take(ms(0), LONG), Ok(ms(2100)));
        // A second throttle does not lengthen the pause that is already longer.
        bucket.drain(ms(0), ms(500));
        assert_eq!(bucket.take(ms(0), LONG), Ok(ms(2200)));
    }

    #[test]
    fn no_answer_stops_all_for_longer_than_a_minute() {
        let limiter = Limiter::new(Rates::default());
        for asked in [Duration::from_hours(1), Duration::MAX] {
            limiter.throttled(Family::Dns, "GetChange", Some(asked));
            let wait =
                limiter.with(Family::Dns, "ListResourceRecordSets", |bucket, now| bucket.take(now, LONG));
            assert!(wait.is_ok_and(|wait| wait > PAUSE / 2 && wait < 2 * PAUSE), "{asked:?}: {wait:?}");
        }
    }

    #[test]
    fn a_clock_that_steps_back_fills_nothing() {
        let mut bucket = Bucket::full(Rate::new(1, 1.0), ms(5000));
        assert_eq!(bucket.take(ms(5000), LONG), Ok(ms(0)));
        assert_eq!(bucket.take(ms(1000), LONG), Ok(ms(1000)));
        assert_eq!(bucket.take(ms(5000), LONG), Ok(ms(2000)));
    }

    #[test]
    fn absurd_rates_are_made_sane() {
        for per_second in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let mut bucket = Bucket::full(Rate::new(0, per_second), ms(0));
            assert_eq!(bucket.take(ms(0), LONG), Ok(ms(0)));
            assert_eq!(bucket.take(ms(0), LONG), Ok(Duration::from_secs(100)));
        }
    }

    proptest! {
        /// Whatever callers do, no more than burst + rate × time are let through in any prefix of time.
        #[test]
        fn never_faster_than_the_rate(gaps in prop::collection::vec(0_u64..300, 1..200), longest in 0_u64..2000) {
            let rate = Rate::new(5, 10.0);
            let mut bucket = Bucket::full(rate, ms(0));
            let (mut now, mut used) = (ms(0), Vec::new());
            for gap in gaps {
                now += ms(gap);
                if let Ok(wait) = bucket.take(now, ms(longest)) {
                    used.push(now + wait);
                }
            }
            used.sort_unstable();
            for (count, at) in (1_u32..).zip(&used) {
                prop_assert!(f64::from(count) <= 5.0 + at.as_secs_f64() * 10.0 + 1e-6);
            }
        }
    }

    #[tokio::test]
    async fn operations_of_ec2_do_not_share_and_those_of_route_53_do() {
        let one = Rate::new(1, 0.01);
        let limiter = Limiter::new(Rates { read: one, write: one, launch: one, dns: one });
        let now = Duration::ZERO;
        limiter.acquire(Family::Read, "DescribeVolumes", now).await.unwrap();
        limiter.acquire(Family::Read, "DescribeInstances", now).await.unwrap();
        limiter.acquire(Family::Dns, "GetChange", now).await.unwrap();
        for (family, operation) in
            [(Family::Read, "DescribeVolumes"), (Family::Dns, "ListResourceRecordSets")]
        {
            let error = limiter.acquire(family, operation, now).await.unwrap_err();
            assert_eq!((error.category(), error.call().code.as_deref()), ("throttled", None));
            assert!(matches!(error, Error::Throttled { retry_after: Some(after), .. } if after > ms(90_000)));
        }
    }

    #[tokio::test]
    async fn waiting_is_really_waiting() {
        let rate = Rate::new(1, 50.0);
        let limiter = Limiter::new(Rates { read: rate, ..Rates::default() });
        let started = Instant::now();
        for _ in 0..6 {
            limiter.acquire(Family::Read, "DescribeVolumes", LONG).await.unwrap();
        }
        assert!(started.elapsed() >= ms(95), "{:?}", started.elapsed());
    }
}
