//! Sleeping to a tenth of a millisecond. The runtime's own timer counts whole milliseconds, which is a tenth of the
//! shortest work that benches pretend to do.
//!
//! One thread wakes all: whoever goes to sleep disturbs it only by an earlier time than it waits for, so that many sleepers
//! cost little.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// The thread that wakes those who sleep; it ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Alarm(Arc<Bell>);

/// Ends the thread when dropped.
#[derive(Debug)]
struct Bell(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: BTreeMap<(Instant, u64), oneshot::Sender<()>>,
    calls: u64,
    /// What the thread waits for.
    planned: Option<Instant>,
    over: bool,
}

impl Alarm {
    /// Starts the thread.
    pub(crate) fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let ringing = Arc::clone(&shared);
        std::thread::spawn(move || ringing.ring());
        Self(Arc::new(Bell(shared)))
    }

    /// Sleeps this long.
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

    fn add(&self, at: Instant, wake: oneshot::Sender<()>) {
        let mut state = self.lock();
        state.calls += 1;
        let key = (at, state.calls);
        state.waiting.insert(key, wake);
        let earlier = state.planned.is_none_or(|planned| at < planned);
        drop(state);
        if earlier {
            self.changed.notify_one();
        }
    }

    fn ring(&self) {
        let mut state = self.lock();
        while !state.over {
            let now = Instant::now();
            let later = state.waiting.split_off(&(now, u64::MAX));
            let due = std::mem::replace(&mut state.waiting, later);
            if !due.is_empty() {
                drop(state);
                wake(due.into_values());
                state = self.lock();
                continue;
            }
            let next = state.waiting.first_key_value().map(|((at, _), _)| *at);
            state.planned = next;
            state = match next {
                Some(at) => {
                    let wait = self.changed.wait_timeout(state, at.saturating_duration_since(now));
                    wait.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            // While it is awake it looks by itself.
            state.planned = Some(now);
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
