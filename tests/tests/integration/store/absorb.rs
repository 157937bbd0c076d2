//! What clusters say becomes rows: the newest stays, ends are final, and nothing is counted twice.

use ::store::{Advance, Batch, DeadLetter, Error, EventKind, Observation, OutcomeKind, Step, UnclaimedCode};
use domain::operation::StepState;
use domain::{ClusterId, OperationState, Position};

use super::{Created, Try, as_minted, at, observation, outcome};

fn batch(from: Option<i64>, to: i64) -> Batch {
    Batch {
        consumer: "test".to_owned(),
        topic: "gossip".to_owned(),
        advance: Advance { partition: 0, from, to },
        ..Batch::default()
    }
}

/// A batch of a partition that nobody read before.
pub(super) fn fresh(observations: Vec<Observation>) -> Batch {
    Batch {
        observations,
        advance: Advance { partition: next_partition(), from: None, to: 1 },
        ..batch(None, 1)
    }
}

fn next_partition() -> i32 {
    use std::sync::atomic::{AtomicI32, Ordering};
    static NEXT: AtomicI32 = AtomicI32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn versioned(created: &Created, seq: i64, term: i64, resource_version: i64) -> Observation {
    let phase = format!("{seq}/{term}/{resource_version}");
    Observation { term, resource_version, phase, ..observation(created.id, at(seq)) }
}

async fn state(scene: &Try, created: &Created) -> OperationState {
    scene.store.operation(None, created.first.operation).await.unwrap().unwrap().operation.state
}

#[tokio::test]
async fn the_newest_observation_stays_in_whatever_order_they_come() {
    let scene = Try::new().await;
    let versions = [(1, 1, 5), (1, 2, 1), (2, 1, 1), (2, 1, 9)];
    for rotation in 0..versions.len() {
        let created = scene.create(&format!("trades-{rotation}")).await;
        scene.change(created.id, |desired| desired.storage.size_gib = 100).await;
        let mut order = versions;
        order.rotate_left(rotation);
        let mut stale = 0;
        for (seq, term, version) in order {
            stale += scene
                .store
                .absorb(&fresh(vec![versioned(&created, seq, term, version)]))
                .await
                .unwrap()
                .stale;
        }
        let observed = scene.store.database(None, created.id).await.unwrap().unwrap().observed.unwrap();
        assert_eq!(observed.phase, "2/1/9");
        assert_eq!(stale, come_late(order));
    }
}

/// How many observations come after a newer one.
fn come_late(order: [(i64, i64, i64); 4]) -> usize {
    (1..order.len()).filter(|&index| order[..index].iter().any(|before| *before > order[index])).count()
}

/// Of resources that go and come again, at lower and at higher positions, told in any order: the sink's fold against the
/// statement that it is for.
#[tokio::test]
async fn what_a_batch_leaves_is_what_its_observations_leave_one_by_one() {
    let scene = Try::new().await;
    let mut random = testkit::Random::new(7);
    let mut roll = |sides| 1 + i64::try_from(random.below(sides)).unwrap();
    let mut shortened = 0;
    for round in 0..40 {
        let (single, folded) =
            (scene.create(&format!("single-{round}")).await, scene.create(&format!("folded-{round}")).await);
        let told: Vec<(i64, i64, i64)> = (0..8).map(|_| (roll(3), roll(2), roll(9))).collect();
        let of = |created: &Created, &(seq, term, version): &(i64, i64, i64)| Observation {
            present: version % 3 != 0,
            said_at: jiff::Timestamp::UNIX_EPOCH,
            ..versioned(created, seq, term, version)
        };
        for one in &told {
            scene.store.absorb(&fresh(vec![of(&single, one)])).await.unwrap();
        }
        // The first half is what is believed before, and the rest comes in one batch.
        let (before, batch) = told.split_at(3);
        for one in before {
            scene.store.absorb(&fresh(vec![of(&folded, one)])).await.unwrap();
        }
        let kept = ::backend::sink::fold::fold(batch.iter().map(|one| of(&folded, one)));
        shortened += batch.len() - kept.len();
        scene.store.absorb(&fresh(kept)).await.unwrap();
        let left = async |created: &Created| {
            // Of what is gone its own version says when it went.
            let row = "select epoch, seq, term, resource_version, present, phase, \
                       case when present then gone_term else term end, \
                       case when present then gone_version else resource_version end";
            scene.ask(&format!("{row} from observations where database_id = '{}'", created.id)).await
        };
        assert_eq!(left(&folded).await, left(&single).await, "{told:?}");
    }
    assert!(shortened > 40, "the fold leaves out what makes no difference: {shortened}");
}

#[tokio::test]
async fn steps_of_a_foreign_cluster_are_not_shown_beside_those_of_the_own_one() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    let outcomes =
        as_minted(&scene.url, vec![outcome(created.id, Position::FIRST, OutcomeKind::Applied)]).await;
    scene.store.absorb(&Batch { outcomes, ..fresh(Vec::new()) }).await.unwrap();
    let with = |name: &str| Observation {
        steps: vec![Step {
            name: name.to_owned(),
            state: StepState::Running,
            message: String::new(),
            started_at: None,
            ended_at: None,
        }],
        ..versioned(&created, 1, 1, 1)
    };
    let foreign = Observation { cluster: "us-east-1".parse().unwrap(), ..with("lie") };
    scene.store.absorb(&fresh(vec![with("volume"), foreign])).await.unwrap();
    let operation = scene.store.operation(None, created.first.operation).await.unwrap().unwrap();
    let steps: Vec<&str> = operation.steps.iter().map(|step| step.name.as_str()).collect();
    assert!(steps.contains(&"volume") && !steps.contains(&"lie"), "{steps:?}");
}

