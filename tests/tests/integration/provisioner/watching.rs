//! Watches that tell nothing, that end, that cannot be resumed: what happened meanwhile is told all the same.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use kube::api::{Api, DeleteParams, Patch, PatchParams};
use resources::QuestDB;
use serde_json::json;
use testkit::eventually;
use wire::{Instruction, Observation, OutcomeKind, Said};

use super::bulkhead::behind_a_front;
use super::healing::OFTEN;
use super::rig::{PATIENCE, Rig, name};
use crate::front::{Act, Front, Seen, Watches};

impl Rig {
    /// Where the resource of an instruction is.
    fn place(&self, of: &Instruction) -> Api<QuestDB> {
        Api::namespaced(self.client.clone(), &format!("qdb-{}", of.tenant))
    }

    /// Reports a phase, as the operator does.
    async fn report(&self, of: &Instruction, phase: &str) {
        let status = json!({"status": {"phase": phase}});
        let params = PatchParams::default();
        self.place(of).patch_status(&name(of), &params, &Patch::Merge(&status)).await.unwrap();
    }

    /// Takes the resource of a deleted database away.
    pub(super) async fn take_away(&self, of: &Instruction) {
        self.report(of, "Deleted").await;
        self.place(of).delete(&name(of), &DeleteParams::default()).await.unwrap();
    }

    /// A database that is applied and was told of.
    async fn seen(&self) -> Instruction {
        let instruction = self.instruction(1);
        self.publish(&instruction).await;
        self.outcome(&instruction, OutcomeKind::Applied).await;
        self.observation(&instruction, "the first observation", |_| true).await;
        instruction
    }

    fn observations(&self, of: &Instruction) -> Vec<Observation> {
        let said = self.heard.about(of.database).into_iter();
        let seen = said.filter_map(|gossip| match gossip.said {
            Said::Observation(seen) => Some(*seen),
            Said::Outcome(_) => None,
        });
        seen.collect()
    }
}

/// Waits until something was lost on the way to a watch.
async fn lost(front: &Front) {
    eventually(PATIENCE, "something lost", async || (front.lost() > 0).then_some(())).await;
}

/// The watch loses changes of a resource one after the other, the end of one, the end and the return of another, and a new
/// one; and the server does not remember where the watch was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_watch_missed_is_told_when_it_cannot_be_resumed() {
    let (rig, front) = behind_a_front().await;
    // Whoever takes the cluster anew lists it anew, and misses nothing.
    rig.keep_observers().await;
    let running = rig.start(&[]);
    let (changed, gone, replaced) = (rig.seen().await, rig.seen().await, rig.seen().await);
    front.set_watches(Watches::Silent);
    for phase in ["Provisioning", "Degraded", "Ready"] {
        rig.report(&changed, phase).await;
    }
    lost(&front).await;
    rig.take_away(&gone).await;
    let before = rig.api().get(&name(&replaced)).await.unwrap();
    rig.take_away(&replaced).await;
    rig.publish(&replaced).await;
    let after =
        eventually(PATIENCE, "it again", async || rig.api().get_opt(&name(&replaced)).await.ok()?).await;
    assert_ne!(after.metadata.uid, before.metadata.uid);
    rig.report(&replaced, "Pending").await;
    let fresh = rig.instruction(1);
    rig.publish(&fresh).await;
    rig.outcome(&fresh, OutcomeKind::Applied).await;
    for instruction in [&changed, &gone, &replaced] {
        let phases: BTreeSet<String> =
            rig.observations(instruction).into_iter().map(|seen| seen.phase).collect();
        assert_eq!(phases, BTreeSet::from([String::new()]), "the fault did not fire: it was told");
    }
    // Where the watch was is forgotten.
    let refused = AtomicUsize::new(0);
    front.set(move |seen| {
        let forgotten = seen.is_watch() && refused.fetch_add(1, Ordering::Relaxed) == 0;
        if forgotten { Act::Forget } else { Act::Pass }
    });
    front.set_watches(Watches::Ended);
    front.fired(1).await;
    front.set_watches(Watches::Told);
    rig.observation(&changed, "the newest phase", |seen| seen.phase == "Ready").await;
    rig.observation(&gone, "that it is gone", |seen| !seen.present).await;
    let version: u64 = after.metadata.resource_version.unwrap().parse().unwrap();
    rig.observation(&replaced, "the one that replaced it", |seen| {
        seen.present && seen.resource_version > version && seen.phase == "Pending"
    })
    .await;
    rig.observation(&fresh, "the new one", |seen| seen.present).await;
    assert!(rig.observations(&changed).iter().all(|seen| seen.phase != "Degraded"), "it was merged");
    running.stop().await;
}

