//! The life of one supervised program as a pure table: a state and what is seen of the world give the next action.
//!
//! Takes the time as a parameter and touches nothing. *Invariant:* a program is spawned only from `Waiting` and only
//! while no process of it is alive, so two of one name never run side by side.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Longest pause between two starts of a program that keeps dying.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// A program that lived this long was well; its next death starts the pauses from the shortest again.
const STABLE: Duration = Duration::from_secs(30);

/// Where a program is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waits for programs it depends on.
    Waiting,
    /// Runs, not ready yet.
    Starting,
    /// Runs and has been seen ready.
    Ready,
    /// Died; starts again after a pause.
    BackingOff,
    /// Was asked to end and has not yet.
    Stopping,
    /// Does not run and is not to.
    Stopped,
}

/// What somebody wants of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// It shall run.
    Run,
    /// It shall end, then run again.
    Restart,
    /// It shall end, after everything that depends on it.
    Stop,
    /// It shall end at once, whoever depends on it: a fault that somebody asked for.
    Hold,
}

/// A program's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    /// Where it is.
    pub phase: Phase,
    /// When it came there, on the supervisor's clock.
    pub since: Duration,
    /// What is wanted of it.
    pub wish: Wish,
    /// Deaths and failed starts in a row.
    pub failures: u32,
    /// How often it was started again since the supervisor began.
    pub restarts: u32,
}

/// Timing of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timing {
    /// How long it may take to become ready.
    pub ready_within: Duration,
    /// How long it may take to end by itself.
    pub grace: Duration,
}

/// What is seen of the world at one moment.
#[expect(clippy::struct_excessive_bools, reason = "independent facts: each is seen by itself")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    /// Now, on the supervisor's clock.
    pub now: Duration,
    /// Everything it depends on is ready.
    pub dependencies_ready: bool,
    /// Nothing that depends on it runs.
    pub dependents_gone: bool,
    /// A process of it is alive.
    pub alive: bool,
    /// A readiness check has succeeded since the process began.
    pub seen_ready: bool,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Nothing.
    Nothing,
    /// Start a process.
    Spawn,
    /// Ask it to end.
    Terminate,
    /// End it.
    Kill,
}

impl State {
    /// A program that is to run and does not yet.
    pub(super) fn waiting(now: Duration) -> Self {
        Self { phase: Phase::Waiting, since: now, wish: Wish::Run, failures: 0, restarts: 0 }
    }

    /// A program found running by a supervisor that has just begun.
    pub(super) fn adopted(now: Duration) -> Self {
        Self { phase: Phase::Starting, ..Self::waiting(now) }
    }

    /// Whether nothing further will happen without a new wish.
    pub(super) fn is_settled(self) -> bool {
        match self.wish {
            Wish::Run => self.phase == Phase::Ready,
            Wish::Restart => false,
            Wish::Stop | Wish::Hold => self.phase == Phase::Stopped,
        }
    }

    /// The next state and what has to be done to get there.
    pub(super) fn step(self, timing: Timing, facts: Facts) -> (Self, Action) {
        match self.phase {
            Phase::Waiting => self.when_waiting(facts),
            Phase::Starting => self.when_starting(timing, facts),
            Phase::Ready => self.when_ready(facts),
            Phase::BackingOff => self.when_backing_off(facts),
            Phase::Stopping => self.when_stopping(timing, facts),
            Phase::Stopped if self.wish == Wish::Run || self.wish == Wish::Restart => {
                (Self { wish: Wish::Run, failures: 0, ..self.to(Phase::Waiting, facts) }, Action::Nothing)
            }
            Phase::Stopped => (self, Action::Nothing),
        }
    }

    fn when_waiting(self, facts: Facts) -> (Self, Action) {
        match self.wish {
            Wish::Stop | Wish::Hold => (self.to(Phase::Stopped, facts), Action::Nothing),
            Wish::Run | Wish::Restart if facts.dependencies_ready && !facts.alive => {
                (Self { wish: Wish::Run, ..self.to(Phase::Starting, facts) }, Action::Spawn)
            }
            Wish::Run | Wish::Restart => (self, Action::Nothing),
        }
    }

