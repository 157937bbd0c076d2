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
    /// Of a resource. A managed one purges by run state alone; one that people wrote and delete follows its policy. What is
    /// protected from deletion stays what it is.
    pub fn of(resource: &QuestDB) -> Self {
        let spec = &resource.spec;
        match spec.run_state {
            // The definition lets nobody write both.
            RunState::Purged if spec.deletion_protection => Self::Retire,
            RunState::Purged => Self::Purge,
            RunState::Running | RunState::Paused | RunState::Deleted if is_leaving(resource) => {
                let policy = if spec.instruction.is_some() {
                    DeletionPolicy::Retain
                } else {
                    spec.storage.deletion_policy
                };
                match policy {
                    DeletionPolicy::Retain => Self::Retire,
                    DeletionPolicy::Snapshot | DeletionPolicy::Delete => Self::Purge,
                }
            }
            RunState::Deleted => Self::Retire,
            RunState::Paused => Self::Pause,
            RunState::Running => Self::Serve,
        }
    }
}

/// Whether the resource is being deleted, and its database goes with it.
pub fn is_leaving(resource: &QuestDB) -> bool {
    resource.metadata.deletion_timestamp.is_some() && !resource.spec.deletion_protection
}

/// Whether the resource is being deleted, and the protection of its database holds it.
pub(crate) fn is_held_back(resource: &QuestDB) -> bool {
    resource.metadata.deletion_timestamp.is_some() && resource.spec.deletion_protection
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::{plain, resource, validated};

    const STATES: [RunState; 4] = [RunState::Running, RunState::Paused, RunState::Deleted, RunState::Purged];
    const POLICIES: [DeletionPolicy; 3] =
        [DeletionPolicy::Retain, DeletionPolicy::Snapshot, DeletionPolicy::Delete];

    fn as_it_is(run_state: RunState) -> Goal {
        match run_state {
            RunState::Running => Goal::Serve,
            RunState::Paused => Goal::Pause,
            RunState::Deleted => Goal::Retire,
            RunState::Purged => Goal::Purge,
        }
    }

    /// A wish of people or of an instruction, being deleted or not, protected or not.
    fn wish(
        (run_state, policy): (RunState, DeletionPolicy),
        (managed, removed, protected): (bool, bool, bool),
    ) -> QuestDB {
        let mut wish = if managed { resource(1) } else { plain() };
        wish.spec.run_state = run_state;
        wish.spec.storage.deletion_policy = policy;
        wish.spec.deletion_protection = protected;
        if removed {
            wish.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        }
        wish
    }

    /// Every resource there can be, with what is asked for by it and whether a copy is kept.
    fn every(check: impl Fn(&QuestDB, Goal, bool)) {
        for (run_state, policy) in STATES.into_iter().flat_map(|state| POLICIES.map(|policy| (state, policy)))
        {
            for (managed, removed, protected) in (0..8).map(|bits| (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0))
            {
                let goal = match (as_it_is(run_state), removed, protected) {
                    (Goal::Purge, _, true) => Goal::Retire,
                    (Goal::Purge, _, false) => Goal::Purge,
                    (stays, _, true) | (stays, false, false) => stays,
                    (_, true, false) if managed || policy == DeletionPolicy::Retain => Goal::Retire,
                    (_, true, false) => Goal::Purge,
                };
                let wish = wish((run_state, policy), (managed, removed, protected));
                check(&wish, goal, goal == Goal::Purge && policy == DeletionPolicy::Snapshot);
            }
        }
    }

    #[test]
    fn what_is_asked_for_in_the_end() {
        every(|wish, goal, keeps_copy| {
            let what = format!("{:?} {:?}", wish.spec, wish.metadata.deletion_timestamp);
            assert_eq!(Goal::of(wish), goal, "{what}");
            let validated = validated(wish);
            assert_eq!(validated.keeps_copy(), keeps_copy, "{what}");
            let removed = wish.metadata.deletion_timestamp.is_some();
            let protected = wish.spec.deletion_protection;
            assert_eq!(
                (validated.removing, validated.held_back),
                (removed && !protected, removed && protected)
            );
        });
    }

    #[test]
    fn protection_starts_nothing_and_destroys_nothing() {
        every(|wish, _, _| {
            if wish.spec.deletion_protection {
                let goal = Goal::of(wish);
                assert_ne!(goal, Goal::Purge, "{:?}", wish.spec);
                assert_eq!(goal == Goal::Serve, wish.spec.run_state == RunState::Running, "{:?}", wish.spec);
            }
        });
    }
}
