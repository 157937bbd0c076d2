//! Decisions about operations that do not succeed, case by case.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::desired::{Compute, Network, Storage};

const OPEN: [OperationState; 2] = [OperationState::Pending, OperationState::Running];
const ENDED: [OperationState; 3] =
    [OperationState::Succeeded, OperationState::Failed, OperationState::Superseded];

const fn subject(kind: OperationKind, state: OperationState) -> Subject {
    Subject { kind, state, on_failure: OnFailure::Revert, reverts: false, newest: true }
}

const fn keep(subject: Subject) -> Subject {
    Subject { on_failure: OnFailure::Keep, ..subject }
}

const fn reverting(subject: Subject) -> Subject {
    Subject { reverts: true, ..subject }
}

const fn older(subject: Subject) -> Subject {
    Subject { newest: false, ..subject }
}

/// A disk of which nobody told anything.
const UNTOLD: Disk = Disk { has: None, asked: None, changing: false };

fn desired() -> Desired {
    Desired {
        name: "trades".parse().unwrap(),
        run_state: RunState::Running,
        version: "9.9.9".to_owned(),
        compute: Compute { instance_type: "m7i.xlarge".to_owned(), node_image: Some("ami-1".to_owned()) },
        storage: Storage {
            size_gib: 200,
            volume_type: VolumeType::Io2,
            iops: 9_000,
            throughput: 500,
            provisioned: false,
            deletion_policy: DeletionPolicy::Retain,
        },
        config: BTreeMap::from([("a.b".to_owned(), "1".to_owned())]),
        network: Network {
            hostname: "trades.example.com".to_owned(),
            allowed_cidrs: vec!["10.0.0.0/8".to_owned()],
            exposure: Exposure::Internal,
        },
        restart_nonce: Some("1".to_owned()),
        deletion_protection: false,
    }
}

#[test]
fn the_deadline_fails_only_what_has_a_way_back() {
    for state in OPEN {
        let table = [
            (subject(OperationKind::Create, state), AtDeadline::Fail),
            (subject(OperationKind::Update, state), AtDeadline::Fail),
            (older(subject(OperationKind::Update, state)), AtDeadline::Fail),
            (subject(OperationKind::Delete, state), AtDeadline::Overdue),
            (subject(OperationKind::Purge, state), AtDeadline::Overdue),
            (keep(subject(OperationKind::Create, state)), AtDeadline::Overdue),
            (keep(subject(OperationKind::Update, state)), AtDeadline::Overdue),
            (reverting(subject(OperationKind::Update, state)), AtDeadline::Overdue),
            (reverting(subject(OperationKind::Delete, state)), AtDeadline::Overdue),
        ];
        for (subject, expected) in table {
            assert_eq!(at_deadline(subject), expected, "{subject:?}");
        }
    }
    for state in ENDED {
        assert_eq!(at_deadline(subject(OperationKind::Create, state)), AtDeadline::Nothing, "{state}");
    }
}

#[test]
fn a_failure_leads_back_once() {
    let failed = |kind| subject(kind, OperationState::Failed);
    let table = [
        (failed(OperationKind::Create), Aftermath::Revert(WayBack::TakeBack)),
        (failed(OperationKind::Update), Aftermath::Revert(WayBack::GoBack)),
        (failed(OperationKind::Delete), Aftermath::Alarm),
        (failed(OperationKind::Purge), Aftermath::Alarm),
        (keep(failed(OperationKind::Create)), Aftermath::Nothing),
        (keep(failed(OperationKind::Update)), Aftermath::Nothing),
        (older(failed(OperationKind::Create)), Aftermath::Nothing),
        (older(failed(OperationKind::Update)), Aftermath::Nothing),
        (reverting(failed(OperationKind::Update)), Aftermath::Alarm),
        (reverting(failed(OperationKind::Delete)), Aftermath::Alarm),
        (older(reverting(failed(OperationKind::Update))), Aftermath::Nothing),
    ];
    for (subject, expected) in table {
        assert_eq!(aftermath(subject), expected, "{subject:?}");
    }
    for state in OPEN.into_iter().chain([OperationState::Succeeded, OperationState::Superseded]) {
        assert_eq!(aftermath(subject(OperationKind::Create, state)), Aftermath::Nothing, "{state}");
    }
}

