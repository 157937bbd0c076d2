//! What was asked for and how far it came. The one table of an operation's states.

use crate::desired::words;
use crate::id::{DatabaseId, OperationId, TenantId};
use crate::position::Position;

words!(
    /// What was asked for.
    OperationKind {
        /// A new database.
        Create => "create",
        /// A change of its desired state.
        Update => "update",
        /// Its end.
        Delete => "delete",
        /// A stop: the machine goes, volume and name stay.
        Pause => "pause",
        /// The end of a pause.
        Resume => "resume",
        /// One restart.
        Restart => "restart",
        /// A deleted database comes back with its volume.
        Undelete => "undelete",
        /// The volume that a deletion kept is destroyed.
        Purge => "purge",
    }
);

impl OperationKind {
    /// What it is to whoever does not tell changes apart: records on their way, and programs older than the word.
    #[must_use]
    pub const fn class(self) -> Self {
        match self {
            Self::Create => Self::Create,
            Self::Update | Self::Pause | Self::Resume | Self::Restart | Self::Undelete => Self::Update,
            Self::Delete | Self::Purge => Self::Delete,
        }
    }
}

words!(
    /// How far an operation came.
    OperationState {
        /// Accepted; no cluster has taken it yet.
        Pending => "pending",
        /// A cluster carries it out.
        Running => "running",
        /// What was asked for is there.
        Succeeded => "succeeded",
        /// It failed for good; the code says why.
        Failed => "failed",
        /// A later operation took its place.
        Superseded => "superseded",
    }
);

impl OperationState {
    /// Whether nothing moves it any more. *Invariant:* terminal operations never move.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Pending | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::Superseded => true,
        }
    }

    /// Whether an operation may go from here to `next`.
    pub const fn may_become(self, next: Self) -> bool {
        match (self, next) {
            (Self::Pending, Self::Running | Self::Succeeded | Self::Failed | Self::Superseded)
            | (Self::Running, Self::Succeeded | Self::Failed | Self::Superseded) => true,
            (Self::Pending | Self::Running | Self::Succeeded | Self::Failed | Self::Superseded, _) => false,
        }
    }
}

words!(
    /// How far a step of an operation came.
    StepState {
        /// Not begun.
        Pending => "pending",
        /// Under way.
        Running => "running",
        /// Done.
        Succeeded => "succeeded",
        /// Failed; it may be tried again.
        Failed => "failed",
    }
);

/// Steps of a database that is to serve, by name, without any of which it serves all the same: where another one is not done either, that
/// is what it lacks.
pub const BESIDE: [&str; 13] = [
    "keys",
    "rules",
    "further-rules",
    "machine-groups",
    "machine-metadata",
    "tuning",
    "reload",
    "name-change",
    "reach",
    "upgrade",
    "next-machine",
    "former-machines",
    "tags",
];

/// Why an operation failed, for its user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Stable code, such as `invalid`, `capacity`, `deadline`.
    pub code: String,
    /// What happened and what to do.
    pub message: String,
}

/// Codes of records that were set aside for a reason that lies in the state itself: no time and no other program cures it.
pub const FINAL: &[&str] = &["bad_field", "conflict", "invalid", "too_large", "undecodable", "unreadable"];

/// Whether a state that was set aside with this code will never be taken, so that its operation has failed.
///
/// Every other reason may pass, and its operation goes on until its deadline: a cluster that is not registered may be, a
/// newer program reads what this one is too old for, and a record that stands under a wrong key or in a wrong partition
/// says nothing of the state that was minted. A code that is not known here comes from a program that knows better.
pub fn is_final(code: &str) -> bool {
    FINAL.contains(&code)
}

/// An operation as it is minted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Its identity.
    pub id: OperationId,
    /// What was asked for.
    pub kind: OperationKind,
    /// Whose database.
    pub tenant: TenantId,
    /// Which database.
    pub database: DatabaseId,
    /// The position that carries it out.
    pub position: Position,
    /// How far it came.
    pub state: OperationState,
}

/// What is known of a database when its operation is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The position that the cluster has carried out in full, if any.
    pub carried_out: Option<Position>,
    /// The greatest position that the custom resource holds.
    pub applied: Option<Position>,
}

/// The state an operation at `position` should be in, or `None` where it should not move.
pub fn judge(state: OperationState, position: Position, progress: Progress) -> Option<OperationState> {
    let next = match (progress.carried_out, progress.applied) {
        (Some(carried), _) if carried == position => OperationState::Succeeded,
        (Some(carried), _) if carried > position => OperationState::Superseded,
        (_, Some(applied)) if applied > position => OperationState::Superseded,
        (_, Some(applied)) if applied == position => OperationState::Running,
        _ => return None,
    };
    state.may_become(next).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seq: i64) -> Position {
        Position { epoch: 1, seq }
    }

    #[test]
    fn terminal_operations_never_move() {
        for state in OperationState::ALL.iter().filter(|state| state.is_terminal()) {
            for next in OperationState::ALL {
                assert!(!state.may_become(*next), "{state} -> {next}");
            }
        }
    }

    #[test]
    fn only_what_lies_in_the_state_itself_is_final() {
        assert!(FINAL.iter().all(|code| is_final(code)));
        for passing in
            ["unknown_cluster", "newer_major", "key_mismatch", "panicked", "of a later version", ""]
        {
            assert!(!is_final(passing), "{passing}");
        }
    }

    #[test]
    fn progress_moves_operations() {
        let table = [
            (OperationState::Pending, None, None, None),
            (OperationState::Pending, None, Some(at(5)), Some(OperationState::Running)),
            (OperationState::Pending, None, Some(at(4)), None),
            (OperationState::Running, Some(at(4)), Some(at(5)), None),
            (OperationState::Running, Some(at(5)), Some(at(5)), Some(OperationState::Succeeded)),
            (OperationState::Pending, Some(at(5)), Some(at(5)), Some(OperationState::Succeeded)),
            (OperationState::Running, Some(at(6)), Some(at(6)), Some(OperationState::Superseded)),
            (OperationState::Running, Some(at(4)), Some(at(6)), Some(OperationState::Superseded)),
            (OperationState::Succeeded, Some(at(6)), Some(at(6)), None),
        ];
        for (state, carried_out, applied, expected) in table {
            let next = judge(state, at(5), Progress { carried_out, applied });
            assert_eq!(next, expected, "{state} {carried_out:?} {applied:?}");
        }
    }
}
