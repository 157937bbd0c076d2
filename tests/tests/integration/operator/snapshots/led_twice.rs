//! A copy that two operators begin at once, each for itself; and one that wakes in the midst of it.

use std::collections::BTreeSet;

use kube::api::DeleteParams;
use resources::names::snapshot::RELEASE_OWED;
use resources::{Phase, SnapshotPhase};
use testkit::{Failpoint, eventually, unique};

use super::super::crash::apart;
use super::super::others::Others;
use super::super::rig::PATIENCE;
use super::super::subject::Subject;
use super::{Stage, api, copies, settled, take};

/// The first one has seen its own copy through, and looks no more; the second one had looked before, and begins one after that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_a_second_leader_begins_once_the_first_has_ended_is_removed() {
    let mut subject = Subject::new(&unique("twice")).await;
    let others = Others::of(&subject.rig);
    let namespace = subject.rig.lease().await;
    let (front, _) = apart(&subject.rig, &namespace).await;
    let begins = Failpoint::hold("operator.snapshot.before", "CreateSnapshot", &testkit::scratch());
    let way = front.kubeconfig(&testkit::scratch());
    let second = subject.rig.spawn((&namespace, &way), &[&begins], &[]);
    subject.wish_run_state("Running").await;
    subject.carried_out(Phase::Ready).await;
    subject.wish_run_state("Paused").await;
    subject.carried_out(Phase::Paused).await;
    take(&subject, "twice", "Retain").await;
    begins.fired().await;
    let first = subject.rig.spawn((&namespace, &subject.rig.rights(&namespace).await), &[], &[]);
    let done = settled(&subject, "twice", SnapshotPhase::Succeeded).await;
    let told = done.status.unwrap().snapshot_id.unwrap();
    drop(first);

    begins.release().unwrap();
    let mut seen = BTreeSet::new();
    eventually(PATIENCE, "the second copy to be made and removed", async || {
        let now: BTreeSet<_> = copies(&subject).await.into_iter().map(|copy| copy.id.to_string()).collect();
        seen.extend(now.iter().cloned());
        (seen.len() == 2 && now == BTreeSet::from([told.clone()])).then_some(())
    })
    .await;
    let told_after = settled(&subject, "twice", SnapshotPhase::Succeeded).await.status.unwrap();
    assert_eq!(told_after.snapshot_id, Some(told), "{told_after:?}");
    api(&subject).delete("twice", &DeleteParams::default()).await.unwrap();
    subject.purge_with_others().await;
    drop((second, others));
}

/// Each releases what it finds, for its own look knows nothing of the other's, and the second one's checkpoint outlives the debt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_whose_debt_another_leader_has_struck_is_released_by_whoever_made_it() {
    let stage = Stage::new().await;
    let (rig, folder) = (&stage.subject.rig, testkit::scratch());
    let namespace = rig.lease().await;
    let (front, _) = apart(rig, &namespace).await;
    let held =
        ["first", "second"].map(|_| Failpoint::hold("operator.snapshot.after", "CreateCheckpoint", &folder));
    let first = rig.spawn((&namespace, &rig.rights(&namespace).await), &[&held[0]], &[]);
    take(&stage.subject, "struck", "Delete").await;
    held[0].fired().await;
    let of_first = stage.questdb.held_since().await;
    let second = rig.spawn((&namespace, &front.kubeconfig(&testkit::scratch())), &[&held[1]], &[]);
    held[1].fired().await;
    let of_second = stage.questdb.held_since().await;
    assert!(of_first.is_some() && of_second.is_some() && of_first != of_second, "{of_first:?} {of_second:?}");

    held[0].release().unwrap();
    eventually(PATIENCE, "the debt to be struck", async || {
        let found = api(&stage.subject).get("struck").await.ok()?;
        (!found.metadata.finalizers?.iter().any(|one| one == RELEASE_OWED)).then_some(())
    })
    .await;
    drop(first);
    assert_eq!(stage.questdb.held_since().await, of_second, "the first leaves alone what it did not make");
    held[1].release().unwrap();
    let done = settled(&stage.subject, "struck", SnapshotPhase::Succeeded).await;
    stage.is_free(&done).await;
    assert_eq!(copies(&stage.subject).await.len(), 1);
    stage.end(second).await;
}

/// It is about to have the database held, and is asleep until another one has seen the copy through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_wakes_once_the_copy_is_whole_holds_no_database() {
    let stage = Stage::new().await;
    let (rig, folder) = (&stage.subject.rig, testkit::scratch());
    let namespace = rig.lease().await;
    let holds = Failpoint::hold("operator.snapshot.before", "CreateCheckpoint", &folder);
    let way = rig.rights(&namespace).await;
    let mut sleeper = rig.spawn((&namespace, &way), &[&holds], &[]);
    take(&stage.subject, "slept", "Delete").await;
    holds.fired().await;
    sleeper.halt().await.unwrap();
    let heir = rig.spawn((&namespace, &way), &[], &[]);
    let done = settled(&stage.subject, "slept", SnapshotPhase::Succeeded).await;
    stage.is_free(&done).await;
    holds.release().unwrap();
    sleeper.resume().await.unwrap();
    let (well, log) = sleeper.end(PATIENCE).await.unwrap();
    assert!(!well && log.contains("leadership was lost"), "{log}");
    stage.is_free(&done).await;
    stage.end(heir).await;
}
