//! Schedules of snapshots: what they make, what they let pass, and what they keep.

use axum::http::Method;
use cloud::SnapshotId;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use resources::names::snapshot::{LABEL_SCHEDULE, SCHEDULED_FOR};
use resources::{QuestDBSnapshotSchedule, SnapshotPhase};
use serde_json::json;
use testkit::telling::Fate;
use testkit::{Failpoint, Spawned, eventually, unique};

use super::quiet::idle;
use super::rig::PATIENCE;
use super::snapshots::{Stage, api, copies, make, operator, settled};
use super::source::{is_told, purge, wish_from};
use super::stale::kept_back;
use super::subject::Subject;
use crate::endpoint;
use crate::front::{Act, Front, Seen};

/// How many schedules let a time pass until an event of one is there.
const TRIES: usize = 3;

/// Once a day, about half a day from now, so that no time of the schedule comes while a test runs.
fn far_from_now() -> String {
    let hour = jiff::Timestamp::now().as_second() / 3_600 + 12;
    format!("0 {} * * *", hour % 24)
}

/// A snapshot that a schedule made for an hour of long ago, of which a later time is due; its name. It is still to be taken.
pub(super) async fn make_earlier(subject: &Subject, schedule: &str, hour: &str) -> String {
    let name = format!("{schedule}-20260101{hour}00");
    let made = json!({
        "metadata": {
            "name": name, "labels": { LABEL_SCHEDULE: schedule },
            "annotations": { SCHEDULED_FOR: format!("2026-01-01T{hour}:00:00Z") },
        },
        "spec": { "database": subject.name, "deletionPolicy": "Delete" },
    });
    make(subject, made).await;
    name
}

/// The schedules of its namespace.
pub(super) fn schedules(subject: &Subject) -> Api<QuestDBSnapshotSchedule> {
    Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace)
}

/// A schedule for a database, of which no time comes while a test runs.
pub(super) async fn make_schedule(subject: &Subject, name: &str, keep_last: u32) {
    let schedule = json!({
        "apiVersion": "crd.questdb.io/v1", "kind": "QuestDBSnapshotSchedule",
        "metadata": { "name": name },
        "spec": {
            "database": subject.name, "schedule": far_from_now(), "timeZone": "Europe/Berlin",
            "retention": { "keepLast": keep_last },
        },
    });
    let schedule = serde_json::from_value(schedule).unwrap();
    schedules(subject).create(&PostParams::default(), &schedule).await.unwrap();
}

/// A schedule of which a time of hours ago is let pass; waits until that is noted, and told if it ever is.
async fn lets_pass(subject: &Subject, operator: &Spawned, name: &str) {
    // One was made for a time long ago; of those since then the latest is hours old.
    let earlier = json!({
        "metadata": {
            "name": earlier_of(name), "labels": { LABEL_SCHEDULE: name },
            "annotations": { SCHEDULED_FOR: "2026-01-01T01:00:00Z" },
        },
        "spec": { "database": subject.name },
    });
    make(subject, earlier).await;
    let schedule = json!({
        "apiVersion": "crd.questdb.io/v1", "kind": "QuestDBSnapshotSchedule",
        "metadata": { "name": name },
        "spec": { "database": subject.name, "schedule": far_from_now(), "startingDeadlineSeconds": 60 },
    });
    let schedules = schedules(subject);
    schedules.create(&PostParams::default(), &serde_json::from_value(schedule).unwrap()).await.unwrap();
    eventually(PATIENCE, "the time that was let pass to be noted", async || {
        schedules.get(name).await.unwrap().status?.last_time
    })
    .await;
    idle(operator, "questdbsnapshotschedule").await;
}

fn earlier_of(schedule: &str) -> String {
    format!("{schedule}-202601010001")
}

/// The event of the time that a schedule let pass.
async fn missed(subject: &Subject, schedule: &str) -> Option<Event> {
    let events: Api<Event> = Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace);
    let all = events.list(&ListParams::default()).await.unwrap().items;
    let is_of_it = |event: &Event| {
        let of = event.regarding.as_ref();
        let of = of.map(|of| (of.kind.as_deref(), of.name.as_deref()));
        of == Some((Some("QuestDBSnapshotSchedule"), Some(schedule)))
    };
    all.into_iter().find(|event| event.reason.as_deref() == Some("SnapshotMissed") && is_of_it(event))
}

