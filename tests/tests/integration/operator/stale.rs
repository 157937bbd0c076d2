//! Caches that show the past, between the operator and the API server: watches that fall silent, lose events and cannot be
//! resumed, and lists that are older than what was seen before. Nothing is made twice for it, nothing that runs is stopped,
//! and the end is the same.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use axum::http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, Secret, Service};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use resources::{Phase, names};
use serde_json::{Value, json};
use testkit::telling::Fate;
use testkit::{Spawned, eventually, unique};

use super::others::Others;
use super::rig::{PATIENCE, Rig, patiently};
use super::subject::Subject;
use crate::endpoint::{control, serial};
use crate::front::{Act, Front, Seen, Watches};

/// For how long at least a watch does not tell what the operator wrote.
const HELD: Duration = Duration::from_secs(1);
/// How long after a write the operator waits for what it wrote to show.
const UNSHOWN: Duration = Duration::from_secs(3);

/// An operator behind a front, which looks at its databases every second.
fn behind(rig: &Rig, front: &Front, lease: &str) -> Spawned {
    let kubeconfig = front.kubeconfig(&testkit::scratch());
    rig.spawn((lease, &kubeconfig), &[], &[("SLIPWAY_RESYNC", "1s")])
}

/// Each watch that begins is told once that the server does not remember where it was.
fn forget_once() -> impl Fn(&Seen) -> Act + Send + Sync + 'static {
    let told: Mutex<HashSet<String>> = Mutex::default();
    move |seen| {
        let first = seen.is_watch() && told.lock().unwrap().insert(seen.about().to_owned());
        if first { Act::Forget } else { Act::Pass }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_watches_did_not_tell_is_seen_when_they_cannot_be_resumed() {
    let mut subject = Subject::new(&unique("silent")).await;
    let _others = Others::of(&subject.rig);
    let lease = subject.rig.lease().await;
    let front = Front::before(&subject.rig.rights(&lease).await).await;
    let _operator = behind(&subject.rig, &front, &lease);
    subject.wish_run_state("Running").await;
    subject.carried_out(Phase::Ready).await;
    let before = Made::by(&subject).await;
    let since = serial().await;

    // A change, another one that covers it, an edit and an end: none of it is told.
    front.set_watches(Watches::Silent);
    let (services, configs) = (api::<Service>(&subject), api::<ConfigMap>(&subject));
    services.delete(&subject.name, &DeleteParams::default()).await.unwrap();
    let theirs = json!({ "data": { "server.conf": "theirs" } });
    let config = names::config(&subject.name);
    configs.patch(&config, &PatchParams::default(), &Patch::Merge(&theirs)).await.unwrap();
    for nonce in ["one", "two"] {
        subject.wish(|spec| spec["restartNonce"] = json!(nonce)).await;
    }
    // Of nodes and disks it is told of other tests', too: that those were lost says nothing of these.
    let lost = || ["questdbs", "services", "configmaps"].iter().all(|kind| front.lost_of(kind) > 0);
    eventually(PATIENCE, "something lost", async || lost().then_some(())).await;
    front.set(forget_once());
    front.set_watches(Watches::Ended);
    subject.carried_out(Phase::Ready).await;
    // Every watch of the operator.
    front.fired(8).await;

    // Each kind is listed again by itself: another may be sooner than the restart, and these later.
    eventually(PATIENCE, "what was deleted", async || services.get_opt(&subject.name).await.unwrap()).await;
    eventually(PATIENCE, "what was written over", async || {
        let data = configs.get(&config).await.unwrap().data?;
        (data["server.conf"] != "theirs").then_some(())
    })
    .await;
    let pod = subject.pods().get(&names::pod(&subject.name)).await.unwrap();
    assert_eq!(pod.metadata.annotations.unwrap()[names::RESTART], "two");
    let after = Made::by(&subject).await;
    assert_eq!(Made { pod: before.pod.clone(), ..after }, before, "only the pod is another");
    assert_eq!(launches(&subject.rig, since).await, Vec::<String>::new());
    subject.purge_with_others().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_from_the_past_makes_nothing_twice() {
    let mut subject = Subject::new(&unique("older")).await;
    let _others = Others::of(&subject.rig);
    let lease = subject.rig.lease().await;
    let front = Front::before(&subject.rig.rights(&lease).await).await;
    front.remember_lists();
    let before = serial().await;
    let operator = behind(&subject.rig, &front, &lease);
    subject.wish_run_state("Running").await;
    subject.carried_out(Phase::Ready).await;
    let made = Made::by(&subject).await;

    // All that it knows of children is from before there were any, and no watch tells it better.
    let again = |seen: &Seen| seen.is_apply() && seen.about().contains(&subject.rig.namespace);
    let (lists, applies) = (front.seen(Seen::is_list).len(), front.seen(again).len());
    let forget = forget_once();
    front.set(move |seen| match seen {
        seen if seen.about().ends_with("/questdbs") => Act::Pass,
        seen if seen.is_list() => Act::Older,
        seen if seen.is_watch() && forget(seen) == Act::Pass => Act::Hold,
        seen if seen.is_watch() => Act::Forget,
        _ => Act::Pass,
    });
    front.set_watches(Watches::Ended);
    eventually(PATIENCE, "children to be made again", async || {
        let more = (front.seen(Seen::is_list).len() - lists, front.seen(again).len() - applies);
        (more.0 > 8 && more.1 > 4).then_some(())
    })
    .await;
    passes(&operator, 4.0).await;
    front.release();
    let ready = async || {
        let status = subject.rig.as_admin().get(&subject.name).await.unwrap().status?;
        let still = status.steps.iter().all(|step| step.state == resources::StepState::Succeeded);
        (status.phase == Some(Phase::Ready) && still).then_some(())
    };
    eventually(PATIENCE, "a database as before", ready).await;
    assert_eq!(Made::by(&subject).await, made);
    for kind in ["ConfigMap", "Service"] {
        let label = format!("kind=\"{kind}\"");
        let corrections = operator.metric("slipway_drift_corrections_total", &label).await;
        assert!(corrections < 1.0, "nobody took a {kind} away");
    }
    let launched = launches(&subject.rig, before).await;
    assert_eq!(launched.len(), 3, "a machine, a disk and a firewall: {launched:?}");
    subject.purge_with_others().await;
}

/// Nobody but the StatefulSet says that QuestDB is about to run on a machine, and nothing shows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_a_stateful_set_pins_unseen_is_not_ended() {
    let mut subject = Subject::new(&unique("pinned")).await;
    let lease = subject.rig.lease().await;
    let front = Front::before(&subject.rig.rights(&lease).await).await;
    let _operator = behind(&subject.rig, &front, &lease);
    front.set_fate(Fate::Late, &["statefulsets"], 1);
    subject.wish_run_state("Running").await;
    subject.join(1).await;
    let pin = subject.set(None).await.metadata.uid;
    kept_back(&front, "statefulsets", 0).await;
    subject.wish_run_state("Paused").await;
    // Of one that never served, only who is about to end its machine asks for the pod by its name.
    let pod = format!("/pods/{}", names::pod(&subject.name));
    let asks = |seen: &Seen| seen.method == Method::GET && seen.about().ends_with(&pod);
    eventually(PATIENCE, "live looks", async || (front.seen(asks).len() > 1).then_some(())).await;
    let machines = subject.machines().await;
    let [machine] = machines.as_slice() else { panic!("{machines:?}") };
    let protection = patiently(|| subject.rig.aws.describe_protection(&machine.id)).await;
    assert!(protection.termination && protection.stop, "it is not even unprotected");
    assert_eq!(subject.sets().get(&subject.name).await.unwrap().metadata.uid, pin);

    front.set_fate(Fate::Told, &[], 1);
    subject.carried_out(Phase::Paused).await;
    assert_eq!(subject.machines().await, []);
    let _others = Others::of(&subject.rig);
    subject.purge_with_others().await;
}

/// What became of another version is read off the pod, which goes with its StatefulSet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_decides_and_is_another_one_unseen_is_not_stopped() {
    let mut subject = Subject::new(&unique("decides")).await;
    let _others = Others::of(&subject.rig);
    let lease = subject.rig.lease().await;
    let front = Front::before(&subject.rig.rights(&lease).await).await;
    let _operator = behind(&subject.rig, &front, &lease);
    subject.wish_run_state("Running").await;
    subject.carried_out(Phase::Ready).await;
    let before = Made::by(&subject).await;
    say_taken_back(&subject).await;

    front.set_fate(Fate::Late, &["pods"], 1);
    let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    let name = names::pod(&subject.name);
    subject.pods().delete(&name, &at_once).await.unwrap();
    eventually(PATIENCE, "another pod", async || {
        let pod = subject.pods().get_opt(&name).await.unwrap()?;
        (pod.metadata.uid != before.pod).then_some(())
    })
    .await;
    kept_back(&front, "pods", 0).await;
    let itself = format!("/pods/{name}");
    let asks = |seen: &Seen| seen.method == Method::GET && seen.about().ends_with(&itself);
    let earlier = front.seen(asks).len();
    subject.wish_run_state("Paused").await;
    eventually(PATIENCE, "live looks", async || (front.seen(asks).len() > earlier + 1).then_some(())).await;
    let still = subject.sets().get(&subject.name).await.unwrap().metadata;
    assert_eq!((still.uid, still.deletion_timestamp), (before.set, None));

    front.set_fate(Fate::Told, &[], 1);
    subject.carried_out(Phase::Paused).await;
    subject.purge_with_others().await;
}

