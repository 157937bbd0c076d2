//! An upgrade that something comes between: what has begun is remembered, what has not is forgotten, and nothing that stands
//! in its way is waited for without need.

use std::sync::Arc;

use cloud::Volume;
use jiff::SignedDuration;
use resources::names::{self, condition};
use resources::{RunState, UpgradeResult, UpgradeStatus};
use serde_json::json;

use super::super::held::larger_and_more_beside;
use super::super::model::World;
use super::super::operations::change;
use super::super::oracle::check_end;
use super::super::runner::{pass, settle};
use super::{broken, image, is_started, last, runs, serving, told, told_of_upgrade, until, wish_for};
use crate::{Kind, Unseen};

#[test]
fn what_has_begun_once_is_remembered_when_its_pod_is_replaced() {
    let mut world = serving();
    world.broken = broken("10.0.0");
    wish_for(&mut world, "10.0.0");
    until(&mut world, |world| told_of_upgrade(world).contains("does not start"));
    assert!(last(&world).begun);
    let then = world.now - SignedDuration::from_mins(11);
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    pod.metadata.uid = Some("another".to_owned());
    let status = json!({
        "conditions": [
            { "type": "PodScheduled", "status": "True", "lastTransitionTime": then },
            { "type": "Ready", "status": "False", "lastTransitionTime": then },
        ],
        "containerStatuses": [{
            "name": "questdb", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "waiting": { "reason": "ErrImagePull" } },
        }],
    });
    pod.status = serde_json::from_value(status).unwrap();
    for _ in 0..4 {
        pass(&mut world, &mut 0, None, false);
    }
    assert!(is_started(&world, "10.0.0") && last(&world).result == UpgradeResult::Running);
    assert!(told_of_upgrade(&world).contains("ErrImagePull"), "{}", told_of_upgrade(&world));
}

/// A pass while two disks carry the tags of the database.
fn pass_with_two_disks(world: &mut World) {
    let copy = Volume { id: "vol-copy".into(), attachments: Vec::new(), ..world.volumes[0].clone() };
    world.volumes.push(copy);
    pass(world, &mut 0, None, false);
    world.volumes.truncate(1);
}

#[test]
fn what_becomes_of_another_version_is_told_while_nobody_knows_which_disk_is_meant() {
    let mut world = serving();
    wish_for(&mut world, "10.0.0");
    until(&mut world, |world| !world.snapshots.is_empty());
    pass_with_two_disks(&mut world);
    let (status, text) = told(&world, condition::UPGRADE_IN_PROGRESS);
    assert_eq!(status, "True", "{text}");
    settle(&mut world, None, false);
    check_end(&world, "upgraded");
    assert!(is_started(&world, "10.0.0"));

    wish_for(&mut world, "9.3.4");
    pass(&mut world, &mut 0, None, false);
    pass_with_two_disks(&mut world);
    let (status, text) = told(&world, condition::CONFIG_ACCEPTED);
    assert!(status == "False" && text.contains("10.0.0 has written"), "{status}: {text}");
    settle(&mut world, None, false);
    check_end(&world, "refused");
}

#[test]
fn what_was_decided_and_never_written_was_never_begun() {
    for pauses in [false, true] {
        let mut world = serving();
        wish_for(&mut world, "10.0.0");
        world.read_only_for = Some(Kind::StatefulSet);
        let is_decided = |world: &World| world.resource.status.as_ref().unwrap().last_upgrade.is_some();
        until(&mut world, is_decided);
        assert!(last(&world).result == UpgradeResult::Running && is_started(&world, "9.3.4"));
        world.read_only_for = None;
        wish_for(&mut world, "9.3.4");
        if pauses {
            pause_and_resume(&mut world);
        }
        settle(&mut world, None, false);
        check_end(&world, "nothing was begun");
        assert!(is_started(&world, "9.3.4"), "{pauses}");
        assert_eq!(world.resource.status.as_ref().unwrap().last_upgrade, None, "{pauses}");
        wish_for(&mut world, "9.4.0");
        settle(&mut world, None, false);
        check_end(&world, "another one");
        assert!(is_started(&world, "9.4.0"), "{pauses}");
    }
}

