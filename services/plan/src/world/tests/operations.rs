//! Everything that can be asked of a database or happen to it, as data: a world, and what changes in it.
//!
//! What a spec has, each run state after each other, and every step must occur here: `coverage` does not compile without
//! one that is new, and fails while no operation has it.

use std::sync::Arc;

use cloud::{IngressRule, InstanceState};
use jiff::{SignedDuration, Timestamp};
use resources::{
    DeletionPolicy, EgressSpec, EnvSpec, Exposure, IngressSpec, MonitorKind, MonitorSpec, PodOverrides,
    QuestDBSpec, RouteSpec, RunState, ServiceSpec, ServiceType, VolumeType, names,
};
use serde_json::json;

use super::credentials::jwk;
use super::ends::ENDS;
use super::model::World;
use super::reload::{more_connections, more_of_both, no_connections, serving_many};
use super::runner::{pass, settle};
use super::{serving, silent, source, wish};
use crate::Kind;
use crate::fixture::{plain, resource, settings};

/// Something that is asked for or happens.
pub(super) struct Operation {
    pub(super) name: &'static str,
    pub(super) start: fn() -> World,
    pub(super) change: fn(&mut World),
}

pub(super) const fn operation(name: &'static str, start: fn() -> World, change: fn(&mut World)) -> Operation {
    Operation { name, start, change }
}

/// All of them.
pub(super) fn operations() -> impl Iterator<Item = &'static Operation> {
    let others = [
        ENDS,
        super::versions::RETURNS,
        super::unserved::UNSERVED,
        super::firewall::MANY,
        super::machine_groups::REGROUPED,
        super::machine_metadata::OPENED,
        super::portless::PORTLESS,
        super::zones::FULL,
        super::keys::KEYS,
    ];
    OPERATIONS.iter().chain(others.into_iter().flatten())
}

