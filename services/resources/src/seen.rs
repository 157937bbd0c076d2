//! A custom resource as far as this program can read it. Pure.
//!
//! The definition in a cluster, and who writes by it, may be newer than this program and know words that it does not; or older, and
//! drop parts without which the rest cannot be read. *Invariant:* a resource that cannot be read in whole is seen all the same, and
//! it hides no other: a list that has it is a list. What else of it can be read is there; that it is not whole is never
//! forgotten ([`unread`]).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::{Error, Map, Value, json};

use crate::{
    QuestDB, QuestDBSnapshot, QuestDBSnapshotSchedule, QuestDBSnapshotScheduleSpec,
    QuestDBSnapshotScheduleStatus, QuestDBSnapshotSpec, QuestDBSnapshotStatus, QuestDBSpec, QuestDBStatus,
    unmanaged,
};

/// Annotation that only what was read here has, and nothing in an API server, which takes no key with a space.
const UNREAD: &str = "not read";

/// By this name `serde_json` gives the text of a value, as to its own `RawValue`. Whatever else a value is read from takes no notice of
/// the name.
const TEXT: &str = "$serde_json::private::RawValue";

/// A resource of a cluster.
#[derive(Debug, Clone)]
pub struct Seen<K = QuestDB> {
    /// What could be read of it. In a box: it takes kilobytes, and goes through many hands.
    pub object: Box<K>,
    /// Why the rest could not.
    pub unread: Option<String>,
}

/// A kind of which an object is seen that cannot be read in whole.
pub trait Readable: Resource<DynamicType = ()> + DeserializeOwned {
    /// What can be read of an object, field by field.
    ///
    /// # Errors
    ///
    /// It is no object: its metadata cannot be read.
    fn readable(value: &Value) -> Result<Self, Error>;
}

/// Why a resource with this metadata is not whole; nothing when it is. Whatever it does not have may be otherwise in the API server.
pub fn unread(metadata: &ObjectMeta) -> Option<&str> {
    metadata.annotations.as_ref()?.get(UNREAD).map(String::as_str)
}

impl<K: Readable> Seen<K> {
    /// The object, and whether it is whole goes with it ([`unread`]).
    #[must_use]
    pub fn marked(self) -> Box<K> {
        let Self { mut object, unread } = self;
        if let Some(reason) = unread {
            let annotations = object.meta_mut().annotations.get_or_insert_with(BTreeMap::new);
            annotations.insert(UNREAD.to_owned(), reason);
        }
        object
    }

    fn whole(object: Box<K>) -> Self {
        Self { object, unread: None }
    }

    /// One that cannot be read as a whole.
    fn in_part(value: &Value) -> Result<Self, Error> {
        let object = Box::new(K::readable(value)?);
        let why = K::deserialize(value).err();
        let unread = why.map_or_else(|| "it is no resource".to_owned(), |why| why.to_string());
        Ok(Self { object, unread: Some(unread) })
    }
}

impl<'de, K: Readable> Deserialize<'de> for Seen<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(TEXT, Reader(PhantomData))
    }
}

/// Reads one as a whole first: nearly all can be. What is read from a text is read from it again when it cannot; anything else has to
/// be taken to pieces and kept so until it is known, which takes several times as long.
struct Reader<K>(PhantomData<K>);

/// What was taken to pieces.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Read<K> {
    Whole(Box<K>),
    Other(Value),
}

impl<'de, K: Readable> Visitor<'de> for Reader<K> {
    type Value = Seen<K>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a resource")
    }

    /// From a text: `serde_json` gives it as the value of its only key.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Seen<K>, A::Error> {
        let text = map.next_entry::<IgnoredAny, String>()?.map(|(_, text)| text).unwrap_or_default();
        // Nobody who sees a resource asks who manages its fields.
        if let Ok(object) = unmanaged(&mut serde_json::Deserializer::from_str(&text)) {
            return Ok(Seen::whole(object));
        }
        let value: Value = serde_json::from_str(&text).map_err(A::Error::custom)?;
        Seen::in_part(&value).map_err(A::Error::custom)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Seen<K>, D::Error> {
        match Read::<K>::deserialize(deserializer)? {
            Read::Whole(object) => Ok(Seen::whole(object)),
            Read::Other(value) => Seen::in_part(&value).map_err(D::Error::custom),
        }
    }
}

impl Readable for QuestDB {
    fn readable(value: &Value) -> Result<Self, Error> {
        let spec = fields(value, "spec");
        let size = spec.get("storage").and_then(|storage| u32::deserialize(storage.get("sizeGib")?).ok());
        let least = Map::from_iter([("storage".to_owned(), json!({"sizeGib": size.unwrap_or(0)}))]);
        let mut object = Self::new("", read(only_readable::<QuestDBSpec>(spec, &least))?);
        object.metadata = metadata(value)?;
        object.status = Some(read(only_readable::<QuestDBStatus>(fields(value, "status"), &Map::new()))?);
        Ok(object)
    }
}

impl Readable for QuestDBSnapshot {
    fn readable(value: &Value) -> Result<Self, Error> {
        let spec = fields(value, "spec");
        let least = texts(&spec, &["database"]);
        let mut object = Self::new("", read(only_readable::<QuestDBSnapshotSpec>(spec, &least))?);
        object.metadata = metadata(value)?;
        let status = fields(value, "status");
        object.status = Some(read(only_readable::<QuestDBSnapshotStatus>(status, &Map::new()))?);
        Ok(object)
    }
}

