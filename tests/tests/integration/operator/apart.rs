//! What AWS refuses for hours holds nothing else back, and is not asked for again and again.

use cloud::Volume;
use resources::names::condition;
use resources::{Phase, QuestDB};
use serde_json::{Value, json};
use testkit::{eventually, unique};

use super::rig::PATIENCE;
use super::subject::Subject;
use crate::endpoint::{control, fault, serial};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_aws_does_not_grow_yet_holds_no_restart_back() {
    let mut subject = Subject::new(&unique("apart")).await;
    let mut operator = subject.rig.start().await;
    subject.serving().await;
    let (volume, before) = (subject.volume().await, subject.play_controller(None).await);
    let refusal = fault(&json!({
        "kind": "fail", "action": "ModifyVolume", "contains": volume.id.as_str(),
        "code": "VolumeModificationRateExceeded", "status": 400,
    }))
    .await;
    let since = serial().await;
    subject
        .wish(|spec| {
            spec["storage"]["sizeGib"] = json!(40);
            spec["restartNonce"] = json!("once");
        })
        .await;
    subject.play_controller(Some("once")).await;
    let pods = subject.pods();
    let name = before.metadata.name.as_deref().unwrap();
    eventually(PATIENCE, "the end of the pod that ran before", async || {
        let pod = pods.get_opt(name).await.unwrap();
        pod.is_none_or(|pod| pod.metadata.uid != before.metadata.uid).then_some(())
    })
    .await;
    subject.play_controller(Some("once")).await;
    subject.answer().await;
    let api = subject.rig.as_admin();
    // Before it is asked to change the disk EC2 may be too busy to take the question, and its first answer be another one.
    let told = eventually(PATIENCE, "a database that serves with the disk it has", async || {
        let found = api.get(&subject.name).await.unwrap();
        let (status, reason, message) = word(&found, condition::VOLUME_RESIZING)?;
        let is_put_off = (status, reason) == ("False", "Delayed") && message.contains("tried again after 2");
        (is_put_off && word(&found, condition::READY)?.0 == "True").then_some(found)
    })
    .await;
    assert_eq!(told.status.as_ref().unwrap().phase, Some(Phase::Updating));
    assert_eq!(subject.volume().await.size_gib, volume.size_gib);
    assert_eq!(
        changes(&volume, since).await,
        1,
        "what AWS allows now and then is not asked for at every pass"
    );

    // Who does not remember the refusal asks at once.
    control("DELETE", &format!("/faults/{refusal}"), &Value::Null).await;
    operator.kill().await.unwrap();
    let _next = subject.rig.start().await;
    subject.carried_out(Phase::Ready).await;
    assert_eq!(subject.volume().await.size_gib, 40);
    subject.purge().await;
}

/// Status, reason and message of a condition.
pub(super) fn word<'a>(resource: &'a QuestDB, kind: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let conditions = &resource.status.as_ref()?.conditions;
    let found = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((&found.status, &found.reason, &found.message))
}

/// How often a change of the volume was asked for since then.
pub(super) async fn changes(volume: &Volume, since: u64) -> usize {
    let answer = control("GET", &format!("/journal?since={since}&action=ModifyVolume"), &Value::Null).await;
    let calls = answer["calls"].as_array().unwrap();
    calls.iter().filter(|call| call["params"].to_string().contains(volume.id.as_str())).count()
}
