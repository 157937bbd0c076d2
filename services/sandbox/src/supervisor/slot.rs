//! A program in the supervisor's hands: its definition, its process, what has been seen of it.
//!
//! Keeps values; the loop in `run` fills them and `machine` decides on them.

use std::process::Child;
use std::time::Duration;

use super::machine::{Phase, State, Timing, Wish};
use super::status::ProgramStatus;
use crate::clock;
use crate::process::Process;
use crate::stack::{Check, Program};

/// Pause between two looks at one program's readiness.
const BETWEEN_LOOKS: Duration = Duration::from_millis(150);
/// A program without a visible sign of readiness counts as ready after this long.
const RUNNING_IS_READY: Duration = Duration::from_millis(500);

/// One supervised program.
pub(super) struct Slot {
    pub(super) program: Program,
    /// The definition that takes over once the present process has ended.
    pub(super) next: Option<Program>,
    pub(super) state: State,
    pub(super) process: Option<Process>,
    pub(super) child: Option<Child>,
    pub(super) seen_ready: bool,
    pub(super) looking: bool,
    pub(super) looked_at: Duration,
    pub(super) started_at: Option<Duration>,
    pub(super) ready_after: Option<Duration>,
    pub(super) last_exit: Option<String>,
    pub(super) phase_since: u64,
    pub(super) leaves: bool,
}

impl Slot {
    pub(super) fn new(program: Program, state: State) -> Self {
        Self {
            program,
            next: None,
            state,
            process: None,
            child: None,
            seen_ready: false,
            looking: false,
            looked_at: Duration::ZERO,
            started_at: None,
            ready_after: None,
            last_exit: None,
            phase_since: clock::unix_now(),
            leaves: false,
        }
    }

    /// The definition that the next process will be started from.
    pub(super) fn definition(&self) -> &Program {
        self.next.as_ref().unwrap_or(&self.program)
    }

    pub(super) fn redefine(&mut self, program: Program) {
        self.leaves = false;
        if self.program == program {
            self.next = None;
            if self.state.wish != Wish::Restart {
                self.state.wish = Wish::Run;
            }
        } else if self.definition() != &program || self.state.wish != Wish::Restart {
            self.next = Some(program);
            self.state.wish = Wish::Restart;
        }
    }

    /// Whether it is time to look again whether it is ready.
    pub(super) fn is_look_due(&self, now: Duration) -> bool {
        let wanted = self.state.phase == Phase::Starting && !self.looking && !self.seen_ready;
        let rested = now.saturating_sub(self.looked_at) >= BETWEEN_LOOKS;
        let settled =
            self.program.ready != Check::Running || now.saturating_sub(self.state.since) >= RUNNING_IS_READY;
        wanted && rested && settled
    }

    pub(super) fn timing(&self) -> Timing {
        let Program { ready_within, stop, .. } = &self.program;
        Timing { ready_within: Duration::from_secs(*ready_within), grace: Duration::from_secs(stop.grace) }
    }

    pub(super) fn status(&self) -> ProgramStatus {
        ProgramStatus {
            name: self.program.name.clone(),
            phase: self.state.phase,
            pid: self.process.map(|process| process.pid),
            restarts: self.state.restarts,
            failures: self.state.failures,
            since: self.phase_since,
            ready_after: self.ready_after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
            last_exit: self.last_exit.clone(),
        }
    }
}
