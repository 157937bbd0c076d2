//! An instruction: the whole desired state of a database at its position, on its way to a cluster.

use domain::{ClusterId, DatabaseId, DeletionPolicy, Desired, InstructionId, OperationId, OperationKind};
use domain::{Position, TenantId};
use prost::Message as _;

use crate::decode::{Error, field, time};
use crate::{SCHEMA, generation, hash, proto};

/// One minted desired state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// Its identity.
    pub id: InstructionId,
    /// Which database.
    pub database: DatabaseId,
    /// Whose.
    pub tenant: TenantId,
    /// Where it lives.
    pub cluster: ClusterId,
    /// The operation that asked for it.
    pub operation: OperationId,
    /// What that operation asked for, by its class.
    pub operation_kind: OperationKind,
    /// Where it stands in the database's history.
    pub position: Position,
    /// What should be.
    pub desired: Desired,
    /// When it was minted.
    pub issued_at: jiff::Timestamp,
    /// Who asked.
    pub actor: String,
}

impl Instruction {
    /// The record's key: the database's id as hyphenated text.
    pub fn key(&self) -> String {
        self.database.to_string()
    }

    /// The content hash of the desired state.
    pub fn content_hash(&self) -> String {
        hash::of(&self.desired)
    }

    /// The schema that its record is written in: the oldest that has everything in it.
    pub fn schema(&self) -> u32 {
        written_in(&self.desired)
    }

    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let schema = self.schema();
        let message = proto::Instruction {
            schema,
            min_reader: schema,
            instruction_id: self.id.to_string(),
            database_id: self.database.to_string(),
            tenant_id: self.tenant.to_string(),
            cluster_id: self.cluster.to_string(),
            operation_id: self.operation.to_string(),
            operation_kind: kind(self.operation_kind).into(),
            epoch: self.position.epoch,
            seq: self.position.seq,
            content_hash: self.content_hash(),
            desired: Some((&self.desired).into()),
            issued_at_ms: self.issued_at.as_millisecond(),
            actor: self.actor.clone(),
        };
        message.encode_to_vec()
    }

    /// Who it is, of a record that may be written for newer readers only: enough to tell somebody that it waits.
    pub fn identity(bytes: &[u8]) -> Option<(InstructionId, OperationId)> {
        let message = proto::Instruction::decode(bytes).ok()?;
        Some((message.instruction_id.parse().ok()?, message.operation_id.parse().ok()?))
    }

    /// Reads a record's bytes; the hash is checked against the state it stands for.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let message = match proto::Instruction::decode(bytes) {
            Ok(message) => message,
            Err(error) => {
                // What comes from a later generation need not have our fields; it still says that it does.
                Head::decode(bytes).map_or(Ok(()), |head| for_us(head.schema, head.min_reader))?;
                return Err(Error::Undecodable { reason: error.to_string() });
            }
        };
        for_us(message.schema, message.min_reader)?;
        let operation_kind = kind_of(message.operation_kind())?;
        let desired = message.desired.ok_or_else(|| Error::bad("desired", "is missing"))?;
        let instruction = Self {
            id: field("instruction_id", &message.instruction_id)?,
            database: field("database_id", &message.database_id)?,
            tenant: field("tenant_id", &message.tenant_id)?,
            cluster: field("cluster_id", &message.cluster_id)?,
            operation: field("operation_id", &message.operation_id)?,
            operation_kind,
            position: position(message.epoch, message.seq)?,
            desired: desired.try_into()?,
            issued_at: time("issued_at_ms", message.issued_at_ms)?,
            actor: message.actor,
        };
        // A newer writer's optional fields are not in our hash, so only records of no later schema than ours can be compared.
        if message.schema <= SCHEMA && instruction.content_hash() != message.content_hash {
            return Err(Error::bad("content_hash", "does not match the desired state"));
        }
        Ok(instruction)
    }
}

/// The oldest schema that has everything in a desired state. Nobody may read it who knows less: a last copy that is not taken and a
/// protection that is dropped cost the data that they were to keep.
fn written_in(desired: &Desired) -> u32 {
    let second = desired.deletion_protection || desired.storage.deletion_policy == DeletionPolicy::Snapshot;
    if second { 2 } else { 1 }
}

/// The two fields that every generation of the schema has.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
struct Head {
    #[prost(uint32, tag = "1")]
    schema: u32,
    #[prost(uint32, tag = "2")]
    min_reader: u32,
}

/// Whether this program may read a record of such versions.
fn for_us(schema: u32, min_reader: u32) -> Result<(), Error> {
    let (found, known) = (generation(schema.max(min_reader)), generation(SCHEMA));
    if found > known {
        return Err(Error::NewerMajor { found, known });
    }
    if min_reader > SCHEMA {
        return Err(Error::ReaderTooOld { needed: min_reader, known: SCHEMA });
    }
    Ok(())
}

pub(crate) fn position(epoch: i64, seq: i64) -> Result<Position, Error> {
    let position = Position { epoch, seq };
    if position.is_valid() {
        Ok(position)
    } else {
        Err(Error::bad("epoch/seq", format!("{position} is out of range")))
    }
}

/// By its class: readers of before know three kinds, would set aside what they do not know, and decide nothing by it.
const fn kind(kind: OperationKind) -> proto::OperationKind {
    match kind {
        OperationKind::Create => proto::OperationKind::Create,
        OperationKind::Delete | OperationKind::Purge => proto::OperationKind::Delete,
        OperationKind::Update
        | OperationKind::Pause
        | OperationKind::Resume
        | OperationKind::Restart
        | OperationKind::Undelete => proto::OperationKind::Update,
    }
}

fn kind_of(kind: proto::OperationKind) -> Result<OperationKind, Error> {
    match kind {
        proto::OperationKind::Create => Ok(OperationKind::Create),
        proto::OperationKind::Update => Ok(OperationKind::Update),
        proto::OperationKind::Delete => Ok(OperationKind::Delete),
        proto::OperationKind::Unspecified => {
            Err(Error::bad("operation_kind", "is not given or not known to this reader"))
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
