//! Single decisions, and what is said of them.

use cloud::{SnapshotState, Tags, key};
use resources::names::condition;
use resources::names::snapshot::{IDENTITY, RELEASE_OWED};
use resources::{QuestDBSnapshot, QuestDBSnapshotStatus, SnapshotPhase};

use super::world::World;
use crate::snapshot::{
    COPY_GONE, Checkpoint, Ground, Seen, Step, comes_before, identity, is_copying, is_gone, is_made_for,
    is_of, is_overdue, is_settled, left_to_others, looked_after, owes, plan, rests_on_database, status,
    unfinished,
};

/// An object in hand and what is seen of it after so many undisturbed passes.
pub(super) fn after(passes: usize) -> (World, Seen) {
    let mut world = World::new(&["a"]);
    while world.steps.len() < passes {
        world.pass(0, None);
        world.tick();
    }
    let seen = world.seen(0);
    (world, seen)
}

fn said(status: &QuestDBSnapshotStatus, kind: &str) -> (String, String, String) {
    let condition = status.conditions.iter().find(|condition| condition.type_ == kind).unwrap();
    (condition.status.clone(), condition.reason.clone(), condition.message.clone())
}

#[test]
fn the_tags_of_a_copy_say_all_that_anybody_will_have_to_know() {
    let (world, mut seen) = after(3);
    seen.ground = world.seen(0).ground;
    let Some(Step::Begin(new)) = plan(&world.objects[0], &seen).step else { panic!("{seen:?}") };
    let tags: Vec<_> = new.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let held = world.held_since.unwrap().as_microsecond();
    let expect = [
        "Name=eu/ns/a".to_owned(),
        format!("questdb.io/basis=checkpoint:{held}"),
        "questdb.io/cluster=eu".to_owned(),
        "questdb.io/database=db1".to_owned(),
        "questdb.io/namespace=ns".to_owned(),
        "questdb.io/object=a".to_owned(),
        "questdb.io/role=snapshot".to_owned(),
        "questdb.io/snapshot=00000000-0000-0000-0000-000000000001".to_owned(),
        "questdb.io/version=9.3.4".to_owned(),
        "questdb.io/volume=vol-1".to_owned(),
    ];
    assert_eq!(tags, expect);
}

#[test]
fn whatever_a_snapshot_is_called_ec2_takes_the_words() {
    let (mut world, seen) = after(3);
    let name = "n".repeat(253);
    world.objects[0].metadata.name = Some(name.clone());
    world.objects[0].metadata.namespace = Some("s".repeat(63));
    let Some(Step::Begin(new)) = plan(&world.objects[0], &seen).step else { panic!("{seen:?}") };
    assert_eq!(new.description.len(), 255);
    assert!(new.tags.iter().all(|(key, value)| key.len() <= 128 && value.len() <= 256), "{:?}", new.tags);
    assert_eq!(new.tags.get(key::OBJECT), Some(name.as_str()), "what decides is whole");
}

#[test]
fn a_copy_is_of_the_object_that_had_it_made() {
    let (world, _) = after(3);
    let own = Tags::new().with(key::NAMESPACE, "ns").with(key::OBJECT, "a");
    let check =
        |tags: &Tags, expected: bool| assert_eq!(is_of(&world.objects[0], tags), expected, "{tags:?}");
    check(&own, true);
    check(&Tags::new(), true);
    check(&own.clone().with(key::NAMESPACE, "other"), false);
    check(&own.with(key::OBJECT, "b"), false);
}

