//! A pod's status as kubelet reports it. Pure builders; the conditions that are not a kubelet's (`PodScheduled`) are
//! left to whoever set them.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::intent::QUESTDB;
use super::record::End;

/// What the QuestDB container is doing.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// Not running.
    Waiting {
        /// `ContainerCreating`, `CrashLoopBackOff`, `ErrImagePull`, …
        reason: String,
        /// More words.
        message: String,
    },
    /// Running.
    Running {
        /// Since when.
        since: Timestamp,
        /// The startup probe is content.
        started: bool,
        /// The readiness probe is content.
        ready: bool,
    },
    /// Ended, and stays so.
    Terminated,
}

/// Everything the report needs.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// The pod as the API server has it.
    pub pod: &'a Pod,
    /// Address of pod and node.
    pub address: &'a str,
    /// When the agent took the pod on.
    pub accepted_at: Timestamp,
    /// The QuestDB container; every other is taken to run.
    pub phase: Phase,
    /// Runs after the first.
    pub restarts: u32,
    /// How the last run ended.
    pub last_end: Option<&'a End>,
    /// Now.
    pub now: Timestamp,
}

/// The status to report.
pub fn build(view: &View<'_>) -> PodStatus {
    let spec = view.pod.spec.clone().unwrap_or_default();
    let statuses: Vec<_> =
        spec.containers.iter().map(|container| container_status(view, container)).collect();
    let ready = statuses.iter().all(|status| status.ready);
    let init = spec.init_containers.unwrap_or_default();
    let init: Vec<_> = init.iter().map(|container| completed(view, container)).collect();
    PodStatus {
        phase: Some(phase(view).to_owned()),
        conditions: Some(conditions(view, ready)),
        container_statuses: Some(statuses),
        init_container_statuses: (!init.is_empty()).then_some(init),
        pod_ip: Some(view.address.to_owned()),
        pod_ips: Some(vec![PodIP { ip: view.address.to_owned() }]),
        host_ip: Some(view.address.to_owned()),
        host_ips: Some(vec![HostIP { ip: view.address.to_owned() }]),
        start_time: Some(Time(view.accepted_at)),
        observed_generation: view.pod.metadata.generation,
        ..PodStatus::default()
    }
}

/// Whether the API server's copy says the same already (but for what others write).
pub fn is_reported(wanted: &PodStatus, pod: &Pod) -> bool {
    let Some(current) = &pod.status else { return false };
    let conditions_hold = wanted.conditions.iter().flatten().all(|wanted| {
        let same = |current: &&PodCondition| current.type_ == wanted.type_;
        let holds =
            |current: &PodCondition| (&current.status, &current.reason) == (&wanted.status, &wanted.reason);
        current.conditions.iter().flatten().find(same).is_some_and(holds)
    });
    conditions_hold
        && current.phase == wanted.phase
        && current.pod_ip == wanted.pod_ip
        && current.container_statuses == wanted.container_statuses
}

fn phase(view: &View<'_>) -> &'static str {
    let failed = view.last_end.is_some_and(|end| end.code != 0);
    match &view.phase {
        Phase::Terminated if failed => "Failed",
        Phase::Terminated => "Succeeded",
        Phase::Waiting { .. } if view.last_end.is_none() && view.restarts == 0 => "Pending",
        Phase::Waiting { .. } | Phase::Running { .. } => "Running",
    }
}

fn conditions(view: &View<'_>, ready: bool) -> Vec<PodCondition> {
    let ready = ready && !matches!(view.phase, Phase::Terminated);
    let over = matches!(view.phase, Phase::Terminated);
    let reason = match (ready, over) {
        (true, _) => None,
        (false, true) => Some("PodCompleted"),
        (false, false) => Some("ContainersNotReady"),
    };
    let condition = |type_: &str, holds: bool, reason: Option<&str>| {
        let status = if holds { "True" } else { "False" };
        PodCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.map(str::to_owned),
            message: reason.map(|_| format!("containers with unready status: [{QUESTDB}]")),
            last_transition_time: Some(Time(since(view, type_, status))),
            observed_generation: view.pod.metadata.generation,
            ..PodCondition::default()
        }
    };
    vec![
        condition("PodReadyToStartContainers", true, None),
        condition("Initialized", true, None),
        condition("Ready", ready, reason),
        condition("ContainersReady", ready, reason),
    ]
}

/// When the condition took this status: then, if the API server says it has it already, else now.
fn since(view: &View<'_>, type_: &str, status: &str) -> Timestamp {
    let conditions = view.pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut same = conditions.filter(|condition| condition.type_ == type_ && condition.status == status);
    same.find_map(|condition| condition.last_transition_time.as_ref()).map_or(view.now, |time| time.0)
}

fn container_status(view: &View<'_>, container: &Container) -> ContainerStatus {
    let ours = container.name == QUESTDB;
    let (state, started, ready) = match &view.phase {
        Phase::Waiting { reason, message } if ours => (waiting(reason, message), false, false),
        Phase::Terminated => (terminated(view, view.last_end), false, false),
        Phase::Running { since, started, ready } if ours => (running(*since), *started, *ready && *started),
        Phase::Running { .. } | Phase::Waiting { .. } => (running(view.accepted_at), true, true),
    };
    let last_state = (ours && !matches!(view.phase, Phase::Terminated))
        .then(|| view.last_end.map(|end| terminated(view, Some(end))))
        .flatten();
    let restarts = if ours { view.restarts } else { 0 };
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        image_id: container.image.clone().unwrap_or_default(),
        container_id: (!matches!(view.phase, Phase::Waiting { .. })).then(|| container_id(view, container)),
        ready,
        started: Some(started),
        restart_count: i32::try_from(restarts).unwrap_or(i32::MAX),
        state: Some(state),
        // An empty state rather than none: what the API server stores and gives back.
        last_state: Some(last_state.unwrap_or_default()),
        ..ContainerStatus::default()
    }
}

