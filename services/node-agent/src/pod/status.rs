//! A pod's status as kubelet reports it. Pure builders; the conditions that are not a kubelet's (`PodScheduled`) are
//! left to whoever set them.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::intent::QUESTDB;
use super::record::{self, End, Runs, Stage};

/// Why containers wait whose turn has not come.
const PREPARING: &str = "PodInitializing";

/// What the container whose turn it is is doing: an init container, else QuestDB.
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
    /// The container whose turn it is; of those that stay, every other is taken to run.
    pub phase: Phase,
    /// Runs of the init containers, in their order; one without is taken to have ended well.
    pub init: &'a [Runs],
    /// Runs of the QuestDB container.
    pub main: &'a Runs,
    /// Now.
    pub now: Timestamp,
}

impl View<'_> {
    fn stage(&self) -> Stage {
        record::stage(self.init)
    }
}

/// What is told of one container.
#[derive(Default)]
struct Shown {
    state: ContainerState,
    last_state: ContainerState,
    started: bool,
    ready: bool,
    restarts: u32,
    has_id: bool,
}

/// The status to report.
pub fn build(view: &View<'_>) -> PodStatus {
    let spec = view.pod.spec.clone().unwrap_or_default();
    let statuses: Vec<_> = spec
        .containers
        .iter()
        .map(|container| container_status(view, container, main(view, container)))
        .collect();
    let init = spec.init_containers.unwrap_or_default();
    let init: Vec<_> = init
        .iter()
        .enumerate()
        .map(|(index, container)| container_status(view, container, preparing(view, index)))
        .collect();
    PodStatus {
        phase: Some(phase(view).to_owned()),
        conditions: Some(conditions(view, &statuses, &init)),
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
        && current.init_container_statuses == wanted.init_container_statuses
}

fn phase(view: &View<'_>) -> &'static str {
    let ended_well = view.main.succeeded();
    match (&view.phase, view.stage()) {
        (Phase::Terminated, Stage::Init(_)) => "Failed",
        (Phase::Waiting { .. } | Phase::Running { .. }, Stage::Init(_)) => "Pending",
        (Phase::Terminated, Stage::Main) if !ended_well && view.main.last_end.is_some() => "Failed",
        (Phase::Terminated, Stage::Main) => "Succeeded",
        (Phase::Waiting { .. }, Stage::Main) if view.main.last_end.is_none() && view.main.restarts == 0 => {
            "Pending"
        }
        (Phase::Waiting { .. } | Phase::Running { .. }, Stage::Main) => "Running",
    }
}

fn conditions(view: &View<'_>, statuses: &[ContainerStatus], init: &[ContainerStatus]) -> Vec<PodCondition> {
    let over = matches!(view.phase, Phase::Terminated);
    let all_ready = statuses.iter().all(|status| status.ready);
    let unready = match (all_ready && !over, over) {
        (true, _) => None,
        (false, true) => Some(("PodCompleted", format!("containers with unready status: [{QUESTDB}]"))),
        (false, false) => {
            Some(("ContainersNotReady", format!("containers with unready status: [{QUESTDB}]")))
        }
    };
    let incomplete: Vec<&str> =
        init.iter().filter(|status| !status.ready).map(|status| status.name.as_str()).collect();
    let incomplete = (!incomplete.is_empty()).then(|| {
        ("ContainersNotInitialized", format!("containers with incomplete status: [{}]", incomplete.join(" ")))
    });
    let condition = |type_: &str, hindrance: Option<&(&str, String)>| {
        let status = if hindrance.is_none() { "True" } else { "False" };
        PodCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: hindrance.map(|(reason, _)| (*reason).to_owned()),
            message: hindrance.map(|(_, message)| message.clone()),
            last_transition_time: Some(Time(since(view, type_, status))),
            observed_generation: view.pod.metadata.generation,
            ..PodCondition::default()
        }
    };
    vec![
        condition("PodReadyToStartContainers", None),
        condition("Initialized", incomplete.as_ref()),
        condition("Ready", unready.as_ref()),
        condition("ContainersReady", unready.as_ref()),
    ]
}

/// When the condition took this status: then, if the API server says it has it already, else now.
fn since(view: &View<'_>, type_: &str, status: &str) -> Timestamp {
    let conditions = view.pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut same = conditions.filter(|condition| condition.type_ == type_ && condition.status == status);
    same.find_map(|condition| condition.last_transition_time.as_ref()).map_or(view.now, |time| time.0)
}

/// A container that stays.
fn main(view: &View<'_>, container: &Container) -> Shown {
    if let Stage::Init(_) = view.stage() {
        return Shown { state: waiting(PREPARING, ""), ..Shown::default() };
    }
    if container.name == QUESTDB {
        return current(view, view.main);
    }
    if matches!(view.phase, Phase::Terminated) {
        let state = terminated(view, view.main.last_end.as_ref());
        return Shown { state, has_id: true, ..Shown::default() };
    }
    let has_id = !matches!(view.phase, Phase::Waiting { .. });
    Shown { state: running(view.accepted_at), started: true, ready: true, has_id, ..Shown::default() }
}

/// An init container, by its index.
fn preparing(view: &View<'_>, index: usize) -> Shown {
    let runs = view.init.get(index);
    match (view.stage(), runs) {
        (Stage::Init(turn), Some(runs)) if turn == index => Shown { ready: false, ..current(view, runs) },
        (Stage::Init(turn), _) if turn < index => Shown { state: waiting(PREPARING, ""), ..Shown::default() },
        _ => Shown {
            state: terminated(view, runs.and_then(|runs| runs.last_end.as_ref())),
            ready: true,
            restarts: runs.map_or(0, |runs| runs.restarts),
            has_id: runs.is_some(),
            ..Shown::default()
        },
    }
}

/// The container whose turn it is.
fn current(view: &View<'_>, runs: &Runs) -> Shown {
    let last_end = runs.last_end.as_ref();
    let shown = Shown { restarts: runs.restarts, has_id: true, ..Shown::default() };
    // An empty state rather than none: what the API server stores and gives back.
    let last_state = last_end.map(|end| terminated(view, Some(end))).unwrap_or_default();
    match &view.phase {
        Phase::Waiting { reason, message } => {
            Shown { state: waiting(reason, message), last_state, has_id: false, ..shown }
        }
        Phase::Running { since, started, ready } => Shown {
            state: running(*since),
            last_state,
            started: *started,
            ready: *ready && *started,
            ..shown
        },
        Phase::Terminated => Shown { state: terminated(view, last_end), ..shown },
    }
}

fn container_status(view: &View<'_>, container: &Container, shown: Shown) -> ContainerStatus {
    let Shown { state, last_state, started, ready, restarts, has_id } = shown;
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        image_id: container.image.clone().unwrap_or_default(),
        container_id: has_id.then(|| container_id(view, container, restarts)),
        ready,
        started: Some(started),
        restart_count: i32::try_from(restarts).unwrap_or(i32::MAX),
        state: Some(state),
        last_state: Some(last_state),
        ..ContainerStatus::default()
    }
}

