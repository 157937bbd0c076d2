//! Every step fails once, every step runs twice: the end is the same, with nothing double and nothing left over.

mod apart;
mod aws;
mod beside;
mod blind;
mod change;
mod clinging;
mod copies;
mod coverage;
mod credentials;
mod credentials_lost;
mod credentials_refused;
mod disk;
mod drift;
mod emptied;
mod ends;
mod enumerated;
mod firewall;
mod foreground;
mod gone;
mod half;
mod held;
mod identity;
mod keys;
mod kubernetes;
mod last_copy;
mod last_of_row;
mod late;
mod machine_groups;
mod machine_metadata;
mod misspelt;
mod model;
mod moves;
mod news;
mod operations;
mod oracle;
mod other_disk;
mod outdated;
mod overwritten;
mod portless;
mod protected;
mod reach;
mod records;
mod references;
mod rehearsal;
mod reload;
mod rename;
mod repositories;
mod rivals;
mod runner;
mod sequences;
mod shut_out;
mod silent;
mod source;
mod states;
mod suspended_tables;
mod tags;
mod taken_back;
mod twins;
mod unbegun;
mod unclaimed;
mod unjoined;
mod unmade;
mod unserved;
mod untold;
mod upgrades;
mod versions;
mod withheld;
mod zones;

use std::sync::LazyLock;

use cloud::{DnsRecord, InstanceState};
use jiff::Timestamp;
use resources::{Phase, RunState, names};
use serde_json::json;

use crate::fixture::{resource, settings};
use crate::{Part, State, Step, refused};
use model::World;
use runner::{ENOUGH, Trouble, pass, settle, troubles};

fn phase(world: &World) -> Option<Phase> {
    world.resource.status.as_ref().unwrap().phase
}

fn check_serving(world: &World, trouble: Option<Trouble>) {
    assert_eq!(phase(world), Some(Phase::Ready), "{trouble:?}");
    let living: Vec<_> = world.instances.iter().filter(|instance| !instance.state.is_ending()).collect();
    assert!(living.iter().all(|instance| world.is_protected(&instance.id)), "{trouble:?}: not protected");
    let counts =
        (living.len(), world.volumes.len(), world.groups.len(), world.records.len(), world.secrets_drawn);
    assert_eq!(counts, (1, 1, 1, oracle::records_wanted(world), 1), "{trouble:?}");
    let status = world.resource.status.as_ref().unwrap();
    assert_eq!(status.instruction.as_ref().map(|done| done.seq), world.resource.metadata.generation);
    assert!(status.endpoints.is_some() && status.credentials_secret.is_some());
}

fn check_gone(world: &World, trouble: Option<Trouble>) {
    assert_eq!(phase(world), Some(Phase::Deleted), "{trouble:?}");
    assert!(
        world.instances.iter().all(|instance| instance.state == InstanceState::Terminated),
        "{trouble:?}"
    );
    assert!(world.volumes.is_empty() && world.groups.is_empty() && world.records.is_empty(), "{trouble:?}");
    let children = &world.children;
    assert!(children.secret.is_none() && children.claim.is_none() && children.persistent_volumes.is_empty());
    assert!(children.nodes.is_empty() && children.pod.is_none() && children.stateful_set.is_none());
}

fn serving() -> World {
    static SERVING: LazyLock<World> = LazyLock::new(|| {
        let mut world = World::new(resource(1));
        settle(&mut world, None, false);
        check_serving(&world, None);
        world
    });
    SERVING.clone()
}

/// The same world with another wish.
fn wish(world: &mut World, seq: i64, change: impl FnOnce(&mut resources::QuestDBSpec)) {
    world.touch();
    world.resource.metadata.generation = Some(seq);
    world.resource.spec.instruction.as_mut().unwrap().seq = seq;
    change(&mut world.resource.spec);
}

#[test]
fn a_settled_database_has_nothing_to_do() {
    let mut world = serving();
    let before = world.resource.status.clone();
    let planned = pass(&mut world, &mut 0, None, false);
    assert_eq!(planned.actions, []);
    assert_eq!(world.resource.status, before, "the report of a settled database does not change");
}

#[test]
fn a_retired_database_keeps_its_disk_and_comes_back_with_it() {
    let mut world = serving();
    let held = |world: &World| {
        let secret = world.children.secret.as_ref().unwrap();
        (world.volumes[0].id.clone(), secret.metadata.uid.clone(), secret.data.clone())
    };
    let before = held(&world);
    wish(&mut world, 2, |spec| spec.run_state = RunState::Deleted);
    settle(&mut world, None, false);
    assert_eq!(phase(&world), Some(Phase::Deleted));
    assert_eq!(world.volumes.len(), 1);
    assert!(world.children.claim.is_some() && world.children.secret.is_some() && world.records.is_empty());
    wish(&mut world, 3, |spec| spec.run_state = RunState::Running);
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(held(&world), before);
    let generation = &world.resource.metadata.annotations.as_ref().unwrap()[names::GENERATION];
    assert_eq!(generation, "2", "the old token would give the old machine");
}

