//! The objects that a kubelet, a CSI driver and a cloud controller make for a machine: Node, `CSINode`, `CSIDriver`, Lease.
//! Pure builders: no client, no clock (time is a parameter).

use std::collections::BTreeMap;

use cloud::Instance;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo};
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSIDriverSpec, CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time};

use crate::machine_type;
use crate::settings::Settings;
use crate::user_data::NodeIntent;

/// The CSI driver of EBS.
pub const DRIVER: &str = "ebs.csi.aws.com";
/// Says which agent registered a Node; only such Nodes are ever deleted again.
pub const MANAGED_BY: &str = "sandbox.questdb.io/node-agent";
/// Seconds a node lease lasts.
pub const LEASE_SECONDS: i32 = 40;

/// A machine as the builders need it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// As EC2 shows it.
    pub instance: Instance,
    /// As its user data tells.
    pub intent: NodeIntent,
}

/// `aws:///<zone>/<id>`.
pub fn provider_id(instance: &Instance) -> String {
    format!("aws:///{}/{}", instance.zone, instance.id)
}

/// The instance's id in a provider id.
pub fn instance_of_provider_id(provider_id: &str) -> Option<&str> {
    let id = provider_id.strip_prefix("aws:///")?.rsplit('/').next()?;
    id.starts_with("i-").then_some(id)
}

/// How a Node's status names a CSI volume.
pub fn unique_volume_name(handle: &str) -> String {
    format!("kubernetes.io/csi/{DRIVER}^{handle}")
}

/// The Node, as registered.
pub fn node(machine: &Machine, settings: &Settings, now: Timestamp) -> Node {
    let Machine { instance, intent } = machine;
    Node {
        metadata: ObjectMeta {
            name: Some(intent.name.clone()),
            labels: Some(labels(machine, settings)),
            annotations: Some(annotations(instance, settings)),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some(provider_id(instance)),
            taints: (!intent.taints.is_empty()).then(|| intent.taints.clone()),
            ..NodeSpec::default()
        }),
        status: Some(status(machine, settings, now)),
    }
}

/// Labels: what user data tells, then what EC2 tells, which wins.
pub fn labels(machine: &Machine, settings: &Settings) -> BTreeMap<String, String> {
    let Machine { instance, intent } = machine;
    let mut labels = intent.labels.clone();
    let architecture = architecture(instance);
    let known = [
        ("topology.kubernetes.io/zone", instance.zone.as_str()),
        ("topology.kubernetes.io/region", settings.region.as_str()),
        ("topology.ebs.csi.aws.com/zone", instance.zone.as_str()),
        ("node.kubernetes.io/instance-type", instance.instance_type.as_str()),
        ("kubernetes.io/hostname", intent.name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture),
    ];
    labels.extend(known.map(|(key, value)| (key.to_owned(), value.to_owned())));
    labels
}

/// Annotations of kubelet and CSI registration.
pub fn annotations(instance: &Instance, settings: &Settings) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("volumes.kubernetes.io/controller-managed-attach-detach".to_owned(), "true".to_owned()),
        ("csi.volume.kubernetes.io/nodeid".to_owned(), format!(r#"{{"{DRIVER}":"{}"}}"#, instance.id)),
        (MANAGED_BY.to_owned(), settings.cluster.clone()),
    ])
}

