//! An operator whose wall clock is twenty minutes wrong, one way and then the other. AWS refuses what it signs, and is asked again
//! by its own time; and how old something is, the API server's clock says.

use cloud::InstanceState;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use resources::{Phase, SnapshotPhase, names};
use serde_json::{Value, json};
use testkit::{WrongClock, eventually, unique};

use super::others::Others;
use super::rig::{PATIENCE, Rig};
use super::snapshots::{api, make, settled};
use super::stale::passes;
use super::subject::Subject;
use crate::endpoint::{control, serial};

/// In seconds: more than AWS bears, and than a silent machine or a snapshot is waited for here.
const SKEW: i64 = 1_200;

/// Waits until AWS refused something of a rig for its time.
async fn refused(rig: &Rig, since: u64) {
    eventually(PATIENCE, "a request that is refused for its time", async || {
        let answer = control("GET", &format!("/journal?since={since}"), &Value::Null).await;
        let mut calls = answer["calls"].as_array().unwrap().iter();
        let is_of_rig = |call: &Value| call["params"].to_string().contains(&rig.cluster);
        calls.any(|call| call["result"] == "RequestExpired" && is_of_rig(call)).then_some(())
    })
    .await;
}

impl Subject {
    /// The kubelet of its first machine is heard from now on, or silent.
    async fn kubelet(&self, ready: &str) {
        let nodes: Api<Node> = Api::all(self.rig.admin.clone());
        let since = format!("{:.0}", Timestamp::now());
        let condition = json!({ "type": "Ready", "status": ready, "lastTransitionTime": since });
        let status = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
        let name = names::node(&self.database[28..], 1);
        nodes.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_wrong_and_jumps_decides_nothing() {
    let mut subject = Subject::new(&unique("clock")).await;
    let others = Others::of(&subject.rig);
    let clock = WrongClock::new(&testkit::scratch(), &subject.name).unwrap();
    clock.jump(SKEW).unwrap();
    let (lease, since) = (subject.rig.lease().await, serial().await);
    let kubeconfig = subject.rig.rights(&lease).await;
    let [library, skew] = clock.environment().map(|(name, path)| (name, path.to_str().unwrap()));
    let operator = subject.rig.spawn((&lease, &kubeconfig), &[], &[library, skew]);
    subject.wish_run_state("Running").await;
    // Before it is done: the journal is all tests', and forgets reads of a while ago.
    refused(&subject.rig, since).await;
    let served = subject.carried_out(Phase::Ready).await;
    let conditions = served.status.unwrap().conditions;
    let off = |at: Timestamp| Timestamp::now().duration_since(at).abs() > SignedDuration::from_mins(10);
    assert!(conditions.iter().all(|found| !off(found.last_transition_time.0)), "{conditions:?}");

    // Its kubelet has only just fallen silent, and may come back: nothing is ended for it yet.
    drop(others);
    subject.kubelet("Unknown").await;
    subject.wish_run_state("Paused").await;
    eventually(PATIENCE, "QuestDB to be told to stop", async || {
        subject.pod().await.metadata.deletion_timestamp.map(drop)
    })
    .await;
    passes(&operator, 6.0).await;
    let machines = subject.machines().await;
    assert!(machines.iter().any(|machine| machine.state == InstanceState::Running), "{machines:?}");
    assert!(subject.pod().await.metadata.deletion_timestamp.is_some(), "its pod has time to stop");

    let since = serial().await;
    clock.jump(-SKEW).unwrap();
    subject.kubelet("True").await;
    // Before it is done, for the same reason: while it waits for the pod it looks at EC2 again and again.
    refused(&subject.rig, since).await;
    let _others = Others::of(&subject.rig);
    subject.carried_out(Phase::Paused).await;

    // It is asked for now, and ten minutes are enough.
    clock.jump(SKEW).unwrap();
    let spec = json!({ "database": subject.name, "deletionPolicy": "Delete", "deadlineSeconds": SKEW / 2 });
    make(&subject, json!({ "metadata": { "name": "still" }, "spec": spec })).await;
    settled(&subject, "still", SnapshotPhase::Succeeded).await;
    api(&subject).delete("still", &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, "the end of the snapshot", async || {
        api(&subject).get_opt("still").await.unwrap().is_none().then_some(())
    })
    .await;
    subject.purge_with_others().await;
}