#[test]
fn what_was_made_of_a_copy_by_others_was_not_made_for_the_object() {
    let (mut world, _) = after(7);
    world.objects[0].status = None;
    let [own] = &world.seen(0).copies[..] else { panic!("not one copy") };
    let check = |volume: &str, tag: Option<&str>, expected: bool| {
        let tags = tag.map_or_else(Tags::new, |tag| Tags::new().with(key::VOLUME, tag));
        let copy = cloud::VolumeSnapshot { volume: volume.into(), tags, ..own.clone() };
        assert_eq!(is_made_for(&world.objects[0], &copy), expected, "{volume} {tag:?}");
        let told = left_to_others(&world.objects[0], std::slice::from_ref(&copy));
        assert_eq!(told.is_some_and(|told| told.contains(own.id.as_str())), !expected, "{volume} {tag:?}");
    };
    check("vol-1", Some("vol-1"), true);
    check("vol-ffffffff", Some("vol-1"), false);
    // Whatever arbitrary volume EC2 names.
    check("vol-0123", Some("vol-1"), false);
    // Of an operator from before the tag.
    check("vol-0123", None, true);
    check("vol-ffffffff", None, false);
    check("vol-ffff", None, false);
    // What was told of as its copy is.
    let status = QuestDBSnapshotStatus { snapshot_id: Some(own.id.to_string()), ..Default::default() };
    let told = QuestDBSnapshot { status: Some(status), ..world.objects[0].clone() };
    let bare = cloud::VolumeSnapshot { volume: "vol-ffffffff".into(), ..own.clone() };
    assert!(is_made_for(&told, &bare) && !is_made_for(&world.objects[0], &bare));
}

#[test]
fn a_checkpoint_that_this_process_did_not_begin_is_made_anew() {
    let (world, mut seen) = after(3);
    seen.known.checkpoint = Checkpoint::Unknown;
    assert_eq!(plan(&world.objects[0], &seen).step, Some(Step::Release));
}

#[test]
fn without_a_debt_what_holds_the_database_is_somebody_elses() {
    let (mut world, _) = after(1);
    world.usurp(world.now);
    let mut seen = world.seen(0);
    let waits = plan(&world.objects[0], &seen);
    assert_eq!((waits.step, waits.phase, waits.reason), (None, SnapshotPhase::Pending, "HeldByOthers"));
    assert!(waits.message.contains("say CHECKPOINT RELEASE"), "{}", waits.message);
    seen.now += jiff::SignedDuration::from_secs(3_601);
    let failed = plan(&world.objects[0], &seen);
    assert_eq!((failed.step, failed.phase, failed.settled), (None, SnapshotPhase::Failed, true));
    assert!(failed.message.contains("say CHECKPOINT RELEASE"), "{}", failed.message);
}

#[test]
fn nothing_is_begun_by_a_look_that_may_be_behind() {
    let (world, mut seen) = after(3);
    seen.conclusive = false;
    let waits = plan(&world.objects[0], &seen);
    assert_eq!((waits.step, waits.reason), (None, "Looking"));
}

#[test]
fn past_the_deadline_the_database_is_freed_and_nothing_has_failed_that_ec2_may_not_show() {
    for (steps, known) in [(3, SnapshotPhase::Failed), (5, SnapshotPhase::Releasing)] {
        let (world, mut seen) = after(steps);
        seen.now += jiff::SignedDuration::from_secs(3_601);
        let found = plan(&world.objects[0], &seen);
        assert_eq!((found.step, found.phase), (Some(Step::Release), known));
        (seen.conclusive, seen.copies) = (false, Vec::new());
        let found = plan(&world.objects[0], &seen);
        assert_eq!((found.step, found.phase), (Some(Step::Release), SnapshotPhase::Checkpointing));
    }
}

#[test]
fn a_database_that_nobody_knows_is_waited_for_until_the_deadline() {
    let (world, mut seen) = after(1);
    seen.ground = Ground::Absent;
    let waits = plan(&world.objects[0], &seen);
    assert_eq!((waits.step, waits.phase), (None, SnapshotPhase::Pending));
    seen.now += jiff::SignedDuration::from_secs(3_601);
    let failed = plan(&world.objects[0], &seen);
    assert_eq!((failed.step.clone(), failed.phase), (None, SnapshotPhase::Failed));
    assert!(failed.message.contains("there is no QuestDB trades"), "{}", failed.message);
}

