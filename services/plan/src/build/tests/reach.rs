//! The objects by which a database is reached within its cluster, as recorded.

use cloud::{IngressRule, PeerRange};
use resources::{
    EgressSpec, IngressSpec, MonitorKind, MonitorSpec, NetworkSpec, RouteSpec, ServiceSpec, ServiceType,
    TlsSpec,
};
use serde_json::json;

use crate::build::{
    disruption_budget, headless, monitor, network_policy, routes, security_group_rules, service,
};
use crate::fixture::{resource, settings, subject, validated};
use crate::{Kind, Validated};

fn wishing(change: impl FnOnce(&mut NetworkSpec)) -> Validated {
    let mut resource = resource(1);
    change(&mut resource.spec.network);
    validated(&resource)
}

fn route(entry_point: &str) -> RouteSpec {
    RouteSpec { entry_points: vec![entry_point.to_owned()] }
}

#[test]
fn the_manifests_are_as_recorded() {
    let annotations = |key: &str| [(key.to_owned(), "1".to_owned())].into();
    let wish = wishing(|network| {
        network.allowed_namespaces = vec!["web".to_owned(), "apps".to_owned(), "web".to_owned()];
        network.service = Some(ServiceSpec {
            service_type: ServiceType::LoadBalancer,
            annotations: annotations("example.com/a"),
            headless_annotations: annotations("example.com/b"),
        });
        network.ingress = Some(IngressSpec::default());
    });
    let mut cluster = settings();
    cluster.neighbours.operator_cidrs = vec!["10.9.9.9/32".to_owned()];
    insta::assert_yaml_snapshot!("load_balancer", service(&wish).body);
    insta::assert_yaml_snapshot!("headless_with_annotations", headless(&wish).body);
    insta::assert_yaml_snapshot!("network_policy", network_policy(&wish, &cluster).body);
    insta::assert_yaml_snapshot!("disruption_budget", disruption_budget(&subject()).body);
}

