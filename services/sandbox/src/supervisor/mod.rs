//! A detached process that keeps the programs of a stack running, and how to reach it.
//!
//! It starts programs in the order of their dependencies, sees that they become ready, starts again with a growing pause
//! what dies, and stops everything in reverse order. It knows nothing of what the programs are for. *Invariant:* programs
//! outlive a supervisor that dies; the next one adopts them by pid and start time.

mod control;
mod events;
mod machine;
mod probe;
mod record;
mod run;
mod slot;
mod spawn;
mod status;
#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

pub use control::{Request, ask};
pub use machine::Phase;
pub use record::{Record, read_all as records};
pub use status::{ProgramStatus, Status};

use crate::process::STACK_MARKER;
use crate::stack::Layout;

/// How long a new supervisor may take to answer.
const TO_ANSWER: Duration = Duration::from_mins(1);

/// Runs the supervisor in this process until it is asked to stop. The process leaves its terminal.
pub fn supervise(layout: Layout) -> anyhow::Result<()> {
    // Fails only for the leader of a process group, which already has what is wanted.
    let _ = nix::unistd::setsid();
    let Some(_lock) = try_lock(&layout.supervisor_lock())? else {
        bail!("another supervisor runs this stack")
    };
    run::run(layout)
}

/// Starts a supervisor unless one answers already. `command` is a program of this crate's users that calls [`supervise`].
pub fn ensure(layout: &Layout, stack: &str, command: &mut Command) -> anyhow::Result<()> {
    if ask(layout, &Request::Status).is_ok() {
        return Ok(());
    }
    let log = OpenOptions::new().create(true).append(true).open(layout.log("supervisor"))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .env(STACK_MARKER, stack)
        .spawn()
        .context("starting the supervisor")?;
    let deadline = Instant::now() + TO_ANSWER;
    while ask(layout, &Request::Status).is_err() {
        if let Some(status) = child.try_wait()? {
            bail!("the supervisor ended at once ({status}); see {}", layout.log("supervisor").display());
        }
        if Instant::now() > deadline {
            bail!("the supervisor does not answer; see {}", layout.log("supervisor").display());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Takes a lock file without waiting; `None` when another process has it. Free again when dropped.
pub fn try_lock(path: &Path) -> anyhow::Result<Option<File>> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let file = file.with_context(|| format!("opening {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("locking {}", path.display())),
    }
}
