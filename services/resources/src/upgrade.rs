//! What became of the last upgrade of a database.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The last change from one container image to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeStatus {
    /// Image before.
    pub from: String,
    /// Image that was asked for.
    pub to: String,
    /// What became of it.
    pub result: UpgradeResult,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The `QuestDBSnapshot` that was taken before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The restart that was asked for with it.
    #[serde(default, alias = "nonce", skip_serializing_if = "Option::is_none")]
    pub restart_nonce: Option<String>,
    /// Its process has begun once, in whatever pod, and may have written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begun: bool,
    /// Another image was asked for since: this one may be tried again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub answered: bool,
    /// Nothing has served since it was taken back: another image may be started on the disk without another snapshot. What was
    /// acknowledged after this one was begun, until `from` stopped, is on the disk alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub complete: bool,
    /// Uid of the pod in which the image before was put back. Another pod may have served before anybody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put_back: Option<String>,
    /// When QuestDB was first told to start as the new image.
    pub started_at: Time,
    /// When it was known what became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
}

/// What became of an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpgradeResult {
    /// Not known yet.
    Running,
    /// The new image serves.
    Succeeded,
    /// The new image did not start: the image before was put back.
    RolledBack,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_under_an_earlier_name_is_read() {
        let text =
            r#"{"from":"a","to":"b","result":"Running","nonce":"7","startedAt":"2026-01-01T00:00:00Z"}"#;
        let read: UpgradeStatus = serde_json::from_str(text).unwrap();
        assert_eq!((read.restart_nonce.as_deref(), read.begun), (Some("7"), false));
    }
}
