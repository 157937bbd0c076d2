//! What was set aside, over HTTP: for those who run the fleet.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A database as the control plane knows it, beside what was set aside of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct About {
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub tenant: String,
    /// Epoch of its desired state.
    pub epoch: i64,
    /// Seq of its desired state.
    pub seq: i64,
}

/// What a cluster holds although nobody can say why. Nothing is deleted for standing here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unclaimed {
    /// The database, as the cluster calls it.
    pub database_id: Uuid,
    /// What is known of that database; absent where nobody knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<About>,
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
    /// What to do about it.
    #[serde(default)]
    pub advice: String,
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
    /// What is known of that database; absent where nobody knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<About>,
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
    /// How often it was tried.
    pub attempts: i64,
    /// Since when its database waits, in this state or an older one.
    #[schema(value_type = String, format = DateTime)]
    pub parked_at: jiff::Timestamp,
    /// When it is tried next, while its cluster answers.
    #[schema(value_type = String, format = DateTime)]
    pub retry_at: jiff::Timestamp,
    /// What to do about it.
    #[serde(default)]
    pub advice: String,
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
    /// What is known of that database; absent where nobody knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<About>,
    /// Epoch of its instruction, where its headers say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// Seq of its instruction, where its headers say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
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
    /// What became of it; absent while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
    /// What to do about it.
    #[serde(default)]
    pub advice: String,
}

/// What became of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Settled {
    /// `superseded` (a later state takes its place), `redriven` (the state that it stood for was published again) or
    /// `discarded`.
    #[serde(rename = "as")]
    #[schema(example = "redriven")]
    pub how: String,
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    pub at: jiff::Timestamp,
    /// Who did it; absent where a later record took its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A dead letter with all that came with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WholeLetter {
    /// The letter.
    #[serde(flatten)]
    pub letter: DeadLetter,
    /// What a redrive would come to now.
    pub redrive: Prospect,
    /// Its key, as far as it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its headers, in their order, as far as they are text.
    pub headers: Vec<Header>,
    /// What the instruction in it says; absent where there is none that can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<LetterInstruction>,
    /// Its bytes, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_hex: Option<String>,
}

/// What a redrive would come to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Prospect {
    /// Whether it would be carried out.
    pub possible: bool,
    /// `redriven` or `superseded` where it would, else the code of the refusal.
    pub outcome: String,
    /// The same in words.
    pub message: String,
}

/// A header of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Header {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// What an instruction among the dead letters says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LetterInstruction {
    /// About which database.
    pub database_id: Uuid,
    /// Name of that database.
    pub name: String,
    /// Whose it is.
    pub tenant: String,
    /// For which cluster.
    pub cluster: String,
    /// The operation that asked for it.
    pub operation_id: Uuid,
    /// `running`, `paused`, `deleted` or `purged`.
    pub run_state: String,
    /// Its epoch.
    pub epoch: i64,
    /// Its seq.
    pub seq: i64,
    /// Who asked.
    pub actor: String,
    /// When it was minted.
    #[schema(value_type = String, format = DateTime)]
    pub issued_at: jiff::Timestamp,
}

/// Asks that somebody's hand is laid on what was set aside: `:redrive`, `:discard`, `:resend`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Intervention {
    /// Why, for those who look later: 1 to 500 characters; needed unless it is a dry run.
    #[serde(default)]
    #[schema(example = "INC-42: the definition was upgraded")]
    pub reason: String,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// What was done about a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SettledLetter {
    /// The letter as it is afterwards.
    pub dead_letter: DeadLetter,
    /// `redriven` (the letter stood for the newest state, which is published again), `superseded` (the letter is older: the
    /// newest state is published in its place) or `discarded`.
    #[schema(example = "redriven")]
    pub outcome: String,
    /// The same in words.
    pub message: String,
    /// Nothing was done: this is what would be.
    pub dry_run: bool,
}

/// What was done so that a database's state is published again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Resent {
    /// The database. Its `published_at` comes back when Kafka took the state.
    pub database: super::Database,
    /// What happens, in words.
    pub message: String,
    /// Nothing was done: this is what would be.
    pub dry_run: bool,
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
