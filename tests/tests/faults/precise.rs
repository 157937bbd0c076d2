//! Provisioners that die at one exact place: before the apply, after it, after its outcome was told, after the commit of
//! its offset; and a partition that comes back while its keys are at work.

#![cfg(test)]

use std::time::Duration;

use kube::api::{Api, ListParams};
use provisioner::work::{BEGUN, CARRIED, TOLD};
use resources::QuestDB;
use testkit::{Failpoint, Spawned, Stopwatch, eventually, handlings};

use crate::recoveries::{self, recovered};
use crate::rig::{GRACE, NEAR, PARTITIONS, PATIENCE, Rig};

/// Databases about which a member stands still: enough to meet every partition.
const HELD: usize = 10;
/// Records in memory when each of them has a newer one behind it.
const BOTH: f64 = 20.0;

impl Rig {
    /// The resource of a database as the API server has it.
    async fn resource(&self, id: &str) -> QuestDB {
        let api: Api<QuestDB> = Api::namespaced(self.client.clone(), &format!("qdb-{}", self.tenant));
        let is_of = |one: &QuestDB| one.spec.instruction.as_ref().is_some_and(|held| held.database_id == id);
        eventually(PATIENCE, "the resource of a database", async || {
            api.list(&ListParams::default()).await.ok()?.items.into_iter().find(is_of)
        })
        .await
    }

    /// The version of a resource once a seq is reported as carried out: from then on nobody has a reason to write.
    async fn version_at(&self, id: &str, seq: i64) -> String {
        eventually(PATIENCE, "a resource that is reported as carried out", async || {
            let resource = self.resource(id).await;
            let carried = resource.status?.instruction?.seq;
            (carried == seq).then_some(resource.metadata.resource_version?)
        })
        .await
    }

    /// Whether the group's commit says that the record there is finished: everything before the offset is.
    async fn is_committed(&self, (partition, offset): (i64, i64)) -> bool {
        let ask =
            bus::groups::committed(&self.connection, &self.group, &self.instructions, PARTITIONS, PATIENCE);
        let committed = ask.await.unwrap();
        let at = committed.get(&i32::try_from(partition).unwrap()).copied();
        at.is_some_and(|next| next > offset)
    }

    /// Lets a provisioner die at a place about a change of a database; answers where the change's record stands.
    async fn dies_at(&self, place: &str, id: &str, seq: i64) -> (i64, i64) {
        let point = Failpoint::abort(place, id, &self.folder);
        let dying = self.provisioner_failing_at(&[&point]).await;
        self.grow(id, seq).await;
        let log = dying.dies(PATIENCE).await.unwrap();
        assert!(point.has_fired(), "it died elsewhere");
        let found = handlings(&log);
        found.of(id).last().unwrap_or_else(|| panic!("it died without the record: {log}")).place
    }
}

