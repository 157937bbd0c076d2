//! What a pod says of itself, and what its containers are called.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodCondition};

/// The container that is QuestDB: others may be put beside it.
pub(crate) const QUESTDB: &str = "questdb";
/// The one that has a copy restored.
pub(crate) const RESTORE: &str = "restore";
/// The one that links to server.conf, and refuses a disk that is empty in the place of one that has data, or on which QuestDB would not
/// find its tables.
pub(crate) const LINK_CONFIG: &str = "link-config";
/// The exit code with which it refuses one that is empty.
pub(crate) const EMPTIED: i32 = 66;
/// The one with which it refuses one that has QuestDB's tables, and not where QuestDB looks for them.
pub(crate) const MISPLACED: i32 = 65;

/// Why a container waits whose image cannot be pulled.
pub(crate) const NOT_PULLED: &str = "ErrImagePull";
/// The same by what the last attempt met with, and while its kubelet rests from that.
const NOT_PULLED_EITHER: [&str; 3] = ["ImagePullBackOff", "RegistryUnavailable", "SignatureValidationFailed"];

/// Why a container waits that has ended, until it is started again.
const BACK_OFF: &str = "CrashLoopBackOff";

/// Why a container waits before any of its pod has begun: the second, where others prepare for it.
const UNBEGUN: [&str; 2] = ["ContainerCreating", "PodInitializing"];

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

/// Whether a container that prepares ended last because it refuses an empty disk.
pub(crate) fn refuses(container: &ContainerStatus) -> bool {
    is_kept_by(container, EMPTIED)
}

/// The same because QuestDB's tables are on the disk, and not where QuestDB looks for them.
pub(crate) fn finds_tables_elsewhere(container: &ContainerStatus) -> bool {
    is_kept_by(container, MISPLACED)
}

fn is_kept_by(container: &ContainerStatus, code: i32) -> bool {
    container.name == LINK_CONFIG && ended(container).is_some_and(|ended| ended.exit_code == code)
}

/// How a container ended last.
fn ended(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    let states = [&container.state, &container.last_state];
    states.into_iter().flatten().find_map(|state| state.terminated.as_ref())
}

fn is_running(container: &ContainerStatus) -> bool {
    container.state.as_ref().is_some_and(|state| state.running.is_some())
}

/// Whether a container that prepares is through with it, however often it ended before.
pub(crate) fn is_through(container: &ContainerStatus) -> bool {
    let ended = container.state.as_ref().and_then(|state| state.terminated.as_ref());
    ended.is_some_and(|ended| ended.exit_code == 0)
}

/// Why a container waits. An image that cannot be pulled has several words, which take turns for as long as that lasts: here it has one,
/// so that what rests on it stays as it is and is not told anew each time.
pub(crate) fn waiting_for(container: &ContainerStatus) -> Option<&str> {
    let reason = container.state.as_ref()?.waiting.as_ref()?.reason.as_deref()?;
    Some(if NOT_PULLED_EITHER.contains(&reason) { NOT_PULLED } else { reason })
}

