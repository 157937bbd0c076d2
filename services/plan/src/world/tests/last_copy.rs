//! The last copy of a disk: nothing is destroyed without it, and nothing that goes wrong with one is for good.

mod numbers;
mod orders;

use cloud::{SnapshotState, VolumeId, VolumeState, key};
use jiff::SignedDuration;
use resources::names::condition;
use resources::{DeletionPolicy, RunState, SnapshotPhase};

use super::ends::{purge_with_copy, remove_with_copy};
use super::model::World;
use super::operations::{become_, begin_move, change, deleted, on_the_way, paused, serving_plain};
use super::oracle::{check_end, check_moment};
use super::{check_gone, pass, phase, serving, settle};
use crate::{Part, Plan, State, Step, Unseen};

fn passes(world: &mut World, count: usize) -> Vec<Plan> {
    let one = |world: &mut World| {
        let planned = pass(world, &mut 0, None, false);
        world.tick();
        check_moment(world, "on the way");
        planned
    };
    (0..count).map(|_| one(world)).collect()
}

fn said(world: &World) -> (String, String, String) {
    let conditions = world.resource.status.iter().flat_map(|status| &status.conditions);
    let mut found = conditions.filter(|found| found.type_ == condition::LAST_COPY);
    let found = found.next().cloned().unwrap();
    (found.status, found.reason, found.message)
}

fn begun(world: &World) -> bool {
    !world.copied.is_empty()
}

fn destroys(plan: &Plan) -> bool {
    plan.actions.iter().any(|action| matches!(action.step, Step::DeleteVolume { .. }))
}

fn succeeded(world: &World) -> bool {
    let first = world.snapshots.first().and_then(|order| order.status.as_ref()?.phase);
    first == Some(SnapshotPhase::Succeeded)
}

/// The disk is copied completely, by the word of the order too, and the report does not say so yet.
fn copied() -> World {
    on_the_way(serving(), purge_with_copy, succeeded)
}

#[test]
fn the_report_names_the_copy_before_the_disk_goes() {
    for start in [serving, deleted] {
        let mut world = start();
        purge_with_copy(&mut world);
        let mut destroyed = 0;
        while phase(&world) != Some(resources::Phase::Deleted) || !world.volumes.is_empty() {
            let known = world.resource.status.as_ref().and_then(|status| status.last_copy.clone());
            let plans = passes(&mut world, 1);
            if destroys(&plans[0]) {
                destroyed += 1;
                let whole = world.whole_copy().unwrap();
                let known = known.expect("the disk goes, and nobody was told of its copy");
                assert_eq!(known.snapshot_id, whole.shown.id.as_str());
                assert_eq!(known.volume_id, whole.shown.volume.as_str());
            }
        }
        settle(&mut world, None, false);
        check_gone(&world, None);
        check_end(&world, "copied and gone");
        assert_eq!((destroyed, world.snapshots.len()), (1, 1));
        let (status, reason, message) = said(&world);
        assert_eq!((status.as_str(), reason.as_str()), ("True", "Kept"));
        assert!(message.contains("spec.storage.source.snapshot: trades-33445566-last"), "{message}");
        // At rest it stays so, and nothing is asked for.
        let before = world.resource.status.clone();
        assert!(passes(&mut world, 3).iter().all(|plan| plan.actions.is_empty()));
        assert_eq!(world.resource.status, before);
    }
}

#[test]
fn a_purge_of_what_is_retained_keeps_no_copy() {
    for policy in [DeletionPolicy::Retain, DeletionPolicy::Delete] {
        let mut world = serving();
        become_(&mut world, RunState::Purged);
        world.resource.spec.storage.deletion_policy = policy;
        settle(&mut world, None, false);
        check_gone(&world, None);
        assert!(world.copied.is_empty() && world.snapshots.is_empty(), "{policy:?}");
    }
}

#[test]
fn a_copy_that_lost_a_tag_does_not_count_and_another_is_made() {
    for lost in [key::GENERATION, key::BASIS, key::CONSISTENT, key::DATABASE, key::CLUSTER, key::ROLE] {
        let mut world = copied();
        world.untag_copies(lost);
        for _ in 0..3 {
            assert!(!passes(&mut world, 1).iter().any(destroys), "{lost}");
        }
        assert_eq!(world.volumes.len(), 1, "{lost}");
        settle(&mut world, None, false);
        check_end(&world, lost);
        assert_eq!(world.copied.len(), 2, "{lost}");
        let kept = world.resource.status.as_ref().unwrap().last_copy.clone().unwrap();
        assert_eq!(kept.snapshot.as_deref(), Some("trades-33445566-last-2"), "{lost}");
    }
}

