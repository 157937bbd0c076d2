//! Whether a cluster is worth a call. Pure: time and chance are parameters.
//!
//! Closed, it lets every call through. It opens after calls in a row without an answer or with an answer that says "I
//! cannot", when most calls of the last minute failed (`record`), and at once when a whole deadline passed in which nothing
//! was answered, or when we are not taken for who we are. While it is open no work goes out: a probe finds out whether the
//! server is back. Then it is on trial (`trial`): few calls at a time, until enough in a row went well, or more went wrong than
//! well. A server that asks for patience gets it: until then no work goes out, and then it is on trial too. *Invariant:* a server
//! that falls ill again and again is asked ever more seldom, and never by many at once. *Invariant:* one that fails a steady
//! minority of its calls is used, and one that fails most of them is not, however many it is asked for at once.

mod record;
mod trial;

use std::time::{Duration, Instant};

use runtime::Backoff;

use self::record::{Failure, Record};
use self::trial::{Trial, Verdict};
use crate::classify::{Trouble, code};

/// How long it stays open at least, by how often it opened again soon after it had closed.
const STAY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(15));
/// Closed for this long, a server counts as well, and what was before is forgotten.
const STEADY: Duration = Duration::from_mins(1);
/// Time between two probes while it is open.
const PROBE: Duration = Duration::from_secs(5);
/// The longest patience that a server is given.
const LONGEST_REST: Duration = Duration::from_mins(1);
/// When to ask again while the calls on trial are all taken.
const TURN: Duration = Duration::from_millis(50);

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The server did what it is there for, a refusal included.
    Well,
    /// It said that it cannot now.
    Sick(Trouble),
    /// It asked for patience.
    Busy,
    /// It does not take us for who we are.
    Stranger(Trouble),
    /// There was none.
    Silent(Trouble),
    /// There was none within the time of a call.
    Late(Trouble),
}

/// The right to make one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    began: Instant,
    /// In which state it was given: it counts in no other.
    era: u64,
}

/// Why no call should be made now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong.
    pub trouble: Trouble,
    /// After which time it is worth asking again, where that is known.
    pub after: Option<Duration>,
}

/// In which state it is, for people and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// Every call goes through.
    #[default]
    Closed,
    /// A few calls go through.
    Trial,
    /// None does, because the server asked for patience.
    Resting,
    /// None does, until a probe says that the server is back.
    Open,
}

/// The breaker of one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breaker {
    state: State,
    era: u64,
    /// How it does while it is closed.
    record: Record,
    last_answer: Option<Instant>,
    /// When it was closed for the last time; `None` before it was ever open.
    closed_at: Option<Instant>,
    /// How often it opened again soon after it had closed, or before.
    relapses: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Closed,
    Trial(Trial),
    Resting { until: Instant, trouble: Trouble },
    Open { until: Instant, trouble: Trouble },
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            state: State::Closed,
            era: 0,
            record: Record::default(),
            last_answer: None,
            closed_at: None,
            relapses: 0,
        }
    }
}

impl Breaker {
    /// In which state it is.
    pub const fn phase(&self) -> Phase {
        match self.state {
            State::Closed => Phase::Closed,
            State::Trial(_) => Phase::Trial,
            State::Resting { .. } => Phase::Resting,
            State::Open { .. } => Phase::Open,
        }
    }

    /// How many calls would get through now, at most `all`.
    pub fn room(&self, all: u32, now: Instant) -> u32 {
        match &self.state {
            State::Closed => all,
            State::Trial(trial) => trial.places().min(all),
            State::Resting { until, .. } if *until <= now => all.min(1),
            State::Resting { .. } | State::Open { .. } => 0,
        }
    }

    /// Asks to make a call; to be ended by [`Breaker::leave`] or [`Breaker::abandon`].
    pub fn enter(&mut self, now: Instant) -> Result<Ticket, Refusal> {
        if let State::Resting { until, trouble } = &self.state
            && *until <= now
        {
            let trial = Trial::new(trouble.clone());
            self.turn(State::Trial(trial));
        }
        match &mut self.state {
            State::Closed => {}
            State::Trial(trial) if trial.places() > 0 => trial.begin(),
            State::Trial(trial) => {
                return Err(Refusal { trouble: trial.trouble.clone(), after: Some(TURN) });
            }
            State::Resting { until, trouble } => {
                let after = Some(until.saturating_duration_since(now));
                return Err(Refusal { trouble: trouble.clone(), after });
            }
            State::Open { trouble, .. } => {
                return Err(Refusal { trouble: trouble.clone(), after: None });
            }
        }
        Ok(Ticket { began: now, era: self.era })
    }

    /// A call ended. `share` of 0 to 1 is chance.
    pub fn leave(&mut self, ticket: Ticket, answer: &Answer, now: Instant, share: f64) {
        let current = ticket.era == self.era;
        let among_others = self.answered_since(ticket.began);
        match &mut self.state {
            State::Trial(trial) if current => {
                let verdict = trial.ended(answer, among_others);
                self.judge(verdict, now, share);
            }
            State::Closed if current => self.note(answer, among_others, now, share),
            // Of another time: the state since then knows better.
            State::Closed | State::Trial(_) | State::Resting { .. } | State::Open { .. } => {}
        }
        if !matches!(answer, Answer::Silent(_) | Answer::Late(_)) {
            self.last_answer = Some(now);
        }
    }

