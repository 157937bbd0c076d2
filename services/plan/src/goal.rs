//! What a resource asks for in the end: whether its machine should run and whether its disk should stay.

use resources::{DeletionPolicy, QuestDB, RunState};

/// The end state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Serve.
    Serve,
    /// No machine; disk, name, claim, credentials and configuration stay.
    Pause,
    /// No machine, no name; disk, claim and credentials stay.
    Retire,
    /// Nothing stays. *Invariant:* the only goal that destroys a disk, and only ever asked for in so many words.
    Purge,
}

impl Goal {
    /// Of a resource. A managed one purges by run state alone; one that people wrote and delete follows its policy.
    pub fn of(resource: &QuestDB) -> Self {
        let removing = resource.metadata.deletion_timestamp.is_some();
        let spec = &resource.spec;
        match spec.run_state {
            RunState::Purged => Self::Purge,
            RunState::Running | RunState::Paused | RunState::Deleted if removing => {
                let destroys =
                    spec.instruction.is_none() && spec.storage.deletion_policy == DeletionPolicy::Delete;
                if destroys { Self::Purge } else { Self::Retire }
            }
            RunState::Deleted => Self::Retire,
            RunState::Paused => Self::Pause,
            RunState::Running => Self::Serve,
        }
    }
}