const OPERATIONS: &[Operation] = &[
    // A life.
    operation("create", fresh, |_| {}),
    operation("create with everything chosen", fresh_in_full, |_| {}),
    operation("create as people do", fresh_plain, |_| {}),
    operation("create from a copy", source::fresh_of_copy, |_| {}),
    operation("create on a disk that is there", source::fresh_on_disk, |_| {}),
    operation("pause", serving, |world| become_(world, RunState::Paused)),
    operation("delete", serving, |world| become_(world, RunState::Deleted)),
    operation("purge", serving, |world| become_(world, RunState::Purged)),
    operation("resume", paused, |world| become_(world, RunState::Running)),
    operation("delete what is paused", paused, |world| become_(world, RunState::Deleted)),
    operation("purge what is paused", paused, |world| become_(world, RunState::Purged)),
    operation("return", deleted, |world| become_(world, RunState::Running)),
    operation("pause what is deleted", deleted, |world| become_(world, RunState::Paused)),
    operation("purge what is deleted", deleted, |world| become_(world, RunState::Purged)),
    operation("remove", serving_plain, remove),
    operation("remove with its disk", serving_plain, |world| {
        world.resource.spec.storage.deletion_policy = DeletionPolicy::Delete;
        remove(world);
    }),
    operation("remove between two names", || super::rename::between_names(serving_plain()), remove),
    operation("remove what is deleted", deleted, remove),
    operation("remove what was never made", fresh_plain, remove),
    // Another wish.
    operation("grow", serving, |world| change(world, |spec| spec.storage.size_gib = 80)),
    operation("more operations a second", serving, |world| change(world, |spec| spec.storage.iops = 6_000)),
    operation("more throughput", serving, |world| change(world, |spec| spec.storage.throughput = 500)),
    operation("another type of disk", serving, |world| {
        change(world, |spec| spec.storage.volume_type = VolumeType::Io2);
    }),
    operation("back to the first type of disk", serving_on_io2, |world| {
        change(world, |spec| {
            spec.storage.volume_type = VolumeType::Gp3;
            spec.storage.throughput = 500;
        });
    }),
    operation("provisioned", serving, |world| change(world, |spec| spec.storage.provisioned = true)),
    operation("another policy", serving_plain, |world| {
        world.resource.spec.storage.deletion_policy = DeletionPolicy::Delete;
        world.touch();
    }),
    operation("another key", serving, |world| {
        change(world, |spec| drop(spec.config.insert("shared.worker.count".to_owned(), "2".to_owned())));
    }),
    operation("a key that is read again", serving, |world| change(world, more_connections)),
    operation("a key that is read again goes", serving_many, |world| change(world, no_connections)),
    operation("keys of which one is read again", serving, |world| change(world, more_of_both)),
    operation("no keys", serving, |world| change(world, |spec| spec.config.clear())),
    operation("restart", serving, |world| change(world, |spec| spec.restart_nonce = Some("once".to_owned()))),
    operation("another pod", serving, |world| change(world, |spec| spec.pod = Some(other_pod()))),
    operation("the usual pod again", serving_another_pod, |world| change(world, |spec| spec.pod = None)),
    operation("its version's image by name", serving, |world| {
        change(world, |spec| spec.image = domain::catalogue::image(&spec.version));
    }),
    operation("its machine's image by name", serving, |world| {
        change(world, |spec| spec.compute.node_image = Some(settings().node_image));
    }),
    operation("another machine", serving, |world| {
        change(world, |spec| "m7i.xlarge".clone_into(&mut spec.compute.instance_type));
    }),
    operation("another machine and everything else", serving, |world| {
        change(world, |spec| {
            "r7i.2xlarge".clone_into(&mut spec.compute.instance_type);
            spec.storage.size_gib = 80;
            spec.config.clear();
            spec.network.allowed_cidrs = vec!["10.9.0.0/16".to_owned()];
        });
    }),
    operation("another machine while it is made", half_made, |world| {
        change(world, |spec| "m7i.xlarge".clone_into(&mut spec.compute.instance_type));
    }),
    operation("another machine than the next", half_moved, |world| {
        change(world, |spec| "r7i.2xlarge".clone_into(&mut spec.compute.instance_type));
    }),
    operation("back right after the move", just_moved, |world| {
        change(world, |spec| "m7i.large".clone_into(&mut spec.compute.instance_type));
    }),
    operation("pause while it moves", half_moved, |world| become_(world, RunState::Paused)),
    operation("delete right after the move", just_moved, |world| become_(world, RunState::Deleted)),
    operation("purge while it moves", half_moved, |world| become_(world, RunState::Purged)),
    operation("upgrade", serving, |world| change(world, |spec| "9.4.0".clone_into(&mut spec.version))),
    operation("upgrade and another machine", serving, |world| {
        change(world, |spec| {
            "10.0.0".clone_into(&mut spec.version);
            "m7i.xlarge".clone_into(&mut spec.compute.instance_type);
            spec.config.clear();
        });
    }),
    operation("upgrade that does not start", serving, upgrade_to_broken),
    operation("upgrade that does not start on another machine", serving, |world| {
        upgrade_to_broken(world);
        change(world, |spec| "m7i.xlarge".clone_into(&mut spec.compute.instance_type));
    }),
    operation("upgrade without a copy, refused", serving, |world| {
        world.uncopied = true;
        change(world, |spec| "9.4.0".clone_into(&mut spec.version));
    }),
    operation("older major version, refused", serving_10, |world| {
        change(world, |spec| "9.3.4".clone_into(&mut spec.version));
    }),
    operation("upgrade of what is paused", paused, |world| {
        change(world, |spec| {
            spec.run_state = RunState::Running;
            "9.4.0".clone_into(&mut spec.version);
        });
    }),
    operation("drained", serving, cordon),
    operation("drained of a silent Node", serving, |world| {
        cordon(world);
        silent::say(world, "Unknown");
        world.now = Timestamp::UNIX_EPOCH + SignedDuration::from_mins(5);
        world.clock = silent::CLOCK;
    }),
    operation("drained, and its pod is gone", serving, |world| {
        cordon(world);
        world.children.pod = None;
        world.volumes[0].attachments.clear();
        world.children.attachments.clear();
    }),
    operation("the machine that it is pinned to drained before it came", just_moved, |world| {
        let last = world.children.nodes.len() - 1;
        cordon_one(world, last);
    }),
    operation("no drain after all", half_drained, |world| {
        let node = Arc::make_mut(&mut world.children.nodes[0]);
        node.spec.get_or_insert_default().unschedulable = None;
    }),
    operation("the machine ended while it moves", half_moved, |world| end_machine(world, 0)),
    operation("the next machine ended", half_moved, |world| {
        end_machine(world, 1);
        world.clock = SignedDuration::from_mins(1);
    }),
    operation("the machine that it is pinned to ended before it came", just_moved, |world| {
        end_machine(world, 1);
        world.clock = SignedDuration::from_mins(1);
    }),
    operation("annotation behind while it moves", half_moved, |world| {
        let annotations = world.resource.metadata.annotations.as_mut().unwrap();
        annotations.insert(names::GENERATION.to_owned(), "1".to_owned());
        world.touch();
    }),
    operation("the StatefulSet deleted while it moves", half_moved, |world| {
        world.children.stateful_set = None;
    }),
    operation("annotations lost while it moves", half_moved, |world| {
        world.resource.metadata.annotations = None;
        world.touch();
    }),
    operation("another name", serving, |world| change(world, other_name)),
    operation("everything that needs no move", serving, |world| {
        change(world, |spec| {
            spec.storage.size_gib = 80;
            spec.config.clear();
            spec.network.allowed_cidrs = vec!["10.9.0.0/16".to_owned()];
            spec.restart_nonce = Some("once".to_owned());
        });
    }),
    operation("return as another", deleted, |world| {
        change(world, |spec| {
            spec.run_state = RunState::Running;
            spec.storage.size_gib = 80;
            spec.config.clear();
            "m7i.xlarge".clone_into(&mut spec.compute.instance_type);
        });
    }),
    operation("return under another name", deleted, |world| {
        change(world, |spec| {
            spec.run_state = RunState::Running;
            other_name(spec);
        });
    }),
    // Who reaches it.
    operation("let others in", serving, |world| {
        change(world, |spec| spec.network.allowed_cidrs = vec!["10.9.0.0/16".to_owned()]);
    }),
    operation("let nobody in", serving, |world| change(world, |spec| spec.network.allowed_cidrs.clear())),
    operation("public", serving, |world| change(world, |spec| spec.network.exposure = Exposure::Public)),
    operation("all ways in", knowing_all_kinds, |world| change(world, all_ways_in)),
    operation("no ways in", serving_all_ways_in, |world| {
        change(world, |spec| {
            let network = &mut spec.network;
            (network.service, network.ingress, network.monitor, network.egress) = (None, None, None, None);
            network.allowed_namespaces.clear();
            (network.network_policy, network.disruption_budget) = (Some(false), Some(false));
        });
    }),
    // Credentials.
    operation("another password", serving, |world| world.login("own", "psql", ("ada", "given"))),
    operation("every credential from a Secret", serving, |world| {
        world.login("own", "psql", ("ada", "given"));
        world.login("reads", "psql-readonly", ("bob", "reads"));
        world.login("web", "http", ("web", "given"));
        world.key("keys", &[jwk("k1", 0)]);
    }),
    operation("no keys and no reader", serving_with_keys, |world| {
        world.take_back("keys");
        world.take_back("reads");
    }),
    // Misfortune.
    operation("the machine ended", serving, |world| end_machine(world, 0)),
    operation("children deleted by hand", serving, |world| {
        let children = &mut world.children;
        (children.config, children.service, children.headless) = (None, None, None);
        (children.stateful_set, children.network_policy) = (None, None);
    }),
    operation("credentials deleted by hand", serving, |world| {
        world.children.secret = None;
        world.secrets_lost += 1;
    }),
    operation("rules of the firewall changed by hand", serving, |world| {
        world.groups[0].ingress = vec![IngressRule::tcp(22, "0.0.0.0/0")];
    }),
    operation("annotations lost", serving, |world| {
        world.resource.metadata.annotations = None;
        world.touch();
    }),
    operation("annotations and status lost", serving, |world| {
        world.resource.metadata.annotations = None;
        world.wipe();
    }),
    operation("protection lost before a restart", serving, |world| {
        world.protected.clear();
        change(world, |spec| spec.restart_nonce = Some("once".to_owned()));
    }),
    operation("a return half way down", half_way_down, |world| become_(world, RunState::Running)),
    operation("pause without a kubelet", serving, |world| end_in_silence(world, RunState::Paused)),
    operation("delete without a kubelet", serving, |world| end_in_silence(world, RunState::Deleted)),
    operation("purge without a kubelet", serving, |world| end_in_silence(world, RunState::Purged)),
];