/// Another version was asked for, and taken back, as the StatefulSet has it written down.
async fn say_taken_back(subject: &Subject) {
    let [from, to] = [domain::catalogue::DEFAULT_VERSION, "99.0.0"].map(domain::catalogue::image_of);
    let record =
        json!({ "from": from, "to": to, "result": "RolledBack", "startedAt": "2026-01-01T00:00:00Z" });
    let said = json!({ "metadata": { "annotations": { names::UPGRADE: record.to_string() } } });
    subject.sets().patch(&subject.name, &PatchParams::default(), &Patch::Merge(&said)).await.unwrap();
    eventually(PATIENCE, "what is told of it", async || {
        subject.rig.as_admin().get(&subject.name).await.unwrap().status?.last_upgrade
    })
    .await;
}

/// Nobody tells the operator that the database is to serve again, and it was about to stop it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_to_serve_again_unseen_is_not_stopped() {
    let mut subject = Subject::new(&unique("turned")).await;
    let lease = subject.rig.lease().await;
    let front = Front::before(&subject.rig.rights(&lease).await).await;
    let operator = behind(&subject.rig, &front, &lease);
    subject.wish_run_state("Running").await;
    subject.join(1).await;
    let set = subject.set(None).await.metadata.uid;
    let itself = format!("/questdbs/{}", subject.name);
    let looks = move |seen: &Seen| seen.method == Method::GET && seen.about().ends_with(&itself);
    let held = looks.clone();
    front.set(move |seen| if held(seen) { Act::Hold } else { Act::Pass });
    subject.wish_run_state("Paused").await;
    eventually(PATIENCE, "a look before it is stopped", async || {
        (!front.seen(&looks).is_empty()).then_some(())
    })
    .await;
    front.set_fate(Fate::Late, &["questdbs"], 1);
    subject.wish_run_state("Running").await;
    kept_back(&front, "questdbs", 0).await;
    front.release();
    passes(&operator, 2.0).await;
    let still = subject.sets().get(&subject.name).await.unwrap().metadata;
    assert_eq!((&still.uid, still.deletion_timestamp), (&set, None));

    front.set_fate(Fate::Told, &[], 1);
    subject.wish_run_state("Paused").await;
    subject.carried_out(Phase::Paused).await;
    let _others = Others::of(&subject.rig);
    subject.purge_with_others().await;
}

