//! Deletion in the foreground: Kubernetes' garbage collector takes away whatever refers to its resource before the operator has said
//! a word. What it finds is nothing, and what older operators left to it is taken from it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Resource;
use resources::{DeletionPolicy, RunState, names};
use serde_json::json;

use super::ends::protected_plain;
use super::identity::is_owned;
use super::model::World;
use super::operations::{become_, change, remove};
use super::{check_serving, pass, serving, settle};
use crate::beside::refers;
use crate::fixture::plain;

const UID: &str = "uid-1";

/// The garbage collector, once somebody has deleted the resource in the foreground.
fn collect(world: &mut World) {
    fn take<K: Resource>(child: &mut Option<Arc<K>>) {
        child.take_if(|found| refers(found.meta(), UID));
    }
    let children = &mut world.children;
    take(&mut children.secret);
    take(&mut children.config);
    take(&mut children.service);
    take(&mut children.headless);
    take(&mut children.stateful_set);
    take(&mut children.claim);
    take(&mut children.network_policy);
    take(&mut children.disruption_budget);
    children.others.retain(|(_, found)| !refers(&found.metadata, UID));
    world.secrets.retain(|found| !refers(&found.metadata, UID));
}

/// The Secret is as older operators made it.
fn refer(world: &mut World) {
    let metadata = &mut Arc::make_mut(world.children.secret.as_mut().unwrap()).metadata;
    metadata.annotations.as_mut().unwrap().remove(names::RESOURCE).unwrap();
    let owner = json!({
        "apiVersion": "crd.questdb.io/v1", "kind": names::KIND, "name": metadata.name, "uid": UID, "controller": true,
        "blockOwnerDeletion": false,
    });
    metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
}

/// The Secret, however often it was written.
fn secret(world: &World) -> Option<Secret> {
    let mut secret = world.children.secret.as_deref().cloned()?;
    secret.metadata.resource_version = None;
    Some(secret)
}

#[test]
fn a_protected_database_loses_nothing() {
    let mut world = protected_plain();
    settle(&mut world, None, false);
    let before = (format!("{:?}", world.children), world.pod_uid());
    remove(&mut world);
    collect(&mut world);
    assert_eq!((format!("{:?}", world.children), world.pod_uid()), before);
}

#[test]
fn credentials_of_older_operators_are_taken_from_their_resource_in_every_run_state() {
    for run_state in [RunState::Running, RunState::Paused, RunState::Deleted] {
        let mut world = serving();
        become_(&mut world, run_state);
        settle(&mut world, None, false);
        let (before, pod) = (secret(&world), world.children.pod.clone());
        refer(&mut world);
        settle(&mut world, None, false);
        assert_eq!(secret(&world), before, "{run_state:?}");
        assert_eq!(world.children.pod, pod, "{run_state:?}");
        collect(&mut world);
        assert_eq!(secret(&world), before, "{run_state:?}");
        if run_state == RunState::Running {
            check_serving(&world, None);
        }
    }
}

#[test]
fn credentials_of_older_operators_are_taken_from_what_is_deleted_already_before_all_else() {
    for policy in [DeletionPolicy::Retain, DeletionPolicy::Delete] {
        let mut world = World::new(plain());
        settle(&mut world, None, false);
        change(&mut world, |spec| spec.storage.deletion_policy = policy);
        refer(&mut world);
        remove(&mut world);
        pass(&mut world, &mut 0, None, false);
        collect(&mut world);
        assert!(world.children.secret.is_some(), "{policy:?}");
        world.tick();
        settle(&mut world, None, false);
        assert!(world.released, "{policy:?}");
        let kept = world.children.secret.as_deref();
        assert_eq!(kept.is_some(), policy == DeletionPolicy::Retain, "{policy:?}");
        assert!(kept.is_none_or(|found| !is_owned(&found.metadata)), "{kept:?}");
    }
}
