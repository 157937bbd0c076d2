//! How operations move, case by case.

use std::sync::LazyLock;

use domain::operation::StepState;
use domain::{DatabaseId, OnFailure, Operation, OperationId, OperationKind};
use jiff::Timestamp;
use serde_json::Value;

use super::*;

/// The operation that is judged.
static OURS: LazyLock<OperationId> = LazyLock::new(OperationId::mint);

const fn at(seq: i64) -> Position {
    Position { epoch: 1, seq }
}

fn record(state: OperationState, steps: Vec<Step>) -> OperationRecord {
    OperationRecord {
        operation: Operation {
            id: *OURS,
            kind: OperationKind::Create,
            tenant: "acme".parse().unwrap(),
            database: DatabaseId::mint(),
            position: at(2),
            state,
        },
        database_name: "trades".to_owned(),
        failure: None,
        steps,
        last_event: 0,
        actor: "console".to_owned(),
        traceparent: None,
        created_at: Timestamp::UNIX_EPOCH,
        updated_at: Timestamp::UNIX_EPOCH,
        ended_at: None,
        on_failure: OnFailure::Revert,
        deadline_at: Timestamp::UNIX_EPOCH,
        late: false,
        overdue_since: None,
        reverts: None,
        superseded_by: None,
        settled: false,
    }
}

fn step(name: &str, state: StepState) -> Step {
    Step { name: name.to_owned(), state, message: String::new(), started_at: None, ended_at: None }
}

fn seen(position: Position, steps: Vec<Step>) -> Observation {
    Observation {
        database: DatabaseId::mint(),
        cluster: "eu-west-1".parse().unwrap(),
        position,
        term: 1,
        resource_version: 10,
        present: true,
        content_hash: String::new(),
        phase: "Creating".to_owned(),
        carried_out: None,
        volume: false,
        steps,
        body: Value::Null.into(),
        body_schema: 1,
        said_at: Timestamp::UNIX_EPOCH,
    }
}

fn outcome(kind: OutcomeKind, position: Position) -> Outcome {
    Outcome {
        database: DatabaseId::mint(),
        cluster: "eu-west-1".parse().unwrap(),
        position,
        operation: *OURS,
        kind,
        code: "unreachable".to_owned(),
        message: "no answer".to_owned(),
        said_at: Timestamp::UNIX_EPOCH,
    }
}

fn names(moved: &Moved) -> Vec<String> {
    moved
        .events
        .iter()
        .map(|(state, kind)| match kind {
            EventKind::State(_) => format!("state {state}"),
            EventKind::Step(step) => format!("step {} {} while {state}", step.name, step.state),
        })
        .collect()
}

#[test]
fn an_applied_instruction_starts_its_operation() {
    let outcomes = [outcome(OutcomeKind::Applied, at(2))];
    let facts = Facts { outcomes: &outcomes, ..Facts::default() };
    let moved = progress(&record(OperationState::Pending, Vec::new()), facts).unwrap();
    assert_eq!(moved.state, OperationState::Running);
    assert_eq!(names(&moved), ["state running", "step apply succeeded while running"]);
}

#[test]
fn steps_come_before_the_end_and_the_end_comes_last() {
    let seen = Observation {
        carried_out: Some(at(2)),
        ..seen(at(2), vec![step("volume", StepState::Succeeded), step("pod", StepState::Succeeded)])
    };
    let facts = Facts { held: Some(at(2)), carried_out: Some(at(2)), seen: Some(&seen), ..Facts::default() };
    let before = record(OperationState::Running, vec![step("volume", StepState::Succeeded)]);
    let moved = progress(&before, facts).unwrap();
    assert_eq!(moved.state, OperationState::Succeeded);
    assert_eq!(
        names(&moved),
        ["step apply succeeded while running", "step pod succeeded while running", "state succeeded"]
    );
}

#[test]
fn the_same_news_twice_moves_nothing() {
    let seen = seen(at(2), vec![step("volume", StepState::Running)]);
    let facts = Facts { held: Some(at(2)), seen: Some(&seen), ..Facts::default() };
    let before = record(OperationState::Pending, Vec::new());
    let first = progress(&before, facts).unwrap();
    let after = record(first.state, first.steps);
    assert_eq!(progress(&after, facts), None);
}

#[test]
fn a_refusal_fails_its_operation_and_says_why() {
    let outcomes = [outcome(OutcomeKind::Refused, at(2))];
    let facts = Facts { outcomes: &outcomes, ..Facts::default() };
    let moved = progress(&record(OperationState::Pending, Vec::new()), facts).unwrap();
    assert_eq!(moved.state, OperationState::Failed);
    assert_eq!(moved.failure.as_ref().unwrap().message, "no answer");
    assert_eq!(names(&moved), ["step apply failed while pending", "state failed"]);
}

#[test]
fn the_refusal_of_another_position_is_not_ours() {
    let outcomes = [outcome(OutcomeKind::Refused, at(1))];
    let facts = Facts { outcomes: &outcomes, ..Facts::default() };
    assert_eq!(progress(&record(OperationState::Pending, Vec::new()), facts), None);
}

#[test]
fn a_refusal_that_comes_late_does_not_undo_progress() {
    let outcomes = [outcome(OutcomeKind::Refused, at(2))];
    let facts =
        Facts { held: Some(at(2)), carried_out: Some(at(2)), outcomes: &outcomes, ..Facts::default() };
    let moved = progress(&record(OperationState::Pending, Vec::new()), facts).unwrap();
    assert_eq!(moved.state, OperationState::Succeeded);
}

