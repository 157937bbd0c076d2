//! What people may choose of the pod that QuestDB runs in. A closed list: what is not here is the operator's, because a pod
//! that may be anything may be anybody's.
//!
//! *Invariant:* everything here may be left out, and what is left out is not written back: a spec that says nothing of
//! it means the same as before there was any of it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// What is added to the pod, and what is chosen otherwise than by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodOverrides {
    /// Labels of the pod, beside our own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::labels")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pod, beside our own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::annotations")]
    pub annotations: BTreeMap<String, String>,
    /// What QuestDB's container gets of the machine; when absent, all that its own containers and those that are added do not
    /// need.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<AmountsSpec>,
    /// How patient the probes of QuestDB are. Where they ask is the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<ProbesSpec>,
    /// Variables of QuestDB's environment. Settings of QuestDB belong to `config`, and are refused here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub env: Vec<EnvSpec>,
    /// Volumes beside the disk.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub volumes: Vec<VolumeSpec>,
    /// Where QuestDB's container has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub volume_mounts: Vec<MountSpec>,
    /// Containers beside QuestDB.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    pub containers: Vec<ContainerSpec>,
    /// Taints of the machine that the pod bears, beside our own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub tolerations: Vec<TolerationSpec>,
    /// Secrets with which images are pulled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    pub image_pull_secrets: Vec<NameSpec>,
    /// Service account. Its token is not put into the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub service_account_name: Option<String>,
    /// Priority class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub priority_class_name: Option<String>,
    /// Seconds that QuestDB has to stop; 120 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 30, max = 600))]
    pub termination_grace_period_seconds: Option<u32>,
}

/// Amounts of a machine: requests and limits at once, so that nobody takes what QuestDB was promised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AmountsSpec {
    /// Processors, such as `2` or `1500m`.
    #[schemars(length(max = 8), regex(pattern = r"^[1-9][0-9]{0,5}m?$"))]
    pub cpu: String,
    /// Memory, such as `512Mi` or `6Gi`.
    #[schemars(length(max = 10), regex(pattern = r"^[1-9][0-9]{0,6}(Mi|Gi)$"))]
    pub memory: String,
}

/// How patient probes are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbesSpec {
    /// Until a start counts as failed; every 2 seconds and 300 times when absent. Of no account while a copy is restored, or another
    /// version is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup: Option<ProbeSpec>,
    /// Until nobody is sent to it; every 3 seconds and 3 times when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<ProbeSpec>,
    /// Until it is restarted; every 10 seconds and 6 times when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness: Option<ProbeSpec>,
}

/// How patient one probe is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbeSpec {
    /// Seconds between two questions.
    #[schemars(range(min = 1, max = 60))]
    pub period_seconds: u32,
    /// Seconds that an answer may take; 3 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 30))]
    pub timeout_seconds: Option<u32>,
    /// Questions without a good answer that count as failure.
    #[schemars(range(min = 2, max = 3_600))]
    pub failure_threshold: u32,
}

/// A variable of the environment: a value, or where it is read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvSpec {
    /// Its name.
    #[schemars(length(max = 64), regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))]
    pub name: String,
    /// Its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_024))]
    pub value: Option<String>,
    /// Where it is read from when the container starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvSourceSpec>,
}

/// Where a variable is read from: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvSourceSpec {
    /// A key of a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeySpec>,
    /// A key of a `ConfigMap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeySpec>,
}

/// A key of an object of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeySpec {
    /// The object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// An object of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NameSpec {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A volume: exactly one of its sources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSpec {
    /// Its name in the pod.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Keys of a `ConfigMap` as files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<NameSpec>,
    /// Keys of a Secret as files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretVolumeSpec>,
    /// An empty folder that goes with the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty_dir: Option<EmptyDirSpec>,
}

/// A Secret as files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretVolumeSpec {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: String,
}

/// An empty folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmptyDirSpec {
    /// What it may hold at most, such as `512Mi`.
    #[schemars(length(max = 10), regex(pattern = r"^[1-9][0-9]{0,6}(Mi|Gi)$"))]
    pub size_limit: String,
}

/// Where a container has a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MountSpec {
    /// The volume, one of `volumes`.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The folder.
    #[schemars(length(max = 256), regex(pattern = r"^/[A-Za-z0-9._/-]*$"))]
    pub mount_path: String,
    /// Whether nothing may be written there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// A container beside QuestDB. It may become nobody else, and has none of QuestDB's disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerSpec {
    /// Its name.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Its image.
    #[schemars(length(min = 1, max = 256))]
    pub image: String,
    /// Command, in place of the image's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 1_024)))]
    pub command: Vec<String>,
    /// Arguments, in place of the image's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 1_024)))]
    pub args: Vec<String>,
    /// Variables of its environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub env: Vec<EnvSpec>,
    /// Ports on which it listens. Those of QuestDB are taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub ports: Vec<PortSpec>,
    /// What it gets of the machine.
    pub resources: AmountsSpec,
    /// Where it has the volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub volume_mounts: Vec<MountSpec>,
}

/// A port over TCP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PortSpec {
    /// Its name.
    #[schemars(length(min = 1, max = 15), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Its number.
    #[schemars(range(min = 1, max = 65_535))]
    pub container_port: u16,
}

/// A taint that the pod bears.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TolerationSpec {
    /// Key of the taint.
    #[schemars(length(min = 1, max = 316))]
    pub key: String,
    /// Its value; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub value: Option<String>,
    /// Its effect; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
}

/// Effects of a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// New pods stay away.
    NoSchedule,
    /// New pods stay away if they can.
    PreferNoSchedule,
    /// Pods have to leave.
    NoExecute,
}