impl Readable for QuestDBSnapshotSchedule {
    fn readable(value: &Value) -> Result<Self, Error> {
        let spec = fields(value, "spec");
        let least = texts(&spec, &["database", "schedule"]);
        let mut object = Self::new("", read(only_readable::<QuestDBSnapshotScheduleSpec>(spec, &least))?);
        object.metadata = metadata(value)?;
        let status = fields(value, "status");
        object.status = Some(read(only_readable::<QuestDBSnapshotScheduleStatus>(status, &Map::new()))?);
        Ok(object)
    }
}

fn metadata(value: &Value) -> Result<ObjectMeta, Error> {
    ObjectMeta::deserialize(value.get("metadata").unwrap_or(&Value::Null))
}

fn fields(value: &Value, name: &str) -> Map<String, Value> {
    value.get(name).and_then(Value::as_object).cloned().unwrap_or_default()
}

/// Fields that have to be there, each as it is or empty.
fn texts(spec: &Map<String, Value>, names: &[&str]) -> Map<String, Value> {
    let text = |name: &str| spec.get(name).and_then(Value::as_str).unwrap_or_default();
    names.iter().map(|&name| (name.to_owned(), json!(text(name)))).collect()
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
impl<K: Resource<DynamicType = ()>> Resource for Seen<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
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

    /// One as a watch tells of it: read from the text, and, where what happened to it comes after it, from its pieces.
    fn events(object: &Value) -> [Seen; 2] {
        let texts = [
            format!(r#"{{"type": "MODIFIED", "object": {object}}}"#),
            format!(r#"{{"object": {object}, "type": "MODIFIED"}}"#),
        ];
        texts.map(|text| {
            let event = serde_json::from_str::<WatchEvent<Seen>>(&text).unwrap();
            let WatchEvent::Modified(seen) = event else { panic!("{text} is no change") };
            seen
        })
    }

    #[test]
    fn what_can_be_read_in_whole_is_taken_as_it_is() {
        for seen in events(&shown()) {
            assert_eq!((seen.unread, serde_json::to_value(&seen.object).unwrap()), (None, shown()));
        }
        let [seen] = list(&[shown()]).try_into().unwrap();
        assert_eq!(seen.unread, None);
        let object = *seen.marked();
        assert_eq!((unread(&object.metadata), serde_json::to_value(&object).unwrap()), (None, shown()));
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
            let object = *seen.marked();
            let position =
                |found: &QuestDB| found.spec.instruction.as_ref().map(|found| (found.epoch, found.seq));
            assert_eq!((position(&object), object.spec.storage.size_gib), (Some((1, 7)), 50), "{edited}");
            assert!(object.metadata.annotations.as_ref().is_some_and(|found| found["a"] == "b"));
            assert!(unread(&object.metadata).is_some_and(|found| found.contains(why)), "{edited}");
            // It stays so when it is kept as text.
            let kept: QuestDB = serde_json::from_str(&serde_json::to_string(&object).unwrap()).unwrap();
            assert_eq!(unread(&kept.metadata), unread(&object.metadata));
            for event in events(&edited) {
                assert_eq!(event.unread.as_deref(), unread(&object.metadata));
            }
        }
    }

    #[test]
    fn what_lost_a_part_of_its_position_is_seen_and_has_none() {
        for part in ["id", "databaseId", "epoch", "seq", "render", "hash"] {
            let mut edited = shown();
            edited["spec"]["instruction"].as_object_mut().unwrap().remove(part).unwrap();
            let [seen] = list(&[edited]).try_into().unwrap();
            assert!(seen.unread.as_ref().is_some_and(|why| why.contains(part)), "{part}: {seen:?}");
            assert_eq!(seen.marked().spec.instruction, None, "{part}");
        }
    }

    /// What is left of an object whose definition was changed, or that somebody wrote by another one.
    fn left<K: Readable>(object: Value) -> (K, String) {
        assert!(K::deserialize(&object).is_err(), "it can be read: {object}");
        let object = *serde_json::from_value::<Seen<K>>(object).unwrap().marked();
        let why = unread(object.meta()).unwrap().to_owned();
        (object, why)
    }

    #[test]
    fn of_snapshots_and_schedules_too_what_can_be_read_is_there() {
        let metadata = json!({ "name": "a", "namespace": "n", "finalizers": ["f"] });
        let (snapshot, why) = left::<QuestDBSnapshot>(json!({
            "metadata": metadata,
            "spec": { "database": "trades", "deletionPolicy": "Archive", "deadlineSeconds": 60 },
            "status": { "phase": "Levitating", "snapshotId": "snap-1", "progress": "half" },
        }));
        assert!(why.contains("Archive") || why.contains("Levitating"), "{why}");
        assert_eq!((snapshot.spec.database.as_str(), snapshot.spec.deadline_seconds), ("trades", 60));
        let status = snapshot.status.unwrap();
        assert_eq!(
            (status.snapshot_id.as_deref(), status.phase, status.progress),
            (Some("snap-1"), None, None)
        );
        assert_eq!(snapshot.metadata.finalizers, Some(vec!["f".to_owned()]));
        let (schedule, why) = left::<QuestDBSnapshotSchedule>(json!({
            "metadata": metadata,
            "spec": { "schedule": "0 3 * * *", "suspend": true },
        }));
        assert!(why.contains("database"), "{why}");
        let spec = schedule.spec;
        assert_eq!((spec.database.as_str(), spec.schedule.as_str(), spec.suspend), ("", "0 3 * * *", true));
    }

    #[test]
    fn what_is_no_resource_is_none() {
        for value in [json!(7), json!({"metadata": 7, "spec": {}}), json!([])] {
            assert!(serde_json::from_value::<Seen>(value).is_err());
        }
    }
}
