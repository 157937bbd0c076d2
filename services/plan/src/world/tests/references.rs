//! Secrets and `ConfigMaps` of others that a pod names: what serves is not stopped for a pod that would not start, and what is
//! written to them is told and restarts nobody.

use cloud::InstanceState;
use resources::names::condition;
use resources::{ChangeMeans, PodOverrides};
use serde_json::json;

use super::model::World;
use super::operations::change;
use super::{ENOUGH, check_serving, pass, serving, settle};
use crate::references::Reference;
use crate::secrets::Origin;
use crate::{Kind, Part, State};

/// A pod that reads a variable of a `ConfigMap`, and mounts a Secret.
fn reads() -> PodOverrides {
    let env = json!([{ "name": "TZ", "valueFrom": { "configMapKeyRef": { "name": "zone", "key": "tz" } } }]);
    let volumes = json!([{ "name": "ca", "secret": { "secretName": "ca" } }]);
    serde_json::from_value(json!({ "env": env, "volumes": volumes })).unwrap()
}

fn give(world: &mut World, what: Reference, version: &str) {
    let origin = Origin { name: what.name.clone(), uid: "u".to_owned(), version: version.to_owned() };
    world.given.insert(what, origin);
}

fn zone() -> Reference {
    Reference::config_map("zone")
}

fn ca() -> Reference {
    Reference::secret("ca")
}

fn pod(world: &World) -> Option<String> {
    world.children.pod.as_ref()?.metadata.uid.clone()
}

fn told(world: &World) -> Option<(String, String)> {
    let conditions = &world.resource.status.as_ref()?.conditions;
    let found = conditions.iter().find(|found| found.type_ == condition::REFERENCES_FOUND)?;
    Some((found.status.clone(), found.message.clone()))
}

/// What is pending, and why.
fn pending(world: &World) -> Vec<(String, ChangeMeans, String)> {
    let pending = world.resource.status.iter().flat_map(|status| &status.pending);
    pending.map(|found| (found.field.clone(), found.means, found.why.clone())).collect()
}

/// For so long that whatever is about to happen has happened.
fn passes(world: &mut World) -> Option<State> {
    let mut last = None;
    for _ in 0..ENOUGH {
        last = pass(world, &mut 0, None, false).state(Part::Pod).cloned();
        world.tick();
    }
    last
}

/// A database that runs with everything its pod names.
fn reading() -> World {
    let mut world = serving();
    give(&mut world, zone(), "1");
    give(&mut world, ca(), "1");
    change(&mut world, |spec| spec.pod = Some(reads()));
    settle(&mut world, None, false);
    world
}

#[test]
fn what_serves_is_not_stopped_for_a_pod_that_would_not_start() {
    let mut world = serving();
    let before = pod(&world);
    give(&mut world, ca(), "1");
    change(&mut world, |spec| spec.pod = Some(reads()));
    let state = passes(&mut world);
    let text = "the restart waits: ConfigMap zone, which /spec/pod/env/0 names, is not there: make it, or take it out of the spec";
    assert_eq!(state, Some(State::Running(text.to_owned())));
    assert_eq!(pod(&world), before);
    let (status, message) = told(&world).unwrap();
    assert!(
        status == "False" && message.starts_with("ConfigMap zone, which /spec/pod/env/0 names"),
        "{message}"
    );

    give(&mut world, zone(), "1");
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_ne!(pod(&world), before);
    assert_eq!((told(&world).unwrap().0.as_str(), pending(&world)), ("True", Vec::new()));
    // Nothing is named any more.
    change(&mut world, |spec| spec.pod = None);
    settle(&mut world, None, false);
    assert_eq!(told(&world).unwrap().0, "True");
    let template = serde_json::to_string(world.children.stateful_set.as_deref().unwrap()).unwrap();
    assert!(!template.contains(resources::names::READ_AT_START), "{template}");
}

