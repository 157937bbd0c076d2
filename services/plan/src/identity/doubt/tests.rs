//! What speaks for a resource and what against it: each condition alone turns the answer.

use cloud::{AttachmentState, Instance, InstanceState, VolumeState};
use resources::names;
use serde_json::json;

use super::*;
use crate::fixture::{DATABASE, settings, subject, volume};
use crate::{build, fixture};

const OWN: &str = "eu-west-1/qdb-acme/trades-33445566";
const FOREIGN: &str = "eu-west-1/qdb-other/trades-33445566";

/// Something that may tell for whom a database was made, and what there is then.
type Proof = (&'static str, fn(&mut Scene));

/// What there is of the database that the resource names.
#[derive(Clone, Default)]
struct Scene {
    holders: Vec<Holder>,
    persistent_volumes: Vec<Arc<PersistentVolume>>,
    nodes: Vec<Arc<Node>>,
    volumes: Vec<Volume>,
    instances: Vec<Instance>,
}

impl Scene {
    fn doubt(&self) -> Option<String> {
        let standing = Standing {
            holders: &self.holders,
            persistent_volumes: &self.persistent_volumes,
            nodes: &self.nodes,
            volumes: &self.volumes,
            instances: &self.instances,
        };
        doubt(&subject(), "the annotation", &standing)
    }

    fn check(&self, expected: Option<&str>, what: &str) {
        let found = self.doubt();
        let right = match (expected, &found) {
            (None, None) => true,
            (Some(part), Some(text)) => text.contains(part),
            _ => false,
        };
        assert!(right, "{what}: {found:?}");
    }

    fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut scene = self.clone();
        change(&mut scene);
        scene
    }
}

fn other(is_believed: bool) -> Holder {
    Holder { name: "qdb-other/forged".to_owned(), is_believed }
}

/// The disk, with this name in the console.
fn named(name: &str) -> Volume {
    let mut volume = volume(50);
    volume.tags = volume.tags.named(name);
    volume
}

fn machine(name: &str) -> Instance {
    let mut machine = fixture::instance();
    machine.tags = machine.tags.named(name);
    machine
}

/// The `PersistentVolume` of the disk for a resource of this namespace.
fn persistent_volume(namespace: &str) -> Arc<PersistentVolume> {
    let subject = Subject { namespace: namespace.to_owned(), ..subject() };
    Arc::new(serde_json::from_value(build::persistent_volume(&subject, &volume(50)).body).unwrap())
}

fn node(namespace: &str) -> Arc<Node> {
    let subject = Subject { namespace: namespace.to_owned(), ..subject() };
    Arc::new(serde_json::from_value(json!({ "metadata": { "labels": subject.labels() } })).unwrap())
}

fn offered(mut volume: Volume, to: &str) -> Volume {
    volume.tags = volume.tags.with(key::FOR, to);
    volume
}

#[test]
fn what_nobody_else_has_a_claim_to_is_not_doubted() {
    Scene::default().check(None, "nothing was made yet");
    let own = Scene { volumes: vec![named(OWN)], instances: vec![machine(OWN)], ..Scene::default() };
    own.check(None, "by its name in EC2");
}