/// The word of it in the report is gone with the next one, which is of the next time. One event may be given up, for which the API server
/// takes too long: not those of one schedule after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_that_is_let_pass_is_told_by_an_event() {
    let subject = Subject::new("nobody").await;
    let operator = operator(&subject, &[]).await;
    let (mut names, mut told) = (Vec::new(), None);
    while told.is_none() {
        assert!(names.len() < TRIES, "no event tells of the times that {names:?} let pass");
        let name = format!("hasty-{}", names.len());
        lets_pass(&subject, &operator, &name).await;
        told = missed(&subject, &name).await;
        names.push(name);
    }
    assert!(told.unwrap().note.unwrap().contains("was let pass"));
    let made = api(&subject).list(&ListParams::default()).await.unwrap().items;
    assert_eq!(made.len(), names.len(), "none was made");
    for name in names.iter().map(|name| earlier_of(name)) {
        api(&subject).delete(&name, &DeleteParams::default()).await.unwrap();
        eventually(PATIENCE, "the object gone", async || {
            api(&subject).get_opt(&name).await.unwrap().is_none().then_some(())
        })
        .await;
    }
    drop(operator);
    subject.rig.end().await;
}

/// Two snapshots of the schedule `clock`, of the first and the second hour of a year.
async fn taken_before(subject: &Subject) {
    for hour in ["01", "02"] {
        let name = make_earlier(subject, "clock", hour).await;
        settled(subject, &name, SnapshotPhase::Succeeded).await;
    }
}

/// What is removed goes before anything is made, so that what is there beside the third was not removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_removed_for_a_copy_that_somebody_destroyed() {
    let stage = Stage::new().await;
    let subject = &stage.subject;
    let begins = Failpoint::hold("operator.snapshot.before", "CreateCheckpoint", &testkit::scratch());
    let first = stage.operator(&[]).await;
    taken_before(subject).await;
    drop(first);
    let (oldest, newest) = ("clock-202601010100", "clock-202601010200");
    let lost = api(subject).get(newest).await.unwrap().status.unwrap().snapshot_id.unwrap();
    subject.rig.aws.delete_snapshot(&SnapshotId::new(lost.as_str())).await.unwrap();
    let operator = stage.operator(&[&begins]).await;
    make_schedule(subject, "clock", 1).await;
    begins.fired().await;
    let kept = api(subject).get(oldest).await.unwrap().metadata;
    assert_eq!(kept.deletion_timestamp, None, "it has the last copy that is there");
    assert_eq!(copies(subject).await.len(), 1);
    begins.release().unwrap();
    eventually(2 * PATIENCE, "another copy to take its place", async || {
        api(subject).get_opt(oldest).await.unwrap().is_none().then_some(())
    })
    .await;
    assert_eq!(copies(subject).await.len(), 1);
    stage.end(operator).await;
}

/// Of those that would be kept instead the copies may be gone by now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_removed_while_ec2_does_not_say_which_copies_are_there() {
    let stage = Stage::new().await;
    let subject = &stage.subject;
    let operator = stage.operator(&[]).await;
    taken_before(subject).await;
    let (oldest, newest) = ("clock-202601010100", "clock-202601010200");
    let kept = api(subject).get(newest).await.unwrap().status.unwrap().snapshot_id.unwrap();
    let fault = json!({ "kind": "fail", "action": "DescribeSnapshots", "contains": kept });
    let fault = endpoint::fault(&fault).await;
    make_schedule(subject, "clock", 1).await;
    eventually(PATIENCE, "a word about what could not be looked for", async || {
        let status = schedules(subject).get("clock").await.unwrap().status?;
        let ready = status.conditions.into_iter().find(|one| one.type_ == "Ready")?;
        (ready.reason == "Failed" && ready.message.contains("DescribeSnapshots")).then_some(())
    })
    .await;
    assert_eq!(api(subject).get(oldest).await.unwrap().metadata.deletion_timestamp, None);
    endpoint::end_fault(&fault).await;
    eventually(2 * PATIENCE, "the oldest gone", async || {
        api(subject).get_opt(oldest).await.unwrap().is_none().then_some(())
    })
    .await;
    stage.end(operator).await;
}

/// A policy of the cluster protects it, say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_may_not_be_removed_keeps_none_from_being_made() {
    let stage = Stage::new().await;
    let subject = &stage.subject;
    let lease = subject.rig.lease().await;
    let front = Front::before(&subject.rig.rights(&lease).await).await;
    let kubeconfig = front.kubeconfig(&testkit::scratch());
    let oldest = "clock-202601010100";
    front.set(move |seen| {
        let is_removal = seen.method == Method::DELETE && seen.about().ends_with(oldest);
        if is_removal { Act::Answer(403, None) } else { Act::Pass }
    });
    let operator = subject.rig.spawn((&lease, &kubeconfig), &[], &[]);
    taken_before(subject).await;
    make_schedule(subject, "clock", 1).await;
    let third = eventually(2 * PATIENCE, "a third", async || {
        let all = api(subject).list(&ListParams::default()).await.unwrap().items;
        let mut names = all.into_iter().filter_map(|one| one.metadata.name);
        names.find(|name| name.starts_with("clock-") && !name.starts_with("clock-20260101"))
    })
    .await;
    settled(subject, &third, SnapshotPhase::Succeeded).await;
    eventually(PATIENCE, "a word about what could not be removed", async || {
        let status = schedules(subject).get("clock").await.unwrap().status?;
        let ready = status.conditions.iter().find(|one| one.type_ == "Ready")?;
        (ready.reason == "Failed" && status.last_time.is_some()).then_some(())
    })
    .await;
    assert_eq!(api(subject).get(oldest).await.unwrap().metadata.deletion_timestamp, None);
    api(subject).delete(oldest, &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, "the oldest gone", async || {
        api(subject).get_opt(oldest).await.unwrap().is_none().then_some(())
    })
    .await;
    stage.end(operator).await;
}

