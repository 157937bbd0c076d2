//! What to do about one pod's process. Pure: observation in, one action out; time is a parameter.
//!
//! *Invariant:* nothing is started unless the pod's disks are usable at this moment, and a process whose disk is gone
//! does not live on.

use std::time::Duration;

use jiff::Timestamp;

use super::intent::RestartPolicy;
use super::probe::later;
use super::record::End;
use crate::process::State;

/// What is wanted of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Its process should run.
    Run,
    /// The pod is being deleted, or is gone already.
    Stop,
}

/// The process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Process {
    /// Never started, as far as is known.
    Absent,
    /// Runs.
    Running,
    /// Its last run is over.
    Ended(End),
}

impl Process {
    /// By what the machine shows of it, and how its last run that is written down ended.
    pub fn of(state: State, last_end: Option<&End>) -> Self {
        match (state, last_end) {
            // A run whose end is not written down yet is not over: nothing may be started in its place.
            (State::Running(_) | State::Settling | State::Ended { .. }, _) => Self::Running,
            (State::Absent, Some(end)) => Self::Ended(end.clone()),
            (State::Absent, None) => Self::Absent,
        }
    }
}

/// The pod's disks and files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ground {
    /// All there.
    Ready,
    /// Not there yet.
    Waiting {
        /// As in a container's waiting state.
        reason: &'static str,
        /// What is waited for.
        message: String,
    },
    /// A disk was taken away.
    Lost {
        /// Which, and what EC2 says.
        message: String,
    },
}

/// Everything the decision needs.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Now.
    pub now: Timestamp,
    /// What is wanted.
    pub wish: Wish,
    /// The process.
    pub process: Process,
    /// Disks and files.
    pub ground: Ground,
    /// The probe that condemns the process.
    pub condemned: Option<&'static str>,
    /// When SIGKILL follows a SIGTERM already sent.
    pub kill_at: Option<Timestamp>,
    /// Ends in a row.
    pub failures: u32,
    /// What to do when the process ends.
    pub restart: RestartPolicy,
}

/// Pause before starting again.
#[derive(Clone, Copy, Debug)]
pub struct BackOff {
    /// After the second end in a row; the first is followed by a start at once.
    pub first: Duration,
    /// Longest.
    pub longest: Duration,
}

impl BackOff {
    /// Before the start that follows this many ends in a row.
    pub fn pause(&self, failures: u32) -> Duration {
        match failures {
            0 | 1 => Duration::ZERO,
            more => self.first.saturating_mul(2_u32.saturating_pow((more - 2).min(20))).min(self.longest),
        }
    }

    /// How many ends in a row there are after one more.
    pub fn count(&self, failures: u32, end: &End) -> u32 {
        let ran = Duration::try_from(end.finished_at.duration_since(end.started_at)).unwrap_or_default();
        if ran >= self.longest * 2 { 1 } else { failures.saturating_add(1) }
    }
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start the process.
    Start,
    /// Ask it to end; kill it when its grace is over.
    Terminate {
        /// Why.
        reason: &'static str,
    },
    /// Kill it.
    Kill {
        /// Why.
        reason: &'static str,
    },
    /// Nothing yet.
    Wait {
        /// As in a container's waiting state, if it does not run.
        reason: &'static str,
        /// More words.
        message: String,
        /// When something changes by time alone.
        until: Option<Timestamp>,
    },
    /// It runs; nothing to do.
    Watch,
    /// It ended for good.
    Rest,
    /// Nothing of it is left to run: tidy up and let the pod go.
    Finish,
}

/// Decides.
pub fn decide(observed: &Observed, back_off: BackOff) -> Action {
    match &observed.process {
        Process::Running => while_running(observed),
        Process::Absent | Process::Ended(_) if observed.wish == Wish::Stop => Action::Finish,
        Process::Absent => start_if_possible(observed),
        Process::Ended(end) => after_end(observed, end, back_off),
    }
}

fn while_running(observed: &Observed) -> Action {
    let overdue = observed.kill_at.is_some_and(|deadline| observed.now >= deadline);
    if overdue {
        return Action::Kill { reason: "Killed" };
    }
    if let Ground::Lost { .. } = &observed.ground {
        return Action::Kill { reason: "VolumeLost" };
    }
    if observed.kill_at.is_some() {
        return Action::Wait {
            reason: "Terminating",
            message: "waiting for the process to end".to_owned(),
            until: observed.kill_at,
        };
    }
    match (&observed.wish, observed.condemned) {
        (Wish::Stop, _) => Action::Terminate { reason: "Deleted" },
        (Wish::Run, Some(_)) => Action::Terminate { reason: "Unhealthy" },
        (Wish::Run, None) => Action::Watch,
    }
}

fn after_end(observed: &Observed, end: &End, back_off: BackOff) -> Action {
    let for_good = match observed.restart {
        RestartPolicy::Always => false,
        RestartPolicy::OnFailure => end.code == 0,
        RestartPolicy::Never => true,
    };
    if for_good {
        return Action::Rest;
    }
    let start_at = later(end.finished_at, back_off.pause(observed.failures));
    if observed.now >= start_at {
        return start_if_possible(observed);
    }
    Action::Wait {
        reason: "CrashLoopBackOff",
        message: format!("back-off after {} ends in a row", observed.failures),
        until: Some(start_at),
    }
}