/// Nobody tells the operator that what it is about to restart QuestDB for was taken back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_is_not_restarted_for_what_was_taken_back_unseen() {
    let mut subject = Subject::new(&unique("undone")).await;
    let _others = Others::of(&subject.rig);
    let lease = subject.rig.lease().await;
    let front = Front::before(&subject.rig.rights(&lease).await).await;
    let operator = behind(&subject.rig, &front, &lease);
    subject.wish_run_state("Running").await;
    subject.carried_out(Phase::Ready).await;
    let before = Made::by(&subject).await;
    about_to_restart(&mut subject, &front).await;
    subject.wish(|_| {}).await;
    kept_back(&front, "questdbs", 0).await;
    front.release();
    passes(&operator, 2.0).await;

    front.set_fate(Fate::Told, &[], 1);
    subject.carried_out(Phase::Ready).await;
    assert_eq!(Made::by(&subject).await, before, "it was restarted");
    subject.purge_with_others().await;
}

/// Nor is it told that somebody wants the database to be left alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_to_be_left_alone_unseen_is_not_restarted() {
    let mut subject = Subject::new(&unique("alone")).await;
    let _others = Others::of(&subject.rig);
    let lease = subject.rig.lease().await;
    let front = Front::before(&subject.rig.rights(&lease).await).await;
    let operator = behind(&subject.rig, &front, &lease);
    subject.wish_run_state("Running").await;
    subject.carried_out(Phase::Ready).await;
    let before = Made::by(&subject).await;
    about_to_restart(&mut subject, &front).await;
    leave_alone(&subject, &json!("true")).await;
    kept_back(&front, "questdbs", 0).await;
    front.release();
    passes(&operator, 2.0).await;
    assert_eq!(Made::by(&subject).await, before, "it was restarted");

    front.set_fate(Fate::Told, &[], 1);
    leave_alone(&subject, &Value::Null).await;
    subject.carried_out(Phase::Ready).await;
    assert_ne!(Made::by(&subject).await.pod, before.pod, "it is restarted then");
    subject.purge_with_others().await;
}

