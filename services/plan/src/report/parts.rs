//! Steps with their times, and the plain facts of a status.

use std::mem;

use cloud::{DnsChange, DnsChangeState, Instance};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::names::{self, port};
use resources::{
    DnsState, DnsStatus, EndpointsStatus, NextNameStatus, NodeStatus, QuestDB, QuestDBStatus, StepState,
    StepStatus, VolumeStatus,
};

use super::Outcome;
use crate::change::image_of_pod;
use crate::planner::{is_reserved, name_in_force};
use crate::upgrade::version_of;
use crate::{Goal, Led, Part, Renamed, State, pod_is_ready, serving};

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
    dns(status, resource, outcome, instance);
    let validated = outcome.validated;
    if validated.goal == Goal::Serve && outcome.is_done(Part::Pod) && leads(outcome) {
        let host = name_in_force(resource, validated);
        status.endpoints = Some(EndpointsStatus {
            http: format!("http://{host}:{}", port::HTTP),
            pg: format!("postgres://{host}:{}/qdb", port::PG),
            ilp: format!("http://{host}:{}", port::HTTP),
            min: format!("http://{host}:{}", port::MIN),
        });
    }
    // Of what serves, whatever is asked for and wherever its name points to.
    let serving = outcome.observed.children.pod.as_deref().filter(|_| pod_is_ready(outcome.observed));
    if let Some(image) = serving.and_then(image_of_pod) {
        status.version = Some(version_of(&image).to_owned());
    }
    // The plan knows what was reported: what it does not have any more was never begun.
    status.last_upgrade.clone_from(&outcome.plan.upgrade);
    status.last_copy.clone_from(&outcome.plan.last_copy);
    if validated.goal != Goal::Serve {
        status.endpoints = None;
    }
    let secret = outcome.observed.children.secret.as_ref();
    status.credentials_secret = secret.map(|_| names::credentials(&validated.subject.name));
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
    let of_instance = outcome.observed.children.nodes.iter().find(|node| {
        let provider = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        provider.is_some_and(|provider| provider.ends_with(&format!("/{}", instance.id)))
    });
    let conditions = of_instance.and_then(|node| node.status.as_ref()?.conditions.as_deref());
    status.node = Some(NodeStatus {
        name: of_instance.and_then(|node| node.metadata.name.clone()),
        ip: instance.private_ip.map(|address| address.to_string()),
        instance_id: Some(instance.id.to_string()),
        instance_type: Some(instance.instance_type.clone()),
        zone: Some(instance.zone.clone()),
        ready: conditions.is_some_and(|conditions| {
            conditions.iter().any(|found| found.type_ == "Ready" && found.status == "True")
        }),
    });
}

fn volume(status: &mut QuestDBStatus, outcome: &Outcome<'_>) {
    let found = outcome.observed.account.volumes.first();
    if let Some(volume) = found {
        let (id, state) = (volume.id.to_string(), volume.state.to_string());
        status.volume = Some(VolumeStatus { id, size_gib: volume.size_gib, state });
    } else if outcome.validated.goal == Goal::Purge
        && outcome.observed.account.conclusive
        && let Some(volume) = &mut status.volume
    {
        "deleted".clone_into(&mut volume.state);
    }
}

/// Whether the name that the database has leads to it.
fn leads(outcome: &Outcome<'_>) -> bool {
    outcome.is_done(Part::Dns)
}

fn dns(status: &mut QuestDBStatus, resource: &QuestDB, outcome: &Outcome<'_>, instance: Option<&Instance>) {
    let address = instance.and_then(|instance| instance.private_ip).map(|address| address.to_string());
    if outcome.validated.goal != Goal::Serve {
        if outcome.is_done(Part::DnsRelease) {
            let reserved = is_reserved(resource, outcome.validated, outcome.observed.dns.records.as_deref());
            let (name, state) = (outcome.validated.hostname.clone(), DnsState::InSync);
            status.dns = reserved.then_some(DnsStatus {
                name,
                state,
                change_id: None,
                address: None,
                next: None,
                former: None,
            });
        } else if let Some(dns) = &mut status.dns {
            dns.state = DnsState::Releasing;
        }
        return;
    }
    let name = name_in_force(resource, outcome.validated).to_owned();
    if let Some((change, Some(led))) = &outcome.applied.dns {
        led_to(&mut status.dns, name, change, led);
        return;
    }
    let beside = |status: &QuestDBStatus| {
        let known = status.dns.as_ref();
        (known.and_then(|dns| dns.next.clone()), known.and_then(|dns| dns.former.clone()))
    };
    let (next, former) = beside(status);
    match outcome.plan.state(Part::Dns) {
        Some(State::Done) => {
            status.dns =
                Some(DnsStatus { name, state: DnsState::InSync, change_id: None, address, next, former });
        }
        // A name that it had, and that somebody put a record beside, is its own still.
        Some(State::Conflict(_)) if name == outcome.validated.hostname => {
            let state = DnsState::Conflict;
            status.dns = Some(DnsStatus { name, state, change_id: None, address: None, next, former });
        }
        _ => {}
    }
    if let (Some(dns), Some(renamed)) = (&mut status.dns, &outcome.plan.renamed) {
        renamed_to(dns, renamed);
    }
}

/// After a name was made to lead to the database: the one in force, or the one that is to take its place.
fn led_to(dns: &mut Option<DnsStatus>, in_force: String, change: &DnsChange, led: &Led) {
    if led.name != in_force {
        if let Some(dns) = dns {
            let (name, address, change_id) = (led.name.clone(), led.address.clone(), change.id.to_string());
            dns.next = Some(NextNameStatus { name, address, change_id });
            dns.former = dns.former.take().filter(|former| *former != led.name);
        }
        return;
    }
    let in_sync = change.state == DnsChangeState::InSync;
    let (next, former) = dns.take().map(|dns| (dns.next, dns.former)).unwrap_or_default();
    *dns = Some(DnsStatus {
        name: in_force,
        state: if in_sync { DnsState::InSync } else { DnsState::Pending },
        change_id: (!in_sync).then(|| change.id.to_string()),
        address: Some(led.address.clone()),
        next,
        former,
    });
}

fn renamed_to(dns: &mut DnsStatus, renamed: &Renamed) {
    match renamed {
        Renamed::Taken(name) => {
            if let Some(next) = dns.next.take_if(|next| next.name == *name) {
                dns.former = Some(mem::replace(&mut dns.name, next.name));
                dns.address = Some(next.address);
            }
        }
        Renamed::GivenBack(name) => {
            dns.next.take_if(|next| next.name == *name);
            dns.former.take_if(|former| former == name);
        }
    }
}
