//! Clusters as rows.

use jiff::Timestamp;
use wire::http::Cluster;

use super::text::{age, table};

/// Clusters, one a line.
pub fn list(clusters: &[Cluster], now: Timestamp, wide: bool) -> String {
    let mut header = vec!["ID", "REGION", "STATE", "ZONES", "DATABASES", "AGE"];
    if wide {
        header.extend(["ACCOUNT", "HOSTED-ZONE", "DNS-SUFFIX", "NAMESPACE", "CREDENTIALS", "SUBNETS"]);
    }
    table(&header, clusters.iter().map(|cluster| row(cluster, now, wide)).collect())
}

fn row(cluster: &Cluster, now: Timestamp, wide: bool) -> Vec<String> {
    let of = &cluster.registration;
    let zones: Vec<&str> = of.zones.keys().map(String::as_str).collect();
    let mut row = vec![
        cluster.id.clone(),
        of.region.clone(),
        of.state.clone().unwrap_or_default(),
        zones.join(","),
        cluster.databases.to_string(),
        age(cluster.created_at, now),
    ];
    if wide {
        let subnets: Vec<String> = of.zones.iter().map(|(zone, subnet)| format!("{zone}={subnet}")).collect();
        row.extend([
            of.account.clone(),
            of.hosted_zone_id.clone(),
            of.dns_suffix.clone(),
            of.namespace_template.clone(),
            of.credentials.clone(),
            subnets.join(","),
        ]);
    }
    row
}

/// What other commands take for a cluster.
pub fn name(cluster: &Cluster) -> String {
    format!("clusters/{}", cluster.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn as_tables() {
        let clusters = [fixture::cluster()];
        let text =
            [list(&clusters, fixture::now(), false), list(&clusters, fixture::now(), true)].join("\n\n");
        insta::assert_snapshot!(text);
    }
}
