//! What holds for every database of a cluster. Values only; a `main` reads them.

use std::collections::BTreeMap;

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
}
