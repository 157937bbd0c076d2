//! What an earlier agent left behind: swept at the start, against EC2's list, and removed altogether by `cleanup`.
//!
//! *Invariant:* volumes' directories are data and are never touched here.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cloud::{Instance, InstanceState};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::api::chain;
use crate::context::Context;
use crate::network::{self, NodeNetwork};
use crate::pod::record;
use crate::process::{ProcessId, Processes, STACK_VARIABLE, with_variable};
use crate::settings::Mode;

/// Longest wait for processes that were asked to end.
const GRACE: Duration = Duration::from_secs(10);
/// Longest wait for killed processes to be gone.
const DEADLINE: Duration = Duration::from_secs(15);

/// A clean-up that did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Processes would not die.
    #[error("{count} processes of stack {stack} are still there")]
    Alive {
        /// The stack.
        stack: String,
        /// How many.
        count: usize,
    },
    /// Namespaces or links.
    #[error("cannot remove the networks")]
    Network(#[source] network::Error),
    /// Directories.
    #[error("cannot remove {path}")]
    Remove {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Processes.
    pub processes: usize,
    /// Namespaces and links.
    pub networks: usize,
}

/// Kills what runs on machines that no longer run, and removes their networks.
pub async fn sweep(context: &Context, instances: &[Instance]) {
    let settings = &context.settings;
    if settings.mode == Mode::None {
        return;
    }
    let running = instances.iter().filter(|instance| instance.state == InstanceState::Running);
    let running: BTreeSet<&str> = running.map(|instance| instance.id.as_str()).collect();
    for (dir, record) in record::scan(&settings.data_dir) {
        // Without a record nothing was started yet, and a pod that needs the directory makes it anew.
        let ours = record.as_ref().is_none_or(|record| record.cluster == settings.cluster);
        let lives = record.is_some_and(|record| running.contains(record.instance.as_str()));
        if !ours || lives {
            continue;
        }
        tracing::info!(path = %dir.display(), "removing what a machine left behind");
        if let Err(error) = record::discard(&context.processes, &dir) {
            tracing::warn!(%error, path = %dir.display(), "cannot remove the directory of a pod");
        }
    }
    for network in NodeNetwork::noted(settings).into_iter().filter(|id| !running.contains(id.as_str())) {
        if let Err(error) = NodeNetwork::leftover(settings, &network).remove().await {
            tracing::warn!(instance.id = network, "{}", chain(&error));
        }
    }
}

/// Removes every process, network and pod directory of a stack. Says how many; nothing there is no error.
pub async fn cleanup(stack: &str, data_dir: &Path) -> Result<Removed, Error> {
    let mut removed = Removed { processes: kill_all(stack, data_dir).await?, networks: 0 };
    if nix::unistd::geteuid().is_root() {
        removed.networks = network::remove_stack(stack).await.map_err(Error::Network)?;
    }
    let networks = network::notes_dir(data_dir);
    match std::fs::remove_dir_all(&networks) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(Error::Remove { path: networks, source });
        }
        _ => {}
    }
    for (dir, _) in record::scan(data_dir) {
        match record::discard(&Processes, &dir) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(Error::Remove { path: dir, source });
            }
            _ => {}
        }
    }
    Ok(removed)
}

/// Asks first, so that databases close their files, then kills.
async fn kill_all(stack: &str, data_dir: &Path) -> Result<usize, Error> {
    let count = alive(stack).len();
    signal_all(stack, Signal::SIGTERM);
    if wait_for_none(stack, GRACE).await {
        return Ok(count);
    }
    for (dir, _) in record::scan(data_dir) {
        Processes.kill_session(&dir);
    }
    signal_all(stack, Signal::SIGKILL);
    if wait_for_none(stack, DEADLINE).await {
        return Ok(count);
    }
    Err(Error::Alive { stack: stack.to_owned(), count: alive(stack).len() })
}

fn alive(stack: &str) -> Vec<ProcessId> {
    let mut alive = with_variable(STACK_VARIABLE, stack);
    alive.retain(ProcessId::is_alive);
    alive
}

fn signal_all(stack: &str, signal: Signal) {
    for process in alive(stack) {
        let _ = kill(Pid::from_raw(process.pid), signal);
    }
}

async fn wait_for_none(stack: &str, limit: Duration) -> bool {
    let deadline = tokio::time::Instant::now() + limit;
    while !alive(stack).is_empty() {
        if tokio::time::Instant::now() > deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    true
}
