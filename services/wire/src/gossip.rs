//! Gossip: what was done with an instruction, and what is seen of a database.

use domain::operation::StepState;
use domain::{ClusterId, DatabaseId, InstructionId, OperationId, Position};
use prost::Message as _;

use crate::decode::{Error, field, milliseconds, optional_time, time, word};
use crate::instruction::position;
use crate::{SCHEMA, proto};

/// One record of the gossip topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gossip {
    /// About which database.
    pub database: DatabaseId,
    /// The cluster that speaks.
    pub cluster: ClusterId,
    /// When.
    pub said_at: jiff::Timestamp,
    /// What.
    pub said: Said,
}

/// What is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// About an instruction.
    Outcome(Outcome),
    /// About the custom resource; boxed, because it is much the larger.
    Observation(Box<Observation>),
}

/// What became of an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Position of the instruction.
    pub position: Position,
    /// The instruction.
    pub instruction: InstructionId,
    /// Its operation.
    pub operation: OperationId,
    /// What became of it.
    pub kind: OutcomeKind,
    /// Stable reason; empty when applied.
    pub code: String,
    /// For people.
    pub message: String,
}

/// What can become of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutcomeKind {
    /// The custom resource holds it.
    Applied,
    /// The custom resource held something newer.
    Superseded,
    /// Set aside until its cluster can take it.
    Parked,
    /// Will never be taken.
    Refused,
}

/// Everything seen of a custom resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// Position that the spec holds.
    pub position: Position,
    /// Term of the observer.
    pub term: i64,
    /// Resource version of the object.
    pub resource_version: u64,
    /// False: the custom resource is gone.
    pub present: bool,
    /// Content hash that the spec carries.
    pub content_hash: String,
    /// Phase.
    pub phase: String,
    /// Position carried out in full.
    pub carried_out: Option<Position>,
    /// Conditions.
    pub conditions: Vec<Condition>,
    /// Steps in order.
    pub steps: Vec<Step>,
    /// Addresses, once there are any.
    pub endpoints: Option<proto::Endpoints>,
    /// The machine, once there is one.
    pub node: Option<proto::Node>,
    /// The volume, once there is one.
    pub volume: Option<proto::Volume>,
    /// The DNS name, once there is one.
    pub dns: Option<proto::Dns>,
    /// Namespace of the custom resource.
    pub namespace: String,
    /// Name of the custom resource.
    pub resource_name: String,
    /// Name of the Secret with the credentials.
    pub credentials_secret: String,
    /// Trace of the instruction last applied.
    pub traceparent: String,
    /// Size of the volume in GiB that the spec asks for, whatever size it has by now; 0 if that was not told.
    pub asked_size_gib: u32,
    /// Content hash of what was carried out; empty if that was not told.
    pub carried_hash: String,
}

/// A condition of the custom resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Kind, such as `Ready`.
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Since when.
    pub changed_at: Option<jiff::Timestamp>,
}

/// A step of provisioning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Such as `volume`.
    pub name: String,
    /// How far.
    pub state: StepState,
    /// What is waited for.
    pub message: String,
    /// Begun.
    pub started_at: Option<jiff::Timestamp>,
    /// Ended.
    pub ended_at: Option<jiff::Timestamp>,
}

impl Gossip {
    /// The schema that gossip is written in: nothing was added to it since.
    pub const SCHEMA: u32 = 1;

    /// The record's key.
    pub fn key(&self) -> String {
        self.database.to_string()
    }

    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let said = match &self.said {
            Said::Outcome(outcome) => proto::gossip::Said::Outcome(outcome.into()),
            Said::Observation(observation) => proto::gossip::Said::Observation((&**observation).into()),
        };
        let message = proto::Gossip {
            schema: Self::SCHEMA,
            min_reader: 1,
            database_id: self.database.to_string(),
            cluster_id: self.cluster.to_string(),
            said_at_ms: self.said_at.as_millisecond(),
            said: Some(said),
        };
        message.encode_to_vec()
    }

    /// Reads a record's bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let message =
            proto::Gossip::decode(bytes).map_err(|error| Error::Undecodable { reason: error.to_string() })?;
        if message.min_reader > SCHEMA {
            return Err(Error::ReaderTooOld { needed: message.min_reader, known: SCHEMA });
        }
        let said =
            match message.said.ok_or_else(|| Error::bad("said", "is missing or not known to this reader"))? {
                proto::gossip::Said::Outcome(outcome) => Said::Outcome(outcome.try_into()?),
                proto::gossip::Said::Observation(observation) => {
                    Said::Observation(Box::new(observation.try_into()?))
                }
            };
        Ok(Self {
            database: field("database_id", &message.database_id)?,
            cluster: field("cluster_id", &message.cluster_id)?,
            said_at: time("said_at_ms", message.said_at_ms)?,
            said,
        })
    }
}

