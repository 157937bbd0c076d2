//! Whose is what: a resource that is replaced, restored or made again finds its database, and an object that lost its
//! labels is put right.

use std::sync::Arc;

use cloud::InstanceState;
use kube::Resource;
use kube::core::ObjectMeta;
use resources::{DeletionPolicy, QuestDBStatus, RunState, names};
use serde_json::json;

use super::model::{Refusal, World};
use super::operations::change;
use super::{ENOUGH, check_serving, pass, settle, wish};
use crate::fixture::{DATABASE, plain, settings, subject};
use crate::{Goal, Identity, Kind, Part, State, Step, Trace, identify, trace_of, traces_in_aws};

impl World {
    /// The resource is let go, after the operator's last look.
    pub(super) fn release(&mut self) -> Result<(), Refusal> {
        if self.children.secret.as_deref().is_some_and(|found| is_owned(&found.metadata)) {
            if Goal::of(&self.resource) == Goal::Purge {
                self.children.secret = None;
            }
            return Err("the Secret is still there");
        }
        self.released = true;
        Ok(())
    }
}

/// Whether something is to go with its resource.
pub(super) fn is_owned(object: &ObjectMeta) -> bool {
    crate::is_owned(object, "uid-1") || crate::is_owned(object, "uid-2")
}

/// A database of a resource that people wrote, with a disk that goes with it.
fn served() -> World {
    let mut resource = plain();
    resource.spec.storage.deletion_policy = DeletionPolicy::Delete;
    let mut world = World::new(resource);
    settle(&mut world, None, false);
    world
}

fn remove(world: &mut World) {
    world.resource.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    settle(world, None, false);
    assert!(
        world.released && world.volumes.is_empty() && world.groups.is_empty() && world.records.is_empty()
    );
    assert!(
        world.instances.iter().all(|found| found.state == InstanceState::Terminated),
        "{:?}",
        world.instances
    );
}

/// What `kubectl replace` leaves: the spec and the status.
fn replace(world: &mut World) {
    world.resource.metadata.annotations = None;
    world.resource.metadata.finalizers = None;
}

#[test]
fn a_replaced_resource_keeps_its_machine_and_disk_and_loses_both_when_it_is_deleted() {
    let mut world = served();
    let before = (world.instances.clone(), world.volumes[0].id.clone(), world.children.pod.clone());
    replace(&mut world);
    settle(&mut world, None, false);
    assert_eq!((world.instances.clone(), world.volumes[0].id.clone(), world.children.pod.clone()), before);
    let annotations = world.resource.metadata.annotations.clone().unwrap();
    assert_eq!(
        (annotations[names::ADOPTED_ID].as_str(), annotations[names::GENERATION].as_str()),
        (DATABASE, "1")
    );
    assert_eq!(world.resource.metadata.finalizers, Some(vec![names::FINALIZER.to_owned()]));
    remove(&mut world);
}

#[test]
fn an_annotation_that_is_taken_off_alone_comes_back() {
    let mut world = served();
    world.resource.metadata.annotations.as_mut().unwrap().remove(names::ADOPTED_ID);
    let planned = pass(&mut world, &mut 0, None, false);
    let steps: Vec<&Step> = planned.actions.iter().map(|action| &action.step).collect();
    assert!(
        matches!(steps.as_slice(), [Step::AddFinalizer { identity: Some(id) }] if id == DATABASE),
        "{steps:?}"
    );
    assert_eq!(world.resource.metadata.annotations.as_ref().unwrap()[names::ADOPTED_ID], DATABASE);
}

#[test]
fn an_annotation_that_is_left_to_somebody_else_keeps_nobody_from_the_database() {
    let mut world = served();
    let annotations = world.resource.metadata.annotations.as_mut().unwrap();
    annotations.insert(names::ADOPTED_ID.to_owned(), "theirs".to_owned());
    let told = |world: &mut World| {
        let planned = pass(world, &mut 0, None, false);
        planned.actions.into_iter().map(|action| action.step).collect::<Vec<_>>()
    };
    let seen = world.clone();
    assert!(matches!(told(&mut world).as_slice(), [Step::AddFinalizer { identity: Some(_) }]));
    world = seen;
    world.memory.identity_left = true;
    assert_eq!(told(&mut world), []);
    assert_eq!(world.resource.metadata.annotations.as_ref().unwrap()[names::ADOPTED_ID], "theirs");
    change(&mut world, |spec| spec.storage.size_gib = 80);
    settle(&mut world, None, false);
    assert_eq!(world.volumes[0].size_gib, 80);
    // Whoever takes the finalizer off as well has that put back.
    replace(&mut world);
    assert!(matches!(told(&mut world).as_slice(), [Step::AddFinalizer { identity: None }]));
}

#[test]
fn each_step_after_a_replacement_may_be_the_last_before_the_deletion() {
    for passes in 1..6 {
        let mut world = served();
        replace(&mut world);
        for _ in 0..passes {
            pass(&mut world, &mut 0, None, false);
            world.tick();
        }
        remove(&mut world);
    }
}