#[test]
fn only_what_is_under_way_and_newest_is_cancelled() {
    let table = [
        (subject(OperationKind::Create, OperationState::Pending), Ok(WayBack::TakeBack)),
        (subject(OperationKind::Update, OperationState::Running), Ok(WayBack::GoBack)),
        (keep(subject(OperationKind::Update, OperationState::Running)), Ok(WayBack::GoBack)),
        (subject(OperationKind::Delete, OperationState::Running), Err(Uncancellable::NoWayBack)),
        (subject(OperationKind::Purge, OperationState::Pending), Err(Uncancellable::NoWayBack)),
        (reverting(subject(OperationKind::Update, OperationState::Running)), Err(Uncancellable::NoWayBack)),
        (older(subject(OperationKind::Update, OperationState::Pending)), Err(Uncancellable::NotNewest)),
        (older(subject(OperationKind::Update, OperationState::Failed)), Err(Uncancellable::Ended)),
    ];
    for (subject, expected) in table {
        assert_eq!(cancel(subject), expected, "{subject:?}");
    }
    for state in ENDED {
        assert_eq!(cancel(subject(OperationKind::Create, state)), Err(Uncancellable::Ended), "{state}");
    }
}

#[test]
fn a_volume_that_may_hold_anything_stays() {
    let (retain, delete) = (DeletionPolicy::Retain, DeletionPolicy::Delete);
    let snapshot = DeletionPolicy::Snapshot;
    let table = [
        // (provisioned, seen, refused), policy
        ((true, true, false), retain, RunState::Deleted),
        ((true, false, false), retain, RunState::Deleted),
        ((true, true, true), retain, RunState::Deleted),
        ((false, false, false), retain, RunState::Deleted),
        ((false, true, false), retain, RunState::Purged),
        ((false, false, true), retain, RunState::Purged),
        ((true, true, false), delete, RunState::Purged),
        ((false, false, false), delete, RunState::Purged),
        ((true, true, false), snapshot, RunState::Purged),
        ((false, true, false), snapshot, RunState::Purged),
    ];
    for ((provisioned, seen, refused), deletion_policy, expected) in table {
        let mut asked = desired();
        asked.storage.deletion_policy = deletion_policy;
        let back = take_back(&asked, Evidence { provisioned, seen, refused });
        assert_eq!(back.run_state, expected, "{provisioned} {seen} {refused} {deletion_policy}");
    }
}

#[test]
fn what_was_protected_loses_no_volume_and_its_end_is_none_that_contradicts_itself() {
    for deletion_policy in DeletionPolicy::ALL {
        let mut asked = Desired { deletion_protection: true, ..desired() };
        asked.storage.deletion_policy = *deletion_policy;
        for (provisioned, seen) in [(true, true), (true, false), (false, true), (false, false)] {
            let back = take_back(&asked, Evidence { provisioned, seen, refused: false });
            assert!(!back.contradicts_itself());
            let purged = back.run_state == RunState::Purged;
            assert_eq!(purged, !provisioned && seen, "{deletion_policy} {provisioned} {seen}");
        }
    }
}

#[test]
fn going_back_takes_no_protection_away() {
    let (open, protected) = (desired(), Desired { deletion_protection: true, ..desired() });
    for (good, held, expected) in [
        (&open, &open, false),
        (&open, &protected, true),
        (&protected, &open, true),
        (&protected, &protected, true),
    ] {
        assert_eq!(go_back(good, held, (good, good), UNTOLD).deletion_protection, expected);
        let asked = go_back(good, good, (good, held), UNTOLD);
        assert_eq!(asked.deletion_protection, expected, "asked for, and refused");
    }
    let gone = Desired { run_state: RunState::Deleted, ..desired() };
    assert!(!go_back(&gone, &protected, (&gone, &protected), UNTOLD).contradicts_itself());
}

