//! What must hold when nothing is left to do, whatever happened on the way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use cloud::{Instance, InstanceState, RecordKind, SnapshotState, key};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use resources::names::{self, condition};
use resources::{CopyPolicy, DnsState, DnsStatus, Phase, QuestDB, QuestDBStatus};
use serde::Serialize;
use serde_json::{Value, json};

use super::identity::is_owned;
use super::model::World;
use super::runner::{pass, settle};
use super::source;
use crate::Goal;
use crate::fixture::validated;

/// What never may be, not even for a moment.
pub(super) fn check_moment(world: &World, what: &str) {
    let written = world.resource.metadata.annotations.as_ref().and_then(|found| found.get(names::GENERATION));
    let of_written =
        |instance: &&&Instance| instance.tags.get(key::GENERATION) == written.map(String::as_str);
    let living: Vec<&Instance> = living(world).collect();
    assert!(living.iter().filter(of_written).count() < 2, "{what}: {living:#?}");
    let third = world.third || is_third_needed(world);
    assert!(living.len() < if third { 4 } else { 3 }, "{what}: {living:#?}");
    assert!(world.volumes.len() < 2, "{what}: {:#?}", world.volumes);
    let held = world.volumes.iter().flat_map(cloud::Volume::live_attachments).count();
    assert!(held < 2 && world.children.attachments.len() < 2, "{what}: two machines hold the disk");
    assert!(world.groups.len() < 2, "{what}: {:#?}", world.groups);
    check_name(world, what);
    assert!(world.secrets_drawn <= 1 + world.secrets_lost, "{what}: passwords were drawn again");
}

/// A name that status says to lead somewhere does, until it is given back.
fn check_name(world: &World, what: &str) {
    let dns = world.resource.status.as_ref().and_then(|status| status.dns.as_ref());
    let is_renamed = |dns: &&DnsStatus| dns.next.is_some() || dns.former.is_some();
    let Some(dns) = dns.filter(|dns| dns.state == DnsState::InSync).filter(is_renamed) else { return };
    let leads = |found: &cloud::DnsRecord| found.name == dns.name && found.kind == RecordKind::A;
    let serves = Goal::of(&world.resource) == Goal::Serve;
    assert!(!serves || world.records.iter().any(leads), "{what}: {} leads nowhere", dns.name);
}

/// Whether there may be a third machine: only where the second, to which the database was to go, was closed while QuestDB
/// still ran on the first, or where the name still leads to the first.
pub(super) fn is_third_needed(world: &World) -> bool {
    let mut nodes = world.children.nodes.iter();
    nodes.any(|node| node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true))
        || is_named_elsewhere(world)
}

/// Whether the name leads to a machine that the database is not pinned to.
fn is_named_elsewhere(world: &World) -> bool {
    let address = world.resource.status.as_ref().and_then(|status| status.dns.as_ref()?.address.clone());
    let pinned = world.pinned().and_then(names::generation_of_node).map(|generation| generation.to_string());
    let mut others = living(world).filter(|found| found.tags.get(key::GENERATION) != pinned.as_deref());
    address.is_some() && others.any(|found| found.private_ip.map(|found| found.to_string()) == address)
}

/// What holds at the end: one of each or none, and nothing left to write.
pub(super) fn check_end(world: &World, what: &str) {
    check_moment(world, what);
    check_counts(world, what);
    check_kept(world, what);
    check_handed_out(world, what);
    if world.released {
        return;
    }
    check_word(world, what);
    let mut again = world.clone();
    (again.lag, again.late) = (0, false);
    let planned = pass(&mut again, &mut 0, None, false);
    assert_eq!(planned.actions, [], "{what}: settled, and there is something to do");
    assert_eq!(again.resource, world.resource, "{what}: settled, and there is something to say");
}

/// How many records a database that serves has: text and address of its name, or none without ports of its machine.
pub(super) fn records_wanted(world: &World) -> usize {
    if world.resource.spec.network.host_ports == Some(false) { 0 } else { 2 }
}