/// What an operator finds that knows nothing but the resource's name.
fn traces(world: &World) -> Vec<Trace> {
    let children = &world.children;
    let of = |kind: Kind, found: Option<&ObjectMeta>| {
        found.and_then(|found| trace_of(&world.resource, kind.as_str(), found))
    };
    let found = [
        of(Kind::PersistentVolumeClaim, children.claim.as_deref().map(Resource::meta)),
        of(Kind::Secret, children.secret.as_deref().map(Resource::meta)),
        of(Kind::PersistentVolume, children.persistent_volumes.first().map(|found| found.meta())),
    ];
    let in_aws = traces_in_aws(&world.resource, &settings(), world.instances.iter(), world.volumes.iter());
    found.into_iter().flatten().chain(in_aws).collect()
}

#[test]
fn a_resource_that_lost_even_its_status_is_found_again_by_whatever_is_left() {
    type Lose = fn(&mut World);
    let nothing: Lose = |_| {};
    let kubernetes: Lose = |world| world.children = crate::Children::default();
    let aws: Lose = |world| {
        world.instances.clear();
        world.volumes.clear();
    };
    for (lose, knows) in [(nothing, true), (kubernetes, true), (aws, true)] {
        let mut world = served();
        replace(&mut world);
        world.resource.status = None;
        lose(&mut world);
        let found = identify(&world.resource, &traces(&world));
        assert_eq!(
            matches!(&found, Identity::Found(trace) if trace.database == DATABASE),
            knows,
            "{found:?}"
        );
    }
    let mut world = served();
    kubernetes(&mut world);
    aws(&mut world);
    world.resource.metadata.annotations = None;
    assert_eq!(identify(&world.resource, &traces(&world)), Identity::Mint);
}

#[test]
fn a_resource_that_is_made_again_returns_to_the_disk_and_the_credentials_that_were_kept() {
    let mut world = served();
    world.resource.spec.storage.deletion_policy = DeletionPolicy::Retain;
    let disk = world.volumes[0].id.clone();
    world.resource.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    settle(&mut world, None, false);
    assert!(world.released);
    let secret = world.children.secret.clone().expect("nobody can log in again to what the disk holds");
    assert!(!is_owned(&secret.metadata));

    let mut again = plain();
    again.metadata.uid = Some("uid-2".to_owned());
    again.metadata.annotations = None;
    again.status = None;
    world.resource = again;
    world.released = false;
    let found = traces(&world);
    assert!(found.iter().any(|trace| trace.what == disk.as_str()), "{found:?}");
    let found = identify(&world.resource, &found);
    assert!(matches!(&found, Identity::Found(trace) if trace.database == DATABASE), "{found:?}");
    let status = QuestDBStatus { database_id: Some(DATABASE.to_owned()), ..QuestDBStatus::default() };
    world.resource.status = Some(status);
    settle(&mut world, None, false);
    assert_eq!((world.volumes.len(), &world.volumes[0].id), (1, &disk));
    let adopted = world.children.secret.as_deref().unwrap();
    assert_eq!((&adopted.metadata.uid, &adopted.data), (&secret.metadata.uid, &secret.data));
    assert!(crate::is_owned(&adopted.metadata, "uid-2"), "it would not go with its resource");
}

/// The Secret alone tells of a disk that there was: nothing empty takes its place, and nobody takes the Secret over.
#[test]
fn without_the_disk_that_they_were_kept_beside_credentials_begin_no_other() {
    let mut world = served();
    world.resource.spec.storage.deletion_policy = DeletionPolicy::Retain;
    world.resource.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    settle(&mut world, None, false);
    assert!(world.released);
    world.volumes.clear();
    let mut again = plain();
    again.metadata.uid = Some("uid-2".to_owned());
    world.resource = again;
    world.released = false;
    for _ in 0..5 {
        pass(&mut world, &mut 0, None, false);
        world.tick();
    }
    let planned = pass(&mut world, &mut 0, None, false);
    let told = planned.state(Part::Volume);
    assert!(matches!(told, Some(State::Broken(text)) if text.contains("was kept beside it")), "{told:?}");
    assert!(world.volumes.is_empty() && !is_owned(&world.children.secret.as_deref().unwrap().metadata));
}

/// Whoever takes the labels off leaves the mark alone to tell whose the Secret is.
#[test]
fn credentials_that_are_kept_are_known_by_their_labels_and_keep_their_other_owners() {
    let mut world = served();
    world.resource.spec.storage.deletion_policy = DeletionPolicy::Retain;
    let metadata = &mut Arc::make_mut(world.children.secret.as_mut().unwrap()).metadata;
    let other = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "of-people", "uid": "theirs" });
    metadata.owner_references = Some(vec![serde_json::from_value(other).unwrap()]);
    metadata.labels = None;
    world.resource.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let mut kept = None;
    for _ in 0..ENOUGH {
        let planned = pass(&mut world, &mut 0, None, false);
        if planned.actions.iter().any(|action| matches!(action.step, Step::KeepSecret(_))) {
            kept = world.children.secret.clone();
            break;
        }
        world.tick();
    }
    let kept = kept.expect("it is not kept");
    let metadata = &kept.metadata;
    assert!(subject().owns(metadata.labels.as_ref()), "{metadata:?}");
    let owners: Vec<_> = metadata.owner_references.iter().flatten().map(|owner| owner.uid.as_str()).collect();
    assert_eq!(owners, ["theirs"]);
}