#[tokio::test]
async fn what_is_said_again_is_believed_as_of_then() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    let said = |second| Observation {
        said_at: jiff::Timestamp::from_second(second).unwrap(),
        ..versioned(&created, 1, 1, 1)
    };
    for (second, news) in [(100, 1), (100, 0), (200, 1), (150, 0)] {
        assert_eq!(scene.store.absorb(&fresh(vec![said(second)])).await.unwrap().news, news, "{second}");
    }
    let observed = scene.store.database(None, created.id).await.unwrap().unwrap().observed.unwrap();
    assert_eq!(observed.said_at.as_second(), 200);
}

#[tokio::test]
async fn an_operation_goes_from_pending_to_its_end_and_tells_each_step() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    let outcomes =
        as_minted(&scene.url, vec![outcome(created.id, Position::FIRST, OutcomeKind::Applied)]).await;
    scene.store.absorb(&Batch { outcomes, ..fresh(Vec::new()) }).await.unwrap();
    assert_eq!(state(&scene, &created).await, OperationState::Running);
    let step = |state| Step {
        name: "volume".to_owned(),
        state,
        message: String::new(),
        started_at: None,
        ended_at: None,
    };
    let begun = Observation { steps: vec![step(StepState::Running)], ..versioned(&created, 1, 1, 1) };
    scene.store.absorb(&fresh(vec![begun])).await.unwrap();
    let done = Observation {
        steps: vec![step(StepState::Succeeded)],
        carried_out: Some(Position::FIRST),
        ..versioned(&created, 1, 1, 2)
    };
    let report = scene.store.absorb(&fresh(vec![done.clone()])).await.unwrap();
    assert_eq!(report.ended.len(), 1);
    let again = scene.store.absorb(&fresh(vec![done])).await.unwrap();
    assert_eq!((again.stale, again.ended.len()), (1, 0));
    let events = scene.store.events_after(&[(created.first.operation, 0)], 100).await.unwrap().events;
    let told: Vec<String> = events
        .iter()
        .map(|event| match &event.kind {
            EventKind::State(_) => format!("{} state {}", event.number, event.state),
            EventKind::Step(step) => format!("{} step {} {}", event.number, step.name, step.state),
        })
        .collect();
    assert_eq!(
        told,
        [
            "1 state pending",
            "2 state running",
            "3 step apply succeeded",
            "4 step volume running",
            "5 step volume succeeded",
            "6 state succeeded"
        ]
    );
    let ended = scene.store.operation(None, created.first.operation).await.unwrap().unwrap();
    assert_eq!((ended.last_event, ended.steps.len(), ended.ended_at.is_some()), (6, 2, true));
}

#[tokio::test]
async fn an_end_is_final() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    let outcomes =
        as_minted(&scene.url, vec![outcome(created.id, Position::FIRST, OutcomeKind::Refused)]).await;
    scene.store.absorb(&Batch { outcomes, ..fresh(Vec::new()) }).await.unwrap();
    let failed = scene.store.operation(None, created.first.operation).await.unwrap().unwrap();
    assert_eq!(
        (failed.operation.state, failed.failure.unwrap().code.as_str()),
        (OperationState::Failed, "reason")
    );
    let done = Observation { carried_out: Some(Position::FIRST), ..versioned(&created, 1, 1, 1) };
    scene.store.absorb(&fresh(vec![done])).await.unwrap();
    assert_eq!(state(&scene, &created).await, OperationState::Failed);
    let events = scene.store.events_after(&[(created.first.operation, 0)], 100).await.unwrap().events;
    assert_eq!(events.last().unwrap().state, OperationState::Failed);
}

