//! EC2 shows late what was created, and may answer from the past: a resource is let go only when nothing of its database
//! is left, whatever a describe right after a create shows. Who ends it waits as long as EC2 may lag, counted from the last
//! create or, as the next leader, from taking over; and looks once more itself, should EC2 lag for longer.

use std::time::Duration;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use resources::{Phase, QuestDBStatus, names};
use serde_json::{Value, json};
use testkit::{eventually, unique};

use super::life::play_claims;
use super::others::Others;
use super::rig::{PATIENCE, Rig, apply};
use super::subject::Subject;
use super::truth::identity;
use crate::endpoint::{control, fault, serial};

/// From how long ago EC2 answers: long enough that it shows nothing of what was made in a test so far.
const PAST: Duration = Duration::from_secs(4);
/// What the operator is told that EC2 may take at most.
const LAG: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_just_made_is_not_forgotten_because_ec2_does_not_show_it_yet() {
    let rig = Rig::new().await;
    deleted_unseen(rig, LAG, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_last_leader_just_made_is_not_forgotten_by_the_next() {
    let rig = Rig::new().await;
    deleted_unseen(rig, LAG, true).await;
}

/// A picture that shows nothing although EC2 is said never to lag, for a resource whose status has forgotten its machine: what
/// is asked right before the end, of EC2 as it is, finds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_picture_does_not_show_is_found_by_the_last_look() {
    let rig = Rig::new().await;
    let memory = fault(&json!({ "kind": "stale", "action": "Nothing", "stale_s": 4 * PAST.as_secs() })).await;
    let mut operator = rig.start_with_lag(Duration::ZERO).await;
    apply(&rig.as_admin(), &plain(&rig, "unseen")).await.unwrap();
    // Status tells of machines later.
    eventually(PATIENCE, "a machine", async || rig.instances().await.pop()).await;
    let database = identity(&rig, "unseen").await;
    operator.kill().await.unwrap();
    let status = json!({ "status": { "node": null, "volume": null, "steps": null } });
    rig.as_admin().patch_status("unseen", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let mut pasts = Vec::new();
    for action in ["DescribeInstances", "DescribeVolumes", "DescribeSecurityGroups"] {
        let once = json!({
            "kind": "stale", "action": action, "contains": database, "stale_s": 3 * PAST.as_secs(), "times": 1,
        });
        pasts.push(fault(&once).await);
    }
    rig.as_admin().delete("unseen", &DeleteParams::default()).await.unwrap();
    let _next = rig.start_with_lag(Duration::ZERO).await;
    gone(&rig).await;
    for fault in &pasts {
        assert_eq!(ended(fault).await, 1, "one picture was of the past");
    }
    ended(&memory).await;
    nothing_forgotten(rig).await;
}

/// A database is deleted right after its machine was launched, while describes of its cluster know of
/// neither machine nor firewall.
async fn deleted_unseen(rig: Rig, lag: Duration, by_the_next: bool) {
    // Meets no call: the endpoint remembers the past only while somebody may ask for it.
    let memory = fault(&json!({ "kind": "stale", "action": "Nothing", "stale_s": 4 * PAST.as_secs() })).await;
    let mut operator = rig.start_with_lag(lag).await;
    if !by_the_next {
        long_lead(&rig).await;
    }
    apply(&rig.as_admin(), &plain(&rig, "unseen")).await.unwrap();
    eventually(PATIENCE, "a machine, whether EC2 shows it or not", async || {
        machines(&rig).await.pop().map(drop)
    })
    .await;
    if by_the_next {
        operator.kill().await.unwrap();
    }
    let past = fault(&json!({
        "kind": "stale", "action": "Describe*", "contains": rig.cluster, "stale_s": PAST.as_secs(),
    }))
    .await;
    rig.as_admin().delete("unseen", &DeleteParams::default()).await.unwrap();
    let _next = if by_the_next { Some(rig.start_with_lag(lag).await) } else { None };
    gone(&rig).await;
    assert!(ended(&past).await > 0, "EC2 never answered from the past");
    ended(&memory).await;
    nothing_forgotten(rig).await;
}

/// The past is shown to every step on the way, and each refusal is followed by a longer pause. A claim may have been made
/// before the deletion, and there are no controllers here that let it go.
async fn gone(rig: &Rig) {
    eventually(2 * PATIENCE, "the resource to be let go", async || {
        play_claims(rig).await;
        rig.as_admin().get_opt("unseen").await.unwrap().is_none().then_some(())
    })
    .await;
}

async fn nothing_forgotten(rig: Rig) {
    let (instances, groups) = (rig.instances().await, rig.groups().await);
    assert!(instances.is_empty() && groups.is_empty(), "forgotten: {instances:?} {groups:?}");
    assert_eq!(machines(&rig).await.len(), 1, "one launch");
    rig.end().await;
}

/// Waits until the operator leads for longer than EC2 may lag: only then it says that what it never made is down.
async fn long_lead(rig: &Rig) {
    let mut paused = plain(rig, "paused");
    paused["spec"]["runState"] = json!("Paused");
    apply(&rig.as_admin(), &paused).await.unwrap();
    eventually(PATIENCE, "a database that is down for sure", async || {
        let phase = rig.as_admin().get("paused").await.unwrap().status?.phase;
        (phase == Some(Phase::Paused)).then_some(())
    })
    .await;
}

/// A resource that somebody wrote by hand, with a disk that goes with it.
fn plain(rig: &Rig, name: &str) -> Value {
    let mut plain = rig.managed(name, 1);
    plain["spec"].as_object_mut().unwrap().remove("instruction");
    plain["spec"]["storage"]["deletionPolicy"] = json!("Delete");
    plain
}

/// Every machine of the rig's cluster, as the endpoint knows it and EC2 may not show it.
async fn machines(rig: &Rig) -> Vec<Value> {
    let answer = control("GET", "/instances", &Value::Null).await;
    let mut machines = answer["instances"].as_array().unwrap().clone();
    machines.retain(|machine| machine["tags"][cloud::key::CLUSTER].as_str() == Some(&rig.cluster));
    machines
}

/// Switches a fault off; how often it met a call. The journal is all tests', and forgets what was long ago.
async fn ended(fault: &str) -> u64 {
    let answer = control("DELETE", &format!("/faults/{fault}"), &Value::Null).await;
    answer["fired"].as_u64().unwrap_or_else(|| panic!("{answer}"))
}

/// What all share of EC2 is a picture that is older than what a database at work was looked at last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_to_rest_stays_at_rest_although_everybodys_picture_is_older() {
    let mut subject = Subject::new(&unique("rest")).await;
    let lease = subject.rig.lease().await;
    let kubeconfig = subject.rig.rights(&lease).await;
    let operator = subject.rig.spawn((&lease, &kubeconfig), &[], &[("SLIPWAY_RESYNC", "8s")]);
    subject.wish_run_state("Running").await;
    subject.join(1).await;
    subject.play_controller(None).await;
    let since = serial().await;
    eventually(PATIENCE, "a picture of everything, with the disk on no machine", async || {
        let answer = control("GET", &format!("/journal?since={since}"), &Value::Null).await;
        let calls = answer["calls"].as_array().unwrap().iter();
        let described = calls.filter(|call| call["action"] == "DescribeVolumes");
        let of_all = described.map(|call| call["params"].to_string());
        let of_all =
            of_all.filter(|text| text.contains(&subject.rig.cluster) && !text.contains(&subject.database));
        (of_all.count() > 0).then_some(())
    })
    .await;
    let (volume, machine) = (subject.volume().await, subject.machines().await.remove(0));
    subject.rig.aws.attach_volume(&volume.id, &machine.id, "/dev/sdf").await.unwrap();
    subject.answer().await;
    let served = subject.carried_out(Phase::Ready).await.status.unwrap();

    // Another pass, right after it came to rest.
    let budgets: Api<PodDisruptionBudget> =
        Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace);
    let guard = names::guard(&subject.name);
    budgets.delete(&guard, &DeleteParams::default()).await.unwrap();
    let back = async || budgets.get_opt(&guard).await.unwrap().map(drop);
    eventually(PATIENCE, "the disruption budget again", back).await;
    let later = async || {
        let status = subject.rig.as_admin().get(&subject.name).await.unwrap().status?;
        (status.phase == Some(Phase::Ready)).then_some(status)
    };
    let later = eventually(PATIENCE, "rest", later).await;
    let attachment = |status: &resources::QuestDBStatus| {
        status.steps.iter().find(|step| step.name == "attachment").cloned().unwrap()
    };
    assert_eq!(attachment(&later), attachment(&served), "the disk was taken for gone");
    subject.purge().await;
    drop(operator);
}

