//! Every field of the spec and what a change of it takes: told before it is done, and nothing left to tell when it is done.

use std::collections::BTreeSet;
use std::sync::Arc;

use resources::ChangeMeans::{Move, Online, Refused, Restart, Stop};
use resources::{
    ChangeMeans, ComputeSpec, CredentialsSpec, DeletionPolicy, Exposure, NetworkSpec, QuestDBSpec, RunState,
    SecretSpec, StorageSpec, VolumeType, names,
};
use serde_json::json;

use super::model::World;
use super::operations::other_pod;
use super::portless::no_host_ports;
use super::reload::more_connections;
use super::source;
use super::{ENOUGH, check_serving, pass, phase, serving, settle, wish};
use crate::fixture::{settings, validated};
use crate::{Goal, Kind, Plan, Step, plan, suspended};

/// What happens, and what is told of it.
type Row = (&'static str, fn(&mut World), &'static [(&'static str, ChangeMeans)]);

fn spec(world: &mut World, change: impl FnOnce(&mut QuestDBSpec)) {
    let seq = world.resource.metadata.generation.unwrap() + 1;
    wish(world, seq, change);
}

/// What the pod says of itself is another image.
fn runs_another_image(world: &mut World) {
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    let annotations = pod.metadata.annotations.as_mut().unwrap();
    let running = annotations[names::RUNNING].replace("questdb:9.3.4", "questdb:9.3.3");
    annotations.insert(names::RUNNING.to_owned(), running);
    annotations.insert(names::CHECKSUM.to_owned(), "older".to_owned());
}

/// A Secret that the spec names holds another password than the one that was drawn.
fn other_password(world: &mut World) {
    world.login("mine", "psql", ("ada", "given"));
    world.secrets[0].metadata.annotations = None;
    let psql = Some(SecretSpec { secret_name: "mine".to_owned() });
    spec(world, |spec| spec.credentials = Some(CredentialsSpec { psql, ..CredentialsSpec::default() }));
}

const ROWS: &[Row] = &[
    ("instruction", |world| spec(world, |_| {}), &[]),
    ("run_state", |world| spec(world, |spec| spec.run_state = RunState::Paused), &[("/spec/runState", Stop)]),
    ("version", runs_another_image, &[("/spec/version", Restart)]),
    ("image", runs_another_image, &[("/spec/version", Restart)]),
    (
        "compute.instance_type",
        |world| spec(world, |spec| spec.compute.instance_type = "m7i.xlarge".to_owned()),
        &[("/spec/compute/instanceType", Move)],
    ),
    (
        "compute.node_image",
        |world| {
            world.instances[0].image = "ami-older".to_owned();
            spec(world, |spec| spec.compute.node_image = Some("ami-1".to_owned()));
        },
        &[("/spec/compute/nodeImage", Move)],
    ),
    (
        "storage.size_gib",
        |world| spec(world, |spec| spec.storage.size_gib = 80),
        &[("/spec/storage/sizeGib", Online)],
    ),
    (
        "storage.volume_type",
        |world| spec(world, |spec| spec.storage.volume_type = VolumeType::Io2),
        &[("/spec/storage/type", Online)],
    ),
    (
        "storage.iops",
        |world| spec(world, |spec| spec.storage.iops = 6_000),
        &[("/spec/storage/iops", Online)],
    ),
    (
        "storage.throughput",
        |world| spec(world, |spec| spec.storage.throughput = 500),
        &[("/spec/storage/throughput", Online)],
    ),
    ("storage.provisioned", |world| spec(world, |spec| spec.storage.provisioned = true), &[]),
    (
        "storage.deletion_policy",
        |world| spec(world, |spec| spec.storage.deletion_policy = DeletionPolicy::Delete),
        &[],
    ),
    ("storage.source", |world| spec(world, |spec| spec.storage.source = Some(source::volume())), &[]),
    (
        "config",
        |world| {
            spec(world, |spec| {
                spec.config.clear();
                spec.config.insert("a/b".replace('/', "."), "1".to_owned());
            });
        },
        &[("/spec/config/a.b", Restart), ("/spec/config/cairo.max.uncommitted.rows", Restart)],
    ),
    ("config", |world| spec(world, more_connections), &[("/spec/config/http.net.connection.limit", Online)]),
    (
        "config",
        |world| {
            spec(world, |spec| {
                more_connections(spec);
                spec.restart_nonce = Some("once".to_owned());
            });
        },
        &[("/spec/config/http.net.connection.limit", Restart), ("/spec/restartNonce", Restart)],
    ),
    (
        "network.hostname",
        |world| spec(world, |spec| spec.network.hostname = Some("other.eu.example.com".to_owned())),
        &[("/spec/network/hostname", Online)],
    ),
    ("network.exposure", |world| spec(world, |spec| spec.network.exposure = Exposure::Public), &[]),
    (
        "network.network_policy",
        |world| spec(world, |spec| spec.network.network_policy = Some(false)),
        &[("/spec/network/networkPolicy", Online)],
    ),
    (
        "network.disruption_budget",
        |world| spec(world, |spec| spec.network.disruption_budget = Some(false)),
        &[("/spec/network/disruptionBudget", Online)],
    ),
    ("network.host_ports", |world| spec(world, no_host_ports), &[("/spec/network/hostPorts", Restart)]),
    ("credentials", other_password, &[("/spec/credentials", Restart)]),
    (
        "pod",
        |world| spec(world, |spec| spec.pod = Some(other_pod())),
        &[("/spec/pod/env", Restart), ("/spec/pod/labels", Restart)],
    ),
    (
        "restart_nonce",
        |world| spec(world, |spec| spec.restart_nonce = Some("once".to_owned())),
        &[("/spec/restartNonce", Restart)],
    ),
    ("deletion_protection", |world| spec(world, |spec| spec.deletion_protection = true), &[]),
    ("zone", |world| spec(world, |spec| spec.zone = None), &[]),
];

/// Fields that only add to one of the objects beside the pod: each is told as a change of that object.
const OBJECTS: &[(&str, &str)] = &[
    ("network.allowed_cidrs", "/spec/network/allowedCidrs"),
    ("network.allowed_namespaces", "/spec/network/networkPolicy"),
    ("network.egress", "/spec/network/networkPolicy"),
    ("network.service", "/spec/network/service"),
    ("network.ingress", "/spec/network/ingress"),
    ("network.monitor", "/spec/network/monitor"),
];

/// Every field there is: a new one does not compile before it is written down here, and fails before it has a row.
fn fields(spec: &QuestDBSpec) -> BTreeSet<&'static str> {
    macro_rules! names {
        ($prefix:literal, $value:expr, $of:ident { $($field:ident),+ $(,)? }) => {{
            let $of { $($field: _),+ } = $value;
            [$(concat!($prefix, stringify!($field))),+]
        }};
    }
    let top = names!(
        "",
        spec,
        QuestDBSpec {
            instruction,
            run_state,
            version,
            image,
            compute,
            storage,
            config,
            network,
            credentials,
            pod,
            restart_nonce,
            deletion_protection,
            zone
        }
    );
    let compute = names!("compute.", &spec.compute, ComputeSpec { instance_type, node_image });
    let storage = names!(
        "storage.",
        &spec.storage,
        StorageSpec { size_gib, volume_type, iops, throughput, provisioned, deletion_policy, source }
    );
    let network = names!(
        "network.",
        &spec.network,
        NetworkSpec {
            hostname,
            allowed_cidrs,
            exposure,
            allowed_namespaces,
            egress,
            service,
            network_policy,
            disruption_budget,
            host_ports,
            ingress,
            monitor
        }
    );
    let top = top.into_iter().filter(|name| !["compute", "storage", "network"].contains(name));
    top.chain(compute).chain(storage).chain(network).collect()
}

#[test]
fn every_field_has_its_row() {
    let rows: BTreeSet<&str> =
        ROWS.iter().map(|(name, ..)| *name).chain(OBJECTS.iter().map(|(name, _)| *name)).collect();
    assert_eq!(rows, fields(&serving().resource.spec));
}

fn planned(world: &World) -> Plan {
    plan(&world.resource, &validated(&world.resource), &world.look(), &settings())
}

fn told(plan: &Plan) -> Vec<(String, ChangeMeans)> {
    plan.changes.iter().map(|change| (change.field.clone(), change.means)).collect()
}

#[test]
fn a_change_is_told_by_field_with_what_it_takes() {
    for (name, happen, expected) in ROWS {
        let mut world = serving();
        assert_eq!(told(&planned(&world)), [], "{name}");
        happen(&mut world);
        let found = told(&planned(&world));
        let expected: Vec<_> = expected.iter().map(|(field, means)| ((*field).to_owned(), *means)).collect();
        assert_eq!(found, expected, "{name}");
    }
    for (name, field) in OBJECTS {
        let mut world = serving();
        let optional = [Kind::ServiceMonitor, Kind::PodMonitor, Kind::IngressRoute, Kind::IngressRouteTcp];
        world.children.served = optional.into_iter().collect();
        spec(&mut world, |spec| match *name {
            "network.allowed_cidrs" => spec.network.allowed_cidrs = vec!["10.9.0.0/16".to_owned()],
            "network.allowed_namespaces" => spec.network.allowed_namespaces = vec!["other".to_owned()],
            "network.egress" => spec.network.egress = serde_json::from_value(json!({})).unwrap(),
            "network.service" => {
                spec.network.service =
                    serde_json::from_value(json!({ "annotations": { "a": "b" } })).unwrap();
            }
            "network.ingress" => {
                spec.network.ingress =
                    serde_json::from_value(json!({ "http": { "entryPoints": ["web"] } })).unwrap();
            }
            other => {
                assert_eq!(other, "network.monitor");
                spec.network.monitor = serde_json::from_value(json!({})).unwrap();
            }
        });
        let found = told(&planned(&world));
        assert!(found.contains(&((*field).to_owned(), Online)), "{name}: {found:?}");
        assert!(found.iter().all(|(_, means)| *means == Online), "{name}: {found:?}");
    }
}

#[test]
fn what_was_carried_out_is_not_pending_any_more() {
    for (name, happen, expected) in ROWS {
        let refused = expected.iter().any(|(_, means)| *means == Refused);
        let mut world = serving();
        happen(&mut world);
        if refused {
            pass(&mut world, &mut 0, None, false);
            let pending = &world.resource.status.as_ref().unwrap().pending;
            assert_eq!(pending.len(), expected.len(), "{name}: {pending:?}");
            continue;
        }
        settle(&mut world, None, false);
        // Nobody changes it in a resource that there is; what prepares for a disk that somebody brought would come with the next pod.
        let waits = *name == "storage.source";
        assert_eq!(told(&planned(&world)).is_empty(), !waits, "{name}");
        assert_eq!(world.resource.status.as_ref().unwrap().pending.is_empty(), !waits, "{name}");
    }
}

#[test]
fn a_restart_that_was_made_and_is_not_asked_for_any_more_is_none() {
    let mut world = serving();
    spec(&mut world, |spec| spec.restart_nonce = Some("once".to_owned()));
    settle(&mut world, None, false);
    for (nonce, restarts) in [(None, false), (Some("once"), false), (None, false), (Some("twice"), true)] {
        let before = world.pod_uid();
        spec(&mut world, |spec| spec.restart_nonce = nonce.map(str::to_owned));
        assert_eq!(told(&planned(&world)).is_empty(), !restarts, "{nonce:?}");
        settle(&mut world, None, false);
        check_serving(&world, None);
        assert_eq!(world.pod_uid() != before, restarts, "{nonce:?}");
    }
    // Nor does what brings along another restart forget it: the same text is no new one.
    spec(&mut world, |spec| {
        spec.restart_nonce = None;
        spec.config.clear();
    });
    settle(&mut world, None, false);
    let before = world.pod_uid();
    spec(&mut world, |spec| spec.restart_nonce = Some("twice".to_owned()));
    settle(&mut world, None, false);
    assert_eq!(world.pod_uid(), before);
}

#[test]
fn what_serves_is_ready_until_it_is_stopped() {
    let mut stops = 0;
    for (name, happen, _) in ROWS {
        let mut world = serving();
        happen(&mut world);
        if Goal::of(&world.resource) != Goal::Serve {
            continue;
        }
        for number in 0..40 {
            let served =
                world.children.pod.as_deref().filter(|pod| pod.metadata.deletion_timestamp.is_none());
            let served = served.is_some_and(crate::pod_serves);
            let planned = pass(&mut world, &mut 0, None, false);
            let stopped = planned
                .actions
                .iter()
                .any(|action| matches!(&action.step, Step::Delete(target) if target.kind == Kind::Pod));
            stops += usize::from(stopped);
            let moved = world.pinned().unwrap().ends_with("-g2");
            let conditions = &world.resource.status.as_ref().unwrap().conditions;
            let ready = conditions.iter().find(|found| found.type_ == "Ready").unwrap();
            if !moved && served {
                let text = format!("{name}, pass {number}: {}", ready.message);
                assert_eq!(ready.status == "True", !stopped, "{text}");
            }
            if planned.is_settled() {
                break;
            }
            world.tick();
        }
    }
    assert!(stops > 5, "{stops}");
}

#[test]
fn no_pod_is_replaced_before_status_said_why() {
    for (name, happen, expected) in ROWS {
        let restarts = expected.iter().filter(|(_, means)| *means == Restart);
        let fields: BTreeSet<&str> = restarts.map(|(field, _)| *field).collect();
        if fields.is_empty() {
            continue;
        }
        let mut world = serving();
        happen(&mut world);
        let (mut taken, mut replaced) = (0, 0);
        for _ in 0..ENOUGH {
            let pending = world.resource.status.as_ref().unwrap().pending.clone();
            let planned = pass(&mut world, &mut taken, None, false);
            if planned.actions.iter().any(|action| matches!(&action.step, Step::Delete(_))) {
                replaced += 1;
                let said =
                    pending.iter().filter(|found| found.means == Restart).map(|found| found.field.as_str());
                assert_eq!(said.collect::<BTreeSet<_>>(), fields, "{name}");
            }
            if planned.is_settled() {
                break;
            }
            world.tick();
        }
        assert_eq!(replaced, 1, "{name}");
        check_serving(&world, None);
    }
}

#[test]
fn a_pod_that_is_only_made_otherwise_is_told_of_and_left_alone() {
    let mut world = serving();
    let uid = world.children.pod.as_ref().unwrap().metadata.uid.clone();
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    pod.metadata.annotations.as_mut().unwrap().insert(names::TEMPLATE.to_owned(), "older".to_owned());
    settle(&mut world, None, false);
    assert_eq!(told(&planned(&world)), [("/spec".to_owned(), Restart)]);
    assert_eq!(world.children.pod.as_ref().unwrap().metadata.uid, uid);
    assert_eq!(phase(&world), Some(resources::Phase::Ready));
}

#[test]
fn a_pod_of_an_older_operator_is_not_restarted_for_what_it_does_not_say() {
    let mut world = serving();
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    let annotations = pod.metadata.annotations.as_mut().unwrap();
    annotations.remove(names::RUNNING);
    annotations.remove(names::TEMPLATE);
    assert_eq!(told(&planned(&world)), []);
    assert!(planned(&world).is_settled());
    spec(&mut world, |spec| spec.restart_nonce = Some("once".to_owned()));
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert!(
        world
            .children
            .pod
            .as_ref()
            .unwrap()
            .metadata
            .annotations
            .as_ref()
            .unwrap()
            .contains_key(names::RUNNING)
    );
}

#[test]
fn what_is_pending_keeps_its_time() {
    let mut world = serving();
    spec(&mut world, |spec| spec.compute.instance_type = "m7i.xlarge".to_owned());
    let changes = planned(&world).changes;
    let at = |second| jiff::Timestamp::from_second(second).unwrap();
    let first = crate::change::pending(&world.resource, changes.clone(), at(1));
    world.resource.status.as_mut().unwrap().pending.clone_from(&first);
    let later = crate::change::pending(&world.resource, changes, at(2));
    assert_eq!((later[0].since.0, &later), (at(1), &first));
}

#[test]
fn what_is_pending_has_another_time_when_something_else_is_asked_for() {
    type Wish = fn(&mut QuestDBSpec, bool);
    let rows: [(&str, Wish); 6] = [
        ("/spec/compute/instanceType", |spec, other| {
            let name = if other { "r7i.2xlarge" } else { "m7i.xlarge" };
            name.clone_into(&mut spec.compute.instance_type);
        }),
        ("/spec/storage/sizeGib", |spec, other| spec.storage.size_gib = if other { 90 } else { 80 }),
        ("/spec/storage/iops", |spec, other| spec.storage.iops = if other { 7_000 } else { 6_000 }),
        ("/spec/storage/throughput", |spec, other| spec.storage.throughput = if other { 600 } else { 500 }),
        ("/spec/network/hostname", |spec, other| {
            spec.network.hostname =
                Some(format!("{}.eu.example.com", if other { "third" } else { "second" }));
        }),
        ("/spec/config/http.net.connection.limit", |spec, other| {
            let limit = if other { "90" } else { "80" };
            spec.config.insert("http.net.connection.limit".to_owned(), limit.to_owned());
        }),
    ];
    for (field, ask) in rows {
        let mut world = serving();
        let mut since = |other: bool, now: i64| {
            spec(&mut world, |spec| ask(spec, other));
            let now = jiff::Timestamp::from_second(now).unwrap();
            let pending = crate::change::pending(&world.resource, planned(&world).changes, now);
            world.resource.status.as_mut().unwrap().pending.clone_from(&pending);
            pending.iter().find(|found| found.field == field).unwrap().since.0.as_second()
        };
        let times = [(false, 1), (false, 2), (true, 3), (true, 4)].map(|(other, now)| since(other, now));
        assert_eq!(times, [1, 1, 3, 3], "{field}");
    }
}

#[test]
fn a_paused_operator_says_what_it_would_do() {
    let mut world = serving();
    spec(&mut world, |spec| spec.storage.size_gib = 80);
    let report =
        |world: &World| suspended(&world.resource, Some(&planned(world)), jiff::Timestamp::UNIX_EPOCH);
    let condition = |world: &World| {
        let found = report(world).conditions;
        found.into_iter().find(|found| found.type_ == names::condition::RECONCILE_PAUSED).unwrap()
    };
    let said = condition(&world);
    assert_eq!((said.status.as_str(), said.reason.as_str()), ("True", "Annotated"));
    assert!(said.message.contains("not as large"), "{}", said.message);
    assert_eq!(report(&world).pending.len(), 1);
    let done = report(&world).instruction.map(|done| done.seq);
    assert_eq!(done, Some(1), "nothing was carried out");
    world.resource.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert!(condition(&world).message.contains("deletion waits"), "{}", condition(&world).message);

    world.resource.metadata.deletion_timestamp = None;
    world.resource.status = Some(report(&world));
    settle(&mut world, None, false);
    let conditions = &world.resource.status.as_ref().unwrap().conditions;
    let found = conditions.iter().find(|found| found.type_ == names::condition::RECONCILE_PAUSED).unwrap();
    assert_eq!((found.status.as_str(), world.volumes[0].size_gib), ("False", 80));
}