fn start_if_possible(observed: &Observed) -> Action {
    match &observed.ground {
        Ground::Ready => Action::Start,
        Ground::Waiting { reason, message } => Action::Wait { reason, message: message.clone(), until: None },
        Ground::Lost { message } => {
            Action::Wait { reason: "ContainerCreating", message: message.clone(), until: None }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::ProcessId;

    const BACK_OFF: BackOff = BackOff { first: Duration::from_secs(10), longest: Duration::from_mins(5) };

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn end(code: i32) -> End {
        End { code, reason: "Error".into(), started_at: second(90), finished_at: second(100) }
    }

    fn observed(process: Process) -> Observed {
        Observed {
            now: second(100),
            wish: Wish::Run,
            process,
            ground: Ground::Ready,
            condemned: None,
            kill_at: None,
            failures: 0,
            restart: RestartPolicy::Always,
        }
    }

    fn check(process: Process, change: impl FnOnce(&mut Observed), expected: &str) {
        let mut observed = observed(process);
        change(&mut observed);
        let action = format!("{:?}", decide(&observed, BACK_OFF));
        assert!(action.starts_with(expected), "{observed:?}: {action} and not {expected}");
    }

    fn waiting(observed: &mut Observed) {
        observed.ground = Ground::Waiting { reason: "ContainerCreating", message: String::new() };
    }

    fn lost(observed: &mut Observed) {
        observed.ground = Ground::Lost { message: String::new() };
    }

    #[test]
    fn what_just_ended_is_not_started_again_before_its_end_is_written_down() {
        let (before, own) = (end(1), ProcessId { pid: 7, start: 9 });
        for state in [State::Running(own), State::Settling, State::Ended { code: Some(0) }] {
            assert_eq!(Process::of(state, Some(&before)), Process::Running, "{state:?}");
            assert_eq!(Process::of(state, None), Process::Running, "{state:?}");
        }
        assert_eq!(Process::of(State::Absent, Some(&before)), Process::Ended(before.clone()));
        assert_eq!(Process::of(State::Absent, None), Process::Absent);
    }

    #[test]
    fn a_pod_starts_only_on_firm_ground() {
        check(Process::Absent, |_| (), "Start");
        check(Process::Absent, waiting, "Wait { reason: \"ContainerCreating\"");
        check(Process::Absent, lost, "Wait { reason: \"ContainerCreating\"");
        check(Process::Ended(end(1)), waiting, "Wait { reason: \"ContainerCreating\"");
    }

    #[test]
    fn a_process_that_lost_its_disk_is_killed_even_while_it_ends() {
        check(Process::Running, lost, "Kill { reason: \"VolumeLost\"");
        check(
            Process::Running,
            |observed| {
                lost(observed);
                observed.kill_at = Some(second(500));
            },
            "Kill { reason: \"VolumeLost\"",
        );
    }

    #[test]
    fn a_deleted_pod_is_asked_then_killed_then_let_go() {
        let stop = |observed: &mut Observed| observed.wish = Wish::Stop;
        check(Process::Running, stop, "Terminate { reason: \"Deleted\"");
        let asked = |deadline: i64| {
            move |observed: &mut Observed| {
                observed.wish = Wish::Stop;
                observed.kill_at = Some(second(deadline));
            }
        };
        check(Process::Running, asked(101), "Wait { reason: \"Terminating\"");
        check(Process::Running, asked(100), "Kill");
        check(Process::Ended(end(143)), asked(100), "Finish");
        check(Process::Absent, stop, "Finish");
    }

    #[test]
    fn a_condemned_process_is_started_again() {
        check(
            Process::Running,
            |observed| observed.condemned = Some("liveness"),
            "Terminate { reason: \"Unhealthy\"",
        );
        check(Process::Running, |_| (), "Watch");
        check(Process::Ended(end(143)), |observed| observed.failures = 1, "Start");
    }

    #[test]
    fn crashes_are_followed_by_longer_and_longer_pauses() {
        check(
            Process::Ended(end(1)),
            |observed| observed.failures = 2,
            "Wait { reason: \"CrashLoopBackOff\"",
        );
        check(
            Process::Ended(end(1)),
            |observed| {
                observed.failures = 2;
                observed.now = second(110);
            },
            "Start",
        );
        let pauses: Vec<u64> = (0..9).map(|failures| BACK_OFF.pause(failures).as_secs()).collect();
        assert_eq!(pauses, [0, 0, 10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn a_long_run_is_forgiven() {
        assert_eq!(BACK_OFF.count(7, &end(1)), 8);
        let long = End { finished_at: second(90 + 601), ..end(1) };
        assert_eq!(BACK_OFF.count(7, &long), 1);
    }

    #[test]
    fn restart_policies_hold() {
        let policy = |restart| move |observed: &mut Observed| observed.restart = restart;
        check(Process::Ended(end(0)), policy(RestartPolicy::Always), "Start");
        check(Process::Ended(end(0)), policy(RestartPolicy::OnFailure), "Rest");
        check(Process::Ended(end(1)), policy(RestartPolicy::OnFailure), "Start");
        check(Process::Ended(end(1)), policy(RestartPolicy::Never), "Rest");
    }
}