    fn when_starting(self, timing: Timing, facts: Facts) -> (Self, Action) {
        if !facts.alive {
            return self.died(facts);
        }
        if let Some(leaving) = self.leaving(facts) {
            return leaving;
        }
        if facts.seen_ready {
            return (self.to(Phase::Ready, facts), Action::Nothing);
        }
        if facts.now.saturating_sub(self.since) > timing.ready_within {
            // Stopping while the wish is to run counts as a failed start.
            return (self.to(Phase::Stopping, facts), Action::Terminate);
        }
        (self, Action::Nothing)
    }

    fn when_ready(self, facts: Facts) -> (Self, Action) {
        if !facts.alive {
            let was_stable = facts.now.saturating_sub(self.since) >= STABLE;
            let failures = if was_stable { 0 } else { self.failures };
            return Self { failures, ..self }.died(facts);
        }
        self.leaving(facts).unwrap_or((self, Action::Nothing))
    }

    fn when_backing_off(self, facts: Facts) -> (Self, Action) {
        if matches!(self.wish, Wish::Stop | Wish::Hold) {
            return (self.to(Phase::Stopped, facts), Action::Nothing);
        }
        let waited = facts.now.saturating_sub(self.since);
        if self.wish == Wish::Restart || waited >= pause(self.failures) {
            let next = Self { restarts: self.restarts + 1, ..self.to(Phase::Waiting, facts) };
            return (next, Action::Nothing);
        }
        (self, Action::Nothing)
    }

    fn when_stopping(self, timing: Timing, facts: Facts) -> (Self, Action) {
        if facts.alive {
            let overdue = facts.now.saturating_sub(self.since) > timing.grace;
            return (self, if overdue { Action::Kill } else { Action::Nothing });
        }
        match self.wish {
            Wish::Run => self.died(facts),
            Wish::Restart => (Self { wish: Wish::Run, ..self.to(Phase::Waiting, facts) }, Action::Nothing),
            Wish::Stop | Wish::Hold => (self.to(Phase::Stopped, facts), Action::Nothing),
        }
    }

    /// Begins to end a running program when that is wished and its turn has come.
    fn leaving(self, facts: Facts) -> Option<(Self, Action)> {
        let now = match self.wish {
            Wish::Run => false,
            Wish::Restart | Wish::Hold => true,
            Wish::Stop => facts.dependents_gone,
        };
        now.then(|| (self.to(Phase::Stopping, facts), Action::Terminate))
    }

    fn died(self, facts: Facts) -> (Self, Action) {
        let phase = match self.wish {
            Wish::Run | Wish::Restart => Phase::BackingOff,
            Wish::Stop | Wish::Hold => Phase::Stopped,
        };
        (Self { failures: self.failures.saturating_add(1), ..self.to(phase, facts) }, Action::Nothing)
    }

    fn to(self, phase: Phase, facts: Facts) -> Self {
        Self { phase, since: facts.now, ..self }
    }
}

