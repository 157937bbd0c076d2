//! The two Services: one address for clients within the cluster, and the name of the pod.

use std::collections::{BTreeMap, BTreeSet};

use resources::ServiceType;
use resources::names::{self, port};
use serde_json::{Value, json};

use super::ports::of_clients;
use super::range::canonical;
use super::with_parts;
use crate::{Kind, Manifest, Subject, Validated};

/// The Service of the clients.
const OF_CLIENTS: &str = "clients";
/// The Service of the pods.
pub(super) const OF_PODS: &str = "pods";

fn ports(validated: &Validated) -> Vec<Value> {
    let of_clients = of_clients(validated).into_iter();
    of_clients
        .map(|(name, port)| json!({ "name": name, "port": port, "targetPort": name, "protocol": "TCP" }))
        .collect()
}

fn with_metrics(validated: &Validated) -> Vec<Value> {
    let min = json!({ "name": "min", "port": port::MIN, "targetPort": "min", "protocol": "TCP" });
    ports(validated).into_iter().chain([min]).collect()
}

/// Labels by which one of the two is found.
pub(super) fn role<'a>(subject: &'a Subject, role: &'a str) -> BTreeMap<&'static str, &'a str> {
    BTreeMap::from([(names::LABEL_DATABASE, subject.database.as_str()), (names::LABEL_SERVICE, role)])
}

fn manifest(
    validated: &Validated,
    name: String,
    role: &str,
    annotations: &BTreeMap<String, String>,
    spec: Value,
) -> Manifest {
    let subject = &validated.subject;
    let mut metadata = subject.owned(&name);
    metadata["labels"][names::LABEL_SERVICE] = json!(role);
    for (key, value) in annotations {
        metadata["annotations"][key] = json!(value);
    }
    Manifest {
        kind: Kind::Service,
        namespace: Some(subject.namespace.clone()),
        body: with_parts(
            json!({ "apiVersion": "v1", "kind": "Service" }),
            [("metadata", metadata), ("spec", spec)],
        ),
        name,
        uid: None,
    }
}

/// One stable address: within the cluster or, when it is asked for, of a load balancer.
pub fn service(validated: &Validated) -> Manifest {
    let wish = &validated.reach.service;
    let selector = validated.subject.selector();
    let spec = match wish.service_type {
        ServiceType::ClusterIP => with_parts(
            json!({ "type": "ClusterIP", "selector": selector }),
            [("ports", Value::Array(with_metrics(validated)))],
        ),
        // Metrics ask for no password: they stay inside.
        ServiceType::LoadBalancer => json!({
            "type": "LoadBalancer",
            "loadBalancerSourceRanges": source_ranges(validated),
            // Else every client would come from an address of the cluster.
            "externalTrafficPolicy": "Local",
            "selector": selector,
            "ports": ports(validated),
        }),
    };
    manifest(validated, validated.subject.name.clone(), OF_CLIENTS, &wish.annotations, spec)
}

/// Whom a load balancer lets in, each range once.
fn source_ranges(validated: &Validated) -> BTreeSet<String> {
    validated.allowed_cidrs.iter().map(|cidr| canonical(cidr)).collect()
}

/// The pod's own name, also while it is not ready.
pub fn headless(validated: &Validated) -> Manifest {
    let spec = with_parts(
        json!({
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": validated.subject.selector(),
        }),
        [("ports", Value::Array(with_metrics(validated)))],
    );
    let annotations = &validated.reach.service.headless_annotations;
    manifest(validated, names::headless(&validated.subject.name), OF_PODS, annotations, spec)
}
