//! The desired state in protobuf, there and back.

use domain::{Compute, DeletionPolicy, Desired, Exposure, Network, RunState, Storage, VolumeType};

use crate::decode::{Error, field, word};
use crate::proto;

impl From<&Desired> for proto::DesiredDatabase {
    fn from(desired: &Desired) -> Self {
        Self {
            name: desired.name.to_string(),
            run_state: run_state(desired.run_state).into(),
            version: desired.version.clone(),
            compute: Some(proto::Compute {
                instance_type: desired.compute.instance_type.clone(),
                node_image: desired.compute.node_image.clone(),
            }),
            storage: Some(storage(&desired.storage)),
            config: desired.config.clone(),
            network: Some(proto::Network {
                hostname: desired.network.hostname.clone(),
                allowed_cidrs: desired.network.allowed_cidrs.clone(),
                exposure: desired.network.exposure.to_string(),
            }),
            restart_nonce: desired.restart_nonce.clone(),
            deletion_protection: desired.deletion_protection,
        }
    }
}

impl TryFrom<proto::DesiredDatabase> for Desired {
    type Error = Error;

    fn try_from(message: proto::DesiredDatabase) -> Result<Self, Error> {
        let run_state = run_state_of(message.run_state())?;
        let compute = message.compute.ok_or_else(|| Error::bad("desired.compute", "is missing"))?;
        let network = message.network.ok_or_else(|| Error::bad("desired.network", "is missing"))?;
        let storage = message.storage.ok_or_else(|| Error::bad("desired.storage", "is missing"))?;
        let desired = Self {
            name: field("desired.name", &message.name)?,
            run_state,
            version: message.version,
            compute: Compute { instance_type: compute.instance_type, node_image: compute.node_image },
            storage: storage_of(&storage)?,
            config: message.config,
            network: Network {
                hostname: network.hostname,
                allowed_cidrs: network.allowed_cidrs,
                exposure: word("desired.network.exposure", &network.exposure, Exposure::parse)?,
            },
            restart_nonce: message.restart_nonce,
            deletion_protection: message.deletion_protection,
        };
        if desired.contradicts_itself() {
            return Err(Error::bad("desired.deletion_protection", "protects what desired.run_state ends"));
        }
        Ok(desired)
    }
}

fn storage(storage: &Storage) -> proto::Storage {
    proto::Storage {
        size_gib: storage.size_gib,
        r#type: storage.volume_type.to_string(),
        iops: storage.iops,
        throughput: storage.throughput,
        provisioned: storage.provisioned,
        deletion_policy: storage.deletion_policy.to_string(),
    }
}

fn storage_of(message: &proto::Storage) -> Result<Storage, Error> {
    Ok(Storage {
        size_gib: message.size_gib,
        volume_type: word("desired.storage.type", &message.r#type, VolumeType::parse)?,
        iops: message.iops,
        throughput: message.throughput,
        provisioned: message.provisioned,
        deletion_policy: word(
            "desired.storage.deletion_policy",
            &message.deletion_policy,
            DeletionPolicy::parse,
        )?,
    })
}

const fn run_state(state: RunState) -> proto::RunState {
    match state {
        RunState::Running => proto::RunState::Running,
        RunState::Paused => proto::RunState::Paused,
        RunState::Deleted => proto::RunState::Deleted,
        RunState::Purged => proto::RunState::Purged,
    }
}

fn run_state_of(state: proto::RunState) -> Result<RunState, Error> {
    match state {
        proto::RunState::Running => Ok(RunState::Running),
        proto::RunState::Paused => Ok(RunState::Paused),
        proto::RunState::Deleted => Ok(RunState::Deleted),
        proto::RunState::Purged => Ok(RunState::Purged),
        proto::RunState::Unspecified => {
            Err(Error::bad("desired.run_state", "is not given or not known to this reader"))
        }
    }
}
