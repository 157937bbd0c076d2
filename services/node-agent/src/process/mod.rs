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
    /// Its shell has yet to write down which process it is, or how that ended.
    Settling,
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
        // In this order: a shell that is gone has written what it had to write.
        let shell_is_there = read_shell(run_dir).is_some_and(|shell| shell.is_alive());
        let Some(process) = read_pid(run_dir) else {
            return if shell_is_there { State::Settling } else { State::Absent };
        };
        if process.is_alive() {
            return State::Running(process);
        }
        let code = fs::read_to_string(run_dir.join(EXIT)).ok().and_then(|text| text.trim().parse().ok());
        if code.is_none() && shell_is_there { State::Settling } else { State::Ended { code } }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_process_ended_is_known_when_its_shell_has_said_it_or_is_gone() {
        let run_dir = std::env::temp_dir().join(format!("node-agent-state-{}", std::process::id()));
        fs::create_dir_all(&run_dir).unwrap();
        let own = ProcessId::current(i32::try_from(std::process::id()).unwrap()).unwrap();
        let write = |file: &str, process: ProcessId| {
            fs::write(run_dir.join(file), format!("{} {}\n", process.pid, process.start)).unwrap();
        };
        let gone = ProcessId { start: own.start - 1, ..own };
        assert_eq!(Processes.state(&run_dir), State::Absent);
        write(launch::SHELL, own);
        assert_eq!(Processes.state(&run_dir), State::Settling, "it may write a pid at any moment");
        write(launch::SHELL, gone);
        assert_eq!(Processes.state(&run_dir), State::Absent);
        write(PID, own);
        assert_eq!(Processes.state(&run_dir), State::Running(own));
        write(PID, gone);
        write(launch::SHELL, own);
        assert_eq!(Processes.state(&run_dir), State::Settling);
        fs::write(run_dir.join(EXIT), "3\n").unwrap();
        assert_eq!(Processes.state(&run_dir), State::Ended { code: Some(3) });
        write(launch::SHELL, gone);
        assert_eq!(Processes.state(&run_dir), State::Ended { code: Some(3) });
        fs::remove_file(run_dir.join(EXIT)).unwrap();
        assert_eq!(Processes.state(&run_dir), State::Ended { code: None });
        fs::remove_dir_all(run_dir).unwrap();
    }
}