    /// A call was given up by us, so nothing is known of the server.
    pub fn abandon(&mut self, ticket: Ticket) {
        if let State::Trial(trial) = &mut self.state
            && ticket.era == self.era
        {
            trial.abandoned();
        }
    }

    /// The server asks for patience.
    pub fn rest(&mut self, patience: Duration, now: Instant, share: f64) {
        let patience = patience.min(LONGEST_REST);
        // Not all replicas at the same moment.
        let wanted = now + patience.mul_f64(1.0 + 0.1 * share);
        let message = format!("the API server asked for {} s of patience", patience.as_secs());
        match &mut self.state {
            State::Resting { until, .. } | State::Open { until, .. } => *until = wanted.max(*until),
            State::Closed | State::Trial(_) => {
                let trouble = Trouble::of_cluster(code::THROTTLED, message);
                self.turn(State::Resting { until: wanted, trouble });
            }
        }
    }

    /// A probe ended that began then.
    pub fn probed(&mut self, answer: &Answer, began: Instant, now: Instant, share: f64) {
        let among_others = self.answered_since(began);
        match (&mut self.state, answer) {
            (State::Open { until, trouble }, Answer::Well) if *until <= now => {
                let trial = Trial::new(trouble.clone());
                self.turn(State::Trial(trial));
            }
            (State::Open { .. }, Answer::Well) | (State::Resting { .. }, _) | (_, Answer::Busy) => {}
            (
                State::Open { until, trouble },
                Answer::Sick(reason)
                | Answer::Stranger(reason)
                | Answer::Silent(reason)
                | Answer::Late(reason),
            ) => {
                reason.clone_into(trouble);
                *until = (*until).max(now + PROBE.mul_f64(0.8 + 0.4 * share));
            }
            (State::Closed, _) => self.note_probe(answer, among_others, now, share),
            (State::Trial(trial), _) => {
                let verdict = trial.probed(answer, among_others);
                self.judge(verdict, now, share);
            }
        }
        if !matches!(answer, Answer::Silent(_) | Answer::Late(_)) {
            self.last_answer = Some(now);
        }
    }

    /// After which time a probe is due that could close it; `None` while none is needed.
    pub fn probe_due(&self, now: Instant) -> Option<Duration> {
        match &self.state {
            State::Open { until, .. } => Some(until.saturating_duration_since(now)),
            State::Closed | State::Trial(_) | State::Resting { .. } => None,
        }
    }

    /// Something changed that may have cured it, such as new credentials: a probe is due at once.
    pub fn look_again(&mut self, now: Instant) {
        if let State::Open { until, .. } = &mut self.state {
            *until = now;
        }
    }

    /// Whether any call or probe was answered after this moment.
    fn answered_since(&self, moment: Instant) -> bool {
        self.last_answer.is_some_and(|last| last >= moment)
    }

    /// What comes of a trial.
    fn judge(&mut self, verdict: Verdict<'_>, now: Instant, share: f64) {
        match verdict {
            Verdict::None => {}
            Verdict::Won => self.close(now),
            Verdict::Lost(trouble) => self.open(trouble, now, share),
        }
    }

    /// A call without trial ended.
    fn note(&mut self, answer: &Answer, among_others: bool, now: Instant, share: f64) {
        let (trouble, is_enough) = match answer {
            Answer::Well => return self.record.well(now),
            Answer::Busy => return self.record.reached(),
            Answer::Sick(trouble) => (trouble, self.record.failed(Failure::Sick, now)),
            Answer::Silent(trouble) => (trouble, self.record.failed(Failure::Silent, now)),
            Answer::Late(trouble) if among_others => (trouble, self.record.failed(Failure::Slow, now)),
            Answer::Stranger(trouble) | Answer::Late(trouble) => (trouble, true),
        };
        if is_enough {
            self.open(trouble, now, share);
        }
    }

    /// A probe ended while every call goes through.
    fn note_probe(&mut self, answer: &Answer, among_others: bool, now: Instant, share: f64) {
        let (trouble, is_enough) = match answer {
            Answer::Well | Answer::Busy => return self.record.reached(),
            Answer::Sick(trouble) => (trouble, self.record.probe_failed(Failure::Sick, now)),
            Answer::Silent(trouble) => (trouble, self.record.probe_failed(Failure::Silent, now)),
            // Work is answered: it says more than a probe.
            Answer::Late(_) if among_others => return,
            Answer::Stranger(trouble) | Answer::Late(trouble) => (trouble, true),
        };
        if is_enough {
            self.open(trouble, now, share);
        }
    }

    fn open(&mut self, trouble: &Trouble, now: Instant, share: f64) {
        let was_steady = matches!(self.state, State::Closed)
            && self.closed_at.is_none_or(|closed| now.saturating_duration_since(closed) >= STEADY);
        self.relapses = if was_steady { 0 } else { self.relapses.saturating_add(1) };
        let until = now + STAY.ceiling(self.relapses).mul_f64(0.5 + 0.5 * share);
        self.turn(State::Open { until, trouble: trouble.clone() });
    }

    fn close(&mut self, now: Instant) {
        self.closed_at = Some(now);
        self.turn(State::Closed);
    }

    fn turn(&mut self, state: State) {
        self.record = Record::default();
        self.era += 1;
        self.state = state;
    }
}

#[cfg(test)]
mod tests;
