//! The deployment that is handed out and the guides that explain it, against what the program takes: a variable that nobody reads
//! says nothing, and one that is misspelt is a default that nobody chose.

use std::collections::{BTreeMap, BTreeSet};

use clap::{CommandFactory as _, Parser as _};
use runtime::telemetry;
use serde_json::Value;

use super::*;
use crate::rights::Rights;

const DEPLOYMENT: &str = include_str!("../../../../deploy/operator/deployment.yaml");
const MONITOR: &str = include_str!("../../../../deploy/operator/podmonitor.yaml");
const GUIDES: [&str; 3] = [
    include_str!("../../../../deploy/operator/README.md"),
    include_str!("../../../../deploy/operator/metrics.md"),
    include_str!("../../../../deploy/operator/snapshots.md"),
];

/// What a reader puts in place of the values marked CLUSTER.
const CHOSEN: [(&str, &str); 8] = [
    ("SLIPWAY_CLUSTER", "eu-west-1"),
    ("AWS_REGION", "eu-west-1"),
    ("SLIPWAY_HOSTED_ZONE_ID", "Z1"),
    ("SLIPWAY_DNS_SUFFIX", "eu.example.com"),
    ("SLIPWAY_VPC_ID", "vpc-1"),
    ("SLIPWAY_ZONES", "eu-west-1a=subnet-0a1b,eu-west-1b=subnet-2c3d"),
    ("SLIPWAY_NODE_IMAGE", "ami-1"),
    ("SLIPWAY_CLUSTER_CIDRS", "10.0.0.0/8,100.64.0.0/10"),
];

/// Flags that a guide names by themselves and that are not the program's own: clap's, kubectl's, and one of `slipway databases diff`.
const OF_OTHERS: [&str; 4] = ["--cascade=orphan", "--delete-emptydir-data", "--help", "--overwrite"];

/// The Deployment, or what guards and scrapes its pods, by its kind.
fn object(kind: &str) -> Value {
    let read = |file| -> Vec<Value> { serde_saphyr::from_multiple(file).unwrap() };
    let mut all = [DEPLOYMENT, MONITOR].into_iter().flat_map(read);
    all.find(|object| object["kind"] == kind).unwrap()
}

fn container() -> Value {
    object("Deployment")["spec"]["template"]["spec"]["containers"][0].take()
}

/// The variables that the program reads, by the flag that says the same.
fn known() -> BTreeMap<String, String> {
    let command = Args::command();
    let named = command.get_arguments().filter_map(|argument| {
        let variable = argument.get_env()?.to_str()?.to_owned();
        Some((variable, argument.get_long()?.to_owned()))
    });
    named.collect()
}

/// What the deployment starts, with each variable as its flag: the environment of whoever runs this says nothing then.
fn started() -> Args {
    let (container, known) = (container(), known());
    assert!(container.get("command").is_none(), "the image says which program it is");
    let mut arguments = vec!["slipway-operator".to_owned()];
    for argument in container["args"].as_array().into_iter().flatten() {
        arguments.push(argument.as_str().unwrap().to_owned());
    }
    for variable in container["env"].as_array().unwrap() {
        let (name, value) = (variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap());
        let flag = known.get(name).unwrap_or_else(|| panic!("no variable of the program is named {name}"));
        let chosen = CHOSEN.iter().find(|(chosen, _)| *chosen == name);
        assert_eq!(value == "CLUSTER", chosen.is_some(), "{name} is either marked or not to be changed");
        arguments.push(format!("--{flag}={}", chosen.map_or(value, |(_, value)| *value)));
    }
    Args::try_parse_from(arguments).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_program_starts_with_what_the_deployment_says_and_with_nothing_else() {
    let args = started();
    let settings = args.settings();
    assert_eq!((settings.cluster.as_str(), settings.vpc.as_str()), ("eu-west-1", "vpc-1"));
    assert_eq!(settings.zones.get("eu-west-1b").map(String::as_str), Some("subnet-2c3d"));
    assert_eq!(settings.neighbours.cluster_cidrs, ["10.0.0.0/8", "100.64.0.0/10"]);
    assert_eq!(args.scope(), Scope::All);
    assert!(matches!(args.telemetry.log_format, Some(telemetry::LogFormat::Json)));
}

#[test]
fn the_lease_lies_where_the_operator_does() {
    let deployment = object("Deployment");
    assert_eq!(deployment["metadata"]["namespace"], started().lease_namespace);
    assert_eq!(deployment["spec"]["template"]["spec"]["serviceAccountName"], resources::names::OPERATOR);
}

/// A line of the deployment that says nothing before its `#` is taken out, as the guide has it done.
#[test]
fn the_image_can_be_pulled_with_the_secret_that_the_guide_makes() {
    let line = "imagePullSecrets: [{name: registry}]";
    let asked = DEPLOYMENT.replace(&format!("# {line}"), line);
    let objects: Vec<Value> = serde_saphyr::from_multiple(&asked).unwrap();
    let secrets = &objects[0]["spec"]["template"]["spec"]["imagePullSecrets"];
    assert_eq!(secrets, &serde_json::json!([{ "name": "registry" }]));
    let namespace = objects[0]["metadata"]["namespace"].as_str().unwrap();
    let command = format!("kubectl -n {namespace} create secret docker-registry registry ");
    assert!(GUIDES[0].contains(&command), "{command}");
    assert_eq!(object("Deployment")["spec"]["template"]["spec"].get("imagePullSecrets"), None);
}

#[test]
fn probes_ask_where_the_program_listens() {
    let container = container();
    let port = &container["ports"][0];
    assert_eq!(port["containerPort"], started().ops.ops_listen.port());
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        let asks = &container[probe]["httpGet"];
        assert_eq!((&asks["path"], &asks["port"]), (&Value::from(path), &port["name"]), "{probe}");
    }
}

