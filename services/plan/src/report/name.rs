//! What status says of the name, and of where the database answers.

use std::mem;

use cloud::{DnsChange, DnsChangeState, Instance};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::names::condition::DNS_READY;
use resources::names::{self, port};
use resources::{
    DnsState, DnsStatus, EndpointsStatus, FormerNameStatus, NextNameStatus, QuestDB, QuestDBStatus,
};

use super::Outcome;
use super::conditions::{Word, as_said, no, of_part};
use crate::planner::{is_reserved, name_had, name_in_force};
use crate::{Goal, Led, Part, Renamed, State, Subject};

/// What is said of the name of a database that serves without one.
const NAMELESS: &str =
    "the pod takes no ports of its machine (spec.network.hostPorts): clients come in by the Services";

/// What is told of the name as a condition.
pub(super) fn condition(status: &QuestDBStatus, outcome: &Outcome<'_>) -> Word {
    if let Some(State::Broken(text)) = outcome.plan.state(Part::DnsRelease) {
        return no("Broken", text);
    }
    match outcome.validated.goal {
        Goal::Serve if outcome.is_named() => {}
        Goal::Serve => return no("NoHostPorts", NAMELESS),
        Goal::Pause if status.dns.is_some() => {
            return no("Reserved", "nobody answers to the name, and nobody else can take it");
        }
        Goal::Pause | Goal::Retire | Goal::Purge => return no("Released", "the name is given back"),
    }
    // While a known name waits for its pod, what was said of it still holds.
    let waits = outcome.plan.state(Part::Dns) == Some(&State::Pending);
    let said = as_said(status, DNS_READY).filter(|_| waits);
    said.unwrap_or_else(|| of_part(outcome, Part::Dns, "InSync"))
}

/// Where the database answers: by the name that status says to be in force or, where it is to have none, by its Services.
pub(super) fn endpoints(status: &mut QuestDBStatus, outcome: &Outcome<'_>) {
    if outcome.validated.goal != Goal::Serve {
        status.endpoints = None;
        return;
    }
    let serves = outcome.serves();
    if !outcome.is_named() {
        // What was told before may be the name, which leads nowhere by now.
        if serves || status.endpoints.is_some() {
            let Subject { namespace, name, .. } = &outcome.validated.subject;
            let headless = names::headless(name);
            // A Service of a load balancer has no port for metrics.
            let at = answers(&format!("{name}.{namespace}.svc"), &format!("{headless}.{namespace}.svc"));
            status.endpoints = Some(at);
        }
        return;
    }
    let leads = serves && outcome.is_done(Part::Dns);
    let Some(dns) = status.dns.as_ref().filter(|_| leads) else { return };
    status.endpoints = Some(answers(&dns.name, &dns.name));
}

fn answers(host: &str, metrics: &str) -> EndpointsStatus {
    EndpointsStatus {
        http: format!("http://{host}:{}", port::HTTP),
        pg: format!("postgres://{host}:{}/qdb", port::PG),
        ilp: format!("http://{host}:{}", port::HTTP),
        min: format!("http://{metrics}:{}", port::MIN),
    }
}

/// The name after this pass.
pub(super) fn facts(
    status: &mut QuestDBStatus,
    resource: &QuestDB,
    outcome: &Outcome<'_>,
    instance: Option<&Instance>,
) {
    if !outcome.is_named() {
        return released(status, resource, outcome);
    }
    let now = Time(outcome.observed.at);
    let name = name_in_force(resource, outcome.validated).to_owned();
    if let Some((change, Some(led))) = &outcome.applied.dns {
        return led_to(&mut status.dns, name, change, led, now);
    }
    let known = status.dns.as_ref();
    let (next, former) = known.map(|dns| (dns.next.clone(), dns.former.clone())).unwrap_or_default();
    match outcome.plan.state(Part::Dns) {
        Some(State::Done) => {
            let address =
                instance.and_then(|instance| instance.private_ip).map(|address| address.to_string());
            status.dns =
                Some(DnsStatus { name, state: DnsState::InSync, change_id: None, address, next, former });
        }
        // Somebody put a record beside it: another name may be asked for, and takes its place at once.
        Some(State::Conflict(_)) => {
            let state = DnsState::Conflict;
            status.dns = Some(DnsStatus { name, state, change_id: None, address: None, next, former });
        }
        _ => {}
    }
    if let (Some(dns), Some(renamed)) = (&mut status.dns, &outcome.plan.renamed) {
        renamed_to(dns, renamed, now);
    }
}

fn released(status: &mut QuestDBStatus, resource: &QuestDB, outcome: &Outcome<'_>) {
    if outcome.is_done(Part::DnsRelease) {
        let reserved = is_reserved(resource, outcome.validated, outcome.observed.dns.records.as_deref());
        let name = name_had(resource, outcome.validated).to_owned();
        let state = DnsState::InSync;
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
}

/// After a name was made to lead to the database: the one in force, or the one that is to take its place.
fn led_to(dns: &mut Option<DnsStatus>, in_force: String, change: &DnsChange, led: &Led, now: Time) {
    if led.name != in_force {
        if let Some(dns) = dns {
            let (name, address, change_id) =
                (led.name.clone(), led.address.clone(), Some(change.id.to_string()));
            dns.next = Some(NextNameStatus { name, address, change_id });
            dns.former.take_if(|former| former.name == led.name);
        }
        return;
    }
    let (mut next, mut former) = (None, None);
    if let Some(before) = dns.take() {
        (next, former) = (before.next, before.former);
        if before.name != in_force {
            // It was in a conflict, and parts of it may be ours.
            former = Some(FormerNameStatus { name: before.name, since: now });
        }
    }
    let in_sync = change.state == DnsChangeState::InSync;
    *dns = Some(DnsStatus {
        state: if in_sync { DnsState::InSync } else { DnsState::Pending },
        change_id: (!in_sync).then(|| change.id.to_string()),
        address: Some(led.address.clone()),
        next: next.filter(|next| next.name != in_force),
        former: former.filter(|former| former.name != in_force),
        name: in_force,
    });
}

fn renamed_to(dns: &mut DnsStatus, renamed: &Renamed, now: Time) {
    match renamed {
        Renamed::Begun(Led { name, address }) => {
            dns.former.take_if(|former| former.name == *name);
            dns.next = Some(NextNameStatus { name: name.clone(), address: address.clone(), change_id: None });
        }
        Renamed::Taken(name) => {
            if let Some(next) = dns.next.take_if(|next| next.name == *name) {
                let name = mem::replace(&mut dns.name, next.name);
                dns.former = Some(FormerNameStatus { name, since: now });
                dns.address = Some(next.address);
            }
        }
        Renamed::GivenBack(name) => {
            dns.next.take_if(|next| next.name == *name);
            dns.former.take_if(|former| former.name == *name);
        }
    }
}
