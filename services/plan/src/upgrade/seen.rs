//! How a pod was seen by which it is judged what became of the start of another image. Never what is said of it by the second: a pod that
//! ends again and again holds nothing up.

use k8s_openapi::api::core::v1::Pod;

use super::start::{has_run, served};

/// A pod as it was seen, or that there was none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSeen(Option<Told>);

/// What of a pod decides.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    /// A pod keeps its image.
    uid: Option<String>,
    is_leaving: bool,
    has_run: bool,
    has_served: bool,
}

impl PodSeen {
    /// A pod as it is shown; none where there is none.
    pub fn of(pod: Option<&Pod>) -> Self {
        Self(pod.map(|pod| Told {
            uid: pod.metadata.uid.clone(),
            is_leaving: pod.metadata.deletion_timestamp.is_some(),
            has_run: has_run(pod),
            has_served: served(pod),
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A pod that waits for its image, changed.
    fn pod(change: impl FnOnce(&mut Value)) -> PodSeen {
        let container = json!({
            "name": "questdb", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "waiting": { "reason": "ErrImagePull" } },
        });
        let mut pod = json!({
            "metadata": { "name": "trades-0", "uid": "1", "resourceVersion": "7" },
            "spec": { "containers": [] },
            "status": {
                "conditions": [{ "type": "Ready", "status": "False" }], "containerStatuses": [container],
            },
        });
        change(&mut pod);
        let pod: Pod = serde_json::from_value(pod).unwrap();
        PodSeen::of(Some(&pod))
    }

    fn container(pod: &mut Value) -> &mut Value {
        &mut pod["status"]["containerStatuses"][0]
    }

    type Change = fn(&mut Value);

    #[test]
    fn a_pod_is_another_by_what_decides_and_not_by_what_changes_with_every_attempt() {
        let seen = pod(|_| {});
        let table: [(&str, Change, bool); 8] = [
            ("nothing", |_| {}, true),
            ("its version", |pod| pod["metadata"]["resourceVersion"] = json!("8"), true),
            (
                "the word for what it waits for",
                |pod| container(pod)["state"]["waiting"]["reason"] = json!("ImagePullBackOff"),
                true,
            ),
            ("another pod of its name", |pod| pod["metadata"]["uid"] = json!("2"), false),
            (
                "it is on its way out",
                |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
                false,
            ),
            ("it has begun", |pod| container(pod)["state"] = json!({ "running": {} }), false),
            ("it has ended", |pod| container(pod)["restartCount"] = json!(1), false),
            ("it serves", |pod| pod["status"]["conditions"][0]["status"] = json!("True"), false),
        ];
        for (what, change, is_same) in table {
            assert_eq!(pod(change) == seen, is_same, "{what}");
        }
        assert!(PodSeen::of(None) == PodSeen::of(None) && PodSeen::of(None) != seen);

        let ends = |count: i32, reason: &'static str| {
            pod(move |pod| {
                container(pod)["restartCount"] = json!(count);
                container(pod)["state"] = json!({ "waiting": { "reason": reason } });
                container(pod)["lastState"] = json!({ "terminated": { "exitCode": count } });
            })
        };
        assert_eq!(ends(3, "CrashLoopBackOff"), ends(4, "CreateContainerError"));
    }
}