/// The one that is asked for first, so that the other comes after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_may_not_be_removed_keeps_no_other() {
    let stage = Stage::new().await;
    let subject = &stage.subject;
    let lease = subject.rig.lease().await;
    let front = Front::before(&subject.rig.rights(&lease).await).await;
    let kubeconfig = front.kubeconfig(&testkit::scratch());
    let (oldest, kept) = ("clock-202601010100", "clock-202601010200");
    front.set(move |seen| {
        let is_removal = seen.method == Method::DELETE && seen.about().ends_with(kept);
        if is_removal { Act::Answer(403, None) } else { Act::Pass }
    });
    let operator = subject.rig.spawn((&lease, &kubeconfig), &[], &[]);
    taken_before(subject).await;
    let third = make_earlier(subject, "clock", "03").await;
    settled(subject, &third, SnapshotPhase::Succeeded).await;
    make_schedule(subject, "clock", 1).await;
    eventually(2 * PATIENCE, "the oldest gone", async || {
        api(subject).get_opt(oldest).await.unwrap().is_none().then_some(())
    })
    .await;
    eventually(PATIENCE, "a word about what could not be removed", async || {
        let status = schedules(subject).get("clock").await.unwrap().status?;
        let ready = status.conditions.into_iter().find(|one| one.type_ == "Ready")?;
        (ready.reason == "Failed").then_some(())
    })
    .await;
    assert_eq!(api(subject).get(kept).await.unwrap().metadata.deletion_timestamp, None);
    api(subject).delete(kept, &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, "the other gone", async || {
        api(subject).get_opt(kept).await.unwrap().is_none().then_some(())
    })
    .await;
    stage.end(operator).await;
}

/// As many as are tried in a pass, by a webhook that does not answer, say; the oldest comes after them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removals_that_go_wrong_keep_no_other() {
    let stage = Stage::new().await;
    let subject = &stage.subject;
    let lease = subject.rig.lease().await;
    let front = Front::before(&subject.rig.rights(&lease).await).await;
    let kubeconfig = front.kubeconfig(&testkit::scratch());
    let stuck = ["clock-202601010200", "clock-202601010300", "clock-202601010400"];
    front.set(move |seen| {
        let is_stuck = |name: &&str| seen.about().ends_with(*name);
        let fails = seen.method == Method::DELETE && stuck.iter().any(is_stuck);
        if fails { Act::Answer(500, None) } else { Act::Pass }
    });
    let operator = subject.rig.spawn((&lease, &kubeconfig), &[], &[]);
    taken_before(subject).await;
    for hour in ["03", "04", "05"] {
        let name = make_earlier(subject, "clock", hour).await;
        settled(subject, &name, SnapshotPhase::Succeeded).await;
    }
    make_schedule(subject, "clock", 1).await;
    eventually(2 * PATIENCE, "the oldest gone", async || {
        api(subject).get_opt("clock-202601010100").await.unwrap().is_none().then_some(())
    })
    .await;
    eventually(PATIENCE, "a word about what could not be removed", async || {
        let status = schedules(subject).get("clock").await.unwrap().status?;
        let ready = status.conditions.into_iter().find(|one| one.type_ == "Ready")?;
        let names_one = ready.message.contains(stuck[0]) && ready.message.ends_with("2 more");
        (ready.reason == "Failed" && names_one).then_some(())
    })
    .await;
    for name in stuck {
        assert_eq!(api(subject).get(name).await.unwrap().metadata.deletion_timestamp, None);
        api(subject).delete(name, &DeleteParams::default()).await.unwrap();
    }
    eventually(PATIENCE, "all of them gone", async || {
        let left = api(subject).list(&ListParams::default()).await.unwrap().items;
        left.iter()
            .all(|one| !stuck.iter().any(|name| one.metadata.name.as_deref() == Some(*name)))
            .then_some(())
    })
    .await;
    stage.end(operator).await;
}

