//! What was set aside, over HTTP: for those who run the fleet.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// What a cluster holds although nobody can say why. Nothing is deleted for standing here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unclaimed {
    /// The database, as the cluster calls it.
    pub database_id: Uuid,
    /// The cluster that holds it.
    pub cluster: String,
    /// `unknown_database`, `other_cluster`, `ahead` (a state that was never asked for) or `content` (other content at an
    /// equal position).
    #[schema(example = "unknown_database")]
    pub code: String,
    /// Epoch that it holds.
    pub epoch: i64,
    /// Seq that it holds.
    pub seq: i64,
    /// Namespace of the custom resource.
    pub namespace: String,
    /// Name of the custom resource.
    pub resource_name: String,
    /// How often it was said.
    pub seen: i64,
    /// First.
    #[schema(value_type = String, format = DateTime)]
    pub first_seen: jiff::Timestamp,
    /// Last.
    #[schema(value_type = String, format = DateTime)]
    pub last_seen: jiff::Timestamp,
    /// Since when it is no longer so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub resolved_at: Option<jiff::Timestamp>,
}

/// A page of what is unclaimed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnclaimedList {
    /// The page.
    pub unclaimed: Vec<Unclaimed>,
    /// Pass as `cursor` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// An instruction that waits because its cluster cannot take it now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Parked {
    /// Of which database.
    pub database_id: Uuid,
    /// The cluster it is for.
    pub cluster: String,
    /// Its epoch.
    pub epoch: i64,
    /// Its seq.
    pub seq: i64,
    /// Why, as a stable code such as `unreachable`.
    #[schema(example = "unreachable")]
    pub code: String,
    /// Why.
    pub message: String,
    /// How often it was tried since.
    pub attempts: i64,
    /// Since when it waits.
    #[schema(value_type = String, format = DateTime)]
    pub parked_at: jiff::Timestamp,
    /// When it is tried next, while its cluster answers.
    #[schema(value_type = String, format = DateTime)]
    pub retry_at: jiff::Timestamp,
}

/// A page of what is parked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ParkedList {
    /// The page.
    pub parked: Vec<Parked>,
    /// Pass as `cursor` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A record that cannot be understood or carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetter {
    /// Identity.
    pub id: i64,
    /// Topic it came from.
    pub topic: String,
    /// Partition it came from.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// The database, where its key says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_id: Option<Uuid>,
    /// The cluster, where a header says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Why, as a stable code such as `undecodable`.
    #[schema(example = "undecodable")]
    pub code: String,
    /// Why.
    pub message: String,
    /// Bytes of its content.
    pub size: i64,
    /// Who set it aside.
    pub consumer: String,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub received_at: jiff::Timestamp,
    /// Since when a later record of its database has taken its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub superseded_at: Option<jiff::Timestamp>,
}

/// A page of dead letters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterList {
    /// The page, the latest first.
    pub dead_letters: Vec<DeadLetter>,
    /// Pass as `cursor` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}
