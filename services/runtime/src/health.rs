//! Whether a program lives and whether it can do its work.
//!
//! *Alive*: every registered loop came round lately; if not, the process is stuck and should be restarted. *Ready*: every
//! required component works; if not, a restart would not help. Programs say what they find; nothing here probes anything.

mod liveness;
mod readiness;

pub use liveness::{Heartbeat, Liveness, Loop};
pub use readiness::{Component, ComponentReport, Readiness, State};

/// Both questions of one program. Clones share the answers.
#[derive(Debug, Clone, Default)]
pub struct Health {
    /// Whether it can work.
    pub readiness: Readiness,
    /// Whether its loops turn.
    pub liveness: Liveness,
}

impl Health {
    /// Nothing registered yet: alive and ready.
    pub fn new() -> Self {
        Self::default()
    }
}