/// The status of a healthy machine.
pub fn status(machine: &Machine, settings: &Settings, now: Timestamp) -> NodeStatus {
    let Machine { instance, intent } = machine;
    let capacity = machine_type::capacity(&instance.instance_type);
    let mut addresses = vec![address("Hostname", &intent.name)];
    if let Some(private) = instance.private_ip {
        addresses.insert(0, address("InternalIP", &private.to_string()));
    }
    NodeStatus {
        addresses: Some(addresses),
        capacity: Some(machine_type::resources(capacity, false)),
        allocatable: Some(machine_type::resources(capacity, true)),
        conditions: Some(conditions(now)),
        node_info: Some(NodeSystemInfo {
            architecture: architecture(instance).to_owned(),
            boot_id: instance.id.to_string(),
            container_runtime_version: format!("slipway://{}", env!("CARGO_PKG_VERSION")),
            kernel_version: "sandbox".to_owned(),
            kube_proxy_version: String::new(),
            kubelet_version: settings.kubelet_version.clone(),
            machine_id: instance.id.to_string(),
            operating_system: "linux".to_owned(),
            os_image: format!("Slipway sandbox ({})", instance.image),
            system_uuid: instance.id.to_string(),
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    }
}

/// Ready and nothing under pressure.
pub fn conditions(now: Timestamp) -> Vec<NodeCondition> {
    let condition = |type_: &str, status: &str, reason: &str| NodeCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(format!("node agent: {reason}")),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    };
    vec![
        condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID"),
        condition("Ready", "True", "KubeletReady"),
    ]
}

/// The `CSINode` of a registered Node.
pub fn csi_node(machine: &Machine, node_uid: &str) -> CSINode {
    CSINode {
        metadata: ObjectMeta {
            name: Some(machine.intent.name.clone()),
            owner_references: Some(vec![owner(machine, node_uid)]),
            ..ObjectMeta::default()
        },
        spec: CSINodeSpec {
            drivers: vec![CSINodeDriver {
                name: DRIVER.to_owned(),
                node_id: machine.instance.id.to_string(),
                topology_keys: Some(vec!["topology.ebs.csi.aws.com/zone".to_owned()]),
                allocatable: Some(VolumeNodeResources { count: Some(25) }),
            }],
        },
    }
}

/// The `CSIDriver`, once for a cluster.
pub fn csi_driver() -> CSIDriver {
    CSIDriver {
        metadata: ObjectMeta { name: Some(DRIVER.to_owned()), ..ObjectMeta::default() },
        spec: CSIDriverSpec {
            attach_required: Some(true),
            pod_info_on_mount: Some(false),
            fs_group_policy: Some("File".to_owned()),
            ..CSIDriverSpec::default()
        },
    }
}

/// The Lease whose renewal says "alive".
pub fn lease(machine: &Machine, node_uid: &str, now: Timestamp) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some(machine.intent.name.clone()),
            namespace: Some("kube-node-lease".to_owned()),
            owner_references: Some(vec![owner(machine, node_uid)]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(machine.intent.name.clone()),
            lease_duration_seconds: Some(LEASE_SECONDS),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }),
    }
}

fn owner(machine: &Machine, node_uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: machine.intent.name.clone(),
        uid: node_uid.to_owned(),
        ..OwnerReference::default()
    }
}

fn address(type_: &str, address: &str) -> NodeAddress {
    NodeAddress { type_: type_.to_owned(), address: address.to_owned() }
}

fn architecture(instance: &Instance) -> &'static str {
    if machine_type::capacity(&instance.instance_type).arm { "arm64" } else { "amd64" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_node_says_who_and_where_it_is() {
        let machine = fixture::machine("i-0a", "qdb-1-g1");
        let node = node(&machine, &fixture::settings(), Timestamp::UNIX_EPOCH);
        let labels = node.metadata.labels.unwrap();
        assert_eq!(labels["topology.kubernetes.io/zone"], "eu-west-1a");
        assert_eq!(labels["topology.kubernetes.io/region"], "eu-west-1");
        assert_eq!(labels["node.kubernetes.io/instance-type"], "m7i.large");
        assert_eq!(labels["kubernetes.io/hostname"], "qdb-1-g1");
        assert_eq!(node.spec.unwrap().provider_id.unwrap(), "aws:///eu-west-1a/i-0a");
        let status = node.status.unwrap();
        assert_eq!(status.addresses.unwrap()[0].address, "10.250.0.9");
        let ready = status.conditions.unwrap().into_iter().find(|condition| condition.type_ == "Ready");
        assert_eq!(ready.unwrap().status, "True");
    }

    #[test]
    fn user_data_cannot_move_a_node_to_another_zone() {
        let mut machine = fixture::machine("i-0a", "n");
        machine.intent.labels.insert("topology.kubernetes.io/zone".into(), "moon".into());
        assert_eq!(labels(&machine, &fixture::settings())["topology.kubernetes.io/zone"], "eu-west-1a");
    }

    #[test]
    fn provider_ids_are_read_back() {
        assert_eq!(instance_of_provider_id("aws:///eu-west-1a/i-0a"), Some("i-0a"));
        assert_eq!(instance_of_provider_id("gce:///x/i-0a"), None);
        assert_eq!(instance_of_provider_id("aws:///eu-west-1a/"), None);
    }
}