#[tokio::test]
async fn a_later_change_supersedes_what_was_not_done() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    let second = scene.change(created.id, |desired| desired.storage.size_gib = 100).await;
    let done = Observation { carried_out: Some(at(2)), ..versioned(&created, 2, 1, 1) };
    let report = scene.store.absorb(&fresh(vec![done])).await.unwrap();
    assert_eq!(report.ended.len(), 2);
    assert_eq!(state(&scene, &created).await, OperationState::Superseded);
    let newer = scene.store.operation(None, second.operation).await.unwrap().unwrap();
    assert_eq!(newer.operation.state, OperationState::Succeeded);
}

#[tokio::test]
async fn a_volume_that_was_seen_enters_the_next_desired_state() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    assert!(!created.desired.storage.provisioned);
    let seen = Observation { volume: true, ..versioned(&created, 1, 1, 1) };
    scene.store.absorb(&fresh(vec![seen])).await.unwrap();
    let before = scene.store.database(None, created.id).await.unwrap().unwrap().database;
    assert!(
        before.provisioned && !before.desired.storage.provisioned,
        "no state is changed behind its position"
    );
    // Seen once is enough: a later observation without it takes nothing back.
    scene.store.absorb(&fresh(vec![versioned(&created, 1, 1, 2)])).await.unwrap();
    scene.change(created.id, |desired| desired.storage.size_gib = 100).await;
    let after = scene.store.database(None, created.id).await.unwrap().unwrap().database;
    assert!(after.desired.storage.provisioned);
    assert_eq!(after.content_hash, super::hash(&after.desired), "the hash is of what is stored");
    assert!(scene.store.unpublished(1).await.unwrap().instructions[0].desired.storage.provisioned);
}

#[tokio::test]
async fn offsets_and_rows_move_together_or_not_at_all() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    let news = |from, to, version| Batch {
        observations: vec![versioned(&created, 1, 1, version)],
        ..batch(from, to)
    };
    assert!(scene.store.offsets("test", "gossip", &[0, 1]).await.unwrap().is_empty());
    scene.store.absorb(&news(None, 10, 1)).await.unwrap();
    scene.store.absorb(&news(Some(10), 20, 2)).await.unwrap();
    for (from, to) in [(None, 10), (Some(10), 20), (Some(19), 30), (Some(21), 30)] {
        let error = scene.store.absorb(&news(from, to, 99)).await.unwrap_err();
        assert!(matches!(error, Error::OffsetsMoved), "{from:?}: {error:?}");
    }
    let offsets = scene.store.offsets("test", "gossip", &[0, 1]).await.unwrap();
    assert_eq!(offsets.into_iter().collect::<Vec<_>>(), [(0, 20)]);
    let observed = scene.store.database(None, created.id).await.unwrap().unwrap().observed.unwrap();
    assert_eq!(observed.phase, "1/1/2", "what came with a wrong offset left no trace");
    assert_eq!(scene.store.forget_offsets("test", "gossip").await.unwrap(), 1);
    scene.store.absorb(&news(None, 5, 3)).await.unwrap();
}

#[tokio::test]
async fn of_two_consumers_of_a_partition_one_counts() {
    let scene = Try::crowded().await;
    let batches: Vec<Batch> = (0..8).map(|_| batch(None, 10)).collect();
    let results = futures::future::join_all(batches.iter().map(|batch| scene.store.absorb(batch))).await;
    let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!(won.len(), 1);
    assert!(lost.iter().all(|result| matches!(result, Err(Error::OffsetsMoved))), "{lost:?}");
}

