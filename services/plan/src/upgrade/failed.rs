//! When a start counts as failed.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

/// Ends after which nobody hopes for the next start.
const ENDS: i32 = 3;
/// How long an image may be looked for: a registry may be away for a moment.
const PULL: SignedDuration = SignedDuration::from_mins(2);
/// How long a first start may take in all.
const START: SignedDuration = SignedDuration::from_mins(15);

/// Why a pod that has not served yet will not.
pub(super) fn reason(pod: &Pod, now: Timestamp) -> Option<String> {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let ended = statuses.clone().find(|container| container.restart_count >= ENDS);
    if let Some(container) = ended {
        return Some(format!("it ended again and again{}", exit_code(container)));
    }
    let age = pod.metadata.creation_timestamp.as_ref().map(|made| now.duration_since(made.0));
    let waits = |container: &ContainerStatus| container.state.as_ref()?.waiting.as_ref()?.reason.clone();
    let reason = statuses.clone().find_map(waits);
    match reason.as_deref() {
        Some(reason @ "InvalidImageName") => Some(format!("its image cannot be had: {reason}")),
        Some(reason @ ("ErrImagePull" | "ImagePullBackOff")) if age >= Some(PULL) => {
            Some(format!("its image cannot be had: {reason}"))
        }
        _ if age >= Some(START) => Some("it did not answer its probes in time".to_owned()),
        _ => None,
    }
}

fn exit_code(container: &ContainerStatus) -> String {
    let states = [&container.last_state, &container.state];
    let mut codes =
        states.into_iter().flatten().filter_map(|state| Some(state.terminated.as_ref()?.exit_code));
    codes.next().map_or_else(String::new, |code| format!(", last with exit code {code}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_start_fails_by_ends_by_its_image_or_by_time() {
        let check = |container: Value, minutes: i64, expected: Option<&str>| {
            let mut status =
                json!({ "name": "questdb", "image": "", "imageID": "", "ready": false, "restartCount": 0 });
            status.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
            let pod = json!({
                "metadata": { "creationTimestamp": "1970-01-01T00:00:00Z" },
                "status": { "containerStatuses": [status] },
            });
            let now = Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes);
            let found = reason(&serde_json::from_value(pod).unwrap(), now);
            assert_eq!(found.as_deref(), expected, "{container} {minutes}");
        };
        let waits = |reason: &str| json!({ "state": { "waiting": { "reason": reason } } });
        let ended = json!({ "restartCount": 3, "lastState": { "terminated": { "exitCode": 55 } } });
        check(ended, 0, Some("it ended again and again, last with exit code 55"));
        check(json!({ "restartCount": 2 }), 14, None);
        check(json!({}), 15, Some("it did not answer its probes in time"));
        check(waits("ErrImagePull"), 1, None);
        check(waits("ErrImagePull"), 2, Some("its image cannot be had: ErrImagePull"));
        check(waits("InvalidImageName"), 0, Some("its image cannot be had: InvalidImageName"));
        check(waits("PodInitializing"), 14, None);
    }
}
