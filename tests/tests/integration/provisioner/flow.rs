//! The road without trouble, and what order means on it.

use domain::{Position, RunState};
use kube::api::{Api, Patch, PatchParams};
use resources::names;
use serde_json::json;
use testkit::eventually;
use testkit::spawned::sum;
use wire::OutcomeKind;

use super::bulkhead::{behind_a_front, metric};
use super::rig::{PATIENCE, Rig, TRACEPARENT, name};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instruction_becomes_a_resource_and_is_told() {
    let rig = Rig::new().await;
    let running = rig.start(&[]);
    let instruction = rig.instruction(1);
    rig.publish(&instruction).await;
    let resource = rig.resource(&instruction, 1).await;
    let stamp = resource.spec.instruction.as_ref().unwrap();
    assert_eq!((stamp.id.as_str(), stamp.epoch), (instruction.id.to_string().as_str(), 1));
    assert_eq!(stamp.hash, instruction.content_hash());
    assert_eq!(resource.spec.storage.size_gib, 50);
    let annotations = resource.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations.get(names::TRACEPARENT).map(String::as_str), Some(TRACEPARENT));
    let labels = resource.metadata.labels.clone().unwrap_or_default();
    assert_eq!(labels.get(names::LABEL_TENANT), Some(&rig.tenant));
    assert_eq!(labels.get(names::LABEL_DATABASE), Some(&instruction.key()));
    let outcome = rig.outcome(&instruction, OutcomeKind::Applied).await;
    assert_eq!((outcome.instruction, outcome.operation), (instruction.id, instruction.operation));
    let seen = rig.observation(&instruction, "an observation of it", |_| true).await;
    assert_eq!((seen.position, seen.present), (instruction.position, true));
    assert_eq!((seen.content_hash, seen.resource_name), (instruction.content_hash(), name(&instruction)));
    assert!(seen.term >= 1 && seen.resource_version > 0);
    eventually(PATIENCE, "readiness", async || running.health.readiness.is_ready().then_some(())).await;
    // It is told first and counted then, each time that it is done: a partition that went and came has it done again. The cluster is
    // asked how it is beside its work.
    eventually(PATIENCE, "an apply that is counted once", async || {
        let metrics = running.metrics.encode().unwrap();
        let labels = "{cluster=\"bare\",disposition=\"applied\"}";
        let counted = sum(&metrics, "provisioner_instructions_total", labels);
        let most = f64::from(u32::try_from(rig.told(instruction.database)).unwrap());
        (1.0..=most).contains(&counted).then_some(())
    })
    .await;
    metric(&running, "provisioner_cluster_up{cluster=\"bare\"} 1").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_instruction_changes_nothing() {
    let rig = Rig::new().await;
    let running = rig.start(&[]);
    let newest = rig.instruction(5);
    rig.publish(&newest).await;
    rig.outcome(&newest, OutcomeKind::Applied).await;
    let before = rig.resource(&newest, 5).await;
    let mut older = newest.clone();
    older.position = Position { epoch: 1, seq: 4 };
    older.desired.run_state = RunState::Deleted;
    rig.publish(&older).await;
    let outcome = rig.outcome(&older, OutcomeKind::Superseded).await;
    assert!(outcome.message.contains("1/5"), "{}", outcome.message);
    assert_eq!(rig.resource(&newest, 5).await, before);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn saying_it_again_changes_nothing_and_a_new_epoch_outranks() {
    let rig = Rig::new().await;
    let running = rig.start(&[]);
    let first = rig.instruction(7);
    rig.publish(&first).await;
    rig.outcome(&first, OutcomeKind::Applied).await;
    let before = rig.resource(&first, 7).await;
    rig.publish(&first).await;
    let mut after = first.clone();
    after.position = Position { epoch: 2, seq: 1 };
    after.desired.restart_nonce = Some("again".to_owned());
    eventually(PATIENCE, "the second outcome", async || (rig.told(first.database) >= 2).then_some(())).await;
    assert_eq!(rig.resource(&first, 7).await.metadata.resource_version, before.metadata.resource_version);
    rig.publish(&after).await;
    rig.outcome(&after, OutcomeKind::Applied).await;
    let api = rig.api();
    let held = api.get(&name(&first)).await.unwrap();
    assert_eq!(held.spec.instruction.map(|stamp| (stamp.epoch, stamp.seq)), Some((2, 1)));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_without_a_resource_leaves_its_tombstone() {
    let rig = Rig::new().await;
    let running = rig.start(&[]);
    let mut deletion = rig.instruction(9);
    deletion.desired.run_state = RunState::Deleted;
    rig.publish(&deletion).await;
    let tombstone = rig.resource(&deletion, 9).await;
    assert_eq!(tombstone.spec.run_state, resources::RunState::Deleted);
    let mut create = deletion.clone();
    create.position = Position { epoch: 1, seq: 8 };
    create.desired.run_state = RunState::Running;
    rig.publish(&create).await;
    rig.outcome(&create, OutcomeKind::Superseded).await;
    assert_eq!(rig.resource(&deletion, 9).await.spec.run_state, resources::RunState::Deleted);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_added_to_the_spec_is_taken_away() {
    let rig = Rig::new().await;
    let running = rig.start(&[]);
    let first = rig.instruction(1);
    rig.publish(&first).await;
    rig.outcome(&first, OutcomeKind::Applied).await;
    let patch = json!({"metadata": {"annotations": {"mine": "stays"}}});
    let api: Api<_> = rig.api();
    api.patch(&name(&first), &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    let mut second = first.clone();
    second.position = Position { epoch: 1, seq: 2 };
    second.desired.storage.size_gib = 60;
    rig.publish(&second).await;
    let resource = rig.resource(&first, 2).await;
    assert_eq!(resource.spec.storage.size_gib, 60);
    assert_eq!(
        resource.metadata.annotations.unwrap_or_default().get("mine").map(String::as_str),
        Some("stays")
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_goes_on_where_it_was() {
    let (rig, front) = behind_a_front().await;
    let first = rig.instruction(1);
    let applies = || front.seen(|seen| seen.is_apply() && seen.path.contains(&name(&first))).len();
    rig.publish(&first).await;
    let running = rig.start(&[]);
    rig.outcome(&first, OutcomeKind::Applied).await;
    // At its end it waits for brokers for a second only: what they know by then they know however busy they are.
    rig.committed().await;
    running.stop().await;
    // The one before may have done it twice itself, where its partition went and came before the brokers knew.
    let before = applies();
    assert!(before > 0);
    let second = rig.instruction(1);
    rig.publish(&second).await;
    let running = rig.start(&["--offset-reset", "error"]);
    rig.outcome(&second, OutcomeKind::Applied).await;
    assert_eq!(applies(), before, "the first record was not read again");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_group_must_be_told_where_to_begin() {
    let rig = Rig::new().await;
    rig.publish(&rig.instruction(1)).await;
    let running = rig.start(&["--offset-reset", "error"]);
    let end = running.end().await;
    assert!(end.contains("no valid offset") && end.contains("earliest"), "{end}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_number_of_partitions_is_said() {
    let rig = Rig::new().await;
    let running = rig.start(&["--topic-partitions", "8"]);
    let end = running.end().await;
    assert!(end.contains("has 1 partitions, 8 are configured"), "{end}");
}
