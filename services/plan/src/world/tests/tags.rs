//! Tags in EC2 that somebody changed by hand come back, and nothing is lost or made again meanwhile.

use cloud::{InstanceState, Tags, Volume, VolumeId, VolumeState, key};
use resources::{Phase, QuestDB, RunState, StepState};

use super::model::World;
use super::operations::end_machine;
use super::reach::condition;
use super::runner::{ENOUGH, record};
use super::{check_gone, check_serving, pass, phase, serving, settle, troubles, wish};
use crate::fixture::{plain, settings, validated};
use crate::{
    Children, Goal, Observed, Part, Plan, State, Step, is_disk_left, is_still_its_disk, is_still_ours, lost,
};

/// Ids of machine, disk and firewall.
fn ids(world: &World) -> [String; 3] {
    [world.instances[0].id.to_string(), world.volumes[0].id.to_string(), world.groups[0].id.to_string()]
}

#[test]
fn each_tag_of_ours_comes_back_by_one_step() {
    let keys = [key::CLUSTER, key::DATABASE, key::ROLE, key::GENERATION, key::QUESTDB, key::NAME];
    for (number, key) in (0..3).flat_map(|number| keys.map(|key| (number, key))) {
        for value in [None, Some("other")] {
            // What went to another cluster is not ours any more.
            if key == key::CLUSTER && value.is_some() {
                continue;
            }
            let mut world = serving();
            let (things, pod) = (ids(&world), world.children.pod.clone());
            let tags = world.tags_of(&things[number]).unwrap();
            let before = tags.clone();
            // A name for people that is there is left as it is.
            if before.get(key).is_none() || (key == key::NAME && value.is_some()) {
                continue;
            }
            let others: Tags = before.iter().filter(|(found, _)| *found != key).collect();
            *tags = value.map_or_else(|| others.clone(), |value| others.clone().with(key, value));
            let what = format!("{} {key} {value:?}", things[number]);
            let planned = pass(&mut world, &mut 0, None, false);
            let steps: Vec<&Step> = planned.actions.iter().map(|action| &action.step).collect();
            assert!(
                matches!(steps.as_slice(), [Step::Tag { resource, .. }] if *resource == things[number]),
                "{what}: {steps:?}"
            );
            world.tick();
            settle(&mut world, None, false);
            check_serving(&world, None);
            assert_eq!((ids(&world), world.children.pod.clone()), (things.clone(), pod), "{what}");
            assert_eq!(world.tags_of(&things[number]), Some(&mut before.clone()), "{what}");
        }
    }
}

/// Somebody took its name off the disk, and put other tags there, as many as it may have.
#[test]
fn a_name_for_people_that_is_refused_keeps_no_database_from_its_next_machine() {
    let mut world = serving();
    let [_, disk, _] = ids(&world);
    let tags = world.tags_of(&disk).unwrap();
    let others: Tags = tags.iter().filter(|(found, _)| *found != key::NAME).collect();
    *tags = others;
    world.full.tags = true;
    end_machine(&mut world, 0);
    pass(&mut world, &mut 0, None, false);
    let (ready, text) = condition(&world, "Ready").unwrap();
    assert!(ready == "False" && !text.contains("tags"), "a machine is what it lacks: {text}");
    for _ in 0..ENOUGH {
        pass(&mut world, &mut 0, None, false);
        world.tick();
    }
    assert_eq!((world.instances.len(), condition(&world, "Ready").unwrap().0), (2, "True"));
    assert_ne!(phase(&world), Some(Phase::Ready), "it is told");
    world.full.tags = false;
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert!(world.tags_of(&disk).unwrap().get(key::NAME).is_some());
}

