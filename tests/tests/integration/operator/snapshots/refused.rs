//! EC2 refuses a copy: the database does not stand still until somebody has cured that.

use resources::SnapshotPhase;
use resources::names::snapshot::RELEASE_OWED;
use serde_json::json;
use testkit::{Failpoint, eventually};

use super::super::rig::PATIENCE;
use super::{Stage, api, copies, settled, take};
use crate::endpoint;

/// Waits until the database is let go, and it is told with EC2's code why.
async fn goes_on(stage: &Stage, name: &str, code: &str) {
    eventually(PATIENCE, "the database to be let go, and why", async || {
        let found = api(&stage.subject).get(name).await.ok()?;
        let ready = found.status.as_ref()?.conditions.iter().find(|one| one.type_ == "Ready")?;
        let is_told = ready.reason == "CopyRefused" && ready.message.contains(code);
        let owes = found.metadata.finalizers.iter().flatten().any(|one| one == RELEASE_OWED);
        (is_told && !owes && stage.questdb.held_since().await.is_none()).then_some(())
    })
    .await;
}

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
    goes_on(&stage, "refused", "SnapshotLimitExceeded").await;
    assert!(copies(subject).await.is_empty());
    endpoint::end_fault(&fault).await;
    let done = settled(subject, "refused", SnapshotPhase::Succeeded).await;
    stage.is_free(&done).await;
    assert_eq!(copies(subject).await.len(), 1);
    stage.end(operator).await;
}

/// Nobody could tell later that the database stood still for that one, so another takes its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_goes_on_while_ec2_refuses_to_mark_its_copy() {
    let stage = Stage::new().await;
    let subject = &stage.subject;
    let begun = Failpoint::hold("operator.snapshot.after", "CreateSnapshot", &testkit::scratch());
    let operator = stage.operator(&[&begun]).await;
    take(subject, "unmarked", "Retain").await;
    begun.fired().await;
    let unmarked = eventually(PATIENCE, "a copy", async || copies(subject).await.pop()).await.id;
    let fault = json!({ "kind": "fail", "action": "CreateTags", "contains": unmarked.as_str(),
        "code": "UnauthorizedOperation", "status": 403 });
    let fault = endpoint::fault(&fault).await;
    begun.release().unwrap();
    goes_on(&stage, "unmarked", "UnauthorizedOperation").await;
    endpoint::end_fault(&fault).await;
    let done = settled(subject, "unmarked", SnapshotPhase::Succeeded).await;
    stage.is_free(&done).await;
    let [copy] = &copies(subject).await[..] else { panic!("not one copy") };
    assert_ne!(copy.id, unmarked);
    stage.end(operator).await;
}
