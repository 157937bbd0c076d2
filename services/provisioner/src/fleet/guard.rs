//! The one way to a cluster: every call to it goes through here, so that none goes out while the breaker is open, and no
//! more at once than the cluster is to take from this process.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::breaker::{Answer, Breaker, Phase, Refusal, Ticket};
use crate::classify::{Trouble, code};

/// What stands before a cluster.
#[derive(Debug)]
pub struct Guard {
    breaker: Mutex<Breaker>,
    permits: Arc<Semaphore>,
    bound: u32,
    in_flight: AtomicU32,
    phase: watch::Sender<Phase>,
}

/// A call that may be made. Dropped without an answer, it counts as given up.
#[derive(Debug)]
pub struct Call<'a> {
    guard: &'a Guard,
    ticket: Option<Ticket>,
    _permit: OwnedSemaphorePermit,
}

impl Guard {
    /// A guard that lets so many calls through at once.
    pub fn new(bound: usize) -> Self {
        let bound = u32::try_from(bound).unwrap_or(u32::MAX).max(1);
        Self {
            breaker: Mutex::default(),
            permits: Arc::new(Semaphore::new(bound as usize)),
            bound,
            in_flight: AtomicU32::new(0),
            phase: watch::Sender::new(Phase::default()),
        }
    }

    /// Asks to make a call; waits for a place as long as `limit`.
    pub async fn enter(&self, limit: Duration) -> Result<Call<'_>, Refusal> {
        if self.room() == 0 {
            // Without waiting for a place; the breaker says why.
            let mut breaker = self.breaker();
            let ticket = breaker.enter(Instant::now())?;
            breaker.abandon(ticket);
        }
        let place = Arc::clone(&self.permits).acquire_owned();
        let Ok(Ok(permit)) = runtime::deadline(limit, "a place among the calls", place).await else {
            let message = format!("all {} calls to the cluster were taken for {limit:?}", self.bound);
            return Err(Refusal { trouble: Trouble::of_cluster(code::FULL, message), after: None });
        };
        let ticket = self.change(|breaker| breaker.enter(Instant::now()))?;
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Ok(Call { guard: self, ticket: Some(ticket), _permit: permit })
    }

    /// How many calls would get through now.
    pub fn room(&self) -> u32 {
        self.breaker().room(self.bound, Instant::now())
    }

    /// How many calls may be under way at once.
    pub const fn bound(&self) -> u32 {
        self.bound
    }

    /// How many calls are under way.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// In which state the breaker is.
    pub fn phase(&self) -> Phase {
        self.breaker().phase()
    }

    /// To be told when the state of the breaker changes.
    pub fn watch(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// The server asks for patience.
    pub fn rest(&self, patience: Duration) {
        self.change(|breaker| breaker.rest(patience, Instant::now(), runtime::backoff::random_share()));
    }

    /// A probe ended that began then.
    pub fn probed(&self, answer: &Answer, began: Instant) {
        let share = runtime::backoff::random_share();
        self.change(|breaker| breaker.probed(answer, began, Instant::now(), share));
    }

    /// After which time a probe is due that could close the breaker; `None` while none is needed.
    pub fn probe_due(&self) -> Option<Duration> {
        self.breaker().probe_due(Instant::now())
    }

    /// There are new credentials: whatever was wrong, it is worth a look at once.
    pub fn look_again(&self) {
        self.change(|breaker| breaker.look_again(Instant::now()));
        // The prober waits for a change of state, and this is none.
        self.phase.send_modify(|_| ());
    }

    fn change<T>(&self, change: impl FnOnce(&mut Breaker) -> T) -> T {
        let mut breaker = self.breaker();
        let result = change(&mut breaker);
        let phase = breaker.phase();
        // Told under the lock, so that what is told last is what is.
        self.phase.send_if_modified(|told| std::mem::replace(told, phase) != phase);
        result
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Call<'_> {
    /// What came of it.
    pub fn ended(mut self, answer: &Answer) {
        if let Some(ticket) = self.ticket.take() {
            let share = runtime::backoff::random_share();
            self.guard.change(|breaker| breaker.leave(ticket, answer, Instant::now(), share));
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.guard.in_flight.fetch_sub(1, Ordering::Relaxed);
        if let Some(ticket) = self.ticket.take() {
            self.guard.change(|breaker| breaker.abandon(ticket));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn no_more_than_the_bound_are_under_way() {
        let guard = Guard::new(2);
        let one = guard.enter(SOON).await.unwrap();
        let two = guard.enter(SOON).await.unwrap();
        assert_eq!(guard.in_flight(), 2);
        assert_eq!(guard.enter(SOON).await.unwrap_err().trouble.code, code::FULL);
        one.ended(&Answer::Well);
        let three = guard.enter(SOON).await.unwrap();
        drop((two, three));
        assert_eq!(guard.in_flight(), 0);
    }

    #[tokio::test]
    async fn an_open_breaker_refuses_without_waiting_and_says_so() {
        let guard = Guard::new(1);
        let mut phases = guard.watch();
        let first = guard.enter(SOON).await.unwrap();
        guard.rest(Duration::from_secs(30));
        assert!(phases.has_changed().unwrap());
        assert_eq!(*phases.borrow_and_update(), Phase::Resting);
        let refusal = guard.enter(Duration::from_hours(1)).await.unwrap_err();
        assert_eq!(refusal.trouble.code, code::THROTTLED);
        assert!(refusal.after.unwrap() > Duration::from_secs(20));
        first.ended(&Answer::Well);
        assert_eq!((guard.phase(), guard.room()), (Phase::Resting, 0));
    }
}
