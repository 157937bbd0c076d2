//! What is seen of the resources and told.

use std::collections::BTreeMap;

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use testkit::eventually;
use wire::{OutcomeKind, Said};

use super::rig::{PATIENCE, Rig, name};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_change_of_status_is_told_and_so_is_the_end() {
    let rig = Rig::new().await;
    let running = rig.start(&[]);
    let instruction = rig.instruction(1);
    rig.publish(&instruction).await;
    rig.outcome(&instruction, OutcomeKind::Applied).await;
    let status = json!({"status": {
        "phase": "Ready",
        "instruction": {"id": instruction.id.to_string(), "epoch": 1, "seq": 1, "render": 1, "hash": "h"},
        "steps": [{"name": "volume", "state": "Succeeded", "startedAt": "2026-01-02T03:04:05Z"}],
        "volume": {"id": "vol-1", "sizeGib": 50, "state": "in-use"},
        "endpoints": {"http": "http://x:9000", "pg": "x:8812", "ilp": "x:9009", "min": "x:9003"},
        "credentialsSecret": "trades-credentials",
    }});
    let api = rig.api();
    api.patch_status(&name(&instruction), &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let seen = rig.observation(&instruction, "the phase Ready", |seen| seen.phase == "Ready").await;
    assert_eq!(seen.carried_out, Some(instruction.position));
    assert_eq!(seen.volume.map(|volume| volume.id).as_deref(), Some("vol-1"));
    assert_eq!(seen.endpoints.map(|endpoints| endpoints.postgres).as_deref(), Some("x:8812"));
    assert_eq!((seen.steps.len(), seen.credentials_secret.as_str()), (1, "trades-credentials"));
    let deleted = json!({"status": {"phase": "Deleted"}});
    api.patch_status(&name(&instruction), &PatchParams::default(), &Patch::Merge(&deleted)).await.unwrap();
    api.delete(&name(&instruction), &DeleteParams::default()).await.unwrap();
    let gone = rig.observation(&instruction, "that it is gone", |seen| !seen.present).await;
    assert!(gone.resource_version > seen.resource_version);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_said_again_and_a_new_observer_has_a_new_term() {
    let rig = Rig::new().await;
    let running = rig.start(&["--gossip-period", "0.5"]);
    let instruction = rig.instruction(1);
    rig.publish(&instruction).await;
    rig.outcome(&instruction, OutcomeKind::Applied).await;
    let observations = || {
        let said = rig.heard.about(instruction.database);
        said.into_iter().filter(|gossip| matches!(gossip.said, Said::Observation(_))).count()
    };
    eventually(PATIENCE, "the same observation three times", async || (observations() >= 3).then_some(()))
        .await;
    let first = rig.observation(&instruction, "an observation", |_| true).await;
    running.stop().await;
    let running = rig.start(&[]);
    let again =
        rig.observation(&instruction, "an observation of a later term", |seen| seen.term > first.term).await;
    assert_eq!(again.position, instruction.position);
    running.stop().await;
}

/// Others take what is not renewed, and tell of everything anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_speaks_for_a_cluster_renews_its_right_to() {
    let rig = Rig::new().await;
    let running = rig.start(&[]);
    // When the right ends, as it was seen first under each term: where Postgres stands still for too long there is another one.
    let mut ends: BTreeMap<String, f64> = BTreeMap::new();
    eventually(PATIENCE, "a right that is renewed", async || {
        let statement = "select term, extract(epoch from expires_at) from cluster_observers";
        let right = testkit::query(&rig.database_url, statement).await.unwrap();
        let (term, end) = right.split_once('|')?;
        let end: f64 = end.parse().unwrap();
        (end > *ends.entry(term.to_owned()).or_insert(end)).then_some(())
    })
    .await;
    running.stop().await;
}
