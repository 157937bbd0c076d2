//! What an operator wrote for a database, to be written again for others.
//!
//! Of an object that is only what the API server notes as the operator's. What it added itself, such as addresses and defaults, it shall
//! add again: with that in them copies would be larger, and cost more to merge and less to make. The first status is not read here:
//! by the end there is another one (`said.rs`).

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Api, Resource, ResourceExt as _};
use resources::{QuestDB, QuestDBStatus, names};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::place::Place;

/// Generation of the first machine of a database.
pub(super) const GENERATION: u64 = 1;
/// A version that no object has: operators make what is not there by an apply that names it.
const NEVER: &str = "1";
/// What the API server calls a server-side apply.
const APPLY: &str = "Apply";
/// What it calls everything else.
const UPDATE: &str = "Update";

/// What is written for a database beside its resource and its Node.
pub(super) struct Written {
    pub(super) identity: Identity,
    /// The first status: that it is being made.
    pub(super) status: Box<QuestDBStatus>,
    pub(super) secret: Part,
    /// What is applied before a machine is asked for.
    pub(super) first: Vec<Part>,
    /// Annotations of the resource: which machine that is.
    pub(super) launch: Value,
    /// Labels of the Node.
    pub(super) labels: Value,
    /// What is applied once there is a Node.
    pub(super) last: Vec<Part>,
}

/// What tells the objects of one database from those of another.
pub(super) struct Identity {
    /// Name of the resource.
    pub(super) name: String,
    /// The database.
    pub(super) database: String,
    /// Its disk.
    volume: String,
}

/// An object as it was written.
pub(super) struct Part {
    api: Api<DynamicObject>,
    name: String,
    body: Value,
}

impl Written {
    /// Of the one database of a place, of which this was said first.
    pub(super) async fn read(place: &Place, status: Box<QuestDBStatus>) -> anyhow::Result<Self> {
        let (database, name) = place.resources.iter().next().context("the place is for a database")?;
        let claim = Part::read(namespaced::<PersistentVolumeClaim>(place), names::claim(name), APPLY).await?;
        let disk = claim.body["spec"]["volumeName"].as_str().context("a claim names its disk")?;
        let disk = Part::read(clustered::<PersistentVolume>(place), disk.to_owned(), APPLY).await?;
        let volume = disk.body["spec"]["csi"]["volumeHandle"].as_str().context("a disk has an id")?;
        let identity =
            Identity { volume: volume.to_owned(), ..Identity::new(name.clone(), database.clone()) };
        let set = Part::read(namespaced::<StatefulSet>(place), name.clone(), APPLY).await?;
        let first = vec![
            Part::read(namespaced::<ConfigMap>(place), names::config(name), APPLY).await?,
            Part::read(namespaced::<Service>(place), names::headless(name), APPLY).await?,
            Part::read(namespaced::<Service>(place), name.clone(), APPLY).await?,
            Part::read(namespaced::<NetworkPolicy>(place), names::guard(name), APPLY).await?,
            Part::read(namespaced::<PodDisruptionBudget>(place), names::guard(name), APPLY).await?,
        ];
        let secret = Part::read(namespaced::<Secret>(place), names::credentials(name), UPDATE).await?;
        let launch = launch(place, name).await?;
        let nodes: Api<Node> = Api::all(place.admin.clone());
        let node = nodes.get(&names::node(identity.short(), GENERATION)).await.context("reading the Node")?;
        let labels = json!(node.labels());
        Ok(Self { identity, status, secret, first, launch, labels, last: vec![disk, claim, set] })
    }

    /// The same for another database.
    pub(super) fn copy(&self, other: Identity) -> anyhow::Result<Self> {
        let swap = |text: &str| self.identity.swap(text, &other);
        let copies = |parts: &[Part]| -> anyhow::Result<Vec<Part>> {
            parts.iter().map(|part| part.copy(&swap)).collect()
        };
        let (first, last, secret) = (copies(&self.first)?, copies(&self.last)?, self.secret.copy(&swap)?);
        let (status, labels) = (swapped(&self.status, &swap)?, swapped(&self.labels, &swap)?);
        Ok(Self { identity: other, status, secret, first, launch: self.launch.clone(), labels, last })
    }
}

/// Something of a database, as that of another one.
fn swapped<T: Serialize + DeserializeOwned>(what: &T, swap: &impl Fn(&str) -> String) -> anyhow::Result<T> {
    Ok(serde_json::from_str(&swap(&serde_json::to_string(what)?))?)
}

