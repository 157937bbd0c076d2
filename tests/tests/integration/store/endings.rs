//! How operations end when they do not succeed, as rows: ends are final for every writer, a refused state is in the way of
//! nothing, and what is due is found.

use std::time::Duration;

use ::store::{Batch, Due, Error, Observation, OutcomeKind, Settings, Store};
use domain::operation::Failure;
use domain::{ClusterState, Desired, OperationId, OperationState, Position, RunState};

use super::absorb::fresh;
use super::{Created, Try, as_minted, at, observation, outcome, patient};

impl Try {
    /// Takes in what a cluster says.
    async fn hear(&self, observations: Vec<Observation>, outcomes: Vec<::store::Outcome>) {
        let outcomes = as_minted(&self.url, outcomes).await;
        self.store.absorb(&Batch { outcomes, ..fresh(observations) }).await.unwrap();
    }

    /// What the next change of a database starts from.
    async fn base(&self, created: &Created) -> Option<Desired> {
        let mut transaction = self.store.begin().await.unwrap();
        let locked = transaction.lock_database(None, created.id).await.unwrap().unwrap();
        transaction.base(&locked).await.unwrap()
    }

    async fn last_good(&self, created: &Created, before: Position) -> Option<u32> {
        let mut transaction = self.store.begin().await.unwrap();
        let locked = transaction.lock_database(None, created.id).await.unwrap().unwrap();
        let good = transaction.last_good(&locked, before).await.unwrap();
        good.map(|desired| desired.storage.size_gib)
    }

    async fn before(&self, created: &Created, position: Position) -> Option<u32> {
        let mut transaction = self.store.begin().await.unwrap();
        let locked = transaction.lock_database(None, created.id).await.unwrap().unwrap();
        let before = transaction.before(&locked, position).await.unwrap();
        before.map(|desired| desired.storage.size_gib)
    }

    async fn resize(&self, created: &Created, size_gib: u32) -> OperationId {
        self.change(created.id, |desired| desired.storage.size_gib = size_gib).await.operation
    }

    async fn fail_by_deadline(&self, created: &Created, operation: OperationId) {
        let mut transaction = self.store.begin().await.unwrap();
        transaction.lock_database(None, created.id).await.unwrap().unwrap();
        let record = transaction.lock_operation(operation).await.unwrap().unwrap();
        let failure = Failure { code: "deadline".to_owned(), message: "late".to_owned() };
        transaction.fail(&record, failure).await.unwrap();
        transaction.commit().await.unwrap();
    }

    async fn supersede(&self, created: &Created, operation: OperationId, by: Position) {
        let mut transaction = self.store.begin().await.unwrap();
        transaction.lock_database(None, created.id).await.unwrap().unwrap();
        let record = transaction.lock_operation(operation).await.unwrap().unwrap();
        transaction.supersede(&record, by).await.unwrap();
        transaction.commit().await.unwrap();
    }

    async fn end_of(&self, operation: OperationId) -> (OperationState, Option<OperationId>) {
        let record = self.store.operation(None, operation).await.unwrap().unwrap();
        (record.operation.state, record.superseded_by)
    }
}

fn carried_out(created: &Created, seq: i64) -> Observation {
    Observation { carried_out: Some(at(seq)), ..observation(created.id, at(seq)) }
}

#[tokio::test]
async fn an_end_is_final_for_every_writer() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    scene.hear(vec![carried_out(&created, 1)], Vec::new()).await;
    let before = scene.store.operation(None, created.first.operation).await.unwrap().unwrap();
    assert_eq!(before.operation.state, OperationState::Succeeded);
    let mut transaction = scene.store.begin().await.unwrap();
    transaction.lock_database(None, created.id).await.unwrap().unwrap();
    let failure = Failure { code: "deadline".to_owned(), message: "late".to_owned() };
    transaction.fail(&before, failure.clone()).await.unwrap();
    transaction.supersede(&before, at(1)).await.unwrap();
    transaction.mark_overdue(&before, failure).await.unwrap();
    transaction.commit().await.unwrap();
    let after = scene.store.operation(None, created.first.operation).await.unwrap().unwrap();
    assert_eq!(after, before);
    let events =
        scene.store.events_after(&[(created.first.operation, before.last_event)], 10).await.unwrap().events;
    assert!(events.is_empty(), "{events:?}");
}

