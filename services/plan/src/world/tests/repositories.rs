//! Images come from another repository, or are pulled with another Secret, from some time on: what runs goes on, and what waits for
//! one that is not to be had is made anew.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use resources::{ChangeMeans, Phase, UpgradeResult};
use serde_json::json;

use super::kubernetes::parse;
use super::model::World;
use super::operations::change;
use super::runner::{ENOUGH, pass_under};
use super::{check_serving, phase, serving};
use crate::change::image_of_pod;
use crate::fixture::{resource, settings};
use crate::{Settings, pod};

/// An operator that has images pulled from elsewhere.
fn mirrored() -> Settings {
    Settings { questdb_image: "mirror:5000/questdb".parse().unwrap(), ..settings() }
}

/// A Secret with which each image is to be had.
const KEY: &str = "mirror-key";

/// An operator that has images pulled with that Secret.
fn with_key() -> Settings {
    Settings { image_pull_secrets: vec![KEY.to_owned()], ..settings() }
}

fn has_key(pod: &Pod) -> bool {
    let mut secrets = pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    secrets.any(|secret| secret.name == KEY)
}

fn passes(world: &mut World, settings: &Settings) {
    for _ in 0..ENOUGH {
        pass_under(settings, world, &mut 0, (None, false));
        world.tick();
    }
}

/// The image that a pod is made with.
fn asked(pod: &Pod) -> Option<&str> {
    let mut containers = pod.spec.as_ref()?.containers.iter();
    containers.find(|found| found.name == pod::QUESTDB)?.image.as_deref()
}

/// Whether an image is not to be had under the name by which a pod asks for it, or by its well-known one where that is all that
/// is known.
pub(super) fn is_out_of_reach(names: &[String], pod: &Pod, known: &str) -> bool {
    let asked = asked(pod).unwrap_or(known);
    !has_key(pod) && names.iter().any(|name| name == asked)
}

/// What a pod says whose image is not to be had: what prepares for QuestDB is of the same one, and waits for it first.
pub(super) fn waiting(pod: &Pod, image: &str) -> PodStatus {
    let made = pod.metadata.creation_timestamp.as_ref();
    let condition =
        |kind: &str, status: &str| json!({ "type": kind, "status": status, "lastTransitionTime": made });
    let container = |name: &str, reason: &str| {
        json!({
            "name": name, "image": image, "imageID": "", "ready": false, "restartCount": 0,
            "state": { "waiting": { "reason": reason } },
        })
    };
    parse(&json!({
        "conditions": [condition("PodScheduled", "True"), condition("Ready", "False")],
        "initContainerStatuses": [container(pod::LINK_CONFIG, "ErrImagePull")],
        "containerStatuses": [container(pod::QUESTDB, "PodInitializing")],
    }))
}

fn runs(world: &World) -> Option<&str> {
    asked(world.children.pod.as_deref()?)
}

fn pending(world: &World) -> Vec<(&str, ChangeMeans)> {
    let pending = &world.resource.status.as_ref().unwrap().pending;
    pending.iter().map(|found| (found.field.as_str(), found.means)).collect()
}

#[test]
fn another_repository_is_for_the_next_start_of_each_pod() {
    let mut world = serving();
    let before = world.pod_uid();
    passes(&mut world, &mirrored());
    assert_eq!((world.pod_uid(), runs(&world)), (before, Some("questdb/questdb:9.3.4")), "it runs on");
    assert_eq!(pending(&world), [("/spec", ChangeMeans::Restart)], "it is told");
    check_serving(&world, None);
    change(&mut world, |spec| spec.restart_nonce = Some("once".to_owned()));
    passes(&mut world, &mirrored());
    assert_eq!((runs(&world), pending(&world)), (Some("mirror:5000/questdb:9.3.4"), Vec::new()));
    assert!(world.snapshots.is_empty(), "the same version is no upgrade");
    change(&mut world, |spec| "9.4.0".clone_into(&mut spec.version));
    passes(&mut world, &mirrored());
    assert_eq!(runs(&world), Some("mirror:5000/questdb:9.4.0"));
    let status = world.resource.status.as_ref().unwrap();
    assert_eq!(status.last_upgrade.as_ref().map(|last| last.result), Some(UpgradeResult::Succeeded));
    check_serving(&world, None);
}

#[test]
fn a_pod_that_waits_for_an_image_from_elsewhere_is_made_anew() {
    let mut world = World::new(resource(1));
    world.unpulled = vec!["questdb/questdb:9.3.4".to_owned()];
    passes(&mut world, &settings());
    assert_ne!(phase(&world), Some(Phase::Ready), "its image is not to be had");
    let before = world.pod_uid();
    assert!(before.is_some());
    passes(&mut world, &settings());
    assert_eq!(world.pod_uid(), before, "it waits where it should");
    // As it is kept: what it is made with is not.
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    pod.spec.as_mut().unwrap().containers.clear();
    passes(&mut world, &mirrored());
    assert_ne!(world.pod_uid(), before);
    check_serving(&world, None);
}

#[test]
fn an_image_is_known_by_its_version_wherever_it_comes_from() {
    let known = "questdb/questdb:9.3.4";
    for (image, expected) in [
        (known, known),
        ("mirror:5000/questdb:9.3.4", known),
        ("questdb/questdb:nightly", "questdb/questdb:nightly"),
        ("mirror:5000/questdb", "mirror:5000/questdb"),
        ("mirror/questdb@sha256:0123", "mirror/questdb@sha256:0123"),
    ] {
        let pod = json!({ "spec": { "containers": [{ "name": "questdb", "image": image }] } });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        assert_eq!(image_of_pod(&pod).as_deref(), Some(expected), "{image}");
    }
}

#[test]
fn another_secret_is_for_the_next_start_of_each_pod() {
    let mut world = serving();
    let before = world.pod_uid();
    passes(&mut world, &with_key());
    assert_eq!(world.pod_uid(), before, "it runs on");
    assert_eq!(pending(&world), [("/spec", ChangeMeans::Restart)], "it is told");
    check_serving(&world, None);
    change(&mut world, |spec| spec.restart_nonce = Some("once".to_owned()));
    passes(&mut world, &with_key());
    assert!(world.children.pod.as_deref().is_some_and(has_key));
    assert_eq!(pending(&world), []);
    // Taken away it is for the next start as well.
    let before = world.pod_uid();
    passes(&mut world, &settings());
    assert_eq!((world.pod_uid(), pending(&world)), (before, vec![("/spec", ChangeMeans::Restart)]));
}

#[test]
fn a_pod_that_waits_for_an_image_without_the_secret_is_made_anew() {
    let mut world = World::new(resource(1));
    world.unpulled = vec!["questdb/questdb:9.3.4".to_owned()];
    passes(&mut world, &settings());
    assert_ne!(phase(&world), Some(Phase::Ready), "its image is not to be had");
    let before = world.pod_uid();
    passes(&mut world, &with_key());
    assert_ne!(world.pod_uid(), before);
    check_serving(&world, None);
}
