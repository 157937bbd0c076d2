//! Somebody else who writes into our resources all the time, as another field manager.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use domain::Position;
use kube::api::{Api, Patch, PatchParams};
use resources::{QuestDB, names};
use runtime::CancellationToken;
use serde_json::json;
use testkit::eventually;
use wire::{Instruction, OutcomeKind};

use super::bulkhead::behind_a_front;
use super::rig::{PATIENCE, name};

const CHANGES: i64 = 15;

/// What became of the other one's writes.
#[derive(Default)]
struct Writes {
    metadata: AtomicUsize,
    refused: AtomicUsize,
    of_spec: AtomicUsize,
}

/// Takes our label and annotation for itself, and tries the spec, until told to stop.
async fn meddle(api: Api<QuestDB>, name: String, writes: Arc<Writes>, stop: CancellationToken) {
    let params = PatchParams::apply("somebody-else").force();
    let part = |body: serde_json::Value| {
        let mut whole = json!({"apiVersion": "crd.questdb.io/v1", "kind": "QuestDB"});
        whole.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        whole
    };
    let mut number = 0_usize;
    while !stop.is_cancelled() {
        number += 1;
        let mine = number.to_string();
        let metadata = part(json!({"metadata": {
            "name": name, "labels": {names::LABEL_TENANT: "mine", "of.somebody/else": mine},
            "annotations": {names::TRACEPARENT: mine},
        }}));
        if api.patch(&name, &params, &Patch::Apply(&metadata)).await.is_ok() {
            writes.metadata.fetch_add(1, Ordering::Relaxed);
        }
        let spec = json!({"spec": {"config": {"of.somebody.else": mine}}});
        let written = match number % 2 {
            0 => api.patch(&name, &PatchParams::default(), &Patch::Merge(&spec)).await,
            _ => {
                api.patch(
                    &name,
                    &params,
                    &Patch::Apply(&part(json!({"metadata": {"name": name}, "spec": spec["spec"]}))),
                )
                .await
            }
        };
        let counter = if written.is_ok() { &writes.of_spec } else { &writes.refused };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn at(instruction: &Instruction, seq: i64) -> Instruction {
    let mut next = instruction.clone();
    next.position = Position { epoch: 1, seq };
    next.desired.storage.size_gib += u32::try_from(seq).unwrap();
    next
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_field_manager_neither_stops_an_instruction_nor_gets_into_the_spec() {
    let (rig, front) = behind_a_front().await;
    let running = rig.start(&[]);
    let first = rig.instruction(1);
    rig.publish(&first).await;
    rig.outcome(&first, OutcomeKind::Applied).await;
    let (writes, stop) = (Arc::<Writes>::default(), CancellationToken::new());
    let meddling = tokio::spawn(meddle(rig.api(), name(&first), Arc::clone(&writes), stop.clone()));
    let mut seen = 0;
    for seq in 2..=CHANGES {
        let next = at(&first, seq);
        rig.publish(&next).await;
        rig.outcome(&next, OutcomeKind::Applied).await;
        let spec = rig.resource(&next, seq).await.spec;
        assert_eq!(spec.storage.size_gib, next.desired.storage.size_gib);
        assert!(spec.config.is_empty(), "somebody else got into the spec: {:?}", spec.config);
        // Between two instructions the other one always has its way with the metadata.
        let written = async || (writes.metadata.load(Ordering::Relaxed) > seen).then_some(());
        eventually(PATIENCE, "a write of the other one", written).await;
        seen = writes.metadata.load(Ordering::Relaxed);
    }
    stop.cancel();
    meddling.await.unwrap();
    assert!(writes.refused.load(Ordering::Relaxed) > 5, "the fault did not fire: the spec was not tried");
    assert_eq!(writes.of_spec.load(Ordering::Relaxed), 0, "a spec was written by somebody else");
    let applies = front.applies();
    assert!(applies < usize::try_from(CHANGES).unwrap() * 3, "{applies} applies for {CHANGES} instructions");
    // With the next instruction what is ours is ours again, and what is not stays.
    let last = at(&first, CHANGES + 1);
    rig.publish(&last).await;
    rig.outcome(&last, OutcomeKind::Applied).await;
    let labels = rig.resource(&last, CHANGES + 1).await.metadata.labels.unwrap_or_default();
    assert_eq!(labels.get(names::LABEL_TENANT), Some(&rig.tenant));
    assert!(labels.contains_key("of.somebody/else"));
    rig.count("select count(*) from parked_instructions", "0").await;
    rig.count("select count(*) from dead_letters", "0").await;
    running.stop().await;
}
