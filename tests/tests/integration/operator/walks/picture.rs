//! All that there is of a database, without what tells it from another one with the same wish: every object of every kind that
//! is its own by label or mark, what it has in AWS, and what its status says.
//!
//! What is taken out of a picture is named one by one, with the reason, here and in [`plain`](super::plain); all else counts.

use cloud::{Instance, RecordKind, SecurityGroup, Tags, Volume, VolumeKind, key};
use kube::api::{DynamicObject, ListParams};
use kube::core::Status;
use kube::discovery::{ApiCapabilities, ApiGroup, ApiResource, Discovery, Scope, verbs};
use kube::{Api, Client, ResourceExt as _};
use resources::names::{self, condition};
use resources::{QuestDB, QuestDBStatus};
use serde_json::{Map, Value, json};
use testkit::eventually;

use super::super::rig::{PATIENCE, Rig, patiently};
use super::super::subject::Subject;
use super::plain::{plain, say_alike, words};

/// Everything that is in the namespace, or in the cluster and of it, and everything of the cluster in AWS.
pub(super) struct Found {
    objects: Vec<(String, DynamicObject)>,
    machines: Vec<Instance>,
    volumes: Vec<Volume>,
    groups: Vec<SecurityGroup>,
}

impl Found {
    pub(super) async fn read(rig: &Rig) -> Self {
        let kinds = eventually(PATIENCE, "all kinds that there are", async || {
            // Another test may take one away meanwhile.
            Discovery::new(rig.admin.clone()).run().await.ok()
        })
        .await;
        let mut objects = Vec::new();
        for (resource, capabilities) in kinds.groups().flat_map(ApiGroup::recommended_resources) {
            if capabilities.supports_operation(verbs::LIST) {
                objects.extend(list(&rig.admin, &rig.namespace, (&resource, &capabilities)).await);
            }
        }
        let (machines, volumes, groups) = (rig.instances().await, rig.volumes().await, rig.groups().await);
        Self { objects, machines, volumes, groups }
    }

    /// Of the objects those that are a database's.
    fn objects_of(
        &self,
        resource: &QuestDB,
        database: &str,
    ) -> impl Iterator<Item = &(String, DynamicObject)> {
        let uid = resource.uid().unwrap();
        self.objects.iter().filter(move |(_, object)| {
            let owned = object.annotations().get(names::RESOURCE) == Some(&uid);
            owned || object.labels().get(names::LABEL_DATABASE).is_some_and(|found| found == database)
        })
    }
}

async fn list(
    client: &Client,
    namespace: &str,
    (resource, capabilities): (&ApiResource, &ApiCapabilities),
) -> Vec<(String, DynamicObject)> {
    let all = ListParams::default();
    let (api, which): (Api<DynamicObject>, _) = match capabilities.scope {
        Scope::Namespaced => (Api::namespaced_with(client.clone(), namespace, resource), all),
        Scope::Cluster => {
            let ours = format!("{}={namespace}", names::LABEL_NAMESPACE);
            (Api::all_with(client.clone(), resource), all.labels(&ours))
        }
    };
    let found = eventually(PATIENCE, &format!("a list of {}", resource.kind), async || {
        match api.list(&which).await {
            Ok(found) => Some(found.items),
            // The kind has gone since.
            Err(kube::Error::Api(status)) if is_gone(&status) => Some(Vec::new()),
            // That is a refusal, and stays one.
            Err(kube::Error::Api(status)) if !is_to_come(&status) => {
                panic!("no list of {}: {status:?}", resource.kind)
            }
            // Another test has just defined it, or the API server is busy with all of them.
            Err(_) => None,
        }
    })
    .await;
    found.into_iter().map(|object| (resource.kind.clone(), object)).collect()
}

const fn is_gone(status: &Status) -> bool {
    status.code == 404
}

/// The API server is about to read what there is of a kind, or had no answer in time, and asks for patience.
const fn is_to_come(status: &Status) -> bool {
    matches!(status.code, 429 | 500..=599)
}