async fn reported(subject: &Subject) -> Option<QuestDBStatus> {
    subject.rig.as_admin().get(&subject.name).await.unwrap().status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_taken_for_gone_where_ec2_is_another() {
    let mut subject = Subject::new(&unique("elsewhere")).await;
    let _others = Others::of(&subject.rig);
    let lease = subject.rig.lease().await;
    let kubeconfig = subject.rig.rights(&lease).await;
    let first = subject.rig.spawn((&lease, &kubeconfig), &[], &[]);
    subject.wish_run_state("Running").await;
    eventually(PATIENCE, "a disk in the report", async || reported(&subject).await?.volume).await;
    drop(first);
    let wrong = subject.rig.spawn((&lease, &kubeconfig), &[], &subject.rig.elsewhere());
    subject.wish_purged().await;
    eventually(2 * PATIENCE, "a word about what to put right", async || {
        let conditions = reported(&subject).await?.conditions;
        let told = conditions.into_iter().find(|found| found.type_ == names::condition::DEGRADED)?;
        (told.status == "True" && told.message.contains("SLIPWAY_VPC_ID")).then_some(())
    })
    .await;
    drop(wrong);
    assert_eq!(subject.rig.volumes().await.len(), 1);
    let _next = subject.rig.spawn((&lease, &kubeconfig), &[], &[]);
    subject.carried_out(Phase::Deleted).await;
    assert!(subject.rig.volumes().await.iter().all(|volume| volume.state.is_ending()));
    subject.rig.end().await;
}