/// Waits until a program has said that it applied the record there: at once, or once the API server took again what
/// it had parked. Where it lost its partitions in between it says so twice, and what that changes is asked elsewhere.
async fn applied(program: &Spawned, id: &str, place: (i64, i64)) {
    eventually(PATIENCE, "the record applied by the heir", async || {
        let log = program.log();
        let handled = handlings(&log);
        let mut ours = handled.of(id).into_iter().filter(|one| one.place == place);
        let at_once = ours.any(|one| one.said == "instruction applied");
        let later = |line: &str| line.contains(id) && line.contains("parked instruction settled");
        (at_once || log.lines().any(later)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_before_the_apply_delays_it() {
    let rig = Rig::new().await;
    let _backend = rig.backend().await;
    let first = rig.provisioner().await;
    let id = rig.victim(NEAR).await;
    rig.settled().await;
    first.terminate(GRACE).await.unwrap();
    let load = rig.load(71);
    let place = rig.dies_at(BEGUN, &id, 1).await;
    let begun = Stopwatch::start();
    let held = rig.resource(&id).await.spec.instruction.unwrap();
    assert_eq!(held.seq, 1, "the fault did not fire: it was applied before the death");
    assert!(!rig.is_committed(place).await, "an offset was committed before its effect");
    let heir = rig.provisioner().await;
    eventually(PATIENCE, "the change applied by the heir", async || rig.watched.reached(&id, (1, 2))).await;
    recovered(recoveries::DIED_BEFORE_APPLY, begun.elapsed());
    eventually(PATIENCE, "the offset committed", async || rig.is_committed(place).await.then_some(())).await;
    applied(&heir, &id, place).await;
    let times = rig.watched.states(&id).iter().filter(|seen| seen.position == (1, 2)).count();
    assert_eq!(times, 1, "applied once");
    load.goes_on(30).await;
    rig.proven(load, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_after_the_apply_repeats_it_without_effect() {
    let rig = Rig::new().await;
    let _backend = rig.backend().await;
    let first = rig.provisioner().await;
    let id = rig.victim(NEAR).await;
    rig.settled().await;
    first.terminate(GRACE).await.unwrap();
    let load = rig.load(72);
    let mut longest = Duration::ZERO;
    for (seq, died_at) in [(2, CARRIED), (3, TOLD)] {
        let place = rig.dies_at(died_at, &id, seq - 1).await;
        let begun = Stopwatch::start();
        let version = rig.version_at(&id, seq).await;
        assert!(!rig.is_committed(place).await, "the fault did not fire: the offset was committed");
        let heir = rig.provisioner().await;
        let done = async || rig.is_committed(place).await.then_some(());
        eventually(PATIENCE, "the offset committed by the heir", done).await;
        longest = longest.max(begun.elapsed());
        applied(&heir, &id, place).await;
        assert_eq!(rig.version_at(&id, seq).await, version, "the same again is no write");
        load.goes_on(10).await;
        heir.terminate(GRACE).await.unwrap();
    }
    recovered(recoveries::DIED_AFTER_APPLY, longest);
    let _last = rig.provisioner().await;
    rig.proven(load, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_after_the_commit_repeats_nothing() {
    let rig = Rig::new().await;
    let _backend = rig.backend().await;
    let dying = rig.provisioner().await;
    let id = rig.victim(NEAR).await;
    let load = rig.load(73);
    load.goes_on(15).await;
    rig.grow(&id, 1).await;
    let version = rig.version_at(&id, 2).await;
    let place = handlings(&dying.log()).of(&id).last().unwrap().place;
    eventually(PATIENCE, "the offset committed", async || rig.is_committed(place).await.then_some(())).await;
    let before: Vec<_> = handlings(&dying.log()).all;
    dying.kill().await.unwrap();
    let begun = Stopwatch::start();
    let heir = rig.provisioner().await;
    rig.recovery().await;
    recovered(recoveries::DIED_AFTER_COMMIT, begun.elapsed());
    let again = handlings(&heir.log()).all;
    assert!(again.iter().all(|one| one.database != id), "what was committed was handled again");
    assert_eq!(rig.version_at(&id, 2).await, version);
    let repeated = again.iter().filter(|one| before.iter().any(|earlier| earlier.place == one.place)).count();
    println!("{} records were handled before the death, {repeated} of them again", before.len());
    rig.proven(load, &[]).await;
}

/// Everybody's records are held at one member, the partitions go to another one and come back, and newer records come with
/// them: of one key never two run at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_comes_back_waits_for_its_keys_at_work() {
    let rig = Rig::new().await;
    let _backend = rig.backend().await;
    let first = rig.provisioner().await;
    let ids = futures::future::join_all((0..HELD).map(|_| rig.victim(NEAR))).await;
    rig.settled().await;
    first.terminate(GRACE).await.unwrap();
    let points: Vec<Failpoint> = ids.iter().map(|id| Failpoint::hold(BEGUN, id, &rig.folder)).collect();
    let slow = rig.provisioner_failing_at(&points.iter().collect::<Vec<_>>()).await;
    for id in &ids {
        rig.grow(id, 1).await;
    }
    for point in &points {
        point.fired().await;
    }
    // Some of its partitions go to another member, which does what the slow one has in its hands.
    let quick = rig.provisioner().await;
    let moved = eventually(PATIENCE, "databases carried out by the other member", async || {
        let done = ids.iter().filter(|id| rig.watched.reached(id, (1, 2)).is_some());
        let done: Vec<String> = done.cloned().collect();
        (!done.is_empty()).then_some(done)
    })
    .await;
    quick.terminate(GRACE).await.unwrap();
    for id in &ids {
        rig.grow(id, 2).await;
    }
    // The newer records are read by the slow member, again the only one, and wait there behind the older ones.
    let early = eventually(PATIENCE, "everything read", async || {
        let early = ids.iter().filter(|id| rig.watched.reached(id, (1, 3)).is_some()).count();
        let read = slow.metric("provisioner_in_memory", "").await >= BOTH;
        (read || early > 0).then_some(early)
    })
    .await;
    let begun = Stopwatch::start();
    for point in &points {
        point.release().unwrap();
    }
    let newest = async || ids.iter().all(|id| rig.watched.reached(id, (1, 3)).is_some()).then_some(());
    eventually(PATIENCE, "the newest of each applied", newest).await;
    println!("{} of {HELD} databases were in two members' hands", moved.len());
    assert_eq!(early, 0, "a newer record of a key was handled beside the older one");
    recovered(recoveries::GIVEN_BACK, begun.elapsed());
    let load = rig.load(74);
    load.goes_on(20).await;
    rig.proven(load, &[]).await;
}
