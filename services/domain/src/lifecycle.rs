//! The verbs that move a database between its run states, and what each means in each of them. Pure.
//!
//! A verb asks for a run state, not for an act: where the database is asked to be in it already, nothing follows, so that
//! asking twice is asking once. Only a restart is new each time. *Invariant:* nothing but the same once more follows a
//! purge: its volume may be gone already. *Invariant:* only the word itself leads to one, and only from a deletion.

use crate::desired::{DeletionPolicy, Desired, RunState, Storage, words};
use crate::operation::OperationKind;

words!(
    /// What can be asked of a database in one word.
    Verb {
        /// Stop: the machine goes, volume and name stay.
        Pause => "pause",
        /// Run again after a pause.
        Resume => "resume",
        /// Restart once.
        Restart => "restart",
        /// Run again after a deletion, with the volume that was kept.
        Undelete => "undelete",
        /// Destroy the volume that a deletion kept.
        Purge => "purge",
    }
);

impl Verb {
    /// The operation that carries it out.
    pub const fn kind(self) -> OperationKind {
        match self {
            Self::Pause => OperationKind::Pause,
            Self::Resume => OperationKind::Resume,
            Self::Restart => OperationKind::Restart,
            Self::Undelete => OperationKind::Undelete,
            Self::Purge => OperationKind::Purge,
        }
    }
}

/// What is known of a database when something is asked of it.
#[derive(Debug, Clone, Copy)]
pub struct Present<'a> {
    /// The newest state that was asked for.
    pub wanted: &'a Desired,
    /// The newest state that was not refused: what the next one is made of.
    pub base: &'a Desired,
    /// Whether the operation that asked for the newest state failed.
    pub failed: bool,
}

/// What follows from a verb.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing: this is what was asked for last.
    Stands,
    /// A new state.
    Mint(Box<Desired>),
}

/// Why a verb cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The database is deleted and can be brought back.
    Deleted,
    /// The database is purged.
    Purged,
    /// The database is paused: there is nothing to restart.
    Paused,
    /// The database is not deleted: its volume is in use, or may be at any moment.
    Living,
    /// The database is protected from deletion.
    Protected,
}

impl Refusal {
    /// Stable code for programs.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Purged => "purged",
            Self::Paused => "paused",
            Self::Living => "living",
            Self::Protected => "protected",
        }
    }

    /// What is so, and what to do about it.
    pub const fn detail(self) -> &'static str {
        match self {
            Self::Deleted => "it is deleted, and can be brought back with `undelete`",
            Self::Purged => "it is purged: its volume is being destroyed or gone, so nothing brings it back",
            Self::Paused => "it is paused, so nothing of it runs that could restart: `resume` starts it",
            Self::Living => "it is living, and only what is deleted is purged: delete it first",
            Self::Protected => {
                "it is protected from deletion: change `deletion_protection` to false, then delete it"
            }
        }
    }
}

/// What follows from `verb`; `nonce` is used for a restart and must never have been used before.
pub fn follow(verb: Verb, present: Present<'_>, nonce: &str) -> Result<Next, Refusal> {
    let Present { wanted, base, failed } = present;
    let target = match (wanted.run_state, verb) {
        (RunState::Purged, Verb::Pause | Verb::Resume | Verb::Restart | Verb::Undelete) => {
            return Err(Refusal::Purged);
        }
        (RunState::Deleted, Verb::Pause | Verb::Resume | Verb::Restart) => return Err(Refusal::Deleted),
        (RunState::Paused, Verb::Restart) => return Err(Refusal::Paused),
        // What is paused is not deleted: bringing it back leaves it paused.
        (RunState::Running | RunState::Paused, Verb::Pause) | (RunState::Paused, Verb::Undelete) => {
            RunState::Paused
        }
        (RunState::Running, Verb::Resume | Verb::Restart | Verb::Undelete)
        | (RunState::Paused, Verb::Resume)
        | (RunState::Deleted, Verb::Undelete) => RunState::Running,
        (RunState::Running | RunState::Paused, Verb::Purge) => return Err(Refusal::Living),
        // Of what is deleted already that is never so.
        (RunState::Deleted | RunState::Purged, Verb::Purge)
            if wanted.deletion_protection || base.deletion_protection =>
        {
            return Err(Refusal::Protected);
        }
        // Whatever the deletion policy says: that is about a deletion, and this is asked for by its own name. Whether a last
        // copy is kept it says all the same.
        (RunState::Deleted | RunState::Purged, Verb::Purge) => RunState::Purged,
    };
    if wanted.run_state == target && verb != Verb::Restart && !failed {
        return Ok(Next::Stands);
    }
    let mut next = Desired { run_state: target, ..base.clone() };
    if verb == Verb::Restart {
        next.restart_nonce = Some(nonce.to_owned());
    }
    match (verb, wanted.storage.deletion_policy) {
        // What keeps data safe was asked for, even where a cluster refused it with something else.
        (Verb::Pause | Verb::Resume | Verb::Restart | Verb::Undelete, _) => {
            next = next.as_careful_as(wanted);
        }
        // So was a last copy, of which people were told.
        (Verb::Purge, kept @ DeletionPolicy::Snapshot) => next.storage.deletion_policy = kept,
        (Verb::Purge, DeletionPolicy::Retain | DeletionPolicy::Delete) => {}
    }
    Ok(Next::Mint(Box::new(next)))
}

