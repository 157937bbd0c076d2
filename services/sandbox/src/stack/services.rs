//! The programs of Slipway and the node agents, with the environment each is configured by.

use std::time::UNIX_EPOCH;

use super::{Blueprint, Check, Cluster, Program, RegionFacts, aws, servers};
use crate::install::{OLDER_QUESTDB, QUESTDB};

/// Topics, by the names the programs know them by.
const TOPICS: [(&str, &str); 3] = [
    ("SLIPWAY_INSTRUCTIONS_TOPIC", "provisioning.instructions"),
    ("SLIPWAY_GOSSIP_TOPIC", "provisioning.gossip"),
    // Few partitions: a laptop's Kafka pays for each.
    ("SLIPWAY_TOPIC_PARTITIONS", "8"),
];

/// Every program of Slipway; those of a cluster only where its region's facts are known.
pub(super) fn programs(blueprint: &Blueprint<'_>, regions: &[RegionFacts]) -> Vec<Program> {
    let mut programs = vec![backend(blueprint), provisioner(blueprint)];
    for cluster in blueprint.options.full_clusters() {
        if let Some(facts) = regions.iter().find(|facts| facts.region == cluster.region) {
            programs.push(node_agent(blueprint, cluster));
            programs.push(operator(blueprint, cluster, facts));
        }
    }
    programs
}

/// Environment by which the backend's commands (`migrate`, `topics`, `tokens`) and its service find their servers.
pub(crate) fn backend_environment(blueprint: &Blueprint<'_>) -> Vec<(&'static str, String)> {
    let mut environment = vec![
        ("DATABASE_URL", servers::database_url(blueprint.identity)),
        ("KAFKA_BOOTSTRAP", format!("127.0.0.1:{}", blueprint.identity.ports.of("kafka"))),
    ];
    environment.extend(TOPICS.map(|(name, value)| (name, value.to_owned())));
    environment
}

fn backend(blueprint: &Blueprint<'_>) -> Program {
    let api = blueprint.identity.ports.of("api");
    program(blueprint, "backend", "slipway-backend", "backend-ops")
        .after(&["postgres", "kafka"])
        .env(&backend_environment(blueprint))
        .env(&[
            ("SLIPWAY_API_LISTEN", format!("127.0.0.1:{api}")),
            ("SLIPWAY_ROLES", "api,relay,sink".to_owned()),
        ])
        .with_argument("serve")
}

fn provisioner(blueprint: &Blueprint<'_>) -> Program {
    program(blueprint, "provisioner", "slipway-provisioner", "provisioner-ops")
        .after(&["postgres", "kafka"])
        .env(&backend_environment(blueprint))
        .env(&[
            ("SLIPWAY_CREDENTIALS_DIR", blueprint.layout.credentials().display().to_string()),
            ("SLIPWAY_CONSUMER_GROUP", "slipway-provisioner".to_owned()),
            // Both Kafka and the group are new in a new stack.
            ("SLIPWAY_OFFSET_RESET", "earliest".to_owned()),
        ])
}

fn operator(blueprint: &Blueprint<'_>, cluster: &Cluster, facts: &RegionFacts) -> Program {
    let name = &cluster.name;
    let kubeconfig = blueprint.layout.kubeconfig(name, "operator").display().to_string();
    let zones: Vec<String> = facts.zones.iter().map(|(zone, subnet)| format!("{zone}={subnet}")).collect();
    program(blueprint, &format!("{name}-operator"), "slipway-operator", &format!("{name}-operator-ops"))
        .after(&[&format!("{name}-apiserver"), "aws"])
        .env(&aws_environment(blueprint, cluster))
        .env(&[
            ("KUBECONFIG", kubeconfig),
            ("SLIPWAY_CLUSTER", name.clone()),
            ("SLIPWAY_HOSTED_ZONE_ID", facts.hosted_zone_id.clone()),
            ("SLIPWAY_DNS_SUFFIX", aws::dns_suffix(&cluster.region)),
            ("SLIPWAY_VPC_ID", facts.vpc_id.clone()),
            ("SLIPWAY_ZONES", zones.join(",")),
            ("SLIPWAY_NODE_IMAGE", facts.node_image.clone()),
            ("SLIPWAY_LEASE_NAMESPACE", "slipway-system".to_owned()),
            // The older one takes no passwords from files: it does not start, unless the entry point of its image reads them.
            ("SLIPWAY_QUESTDB_VERSIONS", format!("{OLDER_QUESTDB},{OLDER_QUESTDB}-files,{QUESTDB}")),
            // The AWS endpoint shows what is new within a fraction of a second.
            ("SLIPWAY_EC2_LAG", "2s".to_owned()),
            // What an operator sends that ends is there at once.
            ("SLIPWAY_QUESTDB_LAG", "2s".to_owned()),
        ])
}