/// How the resource was annotated before its machine was asked for.
async fn launch(place: &Place, name: &str) -> anyhow::Result<Value> {
    let databases: Api<QuestDB> = Api::namespaced(place.admin.clone(), &place.namespace);
    let resource = databases.get(name).await.context("reading the resource")?;
    let mut launch = Map::new();
    for key in [names::GENERATION, names::LAUNCH, names::LAUNCH_ZONE] {
        let value = resource.annotations().get(key).with_context(|| format!("a resource has {key}"))?;
        launch.insert(key.to_owned(), json!(value));
    }
    Ok(Value::Object(launch))
}

pub(super) fn namespaced<K: Resource<DynamicType = ()>>(place: &Place) -> Api<DynamicObject> {
    Api::namespaced_with(place.admin.clone(), &place.namespace, &ApiResource::erase::<K>(&()))
}

fn clustered<K: Resource<DynamicType = ()>>(place: &Place) -> Api<DynamicObject> {
    Api::all_with(place.admin.clone(), &ApiResource::erase::<K>(&()))
}

impl Identity {
    /// Of a database that has no disk yet.
    pub(super) fn new(name: String, database: String) -> Self {
        let volume = format!("vol-{}", digits(&database));
        Self { name, database, volume }
    }

    /// Id of its machine.
    pub(super) fn machine(&self) -> String {
        format!("i-{}", digits(&self.database))
    }

    /// What the name of its Node has of the database.
    fn short(&self) -> &str {
        self.database.get(28..).unwrap_or_default()
    }

    /// A text that speaks of this one, as one that speaks of another one.
    fn swap(&self, text: &str, other: &Self) -> String {
        let pairs = [
            (self.database.as_str(), other.database.as_str()),
            (self.short(), other.short()),
            (self.volume.as_str(), other.volume.as_str()),
            (self.name.as_str(), other.name.as_str()),
        ];
        pairs.into_iter().fold(text.to_owned(), |text, (one, other)| text.replace(one, other))
    }
}

/// As many digits as ids in AWS have, those that differ between databases.
fn digits(database: &str) -> String {
    database.replace('-', "").get(15..).unwrap_or_default().to_owned()
}

impl Part {
    /// Reads an object, and of it what an operator wrote by such an operation.
    async fn read(api: Api<DynamicObject>, name: String, operation: &str) -> anyhow::Result<Self> {
        let found = api.get(&name).await.with_context(|| format!("reading {name}"))?;
        let body = written(&found, operation).with_context(|| format!("an operator wrote {name}"))?;
        Ok(Self { api, name, body })
    }

    fn copy(&self, swap: &impl Fn(&str) -> String) -> anyhow::Result<Self> {
        let body = swapped(&self.body, swap)?;
        Ok(Self { api: self.api.clone(), name: swap(&self.name), body })
    }

    /// Applies it, with the resource of this uid, as an operator does where there is none yet.
    pub(super) async fn apply(mut self, uid: &str) -> anyhow::Result<()> {
        mark(&mut self.body, uid);
        self.body["metadata"]["resourceVersion"] = json!(NEVER);
        let parameters = PatchParams::apply(names::OPERATOR).force().validation_ignore();
        let applied = self.api.patch_metadata(&self.name, &parameters, &Patch::Apply(&self.body)).await;
        applied.map(drop).with_context(|| format!("applying {}", self.name))
    }

    /// Makes it, with the resource of this uid.
    pub(super) async fn create(mut self, uid: &str) -> anyhow::Result<()> {
        mark(&mut self.body, uid);
        let object: DynamicObject = serde_json::from_value(self.body)?;
        let parameters =
            PostParams { field_manager: Some(names::OPERATOR.to_owned()), ..PostParams::default() };
        let made = self.api.create(&parameters, &object).await;
        made.map(drop).with_context(|| format!("making {}", self.name))
    }
}

/// Says with which resource an object goes, if it says so at all.
fn mark(body: &mut Value, uid: &str) {
    let annotations = body.pointer_mut("/metadata/annotations");
    if let Some(mark) = annotations.and_then(|annotations| annotations.get_mut(names::RESOURCE)) {
        *mark = json!(uid);
    }
}

/// The body by which an operator wrote an object, as far as that is noted.
fn written(found: &DynamicObject, operation: &str) -> Option<Value> {
    let is_ours = |entry: &&ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(names::OPERATOR)
            && entry.operation.as_deref() == Some(operation)
            && entry.subresource.is_none()
    };
    let entry = found.metadata.managed_fields.iter().flatten().find(is_ours)?;
    let whole = serde_json::to_value(found).ok()?;
    let mut body = part(&whole, &entry.fields_v1.as_ref()?.0);
    // What says which object it is, is noted as nobody's.
    for key in ["apiVersion", "kind"] {
        body[key] = whole[key].clone();
    }
    for key in ["name", "namespace"] {
        if let Some(value) = whole["metadata"].get(key) {
            body["metadata"][key] = value.clone();
        }
    }
    Some(body)
}

