//! What became of the start of another image: it has served, it has failed, or it is not known yet.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod, PodCondition};

use crate::planner::{is_on, is_ready};
use crate::pod::{
    NOT_PULLED, condition, finds_tables_elsewhere, is, is_through, preparing, questdb, refuses, waiting_for,
};

/// Ends after which nobody hopes for the next start.
const ENDS: i32 = 3;
/// How long an image may be looked for: a registry may be away for a while.
const PULL: SignedDuration = SignedDuration::from_mins(10);
/// How long a first start may take in all. One whose process has not ended once has all the time that its startup probe gives it
/// ([`crate::build::give_time`]): it may be rewriting.
const START: SignedDuration = SignedDuration::from_mins(60);
/// By how much the API server's clock may be behind ours.
const SKEW: SignedDuration = SignedDuration::from_secs(30);
/// What a kubelet's first word on a pod takes.
const FIRST_WORD: SignedDuration = SignedDuration::from_secs(2);

fn since(condition: Option<&PodCondition>) -> Option<Timestamp> {
    condition.and_then(|found| found.last_transition_time.as_ref()).map(|time| time.0)
}

/// Whether it answers its probes, or ever did: then it has clients' data.
pub(super) fn served(pod: &Pod) -> bool {
    if is(pod, "Ready") || questdb(pod).is_some_and(|container| container.started == Some(true)) {
        return true;
    }
    // A kubelet says both at once, first: not ready, and initialised or not. Later the first changes only by having been so.
    let first = since(condition(pod, "Initialized")).or_else(|| since(condition(pod, "PodScheduled")));
    since(condition(pod, "Ready"))
        .zip(first)
        .is_some_and(|(ready, first)| ready.duration_since(first) > FIRST_WORD)
}

/// Whether its process has begun, and may have written.
pub(super) fn has_run(pod: &Pod) -> bool {
    let states = |container: &ContainerStatus| {
        [container.state.clone(), container.last_state.clone()]
            .into_iter()
            .flatten()
            .any(|state| state.running.is_some() || state.terminated.is_some())
    };
    served(pod) || questdb(pod).is_some_and(|container| container.restart_count > 0 || states(container))
}

/// The same of a pod that nobody ends. Of what was never started in one that is on its way out its kubelet may say that it has ended.
pub(crate) fn has_begun(pod: &Pod) -> bool {
    served(pod) || (pod.metadata.deletion_timestamp.is_none() && has_run(pod))
}

/// Whether its image is not on its machine, and cannot be had for now.
pub(super) fn lacks_image(pod: &Pod) -> bool {
    let mut reasons = preparing(pod).chain(questdb(pod)).filter_map(waiting_for);
    reasons.any(|reason| ["InvalidImageName", NOT_PULLED].contains(&reason))
}

/// Whether its process has ended, and has never served: a first start that goes on is not such.
pub(crate) fn has_failed(pod: &Pod) -> bool {
    let ended = |container: &ContainerStatus| {
        let states = [&container.state, &container.last_state];
        container.restart_count > 0 || states.into_iter().flatten().any(|state| state.terminated.is_some())
    };
    !served(pod) && questdb(pod).is_some_and(ended)
}

/// Whether what a pod says is of this start, and of now.
pub(super) fn may_be_judged(pod: &Pod, nodes: &[Arc<Node>], started_at: Timestamp) -> bool {
    let made = pod.metadata.creation_timestamp.as_ref();
    let node = nodes.iter().find(|node| is_on(pod, node));
    made.is_some_and(|made| made.0.duration_since(started_at) >= -SKEW)
        && node.is_some_and(|node| is_ready(node))
}