fn completed(view: &View<'_>, container: &Container) -> ContainerStatus {
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        image_id: container.image.clone().unwrap_or_default(),
        ready: true,
        started: Some(false),
        state: Some(terminated(view, None)),
        last_state: Some(ContainerState::default()),
        ..ContainerStatus::default()
    }
}

fn container_id(view: &View<'_>, container: &Container) -> String {
    let uid = view.pod.metadata.uid.as_deref().unwrap_or_default();
    format!("slipway://{uid}/{}/{}", container.name, view.restarts)
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    let message = (!message.is_empty()).then(|| message.to_owned());
    ContainerState {
        waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message }),
        ..ContainerState::default()
    }
}

fn running(since: Timestamp) -> ContainerState {
    ContainerState {
        running: Some(ContainerStateRunning { started_at: Some(Time(whole_second(since))) }),
        ..ContainerState::default()
    }
}

fn terminated(view: &View<'_>, end: Option<&End>) -> ContainerState {
    let (started, finished) =
        end.map_or((view.accepted_at, view.accepted_at), |end| (end.started_at, end.finished_at));
    let code = end.map_or(0, |end| end.code);
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: code,
            signal: (code > 128).then(|| code - 128),
            reason: Some(end.map_or("Completed", |end| end.reason.as_str()).to_owned()),
            started_at: Some(Time(whole_second(started))),
            finished_at: Some(Time(whole_second(finished))),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    }
}

/// The API server keeps whole seconds; reporting more would look like a difference for ever.
fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn view<'a>(pod: &'a Pod, phase: Phase, last_end: Option<&'a End>) -> View<'a> {
        View {
            pod,
            address: "10.250.0.9",
            accepted_at: Timestamp::from_second(10).unwrap(),
            phase,
            restarts: u32::from(last_end.is_some()),
            last_end,
            now: Timestamp::from_second(20).unwrap(),
        }
    }

    fn end(code: i32) -> End {
        let time = Timestamp::from_second(15).unwrap();
        End { code, reason: "Error".into(), started_at: time, finished_at: time }
    }

    fn status_of(status: &PodStatus, type_: &str) -> String {
        let mut conditions = status.conditions.iter().flatten();
        conditions
            .find(|condition| condition.type_ == type_)
            .map(|condition| condition.status.clone())
            .unwrap()
    }

    #[test]
    fn phases_follow_the_process() {
        let pod = fixture::pod();
        let check = |phase: Phase, last_end: Option<&End>, expected: (&str, &str, i32)| {
            let status = build(&view(&pod, phase, last_end));
            let container = &status.container_statuses.as_ref().unwrap()[0];
            let found =
                (status.phase.as_deref().unwrap(), status_of(&status, "Ready"), container.restart_count);
            assert_eq!((found.0, found.1.as_str(), found.2), expected);
        };
        let waiting = || Phase::Waiting { reason: "ContainerCreating".into(), message: String::new() };
        let since = Timestamp::from_second(12).unwrap();
        check(waiting(), None, ("Pending", "False", 0));
        check(waiting(), Some(&end(1)), ("Running", "False", 1));
        check(Phase::Running { since, started: false, ready: false }, None, ("Running", "False", 0));
        check(Phase::Running { since, started: true, ready: true }, None, ("Running", "True", 0));
        check(Phase::Terminated, Some(&end(0)), ("Succeeded", "False", 1));
        check(Phase::Terminated, Some(&end(3)), ("Failed", "False", 1));
    }

    #[test]
    fn what_is_reported_is_not_reported_again() {
        let mut pod = fixture::pod();
        let phase = Phase::Running { since: Timestamp::from_second(12).unwrap(), started: true, ready: true };
        let status = build(&view(&pod, phase.clone(), Some(&end(137))));
        assert!(!is_reported(&status, &pod));
        pod.status = Some(serde_json::from_value(serde_json::to_value(&status).unwrap()).unwrap());
        let again =
            build(&View { now: Timestamp::from_second(99).unwrap(), ..view(&pod, phase, Some(&end(137))) });
        assert!(is_reported(&again, &pod));
        assert_eq!(again.conditions, status.conditions);
        let container = &again.container_statuses.unwrap()[0];
        let last = container.last_state.as_ref().and_then(|state| state.terminated.as_ref()).unwrap();
        assert_eq!((last.exit_code, last.signal), (137, Some(9)));
    }

    #[test]
    fn containers_that_are_not_ours_are_taken_to_run() {
        let mut pod = fixture::pod();
        let sidecar = Container { name: "sidecar".into(), ..Container::default() };
        pod.spec.as_mut().unwrap().containers.push(sidecar);
        let waiting = Phase::Waiting { reason: "ContainerCreating".into(), message: String::new() };
        let statuses = build(&view(&pod, waiting, None)).container_statuses.unwrap();
        assert_eq!(statuses.iter().map(|status| status.ready).collect::<Vec<_>>(), [false, true]);
    }
}
