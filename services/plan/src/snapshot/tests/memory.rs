//! What a process remembers of an object.

use jiff::{SignedDuration, Timestamp};

use crate::snapshot::{Checkpoint, Known, Refused, Requests};

/// How long a request to QuestDB may be under way when nobody hears of it, in seconds.
const UNDER_WAY: i64 = 300;
/// How long EC2 is not asked again for what it refused, in seconds.
const REST: i64 = 60;

#[derive(Clone, Copy)]
pub(super) struct Memory {
    pub(super) checkpoint: Checkpoint,
    /// When QuestDB was last silent to somebody who waits for a checkpoint that was asked for.
    pub(super) unanswered: Option<Timestamp>,
    /// When it last asked EC2 for something.
    pub(super) asked: Timestamp,
    /// Until when EC2 is not asked for what it refused.
    rests_until: Option<Timestamp>,
}

impl Memory {
    /// Of a process that has begun then.
    pub(super) const fn new(began: Timestamp) -> Self {
        Self { checkpoint: Checkpoint::Unknown, unanswered: None, asked: began, rests_until: None }
    }

    pub(super) fn known(&self, took_over: Timestamp, now: Timestamp) -> Known {
        let is_recent = |at: Timestamp| now.duration_since(at) < SignedDuration::from_secs(UNDER_WAY);
        let requests = match self.unanswered {
            Some(at) if is_recent(at) => Requests::Unanswered,
            None if self.checkpoint == Checkpoint::Unknown && is_recent(took_over) => Requests::Unknown,
            _ => Requests::Answered,
        };
        Known { checkpoint: self.checkpoint, requests }
    }

    /// QuestDB says that it made one now. What a process before this one asked for may still come.
    pub(super) fn made(&mut self, took_over: Timestamp, now: Timestamp) {
        if self.checkpoint == Checkpoint::Unknown {
            self.unanswered.get_or_insert(took_over);
        }
        self.checkpoint = Checkpoint::Made(now);
    }

    /// EC2 refuses something now.
    pub(super) fn refuse(&mut self, now: Timestamp) {
        self.rests_until = Some(now + SignedDuration::from_secs(REST));
    }

    pub(super) fn refused(&self, now: Timestamp) -> Option<Refused> {
        let until = self.rests_until?;
        Some(Refused { why: "the quota is used up".to_owned(), rests: now < until })
    }
}