#[test]
fn a_version_that_has_not_served_is_not_told_as_running_when_it_is_stopped() {
    let mut world = serving();
    world.broken = broken("10.0.0");
    wish_for(&mut world, "10.0.0");
    until(&mut world, |world| is_started(world, "10.0.0") && last(world).begun);
    change(&mut world, |spec| spec.run_state = RunState::Paused);
    settle(&mut world, None, false);
    let text = told_of_upgrade(&world);
    assert!(text.contains("QuestDB 10.0.0 had not served"), "{text}");
    world.broken.clear();
    change(&mut world, |spec| spec.run_state = RunState::Running);
    settle(&mut world, None, false);
    check_end(&world, "resumed");
    change(&mut world, |spec| spec.run_state = RunState::Paused);
    settle(&mut world, None, false);
    assert!(told_of_upgrade(&world).contains("not to serve"), "{}", told_of_upgrade(&world));
}

/// For how many seconds the template lets QuestDB start.
fn patience(world: &World) -> i32 {
    let set = world.children.stateful_set.as_ref().unwrap();
    let pod = set.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    let probe = pod.containers[0].startup_probe.as_ref().unwrap();
    probe.period_seconds.unwrap() * probe.failure_threshold.unwrap()
}

#[test]
fn a_first_start_has_its_time_and_nobody_is_restarted_or_told_once_that_is_over() {
    for (ends, version) in [(false, "9.4.0"), (true, "9.3.4")] {
        let mut world = serving();
        world.broken = if ends { broken("9.4.0") } else { Vec::new() };
        wish_for(&mut world, "9.4.0");
        assert_eq!(patience(&world), 600, "{version}");
        until(&mut world, |world| is_started(world, "9.4.0"));
        assert_eq!(patience(&world), 12 * 3_600, "{version}");
        let pod = world.pod_uid();
        settle(&mut world, None, false);
        assert_eq!(patience(&world), 600, "{version}");
        assert!(is_started(&world, version));
        assert_eq!(world.pod_uid() == pod, !ends, "{version}");
        let pending = &world.resource.status.as_ref().unwrap().pending;
        assert!(ends || pending.is_empty(), "{pending:?}");
    }
}

fn pause_and_resume(world: &mut World) {
    change(world, |spec| spec.run_state = RunState::Paused);
    settle(world, None, false);
    change(world, |spec| spec.run_state = RunState::Running);
    settle(world, None, false);
}

#[test]
fn what_was_written_and_not_begun_before_a_pause_is_not_begun_after_it() {
    let mut world = serving();
    wish_for(&mut world, "10.0.0");
    until(&mut world, |world| image(world).ends_with("10.0.0"));
    assert!(runs(&world).unwrap().ends_with("9.3.4"));
    wish_for(&mut world, "9.3.4");
    pause_and_resume(&mut world);
    check_end(&world, "resumed");
    assert_eq!(told_of_upgrade(&world), "the version that is asked for runs");
    assert!(is_started(&world, "9.3.4") && last(&world).result == UpgradeResult::RolledBack);
    assert_eq!(last(&world).reason.as_deref(), Some("it was to stop before it was started"));
    wish_for(&mut world, "10.0.0");
    settle(&mut world, None, false);
    check_end(&world, "asked for again");
    assert_eq!((last(&world).result, world.snapshots.len()), (UpgradeResult::Succeeded, 2));
}

