//! `QuestDBSnapshot`: one copy of a database's disk, from asked for to whole or failed.
//!
//! What it asks for never changes once it is made; only what becomes of the copy in the end may.
#![expect(unreachable_pub, reason = "the schema derive copies the types into a function body")]
#![expect(clippy::duplicated_attributes, reason = "columns may have one type")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::core::{Reason, Rule};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::condition;

/// A copy of a database's disk.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "crd.questdb.io",
    version = "v1",
    kind = "QuestDBSnapshot",
    plural = "questdbsnapshots",
    shortname = "qdbsnap",
    category = "databases",
    namespaced,
    status = "QuestDBSnapshotStatus",
    derive = "PartialEq",
    cel,
    doc = "A copy of a QuestDB database's disk, taken while the database goes on.",
    printcolumn(name = "Database", type_ = "string", json_path = ".spec.database"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Progress", type_ = "integer", json_path = ".status.progress"),
    printcolumn(name = "Snapshot", type_ = "string", json_path = ".status.snapshotId"),
    printcolumn(name = "Size", type_ = "integer", json_path = ".status.sizeGib"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
#[x_kube(cel, validation = same_database(), validation = same_deadline())]
pub struct QuestDBSnapshotSpec {
    /// Name of the `QuestDB` in the same namespace. Immutable.
    #[schemars(length(min = 1, max = 253))]
    pub database: String,
    /// How long it may take, in seconds, until the copy is begun and the database is let go again; EBS then finishes the
    /// copy in its own time. Immutable.
    #[serde(default = "default_deadline")]
    #[schemars(range(min = 30, max = 86_400))]
    pub deadline_seconds: u32,
    /// What becomes of the EBS snapshot when this object is deleted.
    #[serde(default)]
    pub deletion_policy: CopyPolicy,
}

/// What becomes of a copy when the object that asked for it is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CopyPolicy {
    /// It stays.
    #[default]
    Retain,
    /// It is destroyed.
    Delete,
}

pub(crate) const fn default_deadline() -> u32 {
    3_600
}

fn same_database() -> Rule {
    Rule::new("self.database == oldSelf.database")
        .message("spec.database is immutable: a copy of another database is another snapshot")
        .reason(Reason::FieldValueInvalid)
}

fn same_deadline() -> Rule {
    Rule::new("self.deadlineSeconds == oldSelf.deadlineSeconds")
        .message("spec.deadlineSeconds is immutable: make another snapshot with another deadline")
        .reason(Reason::FieldValueInvalid)
}

/// What is observed of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuestDBSnapshotStatus {
    /// How far it came, in a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<SnapshotPhase>,
    /// Generation of the spec that this was written for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Identity of the snapshot, as in its tag in AWS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 36))]
    pub identity: Option<String>,
    /// Conditions: `Ready` once it is whole, `Held` while its database is held for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
    /// Identity of the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 36))]
    pub database_id: Option<String>,
    /// EBS snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// EBS volume it was taken of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_id: Option<String>,
    /// Size of that volume: the least that a disk made from it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_gib: Option<u32>,
    /// QuestDB version whose data it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How much of it EBS has copied, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<u8>,
    /// The moment whose content it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When it was first seen whole, or had failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
}

impl QuestDBSnapshotStatus {
    /// What its condition `Ready` says, unless that is nothing: of a failed one, why it failed.
    pub fn message(&self) -> Option<&str> {
        self.ready().map(|ready| ready.message.as_str()).filter(|message| !message.is_empty())
    }

    /// Its condition `Ready`, once something was said of that.
    pub fn ready(&self) -> Option<&Condition> {
        self.conditions.iter().find(|found| found.type_ == condition::READY)
    }
}

/// How far a snapshot came, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SnapshotPhase {
    /// Not begun: something is waited for.
    Pending,
    /// The database is held still, and the copy is being begun.
    Checkpointing,
    /// The copy has begun, and the database is being let go.
    Releasing,
    /// EBS copies; the database is free.
    Copying,
    /// Whole.
    Succeeded,
    /// It will never be.
    Failed,
}

impl SnapshotPhase {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Checkpointing => "Checkpointing",
            Self::Releasing => "Releasing",
            Self::Copying => "Copying",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// Whether nothing more will come of it.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refusal(new: &Value, old: &Value) -> String {
        QuestDBSnapshotSpec::validate_cel(new, Some(old))
            .map_or_else(|errors| format!("{errors:?}"), |()| String::new())
    }

    #[test]
    fn only_what_becomes_of_it_may_change() {
        let old = json!({ "database": "trades", "deadlineSeconds": 60, "deletionPolicy": "Retain" });
        let with = |key: &str, value: Value| {
            let mut new = old.clone();
            new[key] = value;
            new
        };
        assert_eq!(refusal(&old, &old), "");
        assert_eq!(refusal(&with("deletionPolicy", json!("Delete")), &old), "");
        assert!(refusal(&with("database", json!("other")), &old).contains("spec.database is immutable"));
        assert!(
            refusal(&with("deadlineSeconds", json!(61)), &old).contains("spec.deadlineSeconds is immutable")
        );
    }

    #[test]
    fn little_is_enough() {
        let spec: QuestDBSnapshotSpec = serde_json::from_value(json!({ "database": "trades" })).unwrap();
        assert_eq!((spec.deadline_seconds, spec.deletion_policy), (3_600, CopyPolicy::Retain));
    }
}
