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
        (headers::SCHEMA.to_owned(), record.schema().to_string().into_bytes()),
    ];
    if let Some(traceparent) = &instruction.traceparent {
        headers.push((headers::TRACEPARENT.to_owned(), traceparent.clone().into_bytes()));
    }
    if is_bulk(instruction) {
        headers.push((headers::CLASS.to_owned(), headers::CLASS_BULK.as_bytes().to_vec()));
    }
    Message { topic: topic.to_owned(), key: record.key(), payload: record.encode(), headers }
}

/// Whether nobody waits for it: the sweep says it again or minted it again, or the judge takes back what failed. There are
/// as many of these as databases when a region was away, and whoever asks for one meanwhile, be it a person, a console or
/// the one on call, comes first. The provisioner's lanes see to it that these go on all the same.
fn is_bulk(instruction: &Instruction) -> bool {
    instruction.said_again || is_ours(&instruction.actor)
}

/// Whether a program of ours asks, and not somebody with a token.
fn is_ours(actor: &str) -> bool {
    [crate::deadlines::ACTOR, crate::sweep::ACTOR].contains(&actor)
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use domain::catalogue::Offer;
    use domain::request::{Change, Create};

    use super::*;

    /// What somebody asks for.
    pub(in super::super) fn instruction(actor: &str, said_again: bool) -> Instruction {
        let cluster = domain::Cluster {
            id: "eu".parse().unwrap(),
            region: "eu-west-1".to_owned(),
            account: "0".to_owned(),
            zones: BTreeMap::new(),
            hosted_zone_id: "Z".to_owned(),
            dns_suffix: "eu.example.com".to_owned(),
            namespace_template: "qdb-{tenant}".to_owned(),
            state: domain::ClusterState::Active,
            credentials: "file:x".to_owned(),
        };
        let (name, region) = ("trades".to_owned(), cluster.region.clone());
        let wish = Create { name, region, change: Change::default() }.validate(&Offer::default()).unwrap();
        let database = DatabaseId::mint();
        Instruction {
            id: InstructionId::mint(),
            database,
            tenant: "acme".parse().unwrap(),
            cluster: "eu".parse().unwrap(),
            operation: OperationId::mint(),
            operation_kind: OperationKind::Update,
            position: Position::FIRST,
            desired: wish.place(database, &cluster),
            minted_at: jiff::Timestamp::UNIX_EPOCH,
            actor: actor.to_owned(),
            traceparent: None,
            said_again,
        }
    }

    #[test]
    fn what_nobody_waits_for_lets_others_go_first() {
        let table = [
            ("tenant:acme/console", false, false),
            ("sre:on-call", false, false),
            ("sre:on-call", true, true),
            (crate::deadlines::ACTOR, false, true),
            (crate::sweep::ACTOR, false, true),
        ];
        for (actor, said_again, bulk) in table {
            let message = message("t", &instruction(actor, said_again));
            let class = message.headers.iter().find(|(name, _)| name == headers::CLASS);
            let expected = bulk.then(|| headers::CLASS_BULK.as_bytes());
            assert_eq!(class.map(|(_, value)| value.as_slice()), expected, "{actor} {said_again}");
        }
    }
}