#[test]
fn the_database_is_asked_until_the_copy_is_trusted_and_nothing_is_owed() {
    let deleted = |mut object: QuestDBSnapshot| {
        object.metadata.deletion_timestamp = object.metadata.creation_timestamp.clone();
        object
    };
    for passes in 0..8 {
        let (world, seen) = after(passes);
        let object = &world.objects[0];
        let owed = owes(object);
        // In hand, and not trusted before the fifth step; then released and struck.
        let asks = passes > 0 && (passes < 5 || owed);
        assert_eq!(rests_on_database(object, &seen.copies), asks, "after {:?}", world.steps);
        assert_eq!(
            rests_on_database(&deleted(object.clone()), &seen.copies),
            owed,
            "after {:?}",
            world.steps
        );
        assert!(!is_copying(object), "after {:?}", world.steps);
        if !asks && passes > 0 {
            assert!(rests_on_database(object, &[]), "without a copy it is begun again");
        }
    }
    let (mut world, _) = after(7);
    world.pass(0, None);
    assert!(is_copying(&world.objects[0]));
    assert!(!is_copying(&deleted(world.objects[0].clone())));
}

#[test]
fn a_copy_that_ec2_cannot_finish_fails_with_its_words() {
    let (world, mut seen) = after(7);
    seen.copies[0].state = SnapshotState::Error;
    seen.copies[0].message = Some("key is disabled".to_owned());
    let failed = plan(&world.objects[0], &seen);
    assert_eq!((failed.step.clone(), failed.phase), (None, SnapshotPhase::Failed));
    assert!(failed.message.contains("key is disabled"), "{}", failed.message);
}

#[test]
fn a_copy_that_ec2_gives_up_before_it_is_trusted_frees_the_database_and_fails_with_its_words() {
    let (mut world, _) = after(4);
    assert!(owes(&world.objects[0]));
    world.now += jiff::SignedDuration::from_secs(10);
    let mut seen = world.seen(0);
    assert_eq!(seen.copies.len(), 1, "{seen:?}");
    let sound = seen.copies[0].clone();
    (seen.copies[0].state, seen.copies[0].message) = (SnapshotState::Error, Some("disk full".to_owned()));
    let late = seen.now + jiff::SignedDuration::from_secs(3_601);
    for now in [seen.now, late] {
        let seen = Seen { now, conclusive: true, ..seen.clone() };
        let frees = plan(&world.objects[0], &seen);
        assert_eq!((frees.step, frees.phase), (Some(Step::Release), SnapshotPhase::Failed));
        assert!(frees.message.contains("disk full"), "{}", frees.message);

        let (before, _) = after(1);
        let failed = plan(&before.objects[0], &seen);
        assert_eq!(
            (failed.step, failed.phase, failed.reason, failed.settled),
            (None, SnapshotPhase::Failed, "CopyFailed", true)
        );
        assert!(failed.message.contains("disk full"), "{}", failed.message);
    }
    // A look that may be behind may lack another copy, and one that can be trusted makes good for one that cannot.
    seen.conclusive = false;
    assert_eq!(plan(&world.objects[0], &seen).step, None);
    seen.conclusive = true;
    seen.copies.push(cloud::VolumeSnapshot { id: "snap-other".into(), ..sound });
    assert_eq!(plan(&world.objects[0], &seen).step, Some(Step::Trust("snap-other".into())));
    // Whether it can be trusted may not be known now.
    let unclear = Seen { ground: Ground::Unclear("no answer".to_owned()), ..seen.clone() };
    let waits = plan(&world.objects[0], &unclear);
    assert_eq!(
        (waits.step, waits.phase, waits.reason),
        (None, SnapshotPhase::Checkpointing, "DatabaseUnclear")
    );
    // One that was not begun while the database stood still is no use, and the other one still says why there is none.
    seen.copies[1].tags = Tags::new();
    assert_eq!(plan(&world.objects[0], &seen).step, Some(Step::Discard("snap-other".into())));
    let late = Seen { now: late, ..seen };
    assert_eq!(plan(&after(1).0.objects[0], &late).step, Some(Step::Discard("snap-other".into())));
}

