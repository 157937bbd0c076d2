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