/// The state after a deletion; `None` where the database is deleted already. `wanted` and `base` are those of [`Present`];
/// without a base, no cluster ever took any state of it, and what follows is for [`crate::recovery`] to say.
pub fn delete(wanted: &Desired, base: &Desired) -> Result<Option<Desired>, Refusal> {
    // What was asked for last is what people see, even where a cluster refused it.
    let deletion_policy = wanted.storage.deletion_policy.most_careful(base.storage.deletion_policy);
    let run_state = match (base.run_state, deletion_policy) {
        (RunState::Deleted | RunState::Purged, _) => return Ok(None),
        (RunState::Running | RunState::Paused, DeletionPolicy::Retain) => RunState::Deleted,
        // The operator takes the last copy because the policy is in the state that it carries out.
        (RunState::Running | RunState::Paused, DeletionPolicy::Snapshot | DeletionPolicy::Delete) => {
            RunState::Purged
        }
    };
    // A protection that a cluster refused was asked for all the same.
    if wanted.deletion_protection || base.deletion_protection {
        return Err(Refusal::Protected);
    }
    let storage = Storage { deletion_policy, ..base.storage.clone() };
    Ok(Some(Desired { run_state, storage, ..base.clone() }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::desired::{Compute, Exposure, Network, VolumeType};

    fn desired(run_state: RunState) -> Desired {
        Desired {
            name: "trades".parse().unwrap(),
            run_state,
            version: "9.9.9".to_owned(),
            compute: Compute { instance_type: "m7i.xlarge".to_owned(), node_image: None },
            storage: Storage {
                size_gib: 200,
                volume_type: VolumeType::Gp3,
                iops: 3_000,
                throughput: 125,
                provisioned: true,
                deletion_policy: DeletionPolicy::Retain,
            },
            config: BTreeMap::new(),
            network: Network {
                hostname: "trades.example.com".to_owned(),
                allowed_cidrs: Vec::new(),
                exposure: Exposure::Internal,
            },
            restart_nonce: Some("before".to_owned()),
            deletion_protection: false,
        }
    }

    fn ask(verb: Verb, run_state: RunState, failed: bool) -> Result<Next, Refusal> {
        let wanted = desired(run_state);
        follow(verb, Present { wanted: &wanted, base: &wanted, failed }, "nonce")
    }

    /// The run state that a verb leads to; `None` where nothing follows.
    type Row = (Verb, RunState, Result<Option<RunState>, Refusal>);

    #[test]
    fn what_follows_what() {
        use RunState::{Deleted, Paused, Purged, Running};
        let table: &[Row] = &[
            (Verb::Pause, Running, Ok(Some(Paused))),
            (Verb::Pause, Paused, Ok(None)),
            (Verb::Pause, Deleted, Err(Refusal::Deleted)),
            (Verb::Pause, Purged, Err(Refusal::Purged)),
            (Verb::Resume, Running, Ok(None)),
            (Verb::Resume, Paused, Ok(Some(Running))),
            (Verb::Resume, Deleted, Err(Refusal::Deleted)),
            (Verb::Resume, Purged, Err(Refusal::Purged)),
            (Verb::Restart, Running, Ok(Some(Running))),
            (Verb::Restart, Paused, Err(Refusal::Paused)),
            (Verb::Restart, Deleted, Err(Refusal::Deleted)),
            (Verb::Restart, Purged, Err(Refusal::Purged)),
            (Verb::Undelete, Running, Ok(None)),
            (Verb::Undelete, Paused, Ok(None)),
            (Verb::Undelete, Deleted, Ok(Some(Running))),
            (Verb::Undelete, Purged, Err(Refusal::Purged)),
            (Verb::Purge, Running, Err(Refusal::Living)),
            (Verb::Purge, Paused, Err(Refusal::Living)),
            (Verb::Purge, Deleted, Ok(Some(Purged))),
            (Verb::Purge, Purged, Ok(None)),
        ];
        assert_eq!(table.len(), Verb::ALL.len() * RunState::ALL.len());
        for (verb, from, expected) in table {
            let next = ask(*verb, *from, false);
            let minted = |run_state| {
                let same = desired(run_state);
                let nonce = (*verb == Verb::Restart).then(|| "nonce".to_owned());
                let restart_nonce = nonce.or_else(|| same.restart_nonce.clone());
                Next::Mint(Box::new(Desired { restart_nonce, ..same }))
            };
            let expected = expected.map(|to| to.map_or(Next::Stands, minted));
            assert_eq!(next, expected, "{verb} of what is {from}");
        }
    }

    #[test]
    fn what_failed_can_be_asked_for_again() {
        for (verb, run_state) in [
            (Verb::Pause, RunState::Paused),
            (Verb::Resume, RunState::Running),
            (Verb::Undelete, RunState::Running),
            (Verb::Purge, RunState::Purged),
        ] {
            let expected = Next::Mint(Box::new(desired(run_state)));
            assert_eq!(ask(verb, run_state, true), Ok(expected), "{verb}");
        }
    }

    #[test]
    fn a_refused_field_is_left_behind() {
        let (wanted, mut base) = (desired(RunState::Deleted), desired(RunState::Running));
        base.config.insert("a.b".to_owned(), "1".to_owned());
        let present = Present { wanted: &wanted, base: &base, failed: true };
        assert_eq!(follow(Verb::Undelete, present, ""), Ok(Next::Mint(Box::new(base.clone()))));
        assert_eq!(follow(Verb::Pause, present, ""), Err(Refusal::Deleted), "what was asked for last counts");
    }

    #[test]
    fn what_keeps_data_safe_is_not_left_behind() {
        let [mut wanted, mut base] = [RunState::Running, RunState::Running].map(desired);
        wanted.deletion_protection = true;
        base.storage.deletion_policy = DeletionPolicy::Delete;
        for verb in [Verb::Pause, Verb::Restart] {
            let present = Present { wanted: &wanted, base: &base, failed: true };
            let Ok(Next::Mint(next)) = follow(verb, present, "nonce") else { panic!("nothing is minted") };
            assert!(next.deletion_protection, "{verb}");
            assert_eq!(next.storage.deletion_policy, DeletionPolicy::Retain, "{verb}");
        }
    }

    #[test]
    fn every_verb_has_an_operation_of_its_word() {
        for verb in Verb::ALL {
            assert_eq!(verb.as_str(), verb.kind().as_str());
            let class = if *verb == Verb::Purge { OperationKind::Delete } else { OperationKind::Update };
            assert_eq!(verb.kind().class(), class, "{verb}");
        }
    }

    #[test]
    fn a_purge_asks_no_policy() {
        for policy in DeletionPolicy::ALL {
            let mut wanted = desired(RunState::Deleted);
            wanted.storage.deletion_policy = *policy;
            let present = Present { wanted: &wanted, base: &wanted, failed: false };
            let expected = Desired { run_state: RunState::Purged, ..wanted.clone() };
            assert_eq!(follow(Verb::Purge, present, ""), Ok(Next::Mint(Box::new(expected))), "{policy}");
        }
    }

    #[test]
    fn only_the_policy_decides_about_the_volume() {
        use RunState::{Deleted, Paused, Purged, Running};
        for from in RunState::ALL {
            for policy in DeletionPolicy::ALL {
                let mut before = desired(*from);
                before.storage.deletion_policy = *policy;
                let expected = match (from, policy) {
                    (Deleted | Purged, _) => None,
                    (Running | Paused, DeletionPolicy::Retain) => Some(Deleted),
                    (Running | Paused, DeletionPolicy::Snapshot | DeletionPolicy::Delete) => Some(Purged),
                };
                let expected = expected.map(|run_state| Desired { run_state, ..before.clone() });
                assert_eq!(delete(&before, &before), Ok(expected), "{from} {policy}");
            }
        }
    }

    #[test]
    fn of_what_was_asked_for_and_what_is_in_force_the_policy_that_keeps_more_counts() {
        use DeletionPolicy::{Delete, Retain, Snapshot};
        for (wished, in_force, expected) in [
            (Snapshot, Delete, (RunState::Purged, Snapshot)),
            (Delete, Snapshot, (RunState::Purged, Snapshot)),
            (Retain, Delete, (RunState::Deleted, Retain)),
            (Snapshot, Retain, (RunState::Deleted, Retain)),
            (Delete, Delete, (RunState::Purged, Delete)),
        ] {
            let [wanted, base] = [wished, in_force].map(|deletion_policy| {
                let before = desired(RunState::Running);
                Desired { storage: Storage { deletion_policy, ..before.storage.clone() }, ..before }
            });
            let after = delete(&wanted, &base).unwrap().unwrap();
            assert_eq!(
                (after.run_state, after.storage.deletion_policy),
                expected,
                "{wished} over {in_force}"
            );
        }
    }

    #[test]
    fn a_purge_keeps_the_last_copy_that_was_asked_for() {
        let [mut wanted, base] = [RunState::Deleted, RunState::Deleted].map(desired);
        wanted.storage.deletion_policy = DeletionPolicy::Snapshot;
        let present = Present { wanted: &wanted, base: &base, failed: false };
        let Ok(Next::Mint(next)) = follow(Verb::Purge, present, "") else { panic!("nothing is minted") };
        assert_eq!(next.storage.deletion_policy, DeletionPolicy::Snapshot);
    }

    #[test]
    fn what_is_protected_is_not_deleted() {
        let protected = |run_state| Desired { deletion_protection: true, ..desired(run_state) };
        for run_state in [RunState::Running, RunState::Paused] {
            let (open, closed) = (desired(run_state), protected(run_state));
            for (wanted, base) in [(&closed, &closed), (&closed, &open), (&open, &closed)] {
                assert_eq!(delete(wanted, base), Err(Refusal::Protected), "{run_state}");
            }
        }
        // What is nowhere minted is not carried further either.
        for run_state in [RunState::Deleted, RunState::Purged] {
            let wanted = protected(run_state);
            assert!(wanted.contradicts_itself() && !desired(run_state).contradicts_itself());
            let present = Present { wanted: &wanted, base: &wanted, failed: true };
            assert_eq!(follow(Verb::Purge, present, ""), Err(Refusal::Protected), "{run_state}");
            assert_eq!(delete(&wanted, &wanted), Ok(None), "it is deleted already");
        }
        assert!(!protected(RunState::Running).contradicts_itself());
    }

    proptest! {
        /// Whatever is known: nothing but itself follows a purge, only the word leads to one, from a deletion, and nothing
        /// else of a database changes.
        #[test]
        fn no_verb_touches_more_than_it_says(
            verb in prop::sample::select(Verb::ALL.to_vec()),
            wanted in prop::sample::select(RunState::ALL.to_vec()),
            base in prop::sample::select(RunState::ALL.to_vec()),
            failed: bool,
        ) {
            let (wanted, base) = (desired(wanted), desired(base));
            match follow(verb, Present { wanted: &wanted, base: &base, failed }, "nonce") {
                Ok(Next::Mint(next)) => {
                    let purge = next.run_state == RunState::Purged;
                    prop_assert_eq!(purge, verb == Verb::Purge);
                    prop_assert!(next.run_state != RunState::Deleted);
                    let ended = matches!(wanted.run_state, RunState::Deleted | RunState::Purged);
                    prop_assert!(ended || !purge, "only what is deleted is purged");
                    prop_assert!(purge || wanted.run_state != RunState::Purged, "nothing brings it back");
                    let nonce = next.restart_nonce.clone();
                    prop_assert_eq!(nonce != base.restart_nonce, verb == Verb::Restart);
                    let restart_nonce = base.restart_nonce.clone();
                    prop_assert_eq!(Desired { run_state: base.run_state, restart_nonce, ..*next }, base);
                }
                Ok(Next::Stands) => prop_assert!(verb != Verb::Restart && !failed),
                Err(_) => prop_assert!(wanted.run_state != RunState::Running || verb == Verb::Purge),
            }
        }
    }
}
