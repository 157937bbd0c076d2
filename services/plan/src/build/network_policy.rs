//! Who may reach the pod: those whom the wish lets in, the operator, scrapers and, where there are routes, Traefik. And
//! whom it may call: nobody, but for those whom the wish names, because the database itself calls nobody.
//!
//! Probes need no rule: what comes from the Node of a pod is always let in.

use resources::names::{self, port};
use serde_json::{Value, json};

use super::ports::of_clients;
use super::range::canonical;
use super::with_parts;
use crate::{Kind, Manifest, Settings, Validated};

/// The `NetworkPolicy`.
pub fn network_policy(validated: &Validated, settings: &Settings) -> Manifest {
    let subject = &validated.subject;
    let name = names::guard(&subject.name);
    let spec = with_parts(
        json!({
            "podSelector": { "matchLabels": subject.selector() },
            "policyTypes": ["Ingress", "Egress"],
        }),
        [
            ("ingress", Value::Array(ingress(validated, settings))),
            ("egress", Value::Array(egress(validated))),
        ],
    );
    Manifest {
        kind: Kind::NetworkPolicy,
        namespace: Some(subject.namespace.clone()),
        body: with_parts(
            json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy" }),
            [("metadata", subject.owned(&name)), ("spec", spec)],
        ),
        name,
        uid: None,
    }
}

fn ingress(validated: &Validated, settings: &Settings) -> Vec<Value> {
    let neighbours = &settings.neighbours;
    let clients: Vec<u16> = of_clients(validated).into_iter().map(|(_, port)| port).collect();
    let mut operator: Vec<Value> = neighbours.operator_cidrs.iter().map(|cidr| block(cidr)).collect();
    operator.push(json!({
        "namespaceSelector": { "matchLabels": { names::LABEL_NAMESPACE_NAME: neighbours.operator_namespace } },
        "podSelector": { "matchLabels": { "app.kubernetes.io/name": names::OPERATOR } },
    }));
    let allowed = validated.allowed_cidrs.iter().map(|cidr| block(cidr));
    let allowed = allowed.chain(validated.reach.namespaces.iter().map(namespace)).collect();
    let routed =
        if validated.reach.ingress.is_some() { neighbours.ingress_namespaces.as_slice() } else { &[] };
    let scrapers = neighbours.scraper_namespaces.iter().map(namespace).collect();
    let rules = [
        (allowed, clients.as_slice()),
        (routed.iter().map(namespace).collect(), clients.as_slice()),
        (operator, &[port::HTTP]),
        (scrapers, &[port::MIN]),
    ];
    // A rule without anybody in it would let in everybody.
    rules.into_iter().filter(|(who, _)| !who.is_empty()).map(|(who, ports)| rule(who, ports)).collect()
}

fn egress(validated: &Validated) -> Vec<Value> {
    let Some(called) = &validated.reach.egress else { return Vec::new() };
    let names = ["UDP", "TCP"].map(|protocol| json!({ "port": port::DNS, "protocol": protocol }));
    let mut rules = vec![json!({ "ports": names })];
    let who: Vec<Value> =
        called.cidrs.iter().map(|cidr| block(cidr)).chain(called.namespaces.iter().map(namespace)).collect();
    // A rule without anybody in it would let everybody be called.
    if !who.is_empty() {
        rules.push(json!({ "to": who }));
    }
    rules
}

fn rule(who: Vec<Value>, ports: &[u16]) -> Value {
    let ports = ports.iter().map(|port| json!({ "port": port, "protocol": "TCP" })).collect();
    with_parts(json!({}), [("from", Value::Array(who)), ("ports", Value::Array(ports))])
}

fn block(cidr: &str) -> Value {
    json!({ "ipBlock": { "cidr": canonical(cidr) } })
}

fn namespace(name: &String) -> Value {
    json!({ "namespaceSelector": { "matchLabels": { names::LABEL_NAMESPACE_NAME: name } } })
}