/// A picture of a database whose pod has this address.
pub(super) async fn picture(found: &Found, subject: &Subject, address: &str) -> Value {
    let rig = &subject.rig;
    let resource = rig.as_admin().get(&subject.name).await.unwrap();
    let of = |tags: &Tags| tags.get(key::DATABASE) == Some(&*subject.database);
    let machines: Vec<_> = found.machines.iter().filter(|machine| of(&machine.tags)).collect();
    let volumes: Vec<_> = found.volumes.iter().filter(|volume| of(&volume.tags)).collect();
    let groups: Vec<_> = found.groups.iter().filter(|group| of(&group.tags)).collect();
    let mut protections = Vec::new();
    for machine in &machines {
        let protection = patiently(|| rig.aws.describe_protection(&machine.id)).await;
        protections.push(json!([protection.termination, protection.stop]));
    }
    let mut objects = Map::new();
    for (kind, object) in found.objects_of(&resource, &subject.database) {
        // Copies that were taken before upgrades are the database's past, and outlive it.
        if kind != "QuestDBSnapshot" {
            objects.insert(format!("{kind} {}", object.name_any()), plain(kind, object));
        }
    }
    let mut picture = json!({
        "objects": objects,
        "machines": machines.iter().map(|found| machine(found)).collect::<Value>(),
        "protections": protections,
        "disks": volumes.iter().map(|found| volume(found)).collect::<Value>(),
        "groups": groups.iter().map(|found| group(found)).collect::<Value>(),
        "records": records(subject).await,
        "status": status(&resource),
    });
    let words = words(&resource, (subject, address), (&machines, &volumes, &groups));
    say_alike(&mut picture, &words);
    picture
}

/// What both databases must have, or nothing was compared.
pub(super) fn assert_whole(picture: &Value) {
    let count = |pointer: &str| match picture.pointer(pointer).unwrap() {
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    };
    assert_eq!(["/machines", "/disks", "/groups"].map(count), [1; 3], "{picture:#}");
    let records = picture["records"].as_array().unwrap();
    let addresses = records.iter().filter(|record| record[1] == RecordKind::A.to_string()).count();
    // Without ports of its machine it has no name.
    let by_services = picture["status"]["endpoints"]["http"].as_str().unwrap().contains(".svc:");
    let wanted = if by_services { (0, 0) } else { (1, 2) };
    assert_eq!((addresses, records.len()), wanted, "{picture:#}");
    let kinds = ["StatefulSet", "Pod", "ConfigMap", "Secret", "Service", "PersistentVolumeClaim", "Node"];
    let objects = picture["objects"].as_object().unwrap();
    for kind in kinds.into_iter().chain(["PersistentVolume"]) {
        assert!(objects.keys().any(|name| name.starts_with(&format!("{kind} "))), "no {kind}: {picture:#}");
    }
}

fn machine(found: &Instance) -> Value {
    let kind = [&found.instance_type, &found.image, &found.zone];
    json!([
        kind,
        found.state.to_string(),
        found.security_groups.iter().map(ToString::to_string).collect::<Vec<_>>(),
        tags(&found.tags)
    ])
}

fn volume(found: &Volume) -> Value {
    // Of the other kinds it cannot be chosen: what EC2 keeps there of the kind before has no meaning.
    let throughput = found.throughput.filter(|_| found.kind == VolumeKind::Gp3);
    let on: Vec<_> = found.live_attachments().map(|attachment| attachment.instance.to_string()).collect();
    json!({
        "state": found.state.to_string(), "zone": found.zone, "size": found.size_gib, "kind": found.kind.to_string(),
        "iops": found.iops, "throughput": throughput, "encrypted": found.encrypted, "from": found.snapshot,
        "on": on, "tags": tags(&found.tags),
    })
}

fn group(found: &SecurityGroup) -> Value {
    let mut rules: Vec<_> = found.ingress.iter().map(|rule| format!("{rule:?}")).collect();
    rules.sort();
    json!([found.name, found.description, found.vpc, rules, tags(&found.tags)])
}