/// Waits until a snapshot was removed, its copy too; another one, which is older, is not.
async fn goes_alone(subject: &Subject, name: &str, older: &str) {
    eventually(2 * PATIENCE, &format!("{name} to be replaced by another"), async || {
        api(subject).get_opt(name).await.unwrap().is_none().then_some(())
    })
    .await;
    let stays = api(subject).get(older).await.unwrap();
    assert_eq!(stays.metadata.deletion_timestamp, None);
    let copy = stays.status.unwrap().snapshot_id;
    assert!(copies(subject).await.iter().any(|found| Some(found.id.as_str()) == copy.as_deref()), "{copy:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_database_is_still_to_begin_with_stays() {
    let stage = Stage::new().await;
    let subject = &stage.subject;
    let operator = stage.operator(&[]).await;
    taken_before(subject).await;
    let (oldest, second) = ("clock-202601010100", "clock-202601010200");
    let mut waiting = Subject::within(&subject.rig, &unique("waiting"));
    let source = json!({ "snapshot": oldest });
    // Until somebody asks for more room.
    wish_from(&mut waiting, &source, 12).await;
    is_told(&waiting, "ask for as much at least").await;
    make_schedule(subject, "clock", 1).await;
    goes_alone(subject, second, oldest).await;
    purge(&mut waiting, &source, 12).await;
    stage.end(operator).await;
}

/// Nobody tells the operator of a database that was just asked for. So long as the API server does not say which there are, it may be any
/// that waits for the copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_database_that_no_watch_shows_yet_is_to_begin_with_stays() {
    let stage = Stage::new().await;
    let subject = &stage.subject;
    let lease = subject.rig.lease().await;
    let front = Front::before(&subject.rig.rights(&lease).await).await;
    let kubeconfig = front.kubeconfig(&testkit::scratch());
    let operator = subject.rig.spawn((&lease, &kubeconfig), &[], &[]);
    taken_before(subject).await;
    let (oldest, second) = ("clock-202601010100", "clock-202601010200");
    front.set_fate(Fate::Late, &["questdbs"], 1);
    let mut waiting = Subject::within(&subject.rig, &unique("waiting"));
    let source = json!({ "snapshot": oldest });
    // Until somebody asks for more room.
    wish_from(&mut waiting, &source, 12).await;
    kept_back(&front, "questdbs", 0).await;

    // Not the watch, which has larger pages.
    let lists = |seen: &Seen| seen.about().ends_with("/questdbs") && seen.path.contains("limit=500");
    front.set(move |seen| if lists(seen) { Act::Answer(500, None) } else { Act::Pass });
    make_schedule(subject, "clock", 1).await;
    eventually(PATIENCE, "a word about what could not be looked for", async || {
        let status = schedules(subject).get("clock").await.unwrap().status?;
        let ready = status.conditions.into_iter().find(|one| one.type_ == "Ready")?;
        (ready.reason == "Failed" && ready.message.contains("look for databases")).then_some(())
    })
    .await;
    for name in [oldest, second] {
        assert_eq!(api(subject).get(name).await.unwrap().metadata.deletion_timestamp, None);
    }
    front.release();
    goes_alone(subject, second, oldest).await;

    front.set_fate(Fate::Told, &[], 1);
    is_told(&waiting, "ask for as much at least").await;
    purge(&mut waiting, &source, 12).await;
    stage.end(operator).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_makes_what_it_missed_once_and_keeps_what_it_says() {
    let stage = Stage::new().await;
    let subject = &stage.subject;
    let operator = stage.operator(&[]).await;
    taken_before(subject).await;
    make_schedule(subject, "clock", 2).await;
    let schedules = schedules(subject);
    // The two that were there before are its own: the time since then is made up for, once, and the oldest goes.
    let latest = eventually(2 * PATIENCE, "three less one", async || {
        let all = api(subject).list(&ListParams::default()).await.unwrap().items;
        let mut names: Vec<_> = all.into_iter().filter_map(|one| one.metadata.name).collect();
        names.sort();
        (names.len() == 2 && names[0] == "clock-202601010200").then(|| names.remove(1))
    })
    .await;
    settled(subject, &latest, SnapshotPhase::Succeeded).await;
    eventually(PATIENCE, "two copies", async || (copies(subject).await.len() == 2).then_some(())).await;
    eventually(PATIENCE, "a word about the latest and the next", async || {
        let status = schedules.get("clock").await.unwrap().status?;
        (status.last_snapshot.as_ref() == Some(&latest) && status.next_time.is_some()).then_some(())
    })
    .await;
    let change = json!({ "spec": { "schedule": "61 * * * *" } });
    schedules.patch("clock", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    eventually(PATIENCE, "a schedule that is refused", async || {
        let status = schedules.get("clock").await.unwrap().status?;
        let ready = status.conditions.into_iter().find(|one| one.type_ == "Ready")?;
        (ready.status == "False" && ready.message.contains("spec.schedule")).then_some(())
    })
    .await;
    stage.end(operator).await;
}
