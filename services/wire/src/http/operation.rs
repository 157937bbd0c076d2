//! Operations over HTTP, and the events of their streams.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::unreadable::Unreadable;

/// Something that was asked for, and how far it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// Identity.
    pub id: Uuid,
    /// `create`, `update`, `delete`, or the word it was asked for with: `pause`, `resume`, `restart`, `undelete`, `purge`.
    /// One that takes another operation back is an update or a delete, and names the other in `reverts`.
    pub kind: String,
    /// Which database.
    pub database_id: Uuid,
    /// Name of the database.
    pub database_name: String,
    /// Whose.
    pub tenant: String,
    /// `pending`, `running`, `succeeded`, `failed` or `superseded`.
    pub state: String,
    /// Steps in order.
    pub steps: Vec<Step>,
    /// Why it failed. What was done about it (see `on_failure`) has an operation of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<OperationError>,
    /// What happens if it fails for good. `revert`: a new database is taken back, a changed one returns to its last good
    /// state, by another operation that names this one in `reverts`. `keep`: it stays as it was asked for; past its
    /// deadline it does not fail but is overdue, and goes on.
    #[serde(default = "revert")]
    #[schema(example = "revert")]
    pub on_failure: String,
    /// By when it should be done; absent once it has ended. A create or update with `on_failure` `revert` fails then with
    /// the code `deadline`. Every other operation (a delete, a purge, one with `keep`, one that takes back) is never given up:
    /// it is overdue from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline_at: Option<jiff::Timestamp>,
    /// Since when it is late and goes on all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub overdue_since: Option<jiff::Timestamp>,
    /// The operation that this one takes back, because that one failed or was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverts: Option<Uuid>,
    /// The operation that took this one's place, where it is `superseded`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<Uuid>,
    /// Epoch that carries it out.
    pub epoch: i64,
    /// Seq that carries it out.
    pub seq: i64,
    /// Who asked.
    pub created_by: String,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: jiff::Timestamp,
    /// When it last moved.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: jiff::Timestamp,
    /// When it reached its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<jiff::Timestamp>,
    /// Trace of the request, to be found in logs and traces.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub trace_id: String,
}

fn revert() -> String {
    "revert".to_owned()
}

/// A named step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Step {
    /// Such as `volume`.
    pub name: String,
    /// `pending`, `running`, `succeeded` or `failed`.
    pub state: String,
    /// What is waited for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<jiff::Timestamp>,
    /// Ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<jiff::Timestamp>,
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationError {
    /// Stable code, such as `invalid`, `capacity` or `deadline`.
    pub code: String,
    /// What happened and what to do.
    pub message: String,
}

/// One event of an operation's stream. The SSE `id` is `number`, the SSE `event` is `kind`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationEvent {
    /// Numbered from 1 without gaps within the operation; long after its end only the last one is left.
    pub number: i64,
    /// `state` (the operation moved) or `step` (a step moved).
    pub kind: String,
    /// State of the operation after the event.
    pub state: String,
    /// The step, for `step`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// What is wrong, where it failed or is overdue (then its state goes on).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<OperationError>,
    /// When it was recorded.
    #[schema(value_type = String, format = DateTime)]
    pub at: jiff::Timestamp,
}

/// A page of operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationList {
    /// The page, newest first.
    pub operations: Vec<Operation>,
    /// Rows of the page that cannot be read, as far as they say whose they are; absent where all can.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
    /// Pass as `cursor` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}
