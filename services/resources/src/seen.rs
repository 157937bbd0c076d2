//! A custom resource as far as this program can read it. Pure.
//!
//! The definition in a cluster, and who writes by it, may be newer than this program and know words that it does not; or older, and
//! drop parts without which the rest cannot be read. *Invariant:* a resource that cannot be read in whole is seen all the same, and
//! it hides no other: a list that has it is a list. What else of it can be read is there; that it is not whole is never
//! forgotten ([`unread`]).

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _};
use serde_json::{Error, Map, Value, json};

use crate::{QuestDB, QuestDBSpec, QuestDBStatus};

/// Annotation that only what was read here has, and nothing in an API server, which takes no key with a space.
const UNREAD: &str = "not read";

/// A resource of a cluster.
#[derive(Debug, Clone)]
pub struct Seen {
    /// What could be read of it.
    pub object: QuestDB,
    /// Why the rest could not.
    pub unread: Option<String>,
}

/// Why a resource is not whole; nothing when it is. Whatever it does not have may be otherwise in the API server.
pub fn unread(resource: &QuestDB) -> Option<&str> {
    resource.metadata.annotations.as_ref()?.get(UNREAD).map(String::as_str)
}

/// Itself, and whether it is whole goes with it.
impl From<Seen> for QuestDB {
    fn from(Seen { mut object, unread }: Seen) -> Self {
        if let Some(reason) = unread {
            object.metadata.annotations.get_or_insert_with(BTreeMap::new).insert(UNREAD.to_owned(), reason);
        }
        object
    }
}

/// Tried as a whole first: nearly all are.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Read {
    Whole(Box<QuestDB>),
    Other(Value),
}

impl<'de> Deserialize<'de> for Seen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Read::deserialize(deserializer)? {
            Read::Whole(object) => Ok(Self { object: *object, unread: None }),
            Read::Other(value) => {
                let object = readable(&value).map_err(D::Error::custom)?;
                let why = QuestDB::deserialize(&value).err();
                let unread = why.map_or_else(|| "it is no resource".to_owned(), |why| why.to_string());
                Ok(Self { object, unread: Some(unread) })
            }
        }
    }
}

/// What can be read of a resource, field by field.
fn readable(value: &Value) -> Result<QuestDB, Error> {
    let fields = |name| value.get(name).and_then(Value::as_object).cloned().unwrap_or_default();
    let spec = fields("spec");
    let size = spec.get("storage").and_then(|storage| u32::deserialize(storage.get("sizeGib")?).ok());
    let least = Map::from_iter([("storage".to_owned(), json!({"sizeGib": size.unwrap_or(0)}))]);
    let mut object = QuestDB::new("", read(only_readable::<QuestDBSpec>(spec, &least))?);
    object.metadata = ObjectMeta::deserialize(value.get("metadata").unwrap_or(&Value::Null))?;
    object.status = Some(read(only_readable::<QuestDBStatus>(fields("status"), &Map::new()))?);
    Ok(object)
}

/// What has to be there, and of the rest each field that can be read beside it.
fn only_readable<T: DeserializeOwned>(
    fields: Map<String, Value>,
    least: &Map<String, Value>,
) -> Map<String, Value> {
    let mut kept = least.clone();
    for (name, field) in fields {
        let mut tried = least.clone();
        tried.insert(name.clone(), field.clone());
        if read::<T>(tried).is_ok() {
            kept.insert(name, field);
        }
    }
    kept
}

fn read<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<T, Error> {
    T::deserialize(Value::Object(fields))
}

/// To the API server it is what it is read as.
impl Resource for Seen {
    type DynamicType = ();
    type Scope = <QuestDB as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        QuestDB::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        QuestDB::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        QuestDB::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        QuestDB::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        self.object.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.object.meta_mut()
    }
}

#[cfg(test)]
mod tests {
    use kube::core::{ObjectList, WatchEvent};

    use super::*;

    /// What a newer program, or an older definition, has otherwise.
    type Edit = fn(&mut Value);