#[test]
fn credentials_go_where_no_disk_stays() {
    let mut world = served();
    world.resource.spec.storage.deletion_policy = DeletionPolicy::Retain;
    change(&mut world, |spec| spec.run_state = RunState::Deleted);
    settle(&mut world, None, false);
    world.volumes.clear();
    world.resource.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    settle(&mut world, None, false);
    assert!(world.released && world.children.secret.is_none());
}

/// Takes our labels off an object of a kind.
fn bare(world: &mut World, kind: Kind) {
    fn strip<K: Resource + Clone>(object: &mut Arc<K>) {
        Arc::make_mut(object).meta_mut().labels = None;
    }
    let children = &mut world.children;
    match kind {
        Kind::Secret => strip(children.secret.as_mut().unwrap()),
        Kind::ConfigMap => strip(children.config.as_mut().unwrap()),
        Kind::Service => strip(children.service.as_mut().unwrap()),
        Kind::StatefulSet => strip(children.stateful_set.as_mut().unwrap()),
        Kind::Pod => strip(children.pod.as_mut().unwrap()),
        Kind::PersistentVolume => strip(&mut children.persistent_volumes[0]),
        Kind::PersistentVolumeClaim => strip(children.claim.as_mut().unwrap()),
        Kind::Node => strip(&mut children.nodes[0]),
        _ => panic!("{} has no labels to lose here", kind.as_str()),
    }
}

#[test]
fn an_object_without_our_labels_gets_them_back_by_one_step() {
    let kinds = [
        Kind::ConfigMap,
        Kind::Service,
        Kind::StatefulSet,
        Kind::Pod,
        Kind::PersistentVolume,
        Kind::PersistentVolumeClaim,
        Kind::Node,
    ];
    for kind in kinds {
        let mut world = super::serving();
        let uids = |world: &World| {
            (world.children.pod.as_ref().unwrap().metadata.uid.clone(), world.volumes.clone())
        };
        let before = uids(&world);
        bare(&mut world, kind);
        let planned = pass(&mut world, &mut 0, None, false);
        let steps: Vec<&Step> = planned.actions.iter().map(|action| &action.step).collect();
        let right = match steps.as_slice() {
            [Step::Apply(manifest)] => manifest.kind == kind && manifest.uid.is_some(),
            [Step::LabelNode { labels, .. }] => {
                kind == Kind::Node && labels.get(names::LABEL_DATABASE).is_some_and(|found| found == DATABASE)
            }
            _ => false,
        };
        assert!(right, "{}: {steps:?}", kind.as_str());
        world.tick();
        settle(&mut world, None, false);
        check_serving(&world, None);
        assert_eq!(uids(&world), before, "{}: nothing was restarted or made again", kind.as_str());
    }
}

#[test]
fn each_label_of_a_pod_comes_back_by_itself_and_without_a_restart() {
    let labels = super::serving().children.pod.as_ref().unwrap().metadata.labels.clone().unwrap();
    assert!(labels.contains_key("app.kubernetes.io/name"), "clients come in by it");
    for key in labels.keys() {
        for theirs in [None, Some("theirs".to_owned())] {
            let mut world = super::serving();
            let uid = world.pod_uid();
            let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
            let found = pod.metadata.labels.as_mut().unwrap();
            found.remove(key);
            found.extend(theirs.map(|theirs| (key.clone(), theirs)));
            settle(&mut world, None, false);
            check_serving(&world, None);
            let found = world.children.pod.as_ref().unwrap().metadata.labels.as_ref();
            assert_eq!((world.pod_uid(), found), (uid, Some(&labels)), "{key}");
        }
    }
}

#[test]
fn a_database_whose_objects_lost_their_labels_can_still_be_purged() {
    let kinds = [
        Kind::StatefulSet,
        Kind::Pod,
        Kind::PersistentVolume,
        Kind::PersistentVolumeClaim,
        Kind::Secret,
        Kind::Node,
    ];
    let mut world = super::serving();
    for kind in kinds {
        bare(&mut world, kind);
    }
    wish(&mut world, 2, |spec| spec.run_state = resources::RunState::Purged);
    let mut taken = 0;
    for _ in 0..ENOUGH {
        if pass(&mut world, &mut taken, None, false).is_settled() {
            break;
        }
        world.tick();
    }
    super::check_gone(&world, None);
    assert_eq!(subject().database, DATABASE);
}
