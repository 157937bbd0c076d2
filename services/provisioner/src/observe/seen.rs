//! A custom resource as far as this program can read it. Pure.
//!
//! The definition in a cluster, and the operator that writes by it, may be newer than this program and know words that it
//! does not. *Invariant:* a resource that cannot be read in whole is seen all the same, at its position; what else of it can
//! be read is told, and it hides no other: a list that has it is a list.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use resources::{QuestDB, QuestDBSpec, QuestDBStatus};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _};
use serde_json::{Error, Map, Value, json};

/// A resource of a cluster.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// What could be read of it.
    pub(super) object: QuestDB,
    /// Why the rest could not.
    pub(super) unread: Option<String>,
}

impl<'de> Deserialize<'de> for Seen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match QuestDB::deserialize(&value) {
            Ok(object) => Ok(Self { object, unread: None }),
            Err(error) => {
                let object = readable(&value).map_err(D::Error::custom)?;
                Ok(Self { object, unread: Some(error.to_string()) })
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
    use domain::Position;
    use kube::core::{ObjectList, WatchEvent};

    use super::*;
    use crate::observe::translate::{observation, tests::object};

    /// What a newer program writes otherwise.
    type Edit = fn(&mut Value);

    /// A resource with a status, as an API server shows it.
    fn shown() -> Value {
        let mut shown = serde_json::to_value(object()).unwrap();
        shown["status"] = json!({
            "phase": "Ready",
            "instruction": {"id": "i", "epoch": 1, "seq": 6, "render": 1, "hash": "old"},
            "volume": {"id": "vol-1", "sizeGib": 50, "state": "in-use"},
            "steps": [{"name": "volume", "state": "Succeeded"}],
        });
        shown
    }

    fn list(items: &[Value]) -> Vec<Seen> {
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
        serde_json::from_value::<ObjectList<Seen>>(list).unwrap().items
    }

    #[test]
    fn what_can_be_read_in_whole_is_taken_as_it_is() {
        let [seen] = list(&[shown()]).try_into().unwrap();
        assert_eq!(seen.unread, None);
        assert_eq!(serde_json::to_value(&seen.object).unwrap(), shown());
    }

    #[test]
    fn a_word_that_only_newer_programs_know_hides_nothing_else() {
        let newer: [(Edit, &str, usize); 5] = [
            (|shown| shown["status"]["phase"] = json!("Levitating"), "", 1),
            (|shown| shown["status"]["steps"][0]["state"] = json!("Doubtful"), "Ready", 0),
            (|shown| shown["spec"]["runState"] = json!("Hibernating"), "Ready", 1),
            (|shown| shown["spec"]["storage"]["type"] = json!("gp9"), "Ready", 1),
            (|shown| shown["spec"]["network"] = json!(["other", "altogether"]), "Ready", 1),
        ];
        for (edit, phase, steps) in newer {
            let mut edited = shown();
            edit(&mut edited);
            assert!(QuestDB::deserialize(&edited).is_err(), "it can be read: {edited}");
            let [seen, other] = list(&[edited.clone(), shown()]).try_into().unwrap();
            assert!(seen.unread.is_some() && other.unread.is_none());
            let (database, told) = observation(&seen.object, 3, true).unwrap();
            let whole = observation(&other.object, 3, true).unwrap();
            assert_eq!(
                (database, told.position, &told.content_hash),
                (whole.0, whole.1.position, &whole.1.content_hash)
            );
            assert_eq!(told.carried_out, Some(Position { epoch: 1, seq: 6 }));
            assert_eq!((told.resource_version, told.asked_size_gib), (1234, 50));
            assert_eq!((told.phase.as_str(), told.steps.len()), (phase, steps), "{edited}");
            let event = json!({"type": "MODIFIED", "object": edited});
            assert!(matches!(serde_json::from_value(event), Ok(WatchEvent::<Seen>::Modified(_))));
        }
    }

    #[test]
    fn what_is_no_resource_is_none() {
        for value in [json!(7), json!({"metadata": 7, "spec": {}}), json!([])] {
            assert!(serde_json::from_value::<Seen>(value).is_err());
        }
    }
}