impl From<&Outcome> for proto::Outcome {
    fn from(outcome: &Outcome) -> Self {
        let disposition = match outcome.kind {
            OutcomeKind::Applied => proto::Disposition::Applied,
            OutcomeKind::Superseded => proto::Disposition::Superseded,
            OutcomeKind::Parked => proto::Disposition::Parked,
            OutcomeKind::Refused => proto::Disposition::Refused,
        };
        Self {
            epoch: outcome.position.epoch,
            seq: outcome.position.seq,
            instruction_id: outcome.instruction.to_string(),
            operation_id: outcome.operation.to_string(),
            disposition: disposition.into(),
            code: outcome.code.clone(),
            message: outcome.message.clone(),
        }
    }
}

impl TryFrom<proto::Outcome> for Outcome {
    type Error = Error;

    fn try_from(message: proto::Outcome) -> Result<Self, Error> {
        let kind = match message.disposition() {
            proto::Disposition::Applied => OutcomeKind::Applied,
            proto::Disposition::Superseded => OutcomeKind::Superseded,
            proto::Disposition::Parked => OutcomeKind::Parked,
            proto::Disposition::Refused => OutcomeKind::Refused,
            proto::Disposition::Unspecified => {
                return Err(Error::bad("disposition", "is not given or not known to this reader"));
            }
        };
        Ok(Self {
            position: position(message.epoch, message.seq)?,
            instruction: field("instruction_id", &message.instruction_id)?,
            operation: field("operation_id", &message.operation_id)?,
            kind,
            code: message.code,
            message: message.message,
        })
    }
}

impl From<&Observation> for proto::Observation {
    fn from(seen: &Observation) -> Self {
        Self {
            epoch: seen.position.epoch,
            seq: seen.position.seq,
            term: seen.term,
            resource_version: seen.resource_version,
            present: seen.present,
            content_hash: seen.content_hash.clone(),
            phase: seen.phase.clone(),
            carried_epoch: seen.carried_out.map_or(0, |position| position.epoch),
            carried_seq: seen.carried_out.map_or(0, |position| position.seq),
            conditions: seen.conditions.iter().map(Into::into).collect(),
            steps: seen.steps.iter().map(Into::into).collect(),
            endpoints: seen.endpoints.clone(),
            node: seen.node.clone(),
            volume: seen.volume.clone(),
            dns: seen.dns.clone(),
            namespace: seen.namespace.clone(),
            resource_name: seen.resource_name.clone(),
            credentials_secret: seen.credentials_secret.clone(),
            traceparent: seen.traceparent.clone(),
            asked_size_gib: seen.asked_size_gib,
            carried_hash: seen.carried_hash.clone(),
        }
    }
}

impl TryFrom<proto::Observation> for Observation {
    type Error = Error;

    fn try_from(message: proto::Observation) -> Result<Self, Error> {
        let carried_out = match (message.carried_epoch, message.carried_seq) {
            (0, 0) => None,
            (epoch, seq) => Some(position(epoch, seq)?),
        };
        Ok(Self {
            position: position(message.epoch, message.seq)?,
            term: message.term,
            resource_version: message.resource_version,
            present: message.present,
            content_hash: message.content_hash,
            phase: message.phase,
            carried_out,
            conditions: message.conditions.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            steps: message.steps.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            endpoints: message.endpoints,
            node: message.node,
            volume: message.volume,
            dns: message.dns,
            namespace: message.namespace,
            resource_name: message.resource_name,
            credentials_secret: message.credentials_secret,
            traceparent: message.traceparent,
            asked_size_gib: message.asked_size_gib,
            carried_hash: message.carried_hash,
        })
    }
}

impl From<&Condition> for proto::Condition {
    fn from(condition: &Condition) -> Self {
        Self {
            r#type: condition.kind.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            changed_at_ms: milliseconds(condition.changed_at),
        }
    }
}

impl TryFrom<proto::Condition> for Condition {
    type Error = Error;

    fn try_from(message: proto::Condition) -> Result<Self, Error> {
        Ok(Self {
            kind: message.r#type,
            status: message.status,
            reason: message.reason,
            message: message.message,
            changed_at: optional_time("conditions.changed_at_ms", message.changed_at_ms)?,
        })
    }
}

impl From<&Step> for proto::Step {
    fn from(step: &Step) -> Self {
        Self {
            name: step.name.clone(),
            state: step.state.to_string(),
            message: step.message.clone(),
            started_at_ms: milliseconds(step.started_at),
            ended_at_ms: milliseconds(step.ended_at),
        }
    }
}

impl TryFrom<proto::Step> for Step {
    type Error = Error;

    fn try_from(message: proto::Step) -> Result<Self, Error> {
        Ok(Self {
            name: message.name,
            state: word("steps.state", &message.state, StepState::parse)?,
            message: message.message,
            started_at: optional_time("steps.started_at_ms", message.started_at_ms)?,
            ended_at: optional_time("steps.ended_at_ms", message.ended_at_ms)?,
        })
    }
}

#[cfg(test)]
mod tests;
