//! EC2 refuses a copy: the database does not stand still until somebody has cured that.

use resources::SnapshotPhase;
use resources::names::snapshot::RELEASE_OWED;
use serde_json::{Value, json};
use testkit::eventually;

use super::super::rig::PATIENCE;
use super::{Stage, api, copies, settled, take};
use crate::endpoint;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_goes_on_while_ec2_refuses_its_copy() {
    let stage = Stage::new().await;
    let subject = &stage.subject;
    let volume = subject.volume().await.id;
    let fault = json!({ "kind": "fail", "action": "CreateSnapshot", "contains": volume.as_str(),
        "code": "SnapshotLimitExceeded", "status": 400 });
    let fault = endpoint::fault(&fault).await;
    let operator = stage.operator(&[]).await;
    take(subject, "refused", "Retain").await;
    eventually(PATIENCE, "the database to be let go, and why", async || {
        let found = api(subject).get("refused").await.ok()?;
        let ready = found.status.as_ref()?.conditions.iter().find(|one| one.type_ == "Ready")?;
        let is_told = ready.reason == "CopyRefused" && ready.message.contains("SnapshotLimitExceeded");
        let owes = found.metadata.finalizers.iter().flatten().any(|one| one == RELEASE_OWED);
        (is_told && !owes && stage.questdb.held_since().await.is_none()).then_some(())
    })
    .await;
    assert!(copies(subject).await.is_empty());
    let ended = endpoint::control("DELETE", &format!("/faults/{fault}"), &Value::Null).await;
    assert!(ended["fired"].as_u64().is_some_and(|fired| fired > 0), "{ended}");
    let done = settled(subject, "refused", SnapshotPhase::Succeeded).await;
    stage.is_free(&done).await;
    assert_eq!(copies(subject).await.len(), 1);
    stage.end(operator).await;
}