#[test]
fn a_copy_that_is_refused_or_parked_late_does_not_fail_what_its_cluster_has_taken() {
    let applied = Step { started_at: Some(Timestamp::UNIX_EPOCH), ..step(APPLY, StepState::Succeeded) };
    let taken = record(OperationState::Running, vec![applied]);
    for kind in [OutcomeKind::Refused, OutcomeKind::Parked] {
        let outcomes = [outcome(kind, at(2))];
        // Until something is seen of it, only the operation itself says that it was taken.
        for held in [None, Some(at(1)), Some(at(2))] {
            let facts = Facts { held, outcomes: &outcomes, ..Facts::default() };
            assert_eq!(progress(&taken, facts), None, "{facts:?}");
        }
        let facts = Facts { held: Some(at(2)), outcomes: &outcomes, ..Facts::default() };
        let seen = progress(&record(OperationState::Pending, Vec::new()), facts).unwrap();
        assert_eq!((seen.state, seen.failure), (OperationState::Running, None), "{facts:?}");
        assert_eq!(seen.steps[0].state, StepState::Succeeded);
    }
}

#[test]
fn a_parked_instruction_says_what_it_waits_for() {
    let outcomes = [outcome(OutcomeKind::Parked, at(2))];
    let facts = Facts { outcomes: &outcomes, ..Facts::default() };
    let moved = progress(&record(OperationState::Pending, Vec::new()), facts).unwrap();
    assert_eq!(moved.state, OperationState::Pending);
    assert_eq!(moved.steps[0].message, "unreachable: no answer");
    assert_eq!(names(&moved), ["step apply pending while pending"]);
}

#[test]
fn a_newer_position_supersedes_and_is_named() {
    let table = [
        // held, carried out, minted; who took its place
        (Some(at(3)), None, at(5), at(3)),
        (Some(at(4)), Some(at(3)), at(5), at(4)),
        (Some(at(3)), Some(at(3)), at(3), at(3)),
    ];
    for (held, carried_out, minted, by) in table {
        let facts = Facts { held, carried_out, minted: Some(minted), ..Facts::default() };
        let moved = progress(&record(OperationState::Running, Vec::new()), facts).unwrap();
        assert_eq!((moved.state, moved.superseded_by), (OperationState::Superseded, Some(by)), "{facts:?}");
    }
}

#[test]
fn an_instruction_that_came_too_late_is_told_so_before_the_newer_one_is_seen() {
    let said = |position| [outcome(OutcomeKind::Superseded, position)];
    let pending = || record(OperationState::Pending, Vec::new());
    let late = said(at(2));
    let facts = Facts { outcomes: &late, minted: Some(at(3)), ..Facts::default() };
    let moved = progress(&pending(), facts).unwrap();
    assert_eq!((moved.state, moved.superseded_by), (OperationState::Superseded, Some(at(3))));
    let ahead = Facts { minted: Some(at(2)), ..facts };
    assert_eq!(progress(&pending(), ahead), None, "the cluster is ahead: nothing of ours took its place");
    let other = said(at(1));
    assert_eq!(progress(&pending(), Facts { outcomes: &other, ..facts }), None);
}

#[test]
fn the_steps_of_another_position_are_not_ours() {
    let seen = seen(at(1), vec![step("volume", StepState::Running)]);
    let facts = Facts { held: Some(at(1)), seen: Some(&seen), ..Facts::default() };
    assert_eq!(progress(&record(OperationState::Pending, Vec::new()), facts), None);
}

#[test]
fn ended_operations_never_move() {
    let outcomes = [outcome(OutcomeKind::Applied, at(2))];
    let facts = Facts {
        held: Some(at(9)),
        carried_out: Some(at(9)),
        outcomes: &outcomes,
        minted: Some(at(9)),
        ..Facts::default()
    };
    for state in OperationState::ALL.iter().filter(|state| state.is_terminal()) {
        assert_eq!(progress(&record(*state, Vec::new()), facts), None, "{state}");
    }
}

/// The sink hears again what was said before rows were lost, and its positions were given to others meanwhile.
#[test]
fn what_is_said_of_lost_instructions_moves_nothing() {
    let of_another = |kind| Outcome { operation: OperationId::mint(), ..outcome(kind, at(2)) };
    let facts = Facts { minted: Some(at(2)), ..Facts::default() };
    for kind in [OutcomeKind::Applied, OutcomeKind::Superseded, OutcomeKind::Parked, OutcomeKind::Refused] {
        let lost = [of_another(kind), outcome(kind, at(3))];
        let facts = Facts { outcomes: &lost, ..facts };
        assert_eq!(progress(&record(OperationState::Pending, Vec::new()), facts), None, "{kind:?}");
    }
    // The refusal of ours is heard behind it.
    let both = [of_another(OutcomeKind::Applied), outcome(OutcomeKind::Refused, at(2))];
    let facts = Facts { outcomes: &both, ..facts };
    let moved = progress(&record(OperationState::Pending, Vec::new()), facts).unwrap();
    assert_eq!(moved.state, OperationState::Failed);
    // What is said of another position of these rows counts, whoever asked for it.
    let later = [Outcome { operation: OperationId::mint(), ..outcome(OutcomeKind::Applied, at(3)) }];
    let facts = Facts { outcomes: &later, minted: Some(at(3)), ..Facts::default() };
    let moved = progress(&record(OperationState::Pending, Vec::new()), facts).unwrap();
    assert_eq!((moved.state, moved.superseded_by), (OperationState::Superseded, Some(at(3))));
}
