//! `QuestDBSnapshotSchedule`: when copies of a database are taken, and which of them are kept.
#![expect(unreachable_pub, reason = "the schema derive copies the types into a function body")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::core::{Reason, Rule};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::CopyPolicy;
use crate::snapshot::default_deadline;

/// Copies of a database by the clock.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "crd.questdb.io",
    version = "v1",
    kind = "QuestDBSnapshotSchedule",
    plural = "questdbsnapshotschedules",
    shortname = "qdbsched",
    category = "databases",
    namespaced,
    status = "QuestDBSnapshotScheduleStatus",
    derive = "PartialEq",
    cel,
    doc = "When snapshots of a QuestDB database are taken, and which of them are kept.",
    validation = short_name(),
    printcolumn(name = "Database", type_ = "string", json_path = ".spec.database"),
    printcolumn(name = "Schedule", type_ = "string", json_path = ".spec.schedule"),
    printcolumn(name = "TimeZone", type_ = "string", json_path = ".spec.timeZone"),
    printcolumn(name = "Suspend", type_ = "boolean", json_path = ".spec.suspend"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#,
        description = "Whether it makes and removes snapshots when it should."
    ),
    printcolumn(name = "Last", type_ = "date", json_path = ".status.lastTime"),
    printcolumn(name = "Next", type_ = "string", json_path = ".status.nextTime"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(cel, validation = same_database())]
pub struct QuestDBSnapshotScheduleSpec {
    /// Name of the `QuestDB` in the same namespace. Immutable.
    #[schemars(length(min = 1, max = 253))]
    pub database: String,
    /// Minute, hour, day of the month, month, day of the week, as cron has them (`0 3 * * *`), with `L`, `W` and `#`.
    #[schemars(length(min = 1, max = 128))]
    pub schedule: String,
    /// Time zone of the schedule, by its IANA name.
    #[serde(default = "default_time_zone")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: String,
    /// Nothing is taken and nothing removed. Times that pass meanwhile are not made up for.
    #[serde(default)]
    pub suspend: bool,
    /// How late a snapshot may begin, in seconds; without it, the latest missed time is made up for however late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 604_800))]
    pub starting_deadline_seconds: Option<u32>,
    /// Which snapshots are kept.
    #[serde(default)]
    pub retention: RetentionSpec,
    /// What each snapshot is made like.
    #[serde(default)]
    pub snapshot_template: SnapshotTemplate,
}

/// Which snapshots of a schedule are kept. Only those that succeeded count, and the newest of them always stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetentionSpec {
    /// This many of the newest.
    #[serde(default = "default_keep")]
    #[schemars(range(min = 1, max = 1_000))]
    pub keep_last: u16,
    /// None older than this many hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 87_600))]
    pub max_age_hours: Option<u32>,
}

/// What each snapshot of a schedule is made like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotTemplate {
    /// How long each may take, in seconds, until its copy is begun and the database is let go again.
    #[serde(default = "default_deadline")]
    #[schemars(range(min = 30, max = 86_400))]
    pub deadline_seconds: u32,
    /// What becomes of the EBS snapshot when a snapshot is removed, by retention or by hand.
    #[serde(default = "default_policy")]
    pub deletion_policy: CopyPolicy,
}

impl Default for RetentionSpec {
    fn default() -> Self {
        Self { keep_last: default_keep(), max_age_hours: None }
    }
}

impl Default for SnapshotTemplate {
    fn default() -> Self {
        Self { deadline_seconds: default_deadline(), deletion_policy: default_policy() }
    }
}

fn default_time_zone() -> String {
    "UTC".to_owned()
}

const fn default_keep() -> u16 {
    7
}

/// Retention that left the copies behind would be none.
const fn default_policy() -> CopyPolicy {
    CopyPolicy::Delete
}

fn short_name() -> Rule {
    Rule::new("size(self.metadata.name) <= 50")
        .message("a schedule's name has at most 50 characters: its snapshots' names add a time")
        .reason(Reason::FieldValueInvalid)
}

fn same_database() -> Rule {
    Rule::new("self.database == oldSelf.database")
        .message("spec.database is immutable: another database has a schedule of its own")
        .reason(Reason::FieldValueInvalid)
}

/// What is observed of a schedule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuestDBSnapshotScheduleStatus {
    /// Generation of the spec that this was written for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions: `Ready` while the schedule can be kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
    /// The latest time of the schedule that needs no more thought: its snapshot was made, or it was let pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_time: Option<Time>,
    /// The snapshot made last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_snapshot: Option<String>,
    /// When the next one is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_time: Option<Time>,
    /// Snapshots of this schedule that succeeded and are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<u32>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn little_is_enough() {
        let spec = json!({ "database": "trades", "schedule": "0 3 * * *" });
        let spec: QuestDBSnapshotScheduleSpec = serde_json::from_value(spec).unwrap();
        assert_eq!((spec.time_zone.as_str(), spec.suspend, spec.retention.keep_last), ("UTC", false, 7));
        assert_eq!(spec.snapshot_template.deletion_policy, CopyPolicy::Delete);
    }

    #[test]
    fn the_database_stays() {
        let of = |database: &str, schedule: &str| json!({ "database": database, "schedule": schedule });
        let write = |new, old| QuestDBSnapshotScheduleSpec::validate_cel(&new, Some(&old));
        write(of("trades", "0 4 * * *"), of("trades", "0 3 * * *")).unwrap();
        let refused =
            format!("{:?}", write(of("other", "0 3 * * *"), of("trades", "0 3 * * *")).unwrap_err());
        assert!(refused.contains("spec.database is immutable"), "{refused}");
    }
}