#[tokio::test]
async fn the_table_itself_refuses_to_move_an_end() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    scene.hear(vec![carried_out(&created, 1)], Vec::new()).await;
    let refused = async |change: &str| {
        let statement = format!("update operations set {change} where id = '{}'", created.first.operation);
        testkit::query(&scene.url, &statement).await.map_or_else(|error| error.to_string(), |_| String::new())
    };
    for change in [
        "state = 'running', ended_at = null",
        "failure_message = 'other'",
        "steps = '[]', last_event = 99",
        "ended_at = now() + interval '1 hour'",
    ] {
        let error = refused(change).await;
        assert!(error.contains("it does not move any more"), "{change}: {error:?}");
    }
    assert_eq!(refused("settled_at = now(), deadline_at = now()").await, "", "what is not the end may move");
}

#[tokio::test]
async fn what_is_superseded_names_who_took_its_place() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    let second = scene.resize(&created, 100).await;
    let third = scene.resize(&created, 200).await;
    scene.hear(vec![observation(created.id, at(2))], Vec::new()).await;
    assert_eq!(
        scene.end_of(created.first.operation).await,
        (OperationState::Superseded, Some(second)),
        "the one that was applied, not the newest"
    );
    assert_eq!(scene.end_of(second).await, (OperationState::Running, None));
    scene.hear(Vec::new(), vec![outcome(created.id, at(2), OutcomeKind::Superseded)]).await;
    assert_eq!(scene.end_of(second).await, (OperationState::Superseded, Some(third)));
    scene.hear(Vec::new(), vec![outcome(created.id, at(3), OutcomeKind::Superseded)]).await;
    assert_eq!(scene.end_of(third).await, (OperationState::Pending, None), "nothing of ours is newer");
}

#[tokio::test]
async fn changes_start_from_the_newest_state_that_was_not_refused() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    let size = async || scene.base(&created).await.map(|desired| desired.storage.size_gib);
    assert_eq!(size().await, Some(50));
    scene.hear(Vec::new(), vec![outcome(created.id, at(1), OutcomeKind::Applied)]).await;
    scene.resize(&created, 100).await;
    assert_eq!(size().await, Some(100), "what is under way counts");
    scene.hear(Vec::new(), vec![outcome(created.id, at(2), OutcomeKind::Refused)]).await;
    assert_eq!(size().await, Some(50));
    scene.resize(&created, 200).await;
    scene.hear(Vec::new(), vec![outcome(created.id, at(3), OutcomeKind::Refused)]).await;
    assert_eq!(size().await, Some(50), "over several refusals");
    assert_eq!(scene.before(&created, at(3)).await, Some(50), "what was refused is before nothing");
    assert_eq!(scene.before(&created, at(1)).await, None);
    scene.resize(&created, 300).await;
    let late = scene.resize(&created, 300).await;
    scene.fail_by_deadline(&created, late).await;
    assert_eq!(size().await, Some(300), "what only took too long was not refused");
    let nothing = scene.create("quotes").await;
    scene.hear(Vec::new(), vec![outcome(nothing.id, at(1), OutcomeKind::Refused)]).await;
    assert_eq!(scene.base(&nothing).await, None);
}

