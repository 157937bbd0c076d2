//! The two Services: one address for clients within the cluster, and the name of the pod.

use resources::names::{self, port};
use serde_json::{Value, json};

use crate::{Kind, Manifest, Subject};

fn ports() -> Value {
    json!([
        { "name": "http", "port": port::HTTP, "targetPort": "http", "protocol": "TCP" },
        { "name": "pg", "port": port::PG, "targetPort": "pg", "protocol": "TCP" },
        { "name": "ilp", "port": port::ILP, "targetPort": "ilp", "protocol": "TCP" },
        { "name": "min", "port": port::MIN, "targetPort": "min", "protocol": "TCP" },
    ])
}

fn manifest(subject: &Subject, name: String, spec: &Value) -> Manifest {
    Manifest {
        kind: Kind::Service,
        namespace: Some(subject.namespace.clone()),
        body: json!({ "apiVersion": "v1", "kind": "Service", "metadata": subject.owned(&name), "spec": spec }),
        name,
        uid: None,
    }
}

/// One stable address within the cluster.
pub fn service(subject: &Subject) -> Manifest {
    let spec = json!({ "type": "ClusterIP", "selector": subject.selector(), "ports": ports() });
    manifest(subject, subject.name.clone(), &spec)
}

/// The pod's own name, also while it is not ready.
pub fn headless(subject: &Subject) -> Manifest {
    let spec = json!({
        "clusterIP": "None",
        "publishNotReadyAddresses": true,
        "selector": subject.selector(),
        "ports": ports(),
    });
    manifest(subject, names::headless(&subject.name), &spec)
}