/// Another wish at the next position.
pub(super) fn change(world: &mut World, change: impl FnOnce(&mut QuestDBSpec)) {
    let seq = world.resource.metadata.generation.unwrap_or_default() + 1;
    if world.resource.spec.instruction.is_some() {
        return wish(world, seq, change);
    }
    world.touch();
    world.resource.metadata.generation = Some(seq);
    change(&mut world.resource.spec);
}

/// Another run state, of a database whose disk its wish knows of.
pub(super) fn become_(world: &mut World, run_state: RunState) {
    let provisioned = !world.volumes.is_empty();
    change(world, |spec| {
        spec.run_state = run_state;
        spec.storage.provisioned |= provisioned;
    });
}

pub(super) fn remove(world: &mut World) {
    world.resource.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    world.touch();
}

fn end_in_silence(world: &mut World, run_state: RunState) {
    silent::say(world, "Unknown");
    world.now = Timestamp::UNIX_EPOCH + SignedDuration::from_mins(5);
    world.clock = silent::CLOCK;
    become_(world, run_state);
}

pub(super) fn other_name(spec: &mut QuestDBSpec) {
    spec.network.hostname = Some("other.eu.example.com".to_owned());
}

/// A pod that is otherwise than by default.
pub(super) fn other_pod() -> PodOverrides {
    let env = EnvSpec { name: "TZ".to_owned(), value: Some("UTC".to_owned()), value_from: None };
    let labels = [("team".to_owned(), "trading".to_owned())].into();
    PodOverrides { labels, env: vec![env], ..PodOverrides::default() }
}

