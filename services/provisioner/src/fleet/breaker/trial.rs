//! A server on trial: after it was left alone it is used again with few calls at once, and every answer counts.
//!
//! One call at a time at first, one more for each that goes well, one fewer for each that goes wrong. The trial is lost as soon
//! as more went wrong than well, and won when enough in a row went well: a server that is down is left alone again after the
//! first call, one that fails now and then is used with a few calls at once for as long as it does, and one that fails most of
//! its calls loses soon.

use super::Answer;
use crate::classify::Trouble;

/// Calls in a row that must go well, and the most that are under way at once.
pub(super) const ENOUGH: u32 = 8;

/// How a server does on trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trial {
    /// What was wrong before.
    pub(super) trouble: Trouble,
    /// Calls under way.
    running: u32,
    /// How many more went well than wrong. Bounded: a server that goes down after it did well for long is found out by as few
    /// calls as ever.
    ahead: u32,
    /// How many went well since one went wrong.
    row: u32,
}

/// What comes of a trial by a call that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict<'a> {
    /// It goes on.
    None,
    /// The server is well.
    Won,
    /// It is not.
    Lost(&'a Trouble),
}

impl Trial {
    /// A trial that begins.
    pub(super) const fn new(trouble: Trouble) -> Self {
        Self { trouble, running: 0, ahead: 0, row: 0 }
    }

    /// How many more calls may begin now.
    pub(super) const fn places(&self) -> u32 {
        (self.ahead + 1).saturating_sub(self.running)
    }

    /// A call begins.
    pub(super) const fn begin(&mut self) {
        self.running += 1;
    }

    /// A call was given up by us, so nothing is known of the server.
    pub(super) const fn abandoned(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// A call ended; others may have been answered since it began.
    pub(super) fn ended<'a>(&mut self, answer: &'a Answer, among_others: bool) -> Verdict<'a> {
        self.running = self.running.saturating_sub(1);
        match answer {
            Answer::Well => {
                self.row += 1;
                self.ahead = (self.ahead + 1).min(ENOUGH - 1);
                if self.row >= ENOUGH { Verdict::Won } else { Verdict::None }
            }
            Answer::Busy => Verdict::None,
            Answer::Sick(trouble) | Answer::Silent(trouble) => self.wrong(trouble),
            Answer::Late(trouble) if among_others => self.wrong(trouble),
            // One of these is enough at any time.
            Answer::Stranger(trouble) | Answer::Late(trouble) => Verdict::Lost(trouble),
        }
    }

    /// A probe ended; others may have been answered since it began. One that is not answered weighs as much as a call. One
    /// that is says nothing of work.
    pub(super) fn probed<'a>(&mut self, answer: &'a Answer, among_others: bool) -> Verdict<'a> {
        match answer {
            Answer::Well | Answer::Busy | Answer::Sick(_) => Verdict::None,
            Answer::Silent(trouble) => self.wrong(trouble),
            Answer::Late(trouble) if among_others => self.wrong(trouble),
            Answer::Stranger(trouble) | Answer::Late(trouble) => Verdict::Lost(trouble),
        }
    }

    fn wrong<'a>(&mut self, trouble: &'a Trouble) -> Verdict<'a> {
        self.row = 0;
        match self.ahead.checked_sub(1) {
            Some(ahead) => {
                self.ahead = ahead;
                Verdict::None
            }
            None => Verdict::Lost(trouble),
        }
    }
}
