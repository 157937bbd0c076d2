//! Pods without a process: running and ready at once, gone when deleted. For mass tests, and for pods that are not
//! QuestDB.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};

use super::intent::PodKey;
use super::record::Runs;
use super::status::{self, Phase, View};
use crate::api::{Error, call, found};
use crate::context::Context;

/// What a simulated pod needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Its status told.
    Report,
    /// Its deletion completed.
    Delete,
    /// Nothing.
    Nothing,
}

/// Decides. Pure.
pub fn need(pod: &Pod) -> Need {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    match (&pod.metadata.deletion_timestamp, phase) {
        (Some(_), _) => Need::Delete,
        (None, Some("Running" | "Succeeded" | "Failed")) => Need::Nothing,
        (None, _) => Need::Report,
    }
}

/// Does it.
pub async fn act(context: &Context, pod: &Pod, address: &str) -> Result<(), Error> {
    match need(pod) {
        Need::Nothing => Ok(()),
        Need::Delete => delete(context, &PodKey::of(pod)).await,
        Need::Report => {
            let now = Timestamp::now();
            let phase = Phase::Running { since: now, started: true, ready: true };
            let view = View { pod, address, accepted_at: now, phase, init: &[], main: &Runs::default(), now };
            report(context, &PodKey::of(pod), &status::build(&view)).await
        }
    }
}

/// Patches a pod's status; a pod of that name that is another, or none, is no error.
pub async fn report(
    context: &Context,
    key: &PodKey,
    status: &k8s_openapi::api::core::v1::PodStatus,
) -> Result<(), Error> {
    let pods = Api::<Pod>::namespaced(context.client.clone(), &key.namespace);
    let mut patch = serde_json::json!({"metadata": {"uid": key.uid}, "status": status});
    clear_absent(&mut patch["status"]["conditions"]);
    // Addresses would be merged, too, and a pod has but one of each family.
    for addresses in ["podIPs", "hostIPs"] {
        if let Some(list) = patch["status"][addresses].as_array_mut() {
            list.push(serde_json::json!({"$patch": "replace"}));
        }
    }
    let patched = call(
        "patch a pod's status",
        pods.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(patch)),
    )
    .await;
    match found(patched) {
        Err(error) if error.is_conflict() => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Conditions are merged, not replaced: a reason that no longer holds has to be taken back in so many words.
fn clear_absent(conditions: &mut serde_json::Value) {
    for condition in conditions.as_array_mut().into_iter().flatten() {
        for field in ["reason", "message"] {
            if condition.get(field).is_none() {
                condition[field] = serde_json::Value::Null;
            }
        }
    }
}

/// Completes a deletion; a pod of that name that is another, or none, is no error.
pub async fn delete(context: &Context, key: &PodKey) -> Result<(), Error> {
    let pods = Api::<Pod>::namespaced(context.client.clone(), &key.namespace);
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: Some(key.uid.clone()), resource_version: None }),
        ..DeleteParams::default()
    };
    match found(call("delete a pod", pods.delete(&key.name, &parameters)).await) {
        Err(error) if error.is_conflict() => Ok(()),
        other => other.map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodStatus;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::fixture;

    #[test]
    fn reasons_are_taken_back() {
        let mut conditions =
            serde_json::json!([{"type": "Ready", "status": "True"}, {"type": "A", "reason": "B"}]);
        clear_absent(&mut conditions);
        let expected = serde_json::json!([
            {"type": "Ready", "status": "True", "reason": null, "message": null},
            {"type": "A", "reason": "B", "message": null}
        ]);
        assert_eq!(conditions, expected);
    }

    #[test]
    fn a_pod_is_reported_once_and_deleted_when_asked() {
        let mut pod = fixture::pod();
        assert_eq!(need(&pod), Need::Report);
        pod.status = Some(PodStatus { phase: Some("Pending".into()), ..PodStatus::default() });
        assert_eq!(need(&pod), Need::Report);
        pod.status = Some(PodStatus { phase: Some("Running".into()), ..PodStatus::default() });
        assert_eq!(need(&pod), Need::Nothing);
        pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert_eq!(need(&pod), Need::Delete);
    }
}