#[test]
fn going_back_keeps_the_policy_that_keeps_most() {
    use DeletionPolicy::{Delete, Retain, Snapshot};
    let with = |deletion_policy| {
        let before = desired();
        Desired { storage: Storage { deletion_policy, ..before.storage.clone() }, ..before }
    };
    for (good, other, expected) in [
        (Delete, Retain, Retain),
        (Delete, Snapshot, Snapshot),
        (Snapshot, Retain, Retain),
        (Retain, Delete, Retain),
        (Snapshot, Delete, Snapshot),
        (Delete, Delete, Delete),
    ] {
        let (good, other) = (with(good), with(other));
        for (held, asked) in [(&other, &good), (&good, &other)] {
            let back = go_back(&good, held, (&good, asked), UNTOLD);
            assert_eq!(back, with(expected), "{good:?} {other:?}");
        }
    }
}

#[test]
fn a_change_that_failed_destroys_no_volume_that_was_seen() {
    for deletion_policy in DeletionPolicy::ALL.iter().copied() {
        let mut asked = desired();
        asked.storage.deletion_policy = deletion_policy;
        for (seen, refused) in [(false, false), (true, false), (false, true), (true, true)] {
            let seen_once = Evidence { provisioned: true, seen, refused };
            assert_eq!(without_good_state(&asked, seen_once).run_state, RunState::Deleted);
            let never = Evidence { provisioned: false, ..seen_once };
            assert_eq!(without_good_state(&asked, never), take_back(&asked, never));
        }
    }
}

#[test]
fn what_was_refused_is_not_in_the_way_of_its_end() {
    let mut asked = desired();
    asked.network.exposure = Exposure::Public;
    let kept = take_back(&asked, Evidence { provisioned: false, seen: true, refused: false });
    assert_eq!(Desired { run_state: RunState::Running, ..kept }, asked, "only the run state changes");
    let bare = take_back(&asked, Evidence { provisioned: false, seen: false, refused: true });
    assert!(bare.config.is_empty() && bare.network.allowed_cidrs.is_empty() && bare.restart_nonce.is_none());
    assert_eq!(bare.network.exposure, Exposure::Internal, "nobody is named who may come in");
    assert_eq!(bare.version, catalogue::DEFAULT_VERSION);
    assert_eq!(
        (bare.storage.size_gib, bare.storage.volume_type),
        (catalogue::DEFAULT_SIZE_GIB, VolumeType::Gp3)
    );
    assert_eq!((bare.name, bare.network.hostname), (asked.name, asked.network.hostname));
}

#[test]
fn going_back_keeps_the_size_that_may_be_there() {
    let (mut good, mut held) = (desired(), desired());
    good.config.clear();
    held.storage.size_gib = 500;
    let back = go_back(&good, &held, (&good, &held), UNTOLD);
    assert_eq!(back.storage.size_gib, 500);
    good.storage.size_gib = 500;
    assert_eq!(back, good, "everything else is the good state's");
    held.storage.size_gib = 50;
    assert_eq!(go_back(&good, &held, (&good, &held), UNTOLD), good);
}

#[test]
fn going_back_keeps_no_size_that_the_disk_neither_has_nor_is_being_given() {
    let (mut good, mut held) = (desired(), desired());
    (good.storage.size_gib, held.storage.size_gib) = (50, 5_000);
    let told = Disk { has: Some(50), asked: Some(5_000), changing: false };
    for (disk, expected) in [
        (told, 50),
        (Disk { has: Some(80), ..told }, 80),
        (Disk { has: Some(5_000), ..told }, 5_000),
        (Disk { changing: true, ..told }, 5_000),
        (Disk { has: None, ..told }, 5_000),
        (Disk { has: Some(20), ..told }, 50),
    ] {
        let back = go_back(&good, &held, (&good, &held), disk);
        assert_eq!(back.storage.size_gib, expected, "{disk:?}");
    }
}