#[tokio::test]
async fn clusters_are_believed_about_their_own_databases_only() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    let foreign = Observation { cluster: "us-east-1".parse().unwrap(), ..versioned(&created, 1, 9, 9) };
    let nobody = observation(domain::DatabaseId::mint(), at(1));
    let mut lies = outcome(created.id, Position::FIRST, OutcomeKind::Refused);
    lies.cluster = "us-east-1".parse().unwrap();
    let lies_of_nobody = outcome(nobody.database, Position::FIRST, OutcomeKind::Applied);
    let outcomes = vec![lies, lies_of_nobody];
    let report = scene
        .store
        .absorb(&Batch { outcomes, ..fresh(vec![foreign.clone(), nobody.clone()]) })
        .await
        .unwrap();
    let us: ClusterId = "us-east-1".parse().unwrap();
    let eu: ClusterId = "eu-west-1".parse().unwrap();
    assert_eq!(
        report.unbelieved,
        [
            (created.id, us, UnclaimedCode::OtherCluster),
            (nobody.database, eu, UnclaimedCode::UnknownDatabase)
        ]
    );
    let mut codes: Vec<&str> = report.unclaimed.iter().map(|(_, _, code)| code.as_str()).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["other_cluster", "unknown_database"]);
    assert_eq!((report.news, state(&scene, &created).await), (0, OperationState::Pending));
    scene.store.absorb(&fresh(vec![foreign])).await.unwrap();
    let row = "select seen, epoch, seq from unclaimed where code = 'other_cluster'";
    assert_eq!(scene.ask(row).await, "2|1|1", "a repetition is counted, not multiplied");
    assert!(scene.store.database(None, created.id).await.unwrap().unwrap().observed.is_none());
}

#[tokio::test]
async fn what_is_ahead_or_other_at_the_same_position_raises_an_alarm() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    let same = Observation { content_hash: super::hash(&created.desired), ..versioned(&created, 1, 1, 1) };
    let other = Observation { content_hash: "other".to_owned(), ..versioned(&created, 1, 1, 2) };
    let ahead = versioned(&created, 7, 1, 3);
    for (seen, expected) in
        [(same, None), (other, Some(UnclaimedCode::Content)), (ahead, Some(UnclaimedCode::Ahead))]
    {
        let report = scene.store.absorb(&fresh(vec![seen])).await.unwrap();
        assert_eq!(report.unclaimed.first().map(|(_, _, code)| *code), expected);
        assert_eq!(report.news, 1, "what is there is there");
    }
}

#[tokio::test]
async fn what_was_never_minted_ends_no_operation_and_is_outranked_by_the_next_change() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    // The position was given before, to other content, by rows that were lost.
    let carried_out = Some(at(1));
    let other = Observation { content_hash: "other".to_owned(), carried_out, ..versioned(&created, 1, 1, 1) };
    let report = scene.store.absorb(&fresh(vec![other])).await.unwrap();
    assert!(report.ended.is_empty());
    assert_eq!(state(&scene, &created).await, OperationState::Pending);
    let ahead = Observation { carried_out: Some(at(7)), ..versioned(&created, 7, 1, 2) };
    assert!(scene.store.absorb(&fresh(vec![ahead])).await.unwrap().ended.is_empty());
    assert_eq!(state(&scene, &created).await, OperationState::Pending);
    let minted = scene.change(created.id, |desired| desired.storage.size_gib = 100).await;
    assert!(minted.position > at(7), "{} would be refused by what is there", minted.position);
    // What was minted counts as ever.
    let mine = Observation {
        content_hash: scene.ask("select content_hash from databases").await,
        carried_out: Some(minted.position),
        position: minted.position,
        ..versioned(&created, 1, 1, 3)
    };
    assert_eq!(scene.store.absorb(&fresh(vec![mine])).await.unwrap().ended.len(), 2);
    assert_eq!(state(&scene, &created).await, OperationState::Superseded);
}

