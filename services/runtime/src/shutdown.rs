//! How a program ends: on a signal, or because one of its tasks did, and in either case in bounded time.
//!
//! *Invariant:* no task ends unnoticed. A task that returns or panics while the program should run stops the program,
//! and the program's error names it. Signals and tasks share one token; nothing here knows what the tasks do.

mod tasks;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub use tasks::{Outcome, Tasks};

use std::time::Duration;

/// Something of a task, boxed because tasks fail in many ways.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Exit code of a process that a second interrupt ends at once, as shells expect it.
const INTERRUPTED: i32 = 130;

/// Why a program did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refuses a signal handler.
    #[error("listen for termination signals")]
    Listen(#[source] std::io::Error),
    /// A task that runs as long as the program returned early.
    #[error("task {name:?} ended although the program should go on")]
    TaskEnded {
        /// Name of the task.
        name: String,
    },
    /// A task returned an error.
    #[error("task {name:?} failed")]
    TaskFailed {
        /// Name of the task.
        name: String,
        /// What it returned.
        #[source]
        source: BoxError,
    },
    /// A task panicked.
    #[error("task {name:?} panicked: {message}")]
    TaskPanicked {
        /// Name of the task.
        name: String,
        /// Text of the panic.
        message: String,
    },
    /// Tasks that did not heed the token in time and were cut off.
    #[error("cut off after {limit:?} of draining: {}", names.join(", "))]
    Drain {
        /// Names of the tasks.
        names: Vec<String>,
        /// How long they were given.
        limit: Duration,
    },
}

/// A token that is cancelled by the first SIGTERM or SIGINT. A second one ends the process at once, for a person who
/// does not want to wait for the draining.
pub fn on_signal() -> Result<CancellationToken, Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Listen)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Listen)?;
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        for asked_before in [false, true] {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            if asked_before {
                tracing::warn!(signal = name, "asked to stop again: leaving without draining");
                std::process::exit(INTERRUPTED);
            }
            tracing::info!(signal = name, "asked to stop");
            token.cancel();
        }
    });
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_signal_cancels_the_token() {
        let stop = on_signal().unwrap();
        assert!(!stop.is_cancelled());
        nix::sys::signal::raise(nix::sys::signal::SIGTERM).unwrap();
        tokio::time::timeout(Duration::from_secs(30), stop.cancelled()).await.unwrap();
    }
}
