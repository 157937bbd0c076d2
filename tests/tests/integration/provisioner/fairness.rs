//! Somebody who wants very much at once: others, and those who wait, are served in between.

use std::collections::BTreeSet;

use provisioner::work::TOLD;
use testkit::{eventually, unique};
use wire::{Instruction, OutcomeKind, headers};

use super::bulkhead::{behind_a_front, metric};
use super::rig::{PATIENCE, Rig, Running, name};
use crate::front::{Front, Seen};

const MANY: usize = 150;
const FEW: usize = 6;
/// Requests at once.
const AT_ONCE: usize = 16;
/// Few hands, so that the order in which they are given work shows; what they hold at first is not given up.
const HANDS: [&str; 6] = ["--concurrency", "4", "--cluster-concurrency", "4", "--call-timeout", "50"];

/// How many others were applied before the last of these was. What is done again does not count.
fn others_before(front: &Front, ours: &[Instruction]) -> usize {
    let is_of = |one: &Instruction, seen: &Seen| seen.path.contains(&name(one));
    let applies = front.seen(Seen::is_apply);
    let first = |one: &Instruction| applies.iter().position(|seen| is_of(one, seen)).expect("it was applied");
    let last = ours.iter().map(first).max().expect("there are some");
    let is_ours = |seen: &Seen| ours.iter().any(|one| is_of(one, seen));
    let others = applies[..last].iter().filter(|seen| !is_ours(seen));
    others.map(Seen::about).collect::<BTreeSet<_>>().len()
}

/// Starts a provisioner; nothing is applied before all that stands on the topic was read.
async fn start_with_all_read(rig: &Rig, front: &Front) -> Running {
    front.hold_applies();
    let running = rig.start(&HANDS);
    metric(&running, &format!("provisioner_in_memory {}", MANY + FEW)).await;
    front.release();
    running
}

impl Rig {
    /// Takes the resources away: observers of later tests would have to tell of all of them.
    async fn leave_nothing<'a>(&self, of: impl Iterator<Item = &'a Instruction>) {
        for some in of.collect::<Vec<_>>().chunks(AT_ONCE) {
            futures::future::join_all(some.iter().map(|instruction| self.take_away(instruction))).await;
        }
    }
}

/// One hand for the cluster, and one instruction that is never done being told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_only_to_be_told_takes_no_place_of_its_cluster() {
    let rig = Rig::new().await;
    let instructions: Vec<Instruction> = (0..3).map(|_| rig.instruction(1)).collect();
    let mark = rig.credentials.join("mark");
    let order = format!("{TOLD}/{}=hold,{}", instructions[0].database, mark.display());
    let mut process = rig.start_process_failing_at(&order, &["--cluster-concurrency", "1"]);
    for instruction in &instructions {
        rig.publish(instruction).await;
        rig.outcome(instruction, OutcomeKind::Applied).await;
        // The first one is held right after that was told.
        eventually(PATIENCE, "the first one held", async || mark.exists().then_some(())).await;
    }
    process.start_kill().unwrap();
    process.wait().await.unwrap();
    rig.leave_nothing(instructions.iter()).await;
}

async fn applied(rig: &Rig, instructions: &[Instruction]) {
    for instruction in instructions {
        rig.outcome(instruction, OutcomeKind::Applied).await;
    }
}

/// All of the greedy one stands in the topic before anything of the modest one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_that_wants_very_much_takes_turns_with_one_that_wants_little() {
    let (rig, front) = behind_a_front().await;
    let greedy: Vec<Instruction> = (0..MANY).map(|_| rig.instruction(1)).collect();
    let mut modest: Vec<Instruction> = (0..FEW).map(|_| rig.instruction(1)).collect();
    let tenant = unique("t");
    for instruction in &mut modest {
        instruction.tenant = tenant.parse().unwrap();
    }
    for instruction in greedy.iter().chain(&modest) {
        rig.publish(instruction).await;
    }
    let running = start_with_all_read(&rig, &front).await;
    applied(&rig, &modest).await;
    let before = others_before(&front, &modest);
    assert!(before < MANY / 3, "{before} of {MANY} came first");
    applied(&rig, &greedy).await;
    rig.count("select count(*) from parked_instructions", "0").await;
    println!("{before} of the greedy tenant's {MANY} came before the {FEW} of the modest one");
    running.stop().await;
    rig.leave_nothing(greedy.iter().chain(&modest)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_are_served_before_bulk_work_of_their_own_tenant() {
    let (rig, front) = behind_a_front().await;
    let bulk: Vec<Instruction> = (0..MANY).map(|_| rig.instruction(1)).collect();
    let people: Vec<Instruction> = (0..FEW).map(|_| rig.instruction(1)).collect();
    let class = [(headers::CLASS, headers::CLASS_BULK.to_owned())];
    for instruction in &bulk {
        rig.publish_with(&instruction.key(), instruction.encode(), &class).await;
    }
    for instruction in &people {
        rig.publish(instruction).await;
    }
    let running = start_with_all_read(&rig, &front).await;
    applied(&rig, &people).await;
    let before = others_before(&front, &people);
    assert!(before < MANY / 3, "{before} of {MANY} came first");
    applied(&rig, &bulk).await;
    println!("{before} of {MANY} in bulk came before the {FEW} that somebody waits for");
    running.stop().await;
    rig.leave_nothing(bulk.iter().chain(&people)).await;
}
