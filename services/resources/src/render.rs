//! A desired state becomes a spec. Pure and total: the same desired state always gives the same bytes, with every list
//! in a fixed order and nothing written that is not there, so that saying an instruction again changes nothing.

use std::collections::BTreeMap;

use domain::{DatabaseId, Desired, InstructionId, Position, TenantId};
use kube::core::ObjectMeta;

use crate::names;
use crate::spec::{
    ComputeSpec, DeletionPolicy, Exposure, InstructionSpec, NetworkSpec, QuestDB, QuestDBSpec, RunState,
    StorageSpec, VolumeType,
};

/// What an instruction says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Identity of the instruction.
    pub id: InstructionId,
    /// Identity of the database.
    pub database: DatabaseId,
    /// Its place in the database's history.
    pub position: Position,
    /// Hash of the desired state.
    pub hash: String,
}

/// The spec of a desired state; `instruction` is `None` only where no fence is wanted.
pub fn render(desired: &Desired, instruction: Option<&Instruction>) -> QuestDBSpec {
    let Desired {
        name: _,
        run_state,
        version,
        compute,
        storage,
        config,
        network,
        restart_nonce,
        deletion_protection,
    } = desired;
    QuestDBSpec {
        instruction: instruction.map(instruction_spec),
        run_state: run_state_spec(*run_state),
        version: version.clone(),
        image: None,
        compute: ComputeSpec {
            instance_type: compute.instance_type.clone(),
            node_image: compute.node_image.clone(),
        },
        storage: storage_spec(storage),
        config: config.clone(),
        network: NetworkSpec {
            hostname: Some(network.hostname.clone()),
            allowed_cidrs: sorted(&network.allowed_cidrs),
            exposure: match network.exposure {
                domain::Exposure::Internal => Exposure::Internal,
                domain::Exposure::Public => Exposure::Public,
            },
            ..NetworkSpec::default()
        },
        credentials: None,
        pod: None,
        restart_nonce: restart_nonce.clone(),
        deletion_protection: *deletion_protection,
        zone: None,
    }
}

/// The whole object that is applied: name, labels and trace beside the spec.
pub fn object(
    desired: &Desired,
    instruction: &Instruction,
    tenant: &TenantId,
    namespace: &str,
    traceparent: Option<&str>,
) -> QuestDB {
    let labels = BTreeMap::from([
        (names::LABEL_DATABASE.to_owned(), instruction.database.to_string()),
        (names::LABEL_DATABASE_NAME.to_owned(), desired.name.to_string()),
        (names::LABEL_TENANT.to_owned(), tenant.to_string()),
        (names::LABEL_MANAGED_BY.to_owned(), names::PROVISIONER.to_owned()),
    ]);
    let trace = traceparent.map(|parent| (names::TRACEPARENT.to_owned(), parent.to_owned()));
    let metadata = ObjectMeta {
        name: Some(domain::id::resource_name(&desired.name, instruction.database)),
        namespace: Some(namespace.to_owned()),
        labels: Some(labels),
        annotations: trace.map(|pair| BTreeMap::from([pair])),
        ..ObjectMeta::default()
    };
    QuestDB { metadata, spec: render(desired, Some(instruction)), status: None }
}

/// Each once, in an order that does not depend on how they were written.
pub fn sorted(texts: &[String]) -> Vec<String> {
    let mut texts = texts.to_vec();
    texts.sort_unstable();
    texts.dedup();
    texts
}

fn instruction_spec(instruction: &Instruction) -> InstructionSpec {
    InstructionSpec {
        id: instruction.id.to_string(),
        database_id: instruction.database.to_string(),
        epoch: instruction.position.epoch,
        seq: instruction.position.seq,
        render: names::RENDER,
        hash: instruction.hash.clone(),
    }
}

const fn run_state_spec(state: domain::RunState) -> RunState {
    match state {
        domain::RunState::Running => RunState::Running,
        domain::RunState::Paused => RunState::Paused,
        domain::RunState::Deleted => RunState::Deleted,
        domain::RunState::Purged => RunState::Purged,
    }
}

