//! The machine as EC2 is asked for it, and its firewall.

use std::collections::{BTreeMap, BTreeSet};

use cloud::{IngressRule, Launch, NewSecurityGroup, Owner, Protection, Role, SecurityGroupId, UserData};
use resources::names::{self, port};
use serde_json::json;

use super::ports::of_clients;
use super::range::canonical;
use crate::{Settings, Subject, Validated};

/// Value of the label by which the pod finds its machine: one machine of one database.
pub fn node_value(subject: &Subject, generation: u64) -> String {
    names::node(subject.short(), generation)
}

/// Labels that the machine may give itself.
pub fn node_labels(subject: &Subject) -> BTreeMap<&'static str, &str> {
    BTreeMap::from([
        (names::LABEL_DATABASE, subject.database.as_str()),
        (names::LABEL_NAME, subject.name.as_str()),
        (names::LABEL_NAMESPACE, subject.namespace.as_str()),
    ])
}

/// The name of the firewall. The id of the database makes it unique in the VPC, also beside namesakes of other clusters.
pub(crate) fn security_group_name(subject: &Subject) -> String {
    format!("questdb-{}", subject.database)
}

/// The firewall.
pub fn security_group(subject: &Subject, settings: &Settings) -> NewSecurityGroup {
    NewSecurityGroup {
        name: security_group_name(subject),
        vpc: settings.vpc.clone(),
        description: format!("QuestDB {}", subject.display()),
        tags: subject.owner(Role::SecurityGroup).tags().named(subject.display()),
    }
}

/// Who may come in, sorted.
pub fn security_group_rules(validated: &Validated, settings: &Settings) -> Vec<IngressRule> {
    let mut all = rules_by_weight(validated, settings);
    all.sort();
    all
}

/// The same, in the order in which they are let in where not all can be: first those without which the operator and the cluster could not
/// do their part, then range by range.
pub(crate) fn rules_by_weight(validated: &Validated, settings: &Settings) -> Vec<IngressRule> {
    let clients: Vec<u16> = of_clients(validated).into_iter().map(|(_, port)| port).collect();
    // The cluster itself: the operator's SQL, scrapers, and the control plane's way to logs and commands. Which of its
    // pods may connect beside those is for the NetworkPolicy to say.
    let mut cluster = vec![port::HTTP, port::MIN, port::KUBELET];
    if validated.reach.ingress.is_some() || !validated.reach.namespaces.is_empty() {
        cluster.extend(&clients);
    }
    let rules = |cidrs: &[String], ports: &[u16]| -> Vec<IngressRule> {
        let ranges = cidrs.iter().map(|cidr| canonical(cidr));
        ranges
            .flat_map(|range| {
                ports.iter().map(move |port| IngressRule::tcp(*port, &range)).collect::<Vec<_>>()
            })
            .collect()
    };
    let mut all = rules(&settings.neighbours.cluster_cidrs, &cluster);
    // An operator that is none of those pods asks QuestDB too.
    all.extend(rules(&settings.neighbours.operator_cidrs, &[port::HTTP]));
    all.extend(rules(&validated.allowed_cidrs, &clients));
    let mut known = BTreeSet::new();
    all.retain(|rule| known.insert(rule.clone()));
    all
}

/// The security groups that a machine is launched with, and is in for as long as it lives.
pub(crate) fn machine_groups(group: &SecurityGroupId) -> Vec<SecurityGroupId> {
    vec![group.clone()]
}

/// The machine of a generation, protected from its first moment on.
pub fn launch(
    validated: &Validated,
    settings: &Settings,
    group: &SecurityGroupId,
    generation: u64,
    zone: &str,
) -> Launch {
    let subject = &validated.subject;
    let user_data = json!({
        "cluster": subject.cluster,
        "nodeName": names::node(subject.short(), generation),
        "labels": node_labels(subject),
        "taints": [{ "key": names::TAINT, "value": subject.short(), "effect": "NoSchedule" }],
    });
    Launch {
        image: validated.node_image.clone(),
        instance_type: validated.instance_type.name.to_string(),
        subnet: settings.zones.get(zone).cloned().unwrap_or_default(),
        security_groups: machine_groups(group),
        user_data: UserData::new(user_data.to_string()),
        instance_profile: settings.instance_profile.clone(),
        protection: Protection::ON,
        tags: Owner { generation: Some(generation), ..subject.owner(Role::Instance) }
            .tags()
            .named(subject.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::network_policy;
    use crate::fixture::{resource, settings, validated};

    #[test]
    fn an_operator_outside_of_the_cluster_passes_both_fences_to_sql_and_nothing_else() {
        let mut cluster = settings();
        cluster.neighbours.operator_cidrs = vec!["192.0.2.7/24".to_owned()];
        cluster.neighbours.cluster_cidrs.clear();
        let wish = validated(&resource(1));
        let peer = cloud::PeerRange::Ipv4("192.0.2.0/24".to_owned());
        let rules = security_group_rules(&wish, &cluster);
        let own: Vec<u16> =
            rules.iter().filter(|rule| rule.peer == peer).map(|rule| rule.from_port).collect();
        assert_eq!(own, [port::HTTP], "{rules:?}");
        let policy = network_policy(&wish, &cluster).body;
        let block = json!({ "ipBlock": { "cidr": "192.0.2.0/24" } });
        let mut lets_in = policy["spec"]["ingress"].as_array().unwrap().iter();
        assert!(
            lets_in.any(|rule| {
                rule["from"].as_array().unwrap().contains(&block) && rule["ports"][0]["port"] == port::HTTP
            }),
            "{policy}"
        );
    }
}