fn check_counts(world: &World, what: &str) {
    let goal = Goal::of(&world.resource);
    let machines = living(world).count();
    let disks = world.volumes.len();
    let records = world.records.len();
    let counts = (machines, world.groups.len(), records);
    match goal {
        Goal::Serve => {
            assert_eq!((counts, disks), ((1, 1, records_wanted(world)), 1), "{what}");
            let machine = living(world).next().unwrap();
            assert!(world.is_protected(&machine.id), "{what}: {} serves unprotected", machine.id);
            assert_eq!(machine.security_groups, [world.groups[0].id.clone()], "{what}");
            let on = world.volumes[0].live_attachments().map(|found| &found.instance);
            assert_eq!(on.collect::<Vec<_>>(), [&machine.id], "{what}");
            assert_eq!(world.children.nodes.len(), 1, "{what}: Nodes of machines that are gone");
        }
        // The firewall of a machine that comes back stays.
        Goal::Pause => {
            assert!(machines == 0 && disks < 2, "{what}: {counts:?} {disks}");
            assert!(
                world.records.iter().all(|found| found.kind == RecordKind::Txt),
                "{what}: the name answers"
            );
        }
        Goal::Retire => assert!(counts == (0, 0, 0) && disks < 2, "{what}: {counts:?} {disks}"),
        Goal::Purge => assert_eq!((counts, disks), ((0, 0, 0), 0), "{what}"),
    }
    let children = &world.children;
    if goal != Goal::Serve {
        let none = children.pod.is_none() && children.stateful_set.is_none() && children.nodes.is_empty();
        assert!(none, "{what}: {children:#?}");
    }
    if goal == Goal::Purge || world.released {
        let none = children.claim.is_none() && children.persistent_volumes.is_empty();
        assert!(none && children.config.is_none() && children.service.is_none(), "{what}: {children:#?}");
        // What opens a disk that stays, stays with it.
        let secret = children.secret.as_deref();
        assert!(secret.is_none_or(|found| disks > 0 && !is_owned(&found.metadata)), "{what}: {secret:#?}");
    }
}

/// Whatever was written is in a copy that stays, where one was to be kept, and the status says in which.
fn check_kept(world: &World, what: &str) {
    let wish = validated(&world.resource);
    let status = world.resource.status.as_ref();
    let had_disk = status.and_then(|status| status.last_copy.as_ref());
    if !wish.keeps_copy() {
        assert_eq!(had_disk, None, "{what}");
        return;
    }
    // One that somebody else took away cannot be copied.
    let Some(named) = had_disk else {
        assert!(world.copied.is_empty(), "{what}: {:#?}", world.copied);
        assert!(what.contains("no disk any more"), "{what}: destroyed without a copy");
        return;
    };
    let copy = world.copied.iter().find(|copy| copy.shown.id.as_str() == named.snapshot_id);
    let copy = copy.unwrap_or_else(|| panic!("{what}: {named:?} is not there"));
    assert_eq!(copy.shown.state, SnapshotState::Completed, "{what}");
    assert_eq!(copy.holds, world.written, "{what}: the copy lacks what was written last");
    let order = copy.shown.tags.get(key::OBJECT).map(str::to_owned);
    assert_eq!(named.snapshot, order, "{what}");
    let kept = world.snapshots.iter().find(|found| found.metadata.name == order);
    assert!(kept.is_some_and(|kept| kept.spec.deletion_policy == CopyPolicy::Retain), "{what}");
}

/// No private half of a key lies about that nobody asks for, be it that the wish is carried out or that the database is gone.
fn check_handed_out(world: &World, what: &str) {
    let wish = validated(&world.resource);
    let serves = wish.goal == Goal::Serve && !world.released;
    if !serves && wish.goal != Goal::Purge && !world.released {
        return;
    }
    let drawn = wish.credentials.ilp.iter().flat_map(|ilp| &ilp.drawn).filter(|_| serves);
    let wished: Vec<String> = drawn.map(|id| names::drawn_key(&wish.subject.name, id)).collect();
    let metadata = world.secrets.iter().map(|found| &found.metadata);
    let ours = metadata.filter(|found| wish.subject.holds(found)).filter_map(|found| found.name.as_ref());
    let left: Vec<&String> = ours.filter(|name| !wished.contains(name)).collect();
    assert!(left.is_empty(), "{what}: private halves of keys that nobody asks for: {left:?}");
}

