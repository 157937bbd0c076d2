//! A release does not wait for EC2, nor for those that do.

use std::time::{Duration, Instant};

use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use testkit::{Failpoint, eventually};

use super::super::rig::PATIENCE;
use super::{Stage, api, make};
use crate::endpoint;
use crate::support::within;

/// Longer than a release takes on busy processors, and shorter than EC2 is waited for once: 25 s.
const SOON: Duration = Duration::from_secs(20);
/// More than are worked on at once.
const CROWD: usize = 24;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_is_made_while_ec2_is_silent_and_others_wait_for_it() {
    within(SOON, a_release).await;
}

/// How long a release takes while EC2 is silent.
async fn a_release() -> Duration {
    let stage = Stage::new().await;
    let subject = &stage.subject;
    let place = Failpoint::hold("operator.snapshot.after", "CreateCheckpoint", &testkit::scratch());
    let operator = stage.operator(&[&place]).await;
    let snapshot = |name: &str, database: &str| json!({ "metadata": { "name": name }, "spec": { "database": database } });
    make(subject, snapshot("held", &subject.name)).await;
    place.fired().await;
    assert!(stage.questdb.held_since().await.is_some());

    let silent =
        json!({ "kind": "delay", "action": "Describe*", "contains": subject.rig.cluster, "delay_s": 60 });
    let silent = endpoint::fault(&silent).await;
    for number in 0..CROWD {
        make(subject, snapshot(&format!("idle-{number}"), "nobody")).await;
    }
    // Sixteen of them, and the one that is held.
    eventually(PATIENCE, "a crowd that waits for EC2", async || {
        let active =
            operator.metric("controller_runtime_active_workers", "controller=\"questdbsnapshot\"").await;
        (active >= 17.0).then_some(())
    })
    .await;
    api(subject).delete("held", &DeleteParams::default()).await.unwrap();
    place.release().unwrap();
    let begun = Instant::now();
    eventually(PATIENCE, "the release", async || stage.questdb.held_since().await.is_none().then_some(()))
        .await;
    let took = begun.elapsed();

    endpoint::end_fault(&silent).await;
    for number in 0..CROWD {
        api(subject).delete(&format!("idle-{number}"), &DeleteParams::default()).await.unwrap();
    }
    eventually(3 * PATIENCE, "the end of all of them", async || {
        let left = api(subject).list(&ListParams::default()).await.ok()?.items;
        left.is_empty().then_some(())
    })
    .await;
    stage.end(operator).await;
    took
}