#[test]
fn whoever_owes_a_release_comes_first() {
    let mut world = World::new(&["a", "b", "c"]);
    let before = |world: &World, of: usize| {
        comes_before(&world.objects[of], &world.objects).and_then(|one| one.metadata.name.clone())
    };
    assert_eq!([before(&world, 0), before(&world, 1)], [None, Some("a".to_owned())]);
    for _ in 0..2 {
        world.pass(0, None);
    }
    // An older one that is seen later waits all the same.
    world.objects[1].metadata.creation_timestamp = None;
    assert_eq!([before(&world, 0), before(&world, 1)], [None, Some("a".to_owned())]);
    world.objects[2].spec.database = "other".to_owned();
    assert_eq!(before(&world, 2), None);
}

#[test]
fn nobody_waits_for_a_copy_that_ebs_makes_by_itself() {
    let mut world = World::new(&["a", "b"]);
    let status = QuestDBSnapshotStatus { phase: Some(SnapshotPhase::Copying), ..Default::default() };
    world.objects[0].status = Some(status);
    assert_eq!(comes_before(&world.objects[1], &world.objects), None);
}

#[test]
fn nobody_waits_for_one_that_cannot_be_read_unless_it_owes_a_release() {
    let mut world = World::new(&["a", "b"]);
    let mut shown = serde_json::to_value(&world.objects[0]).unwrap();
    shown["spec"]["deletionPolicy"] = "Archive".into();
    shown["metadata"]["finalizers"] = serde_json::json!([]);
    let mut before = |shown: &serde_json::Value| {
        let seen: resources::Seen<QuestDBSnapshot> = serde_json::from_value(shown.clone()).unwrap();
        world.objects[0] = *seen.marked();
        comes_before(&world.objects[1], &world.objects).and_then(|one| one.metadata.name.clone())
    };
    assert_eq!(before(&shown), None);
    shown["metadata"]["finalizers"] = serde_json::json!([RELEASE_OWED]);
    assert_eq!(before(&shown).as_deref(), Some("a"));
    assert!(
        unfinished(&world.objects[0]).is_some_and(|why| why.contains("Archive")),
        "no disk is made from it"
    );
}