/// What the status says is so.
fn check_word(world: &World, what: &str) {
    let status = world.resource.status.as_ref().unwrap();
    if is_refused(&world.resource) {
        return;
    }
    let phase = match Goal::of(&world.resource) {
        Goal::Serve => Phase::Ready,
        Goal::Pause => Phase::Paused,
        Goal::Retire | Goal::Purge => Phase::Deleted,
    };
    assert_eq!(status.phase, Some(phase), "{what}: {status:#?}");
    let paused = status.conditions.iter().find(|found| found.type_ == condition::PAUSED).unwrap();
    assert_eq!(paused.status == "True", phase == Phase::Paused, "{what}: {paused:?}");
    let carried = status.instruction.as_ref().map(|carried| carried.seq);
    assert_eq!(carried, world.resource.spec.instruction.as_ref().map(|wanted| wanted.seq), "{what}");
}

/// Whether a part of the wish waits for people.
pub(super) fn is_refused(resource: &QuestDB) -> bool {
    let conditions = resource.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|found| found.type_ == condition::CONFIG_ACCEPTED && found.status == "False")
}

fn living(world: &World) -> impl Iterator<Item = &Instance> {
    world.instances.iter().filter(|instance| !instance.state.is_ending())
}

/// What a database made by the wish of this one looks like. Each wish is carried out once.
pub(super) fn picture_of_fresh(world: &World) -> Value {
    static KNOWN: Mutex<BTreeMap<String, Value>> = Mutex::new(BTreeMap::new());
    let mut resource = world.resource.clone();
    resource.metadata.annotations = None;
    resource.metadata.finalizers = None;
    let database_id = resource.status.take().and_then(|status| status.database_id);
    resource.status =
        database_id.map(|id| QuestDBStatus { database_id: Some(id), ..QuestDBStatus::default() });
    resource.spec.storage.provisioned = false;
    if let Some(instruction) = &mut resource.spec.instruction {
        instruction.seq = 1;
    }
    let source = &resource.spec.storage.source;
    let adopts = source.as_ref().is_some_and(|source| !source.is_copy());
    let key = format!(
        "{} {:?} {:?} {}",
        json!(resource.spec),
        world.full,
        world.children.served,
        json!(world.secrets)
    );
    if let Some(known) = KNOWN.lock().unwrap().get(&key) {
        return known.clone();
    }
    let mut fresh = World::new(resource);
    fresh.copies.clone_from(&world.copies);
    // The disk that was taken once is the one of this world: the fresh one is offered another like it.
    fresh.offered = adopts.then(source::offered);
    fresh.secrets.clone_from(&world.secrets);
    fresh.full.clone_from(&world.full);
    fresh.children.served.clone_from(&world.children.served);
    settle(&mut fresh, None, false);
    let found = picture(&fresh);
    KNOWN.lock().unwrap().insert(key, found.clone());
    found
}

/// Everything of a world but what tells one way to it from another: ids, addresses, generations, versions.
pub(super) fn picture(world: &World) -> Value {
    let mut picture = json!({
        "children": children(world),
        "machines": living(world).map(machine).collect::<Vec<_>>(),
        "disks": world.volumes.iter().map(|found| {
            let kind = found.kind.to_string();
            let of = &found.snapshot;
            json!([found.zone, found.size_gib, kind, found.iops, found.throughput, found.encrypted, of])
        }).collect::<Vec<_>>(),
        "rules": world.groups.iter().map(|group| format!("{:?}", group.ingress)).collect::<Vec<_>>(),
        "records": records(world),
        "status": status(world),
    });
    plain(&mut picture);
    // A pod that was made for the start of another version has more time for its start, and is not made anew for that. What the next one
    // has is compared, by the StatefulSet.
    for child in picture["children"].as_array_mut().unwrap() {
        if let Some(Value::Object(probe)) = child.pointer_mut("/spec/containers/0/startupProbe") {
            probe.remove("failureThreshold");
        }
    }
    picture
}

fn machine(found: &Instance) -> Value {
    assert_ne!(found.state, InstanceState::Stopped);
    json!([found.instance_type, found.image, found.zone, found.security_groups.len()])
}

fn records(world: &World) -> Vec<Value> {
    let mut records: Vec<_> = world.records.iter().collect();
    records.sort_by_key(|record| record.kind == RecordKind::A);
    records.iter().map(|record| json!([record.name, record.kind.to_string(), record.ttl])).collect()
}