#[test]
fn a_pause_keeps_credentials_and_comes_back() {
    let mut world = serving();
    wish(&mut world, 2, |spec| spec.run_state = RunState::Paused);
    settle(&mut world, None, false);
    assert_eq!(phase(&world), Some(Phase::Paused));
    assert!(world.children.config.is_some() && world.children.secret.is_some());
    wish(&mut world, 3, |spec| spec.run_state = RunState::Running);
    settle(&mut world, None, false);
    check_serving(&world, None);
}

#[test]
fn another_configuration_restarts_the_pod_once() {
    let mut world = serving();
    let pod = world.children.pod.as_ref().unwrap().metadata.uid.clone();
    wish(&mut world, 2, |spec| {
        spec.config.insert("cairo.max.uncommitted.rows".to_owned(), "7".to_owned());
    });
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_ne!(world.children.pod.as_ref().unwrap().metadata.uid, pod);
    assert_eq!(world.instances.len(), 1);
}

#[test]
fn growth_needs_no_restart() {
    let mut world = serving();
    let pod = world.children.pod.as_ref().unwrap().metadata.uid.clone();
    wish(&mut world, 2, |spec| spec.storage.size_gib = 80);
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(world.volumes[0].size_gib, 80);
    let volume = serde_json::to_value(&*world.children.persistent_volumes[0]).unwrap();
    assert_eq!(volume.pointer("/spec/capacity/storage"), Some(&json!("80Gi")));
    let claim = serde_json::to_value(world.children.claim.as_deref()).unwrap();
    assert_eq!(claim.pointer("/spec/resources/requests/storage"), Some(&json!("50Gi")));
    assert_eq!(world.children.pod.as_ref().unwrap().metadata.uid, pod);
}

#[test]
fn a_machine_that_ended_is_followed_by_the_next_generation() {
    let mut world = serving();
    world.instances[0].state = InstanceState::Terminated;
    world.volumes[0].attachments.clear();
    world.children.pod = None;
    world.children.attachments.clear();
    world.resource.status.as_mut().unwrap().phase = Some(Phase::Updating);
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(world.instances.len(), 2);
    assert_eq!(world.volumes[0].tags.get(cloud::key::GENERATION), Some("2"));
}

#[test]
fn a_missing_disk_is_told_and_never_replaced() {
    let mut world = serving();
    world.volumes.clear();
    let planned = pass(&mut world, &mut 0, None, false);
    assert!(!planned.actions.iter().any(|action| matches!(action.step, Step::CreateVolume(_))));
    assert_eq!(phase(&world), Some(Phase::Degraded));

    let mut provisioned = World::new(resource(1));
    provisioned.resource.spec.storage.provisioned = true;
    let mut taken = 0;
    pass(&mut provisioned, &mut taken, None, false);
    let planned = pass(&mut provisioned, &mut taken, None, false);
    assert!(matches!(planned.state(Part::Volume), Some(State::Broken(text)) if text.contains("provisioned")));
    assert!(provisioned.volumes.is_empty() && provisioned.instances.is_empty());
}

#[test]
fn a_name_that_somebody_has_is_left_alone() {
    let taken = DnsRecord::cname("trades-33445566.eu.example.com", 300, "elsewhere.example.org");
    let mut world = World::new(resource(1));
    world.records.push(taken.clone());
    let mut steps = 0;
    for _ in 0..ENOUGH {
        pass(&mut world, &mut steps, None, false);
        world.tick();
    }
    assert_eq!(phase(&world), Some(Phase::Degraded));
    assert_eq!(world.records, std::slice::from_ref(&taken));
    wish(&mut world, 2, |spec| spec.run_state = RunState::Purged);
    settle(&mut world, None, false);
    assert_eq!(world.records, [taken], "what is not ours is not released either");
}

#[test]
fn a_wiped_status_loses_no_decision() {
    let mut world = serving();
    let instances = world.instances.clone();
    world.resource.status = None;
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(world.instances, instances);
}

#[test]
fn lost_annotations_are_found_again_in_the_tags() {
    let mut world = serving();
    let instances = world.instances.clone();
    world.resource.metadata.annotations = None;
    world.resource.status.as_mut().unwrap().phase = Some(Phase::Updating);
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(world.instances, instances);
}

#[test]
fn a_resource_that_people_delete_is_let_go_at_the_end() {
    let mut world = serving();
    world.resource.spec.instruction = None;
    world.resource.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    settle(&mut world, None, false);
    assert!(world.released);
    assert_eq!(world.volumes.len(), 1, "its policy is to retain the disk");
    assert!(world.children.claim.is_none() && world.records.is_empty());
}

#[test]
fn a_wrong_wish_is_told_and_touches_nothing() {
    let world = serving();
    let mut wrong = world.resource.clone();
    wrong.spec.version = "0.0.1".to_owned();
    wrong.metadata.generation = Some(2);
    let subject = crate::fixture::subject();
    let violations = crate::validate(&wrong, subject, &settings()).unwrap_err();
    let report = refused(&wrong, &world.children, &violations, Timestamp::UNIX_EPOCH);
    let accepted =
        report.conditions.iter().find(|found| found.type_ == names::condition::CONFIG_ACCEPTED).unwrap();
    assert_eq!((accepted.status.as_str(), accepted.observed_generation), ("False", Some(2)));
    assert!(accepted.message.contains("/spec/version"), "{}", accepted.message);
    assert_eq!(report.instruction, world.resource.status.unwrap().instruction, "nothing new was carried out");
}
