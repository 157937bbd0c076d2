//! How a database is reached within its cluster, beside its name: what people choose of Services, rules and routes.
//!
//! *Invariant:* everything here may be left out, and what is left out is not written back: a spec that says nothing of
//! it means the same as before there was any of it.
#![expect(unreachable_pub, reason = "the schema derive copies the types into a function body")]

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{fence, schema};

/// The Service that clients use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceSpec {
    /// Its type. `LoadBalancer` takes only what comes from the allowed CIDRs, so there must be some.
    #[serde(rename = "type", default)]
    pub service_type: ServiceType,
    /// Annotations of the Service that clients use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::annotations")]
    pub annotations: BTreeMap<String, String>,
    /// Annotations of the headless Service, which names the pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::annotations")]
    pub headless_annotations: BTreeMap<String, String>,
}

/// Types of Service on offer. `NodePort` is not among them: it opens a port on machines that are not the database's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    /// An address within the cluster.
    #[default]
    ClusterIP,
    /// An address given by the cloud's controller, for the allowed CIDRs.
    LoadBalancer,
}

/// Routes of Traefik to a database. Each that is named is made where the cluster knows the kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = fence::named_by_tls())]
pub struct IngressSpec {
    /// Host that the routes match: a name below `<namespace>.<suffix of the operator>`; with the resource's own name in
    /// front of that when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub host: Option<String>,
    /// An `IngressRoute` for REST, web console and line protocol over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<RouteSpec>,
    /// An `IngressRouteTCP` for the Postgres wire protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pg: Option<RouteSpec>,
    /// An `IngressRouteTCP` for the line protocol over TCP; there once the database has a key for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ilp: Option<RouteSpec>,
    /// Traefik ends TLS for the host. Routes over TCP need it: without it nothing names the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsSpec>,
}

/// One route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteSpec {
    /// Entry points of Traefik, by name.
    #[schemars(schema_with = "schema::entry_points")]
    pub entry_points: Vec<String>,
}

/// Where Traefik has a certificate from: its default one when neither is named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsSpec {
    /// Secret with a certificate, in the namespace of the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: Option<String>,
    /// Certificate resolver of Traefik.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub cert_resolver: Option<String>,
}

/// Whom the containers of a pod may call, on all ports. With it, names may be resolved (port 53 of everybody).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressSpec {
    /// CIDRs that may be called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::called_cidrs")]
    pub cidrs: Vec<String>,
    /// Namespaces of this cluster whose pods may be called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::called_namespaces")]
    pub namespaces: Vec<String>,
}

/// How Prometheus' operator is told of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MonitorSpec {
    /// Kind of the object that is made, where the cluster knows it.
    #[serde(default)]
    pub kind: MonitorKind,
    /// Labels of that object, by which a Prometheus chooses what it scrapes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::labels")]
    pub labels: BTreeMap<String, String>,
    /// Seconds between two scrapes; Prometheus' own default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3_600))]
    pub interval_seconds: Option<u32>,
}

/// Kinds by which Prometheus' operator finds what to scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MonitorKind {
    /// By the headless Service.
    #[default]
    ServiceMonitor,
    /// By the pod.
    PodMonitor,
}