#[test]
fn a_disk_of_another_namespace_is_doubted_until_something_tells_that_it_may_be_used() {
    let foreign = Scene { volumes: vec![named(FOREIGN)], ..Scene::default() };
    let text = foreign.doubt().unwrap();
    let allows = format!("aws ec2 create-tags --resources vol-1 --tags Key=questdb.io/for,Value={OWN}");
    assert!(
        text.starts_with("vol-1 is not known to belong to this namespace") && text.ends_with(&allows),
        "{text}"
    );

    let disk = |volume: Volume| foreign.with(|scene| scene.volumes = vec![volume]);
    for name in [
        "",
        "trades",
        "us-east-1/qdb-acme/a",
        "eu-west-1/qdb-acme/",
        "eu-west-1/qdb-acme/a/b",
        "eu-west-1/qdb-acmeb/a",
    ] {
        disk(named(name)).check(Some("vol-1"), name);
    }
    disk(volume(50)).check(Some("vol-1"), "no name");
    disk(named("eu-west-1/qdb-acme/another")).check(None, "of another resource of this namespace");
    disk(offered(named(FOREIGN), OWN)).check(None, "offered to this resource");
    disk(offered(named(OWN), FOREIGN)).check(Some("vol-1"), "given away since");
    disk(offered(named(OWN), "eu-west-1/qdb-acme/another")).check(None, "offered within the namespace");
    disk(offered(named(FOREIGN), "eu-west-1/qdb-acme/another")).check(Some("vol-1"), "offered to another");
    let ending = Volume { state: VolumeState::Deleting, ..named(FOREIGN) };
    disk(ending).check(None, "on its way out");

    let told = |volume: Arc<PersistentVolume>| foreign.with(|scene| scene.persistent_volumes = vec![volume]);
    told(persistent_volume("qdb-acme")).check(None, "its PersistentVolume names this very resource");
    told(persistent_volume("qdb-other")).check(Some("vol-1"), "its PersistentVolume names another");
    let mut second = told(persistent_volume("qdb-acme"));
    second.volumes.push(Volume { id: "vol-2".into(), ..named(FOREIGN) });
    second.check(Some("vol-2"), "another disk beside it");
    second.volumes.remove(0);
    second.check(Some("vol-2"), "that of the PersistentVolume is gone");
}

#[test]
fn a_machine_of_another_namespace_is_doubted_like_a_disk() {
    let foreign = Scene { volumes: vec![named(OWN)], instances: vec![machine(FOREIGN)], ..Scene::default() };
    foreign.check(Some("--resources i-1"), "its name");
    let state = |state| foreign.with(|scene| scene.instances[0].state = state);
    state(InstanceState::Terminated).check(None, "it has ended");
    foreign.with(|scene| scene.instances[0] = machine(OWN)).check(None, "its name is ours");
    let allow = |scene: &mut Scene| {
        scene.instances[0].tags = scene.instances[0].tags.clone().with(key::FOR, OWN);
    };
    foreign.with(allow).check(None, "offered to this resource");
    let told = |scene: &mut Scene| scene.persistent_volumes = vec![persistent_volume("qdb-acme")];
    foreign.with(told).check(None, "its disk is known by its PersistentVolume");
    let alone = |scene: &mut Scene| {
        told(scene);
        scene.volumes.clear();
    };
    foreign.with(alone).check(Some("i-1"), "a PersistentVolume without its disk tells nothing of a machine");
}

/// The machine of the database, as it joined.
fn joined(machine: &str) -> Arc<Node> {
    let spec = json!({ "providerID": format!("aws:///eu-west-1a/{machine}") });
    Arc::new(serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap())
}

#[test]
fn what_runs_on_a_machine_outside_of_the_cluster_is_doubted() {
    let mut disk = named(OWN);
    disk.attachments = vec![Attachment {
        volume: disk.id.clone(),
        instance: fixture::instance().id,
        device: "/dev/sdf".to_owned(),
        state: AttachmentState::Attached,
        goes_with_machine: false,
    }];
    // A backup brings its PersistentVolume along.
    let apart = Scene {
        volumes: vec![disk],
        instances: vec![machine(OWN)],
        persistent_volumes: vec![persistent_volume("qdb-acme")],
        ..Scene::default()
    };
    let text = apart.doubt().unwrap();
    let allows = format!("aws ec2 create-tags --resources vol-1 --tags Key=questdb.io/for,Value={OWN}");
    assert!(
        text.starts_with("vol-1 is on i-1, which runs and is no Node of this cluster")
            && text.ends_with(&allows),
        "{text}"
    );
    for (state, is_doubted) in [
        (InstanceState::Pending, true),
        (InstanceState::Stopping, true),
        (InstanceState::Stopped, false),
        (InstanceState::ShuttingDown, false),
        (InstanceState::Terminated, false),
    ] {
        let what = state.to_string();
        let scene = apart.with(|scene| scene.instances[0].state = state);
        scene.check(is_doubted.then_some("vol-1 is on i-1"), &what);
    }
    apart.with(|scene| scene.nodes = vec![joined("i-1")]).check(None, "it is a Node here");
    apart.with(|scene| scene.nodes = vec![joined("i-11")]).check(Some("vol-1"), "another one is");
    apart.with(|scene| scene.nodes = vec![node("qdb-acme")]).check(Some("vol-1"), "nobody knows which it is");
    apart.with(|scene| scene.instances.clear()).check(None, "on no machine of the database");
    let left = |scene: &mut Scene| scene.volumes[0].attachments[0].state = AttachmentState::Detached;
    apart.with(left).check(None, "it has left the machine");
    let given = |scene: &mut Scene| scene.volumes[0] = offered(scene.volumes[0].clone(), OWN);
    apart.with(given).check(None, "somebody has named this resource on it");
}

