//! The spec: the desired state of a database in Kubernetes' manners. Every number and text is bounded here, because the
//! API server's own types are wider than ours, and because rules are priced by what they might have to compare.
#![expect(unreachable_pub, reason = "the schema derive copies the types into a function body")]

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::status::QuestDBStatus;
use crate::{
    CredentialsSpec, EgressSpec, IngressSpec, MonitorSpec, PodOverrides, ServiceSpec, fence, schema,
};

/// A QuestDB database on a machine of its own.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "crd.questdb.io",
    version = "v1",
    kind = "QuestDB",
    plural = "questdbs",
    shortname = "qdb",
    shortname = "qdbs",
    category = "databases",
    namespaced,
    status = "QuestDBStatus",
    derive = "PartialEq",
    cel,
    doc = "A QuestDB database on a machine, a disk and a name of its own.",
    validation = fence::status_forward(),
    validation = fence::identity_stays(),
    validation = fence::identity_matches(),
    validation = fence::grows(),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#,
        description = "Whether it answers: one whose phase is Degraded may."
    ),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Instance", type_ = "string", json_path = ".spec.compute.instanceType"),
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.storage.sizeGib"),
    printcolumn(name = "NodeReady", type_ = "boolean", json_path = ".status.node.ready"),
    printcolumn(name = "NodeIp", type_ = "string", json_path = ".status.node.ip"),
    printcolumn(name = "DNS", type_ = "string", json_path = ".status.dns.name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Degraded",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Degraded")].reason"#,
        description = "Why a person has to look, or that nobody has to.",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
#[x_kube(
    cel,
    validation = fence::forward(),
    validation = fence::same_database(),
    validation = fence::same_zone(),
    validation = fence::same_source(),
    validation = fence::stays_provisioned(),
    validation = fence::stays_purged(),
    validation = fence::protected_stays()
)]
pub struct QuestDBSpec {
    /// The instruction that this spec carries out. Absent when people write the resource themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<InstructionSpec>,
    /// Whether the database should run.
    #[serde(default)]
    pub run_state: RunState,
    /// QuestDB version. Before another one is started the disk is copied; one that does not start is taken back, and an older
    /// major version is refused.
    #[serde(default = "default_version")]
    #[schemars(length(min = 1, max = 32))]
    pub version: String,
    /// Container image. None but that of the version is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub image: Option<String>,
    /// The machine.
    #[serde(default)]
    pub compute: ComputeSpec,
    /// The disk.
    pub storage: StorageSpec,
    /// Keys of server.conf.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::config")]
    pub config: BTreeMap<String, String>,
    /// How the database is reached.
    #[serde(default)]
    pub network: NetworkSpec,
    /// Where credentials come from, beside the Secrets that name the database by annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<CredentialsSpec>,
    /// The pod that QuestDB runs in, where it is to be otherwise than by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodOverrides>,
    /// Changed to ask for one restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub restart_nonce: Option<String>,
    /// Whether nobody may delete the database. While it is true the run states Deleted and Purged are refused; where the resource
    /// itself is deleted, the database goes on as it is until this is false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deletion_protection: bool,
    /// Availability zone; chosen by the operator when absent. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub zone: Option<String>,
}

/// Which instruction a spec carries out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstructionSpec {
    /// Identity of the instruction.
    #[schemars(length(min = 1, max = 64))]
    pub id: String,
    /// Identity of the database.
    #[schemars(
        regex(pattern = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"),
        length(max = 36)
    )]
    pub database_id: String,
    /// Outranks everything.
    #[schemars(range(min = 1, max = 9_007_199_254_740_991_i64))]
    pub epoch: i64,
    /// Rises by one with every change.
    #[schemars(range(min = 1, max = 9_007_199_254_740_991_i64))]
    pub seq: i64,
    /// Version of the translation from desired state to spec.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub render: i64,
    /// Hash of the desired state.
    #[schemars(length(min = 1, max = 128))]
    pub hash: String,
}

/// Whether a database should run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RunState {
    /// Serving.
    #[default]
    Running,
    /// The machine is gone; disk and name stay.
    Paused,
    /// Gone for its users; the disk is kept.
    Deleted,
    /// Gone for good: the only state in which a disk is destroyed.
    Purged,
}

/// The machine a database has to itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComputeSpec {
    /// EC2 instance type. Another one moves the database: the next machine is made ready while the old one serves, then QuestDB
    /// stops, its disk goes there, and it starts again.
    #[serde(default = "default_instance_type")]
    #[schemars(length(min = 1, max = 64))]
    pub instance_type: String,
    /// Machine image; the cluster's default when absent. Another one that is named moves the database; another default is for
    /// machines to come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub node_image: Option<String>,
}

impl Default for ComputeSpec {
    fn default() -> Self {
        Self { instance_type: default_instance_type(), node_image: None }
    }
}