#[test]
fn whatever_selects_the_pods_of_the_deployment_finds_them_and_lies_beside_it() {
    let deployment = object("Deployment");
    let pod = &deployment["spec"]["template"];
    let mut selectors = vec![deployment["spec"]["selector"].clone()];
    let apart = pod["spec"]["topologySpreadConstraints"].as_array().unwrap();
    selectors.extend(apart.iter().map(|constraint| constraint["labelSelector"].clone()));
    for (kind, field) in
        [("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector"), ("PodMonitor", "selector")]
    {
        let object = object(kind);
        assert_eq!(object["metadata"]["namespace"], deployment["metadata"]["namespace"], "{kind}");
        selectors.push(object["spec"][field].clone());
    }
    assert_eq!(selectors.len(), 6, "{selectors:?}");
    for (key, value) in selectors.iter().flat_map(|selector| selector["matchLabels"].as_object().unwrap()) {
        assert_eq!(&pod["metadata"]["labels"][key], value, "{key}");
    }
}

#[test]
fn who_scrapes_databases_may_scrape_the_operator_and_nobody_else_may() {
    let (policy, monitor) = (object("NetworkPolicy"), object("PodMonitor"));
    let container = container();
    let port = &container["ports"][0]["name"];
    let namespaces = started().settings().neighbours.scraper_namespaces;
    let from = namespaces.iter().map(|namespace| {
        let labels = serde_json::json!({ "kubernetes.io/metadata.name": namespace });
        serde_json::json!({ "namespaceSelector": { "matchLabels": labels } })
    });
    let expected = serde_json::json!([{ "ports": [{ "port": port }], "from": from.collect::<Vec<_>>() }]);
    assert_eq!(policy["spec"]["ingress"], expected);
    assert_eq!(policy["spec"]["policyTypes"], serde_json::json!(["Ingress"]));
    assert_eq!(&monitor["spec"]["podMetricsEndpoints"][0]["port"], port);
}

/// A namespace may ask for that (`pod-security.kubernetes.io/enforce: restricted`).
#[test]
fn the_pod_meets_the_restricted_standard() {
    let (deployment, container) = (object("Deployment"), container());
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let own = &container["securityContext"];
    assert_eq!(own["allowPrivilegeEscalation"], false);
    assert_eq!(own["readOnlyRootFilesystem"], true);
    assert_eq!(own["capabilities"], serde_json::json!({ "drop": ["ALL"] }));
    for shared in ["hostNetwork", "hostPID", "hostIPC", "volumes"] {
        assert!(pod.get(shared).is_none(), "{shared}");
    }
}

#[test]
fn every_variable_and_flag_of_the_guides_is_one_of_the_program() {
    let known = known();
    let rights = Rights::command();
    let of_rights = rights.get_arguments().filter_map(|argument| Some(argument.get_long()?.to_owned()));
    let flags: BTreeSet<String> =
        known.values().cloned().chain(of_rights).map(|flag| format!("--{flag}")).collect();
    let mut found = BTreeSet::new();
    for guide in GUIDES {
        let words = guide.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        found.extend(words.filter(|word| word.starts_with("SLIPWAY_")));
        let quoted =
            guide.split('`').skip(1).step_by(2).filter(|text| text.starts_with("--") && !text.contains(' '));
        for flag in quoted {
            assert!(flags.contains(flag) || OF_OTHERS.contains(&flag), "the program takes no {flag}");
        }
    }
    assert!(found.len() > 10, "{found:?}");
    let unknown: Vec<_> = found.into_iter().filter(|variable| !known.contains_key(*variable)).collect();
    assert_eq!(unknown, Vec::<&str>::new(), "nobody reads what a guide says");
}

#[test]
fn the_defaults_that_the_guide_tells_are_the_programs() {
    let command = Args::command();
    let length = |text: &str| text.parse::<jiff::SignedDuration>().ok();
    let mut told_of = BTreeSet::new();
    for row in GUIDES[0].lines().filter(|line| line.starts_with("| `SLIPWAY_")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [variable, _, told] = cells[..] else { continue };
        let [variable, told] = [variable, told].map(|cell| cell.trim_matches('`'));
        let is_it = |argument: &&clap::Arg| argument.get_env().is_some_and(|name| name == variable);
        let argument =
            command.get_arguments().find(is_it).unwrap_or_else(|| panic!("{variable} is no variable"));
        let [default] = argument.get_default_values() else { continue };
        let default = default.to_str().unwrap();
        let is_length = length(told).is_some() && length(told) == length(default);
        assert!(is_length || told == default, "{variable} is {default}, and not {told}");
        told_of.insert(variable);
    }
    let with_default = ["SCRAPER_NAMESPACES", "INGRESS_NAMESPACES", "QUESTDB_IMAGE", "RESYNC", "ZONE_PERIOD"];
    let with_default = with_default.into_iter().chain(["WATCH_TIMEOUT", "CONCURRENCY"]);
    let expected: BTreeSet<String> = with_default.map(|name| format!("SLIPWAY_{name}")).collect();
    assert_eq!(told_of.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), expected);
}