#[test]
fn a_copy_that_somebody_takes_away_in_ec2_is_made_again() {
    for fault in ["gone", "of another disk", "failed"] {
        let mut world = copied();
        match fault {
            "gone" => world.copied.clear(),
            "of another disk" => world.copied[0].shown.volume = VolumeId::new("vol-of-others"),
            _ => world.copied[0].shown.state = SnapshotState::Error,
        }
        settle(&mut world, None, false);
        check_end(&world, fault);
        assert_eq!(world.snapshots.len(), 2, "{fault}");
    }
}

#[test]
fn what_was_written_after_a_copy_is_in_the_one_that_counts() {
    for arrived in [begun, |world: &World| world.whole_copy().is_some(), succeeded] {
        let mut world = on_the_way(serving_plain(), remove_with_copy, arrived);
        let first = world.copied[0].clone();
        // The protection has it serve again, on another machine, and write.
        change(&mut world, |spec| spec.deletion_protection = true);
        settle(&mut world, None, false);
        check_end(&world, "back");
        assert!(world.written > first.holds, "nothing was written");
        assert_eq!(said(&world).1, "TakenBack", "nobody is told of the copy");
        assert_eq!(world.snapshots.len(), 1, "a copy without its object");
        change(&mut world, |spec| spec.deletion_protection = false);
        settle(&mut world, None, false);
        assert!(world.released && world.volumes.is_empty());
        let whole = world.whole_copy().expect("the last copy lacks what was written last");
        assert_ne!(whole.shown.id, first.shown.id);
    }
}

#[test]
fn an_order_that_nobody_began_is_withdrawn_when_the_wish_turns() {
    let ordered = |world: &World| !world.snapshots.is_empty();
    for retained in [true, false] {
        let mut world = serving_plain();
        world.unheeded = true;
        let mut world = on_the_way(world, remove_with_copy, ordered);
        if retained {
            change(&mut world, |spec| spec.storage.deletion_policy = DeletionPolicy::Retain);
        } else {
            change(&mut world, |spec| spec.deletion_protection = true);
        }
        settle(&mut world, None, false);
        assert!(world.snapshots.is_empty() && world.copied.is_empty(), "an order nobody wants is left");
        assert_eq!(world.volumes.len(), 1);
        assert_eq!(world.released, retained);
    }
}

#[test]
fn a_copy_that_fails_is_tried_again_ever_more_seldom_and_told_of() {
    let mut world = serving();
    world.spoilt = usize::MAX;
    purge_with_copy(&mut world);
    world.clock = SignedDuration::from_mins(5);
    let mut told = std::collections::BTreeSet::new();
    for _ in 0..12 * 24 {
        passes(&mut world, 1);
        told.extend(world.resource.status.iter().flat_map(|status| status.conditions.clone()).filter_map(
            |found| {
                (found.type_ == condition::LAST_COPY).then_some((found.status, found.reason, found.message))
            },
        ));
    }
    let orders = world.snapshots.len();
    assert!((20..=30).contains(&orders), "{orders} in a day");
    assert_eq!(world.volumes.len(), 1, "the disk is destroyed without a copy");
    assert!(told.iter().all(|(status, ..)| status == "False"), "{told:?}");
    let mut failed = told.iter().filter(|(_, reason, _)| reason == "Failed");
    let (.., message) = failed.next_back().expect("nobody is told that it fails");
    assert!(message.contains("another one is asked for after") && message.contains("by hand"), "{message}");
    // EC2 is well again.
    world.spoilt = 0;
    settle(&mut world, None, false);
    check_end(&world, "at last");
}

#[test]
fn an_order_that_nobody_heeds_is_followed_by_another() {
    let mut world = serving();
    world.unheeded = true;
    purge_with_copy(&mut world);
    world.clock = SignedDuration::from_mins(1);
    passes(&mut world, 18);
    assert_eq!(world.snapshots.len(), 1, "its time is not over");
    passes(&mut world, 15);
    assert_eq!(world.snapshots.len(), 2);
    world.unheeded = false;
    settle(&mut world, None, false);
    check_end(&world, "heeded");
    assert_eq!(world.volumes.len(), 0);
}

