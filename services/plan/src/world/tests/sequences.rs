//! Walks through wishes, some left before they were carried out: the end is the same as for a database that was made by the
//! last wish.

use proptest::prelude::*;
use resources::{QuestDBSpec, RunState, ServiceSpec, ServiceType, VolumeType};

use super::enumerated::assert_pictures;
use super::model::World;
use super::operations::{change, other_pod};
use super::oracle::{check_end, check_moment, is_refused, picture, picture_of_fresh};
use super::reload::more_connections;
use super::runner::{pass, settle};
use crate::Kind;
use crate::fixture::resource;

/// A wish, and how many passes it is left after; none when it is carried out in full.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
struct Wish {
    run_state: RunState,
    size: u32,
    fast: bool,
    io2: bool,
    config: u8,
    cidrs: u8,
    nonce: u8,
    way_in: u8,
    pod: bool,
    machine: bool,
    name: bool,
    left_after: Option<usize>,
}

fn wishes() -> impl Strategy<Value = Vec<Wish>> {
    let run_state = prop_oneof![
        3 => Just(RunState::Running),
        1 => Just(RunState::Paused),
        1 => Just(RunState::Deleted),
    ];
    let spec = (run_state, 50_u32..54, any::<bool>(), any::<bool>(), 0_u8..8, 0_u8..3);
    let more = (0_u8..3, 0_u8..16, any::<bool>(), any::<bool>(), any::<bool>(), prop::option::of(0_usize..7));
    let wish = (spec, more).prop_map(|((run_state, size, fast, io2, config, cidrs), more)| {
        let (nonce, way_in, pod, machine, name, left_after) = more;
        Wish { run_state, size, fast, io2, config, cidrs, nonce, way_in, pod, machine, name, left_after }
    });
    prop::collection::vec(wish, 3..7)
}

/// What a wish makes of a spec. The name is another only while there is none: otherwise that is refused.
fn become_this(spec: &mut QuestDBSpec, wish: &Wish) {
    spec.run_state = wish.run_state;
    spec.storage.size_gib = spec.storage.size_gib.max(wish.size);
    spec.storage.volume_type = if wish.io2 { VolumeType::Io2 } else { VolumeType::Gp3 };
    (spec.storage.iops, spec.storage.throughput) = if wish.fast { (6_000, 500) } else { (3_000, 125) };
    spec.config.clear();
    if wish.config & 3 > 0 {
        spec.config.insert("shared.worker.count".to_owned(), (wish.config & 3).to_string());
    }
    if wish.config & 4 > 0 {
        more_connections(spec);
    }
    spec.network.allowed_cidrs = (0..wish.cidrs).map(|number| format!("10.{number}.0.0/16")).collect();
    spec.restart_nonce = (wish.nonce > 0).then(|| wish.nonce.to_string());
    spec.pod = wish.pod.then(other_pod);
    spec.network.network_policy = Some(wish.way_in & 1 == 0);
    spec.network.disruption_budget = Some(wish.way_in & 2 == 0);
    spec.network.host_ports = (wish.way_in & 8 > 0).then_some(false);
    let service_type = if wish.cidrs > 0 { ServiceType::LoadBalancer } else { ServiceType::ClusterIP };
    spec.network.service =
        (wish.way_in & 4 == 0).then(|| ServiceSpec { service_type, ..ServiceSpec::default() });
    let machine = if wish.machine { "m7i.xlarge" } else { "m7i.large" };
    machine.clone_into(&mut spec.compute.instance_type);
    let name = if wish.name { "other" } else { "trades-33445566" };
    spec.network.hostname = Some(format!("{name}.eu.example.com"));
}

fn walk(wishes: &[Wish]) -> World {
    let mut world = World::new(resource(1));
    world.children.served = [Kind::ServiceMonitor, Kind::IngressRoute].into_iter().collect();
    for wish in wishes {
        let provisioned = !world.volumes.is_empty();
        change(&mut world, |spec| {
            become_this(spec, wish);
            spec.storage.provisioned |= provisioned;
        });
        let mut taken = 0;
        for _ in 0..wish.left_after.unwrap_or_default() {
            pass(&mut world, &mut taken, None, false);
            check_moment(&world, "on the way");
            world.tick();
        }
        if wish.left_after.is_none() {
            settle(&mut world, None, false);
        }
    }
    settle(&mut world, None, false);
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_way_to_a_wish_does_not_show(wishes in wishes()) {
        let world = walk(&wishes);
        check_end(&world, "at the end of a walk");
        prop_assert!(!is_refused(&world.resource));
        if world.resource.spec.run_state == RunState::Running {
            assert_pictures(&picture(&world), &picture_of_fresh(&world), "at the end of a walk");
        }
    }
}