/// Without them the API server takes no pod at all: the one that serves would be stopped, and none would follow.
#[test]
fn what_serves_is_not_stopped_for_a_pod_that_nobody_would_take() {
    for (what, chosen, told) in [
        (
            Reference::service_account("desk"),
            json!({ "serviceAccountName": "desk" }),
            "ServiceAccount desk, which /spec/pod/serviceAccountName names",
        ),
        (
            Reference::priority_class("databases"),
            json!({ "priorityClassName": "databases" }),
            "PriorityClass databases, which /spec/pod/priorityClassName names",
        ),
    ] {
        let mut world = serving();
        let before = pod(&world);
        change(&mut world, |spec| spec.pod = Some(serde_json::from_value(chosen).unwrap()));
        let state = passes(&mut world);
        let text = format!("the restart waits: {told}, is not there: make it, or take it out of the spec");
        assert_eq!(state, Some(State::Running(text)));
        assert_eq!(pod(&world), before);
        give(&mut world, what, "1");
        settle(&mut world, None, false);
        check_serving(&world, None);
        assert_ne!(pod(&world), before);
    }
}

#[test]
fn what_is_not_known_yet_is_not_taken_for_there() {
    let mut world = serving();
    let before = pod(&world);
    give(&mut world, zone(), "1");
    give(&mut world, ca(), "1");
    world.unanswered.insert(ca());
    change(&mut world, |spec| spec.pod = Some(reads()));
    let text =
        "the restart waits: it is not known yet whether there is Secret ca, which /spec/pod/volumes/0 names";
    assert_eq!(passes(&mut world), Some(State::Running(text.to_owned())));
    assert_eq!((pod(&world), told(&world)), (before, None));
    world.unanswered.clear();
    settle(&mut world, None, false);
    assert_eq!(told(&world).unwrap().0, "True");
}

#[test]
fn nobody_is_restarted_for_what_is_written_and_it_is_told_until_the_next_restart() {
    let mut world = reading();
    let before = pod(&world);
    assert_eq!(pending(&world), []);
    give(&mut world, ca(), "2");
    settle(&mut world, None, false);
    assert_eq!(pending(&world), [], "files of a volume follow by themselves");
    give(&mut world, zone(), "2");
    settle(&mut world, None, false);
    let [(field, means, why)] = pending(&world).try_into().unwrap();
    assert_eq!((field.as_str(), means), ("/spec/pod/env/0", ChangeMeans::Restart));
    assert!(why.starts_with("ConfigMap zone was written after the pod was made"), "{why}");
    assert_eq!(pod(&world), before);

    // An operator that has just begun knows nothing yet, and writes nothing.
    world.unanswered = [zone(), ca()].into();
    let set = world.children.stateful_set.clone();
    passes(&mut world);
    assert_eq!((world.children.stateful_set.clone(), pending(&world).len()), (set, 1));
    world.unanswered.clear();

    change(&mut world, |spec| spec.restart_nonce = Some("now".to_owned()));
    settle(&mut world, None, false);
    assert_ne!(pod(&world), before);
    assert_eq!(pending(&world), []);
}

#[test]
fn what_is_taken_away_while_it_runs_is_told_and_stops_nothing() {
    let mut world = reading();
    let before = pod(&world);
    world.given.remove(&ca());
    passes(&mut world);
    check_serving(&world, None);
    let (status, message) = told(&world).unwrap();
    assert!(
        status == "False" && message.starts_with("Secret ca, which /spec/pod/volumes/0 names"),
        "{message}"
    );
    assert_eq!(pod(&world), before);
    // Nor does it move, where it would not start.
    change(&mut world, |spec| "m7i.xlarge".clone_into(&mut spec.compute.instance_type));
    let pinned = world.pinned().map(str::to_owned);
    passes(&mut world);
    assert_eq!(world.pinned().map(str::to_owned), pinned);
    let living = world.instances.iter().filter(|found| found.state == InstanceState::Running);
    assert_eq!((living.count(), pod(&world)), (2, before.clone()), "the next machine is ready and waits");
    give(&mut world, ca(), "2");
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_ne!(pod(&world), before);
}

