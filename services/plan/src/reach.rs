//! How a database is reached within its cluster, as far as a wish says: checked, with what it leaves out filled in.

use std::collections::BTreeMap;

use domain::{Rule, Violation, Violations, reference_token};
use resources::render::sorted;
use resources::{
    EgressSpec, IngressSpec, MonitorKind, MonitorSpec, NetworkSpec, ServiceSpec, ServiceType, names,
};

use crate::{Kind, Settings, Subject};

/// Where the annotations of the Services are.
const SERVICE: &str = "/spec/network/service/";
/// By this a Service says whom its load balancer lets in.
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
/// The two names of one annotation, the former one first.
const TOPOLOGY: [&str; 2] =
    ["service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"];

/// How a database is reached within its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The Services.
    pub service: ServiceSpec,
    /// Namespaces whose pods may connect, sorted.
    pub namespaces: Vec<String>,
    /// The pod takes ports of its machine, to which the name leads.
    pub host_ports: bool,
    /// Nobody else may come in.
    pub isolated: bool,
    /// Whom the containers of the pod may call; nobody when absent. Sorted.
    pub egress: Option<EgressSpec>,
    /// A drain does not stop it.
    pub budgeted: bool,
    /// Routes of Traefik, with the host that they match.
    pub ingress: Option<(String, IngressSpec)>,
    /// How Prometheus' operator is told.
    pub monitor: Option<MonitorSpec>,
}

impl Reach {
    /// What a wish says.
    pub(crate) fn of(network: &NetworkSpec, subject: &Subject, settings: &Settings) -> Self {
        let egress = network.egress.as_ref().map(|egress| EgressSpec {
            cidrs: sorted(&egress.cidrs),
            namespaces: sorted(&egress.namespaces),
        });
        let ingress = network.ingress.clone();
        let ingress =
            ingress.map(|ingress| (host(&ingress, (&subject.namespace, &subject.name), settings), ingress));
        Self {
            service: network.service.clone().unwrap_or_default(),
            namespaces: sorted(&network.allowed_namespaces),
            egress,
            host_ports: network.host_ports.unwrap_or(true),
            isolated: network.network_policy.unwrap_or(true),
            budgeted: network.disruption_budget.unwrap_or(true),
            ingress,
            monitor: network.monitor.clone(),
        }
    }

    /// The kinds that it asks for beside Kubernetes' own, with the field that does.
    pub(crate) fn kinds(&self) -> BTreeMap<Kind, &'static str> {
        let mut kinds = BTreeMap::new();
        if let Some((_, ingress)) = &self.ingress {
            if ingress.http.is_some() {
                kinds.insert(Kind::IngressRoute, "spec.network.ingress.http");
            }
            if ingress.ilp.is_some() {
                kinds.insert(Kind::IngressRouteTcp, "spec.network.ingress.ilp");
            }
            if ingress.pg.is_some() {
                kinds.insert(Kind::IngressRouteTcp, "spec.network.ingress.pg");
            }
        }
        if let Some(monitor) = &self.monitor {
            let kind = match monitor.kind {
                MonitorKind::ServiceMonitor => Kind::ServiceMonitor,
                MonitorKind::PodMonitor => Kind::PodMonitor,
            };
            kinds.insert(kind, "spec.network.monitor");
        }
        kinds
    }
}

/// What the API server cannot know of a wish.
pub(crate) fn check(
    network: &NetworkSpec,
    subject: &Subject,
    settings: &Settings,
    violations: &mut Violations,
) {
    if let Some(service) = &network.service {
        let balanced = service.service_type == ServiceType::LoadBalancer;
        check_annotations("annotations", (&service.annotations, balanced), violations);
        check_annotations("headlessAnnotations", (&service.headless_annotations, false), violations);
    }
    if let Some(monitor) = &network.monitor {
        check_keys("/spec/network/monitor/labels", &monitor.labels, violations);
    }
    // A namespace has names of its own, so that nobody takes over what comes in for another.
    let suffix = suffix(&subject.namespace, settings);
    let host = network.ingress.as_ref().and_then(|ingress| ingress.host.as_deref());
    if let Some(host) = host.map(cloud::normalise_name)
        && !is_below(&host, &suffix)
    {
        let detail = format!("must be a name below {suffix}");
        violations.push(Violation::new("/spec/network/ingress/host", Rule::Format, detail));
    }
}

