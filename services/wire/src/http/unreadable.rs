//! What a list has in the place of a row that cannot be read.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A row that is there and that this program cannot read, because a newer one wrote it or because it is damaged: as much of it as
/// is certain. Nothing of it was changed, and what it asks for goes on as before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unreadable {
    /// Identity of the database, or of the operation in a list of operations.
    pub id: Uuid,
    /// Which database.
    pub database_id: Uuid,
    /// Its name.
    pub name: String,
    /// Whose.
    pub tenant: String,
    /// Epoch of the row.
    pub epoch: i64,
    /// Seq of the row.
    pub seq: i64,
    /// What cannot be read.
    pub detail: String,
}

/// A registered cluster that is there and that this program cannot read: no new database is placed there, and what is meant for its
/// databases waits. Nothing of it was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnreadableCluster {
    /// Identity.
    pub id: String,
    /// AWS region.
    pub region: String,
    /// What cannot be read.
    pub detail: String,
}
