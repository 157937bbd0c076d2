//! From one version to another on the real API server, with a real QuestDB that is held still while its disk is copied. Which
//! image a pod runs, and whether it starts, is played.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use resources::names::{self, condition};
use resources::{Phase, QuestDB, SnapshotPhase, UpgradeResult};
use serde_json::json;
use testkit::{Spawned, bare_cluster, eventually};

use super::rig::PATIENCE;
use super::snapshots::{Stage, api, settled};
use super::subject::Subject;

/// The version that every database of these tests begins with.
const FIRST: &str = domain::catalogue::DEFAULT_VERSION;
/// The one that it is to have: whatever the tag of an image may have.
const NEXT: &str = "9.3.5-RC_1";

/// An operator whose databases may have both.
async fn operator(subject: &Subject) -> Spawned {
    let lease = subject.rig.lease().await;
    let versions = format!("{FIRST},{NEXT}");
    let more = [("SLIPWAY_QUESTDB_VERSIONS", versions.as_str())];
    subject.rig.spawn((&lease, &bare_cluster().kubeconfig), &[], &more)
}

/// The names of the copies that were taken before upgrades.
async fn copies(subject: &Subject) -> Vec<String> {
    let all = api(subject).list(&ListParams::default()).await.unwrap().items;
    let before = all.into_iter().filter(|found| {
        found.metadata.annotations.as_ref().is_some_and(|found| found.contains_key(names::BEFORE_UPGRADE))
    });
    before.filter_map(|found| found.metadata.name).collect()
}

/// The StatefulSet has an image; what ran before ends, and its pod is made.
async fn runs(subject: &Subject, version: &str, (before, nonce): (&Pod, Option<&str>)) -> Pod {
    let image = domain::catalogue::image_of(version);
    eventually(PATIENCE, &format!("a template with {image}"), async || {
        let set = subject.sets().get(&subject.name).await.unwrap();
        (set.spec?.template.spec?.containers[0].image.as_ref()? == &image).then_some(())
    })
    .await;
    subject.play_controller(nonce).await;
    let name = names::pod(&subject.name);
    eventually(PATIENCE, "the end of the pod that ran before", async || {
        let Some(pod) = subject.pods().get_opt(&name).await.unwrap() else { return Some(()) };
        if pod.metadata.deletion_timestamp.is_some() {
            // On a node, so that its kubelet would have the last word.
            let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
            let _ = subject.pods().delete(&name, &at_once).await;
        }
        (pod.metadata.uid != before.metadata.uid).then_some(())
    })
    .await;
    subject.play_controller(nonce).await
}

async fn say(subject: &Subject, status: serde_json::Value) {
    let name = names::pod(&subject.name);
    let status = json!({ "status": status });
    subject.pods().patch_status(&name, &PatchParams::default(), &Patch::Strategic(&status)).await.unwrap();
}

fn told(resource: &QuestDB, kind: &str) -> Option<(String, String)> {
    let found = resource.status.as_ref()?.conditions.iter().find(|found| found.type_ == kind)?;
    Some((found.status.clone(), found.message.clone()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_does_not_start_is_taken_back_and_another_attempt_has_a_copy_of_its_own() {
    let mut stage = Stage::new().await;
    let operator = operator(&stage.subject).await;
    let address = stage.questdb.address.to_string();
    let subject = &mut stage.subject;
    let first = subject.pods().get(&names::pod(&subject.name)).await.unwrap();
    subject.wish(|spec| spec["version"] = json!(NEXT)).await;
    let copy = eventually(PATIENCE, "a copy before the upgrade", async || copies(subject).await.pop()).await;
    let done = settled(subject, &copy, SnapshotPhase::Succeeded).await;
    assert_eq!(done.status.unwrap().version.as_deref(), Some(FIRST));

    let second = runs(subject, NEXT, (&first, None)).await;
    subject.bind(1).await;
    let ended = json!({ "terminated": { "exitCode": 55 } });
    let container = json!({
        "name": "questdb", "image": "", "imageID": "", "ready": false, "restartCount": 3, "lastState": ended,
        "state": { "waiting": { "reason": "CrashLoopBackOff" } },
    });
    say(subject, json!({ "containerStatuses": [container] })).await;
    let third = runs(subject, FIRST, (&second, None)).await;
    subject.bind(1).await;
    subject.answer().await;
    let resources = subject.rig.as_admin();
    let back = eventually(PATIENCE, "the version of before to serve", async || {
        let found = resources.get(&subject.name).await.unwrap();
        (told(&found, condition::READY)?.0 == "True"
            && told(&found, condition::CONFIG_ACCEPTED)?.0 == "False")
            .then_some(found)
    })
    .await;
    let status = back.status.clone().unwrap();
    let last = status.last_upgrade.unwrap();
    assert_eq!((last.result, last.snapshot.as_ref()), (UpgradeResult::RolledBack, Some(&copy)));
    assert!(last.reason.unwrap().contains("exit code 55"));
    assert_eq!((status.version.as_deref(), status.phase), (Some(FIRST), Some(Phase::Degraded)));
    assert!(status.instruction.unwrap().seq < 2, "the wish was not carried out");
    assert!(told(&back, condition::CONFIG_ACCEPTED).unwrap().1.contains("exit code 55"));

    // Another attempt: what was written meanwhile is in a copy of its own.
    say(subject, json!({ "podIP": address, "podIPs": [{ "ip": address }] })).await;
    subject
        .wish(|spec| {
            spec["version"] = json!(NEXT);
            spec["restartNonce"] = json!("again");
        })
        .await;
    runs(subject, NEXT, (&third, Some("again"))).await;
    subject.answer().await;
    let upgraded = subject.carried_out(Phase::Ready).await.status.unwrap();
    let last = upgraded.last_upgrade.unwrap();
    assert_eq!((last.result, upgraded.version.as_deref()), (UpgradeResult::Succeeded, Some(NEXT)));
    assert_eq!(copies(subject).await.len(), 2);
    assert_ne!(last.snapshot, Some(copy));
    stage.end(operator).await;
}