/// Another wish, for which the operator is about to restart QuestDB: it looks at the resource once more, is held, and is told nothing more
/// of databases from then on.
async fn about_to_restart(subject: &mut Subject, front: &Front) {
    let itself = format!("/questdbs/{}", subject.name);
    let looks = move |seen: &Seen| seen.method == Method::GET && seen.about().ends_with(&itself);
    let (held, earlier) = (looks.clone(), front.seen(&looks).len());
    front.set(move |seen| if held(seen) { Act::Hold } else { Act::Pass });
    subject.wish(|spec| spec["config"]["shared.worker.count"] = json!("2")).await;
    eventually(PATIENCE, "a look before it is restarted", async || {
        (front.seen(&looks).len() > earlier).then_some(())
    })
    .await;
    front.set_fate(Fate::Late, &["questdbs"], 1);
}

/// Has nothing done for a database, or something again.
async fn leave_alone(subject: &Subject, word: &Value) {
    let annotations = json!({ names::PAUSE_RECONCILE: word });
    let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    subject.rig.as_admin().patch(&subject.name, &PatchParams::default(), &patch).await.unwrap();
}

/// Each of its looks meanwhile would end with a write that is refused, and be followed by a pause.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_written_over_a_resource_as_it_was_before_the_last_write() {
    let mut subject = Subject::new(&unique("behind")).await;
    let _others = Others::of(&subject.rig);
    let lease = subject.rig.lease().await;
    let front = Front::before(&subject.rig.rights(&lease).await).await;
    let operator = behind(&subject.rig, &front, &lease);
    let told = hold_back(&front);
    subject.wish_run_state("Running").await;
    asked_for_meanwhile(&subject, &operator, (&front, told)).await;
    // What comes next is that its machine is written down.
    let told = hold_back(&front);
    asked_for_meanwhile(&subject, &operator, (&front, told)).await;
    subject.carried_out(Phase::Ready).await;

    // Of one that is there only the status is written.
    let told = hold_back(&front);
    subject.wish(|spec| spec["network"] = json!({ "allowedCidrs": ["10.9.0.0/16"] })).await;
    asked_for_meanwhile(&subject, &operator, (&front, told)).await;
    subject.carried_out(Phase::Ready).await;
    assert_eq!(front.repeated("questdbs", UNSHOWN), Vec::<String>::new());
    subject.purge_with_others().await;
}

/// From its next write to a database on, nothing of databases is told to the operator; how many events of them were held back so far.
fn hold_back(front: &Front) -> usize {
    let told = late(front, "questdbs");
    front.late_after_write("questdbs");
    told
}

