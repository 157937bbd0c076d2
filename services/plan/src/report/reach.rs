//! Conditions about how a database is reached within its cluster.

use resources::names::{condition, reason};
use resources::{QuestDB, QuestDBStatus, ServiceType};

use super::Outcome;
use super::conditions::{Word, is_known, no, yes};
use crate::planner::{leaving_node, missing_kinds};
use crate::{Failure, Goal, Kind, Unseen};

/// Somebody wants the machine's Node empty: the database leaves it.
pub(super) fn cordoned(status: &QuestDBStatus, resource: &QuestDB, outcome: &Outcome<'_>) -> Option<Word> {
    let node = leaving_node(resource, outcome.observed).filter(|_| outcome.validated.goal == Goal::Serve);
    let Some(node) = node else {
        return is_known(status, condition::NODE_CORDONED)
            .then(|| no("Schedulable", "nobody wants the machine's Node empty"));
    };
    let meanwhile = if outcome.validated.reach.budgeted {
        "its drain waits, because the disruption budget lets nobody stop QuestDB"
    } else {
        "a drain stops QuestDB, which does not start again on that Node"
    };
    let text = format!(
        "Node {node} is cordoned: the database moves to another machine, and its own is ended; until then {meanwhile}"
    );
    Some(yes("Cordoned", &text))
}

/// What is asked for and not made: kinds that the cluster does not know, not with every field, or does not let us see, and routes to
/// a host that another database has.
pub(super) fn integrations(status: &QuestDBStatus, outcome: &Outcome<'_>) -> Option<Word> {
    let serves = outcome.validated.goal == Goal::Serve;
    let missing = if serves { missing_kinds(outcome.validated, outcome.observed) } else { Vec::new() };
    let wanted = serves && !outcome.validated.reach.kinds().is_empty();
    let taken = &outcome.plan.hosts_taken;
    let outdated = outdated(outcome);
    if missing.is_empty() && taken.is_empty() && outdated.is_empty() {
        return (wanted || is_known(status, condition::INTEGRATIONS_READY))
            .then(|| yes("Known", "the cluster knows every kind of object that is asked for"));
    }
    let of_kinds = missing.iter().filter_map(|(_, _, unseen)| obstacle(*unseen));
    let of_hosts = taken.first().map(|_| ("HostTaken", 3));
    let of_fields = outdated.first().map(|_| (reason::OLD_DEFINITION, 4));
    // What was said before holds until it is known better.
    let (reason, _) = of_kinds.chain(of_hosts).chain(of_fields).max_by_key(|(_, rank)| *rank)?;
    let texts = missing.iter().filter_map(|(kind, field, unseen)| told(*kind, field, *unseen));
    let failures = outdated.iter().map(|failure| failure.message.clone());
    let texts: Vec<String> = taken.iter().cloned().chain(failures).chain(texts).collect();
    Some(no(reason, &texts.join("; ")))
}

/// What could not be written because the cluster's definition of a kind of others lacks a field.
fn outdated<'a>(outcome: &Outcome<'a>) -> Vec<&'a Failure> {
    let is_of_others = |kind: Kind| kind.definition().is_some();
    let failures = outcome.applied.failures.iter();
    failures.filter(|failure| failure.outdated.is_some_and(is_of_others)).collect()
}

/// The reason of the condition, and which one goes first where there are several.
fn obstacle(unseen: Option<&Unseen>) -> Option<(&'static str, u8)> {
    match unseen {
        Some(Unseen::Yet) => None,
        Some(Unseen::Broken(_)) => Some(("KindUnseen", 0)),
        None => Some(("KindMissing", 1)),
        Some(Unseen::Refused(_)) => Some(("KindDenied", 2)),
    }
}

fn told(kind: Kind, field: &str, unseen: Option<&Unseen>) -> Option<String> {
    let kind = kind.as_str();
    Some(match unseen {
        Some(Unseen::Yet) => return None,
        Some(Unseen::Broken(text) | Unseen::Refused(text)) => {
            format!("{field} asks for kind {kind}, of which nothing is made or taken away meanwhile: {text}")
        }
        None => format!(
            "{field} asks for kind {kind}, which this cluster does not know: install its definition, or take the field out"
        ),
    })
}

/// Where the load balancer answers, as whoever makes those in this cluster says of the Service. Nothing waits for it.
pub(super) fn load_balancer(outcome: &Outcome<'_>) -> Vec<String> {
    let is_asked = outcome.validated.reach.service.service_type == ServiceType::LoadBalancer;
    let service = outcome.observed.children.service.as_deref().filter(|_| is_asked);
    let told = service.and_then(|service| service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref());
    let answers = told.into_iter().flatten();
    answers.filter_map(|ingress| ingress.hostname.clone().or_else(|| ingress.ip.clone())).collect()
}