#[test]
fn what_images_are_pulled_with_may_be_missing_and_is_told() {
    let mut world = serving();
    let before = pod(&world);
    world.unanswered.insert(Reference::secret("registry"));
    let pulls = json!({ "imagePullSecrets": [{ "name": "registry" }] });
    change(&mut world, |spec| spec.pod = Some(serde_json::from_value(pulls).unwrap()));
    settle(&mut world, None, false);
    assert_ne!(pod(&world), before, "it starts without");
    assert_eq!(told(&world), None, "nobody knows yet");
    world.unanswered.clear();
    passes(&mut world);
    let (status, message) = told(&world).unwrap();
    let told = "Secret registry, which /spec/pod/imagePullSecrets/0 names, is not there. Images are pulled without it";
    assert!(status == "False" && message.starts_with(told), "{message}");
}

#[test]
fn a_certificate_that_is_missing_is_told_where_routes_are_asked_for_and_holds_nothing_up() {
    let ask = |world: &mut World, ingress: serde_json::Value| {
        change(world, |spec| spec.network.ingress = Some(serde_json::from_value(ingress).unwrap()));
    };
    let tls = json!({ "secretName": "certificate" });
    let web = json!({ "entryPoints": ["websecure"] });
    let said = "Secret certificate, which /spec/network/ingress/tls/secretName names, is not there. Traefik answers with its default";
    for unknown in [false, true] {
        let mut world = serving();
        world.children.served = [Kind::IngressRoute, Kind::IngressRouteTcp].into_iter().collect();
        let before = pod(&world);
        if unknown {
            world.unanswered.insert(Reference::secret("certificate"));
        }
        ask(&mut world, json!({ "http": web, "tls": tls }));
        change(&mut world, |spec| spec.restart_nonce = Some("now".to_owned()));
        settle(&mut world, None, false);
        check_serving(&world, None);
        assert_ne!(pod(&world), before, "a restart does not wait for it");
        assert_eq!(world.children.others.len(), 1, "the route is made");
        assert_eq!(told(&world).is_none(), unknown, "{:?}", told(&world));
        world.unanswered.clear();
        settle(&mut world, None, false);
        let (status, message) = told(&world).unwrap();
        assert!(status == "False" && message.starts_with(said), "{message}");
        give(&mut world, Reference::secret("certificate"), "1");
        settle(&mut world, None, false);
        assert_eq!(told(&world).unwrap().0, "True");
    }
    // No route asks for it.
    let mut world = serving();
    ask(&mut world, json!({ "tls": tls }));
    settle(&mut world, None, false);
    assert_eq!(told(&world), None);
}

#[test]
fn what_came_after_the_pod_was_made_was_read_by_it() {
    let mut world = World::new(crate::fixture::resource(1));
    world.resource.spec.pod = Some(reads());
    give(&mut world, ca(), "1");
    // The kubelet waits for it, and the model's does not.
    passes(&mut world);
    give(&mut world, zone(), "1");
    settle(&mut world, None, false);
    assert_eq!(pending(&world), []);
    give(&mut world, zone(), "2");
    settle(&mut world, None, false);
    assert_eq!(pending(&world), [], "nobody knows which it read");
}

#[test]
fn of_a_database_that_rests_nothing_is_said_any_more() {
    let mut world = reading();
    world.given.clear();
    passes(&mut world);
    assert_eq!(told(&world).unwrap().0, "False");
    super::operations::become_(&mut world, resources::RunState::Paused);
    settle(&mut world, None, false);
    assert_eq!(told(&world).unwrap().0, "Unknown");
}

#[test]
fn no_copy_is_made_for_a_version_that_waits_for_what_is_missing() {
    let mut world = serving();
    let before = pod(&world);
    change(&mut world, |spec| {
        "m7i.xlarge".clone_into(&mut spec.compute.instance_type);
        "9.4.0".clone_into(&mut spec.version);
        spec.pod = Some(reads());
    });
    passes(&mut world);
    assert_eq!((world.snapshots.len(), pod(&world)), (0, before.clone()));
    give(&mut world, zone(), "1");
    give(&mut world, ca(), "1");
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert!(world.snapshots.len() == 1 && pod(&world) != before);
}
