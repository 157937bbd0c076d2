//! Snapshots of a real QuestDB: the operator, the API server and the AWS endpoint are real; only the machine is not.

mod copied;
mod led_twice;
mod refused;
mod released;
mod unanswered;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cloud::{Select, SnapshotId, SnapshotState, TagFilter, VolumeSnapshot, key};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use resources::names::snapshot::{FINALIZER, RELEASE_OWED};
use resources::{Phase, QuestDBSnapshot, SnapshotPhase, names};
use serde_json::{Value, json};
use testkit::{Failpoint, Spawned, eventually, unique};
use tokio::task::AbortHandle;

use super::others::Others;
use super::questdb::Questdb;
use super::rig::{PATIENCE, patiently};
use super::subject::Subject;
use crate::endpoint;
use crate::front::Front;

/// A database that serves, with a real process behind it.
pub(super) struct Stage {
    pub(super) subject: Subject,
    pub(super) questdb: Questdb,
}

impl Stage {
    /// Served by an operator that ends here.
    pub(super) async fn new() -> Self {
        // Names of hosts are everybody's.
        let mut subject = Subject::new(&unique("kept")).await;
        let operator = subject.rig.start().await;
        subject.serving().await;
        drop(operator);
        Self::of(subject).await
    }

    /// A process behind a database that serves.
    pub(super) async fn of(subject: Subject) -> Self {
        let (rig, name) = (&subject.rig, subject.name.as_str());
        let secrets: Api<Secret> = Api::namespaced(rig.admin.clone(), &rig.namespace);
        let secret = secrets.get(&names::credentials(name)).await.unwrap();
        let text = |key: &str| String::from_utf8(secret.data.as_ref().unwrap()[key].0.clone()).unwrap();
        let credentials = (text(names::secret::HTTP_USER), text(names::secret::HTTP_PASSWORD));
        let questdb = Questdb::start(credentials).await;
        let stage = Self { subject, questdb };
        stage.is_at(stage.questdb.address).await;
        stage
    }

    /// Has the pod at an address.
    async fn is_at(&self, address: IpAddr) {
        let status = json!({ "status": { "podIP": address, "podIPs": [{ "ip": address }] } });
        let (pods, name) = (self.subject.pods(), names::pod(&self.subject.name));
        pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    pub(super) async fn operator(&self, places: &[&Failpoint]) -> Spawned {
        operator(&self.subject, places).await
    }

    /// Nothing holds the database, and nobody says that something may.
    pub(super) async fn is_free(&self, snapshot: &QuestDBSnapshot) {
        assert_eq!(self.questdb.held_since().await, None);
        assert_eq!(snapshot.metadata.finalizers.as_deref(), Some(&[FINALIZER.to_owned()][..]));
    }

    /// Nothing of it stays.
    pub(super) async fn end(self, operator: Spawned) {
        end(self.subject, operator).await;
    }
}

pub(super) async fn operator(subject: &Subject, places: &[&Failpoint]) -> Spawned {
    let lease = subject.rig.lease().await;
    let kubeconfig = subject.rig.rights(&lease).await;
    subject.rig.spawn((&lease, &kubeconfig), places, &[])
}

async fn end(mut subject: Subject, operator: Spawned) {
    subject.purge().await;
    drop(operator);
}

pub(super) fn api(subject: &Subject) -> Api<QuestDBSnapshot> {
    Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace)
}

pub(super) async fn take(subject: &Subject, name: &str, policy: &str) {
    let snapshot = json!({
        "metadata": { "name": name },
        "spec": { "database": subject.name, "deletionPolicy": policy },
    });
    make(subject, snapshot).await;
}

pub(super) async fn make(subject: &Subject, mut snapshot: Value) {
    (snapshot["apiVersion"], snapshot["kind"]) = (json!("crd.questdb.io/v1"), json!("QuestDBSnapshot"));
    let snapshot = serde_json::from_value(snapshot).unwrap();
    api(subject).create(&PostParams::default(), &snapshot).await.unwrap();
}

/// Waits until it is settled in a phase.
pub(super) async fn settled(subject: &Subject, name: &str, phase: SnapshotPhase) -> QuestDBSnapshot {
    let what = format!("snapshot {name} {}", phase.as_str());
    eventually(PATIENCE, &what, async || found_settled(subject, name, phase).await).await
}