    /// A resource with a status, as an API server shows it.
    fn shown() -> Value {
        json!({
            "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB",
            "metadata": { "name": "trades", "namespace": "qdb-acme", "resourceVersion": "1234",
                "annotations": { "a": "b" } },
            "spec": {
                "instruction": { "id": "i", "databaseId": "d", "epoch": 1, "seq": 7, "render": 1, "hash": "h" },
                "runState": "Paused", "version": "9.3.4",
                "compute": { "instanceType": "m7i.large" },
                "storage": { "sizeGib": 50, "type": "gp3", "iops": 3000, "throughput": 125, "provisioned": true,
                    "deletionPolicy": "Snapshot" },
                "network": { "exposure": "Internal" },
            },
            "status": {
                "phase": "Ready", "databaseId": "d",
                "instruction": { "id": "i", "epoch": 1, "seq": 6, "render": 1, "hash": "old" },
                "volume": { "id": "vol-1", "sizeGib": 50, "state": "in-use" },
                "steps": [{ "name": "volume", "state": "Succeeded" }],
            },
        })
    }

    fn list(items: &[Value]) -> Vec<Seen> {
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}).to_string();
        serde_json::from_str::<ObjectList<Seen>>(&list).unwrap().items
    }

    #[test]
    fn what_can_be_read_in_whole_is_taken_as_it_is() {
        let [seen] = list(&[shown()]).try_into().unwrap();
        assert_eq!(seen.unread, None);
        let object = QuestDB::from(seen);
        assert_eq!((unread(&object), serde_json::to_value(&object).unwrap()), (None, shown()));
    }

    #[test]
    fn what_only_newer_programs_know_hides_nothing_else() {
        let newer: [(Edit, &str); 5] = [
            (|shown| shown["status"]["phase"] = json!("Levitating"), "Levitating"),
            (|shown| shown["status"]["steps"][0]["state"] = json!("Doubtful"), "Doubtful"),
            (|shown| shown["spec"]["runState"] = json!("Hibernating"), "Hibernating"),
            (|shown| shown["spec"]["storage"]["type"] = json!("gp9"), "gp9"),
            (|shown| shown["spec"]["network"] = json!(["other", "altogether"]), "invalid"),
        ];
        for (edit, why) in newer {
            let mut edited = shown();
            edit(&mut edited);
            assert!(QuestDB::deserialize(&edited).is_err(), "it can be read: {edited}");
            let [seen, other] = list(&[edited.clone(), shown()]).try_into().unwrap();
            assert!(other.unread.is_none() && seen.unread.as_ref().is_some_and(|found| found.contains(why)));
            let object = QuestDB::from(seen);
            let position =
                |found: &QuestDB| found.spec.instruction.as_ref().map(|found| (found.epoch, found.seq));
            assert_eq!((position(&object), object.spec.storage.size_gib), (Some((1, 7)), 50), "{edited}");
            assert!(object.metadata.annotations.as_ref().is_some_and(|found| found["a"] == "b"));
            assert!(unread(&object).is_some_and(|found| found.contains(why)), "{edited}");
            // It stays so when it is kept as text.
            let kept: QuestDB = serde_json::from_str(&serde_json::to_string(&object).unwrap()).unwrap();
            assert_eq!(unread(&kept), unread(&object));
            let event = json!({"type": "MODIFIED", "object": edited});
            assert!(matches!(serde_json::from_value(event), Ok(WatchEvent::<Seen>::Modified(_))));
        }
    }

    #[test]
    fn what_lost_a_part_of_its_position_is_seen_and_has_none() {
        for part in ["id", "databaseId", "epoch", "seq", "render", "hash"] {
            let mut edited = shown();
            edited["spec"]["instruction"].as_object_mut().unwrap().remove(part).unwrap();
            let [seen] = list(&[edited]).try_into().unwrap();
            assert!(seen.unread.as_ref().is_some_and(|why| why.contains(part)), "{part}: {seen:?}");
            assert_eq!(QuestDB::from(seen).spec.instruction, None, "{part}");
        }
    }

    #[test]
    fn what_is_no_resource_is_none() {
        for value in [json!(7), json!({"metadata": 7, "spec": {}}), json!([])] {
            assert!(serde_json::from_value::<Seen>(value).is_err());
        }
    }
}
