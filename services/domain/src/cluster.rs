//! A registered Kubernetes cluster, as far as decisions need it.

use std::collections::BTreeMap;

use crate::desired::words;
use crate::id::{ClusterId, DatabaseId, DatabaseName, TenantId, namespace, resource_name};

words!(
    /// Whether a cluster takes new databases.
    ClusterState {
        /// Takes new databases.
        Active => "active",
        /// Keeps its databases, takes no new ones.
        Draining => "draining",
        /// Out of service.
        Disabled => "disabled",
    }
);

/// A registered cluster. Credentials are a *reference*, never the credentials themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Its identity.
    pub id: ClusterId,
    /// AWS region.
    pub region: String,
    /// AWS account number.
    pub account: String,
    /// Zone to subnet.
    pub zones: BTreeMap<String, String>,
    /// Route 53 hosted zone that the databases' names live in.
    pub hosted_zone_id: String,
    /// Suffix of the databases' names, such as `eu-west-1.example.com`.
    pub dns_suffix: String,
    /// Namespace of a tenant: `{tenant}` stands for it. Stays as it is for the cluster's life.
    pub namespace_template: String,
    /// Whether it takes new databases.
    pub state: ClusterState,
    /// Where the credentials are, such as `file:eu-west-1.kubeconfig`.
    pub credentials: String,
}

impl Cluster {
    /// The namespace of a tenant's databases here.
    pub fn namespace(&self, tenant: &TenantId) -> String {
        namespace(&self.namespace_template, tenant)
    }

    /// The DNS name of a database here.
    pub fn hostname(&self, name: &DatabaseName, id: DatabaseId) -> String {
        format!("{}.{}", resource_name(name, id), self.dns_suffix)
    }
}
