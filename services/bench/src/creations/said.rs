//! The first status of a database, as an operator writes it: that it is being made, and most often with which disk. What is stored in the
//! end says more and is larger, so the API server is asked what was written before.

use std::pin::pin;

use anyhow::{Context as _, bail, ensure};
use futures::TryStreamExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::DynamicObject;
use resources::{Phase, QuestDB, QuestDBStatus};

use super::place::Place;
use super::written::namespaced;

/// For how many seconds the API server is listened to. What is over it tells at once.
const LISTENED: u32 = 30;

/// The version after which comes all that is written from now on.
pub(super) async fn now(place: &Place) -> anyhow::Result<String> {
    let databases = namespaced::<QuestDB>(place);
    let list = databases.list_metadata(&ListParams::default().limit(1)).await.context("listing resources")?;
    list.metadata.resource_version.context("a list has a version")
}

/// The first status that was written since then of the one database of a place.
pub(super) async fn first(place: &Place, since: &str) -> anyhow::Result<Box<QuestDBStatus>> {
    let parameters = WatchParams::default().timeout(LISTENED);
    let events = namespaced::<QuestDB>(place).watch(&parameters, since).await;
    let mut events = pin!(events.context("asking what was written")?);
    while let Some(event) = events.try_next().await.context("hearing what was written")? {
        let object = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => object,
            WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => {
                bail!("the API server does not tell what was written: {}", status.message)
            }
        };
        if let Some(status) = said(&object)? {
            return Ok(status);
        }
    }
    bail!("no operator said how the database is")
}

/// What was said of a database in a version of its resource; an error when it is not what is first said of one.
fn said(object: &DynamicObject) -> anyhow::Result<Option<Box<QuestDBStatus>>> {
    let Some(status) = object.data.get("status") else { return Ok(None) };
    let status: Box<QuestDBStatus> = serde_json::from_value(status.clone()).context("a status")?;
    if status.phase.is_none() {
        return Ok(None);
    }
    let is_whole = status.database_id.is_some() && !status.conditions.is_empty() && !status.steps.is_empty();
    ensure!(
        is_whole && status.phase == Some(Phase::Provisioning),
        "this is not what is first said of a database: {status:?}"
    );
    Ok(Some(status))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(status: &Value) -> DynamicObject {
        let object = json!({
            "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB", "metadata": { "name": "a" }, "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn what_is_first_said_of_a_database_is_known_and_nothing_is_taken_for_it() {
        let whole = json!({
            "phase": "Provisioning", "databaseId": "d",
            "conditions": [{
                "type": "Ready", "status": "False", "reason": "Resource", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
            "steps": [{ "name": "resource", "state": "Running" }],
        });
        let first = said(&object(&whole)).unwrap().unwrap();
        assert_eq!(serde_json::to_value(first).unwrap()["steps"], whole["steps"]);
        assert!(said(&object(&json!({}))).unwrap().is_none(), "nothing was said yet");
        let mut with_disk = whole.clone();
        with_disk["volume"] = json!({ "id": "vol-1", "sizeGib": 20, "state": "available" });
        assert!(said(&object(&with_disk)).unwrap().is_some_and(|first| first.volume.is_some()));
        for (key, other) in [
            ("phase", json!("Ready")),
            ("databaseId", Value::Null),
            ("conditions", json!([])),
            ("steps", json!([])),
        ] {
            let mut wrong = whole.clone();
            wrong[key] = other;
            assert!(said(&object(&wrong)).is_err(), "{key}");
        }
    }
}