/// Generation and position count what was before.
fn tags(tags: &Tags) -> Value {
    let kept = tags.iter().filter(|(name, _)| ![key::GENERATION, key::SEQ, key::START].contains(name));
    kept.map(|(name, value)| (name.to_owned(), json!(value))).collect::<Map<_, _>>().into()
}

/// The records of both names that a database may have had.
async fn records(subject: &Subject) -> Vec<Value> {
    let rig = &subject.rig;
    let mut found = Vec::new();
    for name in [subject.name.clone(), super::other_name(&subject.name)] {
        found.extend(rig.records(&rig.hostname(&name)).await);
    }
    let mut records: Vec<Value> = found
        .iter()
        .map(|record| json!([record.name, record.kind.to_string(), record.ttl, record.values]))
        .collect();
    records.sort_by_key(Value::to_string);
    records
}

fn status(resource: &QuestDB) -> Value {
    let QuestDBStatus { phase, conditions, version, node, volume, dns, endpoints, .. } =
        resource.status.clone().unwrap();
    let status = resource.status.as_ref().unwrap();
    let conditions: Map<String, Value> = conditions
        .into_iter()
        .map(|found| (found.type_, json!([found.status, found.reason, found.message])))
        .collect();
    let steps: Vec<_> =
        status.steps.iter().map(|step| json!([step.name, step.state, step.message])).collect();
    // Since when it is told is a matter of moments.
    let pending: Vec<_> =
        status.pending.iter().map(|told| json!([told.field, told.means, told.why])).collect();
    json!({
        "phase": phase,
        "conditions": conditions,
        "version": version,
        "node": node,
        "volume": volume,
        // Which change it was by which the name came is no matter once it is in sync.
        "dns": dns.map(|dns| json!([dns.name, dns.state, dns.address, dns.next, dns.former])),
        "endpoints": endpoints,
        "credentials": status.credentials_secret,
        "pending": pending,
        "plan": status.plan,
        "steps": steps,
        "is current": status.observed_generation == resource.metadata.generation,
    })
}

/// Conditions that, in their calm word, only those have who had something to say under them once: which of the two had
/// it may be a matter of moments.
const SAID_ONCE: [(&str, &str); 8] = [
    (condition::VOLUME_RESIZING, "False"),
    (condition::MOVING, "False"),
    (condition::UPGRADE_IN_PROGRESS, "False"),
    (condition::RECONCILE_PAUSED, "False"),
    (condition::INTEGRATIONS_READY, "True"),
    (condition::REFERENCES_FOUND, "True"),
    (condition::CREDENTIALS_ACCEPTED, "True"),
    // It tells of the operator's watches, one of which the API server may have refused for a moment, and of no wish.
    (condition::NAMESPACE_SEEN, "True"),
];

/// What is not the same in the picture of a database that went a long way and in that of a fresh one.
pub(super) fn differences(mut walked: Value, mut fresh: Value) -> Vec<String> {
    forget_once_said(&mut walked, &fresh);
    forget_once_said(&mut fresh, &walked);
    let mut texts = Vec::new();
    compare("", &walked, &fresh, &mut texts);
    texts
}

/// Takes off what was said once and is calm now, where the other never had to say it.
fn forget_once_said(one: &mut Value, other: &Value) {
    let said = other["status"]["conditions"].as_object().unwrap();
    let conditions = one["status"]["conditions"].as_object_mut().unwrap();
    conditions.retain(|kind, word| {
        said.contains_key(kind) || !SAID_ONCE.iter().any(|(once, calm)| kind == once && word[0] == *calm)
    });
}

fn compare(at: &str, walked: &Value, fresh: &Value, texts: &mut Vec<String>) {
    match (walked, fresh) {
        (Value::Object(one), Value::Object(other)) => {
            for key in one.keys().chain(other.keys().filter(|key| !one.contains_key(*key))) {
                compare(&format!("{at}/{key}"), &walked[key], &fresh[key], texts);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (number, (one, other)) in one.iter().zip(other).enumerate() {
                compare(&format!("{at}/{number}"), one, other, texts);
            }
        }
        _ if walked == fresh => {}
        _ => texts.push(format!("{at}: {walked} after the walk, {fresh} of the fresh one")),
    }
}