/// How many events of a kind were held back so far.
fn late(front: &Front, kind: &str) -> usize {
    front.fates().get(kind).map_or(0, |fates| fates.late)
}

/// Waits until more events of a kind than so many were held back. The API server tells a watch in its own time: what it has not told yet
/// when events are told again is not held back at all.
pub(super) async fn kept_back(front: &Front, kind: &str, before: usize) {
    let held = async || (late(front, kind) > before).then_some(());
    eventually(PATIENCE, &format!("an event of {kind} that the operator is not told of"), held).await;
}

/// Something that the operator wrote is held back for a while, in which another watch asks for a look; then all of it is told.
async fn asked_for_meanwhile(subject: &Subject, operator: &Spawned, (front, told): (&Front, usize)) {
    kept_back(front, "questdbs", told).await;
    let looks = async || {
        let looks = operator.metric("workqueue_adds_total", "name=\"questdb\"").await;
        // Who does not answer in time was asked for some all the same.
        (looks > 0.0).then_some(looks)
    };
    let before = eventually(PATIENCE, "looks that were asked for", looks).await;
    let labels = json!({
        names::LABEL_DATABASE: subject.database, names::LABEL_NAME: subject.name,
        names::LABEL_NAMESPACE: subject.rig.namespace,
    });
    let news = json!({ "metadata": { "name": unique("news"), "labels": labels } });
    let news: ConfigMap = serde_json::from_value(news).unwrap();
    api::<ConfigMap>(subject).create(&PostParams::default(), &news).await.unwrap();
    let more = async || looks().await.filter(|looks| *looks > before);
    eventually(PATIENCE, "a look that is asked for", more).await;
    testkit::lasting(HELD).await;
    front.set_fate(Fate::Told, &[], 1);
}

/// What there must be one of, and the same one.
#[derive(Debug, PartialEq, Eq)]
struct Made {
    machine: String,
    volume: String,
    password: Vec<u8>,
    pod: Option<String>,
    set: Option<String>,
    disk: Option<String>,
}

impl Made {
    async fn by(subject: &Subject) -> Self {
        let machines = subject.rig.instances().await;
        let [machine] = machines.as_slice() else { panic!("{machines:?}") };
        let volume = subject.volume().await.id.to_string();
        let secret = api::<Secret>(subject).get(&names::credentials(&subject.name)).await.unwrap();
        let pod = subject.pods().get(&names::pod(&subject.name)).await.unwrap();
        let disks: Api<PersistentVolume> = Api::all(subject.rig.admin.clone());
        Self {
            machine: machine.id.to_string(),
            password: secret.data.unwrap()[names::secret::PG_PASSWORD].0.clone(),
            pod: pod.metadata.uid,
            set: subject.sets().get(&subject.name).await.unwrap().metadata.uid,
            disk: disks.get(&names::persistent_volume(&volume)).await.unwrap().metadata.uid,
            volume,
        }
    }
}

fn api<K>(subject: &Subject) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace)
}

pub(super) async fn passes(operator: &Spawned, more: f64) {
    let passes = async || operator.metric("controller_runtime_reconcile_total", "").await;
    let wanted = passes().await + more;
    eventually(PATIENCE, "passes", async || (passes().await >= wanted).then_some(())).await;
}

/// What was made in AWS for the rig's cluster since then. A call that is said again with its token, because the picture did
/// not show yet what it had made, makes nothing.
pub(super) async fn launches(rig: &Rig, since: u64) -> Vec<String> {
    let answer = control("GET", &format!("/journal?since={since}"), &Value::Null).await;
    let calls = answer["calls"].as_array().unwrap().iter();
    // One that EC2 refused for want of patience is said again.
    let done = calls.filter(|call| call["result"] == "ok");
    let of_rig = done.filter(|call| call["params"].to_string().contains(&rig.cluster));
    let mut tokens = HashSet::new();
    let first = of_rig.filter(|call| match call["params"]["ClientToken"].as_str() {
        Some(token) => tokens.insert(token),
        None => true,
    });
    let actions = first.filter_map(|call| call["action"].as_str()).map(ToOwned::to_owned);
    actions
        .filter(|action| ["RunInstances", "CreateVolume", "CreateSecurityGroup"].contains(&action.as_str()))
        .collect()
}