#[test]
fn one_that_cannot_be_read_has_its_own_deadline_where_that_can_be_and_else_the_usual_one() {
    let (world, _) = after(3);
    let made = world.objects[0].metadata.creation_timestamp.clone().unwrap().0;
    let mut shown = serde_json::to_value(&world.objects[0]).unwrap();
    shown["spec"]["deletionPolicy"] = "Archive".into();
    let check = |shown: &serde_json::Value, seconds: i64, expected: bool| {
        let seen: resources::Seen<QuestDBSnapshot> = serde_json::from_value(shown.clone()).unwrap();
        let object = *seen.marked();
        assert!(resources::unread(&object.metadata).is_some() && owes(&object), "{shown}");
        let now = made + jiff::SignedDuration::from_secs(seconds);
        assert_eq!(is_overdue(&object, now), expected, "{seconds}: {shown}");
    };
    shown["spec"]["deadlineSeconds"] = 60.into();
    check(&shown, 60, false);
    check(&shown, 61, true);
    shown["spec"]["deadlineSeconds"] = "a while".into();
    check(&shown, 3_600, false);
    check(&shown, 3_601, true);
    // Who deletes it needs the database held no more.
    shown["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    check(&shown, 0, true);
}

#[test]
fn the_status_says_what_is_so_and_what_is_owed() {
    let (world, seen) = after(3);
    let object = &world.objects[0];
    let told = status(object, &seen, &plan(object, &seen), Some("EC2 is away"));
    assert_eq!(told.phase, Some(SnapshotPhase::Checkpointing));
    let (state, reason, message) = said(&told, condition::READY);
    assert_eq!((state.as_str(), reason.as_str()), ("False", "Beginning"));
    assert_eq!(message, "the database stands still; EC2 is away");
    assert_eq!(said(&told, condition::HELD).0, "True");
    assert_eq!(said(&told, condition::PROGRESSING).0, "True");

    let (mut world, _) = after(7);
    while !world.pass(0, None).settled {
        world.tick();
    }
    let told = world.objects[0].status.clone().unwrap();
    assert_eq!((told.phase, told.size_gib), (Some(SnapshotPhase::Succeeded), Some(20)));
    assert_eq!((told.version.as_deref(), told.volume_id.as_deref()), (Some("9.3.4"), Some("vol-1")));
    assert_eq!(
        (told.database_id.as_deref(), told.identity.as_deref()),
        (Some("db1"), Some("00000000-0000-0000-0000-000000000001"))
    );
    assert_eq!(
        [condition::READY, condition::PROGRESSING, condition::HELD].map(|kind| said(&told, kind).0),
        ["True", "False", "False"]
    );
    let (object, seen) = (&world.objects[0], world.seen(0));
    let again = status(
        object,
        &Seen { now: seen.now + jiff::SignedDuration::from_mins(1), ..seen.clone() },
        &plan(object, &seen),
        None,
    );
    assert_eq!(again.ended_at, told.ended_at, "it ends once");
}

#[test]
fn an_identity_is_one_that_was_minted() {
    let (minted, told) = ("00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002");
    for (annotated, reported, expected) in [
        (Some(minted), Some(told), Some(minted)),
        (Some("*"), Some(told), Some(told)),
        (None, Some(told), Some(told)),
        (Some("*"), None, None),
    ] {
        let snapshot = serde_json::json!({
            "apiVersion": "crd.questdb.io/v1", "kind": "QuestDBSnapshot",
            "metadata": { "annotations": annotated.map(|text| serde_json::json!({ IDENTITY: text })) },
            "spec": { "database": "trades" }, "status": { "identity": reported },
        });
        assert_eq!(
            identity(&serde_json::from_value(snapshot).unwrap()),
            expected,
            "{annotated:?} {reported:?}"
        );
    }
}

#[test]
fn a_copy_that_is_gone_is_told_and_not_taken_again() {
    let (mut world, _) = after(7);
    while !world.pass(0, None).settled {
        world.tick();
    }
    let (object, mut seen) = (&world.objects[0], world.seen(0));
    let told = object.status.clone().unwrap();
    seen.copies.clear();
    seen.conclusive = false;
    let planned = plan(object, &seen);
    assert_eq!(
        (&planned.step, planned.reason, planned.settled),
        (&None, "Completed", false),
        "EC2 may be late"
    );
    seen.conclusive = true;
    assert!(!rests_on_database(object, &seen.copies));
    let planned = plan(object, &seen);
    assert_eq!((&planned.step, planned.reason, planned.settled), (&None, COPY_GONE, true));
    let gone = status(object, &seen, &planned, None);
    let (state, reason, message) = said(&gone, condition::READY);
    assert_eq!((state.as_str(), reason.as_str()), ("False", COPY_GONE));
    assert!(message.contains(told.snapshot_id.as_deref().unwrap()), "{message}");
    assert_eq!(
        (gone.phase, &gone.snapshot_id, gone.size_gib, &gone.ended_at),
        (told.phase, &told.snapshot_id, told.size_gib, &told.ended_at),
        "what it was stays told"
    );

    // A look of a round says the same, once, and takes it back.
    let of_round = looked_after(object, false, seen.now);
    assert_eq!(said(&of_round, condition::READY), (state, reason, message));
    assert_eq!(looked_after(object, true, seen.now), told);
    let without = QuestDBSnapshot { status: Some(of_round.clone()), ..object.clone() };
    assert!(is_gone(&without) && is_settled(&without) && !is_gone(object));
    assert_eq!(looked_after(&without, false, seen.now), of_round);
    assert_eq!(
        said(&looked_after(&without, true, seen.now), condition::READY),
        said(&told, condition::READY)
    );
}
