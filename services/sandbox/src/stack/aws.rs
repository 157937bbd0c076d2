//! The AWS endpoint as a program, and what it holds of each region.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::{Blueprint, Check, Network, Program};

/// The part of a stack's /20 that each region gets. The order is fixed, so addresses do not move.
const REGIONS: [&str; 4] = ["eu-west-1", "us-east-1", "eu-central-1", "ap-south-1"];

/// What is otherwise where many tests at once are one account: each is to meet AWS's limits for an account no sooner than it would
/// alone, machines that ended are not looked through by all for an hour, and what one test asks for is in the journal for as long.
const FOR_MANY: [&str; 3] = ["throttle_factor=5", "terminated_visible_s=300", "journal_length=20000"];

/// What must be known of a region before an operator can work in it; what `bootstrap` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionFacts {
    /// Name of the region.
    #[serde(default)]
    pub region: String,
    /// Its network.
    pub vpc_id: String,
    /// The image that nodes start from.
    pub node_image: String,
    /// Where DNS records of databases go.
    pub hosted_zone_id: String,
    /// Subnet of each zone.
    pub zones: BTreeMap<String, String>,
}

impl RegionFacts {
    #[cfg(test)]
    pub(super) fn sample(region: &str) -> Self {
        Self {
            region: region.to_owned(),
            vpc_id: "vpc-1".to_owned(),
            node_image: "ami-1".to_owned(),
            hosted_zone_id: "Z1".to_owned(),
            zones: [("a", "subnet-1"), ("b", "subnet-2")]
                .map(|(zone, subnet)| (format!("{region}{zone}"), subnet.to_owned()))
                .into(),
        }
    }
}

/// The endpoint.
pub(super) fn endpoint(blueprint: &Blueprint<'_>) -> Program {
    let layout = blueprint.layout;
    let port = blueprint.identity.ports.of("aws");
    let state = layout.data().join("aws").join("state");
    let mut command = vec![
        blueprint.tools.aws_python.display().to_string(),
        "-m".to_owned(),
        "slipway_aws".to_owned(),
        "serve".to_owned(),
        "--host=127.0.0.1".to_owned(),
        format!("--port={port}"),
    ];
    if blueprint.options.plain_aws {
        command.push("--plain".to_owned());
    } else {
        command.push(format!("--disks={}", layout.all_volumes()));
        command.push(format!("--snapshots={}", layout.snapshots().display()));
        if blueprint.options.is_for_many_tests() {
            // Nobody ends it, and every change would wait until all that there is was written.
            command.extend(FOR_MANY.map(|setting| format!("--setting={setting}")));
        } else {
            command.push(format!("--state={}", state.display()));
        }
    }
    Program::new("aws", command, layout.state())
        .env(&[("PYTHONPATH", sources(blueprint)), ("PYTHONDONTWRITEBYTECODE", "1".to_owned())])
        .ready(Check::Http { port, path: "/_control/health".to_owned() })
}

/// The command that makes sure that a region is ready and prints its facts.
pub(crate) fn bootstrap_command(blueprint: &Blueprint<'_>, region: &str) -> Vec<String> {
    let identity = blueprint.identity;
    vec![
        blueprint.tools.aws_python.display().to_string(),
        "-m".to_owned(),
        "slipway_aws".to_owned(),
        "bootstrap".to_owned(),
        format!("--endpoint={}", url(blueprint)),
        format!("--region={region}"),
        format!("--stack={}", identity.id),
        format!("--cidr={}", region_network(identity.network, region)),
        format!("--dns-suffix={}", dns_suffix(region)),
    ]
}

/// Folder of the endpoint's sources, for `PYTHONPATH`.
pub(crate) fn sources(blueprint: &Blueprint<'_>) -> String {
    blueprint.layout.checkout().join("services/sandbox/servers/aws").display().to_string()
}

/// Where AWS clients find the endpoint.
pub(super) fn url(blueprint: &Blueprint<'_>) -> String {
    format!("http://127.0.0.1:{}", blueprint.identity.ports.of("aws"))
}

/// Where faults are ordered and machines' ailments are seen.
pub(super) fn control_url(blueprint: &Blueprint<'_>) -> String {
    format!("{}/_control", url(blueprint))
}

/// Under which name databases of a region are found.
pub(crate) fn dns_suffix(region: &str) -> String {
    format!("{region}.db.slipway.test")
}

/// A quarter of the stack's network.
fn region_network(network: Network, region: &str) -> String {
    let slot = REGIONS.iter().position(|name| *name == region).unwrap_or(REGIONS.len() - 1);
    let [first, second, third, _] = network.first().octets();
    let quarter = u8::try_from(slot * 4).unwrap_or_default();
    format!("{}/22", Ipv4Addr::new(first, second, third + quarter, 0))
}

#[cfg(test)]
mod tests {
    use super::super::tests::with_blueprint;
    use super::*;
    use crate::stack::Options;

    #[test]
    fn regions_share_the_network_without_overlap() {
        let network = Network { index: 15 };
        for (region, expect) in [
            ("eu-west-1", "10.250.240.0/22"),
            ("us-east-1", "10.250.244.0/22"),
            ("eu-central-1", "10.250.248.0/22"),
        ] {
            assert_eq!(region_network(network, region), expect);
        }
    }

    #[test]
    fn plain_moto_keeps_no_state() {
        for (plain_aws, flag) in [(true, "--plain"), (false, "--state=/checkout/.slipway/data/aws/state")] {
            let options = Options { plain_aws, ..Options::for_people() };
            with_blueprint(&options, |blueprint| {
                assert_eq!(endpoint(blueprint).command.last().map(String::as_str), Some(flag));
            });
        }
    }

    #[test]
    fn what_many_tests_share_keeps_no_state_and_has_room_for_all_of_them() {
        let arguments = |options: &Options| {
            let mut command = Vec::new();
            with_blueprint(options, |blueprint| command = endpoint(blueprint).command);
            command
        };
        let is_of = |argument: &String, flag: &str| argument.starts_with(flag);
        let shared = arguments(&Options::for_integration());
        assert!(!shared.iter().any(|argument| is_of(argument, "--state")), "{shared:?}");
        assert_eq!(shared.iter().filter(|argument| is_of(argument, "--setting=")).count(), FOR_MANY.len());
        let only_servers = Options { slipway: false, ..Options::for_people() };
        for options in [Options::for_people(), Options::for_system(), only_servers] {
            let usual = arguments(&options);
            assert!(usual.iter().any(|argument| is_of(argument, "--state=")), "{usual:?}");
            assert!(!usual.iter().any(|argument| is_of(argument, "--setting")), "{usual:?}");
        }
    }

    #[test]
    fn what_bootstrap_prints_is_understood() {
        let text = r#"{"vpc_id": "vpc-1", "node_image": "ami-1", "hosted_zone_id": "Z1", "zones": {"eu-west-1a": "subnet-1"}}"#;
        let facts: RegionFacts = serde_json::from_str(text).expect("the form of the endpoint's own answer");
        assert_eq!(facts.zones["eu-west-1a"], "subnet-1");
    }
}