#[test]
fn a_key_that_nobody_is_restarted_for_holds_no_upgrade_up() {
    let mut world = serving();
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    let text = pod.metadata.annotations.as_mut().unwrap().get_mut(names::RUNNING).unwrap();
    let mut running: serde_json::Value = serde_json::from_str(text).unwrap();
    assert!(running["config"].as_object_mut().unwrap().remove("line.tcp.enabled").is_some());
    *text = running.to_string();
    wish_for(&mut world, "9.4.0");
    settle(&mut world, None, false);
    check_end(&world, "upgraded");
    assert_eq!(last(&world).result, UpgradeResult::Succeeded);
}

/// Pod and StatefulSet as an operator made them that wrote no word on what they run.
fn say_nothing(world: &mut World, keeps_spec: bool) {
    let image = runs(world).unwrap();
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    pod.metadata.annotations.as_mut().unwrap().remove(names::RUNNING);
    if !keeps_spec {
        pod.spec.as_mut().unwrap().containers.clear();
        let status = json!([{
            "name": "questdb", "image": format!("docker.io/{image}"), "imageID": "", "ready": true,
            "restartCount": 0,
        }]);
        pod.status.as_mut().unwrap().container_statuses = serde_json::from_value(status).unwrap();
    }
    assert_eq!(runs(world), Some(image));
    let set = Arc::make_mut(world.children.stateful_set.as_mut().unwrap());
    let template = &mut set.spec.as_mut().unwrap().template;
    template.metadata.as_mut().unwrap().annotations.as_mut().unwrap().remove(names::RUNNING);
}

#[test]
fn what_does_not_say_what_it_runs_is_upgraded_like_everything_else() {
    for keeps_spec in [true, false] {
        let mut world = serving();
        say_nothing(&mut world, keeps_spec);
        wish_for(&mut world, "9.4.0");
        until(&mut world, |world| !image(world).ends_with("9.3.4"));
        assert_eq!(world.snapshots.len(), 1, "a copy first");
        settle(&mut world, None, false);
        check_end(&world, "upgraded");
        assert_eq!((last(&world).result, world.snapshots.len()), (UpgradeResult::Succeeded, 1));
        assert!(last(&world).from.ends_with(":9.3.4"), "{keeps_spec}: {}", last(&world).from);
    }

    let mut world = serving();
    wish_for(&mut world, "10.0.0");
    settle(&mut world, None, false);
    say_nothing(&mut world, true);
    wish_for(&mut world, "9.4.0");
    settle(&mut world, None, false);
    assert!(is_started(&world, "10.0.0"));
    assert!(told(&world, condition::CONFIG_ACCEPTED).1.contains("cannot read"));
}

#[test]
fn when_it_ended_is_told_once() {
    let mut world = serving();
    world.broken = broken("9.4.0");
    wish_for(&mut world, "9.4.0");
    until(&mut world, |world| is_started(world, "9.4.0"));
    world.read_only_for = Some(Kind::StatefulSet);
    until(&mut world, |world| last(world).result == UpgradeResult::RolledBack);
    let first = last(&world);
    for _ in 0..5 {
        pass(&mut world, &mut 0, None, false);
        world.tick();
        assert_eq!(last(&world), first);
    }
    assert!(image(&world).ends_with("9.4.0"), "nothing could be written");
    world.read_only_for = None;
    settle(&mut world, None, false);
    assert!(is_started(&world, "9.3.4") && first.complete);
    let served_since = UpgradeStatus { complete: false, ..first };
    assert_eq!(last(&world), served_since);
}

#[test]
fn no_copy_is_taken_for_a_restart_that_cannot_be_made() {
    let mut world = serving();
    world.clock = SignedDuration::from_mins(1);
    Arc::make_mut(&mut world.children.nodes[0]).spec.get_or_insert_default().unschedulable = Some(true);
    world.full.machines = vec![world.instances[0].zone.clone()];
    wish_for(&mut world, "9.4.0");
    for _ in 0..180 {
        pass(&mut world, &mut 0, None, false);
        world.tick();
    }
    assert!(!world.memory.resting.is_empty(), "no machine was free");
    assert!(world.snapshots.is_empty() && is_started(&world, "9.3.4"), "{}", world.snapshots.len());
    assert!(told_of_upgrade(&world).contains("cordoned"), "{}", told_of_upgrade(&world));
    Arc::make_mut(&mut world.children.nodes[0]).spec.get_or_insert_default().unschedulable = None;
    world.full.machines.clear();
    settle(&mut world, None, false);
    check_end(&world, "uncordoned");
    assert!(is_started(&world, "9.4.0"));
}

