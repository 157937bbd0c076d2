//! The real program, killed.

use std::process::Command;

use domain::{Position, RunState};
use testkit::eventually;
use wire::OutcomeKind;

use super::rig::{PATIENCE, Rig, name};

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

fn signal(process: &tokio::process::Child, signal: &str) {
    let id = process.id().unwrap().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_stopped_and_wakes_changes_nothing() {
    const DATABASES: usize = 12;
    let rig = Rig::with_partitions(4).await;
    let mut sleeper = rig.start_process();
    let first: Vec<_> = (0..DATABASES).map(|_| rig.instruction(1)).collect();
    for instruction in &first {
        rig.publish(instruction).await;
        rig.outcome(instruction, OutcomeKind::Applied).await;
    }
    // It sleeps with these in its hands, or about to read them.
    let second: Vec<_> = first.iter().map(|instruction| at(instruction, 2, RunState::Paused)).collect();
    for instruction in &second {
        rig.publish(instruction).await;
    }
    signal(&sleeper, "-STOP");
    let mut other = rig.start_process();
    let third: Vec<_> = first.iter().map(|instruction| at(instruction, 3, RunState::Deleted)).collect();
    for instruction in &third {
        rig.publish(instruction).await;
    }
    for instruction in &third {
        rig.outcome(instruction, OutcomeKind::Applied).await;
    }
    signal(&sleeper, "-CONT");
    // Awake again, it is a member again and takes its share.
    let fourth: Vec<_> = (0..DATABASES).map(|_| rig.instruction(1)).collect();
    for instruction in &fourth {
        rig.publish(instruction).await;
        rig.outcome(instruction, OutcomeKind::Applied).await;
    }
    for instruction in &third {
        let resource = rig.api().get(&name(instruction)).await.unwrap();
        assert_eq!(resource.spec.run_state, resources::RunState::Deleted, "what is deleted stays so");
        assert_eq!(resource.spec.instruction.map(|stamp| stamp.seq), Some(3));
    }
    for process in [&mut sleeper, &mut other] {
        assert!(process.try_wait().unwrap().is_none(), "both still run");
        process.start_kill().unwrap();
        process.wait().await.unwrap();
    }
}

fn at(instruction: &wire::Instruction, seq: i64, run_state: RunState) -> wire::Instruction {
    let mut changed = instruction.clone();
    changed.position = Position { epoch: 1, seq };
    changed.desired.run_state = run_state;
    changed
}
