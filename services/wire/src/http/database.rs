//! Databases over HTTP.

use std::collections::BTreeMap;

use domain::request::{Change, Create};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::operation::{Operation, Step};
use super::unreadable::Unreadable;

/// Asks for a new database.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateDatabase {
    /// RFC 1123 label of at most 40 characters, unique among the tenant's living databases.
    #[schema(example = "trades", max_length = 40)]
    pub name: String,
    /// AWS region.
    #[schema(example = "eu-west-1")]
    pub region: String,
    /// QuestDB version on offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute: Option<ComputeWish>,
    /// The volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageWish>,
    /// Keys of server.conf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<BTreeMap<String, String>>,
    /// Who may connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkWish>,
    /// Whether nobody may delete the database: while it is true, a delete is refused with `protected`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_protection: Option<bool>,
    /// What to do if this fails for good: `revert` (unless given: the database is taken back) or `keep` (it
    /// stays as it was asked for, and is tried on and on).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "revert")]
    pub on_failure: Option<String>,
}

/// Asks for a change; what is left out stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateDatabase {
    /// QuestDB version on offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute: Option<ComputeWish>,
    /// The volume. A size that was not carried out can be taken back to no less than the disk has (`observed.volume_size_gib`)
    /// or is being given; beside that it only grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageWish>,
    /// All keys of server.conf; replaces what was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<BTreeMap<String, String>>,
    /// Who may connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkWish>,
    /// Whether nobody may delete the database: while it is true, a delete is refused with `protected`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_protection: Option<bool>,
    /// What to do if this fails for good: `revert` (unless given: the database returns to its last good state) or `keep` (it
    /// stays as it was asked for, and is tried on and on).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "revert")]
    pub on_failure: Option<String>,
}

/// Asks that the volume is destroyed which a deletion kept: `:purge`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PurgeDatabase {
    /// The database's name once more, so that no other one is meant.
    #[schema(example = "trades")]
    pub confirm: String,
    /// Why, for those who look later: 1 to 500 characters on one line.
    #[schema(example = "INC-42: the customer left")]
    pub reason: String,
}

/// A wish about the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ComputeWish {
    /// EC2 instance type on offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
}

/// A wish about the volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageWish {
    /// GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_gib: Option<i64>,
    /// EBS volume type.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
    /// I/O operations a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<i64>,
    /// MiB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<i64>,
    /// What becomes of the volume when the database is deleted: `retain` keeps it, `snapshot` destroys it once a last copy of it
    /// is complete, and keeps that, `delete` destroys it.
    #[schema(example = "snapshot")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<String>,
}

/// A wish about the network.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkWish {
    /// CIDRs that may connect; replaces what was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_cidrs: Option<Vec<String>>,
    /// `internal`, or `public`, which needs at least one CIDR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exposure: Option<String>,
}

/// A database: what should be, and what is seen of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Database {
    /// Identity; never reused.
    pub id: Uuid,
    /// Name.
    pub name: String,
    /// Whose.
    pub tenant: String,
    /// AWS region.
    pub region: String,
    /// Cluster.
    pub cluster: String,
    /// `running`, `paused`, `deleted` or `purged`: what should be.
    pub run_state: String,
    /// QuestDB version.
    pub version: String,
    /// EC2 instance type.
    pub instance_type: String,
    /// The volume as it should be.
    pub storage: Storage,
    /// Keys of server.conf.
    pub config: BTreeMap<String, String>,
    /// DNS name.
    pub hostname: String,
    /// CIDRs that may connect.
    pub allowed_cidrs: Vec<String>,
    /// `internal` or `public`.
    pub exposure: String,
    /// Whether nobody may delete it.
    #[serde(default)]
    pub deletion_protection: bool,
    /// Epoch of the desired state.
    pub epoch: i64,
    /// Seq of the desired state; rises with every change.
    pub seq: i64,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: jiff::Timestamp,
    /// When its desired state last changed.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: jiff::Timestamp,
    /// When its deletion was asked for; absent while it lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deleted_at: Option<jiff::Timestamp>,
    /// How its cluster is known to differ from what should be: `missing`, `lagging` (shows an older state), `ahead` (shows
    /// a state that was never asked for) or `content`; absent while it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "lagging")]
    pub diverged: Option<String>,
    /// Since when that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub diverged_since: Option<jiff::Timestamp>,
    /// Since when nothing of a purged database is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub purged_at: Option<jiff::Timestamp>,
    /// When Kafka took the desired state for its cluster; absent while that waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub published_at: Option<jiff::Timestamp>,
    /// When it was last asked that the desired state is published again, by a person or because its cluster does not show
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub resent_at: Option<jiff::Timestamp>,
    /// What is seen of it; absent until its cluster has spoken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Observed>,
    /// Its newest operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<Uuid>,
}

/// The volume as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Storage {
    /// GiB.
    pub size_gib: u32,
    /// EBS volume type.
    #[serde(rename = "type")]
    pub volume_type: String,
    /// I/O operations a second.
    pub iops: u32,
    /// MiB/s.
    pub throughput: u32,
    /// What becomes of it when the database is deleted.
    pub deletion_policy: String,
}

