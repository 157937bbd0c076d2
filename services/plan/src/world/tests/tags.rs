//! Tags in EC2 that somebody changed by hand come back, and nothing is lost or made again meanwhile.

use cloud::{Tags, key};

use super::model::World;
use super::{check_serving, pass, serving, settle};
use crate::fixture::validated;
use crate::{Children, Step, is_still_ours, lost};

/// Ids of machine, disk and firewall.
fn ids(world: &World) -> [String; 3] {
    [world.instances[0].id.to_string(), world.volumes[0].id.to_string(), world.groups[0].id.to_string()]
}

#[test]
fn each_tag_of_ours_comes_back_by_one_step() {
    let keys = [key::CLUSTER, key::DATABASE, key::ROLE, key::GENERATION, key::NAME];
    for (number, key) in (0..3).flat_map(|number| keys.map(|key| (number, key))) {
        for value in [None, Some("other")] {
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

#[test]
fn what_is_missing_by_its_tags_is_asked_for_by_its_id() {
    let world = serving();
    assert_eq!(lost(&world.resource, &world.look()), crate::Lost::default());
    let mut observed = world.look();
    observed.account.instances.clear();
    observed.account.volumes.clear();
    let found = lost(&world.resource, &observed);
    assert_eq!(found.instance.as_ref(), Some(&world.instances[0].id));
    assert_eq!(found.volume.as_ref(), Some(&world.volumes[0].id));
    let mut without_status = world.resource.clone();
    without_status.status = None;
    assert_eq!(
        lost(&without_status, &observed).volume.as_ref(),
        Some(&world.volumes[0].id),
        "by its PersistentVolume"
    );
    observed.children = Children::default();
    assert_eq!(lost(&without_status, &observed), crate::Lost::default());
    assert_eq!(
        lost(&world.resource, &observed).volume.as_ref(),
        Some(&world.volumes[0].id),
        "by the last report"
    );
}

#[test]
fn a_disk_whose_tags_were_taken_off_in_favour_of_another_is_let_be() {
    let world = serving();
    let mut observed = world.look();
    let mut other = observed.account.volumes[0].clone();
    other.id = cloud::VolumeId::new("vol-other");
    observed.account.volumes = vec![other];
    assert_eq!(lost(&world.resource, &observed).volume, None);
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