/// Rows were lost, and two changes were minted before anybody heard of it: the first of them at a position that was given before,
/// to content that the cluster has carried out.
#[tokio::test]
async fn what_another_carried_out_at_its_position_is_no_success_of_an_operation() {
    let scene = Try::new().await;
    let state_of = async |id| scene.store.operation(None, id).await.unwrap().unwrap().operation.state;
    for refused in [true, false] {
        let created = scene.create(&format!("trades-{refused}")).await;
        let second = scene.change(created.id, |desired| desired.storage.size_gib = 100).await.operation;
        let third = scene.change(created.id, |desired| desired.storage.size_gib = 200).await.operation;
        let done = |seq, content: &str, version| Observation {
            carried_out: Some(at(seq)),
            body: serde_json::json!({ "carried_hash": content }).into(),
            ..versioned(&created, seq, 1, version)
        };
        let lost = Observation { content_hash: "lost".to_owned(), ..done(2, "lost", 1) };
        assert!(scene.store.absorb(&fresh(vec![lost])).await.unwrap().ended.is_empty());
        assert_eq!(state_of(second).await, OperationState::Pending, "its state was never there");
        if refused {
            let outcomes = vec![outcome(created.id, at(2), OutcomeKind::Refused)];
            let outcomes = as_minted(&scene.url, outcomes).await;
            scene.store.absorb(&Batch { outcomes, ..fresh(Vec::new()) }).await.unwrap();
        }
        // The next change is there, and not yet carried out.
        let content = "select content_hash from instructions where seq = 3 and database_id = ";
        let content = scene.ask(&format!("{content}'{}'", created.id)).await;
        let held = Observation { position: at(3), content_hash: content.clone(), ..done(2, "lost", 2) };
        scene.store.absorb(&fresh(vec![held])).await.unwrap();
        let end = if refused { OperationState::Failed } else { OperationState::Superseded };
        assert_eq!((state_of(second).await, state_of(third).await), (end, OperationState::Running));
        let own = Observation { content_hash: content.clone(), ..done(3, &content, 3) };
        scene.store.absorb(&fresh(vec![own])).await.unwrap();
        assert_eq!(state_of(third).await, OperationState::Succeeded);
    }
}

#[tokio::test]
async fn dead_letters_are_kept_once_with_their_bytes() {
    let scene = Try::new().await;
    let letter = DeadLetter {
        topic: "gossip".to_owned(),
        offset: 7,
        payload: Some(vec![0xff, 0x00]),
        headers: vec![("a".to_owned(), "1".to_owned())],
        code: "undecodable".to_owned(),
        message: "no".to_owned(),
        consumer: "test".to_owned(),
        ..DeadLetter::default()
    };
    let report =
        scene.store.absorb(&Batch { dead_letters: vec![letter.clone()], ..fresh(Vec::new()) }).await.unwrap();
    assert_eq!(report.dead_letters, 1);
    assert!(!scene.store.dead_letter(&letter).await.unwrap(), "the same record comes again");
    assert!(
        scene.store.dead_letter(&DeadLetter { payload: None, ..letter }).await.unwrap(),
        "the topic was made anew"
    );
    assert_eq!(scene.store.dead_letter_count().await.unwrap(), 2);
    assert_eq!(
        scene.ask("select encode(payload, 'hex') from dead_letters order by id limit 1").await,
        "ff00"
    );
}

#[tokio::test]
async fn gossip_and_changes_at_once_end_in_order_and_without_deadlock() {
    let scene = Try::crowded().await;
    let databases = [scene.create("a").await, scene.create("b").await, scene.create("c").await];
    let gossip = (1..=20).map(|version| {
        let mut seen: Vec<Observation> =
            databases.iter().map(|created| versioned(created, 1, 1, version)).collect();
        if version % 2 == 0 {
            seen.reverse();
        }
        let store = scene.store.clone();
        async move { store.absorb(&fresh(seen)).await.map(drop) }
    });
    let changes = databases.iter().cycle().take(20).map(|created| scene.change(created.id, |_| {}));
    let (absorbed, minted) =
        tokio::join!(futures::future::join_all(gossip), futures::future::join_all(changes));
    for result in absorbed {
        result.unwrap();
    }
    assert_eq!(minted.len(), 20);
    for created in &databases {
        let observed = scene.store.database(None, created.id).await.unwrap().unwrap().observed.unwrap();
        assert_eq!(observed.phase, "1/1/20");
        let gaps = format!(
            "select count(*) - max(number) from operation_events where operation_id = '{}'",
            created.first.operation
        );
        assert_eq!(scene.ask(&gaps).await, "0");
    }
}

#[tokio::test]
async fn an_operation_that_cannot_be_read_holds_up_nobody_else() {
    // A word that nobody knows, and what is no list of steps at all.
    for steps in [r#"[{"name": "x", "state": "odd"}]"#, r#"{"x": "odd"}"#] {
        let scene = Try::new().await;
        let (broken, good) = (scene.create("a").await, scene.create("b").await);
        let operation = broken.first.operation;
        scene.ask(&format!("update operations set steps = '{steps}' where id = '{operation}'")).await;
        let done =
            |created| Observation { carried_out: Some(Position::FIRST), ..versioned(created, 1, 1, 1) };
        let report = scene.store.absorb(&fresh(vec![done(&broken), done(&good)])).await.unwrap();
        assert_eq!((report.unreadable.len(), report.ended.len()), (1, 1), "{steps}");
        assert_eq!(state(&scene, &good).await, OperationState::Succeeded, "{steps}");
    }
}
