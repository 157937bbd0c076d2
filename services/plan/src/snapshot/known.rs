//! What a process knows of the checkpoint under a debt, and of what was asked of QuestDB for it.
//!
//! QuestDB carries out what has reached it although nobody waits for the answer any more. So a request whose answer never came may begin a
//! checkpoint later: while it is on its way, or waits for QuestDB to read it.

use jiff::Timestamp;

/// What this process knows of the checkpoint under a debt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checkpoint {
    /// Somebody may have asked for one under the debt: whatever holds the database counts as ours, unless it began too late for that,
    /// and is made anew.
    #[default]
    Unknown,
    /// This process wrote the debt down, and whatever it asked for since was clearly refused; or it saw that nothing of ours holds the
    /// database, and asks for nothing under this debt.
    Unmade,
    /// This process made the one that began then.
    Made(Timestamp),
}

/// What this process knows of the requests for a checkpoint under a debt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Requests {
    /// A process before this one may have made one right before it ended.
    #[default]
    Unknown,
    /// One of this process may be under way still: nobody heard an answer.
    Unanswered,
    /// None is under way.
    Answered,
}

/// Both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Of the checkpoint.
    pub checkpoint: Checkpoint,
    /// Of the requests for one.
    pub requests: Requests,
}

impl Known {
    /// Whether the one that holds the database may be ours: the one that was made, or one that comes late.
    pub(super) fn may_be_ours(self, held_since: Timestamp) -> bool {
        match self.checkpoint {
            Checkpoint::Unknown => true,
            Checkpoint::Unmade => false,
            Checkpoint::Made(since) => since == held_since || self.requests != Requests::Answered,
        }
    }
}