#[test]
fn a_next_machine_that_waits_for_the_copy_has_it_taken() {
    let mut world = serving();
    Arc::make_mut(&mut world.children.nodes[0]).spec.get_or_insert_default().unschedulable = Some(true);
    wish_for(&mut world, "9.4.0");
    settle(&mut world, None, false);
    check_end(&world, "moved and upgraded");
    assert!(is_started(&world, "9.4.0"));
    assert_eq!((last(&world).result, world.snapshots.len()), (UpgradeResult::Succeeded, 1));
}

/// What is asked for beside QuestDB waits for a larger machine, and a version that does not start does not.
#[test]
fn what_does_not_start_is_taken_back_while_a_machine_with_room_is_waited_for() {
    let containers = |world: &World| {
        let set = world.children.stateful_set.as_ref().unwrap();
        set.spec.as_ref().unwrap().template.spec.as_ref().unwrap().containers.len()
    };
    let mut world = serving();
    world.broken = broken("9.4.0");
    wish_for(&mut world, "9.4.0");
    until(&mut world, |world| is_started(world, "9.4.0"));
    world.full.machines = vec![world.volumes[0].zone.clone()];
    larger_and_more_beside(&mut world);
    until(&mut world, |world| told(world, "Ready").0 == "True");
    assert!(is_started(&world, "9.3.4") && last(&world).result == UpgradeResult::RolledBack);
    assert_eq!(containers(&world), 1, "there is no room");
    assert!(world.instances.len() == 1, "it has not moved");
    world.full.machines.clear();
    world.memory.resting.clear();
    settle(&mut world, None, false);
    assert!(is_started(&world, "9.3.4"));
    assert_eq!(containers(&world), 2, "there is room");
}

/// Whatever was wished for: only a version that has begun may have written what an older one cannot read.
#[test]
fn a_major_version_that_never_began_keeps_nobody_from_an_older_one() {
    let mut turned = 0;
    for count in 0..12 {
        for unpulled in [false, true] {
            let mut world = serving();
            if unpulled {
                world.unpulled = broken("10.0.0");
            }
            wish_for(&mut world, "10.0.0");
            for _ in 0..count {
                pass(&mut world, &mut 0, None, false);
                world.tick();
            }
            if !runs(&world).is_some_and(|image| image.ends_with("9.3.4")) {
                // It may begin at any moment.
                continue;
            }
            turned += 1;
            world.clock = SignedDuration::from_mins(1);
            wish_for(&mut world, "9.4.0");
            settle(&mut world, None, false);
            assert!(is_started(&world, "9.4.0"), "{count} {unpulled}: {:?}", told_of_upgrade(&world));
        }
    }
    assert!(turned >= 6, "{turned}");
}

/// Nobody can say which copies of the disk there are, perhaps for long: the other version waits for that alone.
#[test]
fn a_move_does_not_wait_until_it_is_known_which_copies_there_are() {
    for unseen in [Unseen::Broken("it broke".to_owned()), Unseen::Refused("apply the definitions".to_owned())]
    {
        let mut world = serving();
        world.children.copies_unseen = Some(unseen.clone());
        change(&mut world, |spec| {
            "9.4.0".clone_into(&mut spec.version);
            "m7i.xlarge".clone_into(&mut spec.compute.instance_type);
        });
        until(&mut world, |world| {
            let machines = world.instances.iter().filter(|found| !found.state.is_ending());
            machines.map(|found| found.instance_type.as_str()).eq(["m7i.xlarge"])
        });
        assert!(is_started(&world, "9.3.4") && told(&world, "Ready").0 == "True", "{unseen:?}");
        assert!(told_of_upgrade(&world).contains("not known which there are"), "{}", told_of_upgrade(&world));
        world.children.copies_unseen = None;
        settle(&mut world, None, false);
        check_end(&world, "upgraded");
        assert!(is_started(&world, "9.4.0"), "{unseen:?}");
    }
}

