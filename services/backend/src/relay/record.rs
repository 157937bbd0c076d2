//! The record of an instruction: its bytes, its key, its headers, and how large it is.

use bus::Message;
use domain::{ClusterId, DatabaseId, Desired, InstructionId, OperationId, OperationKind, Position, TenantId};
use store::Instruction;
use wire::headers;

/// What key, headers and the frame of a record may take beside the instruction itself.
const FRAME: usize = 512;

/// How many bytes the record of a desired state takes at most.
pub(crate) fn size(tenant: &TenantId, cluster: &ClusterId, desired: &Desired, actor: &str) -> usize {
    let record = wire::Instruction {
        id: InstructionId::mint(),
        database: DatabaseId::mint(),
        tenant: tenant.clone(),
        cluster: cluster.clone(),
        operation: OperationId::mint(),
        operation_kind: OperationKind::Update,
        // The longest numbers.
        position: Position { epoch: i64::MAX, seq: i64::MAX },
        desired: desired.clone(),
        issued_at: jiff::Timestamp::now(),
        actor: actor.to_owned(),
    };
    record.encode().len() + FRAME
}

/// The record of an instruction.
pub(crate) fn message(topic: &str, instruction: &Instruction) -> Message {
    let record = wire::Instruction {
        id: instruction.id,
        database: instruction.database,
        tenant: instruction.tenant.clone(),
        cluster: instruction.cluster.clone(),
        operation: instruction.operation,
        operation_kind: instruction.operation_kind,
        position: instruction.position,
        desired: instruction.desired.clone(),
        issued_at: instruction.minted_at,
        actor: instruction.actor.clone(),
    };
    let mut headers = vec![
        (headers::EPOCH.to_owned(), instruction.position.epoch.to_string().into_bytes()),
        (headers::SEQ.to_owned(), instruction.position.seq.to_string().into_bytes()),
        (headers::CLUSTER.to_owned(), instruction.cluster.as_str().as_bytes().to_vec()),
        (headers::SCHEMA.to_owned(), wire::SCHEMA.to_string().into_bytes()),
    ];
    if let Some(traceparent) = &instruction.traceparent {
        headers.push((headers::TRACEPARENT.to_owned(), traceparent.clone().into_bytes()));
    }
    if instruction.said_again {
        headers.push((headers::CLASS.to_owned(), headers::CLASS_BULK.as_bytes().to_vec()));
    }
    Message { topic: topic.to_owned(), key: record.key(), payload: record.encode(), headers }
}
