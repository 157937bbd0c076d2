//! What the program is told of who else lives in its cluster and reaches the databases.

use plan::Neighbours;
use runtime::Trimmed;

use crate::scope;

/// Who else reaches the databases, beside those whom a resource lets in.
#[derive(Debug, Clone, clap::Args)]
pub struct NeighbourArgs {
    /// Addresses of this operator where it is not a pod in the namespace of its Lease
    #[arg(long, env = "SLIPWAY_OPERATOR_CIDRS", value_delimiter = ',', value_parser = Trimmed(cidr), value_name = "CIDR")]
    pub operator_cidrs: Vec<String>,
    /// Namespaces whose pods read the metrics of databases
    #[arg(
        long,
        env = "SLIPWAY_SCRAPER_NAMESPACES",
        value_delimiter = ',',
        value_parser = Trimmed(scope::name_or_none),
        default_value = "monitoring",
        value_name = "NAMESPACE"
    )]
    pub scraper_namespaces: Vec<String>,
    /// Namespaces of Traefik's pods
    #[arg(
        long,
        env = "SLIPWAY_INGRESS_NAMESPACES",
        value_delimiter = ',',
        value_parser = Trimmed(scope::name_or_none),
        default_value = "traefik",
        value_name = "NAMESPACE"
    )]
    pub ingress_namespaces: Vec<String>,
    /// Suffix of the hosts of Traefik's routes, below which each namespace has names of its own; the suffix of the
    /// databases' names when absent
    #[arg(long, env = "SLIPWAY_INGRESS_SUFFIX", value_name = "DOMAIN")]
    pub ingress_suffix: Option<String>,
    /// Addresses of the cluster's pods and of its control plane: the firewall of each machine lets them in
    #[arg(long, env = "SLIPWAY_CLUSTER_CIDRS", value_delimiter = ',', value_parser = Trimmed(cidr), value_name = "CIDR")]
    pub cluster_cidrs: Vec<String>,
}

impl NeighbourArgs {
    /// The part that decisions rest on.
    pub(crate) fn settings(&self, operator_namespace: &str, dns_suffix: &str) -> Neighbours {
        let named = |names: &[String]| names.iter().filter(|name| !name.is_empty()).cloned().collect();
        Neighbours {
            operator_namespace: operator_namespace.to_owned(),
            operator_cidrs: self.operator_cidrs.clone(),
            scraper_namespaces: named(&self.scraper_namespaces),
            ingress_namespaces: named(&self.ingress_namespaces),
            ingress_suffix: self.ingress_suffix.clone().unwrap_or_else(|| dns_suffix.to_owned()),
            cluster_cidrs: self.cluster_cidrs.clone(),
        }
    }
}

fn cidr(text: &str) -> Result<String, String> {
    if plan::is_cidr(text) {
        Ok(text.to_owned())
    } else {
        Err("must be a CIDR such as 10.0.0.0/8".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        neighbours: NeighbourArgs,
    }

    fn parse(arguments: &[&str]) -> Result<Neighbours, clap::Error> {
        let parsed = Alone::try_parse_from(["operator"].iter().chain(arguments))?;
        Ok(parsed.neighbours.settings("slipway-system", "eu.example.com"))
    }

    #[test]
    fn what_is_not_said_has_a_default() {
        let neighbours = parse(&[]).unwrap();
        assert_eq!(neighbours.operator_namespace, "slipway-system");
        assert_eq!(
            (neighbours.scraper_namespaces, neighbours.ingress_namespaces),
            (vec!["monitoring".to_owned()], vec!["traefik".to_owned()])
        );
        assert_eq!(neighbours.ingress_suffix, "eu.example.com");
        let nobody = parse(&["--scraper-namespaces", ""]).unwrap();
        assert!(nobody.scraper_namespaces.is_empty(), "an empty text is nobody, never everybody");
    }

    #[test]
    fn addresses_and_names_are_checked() {
        let cidrs = parse(&["--cluster-cidrs", "10.0.0.0/8,fd00::/8"]).unwrap().cluster_cidrs;
        assert_eq!(cidrs, ["10.0.0.0/8", "fd00::/8"]);
        for (flag, value) in [
            ("--cluster-cidrs", "10.0.0.0"),
            ("--operator-cidrs", "10.0.0.0/33"),
            ("--scraper-namespaces", "monitoring metrics"),
            ("--ingress-namespaces", "Traefik"),
        ] {
            assert!(parse(&[flag, value]).is_err(), "{flag} {value}");
        }
    }
}