/// The pause after this many failures in a row. No jitter: one supervisor starts a handful of local processes.
fn pause(failures: u32) -> Duration {
    let doubled = Duration::from_millis(250).saturating_mul(1 << failures.min(10));
    doubled.min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: Timing = Timing { ready_within: Duration::from_mins(1), grace: Duration::from_secs(10) };

    const CALM: Facts = Facts {
        now: Duration::from_secs(100),
        dependencies_ready: true,
        dependents_gone: false,
        alive: true,
        seen_ready: false,
    };

    fn state(phase: Phase, wish: Wish, since_seconds: u64) -> State {
        State { phase, since: Duration::from_secs(since_seconds), wish, failures: 0, restarts: 0 }
    }

    #[test]
    fn each_phase_answers_to_what_is_seen() {
        use Action::{Kill, Nothing, Spawn, Terminate};
        use Phase::{BackingOff, Ready, Starting, Stopped, Stopping, Waiting};
        use Wish::{Hold, Restart, Run, Stop};
        let dead = Facts { alive: false, ..CALM };
        let cases = [
            // A program starts when what it needs is ready, and never beside a living process of its own.
            (state(Waiting, Run, 99), dead, Starting, Spawn),
            (state(Waiting, Run, 99), CALM, Waiting, Nothing),
            (state(Waiting, Run, 99), Facts { dependencies_ready: false, ..dead }, Waiting, Nothing),
            (state(Waiting, Stop, 99), dead, Stopped, Nothing),
            // Starting ends in readiness, death or the deadline.
            (state(Starting, Run, 99), CALM, Starting, Nothing),
            (state(Starting, Run, 99), Facts { seen_ready: true, ..CALM }, Ready, Nothing),
            (state(Starting, Run, 99), dead, BackingOff, Nothing),
            (state(Starting, Run, 39), CALM, Stopping, Terminate),
            (state(Starting, Hold, 99), CALM, Stopping, Terminate),
            // Ready programs end in turn, unless a fault is asked for.
            (state(Ready, Run, 50), CALM, Ready, Nothing),
            (state(Ready, Run, 50), dead, BackingOff, Nothing),
            (state(Ready, Stop, 50), CALM, Ready, Nothing),
            (state(Ready, Stop, 50), Facts { dependents_gone: true, ..CALM }, Stopping, Terminate),
            (state(Ready, Hold, 50), CALM, Stopping, Terminate),
            (state(Ready, Restart, 50), CALM, Stopping, Terminate),
            (state(Ready, Stop, 50), dead, Stopped, Nothing),
            // Ending is asked for once, then made.
            (state(Stopping, Stop, 95), CALM, Stopping, Nothing),
            (state(Stopping, Stop, 89), CALM, Stopping, Kill),
            (state(Stopping, Stop, 99), dead, Stopped, Nothing),
            (state(Stopping, Restart, 99), dead, Waiting, Nothing),
            (state(Stopping, Run, 99), dead, BackingOff, Nothing),
            // Pauses pass, wishes cut them short.
            (state(BackingOff, Run, 100), dead, BackingOff, Nothing),
            (state(BackingOff, Run, 99), dead, Waiting, Nothing),
            (state(BackingOff, Restart, 100), dead, Waiting, Nothing),
            (state(BackingOff, Stop, 100), dead, Stopped, Nothing),
            (state(Stopped, Stop, 50), dead, Stopped, Nothing),
            (state(Stopped, Run, 50), dead, Waiting, Nothing),
        ];
        for (index, (from, facts, phase, action)) in cases.into_iter().enumerate() {
            let (next, done) = from.step(TIMING, facts);
            assert_eq!((next.phase, done), (phase, action), "case {index}: {from:?}");
        }
    }

    #[test]
    fn pauses_double_up_to_a_bound() {
        let pauses: Vec<u128> = [0, 1, 2, 5, 6, 40].map(|failures| pause(failures).as_millis()).to_vec();
        assert_eq!(pauses, [250, 500, 1_000, 8_000, 15_000, 15_000]);
    }

    #[test]
    fn a_long_life_forgives_earlier_deaths() {
        let dead = Facts { alive: false, ..CALM };
        let tired = State { failures: 5, ..state(Phase::Ready, Wish::Run, 90) };
        assert_eq!(tired.step(TIMING, dead).0.failures, 6);
        let recovered = State { failures: 5, ..state(Phase::Ready, Wish::Run, 10) };
        assert_eq!(recovered.step(TIMING, dead).0.failures, 1);
    }

    #[test]
    fn a_restart_is_counted_and_settles_again() {
        let mut now = state(Phase::Ready, Wish::Run, 50);
        let dead = Facts { alive: false, ..CALM };
        let mut spawned = 0;
        for second in 100..104 {
            let seen_ready = now.phase == Phase::Starting;
            let alive = seen_ready;
            let at = Duration::from_secs(second);
            let (next, action) = now.step(TIMING, Facts { now: at, alive, seen_ready, ..dead });
            now = next;
            spawned += u32::from(action == Action::Spawn);
        }
        assert_eq!((now.phase, now.restarts, spawned), (Phase::Ready, 1, 1));
        assert!(now.is_settled());
    }
}
