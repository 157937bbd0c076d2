//! Clusters over HTTP.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::unreadable::UnreadableCluster;

/// Registers a cluster, or changes its registration: `PUT /v1/clusters/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterCluster {
    /// AWS region.
    pub region: String,
    /// AWS account number.
    pub account: String,
    /// Zone to subnet.
    pub zones: BTreeMap<String, String>,
    /// Route 53 hosted zone.
    pub hosted_zone_id: String,
    /// Suffix of the databases' DNS names.
    pub dns_suffix: String,
    /// Namespace of a tenant; `{tenant}` stands for it. Never changes once the cluster is registered.
    #[serde(default = "default_template")]
    pub namespace_template: String,
    /// `active`, `draining` or `disabled`. Where it is left out, a registered cluster keeps the one it has, and a new
    /// one is `active`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Reference to the credentials, such as `file:eu-west-1.kubeconfig`; never the credentials.
    pub credentials: String,
}

fn default_template() -> String {
    "qdb-{tenant}".to_owned()
}

/// Changes whether a cluster takes new databases: `PATCH /v1/clusters/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateCluster {
    /// `active` (takes new databases), `draining` (keeps its own, takes no new ones) or `disabled` (out of service).
    #[schema(example = "draining")]
    pub state: String,
}

/// A registered cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cluster {
    /// Identity.
    pub id: String,
    /// Its registration.
    #[serde(flatten)]
    pub registration: RegisterCluster,
    /// Living databases there.
    pub databases: u64,
    /// When it was registered.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: jiff::Timestamp,
}

/// All clusters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterList {
    /// In order of their identity.
    pub clusters: Vec<Cluster>,
    /// Those that cannot be read; absent where all can.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableCluster>,
}