#[test]
fn what_is_missing_by_its_tags_is_asked_for_by_its_id() {
    let world = serving();
    let wish = validated(&world.resource);
    let lost = |resource: &QuestDB, observed: &Observed| lost(resource, &wish, observed);
    assert_eq!(lost(&world.resource, &world.look()), crate::Lost::default());
    let mut observed = world.look();
    observed.account.instances.clear();
    observed.account.volumes.clear();
    observed.account.groups.clear();
    let found = lost(&world.resource, &observed);
    assert_eq!(found.instances, [world.instances[0].id.clone()]);
    assert_eq!(found.volume.as_ref(), Some(&world.volumes[0].id));
    assert_eq!(found.group.as_ref(), Some(&world.groups[0].name));
    let mut without_status = world.resource.clone();
    without_status.status = None;
    assert_eq!(
        lost(&without_status, &observed).volume.as_ref(),
        Some(&world.volumes[0].id),
        "by its PersistentVolume"
    );
    observed.children = Children::default();
    without_status.metadata.annotations = None;
    assert_eq!(lost(&without_status, &observed), crate::Lost::default());
    assert_eq!(
        lost(&world.resource, &observed).volume.as_ref(),
        Some(&world.volumes[0].id),
        "by the last report"
    );
}

/// What is seen of a database of which EC2 shows only this disk by its tags.
fn shown_only(world: &World, disk: &Volume) -> Observed {
    let mut observed = world.look();
    observed.account.volumes = vec![disk.clone()];
    observed
}

#[test]
fn the_disk_that_is_reported_is_asked_for_by_its_id_beside_another_one() {
    let serving = serving();
    let wish = validated(&serving.resource);
    let (disk, subject) = (serving.volumes[0].clone(), &wish.subject);
    let other = Volume { id: VolumeId::new("vol-other"), ..disk.clone() };
    let asked = |observed: &Observed| lost(&serving.resource, &wish, observed).volume;
    assert_eq!(asked(&shown_only(&serving, &other)), Some(disk.id.clone()));
    assert_eq!(asked(&shown_only(&serving, &disk)), None, "nobody is asked about what is shown");
    let ending = Volume { state: VolumeState::Deleting, ..disk.clone() };
    assert_eq!(asked(&shown_only(&serving, &ending)), None, "nor about what is shown to end");
    let without = |key: &str| -> Tags { disk.tags.iter().filter(|(found, _)| *found != key).collect() };
    for (tags, beside, alone) in [
        (disk.tags.clone(), true, true),
        (without(key::ROLE), true, true),
        // Taken off in favour of the other one.
        (without(key::DATABASE), false, true),
        (without(key::CLUSTER), false, true),
        (Tags::new(), false, true),
        (disk.tags.clone().with(key::CLUSTER, "another"), false, false),
    ] {
        for (shown, expected) in [(&other, beside), (&ending, alone)] {
            let account = shown_only(&serving, shown).account;
            assert_eq!(is_still_its_disk(subject, &account, &tags), expected, "{tags:?} {}", shown.state);
        }
    }
}

#[test]
fn a_copy_is_not_taken_for_the_disk_that_an_answer_leaves_out() {
    let mut world = serving();
    wish(&mut world, 2, |spec| spec.run_state = RunState::Paused);
    settle(&mut world, None, false);
    let disk = world.volumes[0].clone();
    let copy = Volume { id: VolumeId::new("vol-copy"), ..disk.clone() };
    wish(&mut world, 3, |spec| spec.run_state = RunState::Running);
    let planned = |found: Option<&Volume>| {
        let wish = validated(&world.resource);
        let mut observed = shown_only(&world, &copy);
        let is_its = |found: &&Volume| is_still_its_disk(&wish.subject, &observed.account, &found.tags);
        let found = found.filter(is_its).cloned();
        observed.account.volumes.extend(found);
        crate::plan(&world.resource, &wish, &observed, &settings())
    };
    let both = planned(Some(&disk));
    let told = both.state(Part::Volume);
    assert!(
        matches!(told, Some(State::Broken(text)) if text.contains("vol-copy") && text.contains(disk.id.as_str())),
        "{told:?}"
    );
    assert!(!both.actions.iter().any(|action| matches!(action.step, Step::WriteGeneration { .. })));
    let bare = Volume { tags: Tags::new(), ..disk.clone() };
    for gone in [None, Some(&bare)] {
        let told = planned(gone);
        assert!(!matches!(told.state(Part::Volume), Some(State::Broken(_))), "{gone:?}: it takes its place");
    }
}