#[test]
fn of_the_run_state_only_what_failed_itself_is_taken_back() {
    use RunState::{Deleted, Paused, Running};
    let table = [
        // The last good run state, the one before what failed, the one that failed with it.
        (Running, Running, Paused),
        (Running, Running, Running),
        (Running, Paused, Running),
        (Running, Paused, Paused),
        (Running, Deleted, Running),
        (Deleted, Running, Paused),
        (Deleted, Paused, Running),
    ];
    for (good, before, asked) in table {
        let states = [good, before, asked].map(|run_state| Desired { run_state, ..desired() });
        let [good, before, asked] = &states;
        assert_eq!(go_back(good, asked, (before, asked), UNTOLD), *before, "{good:?} {asked:?}");
    }
}

#[test]
fn going_back_does_not_restart_again() {
    let (good, mut held) = (desired(), desired());
    held.restart_nonce = Some("2".to_owned());
    let back = go_back(&good, &held, (&good, &held), UNTOLD);
    assert_eq!(back, held, "a restart that may have been done stays done");
}

#[test]
fn verbs_fail_and_go_back_as_changes_do_but_a_restart_is_not_cancelled() {
    use OperationKind::{Pause, Restart, Resume, Undelete};
    for kind in [Pause, Resume, Restart, Undelete] {
        assert_eq!(at_deadline(subject(kind, OperationState::Running)), AtDeadline::Fail, "{kind}");
        let back = Aftermath::Revert(WayBack::GoBack);
        assert_eq!(aftermath(subject(kind, OperationState::Failed)), back, "{kind}");
        let cancelled = cancel(subject(kind, OperationState::Pending));
        let expected = if kind == Restart { Err(Uncancellable::NoWayBack) } else { Ok(WayBack::GoBack) };
        assert_eq!(cancelled, expected, "{kind}");
    }
}

#[test]
fn kinds_say_what_becomes_of_the_database() {
    let table = [
        (RunState::Running, OperationKind::Update),
        (RunState::Paused, OperationKind::Update),
        (RunState::Deleted, OperationKind::Delete),
        (RunState::Purged, OperationKind::Delete),
    ];
    for (run_state, kind) in table {
        assert_eq!(kind_of(&Desired { run_state, ..desired() }), kind);
    }
}

#[test]
fn each_kind_has_its_deadline() {
    let deadlines = Deadlines::default();
    let minutes = OperationKind::ALL.iter().map(|kind| deadlines.of(*kind).as_secs() / 60);
    assert_eq!(minutes.collect::<Vec<_>>(), [30, 30, 60, 30, 30, 30, 30, 60]);
}

fn subjects() -> impl Strategy<Value = Subject> {
    let kinds = prop::sample::select(OperationKind::ALL.to_vec());
    let states = prop::sample::select(OperationState::ALL.to_vec());
    let wishes = prop::sample::select(OnFailure::ALL.to_vec());
    (kinds, states, wishes, any::<bool>(), any::<bool>()).prop_map(
        |(kind, state, on_failure, reverts, newest)| Subject { kind, state, on_failure, reverts, newest },
    )
}

proptest! {
    /// What takes back is never taken back, and nothing is done to what is not the newest.
    #[test]
    fn nothing_goes_in_a_circle(subject in subjects()) {
        let back = matches!(aftermath(subject), Aftermath::Revert(_)) || cancel(subject).is_ok();
        let end = subject.kind.class() == OperationKind::Delete;
        if subject.reverts || !subject.newest || end {
            prop_assert!(!back);
        }
        if subject.state.is_terminal() {
            prop_assert_eq!(at_deadline(subject), AtDeadline::Nothing);
            prop_assert!(cancel(subject).is_err());
        }
    }

    /// A volume that was seen survives every taking back that the policy does not order.
    #[test]
    fn a_seen_volume_is_never_purged_without_the_policy(seen: bool, refused: bool) {
        let back = take_back(&desired(), Evidence { provisioned: true, seen, refused });
        prop_assert_eq!(back.run_state, RunState::Deleted);
    }
}
