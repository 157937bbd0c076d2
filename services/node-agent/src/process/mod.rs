//! Processes that outlive the agent. Each runs below a small shell of its own session, which writes down its pid and
//! start time and, at the end, its exit code; so that an agent that comes back knows what runs and how it ended.
//!
//! *Invariant:* a pid is only ever signalled together with its start time, so never another process.

mod launch;
mod proc;
mod script;

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

pub use launch::{Error, Interior, Launch, MountKind, MountPoint, command, spawn};
pub use proc::{ProcessId, with_variable};

/// Marks every process of a stack in its environment.
pub const STACK_VARIABLE: &str = "SLIPWAY_POD_STACK";
/// The pid and start time of the process, in its run directory.
const PID: &str = "pid";
/// Its exit code, once it has one.
const EXIT: &str = "exit";

/// What is known of the process of a run directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Never started, or not far enough to have a pid.
    Absent,
    /// Runs.
    Running(ProcessId),
    /// Ended; without a code if it was killed together with its shell.
    Ended {
        /// Exit code as a shell gives it.
        code: Option<i32>,
    },
}

/// Looks at and signals processes by run directory.
#[derive(Clone, Debug, Default)]
pub struct Processes;

impl Processes {
    /// The state of the process of this directory.
    pub fn state(&self, run_dir: &Path) -> State {
        let Some(process) = read_pid(run_dir) else { return State::Absent };
        if process.is_alive() {
            return State::Running(process);
        }
        let code = fs::read_to_string(run_dir.join(EXIT)).ok().and_then(|text| text.trim().parse().ok());
        State::Ended { code }
    }

    /// Whether the process ended but its shell has yet to write down how.
    pub fn is_settling(&self, run_dir: &Path) -> bool {
        !run_dir.join(EXIT).exists() && read_shell(run_dir).is_some_and(|shell| shell.is_alive())
    }

    /// Asks the process to end.
    pub fn terminate(&self, run_dir: &Path) {
        send(run_dir, Signal::SIGTERM);
    }

    /// Kills the process; its shell notes the end.
    pub fn kill(&self, run_dir: &Path) {
        send(run_dir, Signal::SIGKILL);
    }

    /// Kills process and shell at once, as a machine that dies would.
    pub fn kill_session(&self, run_dir: &Path) {
        for process in [read_shell(run_dir), read_pid(run_dir)].into_iter().flatten() {
            let Some(session) = process.session() else { continue };
            if process.is_alive() && session != proc::own_session() {
                // The shell leads a session and group of its own, so this reaches all that it started.
                let _ = killpg(Pid::from_raw(session), Signal::SIGKILL);
            }
        }
    }

    /// Forgets the last run, before the next.
    pub fn forget(&self, run_dir: &Path) {
        for file in [PID, EXIT, launch::SHELL] {
            let _ = fs::remove_file(run_dir.join(file));
        }
    }
}

fn send(run_dir: &Path, signal: Signal) {
    if let Some(process) = read_pid(run_dir).filter(ProcessId::is_alive) {
        let _ = kill(Pid::from_raw(process.pid), signal);
    }
}

fn read_pid(run_dir: &Path) -> Option<ProcessId> {
    ProcessId::parse(&fs::read_to_string(run_dir.join(PID)).ok()?)
}

fn read_shell(run_dir: &Path) -> Option<ProcessId> {
    ProcessId::parse(&fs::read_to_string(run_dir.join(launch::SHELL)).ok()?)
}
