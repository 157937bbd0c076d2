//! The status: what the operator observed and did. A report only: wiping it loses no decision, except that the
//! instruction carried out never goes back.
#![expect(unreachable_pub, reason = "the schema derive copies the types into a function body")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::upgrade::UpgradeStatus;

/// What is observed of a database.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuestDBStatus {
    /// How it is, in a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Identity of the database. Set before anything is made, and then for good: everything in AWS is found by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 36))]
    pub database_id: Option<String>,
    /// Generation of the spec that this was written for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The instruction that has been carried out in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<InstructionStatus>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
    /// QuestDB version that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The last upgrade to another version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_upgrade: Option<UpgradeStatus>,
    /// The machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeStatus>,
    /// The disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeStatus>,
    /// The copy that stays when the disk is destroyed, once it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_copy: Option<LastCopyStatus>,
    /// The name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<DnsStatus>,
    /// Where it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<EndpointsStatus>,
    /// Where its load balancer answers, once the cluster has made one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub load_balancer: Vec<String>,
    /// Name of the Secret with the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret: Option<String>,
    /// Changes that are asked for and not done yet, with what each takes. A restart is announced here before it is done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<PendingStatus>,
    /// What would be done for the spec in the annotation `crd.questdb.io/dry-run`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan: Vec<String>,
    /// Which question `plan` answers. Absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_for: Option<PlanForStatus>,
    /// Progress of what is being done, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["name".to_owned()]))]
    pub steps: Vec<StepStatus>,
}

/// Which question an answer belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanForStatus {
    /// The first 16 digits of the SHA-256 of the annotation `crd.questdb.io/dry-run`, in hexadecimal.
    pub patch: String,
    /// The annotation `crd.questdb.io/dry-run-question`, as far as its 64th character. Absent without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// Generation of the spec that the patch was merged into.
    pub generation: i64,
}

/// A change that is asked for and not done yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingStatus {
    /// Field of the resource, as a JSON pointer.
    pub field: String,
    /// What it takes.
    pub means: ChangeMeans,
    /// What happens, or why nothing does.
    pub why: String,
    /// Since when it has been asked for.
    pub since: Time,
}

/// What a change takes, from the cheapest to the dearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChangeMeans {
    /// Nothing is interrupted.
    Online,
    /// QuestDB is restarted on its machine.
    Restart,
    /// QuestDB goes to another machine.
    Move,
    /// QuestDB is stopped.
    Stop,
    /// It is not done while the database lives as it is.
    Refused,
}

impl ChangeMeans {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Restart => "restart",
            Self::Move => "move",
            Self::Stop => "stop",
            Self::Refused => "refused",
        }
    }
}

/// How a database is, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Seen, nothing done yet.
    Pending,
    /// Being made.
    Provisioning,
    /// Serves what was asked for.
    Ready,
    /// Was ready; a change is being made.
    Updating,
    /// Something is wrong that does not heal by itself.
    Degraded,
    /// Being stopped.
    Pausing,
    /// Stopped; disk kept.
    Paused,
    /// Being taken away.
    Deleting,
    /// Gone; what remains is what policy retains.
    Deleted,
}

impl Phase {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Provisioning => "Provisioning",
            Self::Ready => "Ready",
            Self::Updating => "Updating",
            Self::Degraded => "Degraded",
            Self::Pausing => "Pausing",
            Self::Paused => "Paused",
            Self::Deleting => "Deleting",
            Self::Deleted => "Deleted",
        }
    }
}

/// The instruction carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstructionStatus {
    /// Identity.
    pub id: String,
    /// Epoch.
    pub epoch: i64,
    /// Sequence number.
    pub seq: i64,
    /// Version of the translation.
    pub render: i64,
    /// Hash of the desired state.
    pub hash: String,
}

/// The machine as observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Name of the Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Private address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// EC2 instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    /// Type of the instance that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// Machine image that it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Availability zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Whether the Node is ready.
    pub ready: bool,
}

/// The disk as observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeStatus {
    /// EBS volume.
    pub id: String,
    /// Size that EC2 shows.
    pub size_gib: u32,
    /// State in EC2's words, or `deleted`.
    pub state: String,
}

/// The last copy of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastCopyStatus {
    /// Name of the `QuestDBSnapshot` that had it made; a new database is made from it by that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// EBS snapshot.
    pub snapshot_id: String,
    /// EBS volume it was taken of.
    pub volume_id: String,
    /// The moment whose content it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
}

/// The name as observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DnsStatus {
    /// Fully qualified name.
    pub name: String,
    /// How far it came.
    pub state: DnsState,
    /// Change that is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_id: Option<String>,
    /// Address that the record holds, once it was in sync. None of a name in sync: it is kept for a paused database; nobody
    /// answers to it and nobody else can take it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Name that is added beside it, and takes its place once all name servers answer to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextNameStatus>,
    /// Name that it took the place of, and that is given back a little later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<FormerNameStatus>,
}

/// A name whose place another one took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FormerNameStatus {
    /// Fully qualified name.
    pub name: String,
    /// When the other one took its place.
    pub since: Time,
}

/// A name that takes the place of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextNameStatus {
    /// Fully qualified name.
    pub name: String,
    /// Address that its record was given.
    pub address: String,
    /// Change that is waited for; none before it is added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_id: Option<String>,
}

impl DnsStatus {
    /// Whether the name is only kept. This is no state of its own, because a reader that does not know a state could read none
    /// of the resources any more.
    pub fn is_reserved(&self) -> bool {
        self.state == DnsState::InSync && self.address.is_none()
    }
}

/// How far a name came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DnsState {
    /// Asked for; not on all name servers yet.
    Pending,
    /// On all name servers.
    #[serde(alias = "Reserved")]
    InSync,
    /// Being taken away; the removal is not on all name servers yet.
    Releasing,
    /// Somebody else has the name.
    Conflict,
}

/// Where a database answers: by its name or, where it takes no host ports, by its Services.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndpointsStatus {
    /// REST, web console, line protocol over HTTP.
    pub http: String,
    /// Postgres wire protocol.
    pub pg: String,
    /// Line protocol over HTTP.
    pub ilp: String,
    /// Health and metrics.
    pub min: String,
}

/// One named piece of progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepStatus {
    /// Name: volume, instance, node, attachment, pod, dns …
    pub name: String,
    /// How far it came.
    pub state: StepState,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// What is waited for, or what went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How far a step came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StepState {
    /// Not begun.
    Pending,
    /// Under way.
    Running,
    /// Done.
    Succeeded,
    /// Failed; tried again.
    Failed,
}