fn node_agent(blueprint: &Blueprint<'_>, cluster: &Cluster) -> Program {
    let name = &cluster.name;
    let kubeconfig = blueprint.layout.kubeconfig(name, "node-agent").display().to_string();
    let network = if nix::unistd::Uid::effective().is_root() { "namespace" } else { "loopback" };
    let mut program =
        program(blueprint, &format!("{name}-nodes"), "slipway-node-agent", &format!("{name}-nodes-ops"))
            .after(&[&format!("{name}-apiserver"), "aws"])
            .env(&aws_environment(blueprint, cluster))
            .env(&[
                ("KUBECONFIG", kubeconfig),
                ("SLIPWAY_CLUSTER", name.clone()),
                ("SLIPWAY_AWS_CONTROL_URL", aws::control_url(blueprint)),
                ("SLIPWAY_AGENT_NODE_NETWORK", blueprint.identity.network.cidr()),
                ("SLIPWAY_AGENT_MODE", "process".to_owned()),
                ("SLIPWAY_AGENT_NETWORK", network.to_owned()),
                ("SLIPWAY_AGENT_DATA_DIR", blueprint.layout.nodes(name).display().to_string()),
                ("SLIPWAY_AGENT_SNAPSHOTS_DIR", blueprint.layout.snapshots().display().to_string()),
                ("SLIPWAY_QUESTDB_LIB", blueprint.tools.questdb_lib.display().to_string()),
                ("SLIPWAY_JAVA", blueprint.tools.java.display().to_string()),
            ]);
    // The databases on its nodes outlive it; `cleanup` ends them.
    program.stop.grace = 30;
    program
}

fn aws_environment(blueprint: &Blueprint<'_>, cluster: &Cluster) -> [(&'static str, String); 4] {
    [
        ("AWS_REGION", cluster.region.clone()),
        ("AWS_ENDPOINT_URL", aws::url(blueprint)),
        ("AWS_ACCESS_KEY_ID", "sandbox".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "sandbox".to_owned()),
    ]
}

/// A program built from the workspace, with what all of them share.
fn program(blueprint: &Blueprint<'_>, name: &str, binary: &str, ops: &str) -> Program {
    let path = blueprint.tools.programs.join(binary);
    let port = blueprint.identity.ports.of(ops);
    let mut program = Program::new(name, vec![path.display().to_string()], blueprint.layout.state())
        .ready(Check::Http { port, path: "/readyz".to_owned() })
        .env(&[
            ("SLIPWAY_OPS_LISTEN", format!("127.0.0.1:{port}")),
            ("SLIPWAY_LOG_FORMAT", "json".to_owned()),
            (super::network::MARKER, blueprint.identity.network.cidr()),
        ]);
    program.build = fingerprint(&path);
    program.stop.grace = 20;
    program
}

/// Tells one build of a program from another without reading it.
fn fingerprint(path: &std::path::Path) -> String {
    let Ok(metadata) = std::fs::metadata(path) else { return String::new() };
    let modified =
        metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    format!("{}-{}", metadata.len(), modified.as_nanos())
}

impl Program {
    fn with_argument(mut self, argument: &str) -> Self {
        self.command.push(argument.to_owned());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::with_blueprint;
    use super::*;
    use crate::stack::Options;

    fn check(options: &Options, name: &str, expect: &[(&str, &str)]) {
        with_blueprint(options, |blueprint| {
            let regions: Vec<RegionFacts> =
                options.clusters.iter().map(|cluster| RegionFacts::sample(&cluster.region)).collect();
            let programs = programs(blueprint, &regions);
            let program = programs.iter().find(|program| program.name == name).expect("it is there");
            for (variable, value) in expect {
                assert_eq!(
                    program.env.get(*variable).map(String::as_str),
                    Some(*value),
                    "{name}: {variable}"
                );
            }
        });
    }

    #[test]
    fn each_program_is_told_what_it_needs() {
        let options = Options::for_people();
        check(&options, "backend", &[("SLIPWAY_ROLES", "api,relay,sink"), ("SLIPWAY_TOPIC_PARTITIONS", "8")]);
        check(&options, "provisioner", &[("SLIPWAY_CREDENTIALS_DIR", "/checkout/.slipway/credentials")]);
        check(
            &options,
            "us-east-1-operator",
            &[
                ("KUBECONFIG", "/checkout/.slipway/clusters/us-east-1.operator.kubeconfig"),
                ("SLIPWAY_ZONES", "us-east-1a=subnet-1,us-east-1b=subnet-2"),
                ("SLIPWAY_DNS_SUFFIX", "us-east-1.db.slipway.test"),
                ("SLIPWAY_QUESTDB_VERSIONS", "9.3.2,9.3.2-files,9.3.4"),
                ("AWS_REGION", "us-east-1"),
            ],
        );
        check(
            &options,
            "eu-west-1-nodes",
            &[
                ("SLIPWAY_AGENT_MODE", "process"),
                ("SLIPWAY_AGENT_SNAPSHOTS_DIR", "/checkout/.slipway/data/aws/snapshots"),
                ("SLIPWAY_STACK_NETWORK", "10.250.16.0/20"),
            ],
        );
    }

    #[test]
    fn a_cluster_without_facts_gets_no_programs_yet() {
        with_blueprint(&Options::for_people(), |blueprint| {
            let names: Vec<String> =
                programs(blueprint, &[]).into_iter().map(|program| program.name).collect();
            assert_eq!(names, ["backend", "provisioner"]);
        });
    }
}
