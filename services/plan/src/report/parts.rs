//! Steps with their times, and the plain facts of a status.

use cloud::{Instance, Volume};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::names;
use resources::{NodeStatus, QuestDB, QuestDBStatus, StepState, StepStatus, VolumeStatus};

use super::name::{self, endpoints};
use super::{Outcome, reach};
use crate::change::image_of_pod;
use crate::planner::is_ready;
use crate::tagged::instance_of;
use crate::upgrade::version_of;
use crate::{Goal, Part, State, pod_is_ready, serving};

/// The steps of this pass, with the times of those before.
pub(super) fn steps(before: &[StepStatus], outcome: &Outcome<'_>, now: Timestamp) -> Vec<StepStatus> {
    let progress = outcome.plan.progress.iter();
    progress
        .map(|progress| {
            let (mut state, mut message) = match &progress.state {
                State::Pending => (StepState::Pending, None),
                State::Running(text) => (StepState::Running, Some(text.clone())),
                State::Done => (StepState::Succeeded, None),
                State::Broken(text) | State::Conflict(text) | State::Refused(text) => {
                    (StepState::Failed, Some(text.clone()))
                }
            };
            if let Some(failure) = outcome.applied.failure(progress.part) {
                state = StepState::Failed;
                message = Some(failure.message.clone());
            } else if let Some(overtaken) = outcome.applied.overtaken(progress.part)
                && state != StepState::Failed
            {
                state = StepState::Running;
                message = Some(overtaken.message.clone());
            }
            let name = progress.part.as_str();
            timed(before.iter().find(|step| step.name == name), name, (state, message), now)
        })
        .collect()
}

fn timed(
    before: Option<&StepStatus>,
    name: &str,
    (state, message): (StepState, Option<String>),
    now: Timestamp,
) -> StepStatus {
    let began =
        before.filter(|step| step.state != StepState::Pending).and_then(|step| step.started_at.clone());
    let ended =
        before.filter(|step| step.state == StepState::Succeeded).and_then(|step| step.ended_at.clone());
    let (started_at, ended_at) = match state {
        StepState::Pending => (None, None),
        // Begun anew if it had ended.
        StepState::Running | StepState::Failed if ended.is_some() => (Some(Time(now)), None),
        StepState::Running | StepState::Failed => (began.or(Some(Time(now))), None),
        StepState::Succeeded => (began.or(Some(Time(now))), ended.or(Some(Time(now)))),
    };
    StepStatus { name: name.to_owned(), state, started_at, ended_at, message }
}

/// Machine, disk, name and where the database answers.
pub(super) fn facts(status: &mut QuestDBStatus, resource: &QuestDB, outcome: &Outcome<'_>) {
    let instance = serving(resource, outcome.observed);
    node(status, outcome, instance);
    volume(status, outcome);
    name::facts(status, resource, outcome, instance);
    endpoints(status, outcome);
    status.load_balancer = reach::load_balancer(outcome);
    // Of what serves, whatever is asked for and wherever its name points to.
    let serving = outcome.observed.children.pod.as_deref().filter(|_| pod_is_ready(outcome.observed));
    if let Some(image) = serving.and_then(image_of_pod) {
        status.version = Some(version_of(&image).to_owned());
    }
    // The plan knows what was reported: what it does not have any more was never begun.
    status.last_upgrade.clone_from(&outcome.plan.upgrade);
    status.last_copy.clone_from(&outcome.plan.last_copy);
    let secret = outcome.observed.children.secret.as_ref();
    status.credentials_secret = secret.map(|_| names::credentials(&outcome.validated.subject.name));
}

fn node(status: &mut QuestDBStatus, outcome: &Outcome<'_>, instance: Option<&Instance>) {
    let Some(instance) = instance else {
        let stopped = outcome.validated.goal != Goal::Serve && outcome.is_done(Part::InstanceStop);
        match &mut status.node {
            // The name stays while it should serve: it says which machine served last.
            Some(node) if !stopped => node.ready = false,
            node => *node = None,
        }
        return;
    };
    let mut nodes = outcome.observed.children.nodes.iter();
    let of_instance = nodes.find(|node| instance_of(node) == Some(instance.id.as_str()));
    status.node = Some(NodeStatus {
        name: of_instance.and_then(|node| node.metadata.name.clone()),
        ip: instance.private_ip.map(|address| address.to_string()),
        instance_id: Some(instance.id.to_string()),
        instance_type: Some(instance.instance_type.clone()),
        image: Some(instance.image.clone()),
        zone: Some(instance.zone.clone()),
        ready: of_instance.is_some_and(|node| is_ready(node)),
    });
}

fn volume(status: &mut QuestDBStatus, outcome: &Outcome<'_>) {
    let (volumes, purges) = (&outcome.observed.account.volumes, outcome.validated.goal == Goal::Purge);
    let noted = status.volume.as_ref().map(|noted| noted.id.clone());
    let lives = |volume: &&Volume| !volume.state.is_ending();
    let is_known = |volume: &&Volume| noted.as_deref() == Some(volume.id.as_str());
    let known = volumes.iter().find(|volume| is_known(volume) && (purges || lives(volume)));
    // Of several nobody can tell which it is, and the one that is named here is destroyed one day.
    let mut living = volumes.iter().filter(lives);
    let only = match (living.next(), living.next()) {
        (Some(_), Some(_)) => None,
        (living, _) => living.or_else(|| volumes.first()),
    };
    // Of one that is purged the report says to the end which disk it had: that one is destroyed, and no other.
    let other = || only.filter(|_| !purges || noted.is_none());
    if let Some(volume) = known.or_else(other) {
        let (id, state) = (volume.id.to_string(), volume.state.to_string());
        status.volume = Some(VolumeStatus { id, size_gib: volume.size_gib, state });
    } else if purges
        && outcome.observed.account.conclusive
        && let Some(volume) = &mut status.volume
    {
        "deleted".clone_into(&mut volume.state);
    }
}
