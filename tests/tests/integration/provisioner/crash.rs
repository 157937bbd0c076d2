//! The real program, killed.

use domain::Position;
use testkit::eventually;
use wire::OutcomeKind;

use super::rig::{PATIENCE, Rig};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_moment_it_ends_in_the_same_state() {
    const DATABASES: usize = 40;
    let rig = Rig::new().await;
    let first: Vec<_> = (0..DATABASES).map(|_| rig.instruction(1)).collect();
    let second: Vec<_> = first
        .iter()
        .map(|instruction| {
            let mut changed = instruction.clone();
            changed.position = Position { epoch: 1, seq: 2 };
            changed.desired.storage.size_gib = 70;
            changed
        })
        .collect();
    let mut killed = 0;
    for (before, after) in first.chunks(DATABASES / 4).zip(second.chunks(DATABASES / 4)) {
        let mut process = rig.start_process();
        for instruction in before.iter().chain(after) {
            rig.publish(instruction).await;
        }
        // Killed as soon as it has begun with this part.
        rig.resource(&before[0], 1).await;
        process.start_kill().unwrap();
        process.wait().await.unwrap();
        killed += 1;
    }
    assert_eq!(killed, 4);
    let mut process = rig.start_process();
    for instruction in &second {
        rig.outcome(instruction, OutcomeKind::Applied).await;
        let resource = rig.resource(instruction, 2).await;
        assert_eq!(resource.spec.storage.size_gib, 70);
    }
    eventually(PATIENCE, "an observation of each", async || {
        let told = |instruction: &wire::Instruction| {
            rig.heard.about(instruction.database).iter().any(|gossip| match &gossip.said {
                wire::Said::Observation(seen) => seen.position == instruction.position,
                wire::Said::Outcome(_) => false,
            })
        };
        second.iter().all(told).then_some(())
    })
    .await;
    process.start_kill().unwrap();
    process.wait().await.unwrap();
}