/// Its record was passed over by that of the next one, which has its bad field: nothing was heard of it by itself.
#[tokio::test]
async fn what_was_passed_over_is_begun_with_until_the_way_back_to_it_is_refused() {
    for (reverts, code, expected) in [(false, "invalid", 100), (true, "invalid", 50), (true, "conflict", 100)]
    {
        let scene = Try::new().await;
        let created = scene.create("trades").await;
        scene.hear(vec![carried_out(&created, 1)], Vec::new()).await;
        scene.resize(&created, 100).await;
        scene.resize(&created, 200).await;
        scene.hear(Vec::new(), vec![outcome(created.id, at(3), OutcomeKind::Refused)]).await;
        let size = async || scene.base(&created).await.map(|desired| desired.storage.size_gib);
        assert_eq!(size().await, Some(100), "it may be good");
        let back = scene.resize(&created, 300).await;
        if reverts {
            scene.ask(&format!("update operations set reverts = (select id from operations where seq = 3) where id = '{back}'")).await;
        }
        let refused =
            ::store::Outcome { code: code.to_owned(), ..outcome(created.id, at(4), OutcomeKind::Refused) };
        scene.hear(Vec::new(), vec![refused]).await;
        assert_eq!(size().await, Some(expected), "{reverts} {code}");
        assert_eq!(scene.last_good(&created, at(4)).await, Some(expected), "{reverts} {code}");
        assert_eq!(scene.before(&created, at(4)).await, Some(expected), "{reverts} {code}");
        scene.resize(&created, 400).await;
        assert_eq!(size().await, Some(400), "what is under way counts");
        scene.hear(vec![observation(created.id, at(2))], Vec::new()).await;
        assert_eq!(scene.last_good(&created, at(4)).await, Some(100), "a cluster took it after all");
    }
}

/// A cluster has it: its time ran out, or it was cancelled, and it is the way back that cannot be taken.
#[tokio::test]
async fn what_was_taken_is_begun_with_though_it_ended_and_the_way_back_was_refused() {
    for cancelled in [false, true] {
        let scene = Try::new().await;
        let created = scene.create("trades").await;
        scene.hear(vec![carried_out(&created, 1)], Vec::new()).await;
        let late = scene.resize(&created, 100).await;
        scene.hear(Vec::new(), vec![outcome(created.id, at(2), OutcomeKind::Applied)]).await;
        assert_eq!(scene.end_of(late).await.0, OperationState::Running);
        if !cancelled {
            scene.fail_by_deadline(&created, late).await;
        }
        let back = scene.resize(&created, 200).await;
        scene.ask(&format!("update operations set reverts = '{late}' where id = '{back}'")).await;
        if cancelled {
            scene.supersede(&created, late, at(3)).await;
        }
        scene.hear(Vec::new(), vec![outcome(created.id, at(3), OutcomeKind::Refused)]).await;
        assert_eq!(scene.end_of(back).await.0, OperationState::Failed);
        assert_eq!(scene.base(&created).await.map(|desired| desired.storage.size_gib), Some(100));
        assert_eq!(scene.before(&created, at(3)).await, Some(100));
    }
}

/// The newest that was taken ends the database and the one that nobody took brings it back, or the other way round: what it should
/// be was asked for, and only what else is in it is doubtful.
#[tokio::test]
async fn no_change_ends_what_was_to_be_brought_back_nor_brings_back_what_was_to_end() {
    for (taken, doubtful) in [(RunState::Deleted, RunState::Running), (RunState::Running, RunState::Deleted)]
    {
        let scene = Try::new().await;
        let created = scene.create("trades").await;
        scene
            .change(created.id, |desired| {
                desired.run_state = taken;
                desired.deletion_protection = !taken.is_end();
            })
            .await;
        scene.hear(vec![carried_out(&created, 2)], Vec::new()).await;
        scene
            .change(created.id, |desired| {
                desired.run_state = doubtful;
                desired.deletion_protection = false;
                desired.storage.size_gib = 100;
            })
            .await;
        let back = scene.resize(&created, 200).await;
        scene
            .ask(&format!(
                "update operations set reverts = '{}' where id = '{back}'",
                created.first.operation
            ))
            .await;
        scene.hear(Vec::new(), vec![outcome(created.id, at(4), OutcomeKind::Refused)]).await;
        let base = scene.base(&created).await.unwrap();
        assert_eq!((base.run_state, base.storage.size_gib), (doubtful, 50));
        assert!(!base.deletion_protection, "an end with a protection is refused");
    }
}

