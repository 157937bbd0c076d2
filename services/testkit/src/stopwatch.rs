//! How long something takes, without the time in which the machine stood still: what is promised of programs is not
//! promised of a machine that runs none.
//!
//! A thread of the test's process beats. By how much a beat comes too late, nobody ran, or this process at least.
//! *Invariant:* only standstills are left out, never that others take the processors: what is less than a second is
//! part of what is measured.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// From one beat to the next.
const BEAT: Duration = Duration::from_millis(100);
/// By how much a beat is late that did not only wait for its turn.
const STANDSTILL: Duration = Duration::from_secs(1);

/// The beats of this process.
#[derive(Debug)]
struct Pulse {
    last: Instant,
    /// How long all standstills before that lasted together.
    still: Duration,
}

impl Pulse {
    /// How long all standstills lasted together, the one included after which no beat came yet.
    fn still_at(&self, now: Instant) -> Duration {
        let late = now.saturating_duration_since(self.last).saturating_sub(BEAT);
        if late >= STANDSTILL { self.still + late } else { self.still }
    }

    fn beat(&mut self, now: Instant) {
        self.still = self.still_at(now);
        self.last = now;
    }
}

/// Measures from its start.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch {
    begun: Instant,
    /// Standstills before that.
    still: Duration,
}

impl Stopwatch {
    /// Starts.
    ///
    /// # Panics
    /// When no thread can be made.
    pub fn start() -> Self {
        let pulse = pulse();
        let begun = Instant::now();
        Self { begun, still: pulse.still_at(begun) }
    }

    /// How long it has run, without standstills.
    pub fn elapsed(&self) -> Duration {
        let pulse = pulse();
        let now = Instant::now();
        let still = pulse.still_at(now).saturating_sub(self.still);
        now.saturating_duration_since(self.begun).saturating_sub(still)
    }
}

/// Begins when it is first asked for.
static PULSE: OnceLock<Mutex<Pulse>> = OnceLock::new();

fn pulse() -> MutexGuard<'static, Pulse> {
    let pulse = PULSE.get_or_init(|| {
        // Without it all time would be a standstill.
        thread::Builder::new().name("pulse".to_owned()).spawn(beats).expect("a thread for the pulse");
        Mutex::new(Pulse { last: Instant::now(), still: Duration::ZERO })
    });
    pulse.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Beats as long as the process lives.
fn beats() {
    loop {
        thread::sleep(BEAT);
        pulse().beat(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_standstills_are_left_out_and_each_once() {
        let begun = Instant::now();
        let at = |milliseconds| begun + Duration::from_millis(milliseconds);
        let mut pulse = Pulse { last: begun, still: Duration::ZERO };
        // When it is looked, whether a beat comes then, and how many milliseconds were standstills.
        for (when, beats, still) in [
            (100, true, 0),
            (1_100, true, 0),
            (2_000, false, 0),
            (5_200, false, 4_000),
            (5_200, true, 4_000),
            (5_300, true, 4_000),
            (8_400, true, 7_000),
        ] {
            assert_eq!(pulse.still_at(at(when)), Duration::from_millis(still), "after {when} ms");
            if beats {
                pulse.beat(at(when));
            }
        }
    }

    #[test]
    fn it_runs_while_the_machine_does() {
        let (stopwatch, begun) = (Stopwatch::start(), Instant::now());
        // So long that it would be a standstill if no beat came.
        while stopwatch.elapsed() < STANDSTILL + BEAT * 3 {
            assert!(begun.elapsed() < Duration::from_mins(1), "it stands still: {:?}", stopwatch.elapsed());
            thread::sleep(Duration::from_millis(20));
        }
    }
}