fn children(world: &World) -> Value {
    let children = &world.children;
    let mut others: Vec<Value> = children.others.iter().map(|(_, found)| value(&**found)).collect();
    others.sort_by_key(Value::to_string);
    let mut claim = value(&children.claim.as_deref());
    if let Some(size) = claim.pointer_mut("/spec/resources/requests") {
        // It keeps the size it was made with.
        *size = Value::Null;
    }
    let mut disks = values(&children.persistent_volumes);
    if let Some(uid) = disks.first_mut().and_then(|disk| disk.pointer_mut("/spec/claimRef/uid")) {
        // Of the claim, whose own uid is not compared either.
        *uid = Value::Null;
    }
    json!([
        value(&children.secret.as_deref()),
        value(&children.config.as_deref()),
        value(&children.service.as_deref()),
        value(&children.headless.as_deref()),
        value(&children.stateful_set.as_deref()),
        value(&children.pod.as_deref()),
        claim,
        disks,
        values(&children.nodes),
        values(&children.attachments),
        value(&children.network_policy.as_deref()),
        value(&children.disruption_budget.as_deref()),
        others,
    ])
}

fn values(of: &[Arc<impl Serialize>]) -> Vec<Value> {
    of.iter().map(|one| value(&**one)).collect()
}

fn value(of: &impl Serialize) -> Value {
    serde_json::to_value(of).unwrap()
}

fn status(world: &World) -> Value {
    let Some(status) = world.resource.status.as_ref().filter(|_| !world.released) else { return Value::Null };
    // Of what runs, or of what ran last, if that is still known.
    let version = status.version.as_ref().filter(|_| Goal::of(&world.resource) == Goal::Serve);
    // What was once asked for and is done is told only to those who saw it.
    let told = |found: &&Condition| {
        let passing = [
            condition::VOLUME_RESIZING,
            condition::CONFLICT,
            condition::CONTENDED,
            condition::NODE_CORDONED,
            condition::MOVING,
            condition::UPGRADE_IN_PROGRESS,
            condition::LAST_COPY,
            condition::DELETION_HELD,
        ];
        let known = found.type_ == condition::INTEGRATIONS_READY && found.status == "True";
        !(known || passing.contains(&found.type_.as_str()) && found.status == "False")
    };
    let conditions = status.conditions.iter().filter(told);
    let conditions = conditions.map(|found| {
        // Which copy it is, and of when, counts.
        let message = (found.type_ != condition::LAST_COPY).then_some(&found.message);
        json!([found.type_, found.status, found.reason, message])
    });
    let steps = status.steps.iter().map(|step| json!([step.name, step.state]));
    json!([
        status.phase,
        conditions.collect::<Vec<_>>(),
        steps.collect::<Vec<_>>(),
        version,
        status.endpoints,
        status.dns.as_ref().map(|dns| json!([dns.name, dns.state])),
        status.credentials_secret,
    ])
}

/// Fields that count, hashes over such, and what only those have who have served before.
const COUNTED: [&str; 18] = [
    "uid",
    "resourceVersion",
    "generation",
    "observedGeneration",
    names::CHECKSUM,
    names::APPLIED,
    names::TEMPLATE,
    names::secret::REVISION,
    names::secret::TAKEN_FROM,
    names::secret::WRITTEN,
    names::secret::DRAWN,
    names::UPGRADE,
    names::SERVED_FROM,
    names::RESTART,
    "deletionTimestamp",
    "creationTimestamp",
    "lastTransitionTime",
    "clusterIP",
];

fn plain(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !COUNTED.contains(&key.as_str()));
            if let Some(Value::String(running)) = map.get_mut(names::RUNNING) {
                // Which revision of the credentials it read counts too, and for which restart it was started last is the past.
                let mut parsed: Value = serde_json::from_str(running).unwrap();
                for past in ["credentials", "restartNonce"] {
                    parsed.as_object_mut().unwrap().remove(past);
                }
                *running = parsed.to_string();
            }
            map.values_mut().for_each(plain);
        }
        Value::Array(list) => list.iter_mut().for_each(plain),
        // A drawn password, in base64.
        Value::String(text) if text.starts_with("ZHJhd24t") => "drawn".clone_into(text),
        Value::String(text) => *text = without_numbers(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Without the numbers of generations and of things in EC2.
fn without_numbers(text: &str) -> String {
    ["33445566-g", "vol-", "/i-", "sg-", "drawn-"].iter().fold(text.to_owned(), |text, word| {
        let mut parts = text.split(word);
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |done, part| {
            done + word + part.trim_start_matches(|letter: char| letter.is_ascii_digit())
        })
    })
}