#[test]
fn who_is_called_is_named_and_names_are_resolved_for_that() {
    let egress = |egress: Option<EgressSpec>| {
        let wish = wishing(|network| network.egress = egress);
        network_policy(&wish, &settings()).body["spec"]["egress"].clone()
    };
    assert_eq!(egress(None), json!([]));
    let names = json!({ "ports": [{ "port": 53, "protocol": "UDP" }, { "port": 53, "protocol": "TCP" }] });
    assert_eq!(egress(Some(EgressSpec::default())), json!([names]), "and not everybody");
    let texts = |texts: &[&str]| texts.iter().copied().map(str::to_owned).collect();
    let called = EgressSpec {
        cidrs: texts(&["10.8.0.0/16", "10.7.0.0/16", "10.8.0.0/16"]),
        namespaces: texts(&["logs"]),
    };
    let to = json!([
        { "ipBlock": { "cidr": "10.7.0.0/16" } },
        { "ipBlock": { "cidr": "10.8.0.0/16" } },
        { "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "logs" } } },
    ]);
    assert_eq!(egress(Some(called)), json!([names, { "to": to }]));
}

#[test]
fn policy_and_budget_leave_the_name_of_the_resource_to_its_users() {
    let mut resource = resource(1);
    resource.metadata.name = Some("a".repeat(52));
    let wish = validated(&resource);
    for manifest in [network_policy(&wish, &settings()), disruption_budget(&wish.subject)] {
        assert_ne!(manifest.name, wish.subject.name, "{}", manifest.kind.as_str());
        assert_eq!(manifest.body["metadata"]["name"], manifest.name);
        assert!(manifest.name.len() < 64, "{} is no DNS label", manifest.name);
    }
}

#[test]
fn monitors_and_routes_are_as_recorded() {
    let labels = [("release", "prometheus"), (resources::names::LABEL_DATABASE, "theirs")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let wish = |kind| MonitorSpec { kind, labels: labels.clone().into(), interval_seconds: Some(15) };
    let of_service = monitor(&subject(), &wish(MonitorKind::ServiceMonitor));
    insta::assert_yaml_snapshot!("service_monitor", of_service.body);
    insta::assert_yaml_snapshot!("pod_monitor", monitor(&subject(), &wish(MonitorKind::PodMonitor)).body);
    let wish = IngressSpec {
        host: None,
        http: Some(route("web")),
        pg: Some(route("postgres")),
        ilp: Some(route("questdb")),
        tls: Some(TlsSpec { secret_name: Some("certificate".to_owned()), cert_resolver: None }),
    };
    let with_key = routes(&subject(), "trades.example.com", &wish, true);
    let routes = routes(&subject(), "trades.example.com", &wish, false);
    let bodies: Vec<_> = routes.iter().map(|route| &route.body).collect();
    insta::assert_yaml_snapshot!("routes", bodies);
    let kinds: Vec<_> = routes.iter().map(|route| route.kind).collect();
    assert_eq!(
        kinds,
        [Kind::IngressRoute, Kind::IngressRouteTcp],
        "none leads to a port where nobody listens"
    );
    assert_eq!(with_key.len(), 3);
    let spec = &with_key[2].body["spec"];
    assert_eq!(spec["routes"][0]["services"][0]["port"], 9009, "{spec}");
    assert_eq!(spec["entryPoints"], serde_json::json!(["questdb"]));
}

#[test]
fn a_rule_without_anybody_in_it_is_left_out() {
    let mut cluster = settings();
    cluster.neighbours.scraper_namespaces.clear();
    let wish = wishing(|network| network.allowed_cidrs.clear());
    let body = network_policy(&wish, &cluster).body;
    let rules = body["spec"]["ingress"].as_array().unwrap();
    assert!(
        rules.iter().all(|rule| rule["from"].as_array().is_some_and(|from| !from.is_empty())),
        "{rules:?}"
    );
    assert_eq!(rules.len(), 1, "the operator alone: {rules:?}");
}

/// Kubernetes 1.36 refuses any other.
#[test]
fn no_range_has_bits_behind_its_prefix() {
    let texts = |texts: &[&str]| texts.iter().copied().map(str::to_owned).collect::<Vec<_>>();
    let wish = wishing(|network| {
        network.allowed_cidrs = texts(&["10.9.8.7/16", "10.9.0.1/16", "2001:db8::1/32"]);
        network.egress = Some(EgressSpec { cidrs: texts(&["10.8.1.1/16"]), ..EgressSpec::default() });
        network.service =
            Some(ServiceSpec { service_type: ServiceType::LoadBalancer, ..ServiceSpec::default() });
    });
    let mut cluster = settings();
    cluster.neighbours.operator_cidrs = texts(&["192.0.2.7/24"]);
    let policy = network_policy(&wish, &cluster).body.to_string();
    for (asked, written) in [
        ("10.9.8.7/16", "10.9.0.0/16"),
        ("10.9.0.1/16", "10.9.0.0/16"),
        ("2001:db8::1/32", "2001:db8::/32"),
        ("10.8.1.1/16", "10.8.0.0/16"),
        ("192.0.2.7/24", "192.0.2.0/24"),
    ] {
        assert!(!policy.contains(asked) && policy.contains(written), "{asked}: {policy}");
    }
    let ranges = service(&wish).body["spec"]["loadBalancerSourceRanges"].clone();
    assert_eq!(ranges, json!(["10.9.0.0/16", "2001:db8::/32"]));
}

#[test]
fn an_open_port_without_a_password_never_leaves_the_cluster() {
    let wish = wishing(|network| {
        network.service =
            Some(ServiceSpec { service_type: ServiceType::LoadBalancer, ..ServiceSpec::default() });
    });
    let ports = service(&wish).body["spec"]["ports"].clone();
    assert!(!ports.as_array().unwrap().iter().any(|port| port["name"] == "min"), "{ports}");
    let mut cluster = settings();
    let outside: Vec<u16> = security_group_rules(&wish, &cluster).iter().map(|rule| rule.from_port).collect();
    assert!(!outside.contains(&9003) && outside.contains(&9000), "{outside:?}");
    cluster.neighbours.cluster_cidrs = vec!["10.100.0.0/16".to_owned()];
    let inside: Vec<_> = security_group_rules(&wish, &cluster)
        .into_iter()
        .filter(|rule| rule.peer == PeerRange::Ipv4("10.100.0.0/16".to_owned()))
        .map(|rule| rule.from_port)
        .collect();
    assert_eq!(inside, [9000, 9003, 10250], "clients among the pods were not asked for");
    let wish = wishing(|network| network.allowed_namespaces = vec!["apps".to_owned()]);
    let rules = security_group_rules(&wish, &cluster);
    assert!(rules.contains(&IngressRule::tcp(8812, "10.100.0.0/16")), "{rules:?}");
}
