//! Rows of what was set aside as bodies. Pure.

use serde_json::Value;
use wire::Instruction;
use wire::http::WholeLetter;
use wire::http::aside::{About, DeadLetter, Header, LetterInstruction, Parked, Prospect, Settled, Unclaimed};

use super::advice;
use super::decide::{Plan, Refusal};

pub(super) fn unclaimed(row: store::Unclaimed) -> Unclaimed {
    let text = |name: &str| row.body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    Unclaimed {
        namespace: text("namespace"),
        resource_name: text("resource_name"),
        database_id: row.database.uuid(),
        database: row.about.map(about),
        cluster: row.cluster,
        advice: if row.resolved_at.is_some() { "" } else { advice::unclaimed(&row.code) }.to_owned(),
        code: row.code,
        epoch: row.position.epoch,
        seq: row.position.seq,
        seen: row.seen,
        first_seen: row.first_seen,
        last_seen: row.last_seen,
        resolved_at: row.resolved_at,
    }
}

pub(super) fn parked(row: store::ParkedView) -> Parked {
    Parked {
        database_id: row.database,
        database: row.about.map(about),
        cluster: row.cluster,
        epoch: row.position.epoch,
        seq: row.position.seq,
        advice: advice::parked(&row.code).to_owned(),
        code: row.code,
        message: row.message,
        attempts: row.attempts,
        parked_at: row.parked_at,
        retry_at: row.retry_at,
    }
}

/// A dead letter; `gossip` is the topic of what clusters say.
pub(super) fn letter(row: store::DeadLetterView, gossip: &str) -> DeadLetter {
    let (topic, partition, offset) = row.origin;
    let advice = match (&row.settled, &row.about) {
        (Some(_), _) => "",
        (None, None) if topic != gossip => advice::STRANGER,
        (None, _) => advice::letter(&row.code, topic == gossip),
    };
    let superseded = row.settled.as_ref().filter(|settled| settled.how == store::Settlement::Superseded);
    DeadLetter {
        id: row.id,
        topic,
        partition,
        offset,
        database_id: row.database.map(domain::DatabaseId::uuid),
        database: row.about.map(about),
        epoch: row.position.map(|position| position.epoch),
        seq: row.position.map(|position| position.seq),
        cluster: row.cluster,
        code: row.code,
        message: row.message,
        size: row.size,
        consumer: row.consumer,
        received_at: row.received_at,
        superseded_at: superseded.map(|settled| settled.at),
        settled: row.settled.map(settled),
        advice: advice.to_owned(),
    }
}

/// A dead letter with all that came with it, and what a redrive would come to.
pub(super) fn whole(
    letter: DeadLetter,
    content: store::LetterContent,
    redrive: Result<Plan, Refusal>,
) -> WholeLetter {
    let payload = content.payload.as_deref();
    WholeLetter {
        letter,
        redrive: prospect(redrive),
        key: content.key.map(|key| String::from_utf8_lossy(&key).into_owned()),
        headers: content.headers.into_iter().map(|(name, value)| Header { name, value }).collect(),
        instruction: payload.and_then(|bytes| Instruction::decode(bytes).ok()).map(instruction),
        payload_hex: payload.map(hex::encode),
    }
}

fn prospect(redrive: Result<Plan, Refusal>) -> Prospect {
    match redrive {
        Ok(Plan { settles, message, .. }) => {
            Prospect { possible: true, outcome: settles.as_str().to_owned(), message }
        }
        Err(refusal) => {
            Prospect { possible: false, outcome: refusal.code().to_owned(), message: refusal.to_string() }
        }
    }
}

fn instruction(found: Instruction) -> LetterInstruction {
    LetterInstruction {
        database_id: found.database.uuid(),
        name: found.desired.name.to_string(),
        tenant: found.tenant.to_string(),
        cluster: found.cluster.to_string(),
        operation_id: found.operation.uuid(),
        run_state: found.desired.run_state.to_string(),
        epoch: found.position.epoch,
        seq: found.position.seq,
        actor: found.actor,
        issued_at: found.issued_at,
    }
}

fn about(about: store::About) -> About {
    About { name: about.name, tenant: about.tenant, epoch: about.minted.epoch, seq: about.minted.seq }
}

fn settled(settled: store::Settled) -> Settled {
    Settled { how: settled.how.as_str().to_owned(), at: settled.at, by: settled.by, reason: settled.reason }
}
