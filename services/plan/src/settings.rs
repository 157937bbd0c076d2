//! What holds for every database of a cluster. Values only; a `main` reads them.

use std::collections::BTreeMap;

use domain::catalogue::{InstanceTypes, Repository, Versions};

/// The cluster's place in the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the cluster, as in every tag.
    pub cluster: String,
    /// Hosted zone of the databases' names.
    pub hosted_zone: String,
    /// Suffix of the databases' names.
    pub dns_suffix: String,
    /// VPC of the machines.
    pub vpc: String,
    /// Availability zone to subnet.
    pub zones: BTreeMap<String, String>,
    /// Machine image of databases that name none.
    pub node_image: String,
    /// Instance profile of the machines, by its name; without one they have no rights in AWS.
    pub instance_profile: Option<String>,
    /// QuestDB versions that databases may have.
    pub versions: Versions,
    /// Where QuestDB's images come from.
    pub questdb_image: Repository,
    /// Secrets in the namespace of each database with which images are pulled, beside those that its spec names.
    pub image_pull_secrets: Vec<String>,
    /// EC2 instance types that databases may have.
    pub instance_types: InstanceTypes,
    /// Who else lives in the cluster.
    pub neighbours: Neighbours,
}

/// Who else reaches the databases of a cluster, beside those whom a wish lets in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// Namespace of the operator's own pods.
    pub operator_namespace: String,
    /// Addresses of an operator that is not a pod there.
    pub operator_cidrs: Vec<String>,
    /// Namespaces whose pods read metrics.
    pub scraper_namespaces: Vec<String>,
    /// Namespaces of Traefik's pods.
    pub ingress_namespaces: Vec<String>,
    /// Suffix of the hosts of routes, below which each namespace has names of its own.
    pub ingress_suffix: String,
    /// Addresses of the cluster's pods and of its control plane, which the firewall of a machine lets in.
    pub cluster_cidrs: Vec<String>,
}