/// Has somebody write something else over what the StatefulSet says of the last upgrade, or take it off; what it said.
fn write_over(world: &mut World, text: Option<&str>) -> String {
    let set = Arc::make_mut(world.children.stateful_set.as_mut().unwrap());
    let annotations = set.metadata.annotations.as_mut().unwrap();
    let before = annotations.remove(names::UPGRADE);
    annotations.extend(text.map(|text| (names::UPGRADE.to_owned(), text.to_owned())));
    before.unwrap()
}

/// Passes while that cannot be read, after which nothing is otherwise, and that is told.
fn leaves_alone(world: &mut World, image: &str) {
    let before = (last(world), world.snapshots.len());
    for _ in 0..20 {
        pass(world, &mut 0, None, false);
        world.tick();
    }
    assert!(is_started(world, image), "{image}");
    assert_eq!((last(world), world.snapshots.len()), before);
    let (status, text) = told(world, condition::DEGRADED);
    assert!(status == "True" && text.contains("cannot be read (EOF"), "{status}: {text}");
    assert!(told_of_upgrade(world).contains("cannot be read"), "{}", told_of_upgrade(world));
}

#[test]
fn a_record_that_cannot_be_read_is_told_and_nothing_is_begun_or_taken_back_without_it() {
    // It was taken back, and is not tried again for that.
    for is_put_right in [true, false] {
        let mut world = serving();
        world.broken = broken("9.4.0");
        wish_for(&mut world, "9.4.0");
        settle(&mut world, None, false);
        let text = write_over(&mut world, Some("{"));
        leaves_alone(&mut world, "9.3.4");
        assert_eq!(told(&world, "Ready").0, "True");
        // Nor is a report that is older than the record taken for one of what was never begun.
        let mut older = world.clone();
        let reported = older.resource.status.as_mut().unwrap().last_upgrade.as_mut().unwrap();
        reported.result = UpgradeResult::Running;
        pass(&mut older, &mut 0, None, false);
        assert!(is_started(&older, "9.3.4") && last(&older).result == UpgradeResult::Running);
        // A report that is lost makes no difference.
        let reported = world.resource.status.as_mut().unwrap().last_upgrade.take();
        pass(&mut world, &mut 0, None, false);
        assert!(is_started(&world, "9.3.4") && world.snapshots.len() == 1);
        world.resource.status.as_mut().unwrap().last_upgrade = reported;
        assert_eq!(write_over(&mut world, is_put_right.then_some(text.as_str())), "{");
        settle(&mut world, None, false);
        assert!(is_started(&world, "9.3.4") && world.snapshots.len() == 1);
        let (accepted, why) = told(&world, condition::CONFIG_ACCEPTED);
        assert!(accepted == "False" && why.contains("exit code 1"), "{accepted}: {why}");
    }

    // It is being started, and goes on where it was.
    let mut world = serving();
    world.broken = broken("9.4.0");
    wish_for(&mut world, "9.4.0");
    until(&mut world, |world| is_started(world, "9.4.0") && last(world).begun);
    let text = write_over(&mut world, Some("{"));
    leaves_alone(&mut world, "9.4.0");
    write_over(&mut world, Some(&text));
    settle(&mut world, None, false);
    assert!(is_started(&world, "9.3.4") && last(&world).result == UpgradeResult::RolledBack);
}
