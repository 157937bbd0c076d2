//! Sleeping to a tenth of a millisecond. The runtime's own timer counts whole milliseconds, which is a tenth of the
//! shortest work that benches pretend to do.
//!
//! One thread wakes all, at the ticks of one clock: whoever goes to sleep is woken with all others of the same tick, and
//! disturbs the thread only by an earlier tick than it waits for. So many sleepers cost little, and what a bench measures is
//! the work, not the waking.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// How far apart the ticks are. Half of it is what a sleep lasts too long by on average, as much as the slack which the
/// kernel allows itself with a thread that sleeps.
const TICK: Duration = Duration::from_micros(100);

/// The thread that wakes those who sleep; it ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Alarm(Arc<Bell>);

/// Ends the thread when dropped.
#[derive(Debug)]
struct Bell(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Ticks are counted from here.
    start: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By the tick that wakes them.
    waiting: BTreeMap<u32, Vec<oneshot::Sender<()>>>,
    /// The tick that the thread waits for.
    planned: Option<u32>,
    over: bool,
}

impl Alarm {
    /// Starts the thread.
    pub(crate) fn start() -> Self {
        let shared =
            Arc::new(Shared { start: Instant::now(), state: Mutex::default(), changed: Condvar::new() });
        let ringing = Arc::clone(&shared);
        std::thread::spawn(move || ringing.ring());
        Self(Arc::new(Bell(shared)))
    }

    /// Sleeps this long, and at most a tick more.
    pub(crate) async fn sleep(&self, time: Duration) {
        let (wake, woken) = oneshot::channel();
        self.0.0.add(Instant::now() + time, wake);
        // An error means that the thread has ended, and with it the bench.
        let _ = woken.await;
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.0.lock().over = true;
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last tick that is not after this time. There are ticks for five days.
    fn tick(&self, at: Instant) -> u32 {
        let passed = at.saturating_duration_since(self.start);
        u32::try_from(passed.as_nanos() / TICK.as_nanos()).unwrap_or(u32::MAX)
    }

    fn add(&self, at: Instant, wake: oneshot::Sender<()>) {
        let tick = self.tick(at).saturating_add(1);
        let mut state = self.lock();
        state.waiting.entry(tick).or_default().push(wake);
        let earlier = state.planned.is_none_or(|planned| tick < planned);
        drop(state);
        if earlier {
            self.changed.notify_one();
        }
    }

    fn ring(&self) {
        let mut state = self.lock();
        while !state.over {
            let now = Instant::now();
            let tick = self.tick(now);
            let later = state.waiting.split_off(&tick.saturating_add(1));
            let due = std::mem::replace(&mut state.waiting, later);
            if !due.is_empty() {
                drop(state);
                wake(due.into_values().flatten());
                state = self.lock();
                continue;
            }
            let next = state.waiting.first_key_value().map(|(tick, _)| *tick);
            state.planned = next;
            state = match next {
                Some(next) => {
                    let wait = (self.start + TICK * next).saturating_duration_since(now);
                    let woken = self.changed.wait_timeout(state, wait);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            // While it is awake it looks by itself.
            state.planned = Some(tick);
        }
    }
}

fn wake(sleepers: impl Iterator<Item = oneshot::Sender<()>>) {
    for sleeper in sleepers {
        // Whoever slept may have been dropped.
        let _ = sleeper.send(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_wakes_early_and_everybody_wakes() {
        let alarm = Alarm::start();
        let nap = async |time: Duration| {
            let start = Instant::now();
            alarm.sleep(time).await;
            start.elapsed() >= time
        };
        let sleeps = (1..=50_u64).rev().map(|number| nap(Duration::from_micros(number * 300)));
        assert!(futures::future::join_all(sleeps).await.into_iter().all(|in_time| in_time));
    }
}