/// What is wrong with the disk, what is said of it, and how it comes about.
type Fault = (&'static str, &'static str, fn(&mut World));

#[test]
fn a_disk_that_cannot_be_copied_stays_and_people_are_told() {
    let ended =
        |world: &World| world.groups.is_empty() && world.instances.iter().all(|one| one.state.is_ending());
    let faults: [Fault; 3] = [
        ("two", "all carry this database's tags", |world| {
            let other = cloud::Volume { id: VolumeId::new("vol-two"), ..world.volumes[0].clone() };
            world.volumes.push(other);
        }),
        ("failed", "ask AWS", |world| world.volumes[0].state = VolumeState::Error),
        ("odd", "nobody of us wrote", |world| {
            let tags = world.volumes[0].tags.clone();
            world.volumes[0].tags = tags.with(key::SEQ, "odd");
        }),
    ];
    for (fault, expected, change) in faults {
        let mut world = on_the_way(serving(), purge_with_copy, ended);
        change(&mut world);
        // A tick would cure what EC2 says of the disk.
        let volumes = world.volumes.clone();
        for _ in 0..20 {
            let planned = pass(&mut world, &mut 0, None, false);
            assert!(!destroys(&planned), "{fault}");
            world.tick();
            world.volumes.clone_from(&volumes);
        }
        let (_, reason, message) = said(&world);
        assert!(reason == "Failed" && message.contains(expected), "{fault}: {message}");
        assert!(world.copied.is_empty(), "{fault}");
    }
}

#[test]
fn a_disk_that_lost_its_number_gets_one_that_no_machine_had() {
    let mut world = deleted();
    let tags = world.volumes[0].tags.iter().filter(|(found, _)| *found != key::GENERATION);
    world.volumes[0].tags = tags.collect();
    purge_with_copy(&mut world);
    settle(&mut world, None, false);
    check_end(&world, "numbered anew");
    assert_eq!(world.whole_copy().unwrap().shown.tags.get(key::GENERATION), Some("2"));
}

#[test]
fn route_53_is_not_asked_while_the_copy_is_made() {
    let mut world = on_the_way(serving(), purge_with_copy, begun);
    pass(&mut world, &mut 0, None, false);
    assert!(world.look().dns.records.is_none(), "the name is known to be given back");
    // Another wish makes nobody trust that any more.
    world.resource.metadata.generation = Some(99);
    assert!(world.look().dns.records.is_some());
    let mut world = serving();
    purge_with_copy(&mut world);
    assert!(world.look().dns.records.is_some(), "it was not given back yet");
}

#[test]
fn an_order_that_is_being_deleted_with_its_copy_is_no_proof() {
    let mut world = copied();
    let mut order = (*world.snapshots[0]).clone();
    order.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
    order.spec.deletion_policy = resources::CopyPolicy::Delete;
    world.unheeded = true;
    world.snapshots[0] = std::sync::Arc::new(order);
    assert!(!passes(&mut world, 5).iter().any(destroys));
    let waits = passes(&mut world, 1).remove(0);
    let text = format!("{:?}", waits.state(Part::LastCopy));
    assert!(matches!(waits.state(Part::LastCopy), Some(State::Running(_))), "{text}");
    assert!(text.contains("is being deleted"), "{text}");
}

/// Whether an order is being deleted with its copy is not known, nor which there are at all.
#[test]
fn while_orders_are_not_seen_none_is_given_and_no_disk_is_destroyed() {
    let refused = || Unseen::Refused("grant it".to_owned());
    for (unseen, broken) in
        [(Unseen::Yet, false), (Unseen::Broken("it broke".to_owned()), false), (refused(), true)]
    {
        for start in [copied, || on_the_way(serving(), purge_with_copy, |world| !world.snapshots.is_empty())]
        {
            let mut world = start();
            let orders = world.snapshots.len();
            world.children.copies_unseen = Some(unseen.clone());
            let plans = passes(&mut world, 5);
            assert!(!plans.iter().any(destroys) && world.snapshots.len() == orders, "{unseen:?}");
            let asks = |plan: &Plan| plan.actions.iter().any(|action| action.part == Part::LastCopy);
            assert!(!plans.iter().any(asks), "{unseen:?}");
            let state = plans[4].state(Part::LastCopy);
            assert_eq!(matches!(state, Some(State::Broken(_))), broken, "{state:?}");
            world.children.copies_unseen = None;
            settle(&mut world, None, false);
            check_gone(&world, None);
        }
    }
}

