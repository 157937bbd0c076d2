//! Pauses between attempts at a watch that does not work.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt as _};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{Error, Event};

/// The first of them.
const FIRST: Duration = Duration::from_secs(1);
/// The longest while the API server, or what lies before it, does not answer as it should: once it does, a watch is not to be
/// what is waited for.
const LONGEST: Duration = Duration::from_secs(15);
/// The longest while the API server refuses: only people cure that.
const LONGEST_REFUSED: Duration = Duration::from_secs(30);
/// So long after the last of them they begin anew.
const FORGOTTEN: Duration = Duration::from_mins(2);

/// What an attempt came to, as far as the pause after it depends on that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Failure {
    #[default]
    Broke,
    /// The API server lets nobody in, or does not know the kind.
    Refused,
    /// It answers, and has forgotten what the watch knew: a list is what helps, and soon.
    Expired,
}

impl Failure {
    fn of(error: &Error) -> Self {
        let (Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status))
        | Error::WatchFailed(kube::Error::Api(status))
        | Error::WatchError(status)) = error
        else {
            return Self::Broke;
        };
        match status.code {
            403 | 404 => Self::Refused,
            410 => Self::Expired,
            _ => Self::Broke,
        }
    }
}

/// The pauses of one watch: they grow although each attempt at a list begins with an event that says nothing.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    last: Option<(Instant, Failure)>,
    attempt: u32,
}

impl Pauses {
    /// The pause after a failure at `now`; `share` of what is left to chance is taken, from 0 to 1.
    pub(super) fn after(&mut self, failure: Failure, now: Instant, share: f64) -> Duration {
        let begins_anew = self.last.is_none_or(|(at, before)| {
            let forgotten = now.saturating_duration_since(at) > FORGOTTEN;
            forgotten || (failure == Failure::Expired && before != Failure::Expired)
        });
        self.attempt = if begins_anew { 0 } else { self.attempt.saturating_add(1) };
        self.last = Some((now, failure));
        let longest = if failure == Failure::Refused { LONGEST_REFUSED } else { LONGEST };
        let ceiling = FIRST.saturating_mul(1 << self.attempt.min(16)).min(longest);
        ceiling.mul_f64(0.5 + share.clamp(0.0, 1.0) / 2.0)
    }
}

/// The pauses of a stream, which tells them of each failure.
struct Paces {
    pauses: Pauses,
    failure: Arc<Mutex<Failure>>,
}

impl Iterator for Paces {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let failure = *lock(&self.failure);
        Some(self.pauses.after(failure, Instant::now(), runtime::backoff::random_share()))
    }
}

impl Backoff for Paces {
    fn reset(&mut self) {}
}

/// A watch that pauses after each failure.
pub(super) fn paced<K: Send + 'static>(
    stream: impl Stream<Item = Result<Event<K>, Error>> + Send + 'static,
) -> impl Stream<Item = Result<Event<K>, Error>> + Send {
    let failure = Arc::<Mutex<Failure>>::default();
    let paces = Paces { pauses: Pauses::default(), failure: Arc::clone(&failure) };
    let noting = stream.inspect(move |said| {
        if let Err(error) = said {
            *lock(&failure) = Failure::of(error);
        }
    });
    noting.backoff(paces)
}

fn lock(failure: &Mutex<Failure>) -> MutexGuard<'_, Failure> {
    failure.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    fn played(failures: &[Failure], share: f64) -> Vec<u128> {
        let (mut pauses, mut now) = (Pauses::default(), Instant::now());
        let mut after = |failure: &Failure| {
            let pause = pauses.after(*failure, now, share);
            now += pause;
            pause.as_millis()
        };
        failures.iter().map(&mut after).collect()
    }

    #[test]
    fn pauses_grow_to_what_is_cured_by_whom() {
        use Failure::{Broke, Refused};
        assert_eq!(played(&[Broke; 6], 1.0), [1_000, 2_000, 4_000, 8_000, 15_000, 15_000]);
        assert_eq!(played(&[Broke; 6], 0.0), [500, 1_000, 2_000, 4_000, 7_500, 7_500]);
        assert_eq!(played(&[Refused; 8], 1.0)[4..], [16_000, 30_000, 30_000, 30_000]);
        assert_eq!(played(&[Refused, Refused, Refused, Refused, Refused, Broke], 1.0)[5], 15_000);
        assert_eq!(played(&[Broke; 100], 1.0)[99], 15_000);
    }

    /// An API server that is back and has forgotten what a watch knew is not to wait for it; one that says so again and again is
    /// not to be asked in haste.
    #[test]
    fn a_list_after_what_was_forgotten_comes_soon_and_not_again_and_again() {
        use Failure::{Broke, Expired};
        let found = played(&[Broke, Broke, Broke, Broke, Broke, Expired, Expired, Expired, Broke], 1.0);
        assert_eq!(found[4..], [15_000, 1_000, 2_000, 4_000, 8_000]);
    }

    #[test]
    fn pauses_begin_anew_after_a_long_time() {
        let (mut pauses, now) = (Pauses::default(), Instant::now());
        let mut at = |second| pauses.after(Failure::Broke, now + Duration::from_secs(second), 1.0).as_secs();
        assert_eq!([at(0), at(1), at(121), at(242)], [1, 2, 4, 1]);
    }

    #[test]
    fn failures_are_told_apart_by_the_code_of_the_answer() {
        let status = |code: u16| -> Box<Status> {
            let status = json!({ "status": "Failure", "message": "no", "reason": "Why", "code": code });
            Box::new(serde_json::from_value(status).unwrap())
        };
        for (code, expected) in [
            (403, Failure::Refused),
            (404, Failure::Refused),
            (410, Failure::Expired),
            (401, Failure::Broke),
            (500, Failure::Broke),
        ] {
            assert_eq!(Failure::of(&Error::WatchError(status(code))), expected, "{code}");
            let error = || kube::Error::Api(status(code));
            assert_eq!(Failure::of(&Error::InitialListFailed(error())), expected, "{code}");
            assert_eq!(Failure::of(&Error::WatchStartFailed(error())), expected, "{code}");
        }
        assert_eq!(Failure::of(&Error::NoResourceVersion), Failure::Broke);
    }
}
