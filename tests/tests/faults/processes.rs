//! Programs killed, halted past their session, restarted in turn, under load.

#![cfg(test)]

use std::collections::BTreeSet;
use std::time::Duration;

use provisioner::work::BEGUN;
use testkit::{Failpoint, Handled, Mode, Spawned, Stopwatch, eventually, how_long, partitions};

use crate::recoveries::{self, recovered};
use crate::rig::{FAR, GRACE, NEAR, PATIENCE, Rig};

/// How long a halted member is away: longer than its session of six seconds.
const ASLEEP: Duration = Duration::from_secs(9);
const ASLEEP_AT_FULL_LENGTH: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_provisioner_is_replaced() {
    let rig = Rig::new().await;
    let _backend = rig.backend().await;
    let mut members = vec![rig.provisioner().await, rig.provisioner().await];
    let load = rig.load(1);
    let mut longest = Duration::ZERO;
    for _ in 0..3 {
        load.goes_on(15).await;
        let dying = members.remove(0);
        let had = eventually(PATIENCE, "a member with partitions", async || {
            Some(partitions(&dying.log())).filter(|had| !had.is_empty())
        })
        .await;
        dying.kill().await.unwrap();
        longest = longest.max(rig.recovery().await);
        let taken = async || {
            let theirs: BTreeSet<i32> = members.iter().flat_map(|member| partitions(&member.log())).collect();
            had.is_subset(&theirs).then_some(())
        };
        eventually(PATIENCE, "the fault to fire: its partitions with another member", taken).await;
        members.push(rig.provisioner().await);
    }
    recovered(recoveries::PROVISIONER_KILLED, longest);
    rig.proven(load, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_backend_loses_no_answer() {
    let rig = Rig::new().await;
    let mut backend = rig.backend().await;
    let _provisioner = rig.provisioner().await;
    let load = rig.load(2);
    let mut longest = Duration::ZERO;
    for _ in 0..3 {
        load.goes_on(15).await;
        let before = load.unanswered();
        backend.kill().await.unwrap();
        let begun = Stopwatch::start();
        let missed = async || (load.unanswered() > before).then_some(());
        eventually(PATIENCE, "the fault to fire: a user who is not answered", missed).await;
        backend = rig.backend().await;
        rig.recovery().await;
        longest = longest.max(begun.elapsed());
    }
    recovered(recoveries::BACKEND_KILLED, longest);
    rig.proven(load, &[]).await;
}

impl Rig {
    /// Lets those who are awake carry out what a sleeper has in its hands, and what comes after it: another change of one
    /// database, the end of the other.
    async fn overtaken(&self, changed: &str, deleted: &str) {
        let reached = async |id: &str, seq: i64| {
            let there = async || self.watched.reached(id, (1, seq));
            eventually(PATIENCE, "what the sleeper has in its hands, done by others", there).await
        };
        reached(changed, 2).await;
        reached(deleted, 2).await;
        self.grow(changed, 2).await;
        self.console.delete(&format!("/v1/databases/{deleted}")).await.unwrap();
        reached(changed, 3).await;
        reached(deleted, 3).await;
    }

    /// Waits until a program that was away carries something out: from then on it trusts the API server, and sends what it
    /// has at once.
    async fn works_again(&self, program: &Spawned) {
        // By then it has said what it had begun before.
        self.round_trip(NEAR).await;
        let before = says(program, NEAR_CLUSTER, APPLIED);
        eventually(PATIENCE, "the sleeper at work again", async || {
            self.round_trip(NEAR).await;
            (says(program, NEAR_CLUSTER, APPLIED) > before).then_some(())
        })
        .await;
    }

    /// Lets go of what a sleeper that is awake has in its hands of a database, and waits until nothing is left of it;
    /// whether the sleeper was refused and could say so. It parks what the API server does not answer in time at that
    /// very moment, and what is parked below what the cluster holds is carried out by anybody, or by nobody; and what
    /// it cannot tell at once it drops, where the partition is its own no more.
    async fn comes_to_nothing(&self, sleeper: &Spawned, id: &str, held: &Failpoint) -> bool {
        self.works_again(sleeper).await;
        held.release().unwrap();
        let rows = format!("select count(*) from parked_instructions where database_id = '{id}'");
        eventually(PATIENCE, "what the sleeper had in its hands, sent and refused", async || {
            let is_parked_no_more = says(sleeper, id, PARKED) > 0 && self.ask(&rows).await == "0";
            let is_gone = is_parked_no_more || says(sleeper, id, HELD) > 0;
            let is_refused = says(sleeper, id, SUPERSEDED) > 0;
            (is_refused || is_gone).then_some(is_refused)
        })
        .await
    }
}

/// What a program logs of an instruction that the API server has taken.
const APPLIED: &str = "instruction applied";
/// The same of one that the API server cannot take now.
const PARKED: &str = "instruction parked";
/// The same of one that cannot be ended now.
const HELD: &str = "record held";
/// The same of one that is older than what the API server has.
const SUPERSEDED: &str = "instruction superseded";
/// How the nearer cluster is named in a log.
const NEAR_CLUSTER: &str = "\"near\"";

/// How often a program says this of an instruction of a database or a cluster.
fn says(program: &Spawned, of: &str, said: &str) -> usize {
    program.log().lines().filter(|line| line.contains(of) && line.contains(said)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sleeper_that_wakes_changes_nothing() {
    let rig = Rig::new().await;
    let _backend = rig.backend().await;
    let first = rig.provisioner().await;
    let (changed, deleted) = tokio::join!(rig.victim(NEAR), rig.victim(NEAR));
    rig.settled().await;
    first.terminate(GRACE).await.unwrap();
    // Of these it has a change in its hands, and not sent yet.
    let held = [&changed, &deleted].map(|id| Failpoint::hold(BEGUN, id, &rig.folder));
    let mut sleeper = rig.provisioner_failing_at(&held.each_ref()).await;
    for (id, held) in [&changed, &deleted].into_iter().zip(&held) {
        rig.grow(id, 1).await;
        held.fired().await;
    }
    let mut other = rig.provisioner().await;
    // Many deletions: what the sleeper has in its hands is older than the end of its database.
    let mut plan = testkit::load::Plan::new(3, &[NEAR, FAR]);
    plan.deletes = 35;
    let lasts = how_long(ASLEEP, ASLEEP_AT_FULL_LENGTH);
    let load = testkit::load::Load::start(&rig.console, &plan);
    load.goes_on(30).await;
    // What it sent is held on the way, and goes on to the API server while it sleeps and others have taken over.
    let before = rig.far.harmed();
    rig.far.set(Mode::Hold);
    load.goes_on(8).await;
    let harmed = async || (rig.far.harmed() > before).then_some(());
    eventually(PATIENCE, "the fault to fire: something held", harmed).await;
    sleeper.halt().await.unwrap();
    let asleep = tokio::time::Instant::now();
    rig.far.set(Mode::Pass);
    let recovery = rig.recovery().await;
    rig.overtaken(&changed, &deleted).await;
    load.goes_on(20).await;
    testkit::lasting(lasts.saturating_sub(asleep.elapsed())).await;
    sleeper.resume().await.unwrap();
    recovered(recoveries::PROVISIONER_HALTED, recovery);
    let mut refused = 0;
    for (id, held) in [&changed, &deleted].into_iter().zip(&held) {
        refused += usize::from(rig.comes_to_nothing(&sleeper, id, held).await);
    }
    assert!(refused > 0, "the fault did not fire: nothing that the sleeper had in its hands was sent");
    load.goes_on(20).await;
    let (ledger, _) = rig.proven(load, &[]).await;
    for id in [&changed, &deleted] {
        let seen: Vec<_> = rig.watched.states(id).iter().map(|seen| seen.position).collect();
        assert_eq!(seen, [(1, 1), (1, 2), (1, 3)], "a sleeper took {id} back");
    }
    assert!(ledger.deleted() > 0, "something was deleted meanwhile");
    for member in [&mut sleeper, &mut other] {
        member.lives().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_relays_one_of_which_sleeps_keep_the_order() {
    let rig = Rig::new().await;
    let _backend = rig.backend().await;
    let mut second = rig.second_backend("relay").await;
    let _provisioner = rig.provisioner().await;
    let load = rig.load(4);
    let (mut longest, mut published) = (Duration::ZERO, 0.0);
    for _ in 0..4 {
        load.goes_on(10).await;
        // Each time it is at work: it has published something since it went on.
        let at_work = async || {
            let now = second.metric("instructions_published", "").await;
            (now > published).then_some(now)
        };
        published = eventually(PATIENCE, "the fault to fire: a second relay at work", at_work).await;
        second.halt().await.unwrap();
        longest = longest.max(rig.recovery().await);
        load.goes_on(15).await;
        second.resume().await.unwrap();
    }
    recovered(recoveries::RELAY_HALTED, longest);
    second.lives().unwrap();
    rig.proven(load, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_in_turn_are_not_noticed() {
    let rig = Rig::new().await;
    let mut backend = rig.backend().await;
    let mut provisioner = rig.provisioner().await;
    let load = rig.load(5);
    let (mut longest, mut slowest) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..3 {
        load.goes_on(10).await;
        let at_work = async || (!partitions(&provisioner.log()).is_empty()).then_some(());
        eventually(PATIENCE, "the fault to fire: a member with partitions", at_work).await;
        let next = rig.provisioner().await;
        slowest = slowest.max(provisioner.terminate(GRACE).await.unwrap());
        longest = longest.max(rig.recovery().await);
        provisioner = next;
        slowest = slowest.max(backend.terminate(GRACE).await.unwrap());
        backend = rig.backend().await;
    }
    recovered(recoveries::IN_TURN_ENDS, slowest);
    recovered(recoveries::IN_TURN, longest);
    rig.proven(load, &[]).await;
}

/// How often a provisioner makes place for its successor.
const ROLLS: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_rolls_with_work_in_hand_leave_nothing_half_done() {
    let rig = Rig::new().await;
    let _backend = rig.backend().await;
    let mut provisioner = rig.provisioner().await;
    let (load, readers) = rig.followed(63);
    // So that there is always something in hand.
    let slow = Mode::Slow(Duration::from_millis(400));
    rig.near.set(slow.clone());
    rig.far.set(slow);
    let (mut slowest, mut in_hand) = (Duration::ZERO, 0);
    for _ in 0..ROLLS {
        let next = rig.provisioner().await;
        load.goes_on(5).await;
        in_hand += usize::from(provisioner.metric("provisioner_in_flight", "").await > 0.0);
        slowest = slowest.max(provisioner.terminate(GRACE).await.unwrap());
        provisioner = next;
    }
    assert!(in_hand > ROLLS / 4, "the fault did not fire: {in_hand} of {ROLLS} had work in hand");
    rig.near.set(Mode::Pass);
    rig.far.set(Mode::Pass);
    let begun = Stopwatch::start();
    rig.recovery().await;
    recovered(recoveries::ROLLED, begun.elapsed());
    recovered(recoveries::ROLLED_ENDS, slowest);
    rig.proven(load, &[]).await;
    let (streams, _) = readers.check(&rig.database_url, PATIENCE).await.unwrap();
    let half_done: Vec<Handled> = rig.handled().flat_map(|(_, found)| found.unended()).collect();
    assert_eq!(half_done, [], "somebody ended with work in hand");
    println!("{in_hand} of {ROLLS} had work in hand; {streams} streams showed each event once");
}