#[test]
fn another_holder_counts_unless_it_only_says_so_of_what_was_made_for_this_resource() {
    let stands =
        format!("qdb-other/forged stands for database {DATABASE} already, which the annotation names too");
    let held = |is_believed| Scene { holders: vec![other(is_believed)], ..Scene::default() };
    held(true).check(Some(&stands), "believed");
    held(false).check(Some(&stands), "not believed, and nothing tells for whom it was made");
    let loose = Holder { name: "qdb-acme/loose".to_owned(), is_believed: false };
    for holders in [vec![loose.clone(), other(true)], vec![other(true), loose]] {
        Scene { holders, ..Scene::default() }.check(Some(&stands), "the one that is believed is told");
    }

    let proofs: [Proof; 5] = [
        ("a PersistentVolume", |scene| scene.persistent_volumes = vec![persistent_volume("qdb-acme")]),
        ("a Node", |scene| scene.nodes = vec![node("qdb-acme")]),
        ("a name in EC2", |scene| scene.volumes = vec![named(OWN)]),
        ("the name of a machine", |scene| scene.instances = vec![machine(OWN)]),
        ("an offer", |scene| scene.volumes = vec![offered(named(FOREIGN), OWN)]),
    ];
    for (what, prove) in proofs {
        held(true)
            .with(prove)
            .check(Some(&stands), &format!("{what} proves nothing against what is believed"));
        held(false).with(prove).check(None, what);
        let second = |scene: &mut Scene| {
            prove(scene);
            scene.holders.push(other(true));
        };
        held(false).with(second).check(Some(&stands), &format!("{what}, and one behind it is believed"));
    }
    let no_proofs: [Proof; 5] = [
        ("another's PersistentVolume", |scene| {
            scene.persistent_volumes = vec![persistent_volume("qdb-other")];
        }),
        ("another's Node", |scene| scene.nodes = vec![node("qdb-other")]),
        ("another's name", |scene| scene.volumes = vec![named("eu-west-1/qdb-acme/another")]),
        ("a disk that is offered to another", |scene| scene.volumes = vec![offered(named(OWN), FOREIGN)]),
        ("a PersistentVolume of a disk that was given to another since", |scene| {
            scene.persistent_volumes = vec![persistent_volume("qdb-acme")];
            scene.volumes = vec![offered(named(OWN), FOREIGN)];
        }),
    ];
    for (what, change) in no_proofs {
        held(false).with(change).check(Some(&stands), what);
    }
}

#[test]
fn who_names_a_database_in_an_annotation_alone_is_judged_as_whoever_it_is() {
    let mut resource = fixture::plain();
    resource.status = None;
    let naming = Subject::naming(&resource, &settings(), DATABASE).unwrap();
    assert_eq!((Subject::of(&resource, &settings()), naming), (None, subject()));
    assert_eq!(subject().labels()[names::LABEL_DATABASE], DATABASE);
}