#[test]
fn nobody_is_asked_for_a_copy_before_the_last_machine_has_ended() {
    let mut world = serving();
    purge_with_copy(&mut world);
    for _ in 0..super::ENOUGH {
        let lives = world.instances.iter().any(|found| found.state != cloud::InstanceState::Terminated);
        let plans = passes(&mut world, 1);
        let asked = plans[0].actions.iter().any(|action| action.part == Part::LastCopy);
        assert!(!(lives && asked), "{:?}", plans[0].actions);
        if asked {
            let order = world.snapshots[0].status.as_ref().and_then(|status| status.phase);
            assert_ne!(order, Some(SnapshotPhase::Failed));
            return;
        }
    }
    panic!("it was never asked for");
}

/// The operator looks away at any moment of a move, and everybody else goes on: the model refuses to give a disk to a machine
/// that is newer than what the disk says.
#[test]
fn a_disk_says_which_machine_may_write_before_it_can() {
    let mut world = serving();
    begin_move(&mut world);
    let mut given = 0;
    for _ in 0..super::ENOUGH {
        let planned = pass(&mut world, &mut 0, None, false);
        let mut alone = world.clone();
        // Somebody has the pod made again meanwhile.
        alone.children.pod = None;
        alone.let_go();
        (0..10).for_each(|_| alone.tick());
        let to = alone.volumes[0].attachments.first().map(|found| found.instance.clone());
        given += usize::from(to.is_some() && to.as_ref() != Some(&world.instances[0].id));
        if planned.is_settled() {
            break;
        }
        world.tick();
    }
    assert!(given > 0, "the disk never went to the next machine");
}

/// EC2 forgets a machine an hour after its end, a status may be wiped, and a token gives another machine a day later.
#[test]
fn a_number_is_given_to_one_machine_only_even_if_nobody_remembers_it() {
    let mut world = on_the_way(serving_plain(), remove_with_copy, succeeded);
    let first = world.copied[0].clone();
    world.instances.clear();
    world.wipe();
    // Its end was never written down, as of a machine that ended by itself.
    world.resource.metadata.annotations.as_mut().unwrap().remove(resources::names::RELEASED);
    change(&mut world, |spec| spec.deletion_protection = true);
    settle(&mut world, None, false);
    check_end(&world, "back");
    assert!(world.written > first.holds, "nothing was written");
    let number = |tags: &cloud::Tags| tags.get(key::GENERATION).and_then(|text| text.parse::<u64>().ok());
    assert!(number(&world.volumes[0].tags) > number(&first.shown.tags), "the first copy would count");
    change(&mut world, |spec| spec.deletion_protection = false);
    settle(&mut world, None, false);
    assert!(world.released && world.volumes.is_empty());
    assert_ne!(world.whole_copy().unwrap().shown.id, first.shown.id);
}

/// The same where even the launch is the same again, because the firewall stayed.
#[test]
fn a_number_that_the_disk_was_given_is_not_asked_for_again() {
    let mut world = paused();
    world.instances.clear();
    world.wipe();
    world.resource.metadata.annotations.as_mut().unwrap().remove(resources::names::RELEASED);
    become_(&mut world, RunState::Running);
    settle(&mut world, None, false);
    check_end(&world, "resumed");
    assert_eq!(
        world.volumes[0].tags.get(key::GENERATION),
        Some("2"),
        "another machine has the number of the first"
    );
}

#[test]
fn ec2_that_may_lag_is_not_asked_for_copies() {
    let world = copied();
    let wish = crate::fixture::validated(&world.resource);
    let mut observed = world.look();
    assert!(crate::copies_to_look_at(&wish, &observed).is_some());
    observed.account.conclusive = false;
    assert_eq!(crate::copies_to_look_at(&wish, &observed), None);
    let mut observed = world.look();
    observed.account.instances[0].state = cloud::InstanceState::ShuttingDown;
    assert_eq!(crate::copies_to_look_at(&wish, &observed), None);
}
