//! No voluntary disruption: whoever drains the machine asks, and is refused until the database has left it.

use resources::names;
use serde_json::json;

use crate::{Kind, Manifest, Subject};

/// The `PodDisruptionBudget`.
pub fn disruption_budget(subject: &Subject) -> Manifest {
    let name = names::guard(&subject.name);
    Manifest {
        kind: Kind::PodDisruptionBudget,
        namespace: Some(subject.namespace.clone()),
        body: json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": subject.owned(&name),
            "spec": { "maxUnavailable": 0, "selector": { "matchLabels": subject.selector() } },
        }),
        name,
        uid: None,
    }
}
