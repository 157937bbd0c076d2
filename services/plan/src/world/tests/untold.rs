//! EC2 is too busy to tell how far it is with a disk: that is left as it is, and all else goes on.

use cloud::{InstanceState, VolumeChange};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use resources::names::condition;
use resources::{QuestDB, QuestDBStatus};

use super::model::World;
use super::runner::pass;
use super::{serving, wish};
use crate::fixture::{settings, validated};
use crate::{Applied, Kind, Observed, Part, Plan, State, Step};

/// What is seen while EC2 does not tell.
fn untold(world: &mut World) -> (QuestDB, Observed) {
    let (seen, mut observed) = world.see();
    observed.account.modification = None;
    observed.account.modification_untold = Some("EC2 is busy".to_owned());
    (seen, observed)
}

fn planned((seen, observed): &(QuestDB, Observed)) -> Plan {
    crate::plan(seen, &validated(seen), observed, &settings())
}

fn asks(planned: &Plan, is_it: impl Fn(&Step) -> bool) -> bool {
    planned.actions.iter().any(|action| is_it(&action.step))
}

fn changes_disk(step: &Step) -> bool {
    matches!(step, Step::ModifyVolume { .. })
}

fn is_of_disk(step: &Step) -> bool {
    matches!(step, Step::Apply(manifest) if manifest.kind == Kind::PersistentVolume)
}

#[test]
fn a_disk_of_which_ec2_does_not_tell_is_not_changed_and_a_machine_that_ended_is_replaced() {
    let mut world = serving();
    wish(&mut world, 2, |spec| spec.storage.iops = 6_000);
    let mut looked = untold(&mut world);
    let waits = planned(&looked);
    assert!(!asks(&waits, changes_disk), "it may be changing it already: {:?}", waits.actions);
    let state = waits.state(Part::Tuning);
    assert!(matches!(state, Some(State::Running(text)) if text.contains("EC2 is busy")), "{state:?}");
    looked.1.account.instances[0].state = InstanceState::Terminated;
    let heals = planned(&looked);
    assert!(asks(&heals, |step| matches!(step, Step::WriteGeneration { .. })), "{:?}", heals.actions);
    looked.1.account.modification_untold = None;
    assert!(asks(&planned(&looked), changes_disk), "it was never changed");
}

#[test]
fn a_file_system_does_not_grow_before_it_is_known_that_its_disk_has() {
    let mut world = serving();
    let volume = world.volumes[0].id.clone();
    world.begin_modification(&volume, VolumeChange { size_gib: Some(80), ..VolumeChange::default() });
    world.volumes[0].size_gib = 80;
    let mut looked = untold(&mut world);
    assert!(!asks(&planned(&looked), is_of_disk));
    looked.1.account.modification_untold = None;
    assert!(asks(&planned(&looked), is_of_disk), "nothing is said against it");
}

/// What a status says of the disk's change.
fn resizing(status: &QuestDBStatus) -> Option<&Condition> {
    status.conditions.iter().find(|found| found.type_ == condition::VOLUME_RESIZING)
}

#[test]
fn what_was_said_of_a_change_stays_said_until_ec2_tells_more() {
    let mut world = serving();
    wish(&mut world, 2, |spec| spec.storage.iops = 6_000);
    pass(&mut world, &mut 0, None, false);
    let before = world.resource.status.clone().unwrap();
    let said = resizing(&before).cloned();
    assert_eq!(said.as_ref().map(|said| said.status.as_str()), Some("True"));
    let looked = untold(&mut world);
    let (seen, observed) = &looked;
    let done = (&planned(&looked), &Applied::default());
    let now = crate::status(seen, &validated(seen), observed, done, observed.at);
    let (found, said) = (resizing(&now).unwrap(), said.unwrap());
    assert_eq!((&found.status, &found.reason, &found.message), (&said.status, &said.reason, &said.message));
}