/// The snapshot, if it is settled in a phase.
pub(super) async fn found_settled(
    subject: &Subject,
    name: &str,
    phase: SnapshotPhase,
) -> Option<QuestDBSnapshot> {
    let found = api(subject).get(name).await.ok()?;
    let status = found.status.as_ref()?;
    let rests = status.conditions.iter().any(|one| one.type_ == "Progressing" && one.status == "False");
    (status.phase == Some(phase) && rests).then_some(found)
}

/// What EC2 has of this database.
pub(super) async fn copies(subject: &Subject) -> Vec<VolumeSnapshot> {
    let filter = TagFilter::cluster(&subject.rig.cluster).database(&subject.database);
    let ours = Select::Tags(filter);
    patiently(|| subject.rig.aws.describe_snapshots(&ours)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_database_is_copied_and_free_again() {
    let stage = Stage::new().await;
    let operator = stage.operator(&[]).await;
    let subject = &stage.subject;
    take(subject, "first", "Delete").await;
    let done = settled(subject, "first", SnapshotPhase::Succeeded).await;
    stage.is_free(&done).await;
    let status = done.status.unwrap();
    let [copy] = &copies(subject).await[..] else { panic!("not one copy") };
    assert_eq!(copy.volume, subject.volume().await.id);
    assert_eq!(status.snapshot_id.as_deref(), Some(copy.id.as_str()));
    assert_eq!((status.size_gib, status.progress), (Some(copy.size_gib), Some(100)));
    assert_eq!(status.database_id.as_deref(), Some(subject.database.as_str()));
    assert_eq!(copy.tags.get(key::CONSISTENT), Some("true"));
    assert!(copy.tags.get(key::BASIS).is_some_and(|basis| basis.starts_with("checkpoint:")), "{copy:?}");
    assert_eq!(copy.tags.get(key::NAMESPACE), Some(subject.rig.namespace.as_str()));

    // What it asked for stays.
    let change = json!({ "spec": { "database": "another" } });
    let refused = api(subject).patch("first", &PatchParams::default(), &Patch::Merge(&change)).await;
    assert!(refused.unwrap_err().to_string().contains("spec.database is immutable"));

    api(subject).delete("first", &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, "the snapshot gone", async || {
        let object = api(subject).get_opt("first").await.unwrap();
        (object.is_none() && copies(subject).await.is_empty()).then_some(())
    })
    .await;
    stage.end(operator).await;
}

/// Writes numbers one after the other until dropped; how many were acknowledged.
struct Writer(Arc<AtomicU64>, AbortHandle);

impl Writer {
    async fn over(questdb: &Arc<Questdb>) -> Self {
        let table = "CREATE TABLE numbers (ts TIMESTAMP, n LONG) TIMESTAMP(ts) PARTITION BY DAY WAL";
        questdb.sql(table).await;
        let (acknowledged, questdb) = (Arc::<AtomicU64>::default(), Arc::clone(questdb));
        let count = Arc::clone(&acknowledged);
        let writing = tokio::spawn(async move {
            loop {
                let number = count.load(Ordering::Acquire);
                questdb.sql(&format!("INSERT INTO numbers VALUES (now(), {number})")).await;
                count.store(number + 1, Ordering::Release);
            }
        });
        Self(acknowledged, writing.abort_handle())
    }

    fn acknowledged(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.1.abort();
    }
}

/// The test takes the disk's content at the moment of `CreateSnapshot`, and restores from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_before_is_in_the_copy() {
    let stage = Stage::new().await;
    let questdb = Arc::new(stage.questdb);
    let writer = Writer::over(&questdb).await;
    let folder = testkit::scratch();
    let held = Failpoint::hold("operator.snapshot.before", "CreateCheckpoint", &folder);
    let begun = Failpoint::hold("operator.snapshot.after", "CreateSnapshot", &folder);
    let operating = operator(&stage.subject, &[&held, &begun]).await;
    take(&stage.subject, "full", "Retain").await;
    held.fired().await;
    eventually(PATIENCE, "some rows", async || (writer.acknowledged() > 50).then_some(())).await;
    let before = writer.acknowledged();
    held.release().unwrap();
    begun.fired().await;
    assert!(questdb.held_since().await.is_some());
    let disk = questdb.disk().await;
    begun.release().unwrap();
    settled(&stage.subject, "full", SnapshotPhase::Succeeded).await;
    assert_eq!(questdb.held_since().await, None);
    let after = writer.acknowledged();
    assert!(after > before, "nobody wrote meanwhile");
    let restored = questdb.restore(disk).await;
    let count = format!("SELECT count_distinct(n) FROM numbers WHERE n < {before}");
    eventually(PATIENCE, &format!("{before} rows"), async || {
        let answer = restored.sql(&count).await;
        (answer["dataset"][0][0].as_u64() == Some(before)).then_some(())
    })
    .await;
    drop(writer);
    end(stage.subject, operating).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_after_any_step_leaves_one_copy_and_no_debt() {
    let stage = Stage::new().await;
    let steps = [
        "Hold",
        "OweRelease",
        "CreateCheckpoint",
        "CreateSnapshot",
        "TrustSnapshot",
        "ReleaseCheckpoint",
        "StrikeRelease",
    ];
    for (number, step) in steps.into_iter().enumerate() {
        let place = Failpoint::abort("operator.snapshot.after", step, &testkit::scratch());
        let mortal = stage.operator(&[&place]).await;
        let name = format!("death-{number}");
        take(&stage.subject, &name, "Retain").await;
        place.fired().await;
        drop(mortal);
        if (2..=4).contains(&number) {
            assert!(stage.questdb.held_since().await.is_some(), "{step}");
            let object = api(&stage.subject).get(&name).await.unwrap();
            assert!(object.metadata.finalizers.unwrap().iter().any(|one| one == RELEASE_OWED), "{step}");
        }
        let heir = stage.operator(&[]).await;
        let done = settled(&stage.subject, &name, SnapshotPhase::Succeeded).await;
        drop(heir);
        stage.is_free(&done).await;
        let found = copies(&stage.subject).await;
        assert_eq!(found.len(), number + 1, "{step}: {found:?}");
        assert!(found.iter().all(|copy| copy.tags.get(key::CONSISTENT).is_some()), "{step}: {found:?}");
    }
    let operator = stage.operator(&[]).await;
    stage.end(operator).await;
}

/// EBS is not done with this copy before EC2 was asked about it again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_but_ec2_is_asked_about_what_ebs_only_copies() {
    let stage = Stage::new().await;
    let subject = &stage.subject;
    let begins = Failpoint::hold("operator.snapshot.before", "CreateSnapshot", &testkit::scratch());
    let lease = subject.rig.lease().await;
    let front = Front::before(&subject.rig.rights(&lease).await).await;
    let kubeconfig = front.kubeconfig(&testkit::scratch());
    let operator = subject.rig.spawn((&lease, &kubeconfig), &[&begins], &[]);
    take(subject, "slow", "Delete").await;
    begins.fired().await;
    let volume = subject.volume().await.id;
    let stuck = json!({ "kind": "stick", "transition": "snapshot-pending", "contains": volume.as_str() });
    let stuck = endpoint::fault(&stuck).await;
    begins.release().unwrap();
    let of_pod = format!("/{}/pods/{}", subject.rig.namespace, names::pod(&subject.name));
    let looks = || front.seen(|seen| seen.path.contains(&of_pod)).len();
    let copying = eventually(PATIENCE, "a word that it copies", async || {
        let found = api(subject).get("slow").await.ok()?;
        (found.status.as_ref()?.phase == Some(SnapshotPhase::Copying)).then_some(found)
    })
    .await;
    stage.is_free(&copying).await;
    let (asked, since) = (looks(), endpoint::serial().await);
    assert!(asked > 3, "the database was looked at before: {asked}");
    let of_copies = format!("/journal?since={since}&action=DescribeSnapshots");
    eventually(PATIENCE, "EC2 to be asked twice more", async || {
        let answer = endpoint::control("GET", &of_copies, &Value::Null).await;
        let calls = answer["calls"].as_array().unwrap().iter();
        // Nobody else asks about this cluster meanwhile.
        let ours = calls.filter(|call| call["params"].to_string().contains(&subject.rig.cluster));
        (ours.count() > 1).then_some(())
    })
    .await;
    endpoint::end_fault(&stuck).await;
    // It is looked at as often as it has taken so far, once a minute at least.
    let done = async || found_settled(subject, "slow", SnapshotPhase::Succeeded).await;
    eventually(2 * PATIENCE, "the end of the copy", done).await;
    assert_eq!(looks(), asked, "the database was asked about a mere copy");
    stage.end(operator).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_begun_before_questdb_crashed_is_not_trusted() {
    let mut stage = Stage::new().await;
    let place = Failpoint::hold("operator.snapshot.after", "CreateSnapshot", &testkit::scratch());
    let operator = stage.operator(&[&place]).await;
    take(&stage.subject, "torn", "Retain").await;
    place.fired().await;
    let torn = eventually(PATIENCE, "a copy", async || copies(&stage.subject).await.pop()).await;
    stage.questdb.crash().await;
    place.release().unwrap();
    let done = settled(&stage.subject, "torn", SnapshotPhase::Succeeded).await;
    stage.is_free(&done).await;
    let [copy] = &copies(&stage.subject).await[..] else { panic!("not one copy") };
    assert_ne!(copy.id, torn.id);
    stage.end(operator).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_of_somebody_else_is_told_waited_for_and_never_released() {
    let stage = Stage::new().await;
    stage.questdb.sql("CHECKPOINT CREATE").await;
    let theirs = stage.questdb.held_since().await;
    assert!(theirs.is_some());
    let operator = stage.operator(&[]).await;
    take(&stage.subject, "patient", "Retain").await;
    eventually(PATIENCE, "words about it", async || {
        let status = api(&stage.subject).get("patient").await.ok()?.status?;
        let ready = status.conditions.into_iter().find(|one| one.type_ == "Ready")?;
        (ready.reason == "HeldByOthers").then_some(())
    })
    .await;
    assert_eq!(stage.questdb.held_since().await, theirs);
    stage.questdb.sql("CHECKPOINT RELEASE").await;
    let done = settled(&stage.subject, "patient", SnapshotPhase::Succeeded).await;
    stage.is_free(&done).await;
    stage.end(operator).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_ec2_that_is_lost_costs_a_look_and_no_copy() {
    let stage = Stage::new().await;
    let volume = stage.subject.volume().await.id;
    let fault =
        json!({ "kind": "drop_reply", "action": "CreateSnapshot", "contains": volume.as_str(), "times": 1 });
    let fault = endpoint::fault(&fault).await;
    let operator = stage.operator(&[]).await;
    take(&stage.subject, "unheard", "Retain").await;
    let done = settled(&stage.subject, "unheard", SnapshotPhase::Succeeded).await;
    let ended = endpoint::control("DELETE", &format!("/faults/{fault}"), &Value::Null).await;
    assert_eq!(ended["fired"], 1, "{ended}");
    stage.is_free(&done).await;
    assert_eq!(copies(&stage.subject).await.len(), 1);
    stage.end(operator).await;
}

/// Given up by EBS before the operator looked at it again: nothing is to be hoped for from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_ec2_gives_up_frees_the_database_at_once_and_is_told_in_its_words() {
    const WORDS: &str = "An internal error occurred.";
    let stage = Stage::new().await;
    let volume = stage.subject.volume().await.id;
    let fault = json!({ "kind": "spoil", "transition": "snapshot-pending", "contains": volume.as_str(),
        "message": WORDS, "times": 1 });
    let fault = endpoint::fault(&fault).await;
    let place = Failpoint::hold("operator.snapshot.after", "CreateSnapshot", &testkit::scratch());
    let operator = stage.operator(&[&place]).await;
    take(&stage.subject, "spoilt", "Retain").await;
    place.fired().await;
    eventually(PATIENCE, "a copy that EC2 gave up", async || {
        let found = copies(&stage.subject).await;
        found.iter().any(|copy| copy.state == SnapshotState::Error).then_some(())
    })
    .await;
    place.release().unwrap();
    let failed = settled(&stage.subject, "spoilt", SnapshotPhase::Failed).await;
    stage.is_free(&failed).await;
    let ended = endpoint::control("DELETE", &format!("/faults/{fault}"), &Value::Null).await;
    assert_eq!(ended["fired"], 1, "{ended}");
    let conditions = failed.status.unwrap().conditions;
    let told = conditions.iter().find(|one| one.type_ == "Ready").unwrap();
    assert_eq!(told.reason, "CopyFailed", "{told:?}");
    assert!(told.message.contains(WORDS), "{told:?}");
    assert!(copies(&stage.subject).await.iter().all(|copy| copy.state == SnapshotState::Error), "none begun");
    stage.end(operator).await;
}

/// EC2 tells nothing about this cluster while the database is held, until long after the deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_the_deadline_the_database_is_free_though_ec2_is_away() {
    let stage = Stage::new().await;
    let subject = &stage.subject;
    let place = Failpoint::hold("operator.snapshot.after", "CreateCheckpoint", &testkit::scratch());
    let operator = stage.operator(&[&place]).await;
    // Its start does not count: the deadline does.
    operator.ready().await;
    let snapshot = json!({
        "metadata": { "name": "late" },
        "spec": { "database": subject.name, "deadlineSeconds": 60 },
    });
    make(subject, snapshot).await;
    place.fired().await;
    assert!(stage.questdb.held_since().await.is_some());
    let fault = json!({ "kind": "fail", "action": "Describe*", "contains": subject.rig.cluster });
    let fault = endpoint::fault(&fault).await;
    place.release().unwrap();
    eventually(3 * PATIENCE, "the release", async || {
        stage.questdb.held_since().await.is_none().then_some(())
    })
    .await;
    endpoint::end_fault(&fault).await;
    let failed = settled(subject, "late", SnapshotPhase::Failed).await;
    stage.is_free(&failed).await;
    assert!(copies(subject).await.is_empty());
    stage.end(operator).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_database_is_copied_as_it_lies() {
    let mut subject = Subject::new(&unique("paused")).await;
    let others = Others::of(&subject.rig);
    let _operator = operator(&subject, &[]).await;
    subject.wish_run_state("Running").await;
    subject.carried_out(Phase::Ready).await;
    subject.wish_run_state("Paused").await;
    subject.carried_out(Phase::Paused).await;
    take(&subject, "still", "Retain").await;
    let done = settled(&subject, "still", SnapshotPhase::Succeeded).await;
    assert_eq!(done.metadata.finalizers, Some(vec![FINALIZER.to_owned()]));
    let [copy] = &copies(&subject).await[..] else { panic!("not one copy") };
    assert!(copy.tags.get(key::BASIS).is_some_and(|basis| basis.starts_with("stopped:")), "{copy:?}");
    // Kept, as its policy says.
    api(&subject).delete("still", &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, "the object gone", async || {
        api(&subject).get_opt("still").await.unwrap().is_none().then_some(())
    })
    .await;
    assert_eq!(copies(&subject).await.len(), 1);
    subject.purge_with_others().await;
    drop(others);
}

/// EC2 is asked about them as often as databases at rest are looked at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_somebody_destroys_is_told() {
    let stage = Stage::new().await;
    let subject = &stage.subject;
    let operator = stage.operator(&[]).await;
    for name in ["lost", "kept"] {
        take(subject, name, "Delete").await;
        settled(subject, name, SnapshotPhase::Succeeded).await;
    }
    drop(operator);
    let lost = api(subject).get("lost").await.unwrap().status.unwrap().snapshot_id.unwrap();
    subject.rig.aws.delete_snapshot(&SnapshotId::new(lost.as_str())).await.unwrap();
    let lease = subject.rig.lease().await;
    let kubeconfig = subject.rig.rights(&lease).await;
    let operator = subject.rig.spawn((&lease, &kubeconfig), &[], &[("SLIPWAY_RESYNC", "1s")]);
    let told = eventually(PATIENCE, "a word about the copy", async || {
        let status = api(subject).get("lost").await.ok()?.status?;
        let ready = status.conditions.iter().find(|one| one.type_ == "Ready")?;
        (ready.reason == "CopyGone").then(|| (ready.status.clone(), ready.message.clone()))
    })
    .await;
    assert!(told.0 == "False" && told.1.contains(&lost), "{told:?}");
    let kept = api(subject).get("kept").await.unwrap().status.unwrap();
    assert!(kept.conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True"), "{kept:?}");
    // Another wish for it makes no other copy.
    let retain = Patch::Merge(json!({ "spec": { "deletionPolicy": "Retain" } }));
    let changed = api(subject).patch("lost", &PatchParams::default(), &retain).await.unwrap();
    eventually(PATIENCE, "a report on the other wish", async || {
        let status = api(subject).get("lost").await.ok()?.status?;
        (status.observed_generation == changed.metadata.generation).then_some(())
    })
    .await;
    let again = settled(subject, "lost", SnapshotPhase::Succeeded).await;
    assert!(is_told_gone(&again) && copies(subject).await.len() == 1, "{again:?}");
    stage.end(operator).await;
}

fn is_told_gone(snapshot: &QuestDBSnapshot) -> bool {
    let mut conditions = snapshot.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|one| one.type_ == "Ready" && one.status == "False" && one.reason == "CopyGone")
}