fn serving_another_pod() -> World {
    let mut world = serving();
    change(&mut world, |spec| spec.pod = Some(other_pod()));
    settle(&mut world, None, false);
    world
}

fn all_ways_in(spec: &mut QuestDBSpec) {
    let route = |name: &str| Some(RouteSpec { entry_points: vec![name.to_owned()] });
    let network = &mut spec.network;
    network.allowed_namespaces = vec!["apps".to_owned()];
    network.egress = Some(EgressSpec { namespaces: vec!["logs".to_owned()], ..EgressSpec::default() });
    network.ingress =
        Some(IngressSpec { http: route("web"), pg: route("postgres"), ..IngressSpec::default() });
    network.monitor = Some(MonitorSpec { kind: MonitorKind::ServiceMonitor, ..MonitorSpec::default() });
    network.service = Some(ServiceSpec { service_type: ServiceType::LoadBalancer, ..ServiceSpec::default() });
    (network.network_policy, network.disruption_budget) = (Some(true), Some(true));
}

pub(super) fn fresh() -> World {
    World::new(resource(1))
}

fn fresh_plain() -> World {
    World::new(plain())
}

fn fresh_in_full() -> World {
    let mut world = fresh();
    let spec = &mut world.resource.spec;
    spec.image = domain::catalogue::image(&spec.version);
    spec.zone = settings().zones.keys().next_back().cloned();
    "r7i.2xlarge".clone_into(&mut spec.compute.instance_type);
    spec.compute.node_image = Some(settings().node_image);
    spec.storage.volume_type = VolumeType::Io2;
    spec.restart_nonce = Some("born".to_owned());
    spec.network.hostname = None;
    world
}

fn upgrade_to_broken(world: &mut World) {
    world.broken = vec![domain::catalogue::image_of("9.4.0")];
    change(world, |spec| "9.4.0".clone_into(&mut spec.version));
}

