//! Sleeping to a tenth of a millisecond. The runtime's own timer counts whole milliseconds, which is a tenth of the
//! shortest work that benches pretend to do.
//!
//! One timer of the kernel wakes all, within the runtime: a thread of its own would cost a change of threads for each sleep, which
//! would count as the consumer's. Whoever goes to sleep sets it only for an earlier time than it waits for, so that many sleepers
//! cost little.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Who wakes those that sleep; it ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Alarm(Arc<Bell>);

/// Ends the waking when dropped.
#[derive(Debug)]
struct Bell {
    shared: Arc<Shared>,
    ringing: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    timer: TimerFd,
    /// The same timer, as the runtime watches it.
    rings: Receiver,
}

#[derive(Debug, Default)]
struct State {
    waiting: BTreeMap<(Instant, u64), oneshot::Sender<()>>,
    calls: u64,
    /// What the timer is set for.
    planned: Option<Instant>,
}

impl Alarm {
    /// Starts the waking, in the runtime of the caller.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).context("making a timer")?;
        // It is no pipe, but it is read as one is.
        let rings = Receiver::from_owned_fd_unchecked(timer.as_fd().try_clone_to_owned()?)?;
        let shared = Arc::new(Shared { state: Mutex::default(), timer, rings });
        let ringing = Arc::clone(&shared);
        let ringing = tokio::spawn(async move { ringing.ring().await });
        Ok(Self(Arc::new(Bell { shared, ringing })))
    }

    /// Sleeps this long.
    pub(crate) async fn sleep(&self, time: Duration) {
        let (wake, woken) = oneshot::channel();
        self.0.shared.add(Instant::now() + time, wake);
        // An error means that nobody wakes any more, and with it the bench has ended.
        let _ = woken.await;
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.ringing.abort();
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
        if state.planned.is_none_or(|planned| at < planned) {
            self.plan(&mut state, at);
        }
    }

    /// Sets the timer; where the kernel refuses, those who sleep are never woken, and the bench ends by its deadline.
    fn plan(&self, state: &mut State, at: Instant) {
        // A timer that is set to nothing would never ring.
        let wait = at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let set = self.timer.set(Expiration::OneShot(wait.into()), TimerSetTimeFlags::empty());
        state.planned = set.is_ok().then_some(at);
    }

    async fn ring(&self) {
        while self.rings.readable().await.is_ok() {
            // How often it rang: once, or not at all where it was set again meanwhile.
            let _ = self.rings.try_read(&mut [0; 8]);
            for sleeper in self.due().into_values() {
                // Whoever slept may have been dropped.
                let _ = sleeper.send(());
            }
        }
    }

    /// Those that have slept enough; the timer is set for the next one.
    fn due(&self) -> BTreeMap<(Instant, u64), oneshot::Sender<()>> {
        let mut state = self.lock();
        let later = state.waiting.split_off(&(Instant::now(), u64::MAX));
        let due = std::mem::replace(&mut state.waiting, later);
        state.planned = None;
        let next = state.waiting.first_key_value().map(|((at, _), _)| *at);
        if let Some(next) = next {
            self.plan(&mut state, next);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_wakes_early_and_everybody_wakes() {
        let alarm = Alarm::start().unwrap();
        let nap = async |time: Duration| {
            let start = Instant::now();
            alarm.sleep(time).await;
            start.elapsed() >= time
        };
        let sleeps = (1..=50_u64).rev().map(|number| nap(Duration::from_micros(number * 300)));
        assert!(futures::future::join_all(sleeps).await.into_iter().all(|in_time| in_time));
    }
}
