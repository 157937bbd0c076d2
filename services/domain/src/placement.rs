//! Which cluster a new database goes to. Deterministic: the same wish and the same clusters give the same answer.

use crate::cluster::{Cluster, ClusterState};
use crate::id::ClusterId;
use crate::violation::{Rule, Violation};

/// A candidate: a cluster, and how many living databases it holds as far as that was counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The cluster.
    pub cluster: Cluster,
    /// Databases that live there, by a count that may be some seconds old: it spreads load, and is no bound. Not needed
    /// where the cluster is not one of several that may be chosen.
    pub databases: Option<u64>,
}

/// Why no cluster takes a new database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such region.
    NoRegion(Violation),
    /// The region is there, but none of its clusters takes new databases.
    Closed {
        /// The region.
        region: String,
        /// Its clusters, and what each is.
        clusters: Vec<(ClusterId, ClusterState)>,
        /// Regions that take new databases.
        open: Vec<String>,
    },
}

impl Refusal {
    /// What is the matter and where to go instead.
    pub fn detail(&self) -> String {
        match self {
            Self::NoRegion(violation) => violation.detail.clone(),
            Self::Closed { region, clusters, open } => {
                let states: Vec<String> =
                    clusters.iter().map(|(id, state)| format!("cluster {id} is {state}")).collect();
                let elsewhere = if open.is_empty() {
                    "no region takes any at present".to_owned()
                } else {
                    format!("choose another one ({}) or try again later", open.join(", "))
                };
                format!("region {region} takes no new databases: {}; {elsewhere}", states.join(", "))
            }
        }
    }
}

/// Whether a region leaves a choice: several of its clusters take new databases. Nothing else needs a count.
pub fn leaves_choice(region: &str, clusters: &[Cluster]) -> bool {
    let open = clusters.iter().filter(|cluster| cluster.region == region && is_open(cluster));
    open.take(2).count() == 2
}

fn is_open(cluster: &Cluster) -> bool {
    cluster.state == ClusterState::Active
}

/// The active cluster of the region with the fewest databases, the first by name among equals.
pub fn choose(region: &str, candidates: &[Candidate]) -> Result<Cluster, Refusal> {
    let in_region = || candidates.iter().filter(|candidate| candidate.cluster.region == region);
    let active = in_region().filter(|candidate| is_open(&candidate.cluster));
    if let Some(best) = active.min_by(|a, b| (a.databases, &a.cluster.id).cmp(&(b.databases, &b.cluster.id)))
    {
        return Ok(best.cluster.clone());
    }
    let open = regions(candidates);
    let clusters: Vec<(ClusterId, ClusterState)> =
        in_region().map(|candidate| (candidate.cluster.id.clone(), candidate.cluster.state)).collect();
    if clusters.is_empty() {
        let detail = format!("must be one of: {}", open.join(", "));
        return Err(Refusal::NoRegion(Violation::new("/region", Rule::Unknown, detail)));
    }
    let open = open.into_iter().map(ToOwned::to_owned).collect();
    Err(Refusal::Closed { region: region.to_owned(), clusters, open })
}

fn regions(candidates: &[Candidate]) -> Vec<&str> {
    let mut regions: Vec<&str> = candidates
        .iter()
        .filter(|candidate| is_open(&candidate.cluster))
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
        Candidate { cluster, databases: Some(databases) }
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
    fn an_only_cluster_needs_no_count() {
        let uncounted =
            |id: &str, region: &str, state| Candidate { databases: None, ..candidate(id, region, state, 0) };
        let candidates = [
            uncounted("a", "us-east-1", ClusterState::Active),
            uncounted("b", "eu-west-1", ClusterState::Disabled),
            uncounted("c", "eu-west-1", ClusterState::Active),
        ];
        assert_eq!(choose("eu-west-1", &candidates).unwrap().id.as_str(), "c");
    }

    #[test]
    fn several_open_clusters_of_the_region_leave_a_choice() {
        use ClusterState::{Active, Disabled, Draining};
        let table = [
            (vec![], false),
            (vec![("eu-west-1", Active)], false),
            (vec![("eu-west-1", Active), ("us-east-1", Active)], false),
            (vec![("eu-west-1", Active), ("eu-west-1", Draining), ("eu-west-1", Disabled)], false),
            (vec![("eu-west-1", Active), ("us-east-1", Active), ("eu-west-1", Active)], true),
        ];
        for (clusters, expected) in table {
            let all: Vec<Cluster> =
                clusters.iter().map(|(region, state)| candidate("a", region, *state, 0).cluster).collect();
            assert_eq!(leaves_choice("eu-west-1", &all), expected, "{clusters:?}");
        }
    }

    #[test]
    fn refusals_name_the_reason() {
        let candidates = [
            candidate("c", "eu-west-1", ClusterState::Draining, 0),
            candidate("d", "us-east-1", ClusterState::Active, 0),
            candidate("e", "eu-west-1", ClusterState::Disabled, 0),
        ];
        let closed = choose("eu-west-1", &candidates).unwrap_err().detail();
        assert_eq!(
            closed,
            "region eu-west-1 takes no new databases: cluster c is draining, cluster e is disabled; \
             choose another one (us-east-1) or try again later"
        );
        let unknown = choose("mars-1", &candidates).unwrap_err();
        let Refusal::NoRegion(violation) = &unknown else { panic!("{unknown:?}") };
        assert_eq!((violation.pointer.as_str(), violation.rule), ("/region", Rule::Unknown));
        assert!(unknown.detail().contains("us-east-1"), "{unknown:?}");
        let alone = choose("eu-west-1", &candidates[..1]).unwrap_err();
        assert!(alone.detail().ends_with("no region takes any at present"), "{alone:?}");
    }
}
