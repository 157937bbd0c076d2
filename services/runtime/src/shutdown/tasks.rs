//! The named tasks of a program.
//!
//! A second, small task waits for each of them, so that a panic is seen when it happens and not when somebody joins.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::{AbortHandle, JoinError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span};

use super::{BoxError, Error};
use crate::lock;
use crate::telemetry::{TASK_TARGET, chain};

/// What a task may return: nothing, or a result whose error names what went wrong.
pub trait Outcome: Send + 'static {
    /// The outcome as a result.
    fn into_result(self) -> Result<(), BoxError>;
}

impl Outcome for () {
    fn into_result(self) -> Result<(), BoxError> {
        Ok(())
    }
}

impl<E: Into<BoxError> + Send + 'static> Outcome for Result<(), E> {
    fn into_result(self) -> Result<(), BoxError> {
        self.map_err(Into::into)
    }
}

/// The tasks of a program and the token that stops them. Clones share both.
#[derive(Debug, Clone)]
pub struct Tasks(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    tracker: TaskTracker,
    stop: CancellationToken,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    started: u64,
    running: BTreeMap<u64, (String, AbortHandle)>,
    /// The first failure: what comes after it is most often its consequence.
    failure: Option<Error>,
}

/// Whether a task may return while the program goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Program,
    Once,
}

impl Tasks {
    /// Tasks that are asked to stop by `stop`, and that cancel it when one of them fails.
    pub fn new(stop: CancellationToken) -> Self {
        Self(Arc::new(Inner { tracker: TaskTracker::new(), stop, state: Mutex::default() }))
    }

    /// The token that every task must heed.
    pub fn stop(&self) -> CancellationToken {
        self.0.stop.clone()
    }

    /// Starts a task that runs as long as the program: if it returns before the token is cancelled, the program stops.
    pub fn spawn<F>(&self, name: impl Into<String>, future: F)
    where
        F: Future<Output: Outcome> + Send + 'static,
    {
        self.start(name.into(), Life::Program, future);
    }

    /// Starts a task that may return when its work is done; an error or a panic still stops the program.
    pub fn spawn_once<F>(&self, name: impl Into<String>, future: F)
    where
        F: Future<Output: Outcome> + Send + 'static,
    {
        self.start(name.into(), Life::Once, future);
    }

    /// Names of the tasks that run now.
    pub fn running(&self) -> Vec<String> {
        lock(&self.0.state).running.values().map(|(name, _)| name.clone()).collect()
    }

    /// Runs until the token is cancelled, by a signal or by a failed task, and then drains.
    pub async fn run(&self, limit: Duration) -> Result<(), Error> {
        self.0.stop.cancelled().await;
        self.drain(limit).await
    }

    /// Asks every task to stop and waits for them; those still there after `limit` are cut off. Answers the first
    /// failure of any task.
    pub async fn drain(&self, limit: Duration) -> Result<(), Error> {
        self.0.stop.cancel();
        self.0.tracker.close();
        let drained = tokio::time::timeout(limit, self.0.tracker.wait()).await;
        let mut state = lock(&self.0.state);
        let failure = state.failure.take();
        if drained.is_ok() {
            return failure.map_or(Ok(()), Err);
        }
        let names = state.running.values().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        for (_, task) in state.running.values() {
            task.abort();
        }
        let late = Error::Drain { names, limit };
        match failure {
            None => Err(late),
            Some(first) => {
                tracing::warn!("{late}");
                Err(first)
            }
        }
    }

    fn start<F>(&self, name: String, life: Life, future: F)
    where
        F: Future<Output: Outcome> + Send + 'static,
    {
        let span = tracing::info_span!(target: TASK_TARGET, parent: None, "task", task.name = %name);
        // The lock is held until the task is on the list: its watcher must not strike it off before.
        let mut state = lock(&self.0.state);
        state.started += 1;
        let number = state.started;
        let work = async move { future.await.into_result() };
        let handle = self.0.tracker.spawn(work.instrument(span.clone()));
        state.running.insert(number, (name.clone(), handle.abort_handle()));
        drop(state);
        let tasks = self.clone();
        let watch = async move {
            let end = handle.await;
            tasks.ended(number, &name, life, end);
        };
        self.0.tracker.spawn(watch.instrument(span));
    }

    fn ended(&self, number: u64, name: &str, life: Life, end: Result<Result<(), BoxError>, JoinError>) {
        let stopping = self.0.stop.is_cancelled();
        let failure = failure(name, life, stopping, end);
        let mut state = lock(&self.0.state);
        state.running.remove(&number);
        let Some(failure) = failure else {
            tracing::debug!("task ended");
            return;
        };
        tracing::error!(parent: &Span::current(), "{}", chain(&failure));
        state.failure.get_or_insert(failure);
        drop(state);
        self.0.stop.cancel();
    }
}