/// Annotations of a Service, be it `balanced`: with some the API server refuses it, so that no later word of the resource could be
/// written to it, for which the pod waits.
fn check_annotations(
    list: &str,
    (annotations, balanced): (&BTreeMap<String, String>, bool),
    violations: &mut Violations,
) {
    let pointer = format!("{SERVICE}{list}");
    check_keys(&pointer, annotations, violations);
    let mut refuse = |key: &str, detail: &str| {
        let pointer = format!("{pointer}/{}", reference_token(key));
        violations.push(Violation::new(pointer, Rule::Conflict, detail));
    };
    if !balanced && annotations.contains_key(SOURCE_RANGES) {
        refuse(SOURCE_RANGES, "the API server refuses it of a Service that has no load balancer");
    }
    let [former, present] = TOPOLOGY;
    let both = annotations.get(former).zip(annotations.get(present));
    if both.is_some_and(|(former, present)| former != present) {
        let detail =
            format!("must be the same as {former}: the API server refuses a Service in which they differ");
        refuse(present, &detail);
    }
}

/// Whether a pointer leads to an annotation with which the API server refuses a Service. Who has that since before it was a rule here is
/// told by each attempt to write the Service, and is looked after in all else.
pub(crate) fn refuses_service(pointer: &str) -> bool {
    let list_and_key = pointer.strip_prefix(SERVICE).and_then(|rest| rest.split_once('/'));
    let [_, present] = TOPOLOGY;
    let is_known = |key: &str| [SOURCE_RANGES, present].iter().any(|known| reference_token(known) == key);
    list_and_key.is_some_and(|(_, key)| is_known(key))
}

/// The host that the routes of a resource match.
pub(crate) fn host(ingress: &IngressSpec, (namespace, name): (&str, &str), settings: &Settings) -> String {
    let own = || format!("{name}.{}", suffix(namespace, settings));
    ingress.host.as_deref().map_or_else(own, cloud::normalise_name)
}

fn suffix(namespace: &str, settings: &Settings) -> String {
    format!("{namespace}.{}", cloud::normalise_name(&settings.neighbours.ingress_suffix))
}

/// Any number of labels below the suffix, of letters that cannot end the rule that they are written into.
fn is_below(name: &str, suffix: &str) -> bool {
    let Some(rest) = name.strip_suffix(suffix).and_then(|rest| rest.strip_suffix('.')) else { return false };
    rest.split('.').all(is_host_label)
}

/// Whether a text can be a label of the name of a host. A zone takes others, and whoever looks such a name up gets no answer.
pub(crate) fn is_host_label(label: &str) -> bool {
    label.len() <= 63 && is_label(label)
}

pub(crate) fn check_keys(pointer: &str, keys: &BTreeMap<String, String>, violations: &mut Violations) {
    for key in keys.keys() {
        let pointer = format!("{pointer}/{}", reference_token(key));
        let prefix = prefix_of(key);
        if prefix == names::GROUP || key == names::LABEL_MANAGED_BY {
            let detail = format!("keys below {} belong to the operator", names::GROUP);
            violations.push(Violation::new(&pointer, Rule::Conflict, detail));
        } else if !is_key(key) {
            let detail = "must be a key such as name or example.com/name";
            violations.push(Violation::new(&pointer, Rule::Format, detail));
        }
    }
}

/// What stands before the slash of a key: nothing in one without.
pub(crate) fn prefix_of(key: &str) -> &str {
    key.split_once('/').map_or("", |(prefix, _)| prefix)
}

/// Whether a text can be the key of a label, an annotation or a taint.
pub(crate) fn is_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    is_name(name) && prefix.is_none_or(is_domain)
}

/// Whether it can be one without a prefix, or the value of a label.
pub(crate) fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let good = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    name.len() <= 63 && end(bytes.first()) && end(bytes.last()) && bytes.iter().all(good)
}

/// Whether a text can be the prefix of a key, or the name of an object of most kinds.
pub(crate) fn is_domain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

/// Whether a text can be a label of a domain, however long it is.
fn is_label(label: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !label.is_empty() && label.bytes().all(good) && !label.starts_with('-') && !label.ends_with('-')
}
