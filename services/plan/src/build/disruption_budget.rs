//! No voluntary disruption: whoever drains the machine asks, and is refused until the database has left it.

use resources::names;
use serde_json::json;

use super::with_parts;
use crate::{Kind, Manifest, Subject};

/// The `PodDisruptionBudget`.
pub fn disruption_budget(subject: &Subject) -> Manifest {
    let name = names::guard(&subject.name);
    Manifest {
        kind: Kind::PodDisruptionBudget,
        namespace: Some(subject.namespace.clone()),
        body: with_parts(
            json!({
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "spec": { "maxUnavailable": 0, "selector": { "matchLabels": subject.selector() } },
            }),
            [("metadata", subject.owned(&name))],
        ),
        name,
        uid: None,
    }
}