/// What the end of a task means for the program.
fn failure(
    name: &str,
    life: Life,
    stopping: bool,
    end: Result<Result<(), BoxError>, JoinError>,
) -> Option<Error> {
    let name = name.to_owned();
    match end {
        Ok(Ok(())) if stopping || life == Life::Once => None,
        Ok(Ok(())) => Some(Error::TaskEnded { name }),
        Ok(Err(source)) => Some(Error::TaskFailed { name, source }),
        // Nobody but `drain` aborts a task, and that is reported there.
        Err(error) if error.is_cancelled() => None,
        Err(error) => Some(Error::TaskPanicked { name, message: panic_message(error) }),
    }
}

fn panic_message(error: JoinError) -> String {
    let Ok(payload) = error.try_into_panic() else { return "no message".to_owned() };
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    const LONG: Duration = Duration::from_secs(30);

    fn tasks() -> Tasks {
        Tasks::new(CancellationToken::new())
    }

    async fn none_running(tasks: &Tasks) {
        while !tasks.running().is_empty() {
            tokio::task::yield_now().await;
        }
    }

    async fn run(tasks: &Tasks) -> Result<(), Error> {
        tokio::time::timeout(LONG, tasks.run(LONG)).await.expect("the program ends by itself")
    }

    #[tokio::test]
    async fn a_task_that_panics_stops_the_program_and_is_named() {
        let tasks = tasks();
        let stop = tasks.stop();
        tasks.spawn("steady", async move { stop.cancelled().await });
        tasks.spawn("relay eu-west-1", async {
            let row = Some(7).filter(|row| row % 2 == 0);
            assert!(row.is_some(), "row {} is odd", 7);
        });
        let error = run(&tasks).await.unwrap_err();
        assert_eq!(error.to_string(), "task \"relay eu-west-1\" panicked: row 7 is odd");
        assert_eq!(tasks.running(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_task_that_returns_early_stops_the_program() {
        let tasks = tasks();
        tasks.spawn("sink", async {});
        assert!(matches!(run(&tasks).await, Err(Error::TaskEnded { name }) if name == "sink"));
    }

    #[tokio::test]
    async fn the_error_of_a_task_is_kept_as_the_source() {
        let tasks = tasks();
        tasks.spawn_once("migrate", async { Err::<(), _>(std::io::Error::other("no table")) });
        let error = run(&tasks).await.unwrap_err();
        assert_eq!(chain(&error), "task \"migrate\" failed: no table");
    }

    #[tokio::test]
    async fn the_first_failure_is_the_one_reported() {
        let tasks = tasks();
        let stop = tasks.stop();
        tasks.spawn("second", async move {
            stop.cancelled().await;
            Err::<(), _>("consequence")
        });
        tasks.spawn("first", async { Err::<(), _>("cause") });
        assert_eq!(chain(&run(&tasks).await.unwrap_err()), "task \"first\" failed: cause");
    }

    #[tokio::test]
    async fn a_task_for_once_may_end() {
        let tasks = tasks();
        tasks.spawn_once("warm-up", async {});
        tokio::time::timeout(LONG, none_running(&tasks)).await.unwrap();
        assert!(!tasks.stop().is_cancelled());
        tasks.drain(LONG).await.unwrap();
    }

    #[tokio::test]
    async fn draining_waits_for_what_is_under_way() {
        let tasks = tasks();
        let stop = tasks.stop();
        let (done, mut result) = tokio::sync::oneshot::channel();
        tasks.spawn("worker", async move {
            stop.cancelled().await;
            tokio::task::yield_now().await;
            done.send("written").ok();
        });
        tasks.stop().cancel();
        run(&tasks).await.unwrap();
        assert_eq!(result.try_recv(), Ok("written"));
    }

    #[tokio::test]
    async fn a_task_that_does_not_heed_the_token_is_cut_off_and_named() {
        let tasks = tasks();
        let (held, dropped) = tokio::sync::oneshot::channel::<()>();
        tasks.spawn("stubborn", async move {
            pending::<()>().await;
            drop(held);
        });
        let error = tasks.drain(Duration::from_millis(50)).await.unwrap_err();
        assert!(matches!(&error, Error::Drain { names, .. } if names == &["stubborn"]), "{error}");
        tokio::time::timeout(LONG, dropped)
            .await
            .unwrap()
            .expect_err("the task was dropped with its half of the channel");
    }

    #[test]
    fn ends_mean_different_things_while_stopping() {
        let early = |life, stopping| failure("t", life, stopping, Ok(Ok(()))).is_some();
        assert!(early(Life::Program, false));
        assert!(!early(Life::Program, true));
        assert!(!early(Life::Once, false));
        let failed = |stopping| failure("t", Life::Once, stopping, Ok(Err("x".into()))).is_some();
        assert!(failed(false) && failed(true));
    }
}
