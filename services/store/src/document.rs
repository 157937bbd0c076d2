//! The desired state as it lies in a JSON column. Fields are only ever added; the schema number stands beside the column.

use std::collections::BTreeMap;

use domain::{Compute, DeletionPolicy, Desired, Exposure, Network, RunState, Storage, VolumeType};
use serde::{Deserialize, Serialize};

/// The newest schema that is read.
pub(crate) const SCHEMA: i32 = 2;

/// The oldest schema that has everything in a desired state. Nobody may read it who knows less, and would drop a protection or
/// a last copy with the next change: that costs the data that they were to keep.
pub(crate) fn written_in(desired: &Desired) -> i32 {
    let is_second =
        desired.deletion_protection || desired.storage.deletion_policy == DeletionPolicy::Snapshot;
    if is_second { 2 } else { 1 }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DesiredDocument {
    name: String,
    run_state: String,
    version: String,
    compute: ComputeDocument,
    storage: StorageDocument,
    #[serde(default)]
    config: BTreeMap<String, String>,
    network: NetworkDocument,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restart_nonce: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    deletion_protection: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct ComputeDocument {
    instance_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node_image: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct StorageDocument {
    size_gib: u32,
    r#type: String,
    iops: u32,
    throughput: u32,
    provisioned: bool,
    deletion_policy: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct NetworkDocument {
    hostname: String,
    #[serde(default)]
    allowed_cidrs: Vec<String>,
    exposure: String,
}

impl From<&Desired> for DesiredDocument {
    fn from(desired: &Desired) -> Self {
        let (compute, storage, network) = (&desired.compute, &desired.storage, &desired.network);
        Self {
            name: desired.name.to_string(),
            run_state: desired.run_state.to_string(),
            version: desired.version.clone(),
            compute: ComputeDocument {
                instance_type: compute.instance_type.clone(),
                node_image: compute.node_image.clone(),
            },
            storage: StorageDocument {
                size_gib: storage.size_gib,
                r#type: storage.volume_type.to_string(),
                iops: storage.iops,
                throughput: storage.throughput,
                provisioned: storage.provisioned,
                deletion_policy: storage.deletion_policy.to_string(),
            },
            config: desired.config.clone(),
            network: NetworkDocument {
                hostname: network.hostname.clone(),
                allowed_cidrs: network.allowed_cidrs.clone(),
                exposure: network.exposure.to_string(),
            },
            restart_nonce: desired.restart_nonce.clone(),
            deletion_protection: desired.deletion_protection,
        }
    }
}

impl DesiredDocument {
    /// The desired state of a document of the given schema; the error says what cannot be read.
    pub(crate) fn read(self, schema: i32) -> Result<Desired, String> {
        if schema > SCHEMA {
            return Err(format!("schema {schema} of the desired state; this program reads {SCHEMA}"));
        }
        Ok(Desired {
            name: self.name.parse().map_err(|error: domain::id::Error| format!("name: {error}"))?,
            run_state: word("run_state", &self.run_state, RunState::parse)?,
            version: self.version,
            compute: Compute {
                instance_type: self.compute.instance_type,
                node_image: self.compute.node_image,
            },
            storage: Storage {
                size_gib: self.storage.size_gib,
                volume_type: word("storage.type", &self.storage.r#type, VolumeType::parse)?,
                iops: self.storage.iops,
                throughput: self.storage.throughput,
                provisioned: self.storage.provisioned,
                deletion_policy: word(
                    "storage.deletion_policy",
                    &self.storage.deletion_policy,
                    DeletionPolicy::parse,
                )?,
            },
            config: self.config,
            network: Network {
                hostname: self.network.hostname,
                allowed_cidrs: self.network.allowed_cidrs,
                exposure: word("network.exposure", &self.network.exposure, Exposure::parse)?,
            },
            restart_nonce: self.restart_nonce,
            deletion_protection: self.deletion_protection,
        })
    }
}

/// A word of a closed list.
pub(crate) fn word<T>(field: &str, text: &str, parse: fn(&str) -> Option<T>) -> Result<T, String> {
    parse(text).ok_or_else(|| format!("{field}: unknown word {text:?}"))
}

/// A text as Postgres takes it, which is every character but NUL, in columns and in documents: nobody must be able to stand
/// in the way of everybody else by saying it.
pub fn storable(text: impl Into<String>) -> String {
    let text = text.into();
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired() -> Desired {
        Desired {
            name: "trades".parse().unwrap(),
            run_state: RunState::Running,
            version: "9.3.4".to_owned(),
            compute: Compute { instance_type: "m7i.large".to_owned(), node_image: Some("ami-1".to_owned()) },
            storage: Storage {
                size_gib: 50,
                volume_type: VolumeType::Gp3,
                iops: 3_000,
                throughput: 125,
                provisioned: true,
                deletion_policy: DeletionPolicy::Retain,
            },
            config: BTreeMap::from([("cairo.max.uncommitted.rows".to_owned(), "1".to_owned())]),
            network: Network {
                hostname: "trades.example.com".to_owned(),
                allowed_cidrs: vec!["10.0.0.0/8".to_owned()],
                exposure: Exposure::Internal,
            },
            restart_nonce: Some("1".to_owned()),
            deletion_protection: true,
        }
    }

    fn journey(desired: &Desired) -> Desired {
        let text = serde_json::to_string(&DesiredDocument::from(desired)).unwrap();
        serde_json::from_str::<DesiredDocument>(&text).unwrap().read(SCHEMA).unwrap()
    }

    #[test]
    fn states_survive_the_journey() {
        let full = desired();
        assert_eq!(journey(&full), full);
        let mut bare = full;
        bare.compute.node_image = None;
        bare.restart_nonce = None;
        bare.deletion_protection = false;
        bare.config.clear();
        bare.network.allowed_cidrs.clear();
        assert_eq!(journey(&bare), bare);
    }

    #[test]
    fn who_knows_no_protection_and_no_last_copy_reads_neither() {
        let mut plain = Desired { deletion_protection: false, ..desired() };
        plain.storage.deletion_policy = DeletionPolicy::Delete;
        assert_eq!(written_in(&plain), 1);
        let protected = Desired { deletion_protection: true, ..plain.clone() };
        let storage = Storage { deletion_policy: DeletionPolicy::Snapshot, ..plain.storage.clone() };
        let copied = Desired { storage, ..plain };
        assert_eq!([written_in(&protected), written_in(&copied)], [2, 2]);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let document = DesiredDocument::from(&desired());
        let newer = document.clone().read(SCHEMA + 1).unwrap_err();
        assert!(newer.contains("schema 3"), "{newer}");
        let wrong = DesiredDocument { run_state: "asleep".to_owned(), ..document }.read(SCHEMA).unwrap_err();
        assert!(wrong.contains("run_state") && wrong.contains("asleep"), "{wrong}");
    }
}
