//! Which cluster a new database goes to. Deterministic: the same wish and the same clusters give the same answer.

use crate::cluster::{Cluster, ClusterState};
use crate::violation::{Rule, Violation};

/// A candidate: a cluster and how many living databases it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The cluster.
    pub cluster: Cluster,
    /// Databases that live there.
    pub databases: u64,
}

/// The active cluster of the region with the fewest databases, the first by name among equals.
pub fn choose(region: &str, candidates: &[Candidate]) -> Result<Cluster, Violation> {
    let in_region = || candidates.iter().filter(|candidate| candidate.cluster.region == region);
    let active = in_region().filter(|candidate| candidate.cluster.state == ClusterState::Active);
    if let Some(best) = active.min_by(|a, b| (a.databases, &a.cluster.id).cmp(&(b.databases, &b.cluster.id)))
    {
        return Ok(best.cluster.clone());
    }
    let detail = match in_region().next() {
        Some(candidate) => format!(
            "region {region} takes no new databases: cluster {} is {}",
            candidate.cluster.id, candidate.cluster.state
        ),
        None => format!("must be one of: {}", regions(candidates).join(", ")),
    };
    Err(Violation::new("/region", Rule::Unknown, detail))
}

fn regions(candidates: &[Candidate]) -> Vec<&str> {
    let mut regions: Vec<&str> = candidates
        .iter()
        .filter(|candidate| candidate.cluster.state == ClusterState::Active)
        .map(|candidate| candidate.cluster.region.as_str())
        .collect();
    regions.sort_unstable();
    regions.dedup();
    regions
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn candidate(id: &str, region: &str, state: ClusterState, databases: u64) -> Candidate {
        let cluster = Cluster {
            id: id.parse().unwrap(),
            region: region.to_owned(),
            account: "000000000000".to_owned(),
            zones: BTreeMap::new(),
            hosted_zone_id: "Z1".to_owned(),
            dns_suffix: "example.com".to_owned(),
            namespace_template: "qdb-{tenant}".to_owned(),
            state,
            credentials: "file:x".to_owned(),
        };
        Candidate { cluster, databases }
    }

    #[test]
    fn the_emptiest_active_cluster_wins() {
        let candidates = [
            candidate("a", "eu-west-1", ClusterState::Active, 5),
            candidate("b", "eu-west-1", ClusterState::Active, 2),
            candidate("c", "eu-west-1", ClusterState::Draining, 0),
            candidate("d", "us-east-1", ClusterState::Active, 0),
        ];
        assert_eq!(choose("eu-west-1", &candidates).unwrap().id.as_str(), "b");
    }

    #[test]
    fn refusals_name_the_reason() {
        let candidates = [
            candidate("c", "eu-west-1", ClusterState::Draining, 0),
            candidate("d", "us-east-1", ClusterState::Active, 0),
        ];
        let draining = choose("eu-west-1", &candidates).unwrap_err();
        assert!(draining.detail.contains("draining"), "{draining}");
        let unknown = choose("mars-1", &candidates).unwrap_err();
        assert_eq!((unknown.pointer.as_str(), unknown.rule), ("/region", Rule::Unknown));
        assert!(unknown.detail.contains("us-east-1"), "{unknown}");
    }
}
