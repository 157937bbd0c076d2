//! The order for a copy of a database's disk, as the planner itself gives it.

use resources::names;
use serde_json::json;

use crate::{Kind, Manifest, Subject};

/// How long the copy may take to begin, in seconds.
const WITHIN: u32 = 900;

/// An order of this name; the annotation says what for. It belongs to nobody, and its copy outlives it: it is there for the day
/// on which the database is not.
pub(crate) fn snapshot_order(subject: &Subject, name: &str, (key, value): (&str, &str)) -> Manifest {
    let mut metadata = subject.unowned(name);
    metadata["annotations"] = json!({ key: value });
    Manifest {
        kind: Kind::Snapshot,
        namespace: Some(subject.namespace.clone()),
        name: name.to_owned(),
        uid: None,
        body: json!({
            "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
            "kind": "QuestDBSnapshot",
            "metadata": metadata,
            "spec": { "database": subject.name, "deadlineSeconds": WITHIN, "deletionPolicy": "Retain" },
        }),
    }
}
