//! Whether to try again, and when. Pure: randomness and time are parameters.
//!
//! Only what says "later" is tried again: 429, 503, and no answer at all, or half of one. That is safe for every request of this
//! program: reads change nothing, POST carries an idempotency key, PATCH a precondition, PUT and DELETE name their result.

use std::fmt;
use std::time::Duration;

use runtime::backoff::Backoff;

/// Waits between tries.
pub const BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5));

/// Tries after which an API that does not answer is called unreachable.
const TRIES: u32 = 8;

/// What came of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// An answer.
    Answered {
        /// HTTP status.
        status: u16,
        /// What the server asks to wait.
        retry_after: Option<Duration>,
    },
    /// No answer, or one that was cut off.
    Unreachable,
    /// Could not be sent or is too long to be read, and that will not change.
    Hopeless,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered { status, .. } => write!(f, "HTTP {status}"),
            Self::Unreachable => f.write_str("no answer"),
            Self::Hopeless => f.write_str("not sent"),
        }
    }
}

/// What to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It is what it is.
    Settled,
    /// Try again after this time.
    Again(Duration),
    /// Trying again would make sense, but there is no time for it.
    OutOfTime,
}

/// Decides after a try (0 is the first) with that much time left, by a random number of `0.0..=1.0`.
pub fn decide(seen: &Seen, attempt: u32, remaining: Duration, random: f64) -> Decision {
    let wished = match *seen {
        Seen::Answered { status: 429 | 503, retry_after } => retry_after.unwrap_or_default(),
        Seen::Unreachable if remaining.is_zero() => return Decision::OutOfTime,
        Seen::Unreachable if attempt + 1 < TRIES => Duration::ZERO,
        Seen::Answered { .. } | Seen::Unreachable | Seen::Hopeless => return Decision::Settled,
    };
    // On top of what the server asks for, so that not everybody comes back at that very moment.
    let delay = wished.saturating_add(BACKOFF.delay(attempt, random));
    if delay < remaining { Decision::Again(delay) } else { Decision::OutOfTime }
}

/// The seconds of a `Retry-After`. A date is not understood, which only means our own wait.
pub fn after(text: &str) -> Option<Duration> {
    text.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(10);

    const fn answered(status: u16, retry_after: Option<Duration>) -> Seen {
        Seen::Answered { status, retry_after }
    }

    #[test]
    fn only_later_is_tried_again() {
        for status in [200, 202, 301, 400, 401, 403, 404, 409, 412, 422, 500, 501, 502, 504] {
            assert_eq!(decide(&answered(status, None), 0, LONG, 1.0), Decision::Settled, "{status}");
        }
        for seen in [answered(429, None), answered(503, None), Seen::Unreachable] {
            assert_eq!(decide(&seen, 0, LONG, 1.0), Decision::Again(Duration::from_millis(250)), "{seen}");
            assert_eq!(decide(&seen, 0, LONG, 0.0), Decision::Again(Duration::ZERO), "{seen}");
            assert_eq!(decide(&seen, 3, LONG, 0.5), Decision::Again(Duration::from_secs(1)), "{seen}");
        }
        assert_eq!(decide(&Seen::Hopeless, 0, LONG, 1.0), Decision::Settled);
    }

    #[test]
    fn the_server_is_heard_and_time_is_kept() {
        let seen = answered(429, after(" 7 "));
        assert_eq!(decide(&seen, 0, LONG, 1.0), Decision::Again(Duration::from_millis(7_250)));
        assert_eq!(decide(&seen, 0, Duration::from_secs(7), 0.0), Decision::OutOfTime);
        assert_eq!(decide(&Seen::Unreachable, 0, Duration::ZERO, 0.0), Decision::OutOfTime);
        assert_eq!(after("Sat, 21 Nov 2026 06:00:00 GMT"), None);
    }

    #[test]
    fn an_api_that_never_answers_is_given_up() {
        let tries = (0..100)
            .take_while(|&attempt| decide(&Seen::Unreachable, attempt, LONG, 1.0) != Decision::Settled);
        assert_eq!(tries.count(), 7);
    }

    #[test]
    fn an_api_that_says_later_is_asked_until_the_deadline() {
        assert!(matches!(decide(&answered(503, None), 1_000, LONG, 1.0), Decision::Again(_)));
    }
}