#[tokio::test]
async fn the_last_good_state_is_the_newest_that_was_carried_out_or_still_is() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    assert_eq!(scene.last_good(&created, at(1)).await, None);
    scene.resize(&created, 100).await;
    assert_eq!(scene.last_good(&created, at(2)).await, Some(50), "it is under way");
    scene.hear(vec![carried_out(&created, 2)], Vec::new()).await;
    scene.resize(&created, 200).await;
    scene.resize(&created, 300).await;
    assert_eq!(scene.last_good(&created, at(4)).await, Some(200), "it is under way");
    scene
        .hear(vec![Observation { carried_out: Some(at(2)), ..observation(created.id, at(4)) }], Vec::new())
        .await;
    assert_eq!(scene.last_good(&created, at(4)).await, Some(100), "what was passed over was never good");
    assert_eq!(scene.before(&created, at(4)).await, Some(200), "but was asked for");
    let late = scene.resize(&created, 400).await;
    scene.fail_by_deadline(&created, late).await;
    scene.resize(&created, 500).await;
    assert_eq!(scene.last_good(&created, at(6)).await, Some(300), "what failed was never good");
}

#[tokio::test]
async fn what_is_due_is_found_page_by_page_until_it_is_dealt_with() {
    let scene = Try::new().await;
    let mut expected = Vec::new();
    for number in 0..5 {
        let created = scene.create(&format!("trades-{number}")).await;
        expected.push(Due { operation: created.first.operation, database: created.id });
    }
    let refused = expected[1];
    scene.hear(Vec::new(), vec![outcome(refused.database, at(1), OutcomeKind::Refused)]).await;
    assert_eq!(scene.store.due(None, 10).await.unwrap(), [refused], "nothing else is late");
    scene.ask("update operations set deadline_at = now() - interval '1 second'").await;
    let first = scene.store.due(None, 3).await.unwrap();
    let second = scene.store.due(first.last().map(|due| due.operation), 3).await.unwrap();
    assert_eq!([first, second].concat(), expected);
    let mut transaction = scene.store.begin().await.unwrap();
    transaction.settle(refused.operation).await.unwrap();
    let late = transaction.lock_operation(expected[0].operation).await.unwrap().unwrap();
    assert!(late.late && late.overdue_since.is_none());
    let why = Failure { code: "deadline".to_owned(), message: "late".to_owned() };
    transaction.mark_overdue(&late, why.clone()).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(scene.store.due(None, 10).await.unwrap(), expected[2..]);
    assert_eq!(scene.store.overdue_count().await.unwrap(), 1);
    let events = scene.store.events_after(&[(late.operation.id, late.last_event)], 10).await.unwrap().events;
    assert_eq!(events.len(), 1);
    assert_eq!(
        (events[0].state, &events[0].kind),
        (OperationState::Pending, &::store::EventKind::State(Some(why)))
    );
}

#[tokio::test]
async fn a_database_that_somebody_holds_is_left_to_them() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    let mut holder = scene.store.begin().await.unwrap();
    assert!(holder.try_lock_database(created.id).await.unwrap().is_some());
    let mut other = scene.store.begin().await.unwrap();
    assert!(other.try_lock_database(created.id).await.unwrap().is_none());
    drop(holder);
    testkit::eventually(Duration::from_mins(2), "the lock", async || {
        let mut next = scene.store.begin().await.unwrap();
        next.try_lock_database(created.id).await.unwrap().map(drop)
    })
    .await;
}

#[tokio::test]
async fn a_cluster_is_not_closed_while_a_database_is_being_placed() {
    let scene = Try::new().await;
    let settings = Settings { lock: Duration::from_millis(200), ..patient() };
    let impatient = Store::connect(&scene.url, &settings).unwrap();
    let id = "eu-west-1".parse().unwrap();
    let mut placing = scene.store.begin().await.unwrap();
    assert!(placing.hold_open(&id, &scene.tenant).await.unwrap());
    let mut closing = impatient.begin().await.unwrap();
    let error = closing.set_cluster_state(&id, ClusterState::Draining).await.unwrap_err();
    assert!(matches!(error, Error::Busy(_)), "{error:?}");
    placing.commit().await.unwrap();
    let mut closing = impatient.begin().await.unwrap();
    let before = closing.set_cluster_state(&id, ClusterState::Draining).await.unwrap();
    assert_eq!(before, Some(ClusterState::Active));
    closing.commit().await.unwrap();
    assert!(!scene.store.begin().await.unwrap().hold_open(&id, &scene.tenant).await.unwrap());
}
