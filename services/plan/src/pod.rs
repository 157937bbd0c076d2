//! What a pod says of itself, and what its containers are called.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};

/// The container that is QuestDB: others may be put beside it.
pub(crate) const QUESTDB: &str = "questdb";
/// The one that has a copy restored.
pub(crate) const RESTORE: &str = "restore";
/// The one that links to server.conf.
pub(crate) const LINK_CONFIG: &str = "link-config";

/// How QuestDB's container is.
pub(crate) fn questdb(pod: &Pod) -> Option<&ContainerStatus> {
    let mut all = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    all.find(|container| container.name == QUESTDB)
}

/// How those are that prepare for it, from the same image.
pub(crate) fn preparing(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let all = pod.status.iter().flat_map(|status| status.init_container_statuses.iter().flatten());
    all.filter(|container| [RESTORE, LINK_CONFIG].contains(&container.name.as_str()))
}

/// Why a container waits.
pub(crate) fn waiting_for(container: &ContainerStatus) -> Option<&str> {
    container.state.as_ref()?.waiting.as_ref()?.reason.as_deref()
}

/// A condition.
pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|found| found.type_ == kind)
}

/// Whether a condition holds.
pub(crate) fn is(pod: &Pod, kind: &str) -> bool {
    condition(pod, kind).is_some_and(|found| found.status == "True")
}

/// Why a pod has no place yet, in words that do not change with every machine that comes to the cluster; `None` of one that has.
pub(crate) fn unplaced(pod: &Pod) -> Option<String> {
    let place = condition(pod, "PodScheduled");
    if place.is_some_and(|found| found.status == "True") {
        return None;
    }
    let words = place.and_then(|found| found.message.as_deref()).unwrap_or_default();
    // No machine but the one that the pod is pinned to comes so far as to be asked whether it has room.
    let lacks =
        [("Insufficient memory", "memory"), ("Insufficient cpu", "processors"), ("free ports", "free ports")];
    let lacks: Vec<&str> =
        lacks.iter().filter(|(said, _)| words.contains(*said)).map(|(_, what)| *what).collect();
    if lacks.is_empty() {
        return Some("waiting for the pod to be scheduled on its machine".to_owned());
    }
    Some(format!(
        "the machine has too little for the pod beside what else runs there ({}): ask for less in /spec/pod/resources, or for \
         another type",
        lacks.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_without_a_place_says_what_its_machine_lacks() {
        let others = "4 node(s) didn't match Pod's node affinity/selector";
        for (status, message, expected) in [
            ("True", "", None),
            ("False", others, Some("waiting for the pod")),
            ("False", "1 Insufficient memory, 4 node(s) didn't match", Some("(memory): ask for less")),
            ("False", "1 Insufficient cpu, 1 Insufficient memory", Some("(memory, processors)")),
            ("False", "1 node(s) didn't have free ports for the requested pod ports", Some("(free ports)")),
        ] {
            let conditions = json!([{ "type": "PodScheduled", "status": status, "message": message }]);
            let pod: Pod = serde_json::from_value(json!({ "status": { "conditions": conditions } })).unwrap();
            let said = unplaced(&pod);
            match (&said, expected) {
                (Some(said), Some(expected)) => assert!(said.contains(expected), "{said}"),
                _ => assert_eq!(said.as_deref(), expected, "{message}"),
            }
        }
        assert!(unplaced(&Pod::default()).is_some_and(|said| said.starts_with("waiting")));
    }
}