/// What is seen of a database.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Observed {
    /// Phase, such as `Ready`.
    pub phase: String,
    /// Epoch carried out in full, 0 for none.
    pub epoch: i64,
    /// Seq carried out in full, 0 for none.
    pub seq: i64,
    /// Content hash of the state carried out in full, where that was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried_hash: Option<String>,
    /// Conditions.
    pub conditions: Vec<Condition>,
    /// Steps in order.
    pub steps: Vec<Step>,
    /// Addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<Endpoints>,
    /// The machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Node>,
    /// The EBS volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_id: Option<String>,
    /// Its size in GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_size_gib: Option<u32>,
    /// The size in GiB that the custom resource asks for: larger while the volume grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_size_gib: Option<u32>,
    /// State of the DNS name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns_state: Option<String>,
    /// Namespace of the custom resource.
    pub namespace: String,
    /// Name of the custom resource.
    pub resource_name: String,
    /// Name of the Secret with the credentials, in that namespace.
    pub credentials_secret: String,
    /// As of when this is what was seen.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub as_of: Option<jiff::Timestamp>,
}

/// Addresses of a database.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Endpoints {
    /// REST, web console, ILP over HTTP and QWP.
    pub http: String,
    /// PostgreSQL wire protocol, as a URI without credentials.
    pub postgres: String,
    /// ILP over HTTP, as `http://host:port`.
    pub ilp: String,
    /// Health and metrics.
    pub health: String,
}

/// The machine of a database.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Kubernetes node.
    pub name: String,
    /// Address.
    pub address: String,
    /// EC2 instance.
    pub instance_id: String,
    /// Whether the node is ready.
    pub ready: bool,
}

/// A condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Condition {
    /// Kind, such as `Ready`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub changed_at: Option<jiff::Timestamp>,
}

/// The answer to an accepted change: the database as it should be, and the operation to follow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Accepted {
    /// The database.
    pub database: Database,
    /// The operation that carries the change out.
    pub operation: Operation,
}

/// A page of databases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DatabaseList {
    /// The page.
    pub databases: Vec<Database>,
    /// Rows of the page that cannot be read, as far as they say whose they are; absent where all can.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
    /// Pass as `cursor` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

impl From<CreateDatabase> for Create {
    fn from(body: CreateDatabase) -> Self {
        let rest = UpdateDatabase {
            version: body.version,
            compute: body.compute,
            storage: body.storage,
            config: body.config,
            network: body.network,
            deletion_protection: body.deletion_protection,
            on_failure: body.on_failure,
        };
        Self { name: body.name, region: body.region, change: rest.into() }
    }
}

impl From<UpdateDatabase> for Change {
    fn from(body: UpdateDatabase) -> Self {
        let storage = body.storage.unwrap_or_default();
        let network = body.network.unwrap_or_default();
        Self {
            version: body.version,
            instance_type: body.compute.and_then(|compute| compute.instance_type),
            size_gib: storage.size_gib,
            volume_type: storage.volume_type,
            iops: storage.iops,
            throughput: storage.throughput,
            deletion_policy: storage.deletion_policy,
            config: body.config,
            allowed_cidrs: network.allowed_cidrs,
            exposure: network.exposure,
            deletion_protection: body.deletion_protection,
            on_failure: body.on_failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_refused_at_every_depth() {
        for body in [
            r#"{"name":"a","region":"r","colour":"red"}"#,
            r#"{"name":"a","region":"r","storage":{"size":1}}"#,
            r#"{"name":"a","region":"r","network":{"cidrs":[]}}"#,
        ] {
            let error = serde_json::from_str::<CreateDatabase>(body).unwrap_err();
            assert!(error.to_string().contains("unknown field"), "{error}");
        }
    }

    #[test]
    fn every_wish_reaches_the_domain() {
        let body = r#"{"name":"a","region":"r","version":"v","compute":{"instance_type":"t"},
            "storage":{"size_gib":1,"type":"y","iops":2,"throughput":3,"deletion_policy":"d"},
            "config":{"k":"v"},"network":{"allowed_cidrs":["c"],"exposure":"e"},"deletion_protection":true,
            "on_failure":"f"}"#;
        let create: Create = serde_json::from_str::<CreateDatabase>(body).unwrap().into();
        let expected = Change {
            version: Some("v".to_owned()),
            instance_type: Some("t".to_owned()),
            size_gib: Some(1),
            volume_type: Some("y".to_owned()),
            iops: Some(2),
            throughput: Some(3),
            deletion_policy: Some("d".to_owned()),
            config: Some(BTreeMap::from([("k".to_owned(), "v".to_owned())])),
            allowed_cidrs: Some(vec!["c".to_owned()]),
            exposure: Some("e".to_owned()),
            deletion_protection: Some(true),
            on_failure: Some("f".to_owned()),
        };
        assert_eq!(create, Create { name: "a".to_owned(), region: "r".to_owned(), change: expected });
    }
}