/// Why a pod that has not served will not.
pub(super) fn failure(pod: &Pod, now: Timestamp) -> Option<String> {
    let container = questdb(pod)?;
    if container.restart_count >= ENDS {
        return Some(format!("it ended again and again{}", exit_code(container)));
    }
    let age = since(condition(pod, "PodScheduled")).map(|then| now.duration_since(then));
    // What is wrong with a disk is no fault of a version, and no other one is to begin on it.
    let is_for_the_disk =
        |container: &ContainerStatus| refuses(container) || finds_tables_elsewhere(container);
    let mut prepares =
        preparing(pod).filter(|container| !is_for_the_disk(container) && !is_through(container));
    if let Some(ended) = prepares.find(|container| container.restart_count >= ENDS) {
        let name = &ended.name;
        return Some(format!("what prepares for it ({name}) ended again and again{}", exit_code(ended)));
    }
    // They say first that the image cannot be had.
    let for_its_image = preparing(pod).filter_map(waiting_for).find(|reason| reason.contains("Image"));
    match for_its_image.or_else(|| waiting_for(container)) {
        Some(reason @ "InvalidImageName") => Some(format!("its image cannot be had: {reason}")),
        Some(reason @ NOT_PULLED) => {
            (age >= Some(PULL)).then(|| format!("its image cannot be had: {reason}"))
        }
        // Something before it is waited for, which is no fault of the image.
        Some("ContainerCreating" | "PodInitializing") => None,
        None if container.restart_count == 0 => None,
        _ => (age >= Some(START)).then(|| "it did not answer its probes in time".to_owned()),
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

    fn pod(name: &str, container: &Value, conditions: &Value) -> Pod {
        let mut status =
            json!({ "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0 });
        status.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        let pod = json!({
            "metadata": { "creationTimestamp": "1970-01-01T00:00:00Z" },
            "spec": { "nodeName": "n", "containers": [] },
            "status": { "containerStatuses": [status], "conditions": conditions },
        });
        serde_json::from_value(pod).unwrap()
    }

    fn scheduled_at(minute: u32) -> Value {
        json!([{ "type": "PodScheduled", "status": "True",
            "lastTransitionTime": format!("1970-01-01T00:{minute:02}:00Z") }])
    }

    fn minutes(minutes: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes)
    }

    #[test]
    fn a_start_fails_by_ends_by_its_image_or_by_time() {
        // Scheduled ten minutes after it was made.
        let check = |container: Value, after: i64, expected: Option<&str>| {
            let found = failure(&pod("questdb", &container, &scheduled_at(10)), minutes(10 + after));
            assert_eq!(found.as_deref(), expected, "{container} {after}");
        };
        let waits = |reason: &str| json!({ "state": { "waiting": { "reason": reason } } });
        let again = json!({ "restartCount": 2, "state": { "running": {} } });
        let ended = json!({ "restartCount": 3, "lastState": { "terminated": { "exitCode": 55 } } });
        check(ended.clone(), 0, Some("it ended again and again, last with exit code 55"));
        check(again.clone(), 59, None);
        check(again, 60, Some("it did not answer its probes in time"));
        check(json!({ "state": { "running": {} } }), 600, None);
        check(waits("ErrImagePull"), 9, None);
        for word in ["ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"] {
            check(waits(word), 10, Some("its image cannot be had: ErrImagePull"));
        }
        check(waits("InvalidImageName"), 0, Some("its image cannot be had: InvalidImageName"));
        check(waits("CreateContainerError"), 60, Some("it did not answer its probes in time"));
        check(waits("PodInitializing"), 600, None);
        let again = |code: i32| {
            json!({ "restartCount": 3, "state": { "waiting": { "reason": "CrashLoopBackOff" } },
            "lastState": { "terminated": { "exitCode": code } } })
        };
        let came_through = json!({ "restartCount": 4, "state": { "terminated": { "exitCode": 0 } },
            "lastState": { "terminated": { "exitCode": 66 } } });
        for (name, state, expected) in [
            ("link-config", waits("ErrImagePull"), Some("its image cannot be had: ErrImagePull")),
            ("theirs", waits("ErrImagePull"), None),
            (
                "link-config",
                again(127),
                Some("what prepares for it (link-config) ended again and again, last with exit code 127"),
            ),
            ("link-config", again(66), None),
            ("link-config", again(65), None),
            (
                "restore",
                again(66),
                Some("what prepares for it (restore) ended again and again, last with exit code 66"),
            ),
            ("theirs", again(127), None),
            // Somebody has said that the disk may be empty.
            ("link-config", came_through, None),
        ] {
            let mut prepared = pod("questdb", &waits("PodInitializing"), &scheduled_at(0));
            let before = pod(name, &state, &json!([])).status.unwrap().container_statuses;
            prepared.status.as_mut().unwrap().init_container_statuses = before;
            assert_eq!(failure(&prepared, minutes(10)).as_deref(), expected, "{name}");
        }
        let beside = pod("beside", &ended, &scheduled_at(0));
        assert_eq!(failure(&beside, minutes(600)), None, "what ends beside it says nothing");
        let unscheduled = pod("questdb", &waits("ErrImagePull"), &json!([]));
        assert_eq!(failure(&unscheduled, minutes(600)), None);
    }

    #[test]
    fn what_was_ready_once_has_served() {
        let check = |container: Value, conditions: Value, expected: (bool, bool)| {
            let pod = pod("questdb", &container, &conditions);
            assert_eq!((served(&pod), has_run(&pod)), expected, "{container} {conditions}");
        };
        let at = |ready: &str, second: u32| {
            json!([
                { "type": "Initialized", "status": "True", "lastTransitionTime": "1970-01-01T00:00:01Z" },
                { "type": "Ready", "status": ready,
                    "lastTransitionTime": format!("1970-01-01T00:00:{second:02}Z") },
            ])
        };
        let ended = json!({ "restartCount": 1, "lastState": { "terminated": { "exitCode": 1 } } });
        check(json!({}), at("False", 2), (false, false));
        check(json!({ "state": { "running": {} } }), at("False", 2), (false, true));
        check(json!({ "started": true }), at("False", 2), (true, true));
        check(json!({}), at("True", 2), (true, true));
        check(ended.clone(), at("False", 2), (false, true));
        check(ended, at("False", 9), (true, true));
    }

    #[test]
    fn what_lacks_its_image_and_what_has_begun_are_told_apart() {
        let check = |container: Value, leaves: bool, expected: (bool, bool)| {
            let mut pod = pod("questdb", &container, &json!([]));
            pod.metadata.deletion_timestamp = pod.metadata.creation_timestamp.clone().filter(|_| leaves);
            assert_eq!((lacks_image(&pod), has_begun(&pod)), expected, "{container} {leaves}");
        };
        let waits = |reason: &str| json!({ "state": { "waiting": { "reason": reason } } });
        for reason in ["InvalidImageName", "ErrImagePull", "ImagePullBackOff"] {
            check(waits(reason), false, (true, false));
        }
        // It is there, and cannot be read or run.
        for reason in ["ContainerCreating", "PodInitializing", "ImageInspectError", "CreateContainerError"] {
            check(waits(reason), false, (false, false));
        }
        // What prepares for it is of the same image, and is started first.
        for (name, is_lacked) in [("link-config", true), ("restore", true), ("theirs", false)] {
            let mut waiting = pod("questdb", &waits("PodInitializing"), &json!([]));
            let before = pod(name, &waits("ErrImagePull"), &json!([])).status.unwrap().container_statuses;
            waiting.status.as_mut().unwrap().init_container_statuses = before;
            assert_eq!((lacks_image(&waiting), has_begun(&waiting)), (is_lacked, false), "{name}");
        }
        check(json!({ "state": { "running": {} } }), false, (false, true));
        let ended = json!({ "state": { "terminated": { "exitCode": 137 } } });
        check(ended.clone(), false, (false, true));
        check(ended, true, (false, false));
        check(json!({ "started": true }), true, (false, true));
    }

    #[test]
    fn only_a_pod_of_this_start_on_a_node_that_reports_is_judged() {
        let pod = pod("questdb", &json!({}), &json!([]));
        let check = |ready: &str, started: i64, expected: bool| {
            let node = json!({ "metadata": { "name": "n" },
                "status": { "conditions": [{ "type": "Ready", "status": ready }] } });
            let nodes = [Arc::new(serde_json::from_value(node).unwrap())];
            assert_eq!(may_be_judged(&pod, &nodes, minutes(started)), expected, "{ready} {started}");
        };
        check("True", 0, true);
        check("Unknown", 0, false);
        check("True", 1, false);
        assert!(!may_be_judged(&pod, &[], minutes(0)));
    }
}