/// Whether a kubelet has taken a pod up, and no container of it has begun, nor is anything said of why: volumes are mounted before the
/// first one, and of what goes wrong with that events alone tell.
pub(crate) fn is_unbegun(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let mut all = status
        .into_iter()
        .flat_map(|status| status.init_container_statuses.iter().chain(&status.container_statuses).flatten());
    questdb(pod).is_some()
        && all.all(|container| {
            let ended = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
            let waits = waiting_for(container);
            ended.is_none() && waits.is_some_and(|reason| UNBEGUN.contains(&reason))
        })
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

/// The most telling of what a pod says of itself, without anything that changes by the second.
pub(crate) fn awaited(pod: &Pod) -> String {
    if let Some(text) = first_waiting(pod) {
        return text;
    }
    if let Some(text) = unplaced(pod) {
        return text;
    }
    let Some(questdb) = questdb(pod).filter(|found| is_running(found)) else {
        return "waiting for QuestDB to start".to_owned();
    };
    let mut all = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    // A pod is ready once all of them are.
    let other = all.find(|other| questdb.ready && is_running(other) && !other.ready);
    let who = other.map_or_else(|| "QuestDB".to_owned(), |other| format!("container {}", other.name));
    format!("{who} has started and does not answer its probes yet")
}

/// The command that shows what a container of a pod said before it ended.
pub(crate) fn look_at_former(pod: &Pod, container: &str) -> String {
    let [namespace, name] = [&pod.metadata.namespace, &pod.metadata.name].map(Option::as_deref);
    let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
    format!("kubectl -n {namespace} logs --previous {name} --container {container}")
}

/// The first container that waits for a reason of its own, those that prepare first; and how it ended before that.
fn first_waiting(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let is_over = matches!(status.phase.as_deref(), Some("Failed" | "Succeeded"));
    // One beside QuestDB may end again and again for no other reason than that QuestDB does not answer yet.
    let starts = questdb(pod).is_some_and(|found| is_running(found) && !found.ready);
    let first = status.init_container_statuses.iter().flatten();
    let first = first.map(|container| (container, !stays(pod, &container.name)));
    let beside = status.container_statuses.iter().flatten().map(|container| (container, false));
    let mut waiting = first.chain(beside).filter_map(|(container, comes_to_an_end)| {
        let again = || (!is_over && is_started_again(container, comes_to_an_end)).then_some(BACK_OFF);
        let reason = waiting_for(container).or_else(again)?;
        let is_told = reason != "PodInitializing" && !(starts && reason == BACK_OFF);
        is_told.then_some((container, reason))
    });
    let (container, reason) = waiting.next()?;
    let ended = ended(container).map(|ended| {
        let look = look_at_former(pod, &container.name);
        format!("; it ended with exit code {}: {look}", ended.exit_code)
    });
    Some(format!("container {} waits: {reason}{}", container.name, ended.unwrap_or_default()))
}

/// Whether a container has ended and is to be started again: each that stays, and one that is to come to an end where that was no good one.
/// Its kubelet says so for a moment before it says that the container waits for that, each time anew: here it is the same.
fn is_started_again(container: &ContainerStatus, comes_to_an_end: bool) -> bool {
    let has_ended = container.state.as_ref().is_some_and(|state| state.terminated.is_some());
    has_ended && !(comes_to_an_end && is_through(container))
}

/// Whether a container that is started before QuestDB's stays beside it. Who adds containers to every pod of a cluster adds some that do,
/// and others that come to an end, as ours that prepare do.
fn stays(pod: &Pod, container: &str) -> bool {
    let mut first = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let found = first.find(|found| found.name == container);
    found.is_some_and(|found| found.restart_policy.as_deref() == Some("Always"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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

    #[test]
    fn a_pod_has_not_begun_while_all_its_containers_wait_for_no_reason_of_their_own() {
        let waits = |reason: &str| json!({ "waiting": { "reason": reason } });
        let (creates, begins) = (waits("ContainerCreating"), waits("PodInitializing"));
        let ended = json!({ "terminated": { "exitCode": 1 } });
        for (init, main, expected) in [
            (None, None, false),
            (None, Some((creates.clone(), None)), true),
            (Some((begins.clone(), None)), Some((begins.clone(), None)), true),
            (Some((json!({ "running": {} }), None)), Some((begins.clone(), None)), false),
            (Some((ended.clone(), None)), Some((begins.clone(), None)), false),
            (Some((begins.clone(), Some(ended.clone()))), Some((begins.clone(), None)), false),
            (Some((waits("ErrImagePull"), None)), Some((begins, None)), false),
            (None, Some((waits("CreateContainerError"), None)), false),
            (None, Some((creates, Some(ended))), false),
        ] {
            let what = format!("{init:?} {main:?}");
            let pod = json!({ "status": {
                "initContainerStatuses": container("restore", init), "containerStatuses": container("questdb", main),
            } });
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(is_unbegun(&pod), expected, "{what}");
        }
    }

    /// A state, and the one before.
    type States = Option<(Value, Option<Value>)>;

    fn container(name: &str, states: States) -> Option<Value> {
        let (state, last) = states?;
        Some(json!([{
            "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": state, "lastState": last.unwrap_or_default(),
        }]))
    }

    #[test]
    fn a_pod_that_waits_says_for_what_and_how_it_ended_before() {
        let back_off = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
        let ended = |code: i32| json!({ "terminated": { "exitCode": code } });
        let begins = json!({ "waiting": { "reason": "PodInitializing" } });
        for (init, main, expected) in [
            (None, None, "waiting for QuestDB to start"),
            (
                None,
                Some((json!({ "running": {} }), None)),
                "QuestDB has started and does not answer its probes yet",
            ),
            (None, Some((begins.clone(), None)), "waiting for QuestDB to start"),
            (
                Some((back_off.clone(), Some(ended(1)))),
                Some((begins, None)),
                "container restore waits: CrashLoopBackOff; it ended with exit code 1: \
                 kubectl -n data logs --previous trades-0 --container restore",
            ),
            (
                Some((ended(0), None)),
                Some((back_off, Some(ended(55)))),
                "container questdb waits: CrashLoopBackOff; it ended with exit code 55: \
                 kubectl -n data logs --previous trades-0 --container questdb",
            ),
            (
                None,
                Some((json!({ "waiting": { "reason": "ErrImagePull" } }), None)),
                "container questdb waits: ErrImagePull",
            ),
            (
                None,
                Some((json!({ "waiting": { "reason": "ImagePullBackOff" } }), None)),
                "container questdb waits: ErrImagePull",
            ),
        ] {
            let pod = json!({ "metadata": { "name": "trades-0", "namespace": "data" }, "status": {
                "conditions": [{ "type": "PodScheduled", "status": "True" }],
                "initContainerStatuses": container("restore", init),
                "containerStatuses": container("questdb", main),
            } });
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(awaited(&pod), expected);
        }
    }

    /// What is said of a pod with another container beside QuestDB, whose states these are, from one look to the next.
    fn said_beside(ready: bool, phase: &str, turns: &[(Value, Option<Value>)]) -> Vec<String> {
        let said = turns.iter().map(|turn| {
            let mut all = container("questdb", Some((json!({ "running": {} }), None))).unwrap();
            all[0]["ready"] = ready.into();
            let other = container("shipper", Some(turn.clone())).unwrap();
            all.as_array_mut().unwrap().extend(other.as_array().unwrap().clone());
            let pod = json!({ "metadata": { "name": "trades-0", "namespace": "data" }, "status": {
                "phase": phase,
                "conditions": [{ "type": "PodScheduled", "status": "True" }],
                "containerStatuses": all,
            } });
            awaited(&serde_json::from_value(pod).unwrap())
        });
        let mut said: Vec<String> = said.collect();
        said.dedup();
        said
    }

    #[test]
    fn of_a_container_beside_questdb_that_ends_again_and_again_the_same_is_said_each_time() {
        let back_off = |time: &str| {
            let message = format!("back-off {time} restarting failed container=shipper");
            json!({ "waiting": { "reason": "CrashLoopBackOff", "message": message } })
        };
        let ended = |second: u8| {
            let at = format!("2026-01-01T00:00:{second:02}Z");
            json!({ "terminated": { "exitCode": 1, "finishedAt": at } })
        };
        let running = json!({ "running": {} });
        let turns = [
            (ended(1), None),
            (back_off("10s"), Some(ended(1))),
            (ended(12), Some(ended(1))),
            (back_off("20s"), Some(ended(12))),
        ];
        let told = "container shipper waits: CrashLoopBackOff; it ended with exit code 1: \
                    kubectl -n data logs --previous trades-0 --container shipper";
        assert_eq!(said_beside(true, "Running", &turns), [told]);
        // While QuestDB itself does not answer yet, nobody waits for the other one.
        let turns = [&turns[..], &[(running, Some(ended(12)))]].concat();
        let starts = "QuestDB has started and does not answer its probes yet";
        assert_eq!(said_beside(false, "Running", &turns), [starts]);
        let other = "container shipper has started and does not answer its probes yet";
        assert_eq!(said_beside(true, "Running", &turns[4..]), [other]);
        let not_pulled = (json!({ "waiting": { "reason": "ErrImagePull" } }), None);
        assert_eq!(said_beside(false, "Running", &[not_pulled]), ["container shipper waits: ErrImagePull"]);
        let over = said_beside(true, "Failed", &turns[..1]);
        assert!(!over[0].contains("waits"), "nothing of it is started again: {over:?}");
    }

    #[test]
    fn what_comes_to_an_end_before_questdb_is_started_again_only_where_that_was_no_good_one() {
        // One of ours, and two that others have added, of which one stays.
        let spec = json!({ "containers": [], "initContainers": [
            { "name": LINK_CONFIG }, { "name": "mesh-init" }, { "name": "mesh", "restartPolicy": "Always" },
        ] });
        let begins = (json!({ "waiting": { "reason": "PodInitializing" } }), None);
        for (name, code, expected) in [
            (LINK_CONFIG, 0, false),
            (LINK_CONFIG, 1, true),
            ("mesh-init", 0, false),
            ("mesh-init", 1, true),
            ("mesh", 0, true),
        ] {
            let ended = (json!({ "terminated": { "exitCode": code } }), None);
            let pod = json!({ "spec": spec, "status": {
                "conditions": [{ "type": "PodScheduled", "status": "True" }],
                "initContainerStatuses": container(name, Some(ended)),
                "containerStatuses": container(QUESTDB, Some(begins.clone())),
            } });
            let said = awaited(&serde_json::from_value(pod).unwrap());
            let told = format!("container {name} waits: CrashLoopBackOff; it ended with exit code {code}: ");
            assert_eq!(said.starts_with(&told), expected, "{said}");
            assert!(expected || said == "waiting for QuestDB to start", "{said}");
        }
    }
}
