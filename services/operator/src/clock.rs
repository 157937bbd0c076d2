//! The clock by which ages are told: the API server's, as its answers say it. What it dated (when an object was made, when one is to be
//! gone, since when something is so) is compared with its own time, and a clock of this machine that is wrong, or jumps, decides
//! nothing.
//!
//! An answer says its time in whole seconds, and was on its way for some time: so the clock is corrected only where an answer proves
//! it wrong, and goes on by what measures lengths of time here otherwise.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::header::DATE;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use kube::client::Body;
use tower::{Layer, Service};

/// What an answer does not say of its time.
const UNSAID: Duration = Duration::from_secs(1);

static DATES: DateTimeParser = DateTimeParser::new();

/// The API server's time. Clones share what is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Arc<Mutex<Option<Reading>>>);

/// That it was this time there at a moment here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    time: Timestamp,
    at: Instant,
}

impl Clock {
    /// What time it is; this machine's own before anything was answered.
    pub(crate) fn now(&self) -> Timestamp {
        self.lock().map_or_else(Timestamp::now, |reading| reading.then(Instant::now()))
    }

    /// Takes in what time it was when something was answered that was asked at a moment.
    fn hears(&self, said: Timestamp, asked: Instant, answered: Instant) {
        let mut reading = self.lock();
        *reading = Some(corrected(*reading, said, (asked, answered)));
    }

    fn lock(&self) -> MutexGuard<'_, Option<Reading>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    /// What time it is there at a moment here, which may lie before the reading.
    fn then(&self, at: Instant) -> Timestamp {
        let (later, earlier) = (at.saturating_duration_since(self.at), self.at.saturating_duration_since(at));
        let then = self.time.checked_add(later).and_then(|then| then.checked_sub(earlier));
        then.unwrap_or(self.time)
    }
}

/// What is known after an answer: it was made between two moments, in the second that it says.
fn corrected(known: Option<Reading>, said: Timestamp, (asked, answered): (Instant, Instant)) -> Reading {
    let least = Reading { time: said, at: answered };
    let Some(known) = known else { return least };
    if known.then(answered) < said {
        return least;
    }
    let end = said.checked_add(UNSAID).unwrap_or(said);
    if known.then(asked) > end { Reading { time: end, at: asked } } else { known }
}

impl<S> Layer<S> for Clock {
    type Service = Heard<S>;

    fn layer(&self, inner: S) -> Heard<S> {
        Heard { inner, clock: self.clone() }
    }
}

/// A client whose answers are heard for their time.
pub(crate) struct Heard<S> {
    inner: S,
    clock: Clock,
}

impl<S, B> Service<http::Request<Body>> for Heard<S>
where
    S: Service<http::Request<Body>, Response = http::Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    B: 'static,
{
    type Response = http::Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (asked, clock) = (Instant::now(), self.clock.clone());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            let date =
                answer.headers().get(DATE).and_then(|date| DATES.parse_timestamp(date.as_bytes()).ok());
            if let Some(said) = date {
                clock.hears(said, asked, Instant::now());
            }
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An API server's time, to the second.
    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn answers_that_bear_it_out_leave_it_as_it_is() {
        let begin = Instant::now();
        let at = |after: u64| begin + millis(after);
        // Answered at 0.9 of a second there, which nobody can know.
        let first = corrected(None, time(0), (at(0), at(0)));
        assert_eq!(first, Reading { time: time(0), at: at(0) });
        // 0.8 of a second later it is the next one there.
        let second = corrected(Some(first), time(1), (at(800), at(800)));
        assert_eq!(second, Reading { time: time(1), at: at(800) }, "it was behind");
        let mut known = second;
        // It never goes back for what an answer leaves out, or for how long it was on its way.
        for (said, asked, answered) in
            [(1, 900, 900), (1, 1_090, 1_090), (2, 1_800, 2_400), (5, 4_000, 30_000)]
        {
            known = corrected(Some(known), time(said), (at(asked), at(answered)));
            assert_eq!(known, second, "{said}");
        }
        assert_eq!(known.then(at(10_800)), time(11));
        assert_eq!(known.then(at(0)), time(1).checked_sub(millis(800)).unwrap());
    }

    #[test]
    fn a_clock_that_jumps_there_is_followed_both_ways() {
        let begin = Instant::now();
        let known = Reading { time: time(0), at: begin };
        let now = begin + millis(5_000);
        let ahead = corrected(Some(known), time(605), (now, now));
        assert_eq!(ahead.then(now), time(605));
        let back = corrected(Some(ahead), time(5), (now, now));
        assert_eq!(back.then(now), time(6), "within the second that it says");
    }

    /// A client of a server that says it is this time.
    async fn asked(clock: &Clock, date: Option<&'static str>) {
        let inner = tower::service_fn(move |_: http::Request<Body>| async move {
            let answer = http::Response::builder();
            let answer = date.into_iter().fold(answer, |answer, date| answer.header(DATE, date));
            answer.body(())
        });
        clock.layer(inner).call(http::Request::new(Body::empty())).await.unwrap();
    }

    #[tokio::test]
    async fn it_is_the_time_that_answers_say() {
        let (clock, own) = (Clock::default(), Timestamp::now());
        let is_about =
            |from: Timestamp| clock.now().duration_since(from).abs() < jiff::SignedDuration::from_mins(1);
        for unsaid in [None, Some("soon"), Some("2030-01-01T00:00:00Z")] {
            asked(&clock, unsaid).await;
            assert!(is_about(own), "{unsaid:?}");
        }
        asked(&clock, Some("Tue, 01 Jan 2030 00:00:00 GMT")).await;
        let there: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        assert!(is_about(there), "{}", clock.now());
        asked(&clock, None).await;
        assert!(is_about(there), "what is not said changes nothing");
    }
}
