//! Every step, every field of the spec and every run state after every other occurs in an operation. Whoever adds one is
//! told here, by the compiler, and then by a test until an operation has it.

use std::collections::BTreeSet;

use resources::{ComputeSpec, NetworkSpec, QuestDBSpec, RunState, StorageSpec};

use super::model::World;
use super::operations::operations;
use super::runner::{pass, settle};
use crate::Step;
use crate::fixture::resource;

/// Names of all variants, and of one.
macro_rules! variants {
    ($type:ident: $($variant:ident),+ $(,)?) => {
        const VARIANTS: &[&str] = &[$(stringify!($variant)),+];

        fn variant(of: &$type) -> &'static str {
            match of { $($type::$variant { .. } => stringify!($variant)),+ }
        }
    };
}

variants!(Step: AddFinalizer, WriteGeneration, CreateSecret, DrawKey, RevokeKey, KeepSecret, SetCredentials, Apply, Delete, CreateSecurityGroup,
    AuthorizeIngress, RevokeIngress, SetMachineGroups, GuardMetadata, RunInstance, CreateVolume, Tag, ModifyVolume, LabelNode, ChangeRecords,
    WriteReleased, ProveLeft, Protect, Unprotect, TerminateInstance, DeleteSecurityGroup, DeleteVolume, Reload, RemoveFinalizer);

#[test]
fn every_step_occurs() {
    let mut seen = BTreeSet::new();
    for operation in operations() {
        let mut world = (operation.start)();
        (operation.change)(&mut world);
        let mut taken = 0;
        for _ in 0..super::ENOUGH {
            let planned = pass(&mut world, &mut taken, None, false);
            seen.extend(planned.actions.iter().map(|action| variant(&action.step)));
            if planned.actions.is_empty() && planned.is_settled() || world.released {
                break;
            }
            world.tick();
        }
    }
    assert_eq!(seen, VARIANTS.iter().copied().collect());
}

/// The fields of a struct in which two values differ, and the names of all of them.
macro_rules! fields {
    ($of:ident $prefix:literal, $names:ident, $differing:ident: $($field:ident),+ $(,)?) => {
        const $names: &[&str] = &[$(concat!($prefix, stringify!($field))),+];

        fn $differing(one: &$of, other: &$of) -> Vec<&'static str> {
            let $of { $($field),+ } = one;
            [$((concat!($prefix, stringify!($field)), *$field != other.$field)),+]
                .into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
        }
    };
}

fields!(QuestDBSpec "", SPEC, of_spec: instruction, run_state, version, image, compute, storage, config, network,
    credentials, pod, restart_nonce, deletion_protection, zone);
fields!(ComputeSpec "compute.", COMPUTE, of_compute: instance_type, node_image);
fields!(StorageSpec "storage.", STORAGE, of_storage: size_gib, volume_type, iops, throughput, provisioned,
    deletion_policy, source);
fields!(NetworkSpec "network.", NETWORK, of_network: hostname, allowed_cidrs, exposure, allowed_namespaces, egress,
    service, network_policy, disruption_budget, host_ports, ingress, monitor);

fn differing(one: &QuestDBSpec, other: &QuestDBSpec) -> Vec<&'static str> {
    let mut found = of_spec(one, other);
    found.extend(of_compute(&one.compute, &other.compute));
    found.extend(of_storage(&one.storage, &other.storage));
    found.extend(of_network(&one.network, &other.network));
    found
}

#[test]
fn every_field_of_the_spec_occurs() {
    let mut seen = BTreeSet::new();
    let usual = resource(1).spec;
    for operation in operations() {
        let mut world = (operation.start)();
        let made = world.instances.is_empty().then(|| usual.clone());
        // Of what is made, all that is unusual counts; of what is there, what changes.
        let before = made.unwrap_or_else(|| world.resource.spec.clone());
        (operation.change)(&mut world);
        seen.extend(differing(&before, &world.resource.spec));
    }
    let all = [SPEC, COMPUTE, STORAGE, NETWORK].concat();
    // Nothing can be said of another version while there is one.
    let alone = domain::catalogue::VERSIONS.len() == 1;
    let missing: Vec<_> =
        all.into_iter().filter(|name| !(seen.contains(name) || alone && *name == "version")).collect();
    assert_eq!(missing, [""; 0]);
}

/// The run states, and those that may follow each.
const fn next(run_state: RunState) -> &'static [RunState] {
    use RunState::{Deleted, Paused, Purged, Running};
    match run_state {
        Running => &[Paused, Deleted, Purged],
        Paused => &[Running, Deleted, Purged],
        Deleted => &[Running, Paused, Purged],
        Purged => &[],
    }
}

#[test]
fn every_run_state_follows_every_other() {
    let name = |run_state: RunState| serde_json::to_string(&run_state).unwrap();
    let mut seen = BTreeSet::new();
    for operation in operations() {
        let mut world: World = (operation.start)();
        let before = world.resource.spec.run_state;
        settle(&mut world, None, false);
        (operation.change)(&mut world);
        seen.insert((name(before), name(world.resource.spec.run_state)));
    }
    for from in [RunState::Running, RunState::Paused, RunState::Deleted] {
        for to in next(from) {
            assert!(seen.contains(&(name(from), name(*to))), "{from:?} to {to:?}");
        }
    }
}