fn storage_spec(storage: &domain::Storage) -> StorageSpec {
    StorageSpec {
        size_gib: storage.size_gib,
        volume_type: match storage.volume_type {
            domain::VolumeType::Gp3 => VolumeType::Gp3,
            domain::VolumeType::Io2 => VolumeType::Io2,
        },
        iops: storage.iops,
        throughput: storage.throughput,
        provisioned: storage.provisioned,
        deletion_policy: match storage.deletion_policy {
            domain::DeletionPolicy::Retain => DeletionPolicy::Retain,
            domain::DeletionPolicy::Snapshot => DeletionPolicy::Snapshot,
            domain::DeletionPolicy::Delete => DeletionPolicy::Delete,
        },
        source: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired() -> Desired {
        Desired {
            name: "trades".parse().unwrap(),
            run_state: domain::RunState::Running,
            version: "9.3.4".to_owned(),
            compute: domain::Compute { instance_type: "m7i.large".to_owned(), node_image: None },
            storage: domain::Storage {
                size_gib: 50,
                volume_type: domain::VolumeType::Gp3,
                iops: 3_000,
                throughput: 125,
                provisioned: false,
                deletion_policy: domain::DeletionPolicy::Retain,
            },
            config: BTreeMap::from([("cairo.max.uncommitted.rows".to_owned(), "1000".to_owned())]),
            network: domain::Network {
                hostname: "trades-1.eu.example.com".to_owned(),
                allowed_cidrs: vec![
                    "10.1.0.0/16".to_owned(),
                    "10.0.0.0/16".to_owned(),
                    "10.1.0.0/16".to_owned(),
                ],
                exposure: domain::Exposure::Internal,
            },
            restart_nonce: None,
            deletion_protection: false,
        }
    }

    fn instruction() -> Instruction {
        Instruction {
            id: "0192f3a4-5b6c-7d8e-9f00-000000000001".parse().unwrap(),
            database: "0192f3a4-5b6c-7d8e-9f00-112233445566".parse().unwrap(),
            position: Position { epoch: 1, seq: 3 },
            hash: "abc".to_owned(),
        }
    }

    #[test]
    fn the_object_is_as_recorded() {
        let tenant = "acme".parse().unwrap();
        let object = object(&desired(), &instruction(), &tenant, "qdb-acme", Some("00-1-2-01"));
        insta::assert_yaml_snapshot!(object);
    }

    /// States in which every word and every part stands once.
    fn states() -> [Desired; 4] {
        let in_state = |run_state| Desired { run_state, ..desired() };
        let mut other = in_state(domain::RunState::Paused);
        other.compute.node_image = Some("ami-1".to_owned());
        other.storage.volume_type = domain::VolumeType::Io2;
        other.storage.provisioned = true;
        other.storage.deletion_policy = domain::DeletionPolicy::Snapshot;
        other.config.clear();
        other.network.allowed_cidrs.clear();
        other.network.exposure = domain::Exposure::Public;
        other.restart_nonce = Some("2".to_owned());
        other.deletion_protection = true;
        let mut deleted = in_state(domain::RunState::Deleted);
        deleted.storage.deletion_policy = domain::DeletionPolicy::Delete;
        [desired(), other, deleted, in_state(domain::RunState::Purged)]
    }

    /// FNV-1a: the same in every release.
    fn checksum(text: &str) -> u64 {
        let start = 0xcbf2_9ce4_8422_2325_u64;
        text.bytes().fold(start, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }

    /// What each version made of [`states`]. Rows are added and never changed: a program of that version may still run.
    const RENDERED: &[(i64, u64)] = &[(1, 0xef18_e13d_8f9f_1d32)];

    #[test]
    fn what_is_rendered_changes_with_its_version_alone() {
        let specs = states().map(|state| render(&state, Some(&instruction())));
        let text = serde_json::to_string(&specs).unwrap();
        assert_eq!(
            RENDERED.last().copied(),
            Some((names::RENDER, checksum(&text))),
            "another spec than before is made of the same states: raise `names::RENDER`, or programs of both kinds undo each \
             other's work for as long as both run, and add a row to `RENDERED`. What is made: {text}"
        );
        assert!(RENDERED.is_sorted_by(|before, after| before.0 < after.0), "one row for each version");
    }

    #[test]
    fn the_order_of_lists_does_not_matter() {
        let mut other = desired();
        other.network.allowed_cidrs.reverse();
        assert_eq!(render(&desired(), Some(&instruction())), render(&other, Some(&instruction())));
    }

    #[test]
    fn what_is_rendered_is_what_is_read_back() {
        let spec = render(&desired(), Some(&instruction()));
        let text = serde_json::to_string(&spec).unwrap();
        assert!(!text.contains("null"), "{text}");
        assert_eq!(serde_json::from_str::<QuestDBSpec>(&text).unwrap(), spec);
    }
}