/// The disk of a database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    cel,
    validation = fence::iops_fit(&domain::catalogue::VOLUMES[0]),
    validation = fence::throughput_fits(&domain::catalogue::VOLUMES[0]),
    validation = fence::iops_fit(&domain::catalogue::VOLUMES[1])
)]
pub struct StorageSpec {
    /// Size in GiB; it grows, or is taken back to no less than the disk has.
    #[schemars(range(min = 10, max = 16_384))]
    pub size_gib: u32,
    /// EBS volume type.
    #[serde(rename = "type", default)]
    pub volume_type: VolumeType,
    /// I/O operations a second.
    #[serde(default = "default_iops")]
    #[schemars(range(min = 100, max = 256_000))]
    pub iops: u32,
    /// Throughput in MiB/s, of `gp3` alone.
    #[serde(default = "default_throughput")]
    #[schemars(range(min = 125, max = 2_000))]
    pub throughput: u32,
    /// The database had a disk once: a missing one is an alarm, never an order to make another.
    #[serde(default)]
    pub provisioned: bool,
    /// What becomes of the disk when the database is deleted for good. `Snapshot` is heeded wherever the disk would be destroyed, by
    /// the run state Purged too.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// What the first disk is made from; an empty one when absent. Immutable, and of no account once there is a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<StorageSource>,
}

/// What a database's first disk is made from: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(cel, validation = fence::one_source())]
pub struct StorageSource {
    /// Name of the `QuestDBSnapshot` of this namespace that had the copy made. The object may be gone; the copy is found by its
    /// tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"), length(min = 1, max = 253))]
    pub snapshot: Option<String>,
    /// EBS snapshot of this account and region: one that was taken of a database of this namespace, or one whose tag
    /// `questdb.io/for` names this resource as
    /// `cluster/namespace/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^snap-[0-9a-f]{8,17}$"), length(max = 32))]
    pub snapshot_id: Option<String>,
    /// EBS volume that becomes the disk itself: one that nothing uses, whose tag `questdb.io/for` names this resource as
    /// `cluster/namespace/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^vol-[0-9a-f]{8,17}$"), length(max = 32))]
    pub volume_id: Option<String>,
}

impl StorageSource {
    /// Whether the disk is a copy that QuestDB has to restore when it starts for the first time.
    pub const fn is_copy(&self) -> bool {
        self.volume_id.is_none()
    }
}

/// EBS volume types on offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum VolumeType {
    /// General purpose.
    #[default]
    Gp3,
    /// Provisioned performance.
    Io2,
}

impl VolumeType {
    /// EC2's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gp3 => "gp3",
            Self::Io2 => "io2",
        }
    }
}

/// What becomes of the disk on delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// It stays.
    #[default]
    Retain,
    /// It is destroyed once a last copy of it is complete; the copy stays.
    Snapshot,
    /// It is destroyed.
    Delete,
}

/// How a database is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = fence::balanced_for_somebody())]
pub struct NetworkSpec {
    /// Fully qualified DNS name; resource name and the cluster's suffix when absent. Another one takes the place of the one in
    /// force without a moment in which neither leads to the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub hostname: Option<String>,
    /// CIDRs that may connect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::cidrs")]
    pub allowed_cidrs: Vec<String>,
    /// Who is meant to reach it: `Internal`, the cluster's own network, and others only if `allowedCidrs` names them; `Public`,
    /// others as well, whom `allowedCidrs` then has to name. Whom the fences let in, `allowedCidrs` alone says. No machine gets a
    /// public address: what leads others to its subnet (a gateway, a load balancer, a peering) is the network's.
    #[serde(default)]
    pub exposure: Exposure,
    /// Namespaces of this cluster whose pods may connect, beside the allowed CIDRs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::namespaces")]
    pub allowed_namespaces: Vec<String>,
    /// Whom the containers of the pod may call, as far as the `NetworkPolicy` says: nobody when absent. QuestDB itself calls
    /// nobody; a container beside it, which ships logs or copies, may have to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressSpec>,
    /// The Services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSpec>,
    /// Whether a `NetworkPolicy` lets in only the allowed CIDRs and namespaces, the operator and scrapers; it does when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<bool>,
    /// Whether a `PodDisruptionBudget` keeps a drain from stopping the database; it does when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption_budget: Option<bool>,
    /// Whether clients come in at the machine's own address: the pod takes host ports there, and the database's name leads to it.
    /// They do when absent. Where not, there is no name, clients come in by the Services alone, and `status.endpoints` names those;
    /// a namespace that enforces the Pod Security Standard `baseline` or `restricted` allows only that. A change of it is a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ports: Option<bool>,
    /// Routes of Traefik; none when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<IngressSpec>,
    /// How Prometheus' operator is told; not at all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monitor: Option<MonitorSpec>,
}

/// Who is meant to reach a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Exposure {
    /// The cluster's own network; others only if they are named.
    #[default]
    Internal,
    /// Others as well, who have to be named.
    Public,
}

fn default_version() -> String {
    domain::catalogue::DEFAULT_VERSION.to_owned()
}

fn default_instance_type() -> String {
    domain::catalogue::DEFAULT_INSTANCE_TYPE.to_owned()
}

const fn default_iops() -> u32 {
    domain::catalogue::DEFAULT_IOPS
}

const fn default_throughput() -> u32 {
    domain::catalogue::DEFAULT_THROUGHPUT
}