fn container_id(view: &View<'_>, container: &Container, restarts: u32) -> String {
    let uid = view.pod.metadata.uid.as_deref().unwrap_or_default();
    format!("slipway://{uid}/{}/{restarts}", container.name)
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

    fn view<'a>(pod: &'a Pod, phase: Phase, init: &'a [Runs], main: &'a Runs) -> View<'a> {
        View {
            pod,
            address: "10.250.0.9",
            accepted_at: Timestamp::from_second(10).unwrap(),
            phase,
            init,
            main,
            now: Timestamp::from_second(20).unwrap(),
        }
    }

    fn ended(code: Option<i32>) -> Runs {
        let time = Timestamp::from_second(15).unwrap();
        let end = |code| End { code, reason: "Error".into(), started_at: time, finished_at: time };
        Runs { restarts: u32::from(code.is_some()), last_end: code.map(end), ..Runs::default() }
    }

    fn running_since(second: i64) -> Phase {
        Phase::Running { since: Timestamp::from_second(second).unwrap(), started: true, ready: true }
    }

    fn crashed() -> Phase {
        Phase::Waiting { reason: "CrashLoopBackOff".into(), message: String::new() }
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
        let check = |phase: Phase, code: Option<i32>, expected: (&str, &str, i32)| {
            let status = build(&view(&pod, phase, &[], &ended(code)));
            let container = &status.container_statuses.as_ref().unwrap()[0];
            let found =
                (status.phase.as_deref().unwrap(), status_of(&status, "Ready"), container.restart_count);
            assert_eq!((found.0, found.1.as_str(), found.2), expected);
        };
        let waiting = || Phase::Waiting { reason: "ContainerCreating".into(), message: String::new() };
        let since = Timestamp::from_second(12).unwrap();
        check(waiting(), None, ("Pending", "False", 0));
        check(waiting(), Some(1), ("Running", "False", 1));
        check(Phase::Running { since, started: false, ready: false }, None, ("Running", "False", 0));
        check(Phase::Running { since, started: true, ready: true }, None, ("Running", "True", 0));
        check(Phase::Terminated, Some(0), ("Succeeded", "False", 1));
        check(Phase::Terminated, Some(3), ("Failed", "False", 1));
    }

    #[test]
    fn containers_wait_for_those_that_prepare() {
        let mut pod = fixture::pod();
        let second = Container { name: "second".into(), ..fixture::init_container() };
        pod.spec.as_mut().unwrap().init_containers = Some(vec![fixture::init_container(), second]);
        // Each as `<state> <restarts> <ready>`, first the two that prepare, then QuestDB.
        let check = |phase: Phase, codes: [Option<i32>; 2], expected: [&str; 3], all: (&str, &str)| {
            let init = codes.map(ended);
            let status = build(&view(&pod, phase, &init, &Runs::default()));
            let containers =
                status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
            let told: Vec<_> = containers.map(told).collect();
            assert_eq!(told, expected);
            assert_eq!((status.phase.as_deref().unwrap(), status_of(&status, "Initialized").as_str()), all);
        };
        let (later, not_yet) = ("PodInitializing 0 false", ("Pending", "False"));
        check(running_since(12), [None, None], ["running 0 false", later, later], not_yet);
        check(crashed(), [Some(1), None], ["CrashLoopBackOff 1 false", later, later], not_yet);
        check(Phase::Terminated, [Some(1), None], ["ended 1 1 false", later, later], ("Failed", "False"));
        check(running_since(12), [Some(0), None], ["ended 0 1 true", "running 0 false", later], not_yet);
        let done = ["ended 0 1 true", "ended 0 1 true"];
        let both = [Some(0), Some(0)];
        check(crashed(), both, [done[0], done[1], "CrashLoopBackOff 0 false"], ("Pending", "True"));
        check(running_since(12), both, [done[0], done[1], "running 0 true"], ("Running", "True"));
    }

    fn told(status: &ContainerStatus) -> String {
        let state = status.state.as_ref().unwrap();
        let words = match (&state.waiting, &state.running, &state.terminated) {
            (Some(waiting), ..) => waiting.reason.clone().unwrap(),
            (_, Some(_), _) => "running".to_owned(),
            (.., Some(end)) => format!("ended {}", end.exit_code),
            _ => "nothing".to_owned(),
        };
        format!("{words} {} {}", status.restart_count, status.ready)
    }

    #[test]
    fn what_is_reported_is_not_reported_again() {
        let mut pod = fixture::pod();
        pod.spec.as_mut().unwrap().init_containers = Some(vec![fixture::init_container()]);
        let (phase, init, main) = (running_since(12), [ended(Some(0))], ended(Some(137)));
        let status = build(&view(&pod, phase.clone(), &init, &main));
        assert!(!is_reported(&status, &pod));
        pod.status = Some(serde_json::from_value(serde_json::to_value(&status).unwrap()).unwrap());
        let again =
            build(&View { now: Timestamp::from_second(99).unwrap(), ..view(&pod, phase, &init, &main) });
        assert!(is_reported(&again, &pod));
        let other = build(&view(&pod, running_since(12), &[ended(Some(1))], &main));
        let only_init = PodStatus { init_container_statuses: other.init_container_statuses, ..again.clone() };
        assert!(!is_reported(&only_init, &pod));
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
        let statuses = build(&view(&pod, waiting, &[], &Runs::default())).container_statuses.unwrap();
        assert_eq!(statuses.iter().map(|status| status.ready).collect::<Vec<_>>(), [false, true]);
    }
}
