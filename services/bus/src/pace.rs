//! A pace: what comes alone goes at once, what comes in a stream goes together.
//!
//! A request costs brokers and the processes before and behind them far more than a record. So somebody who tells of single
//! things, each as it happens, may do so at once as long as they are few; of many, those that come within a period are
//! held until its end. Nothing is held longer than that.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::lock;

/// Holds back what comes in a stream.
#[derive(Debug)]
pub struct Pace(Mutex<Rhythm>);

impl Pace {
    /// One departure a period; after a silence so many at once.
    pub fn new(period: Duration, credit: u32) -> Self {
        Self(Mutex::new(Rhythm { period, saved: period * credit, next: None, booked: false }))
    }

    /// Waits until it is time to go, at most a period.
    pub async fn turn(&self) {
        let now = Instant::now();
        let departure = lock(&self.0).departure(now);
        if departure > now {
            tokio::time::sleep_until(departure).await;
        }
    }
}

#[derive(Debug)]
struct Rhythm {
    period: Duration,
    /// How far behind the next departure may lie: what was not used of a silence.
    saved: Duration,
    /// When the next one goes.
    next: Option<Instant>,
    /// Whether somebody waits for it.
    booked: bool,
}

impl Rhythm {
    /// When somebody goes who comes now.
    fn departure(&mut self, now: Instant) -> Instant {
        let oldest = now.checked_sub(self.saved).unwrap_or(now);
        let mut next = self.next.unwrap_or(oldest);
        if self.booked && next <= now {
            // Those who waited have gone.
            next += self.period;
            self.booked = false;
        }
        next = next.max(oldest);
        let departure = next.max(now);
        if departure > now {
            self.booked = true;
        } else {
            next += self.period;
        }
        self.next = Some(next);
        departure
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PERIOD: Duration = Duration::from_millis(20);

    fn rhythm(credit: u32) -> Rhythm {
        Rhythm { period: PERIOD, saved: PERIOD * credit, next: None, booked: false }
    }

    /// When those go who come then, in milliseconds.
    fn departures(credit: u32, arrivals: &[u64]) -> Vec<u64> {
        let start = Instant::now() + Duration::from_hours(1);
        let mut rhythm = rhythm(credit);
        let at = |milliseconds: &u64| {
            let departure = rhythm.departure(start + Duration::from_millis(*milliseconds));
            u64::try_from(departure.duration_since(start).as_millis()).unwrap()
        };
        arrivals.iter().map(at).collect()
    }

    #[test]
    fn few_go_at_once_and_many_together() {
        for (credit, arrivals, expected) in [
            (0, vec![0, 100, 200], vec![0, 100, 200]),
            (0, vec![0, 1, 5, 19, 20, 25, 41], vec![0, 20, 20, 20, 40, 40, 60]),
            (2, vec![0, 0, 0, 1, 2], vec![0, 0, 0, 20, 20]),
            // A silence saves as many departures as it may, and no more.
            (2, vec![0, 0, 0, 1, 500, 500, 500, 500], vec![0, 0, 0, 20, 500, 500, 500, 520]),
            (1, vec![0, 0, 5, 30, 31], vec![0, 0, 20, 40, 40]),
        ] {
            assert_eq!(departures(credit, &arrivals), expected, "{arrivals:?}, credit {credit}");
        }
    }

    proptest! {
        #[test]
        fn nobody_waits_longer_than_a_period_and_departures_keep_the_pace(
            credit in 0_u32..5,
            gaps in prop::collection::vec(0_u64..30, 1..200),
        ) {
            let arrivals: Vec<u64> =
                gaps.iter().scan(0, |sum, gap| { *sum += gap; Some(*sum) }).collect();
            let departures = departures(credit, &arrivals);
            for (arrival, departure) in arrivals.iter().zip(&departures) {
                prop_assert!(departure >= arrival && departure - arrival <= 20, "{arrival} {departure}");
            }
            // Who goes at once is a departure of its own; those who waited for one moment are one together.
            let mut moments = departures.clone();
            moments.dedup();
            let single = arrivals.iter().zip(&departures).filter(|(arrival, departure)| arrival == departure).count();
            let together: std::collections::BTreeSet<_> =
                arrivals.iter().zip(&departures).filter(|(arrival, departure)| arrival != departure).map(|(_, departure)| departure).collect();
            let span = departures.last().unwrap() - departures[0];
            let allowed = u64::from(credit) + 2 + span / 20;
            prop_assert!((single + together.len()) as u64 <= allowed, "{single} + {} > {allowed}", together.len());
        }
    }
}