#[test]
fn a_resource_goes_when_its_disk_is_gone_or_can_be_found_again() {
    let disk = crate::fixture::volume(50);
    let subject = crate::fixture::subject();
    let check = |disk: &Volume, purged: bool, kept: bool| {
        assert_eq!(is_disk_left(&subject, Goal::Purge, disk), purged, "{disk:?}");
        assert_eq!(is_disk_left(&subject, Goal::Retire, disk), kept, "{disk:?}");
    };
    check(&disk, true, false);
    check(&Volume { tags: Tags::new(), ..disk.clone() }, true, true);
    check(&Volume { state: VolumeState::Deleting, ..disk.clone() }, false, false);
    check(&Volume { tags: disk.tags.clone().with(key::CLUSTER, "another"), ..disk }, false, false);
}

#[test]
fn what_names_another_database_is_not_taken_back() {
    let subject = validated(&serving().resource).subject;
    let check = |tags: Tags, expected: bool| assert_eq!(is_still_ours(&subject, &tags), expected, "{tags:?}");
    check(Tags::new(), true);
    check(Tags::new().with(key::DATABASE, "no identity"), true);
    check(Tags::new().with(key::DATABASE, &subject.database), true);
    check(Tags::new().with(key::DATABASE, "0192f3a4-0000-7d8e-9f00-112233445566"), false);
    check(Tags::new().with(key::CLUSTER, &subject.cluster), true);
    check(Tags::new().with(key::CLUSTER, "another"), false);
    assert_eq!(crate::fixture::subject(), subject);
}

/// Takes the tags off disk and firewall.
fn bare(world: &mut World) {
    world.volumes[0].tags = Tags::new();
    world.groups[0].tags = Tags::new();
}

#[test]
fn what_lost_its_tags_is_tagged_again_and_then_destroyed() {
    let purged = || {
        let mut world = serving();
        bare(&mut world);
        wish(&mut world, 2, |spec| spec.run_state = RunState::Purged);
        world
    };
    let steps = settle(&mut purged(), None, false);
    for trouble in troubles(steps).map(Some).chain([None]) {
        let mut world = purged();
        settle(&mut world, trouble, trouble.is_none());
        check_gone(&world, trouble);
    }
}

#[test]
fn a_disk_that_loses_its_tags_on_the_way_to_its_end_is_asked_anew_whose_it_is() {
    let mut world = serving();
    wish(&mut world, 2, |spec| spec.run_state = RunState::Purged);
    let mut destroyed = false;
    for (_, mut world) in record(&mut world).passes {
        let before = pass(&mut world.clone(), &mut 0, None, false);
        destroyed |= destroys(&before);
        let Some(disk) = world.volumes.first_mut() else { continue };
        disk.tags = Tags::new();
        let planned = pass(&mut world, &mut 0, None, false);
        assert!(!destroys(&planned), "{:?}", planned.actions);
        world.tick();
        settle(&mut world, None, false);
        check_gone(&world, None);
    }
    assert!(destroyed, "none of them was about to destroy it");
}

#[test]
fn a_disk_that_is_offered_to_another_resource_is_not_destroyed() {
    let mut world = serving();
    let before = world.volumes[0].tags.clone();
    world.volumes[0].tags = before.clone().with(key::FOR, "eu-west-1/qdb-acme/heir");
    wish(&mut world, 2, |spec| spec.run_state = RunState::Purged);
    let (mut taken, mut told) = (0, None);
    for _ in 0..30 {
        let planned = pass(&mut world, &mut taken, None, false);
        assert!(!destroys(&planned), "{:?}", planned.actions);
        told = planned.state(Part::VolumeRemoval).cloned();
        world.tick();
    }
    let is_told =
        matches!(&told, Some(State::Broken(text)) if text.contains("is offered to eu-west-1/qdb-acme/heir"));
    assert!(is_told && world.volumes.len() == 1, "{told:?}");
    world.volumes[0].tags = before;
    settle(&mut world, None, false);
    check_gone(&world, None);
}

fn destroys(planned: &Plan) -> bool {
    planned.actions.iter().any(|action| matches!(action.step, Step::DeleteVolume { .. }))
}

/// What comes back of the tags of a disk. Not whether QuestDB has begun on it: where nothing says that, it counts as if it had.
fn put_back(tags: &Tags) -> Tags {
    tags.iter().filter(|(found, _)| *found != key::SERVED).collect()
}