fn serving_10() -> World {
    let mut world = fresh();
    "10.0.0".clone_into(&mut world.resource.spec.version);
    settled(world)
}

/// A machine ends by itself.
pub(super) fn end_machine(world: &mut World, number: usize) {
    let machine = &mut world.instances[number];
    machine.state = InstanceState::Terminated;
    let id = machine.id.clone();
    let node =
        world.children.nodes.iter().find(|node| super::kubernetes::is_of(node, &world.instances[number]));
    let name = node.and_then(|node| node.metadata.name.clone());
    if world.volumes[0].attachments.iter().any(|found| found.instance == id) {
        world.volumes[0].attachments.clear();
        world.children.attachments.clear();
    }
    let on = world.children.pod.as_ref().and_then(|pod| pod.spec.as_ref()?.node_name.clone());
    if name.is_some() && on == name {
        world.children.pod = None;
    }
}

/// Somebody wants the machine's Node empty.
fn cordon(world: &mut World) {
    cordon_one(world, 0);
}

fn cordon_one(world: &mut World, number: usize) {
    Arc::make_mut(&mut world.children.nodes[number]).spec.get_or_insert_default().unschedulable = Some(true);
}

/// After so many passes of its way to this.
pub(super) fn on_the_way(mut world: World, begin: fn(&mut World), arrived: fn(&World) -> bool) -> World {
    begin(&mut world);
    let mut taken = 0;
    for _ in 0..super::ENOUGH {
        if arrived(&world) {
            return world;
        }
        pass(&mut world, &mut taken, None, false);
        world.tick();
    }
    panic!("it did not come so far: {:#?}", world.resource.status);
}

fn half_made() -> World {
    on_the_way(fresh(), |_| {}, |world| !world.children.nodes.is_empty())
}

pub(super) fn begin_move(world: &mut World) {
    change(world, |spec| "m7i.xlarge".clone_into(&mut spec.compute.instance_type));
}

/// Two machines run, and the database is on the first.
pub(super) fn half_moved() -> World {
    on_the_way(serving(), begin_move, |world| world.children.nodes.len() == 2)
}

/// Two machines run, and the database is pinned to the second.
pub(super) fn just_moved() -> World {
    on_the_way(serving(), begin_move, |world| world.pinned().is_some_and(|pin| pin.ends_with("-g2")))
}

pub(super) fn half_drained() -> World {
    on_the_way(serving(), cordon, |world| world.children.nodes.len() == 2)
}

fn settled(mut world: World) -> World {
    settle(&mut world, None, false);
    world
}

fn in_state(run_state: RunState) -> World {
    let mut world = serving();
    become_(&mut world, run_state);
    settled(world)
}

pub(super) fn paused() -> World {
    in_state(RunState::Paused)
}

pub(super) fn deleted() -> World {
    in_state(RunState::Deleted)
}

pub(super) fn serving_plain() -> World {
    settled(fresh_plain())
}

fn serving_on_io2() -> World {
    let mut world = serving();
    change(&mut world, |spec| spec.storage.volume_type = VolumeType::Io2);
    settled(world)
}

fn serving_with_keys() -> World {
    let mut world = serving();
    world.login("reads", "psql-readonly", ("bob", "reads"));
    world.key("keys", &[jwk("k1", 0)]);
    settled(world)
}

fn knowing_all_kinds() -> World {
    let mut world = serving();
    let kinds = [Kind::ServiceMonitor, Kind::PodMonitor, Kind::IngressRoute, Kind::IngressRouteTcp];
    world.children.served = kinds.into_iter().collect();
    world
}

fn serving_all_ways_in() -> World {
    let mut world = knowing_all_kinds();
    change(&mut world, all_ways_in);
    settled(world)
}

/// The protection is off and the machine still runs.
fn half_way_down() -> World {
    let mut world = serving();
    world.protected.clear();
    let annotations = world.resource.metadata.annotations.as_mut().unwrap();
    let written = annotations[names::GENERATION].clone();
    annotations.insert(names::RELEASED.to_owned(), written);
    world.resource.spec.run_state = RunState::Paused;
    world
}
