//! Every field of the spec changes on some walk, or is named here with the reason why not. Whoever adds one is told by the
//! compiler, and then by a test until walks have it.

use std::collections::BTreeSet;

use resources::{
    ComputeSpec, CredentialsSpec, EgressSpec, IlpSpec, IngressSpec, MonitorSpec, NetworkSpec, PodOverrides,
    QuestDBSpec, ServiceSpec, StorageSpec, TlsSpec,
};
use testkit::Random;

use super::wish::walk;

/// How many walks have to meet every field.
const WALKS: usize = 100;

/// Fields that no wish of a walk changes, and why.
const APART: [(&str, &str); 11] = [
    ("instruction", "each wish has one of its own, when it is said"),
    ("zone", "may not change"),
    ("storage.provisioned", "said with a wish once somebody has seen the disk"),
    ("storage.source", "may not change"),
    ("network.hostname", "said with a wish that is renamed: it is the database's own"),
    ("network.ingress.host", "one database alone has it, and the fresh one has the same wish"),
    ("network.ingress.tls.cert_resolver", "written as the Secret beside it is, which is walked"),
    (
        "credentials.psql",
        "the last login that was given stays in force, because nobody could come in without",
    ),
    ("credentials.http", "the same"),
    ("credentials.ilp.secret_name", "opens what a drawn key opens, which is walked"),
    ("pod.priority_class_name", "an object of the whole cluster, which the API server wants to be there"),
];

/// The fields of a struct in which two values differ, and the names of all of them.
macro_rules! fields {
    ($of:ident $prefix:literal, $names:ident, $differing:ident: $($field:ident),+ $(,)?) => {
        const $names: &[&str] = &[$(concat!($prefix, stringify!($field))),+];

        fn $differing(one: &$of, other: &$of) -> Vec<&'static str> {
            let $of { $($field),+ } = one;
            [$((concat!($prefix, stringify!($field)), *$field != other.$field)),+]
                .into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
        }
    };
}

fields!(QuestDBSpec "", SPEC, of_spec: instruction, run_state, version, image, compute, storage, config, network,
    credentials, pod, restart_nonce, deletion_protection, zone);
fields!(ComputeSpec "compute.", COMPUTE, of_compute: instance_type, node_image);
fields!(StorageSpec "storage.", STORAGE, of_storage: size_gib, volume_type, iops, throughput, provisioned,
    deletion_policy, source);
fields!(NetworkSpec "network.", NETWORK, of_network: hostname, allowed_cidrs, exposure, allowed_namespaces, egress,
    service, network_policy, disruption_budget, host_ports, ingress, monitor);
fields!(EgressSpec "network.egress.", EGRESS, of_egress: cidrs, namespaces);
fields!(ServiceSpec "network.service.", SERVICE, of_service: service_type, annotations, headless_annotations);
fields!(IngressSpec "network.ingress.", INGRESS, of_ingress: host, http, pg, ilp, tls);
fields!(TlsSpec "network.ingress.tls.", TLS, of_tls: secret_name, cert_resolver);
fields!(MonitorSpec "network.monitor.", MONITOR, of_monitor: kind, labels, interval_seconds);
fields!(CredentialsSpec "credentials.", CREDENTIALS, of_credentials: psql, psql_readonly, http, ilp);
fields!(IlpSpec "credentials.ilp.", ILP, of_ilp: secret_name, drawn);
fields!(PodOverrides "pod.", POD, of_pod: labels, annotations, resources, probes, env, volumes, volume_mounts,
    containers, tolerations, image_pull_secrets, service_account_name, priority_class_name,
    termination_grace_period_seconds);

const ALL: [&[&str]; 12] =
    [SPEC, COMPUTE, STORAGE, NETWORK, EGRESS, SERVICE, INGRESS, TLS, MONITOR, CREDENTIALS, ILP, POD];

fn differing(one: &QuestDBSpec, other: &QuestDBSpec) -> Vec<&'static str> {
    let mut found = of_spec(one, other);
    found.extend(of_compute(&one.compute, &other.compute));
    found.extend(of_storage(&one.storage, &other.storage));
    found.extend(of_network(&one.network, &other.network));
    found.extend(of_pod(&whole(one.pod.as_ref()), &whole(other.pod.as_ref())));
    let keys = [one, other].map(|spec| whole(spec.credentials.as_ref()));
    found.extend(of_credentials(&keys[0], &keys[1]));
    found.extend(of_ilp(&whole(keys[0].ilp.as_ref()), &whole(keys[1].ilp.as_ref())));
    let (one, other) = (&one.network, &other.network);
    found.extend(of_egress(&whole(one.egress.as_ref()), &whole(other.egress.as_ref())));
    found.extend(of_service(&whole(one.service.as_ref()), &whole(other.service.as_ref())));
    found.extend(of_monitor(&whole(one.monitor.as_ref()), &whole(other.monitor.as_ref())));
    let routes = [one, other].map(|network| whole(network.ingress.as_ref()));
    found.extend(of_ingress(&routes[0], &routes[1]));
    found.extend(of_tls(&whole(routes[0].tls.as_ref()), &whole(routes[1].tls.as_ref())));
    found
}

/// A part of which nothing is said is as one that says nothing.
fn whole<T: Clone + Default>(part: Option<&T>) -> T {
    part.cloned().unwrap_or_default()
}

#[test]
fn every_field_changes_on_a_walk_or_there_is_a_reason() {
    let (mut random, zones) = (Random::new(1), ["a".to_owned()]);
    let mut seen = BTreeSet::new();
    for _ in 0..WALKS {
        let wishes = walk(&mut random, &zones, "ami-1").into_iter();
        let specs: Vec<QuestDBSpec> = wishes.map(|wish| serde_json::from_value(wish.spec).unwrap()).collect();
        for pair in specs.windows(2) {
            seen.extend(differing(&pair[0], &pair[1]));
        }
    }
    let all = ALL.concat().into_iter().collect::<BTreeSet<_>>();
    let missing: BTreeSet<_> = all.difference(&seen).copied().collect();
    assert_eq!(missing, APART.iter().map(|(name, _)| *name).collect());
}