#[test]
fn a_disk_that_is_kept_is_tagged_before_its_resource_goes() {
    let removed = || {
        let mut world = World::new(plain());
        settle(&mut world, None, false);
        let disk = world.volumes[0].clone();
        bare(&mut world);
        world.resource.metadata.deletion_timestamp =
            serde_json::from_value(serde_json::json!("2026-01-01T00:00:00Z")).unwrap();
        world.touch();
        (world, disk)
    };
    let steps = settle(&mut removed().0, None, false);
    for trouble in troubles(steps).map(Some).chain([None]) {
        let (mut world, disk) = removed();
        settle(&mut world, trouble, trouble.is_none());
        assert!(world.released && world.groups.is_empty(), "{trouble:?}: {:?}", world.groups);
        let kept = (world.volumes[0].id.clone(), world.volumes[0].tags.clone());
        assert_eq!(kept, (disk.id, put_back(&disk.tags)), "{trouble:?}");
    }
}

#[test]
fn a_disk_at_rest_is_tagged_again() {
    for run_state in [RunState::Paused, RunState::Deleted] {
        let mut world = serving();
        let disk = world.volumes[0].tags.clone();
        wish(&mut world, 2, |spec| spec.run_state = run_state);
        settle(&mut world, None, false);
        world.volumes[0].tags = Tags::new();
        let planned = pass(&mut world, &mut 0, None, false);
        assert_eq!(planned.actions.len(), 1, "{:?}", planned.actions);
        assert_eq!(world.volumes[0].tags, put_back(&disk));
    }
}

#[test]
fn what_bears_the_tags_of_another_is_never_destroyed() {
    for tags in [
        Tags::new().with(key::CLUSTER, "another"),
        Tags::new().with(key::DATABASE, "0192f3a4-0000-7d8e-9f00-112233445566"),
    ] {
        let mut world = serving();
        (world.volumes[0].tags, world.groups[0].tags) = (tags.clone(), tags);
        let before = (world.volumes[0].tags.clone(), world.groups.clone());
        wish(&mut world, 2, |spec| spec.run_state = RunState::Purged);
        settle(&mut world, None, false);
        assert!(world.instances.iter().all(|found| found.state == InstanceState::Terminated));
        assert_eq!((world.volumes[0].tags.clone(), world.groups), before);
    }
}

#[test]
fn a_firewall_is_looked_for_only_while_there_may_be_one() {
    let name = Some(serving().groups[0].name.clone());
    let looked_for = |world: &World| {
        let mut observed = world.look();
        observed.account.groups.clear();
        lost(&world.resource, &validated(&world.resource), &observed).group
    };
    assert_eq!(looked_for(&World::new(crate::fixture::resource(1))), None, "nothing was made yet");
    let mut world = serving();
    assert_eq!(looked_for(&world), name);
    wish(&mut world, 2, |spec| spec.run_state = RunState::Deleted);
    assert_eq!(looked_for(&world), name);
    settle(&mut world, None, false);
    assert_eq!(looked_for(&world), None, "the report says that it is gone");
    let steps = &world.resource.status.as_ref().unwrap().steps;
    let removal = steps.iter().find(|step| step.name == Part::SecurityGroupRemoval.as_str()).unwrap();
    assert_eq!(removal.state, StepState::Succeeded);
    wish(&mut world, 3, |spec| spec.run_state = RunState::Purged);
    assert_eq!(looked_for(&world), name, "that was another wish");
}

#[test]
fn what_goes_does_not_wait_for_a_name_for_people() {
    let mut world = serving();
    let mut tagged = 0;
    wish(&mut world, 2, |spec| spec.run_state = RunState::Purged);
    for _ in 0..super::ENOUGH {
        // Somebody takes it off again and again.
        for id in ids_left(&world) {
            let tags = world.tags_of(&id).unwrap();
            *tags = tags.iter().filter(|(found, _)| *found != key::NAME).collect();
        }
        let planned = pass(&mut world, &mut 0, None, false);
        tagged += planned.actions.iter().filter(|action| matches!(action.step, Step::Tag { .. })).count();
        world.tick();
    }
    assert_eq!((tagged, world.volumes.len()), (0, 0));
}

fn ids_left(world: &World) -> Vec<String> {
    let machines = world.instances.iter().map(|found| found.id.to_string());
    let disks = world.volumes.iter().map(|found| found.id.to_string());
    machines.chain(disks).chain(world.groups.iter().map(|found| found.id.to_string())).collect()
}