/// The part of a value that is noted: fields by their names, items of lists by their keys or by themselves, and where no more is said,
/// all of it.
fn part(value: &Value, noted: &Value) -> Value {
    match (value, noted) {
        (Value::Object(fields), Value::Object(noted)) if !noted.is_empty() => {
            let parts = noted.iter().filter_map(|(key, noted)| {
                let name = key.strip_prefix("f:")?;
                Some((name.to_owned(), part(fields.get(name)?, noted)))
            });
            Value::Object(parts.collect())
        }
        (Value::Array(items), Value::Object(noted)) if !noted.is_empty() => {
            Value::Array(items.iter().filter_map(|item| part_of_item(item, noted)).collect())
        }
        _ => value.clone(),
    }
}

fn part_of_item(item: &Value, noted: &Map<String, Value>) -> Option<Value> {
    noted.iter().find_map(|(key, noted)| {
        let (how, what) = key.split_once(':')?;
        let what: Value = serde_json::from_str(what).ok()?;
        let is_it = match how {
            "k" => what.as_object()?.iter().all(|(key, value)| item.get(key) == Some(value)),
            "v" => *item == what,
            _ => false,
        };
        is_it.then(|| part(item, noted))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_what_the_operator_wrote_and_nothing_else() {
        let noted = json!({
            "f:metadata": { "f:annotations": { ".": {}, "f:crd.questdb.io/resource-uid": {} } },
            "f:spec": {
                "f:ports": {
                    ".": {},
                    "k:{\"port\":9000,\"protocol\":\"TCP\"}": { ".": {}, "f:port": {}, "f:protocol": {} },
                },
                "f:ranges": { "v:\"10.0.0.0/8\"": {} },
                "f:selector": {},
            },
        });
        let found: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7",
                "annotations": { "crd.questdb.io/resource-uid": "old", "other": "x" },
                "managedFields": [
                    { "manager": "other", "operation": APPLY, "fieldsV1": { "f:spec": { "f:clusterIP": {} } } },
                    { "manager": names::OPERATOR, "operation": APPLY, "fieldsV1": noted },
                ],
            },
            "spec": {
                "clusterIP": "10.96.0.7",
                "ports": [
                    { "port": 9000, "protocol": "UDP" },
                    { "port": 9000, "protocol": "TCP", "nodePort": 30_000 },
                ],
                "ranges": ["10.0.0.0/8", "11.0.0.0/8"],
                "selector": { "app": "questdb" },
            },
            "status": {},
        }))
        .unwrap();
        let expect = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": "a", "namespace": "n", "annotations": { "crd.questdb.io/resource-uid": "new" },
            },
            "spec": {
                "ports": [{ "port": 9000, "protocol": "TCP" }],
                "ranges": ["10.0.0.0/8"],
                "selector": { "app": "questdb" },
            },
        });
        let mut body = written(&found, APPLY).unwrap();
        mark(&mut body, "new");
        assert_eq!(body, expect);
        assert_eq!(written(&found, UPDATE), None, "nobody wrote it like that");
    }

    #[test]
    fn what_goes_with_no_resource_is_not_marked() {
        let unmarked = json!({ "metadata": { "annotations": { "crd.questdb.io/applied": "0" } } });
        let mut body = unmarked.clone();
        mark(&mut body, "new");
        assert_eq!(body, unmarked);
    }

    #[test]
    fn a_copy_speaks_of_another_database() {
        let of = |name: &str, id: &str| Identity::new(name.to_owned(), id.to_owned());
        let one = of("specimen", "0198f2a0-1111-7abc-8def-00000badcafe");
        let one = Identity { volume: "vol-fedcba98000000003".to_owned(), ..one };
        let other = of("db-0", "0198f2a0-2222-7abc-8def-0000deadbeef");
        let text = |identity: &Identity| {
            let Identity { name, database, volume } = identity;
            let node = names::node(identity.short(), GENERATION);
            let disk = names::persistent_volume(volume);
            format!("{} {name} {} {database} {node} {disk}", names::claim(name), names::headless(name))
        };
        assert_eq!(one.swap(&text(&one), &other), text(&other));
        let status = |identity: &Identity| -> Box<QuestDBStatus> {
            let step = json!({ "name": "resource", "state": "Running", "message": text(identity) });
            serde_json::from_value(json!({ "databaseId": identity.database, "steps": [step] })).unwrap()
        };
        let swap = |text: &str| one.swap(text, &other);
        assert_eq!(swapped(&status(&one), &swap).unwrap(), status(&other));
        assert_eq!(other.volume, "vol-c8def0000deadbeef");
        assert_eq!(other.machine().len(), "i-".len() + 17);
    }
}
