//! What the supervisor says about the stack: the same words on its socket and in `status.json`.

use serde::{Deserialize, Serialize};

use super::machine::Phase;
use crate::process::Process;

/// The whole stack at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Id of the stack.
    pub stack: String,
    /// The supervisor itself.
    pub supervisor: Process,
    /// Every program, in the order of the definition.
    pub programs: Vec<ProgramStatus>,
}

/// One program at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramStatus {
    /// Its name.
    pub name: String,
    /// Where it is in its life.
    pub phase: Phase,
    /// Its process, while one runs.
    pub pid: Option<i32>,
    /// Times it was started again since the supervisor began.
    pub restarts: u32,
    /// Deaths and failed starts in a row.
    pub failures: u32,
    /// When it came into its phase, in seconds since 1970.
    pub since: u64,
    /// Milliseconds from start to ready; absent when it was adopted or never ready.
    pub ready_after: Option<u64>,
    /// How it ended the last time.
    pub last_exit: Option<String>,
}

impl Status {
    /// The program of this name.
    pub fn program(&self, name: &str) -> Option<&ProgramStatus> {
        self.programs.iter().find(|program| program.name == name)
    }

    /// Whether every program of the list is ready; a program that is not there is not.
    pub fn all_ready<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> bool {
        names.into_iter().all(|name| self.program(name).is_some_and(|program| program.phase == Phase::Ready))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn program(name: &str, phase: Phase) -> ProgramStatus {
        ProgramStatus {
            name: name.to_owned(),
            phase,
            pid: None,
            restarts: 0,
            failures: 0,
            since: 0,
            ready_after: None,
            last_exit: None,
        }
    }

    #[test]
    fn ready_means_every_one_named() {
        let programs = vec![program("a", Phase::Ready), program("b", Phase::Starting)];
        let status = Status { stack: "s".to_owned(), supervisor: Process { pid: 1, start: 1 }, programs };
        assert!(status.all_ready(["a"]));
        assert!(!status.all_ready(["a", "b"]));
        assert!(!status.all_ready(["a", "c"]));
        assert!(status.all_ready([]));
    }
}