/// The same without that: the server tells everything since, and in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_watch_missed_is_told_when_it_is_resumed() {
    let (rig, front) = behind_a_front().await;
    let running = rig.start(&[]);
    let (changed, gone) = (rig.seen().await, rig.seen().await);
    front.set_watches(Watches::Silent);
    rig.report(&changed, "Degraded").await;
    lost(&front).await;
    rig.report(&changed, "Ready").await;
    rig.take_away(&gone).await;
    front.set_watches(Watches::Ended);
    rig.observation(&changed, "the newest phase", |seen| seen.phase == "Ready").await;
    rig.observation(&gone, "that it is gone", |seen| !seen.present).await;
    running.stop().await;
}

/// Its connection dies and nobody says so: neither an event nor an end comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_died_without_a_word_is_begun_anew() {
    let (rig, front) = behind_a_front().await;
    let running = rig.start(&["--watch-timeout", "1"]);
    let (changed, gone) = (rig.seen().await, rig.seen().await);
    let watches = || front.seen(Seen::is_watch).len();
    // One that is begun while all are silent may have its first word after that, and is another one as well.
    let before = watches();
    front.set_watches(Watches::Silent);
    let silent = Instant::now();
    rig.report(&changed, "Ready").await;
    rig.take_away(&gone).await;
    lost(&front).await;
    front.set_watches(Watches::Told);
    rig.observation(&changed, "the newest phase", |seen| seen.phase == "Ready").await;
    rig.observation(&gone, "that it is gone", |seen| !seen.present).await;
    println!("told {:?} after the watch had died", silent.elapsed());
    assert!(watches() > before, "the fault did not fire: the same watch told it");
    running.stop().await;
}

/// The same while another connection to that server works, by which it is asked where it stands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_watch_did_not_see_is_not_confirmed() {
    let (rig, front) = behind_a_front().await;
    // Whoever takes the cluster anew lists it anew, and misses nothing.
    rig.keep_observers().await;
    // The watch itself would go on for minutes.
    let running = rig.start(&OFTEN[..2]);
    let changed = rig.seen().await;
    rig.count("select count(confirmed_at) from cluster_observers", "1").await;
    front.set_watches(Watches::Silent);
    rig.report(&changed, "Ready").await;
    lost(&front).await;
    let answers = async || {
        let asked = || front.seen(Seen::asks_for_a_version).len();
        let before = asked();
        eventually(PATIENCE, "some answers", async || (asked() >= before + 9).then_some(())).await;
    };
    // A confirmation of before may be on its way to Postgres.
    answers().await;
    let since = testkit::query(&rig.database_url, "select clock_timestamp()").await.unwrap();
    answers().await;
    let confirmed = format!("select confirmed_at > '{since}' from cluster_observers");
    assert_eq!(testkit::query(&rig.database_url, &confirmed).await.unwrap(), "f");
    front.set_watches(Watches::Told);
    rig.observation(&changed, "the newest phase", |seen| seen.phase == "Ready").await;
    rig.count(&confirmed, "t").await;
    running.stop().await;
}
