//! Records as rows. Pure.

use std::ops::Range;

use bus::Record;
use domain::{ClusterId, DatabaseId};
use jiff::Timestamp;
use serde_json::Value;
use store::storable;
use wire::decode::Error;
use wire::http::database::{Condition, Endpoints, Node, Observed};
use wire::http::operation;
use wire::{Gossip, Said, headers};

use super::fold::{Order, Seen};

/// Schema of the JSON that holds an observation: it is the body that readers get.
pub const BODY_SCHEMA: i32 = 1;

/// Most bytes of a dead letter's headers, each.
const HEADER_LENGTH: usize = 1_024;

/// When gossip can have been said, in milliseconds since 1970: in the years 2020 to 2099.
///
/// Postgres refuses times before 4713 BC, and with them the whole batch, for ever; what it keeps must be readable again. All of
/// this range is far within what both sides can hold. The bounds are fixed, not set by a clock: read again, a record is judged
/// as it was before, and neither a cluster's clock that is wrong by days nor one of ours sets aside what is good.
const SAID: Range<i64> = 1_577_836_800_000..4_102_444_800_000;

/// Gossip as it was understood.
#[derive(Debug)]
pub(crate) enum Heard<'a> {
    /// About an instruction, as it is written.
    Outcome(store::Outcome),
    /// About a custom resource.
    Sighting(Sighting<'a>),
}

/// An observation before it is known whether it is worth writing: of a backlog few are, and the document that readers get
/// takes more work than all the rest.
#[derive(Debug)]
pub(crate) struct Sighting<'a> {
    record: &'a Record,
    database: DatabaseId,
    cluster: ClusterId,
    said_at: Timestamp,
    resource_version: i64,
    seen: Box<wire::Observation>,
}

impl Seen for Sighting<'_> {
    fn database(&self) -> DatabaseId {
        self.database
    }

    fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    fn order(&self) -> Order {
        (self.seen.position, self.seen.term, self.resource_version, self.said_at)
    }

    fn present(&self) -> bool {
        self.seen.present
    }
}

/// What a record says, or why it cannot be understood.
pub(crate) fn hear(record: &Record) -> Result<Heard<'_>, Error> {
    let Gossip { database, cluster, said_at, said } =
        Gossip::decode(record.payload.as_deref().unwrap_or_default())?;
    if record.key_text() != Some(database.to_string().as_str()) {
        // Under another key it stands in another order than the rest of what is said of its database.
        let reason = format!("is {database}, but the record's key is {:?}", record.key_text());
        return Err(Error::BadField { field: "database_id", reason });
    }
    let milliseconds = said_at.as_millisecond();
    if !SAID.contains(&milliseconds) {
        let reason = format!("{milliseconds} is out of range");
        return Err(Error::BadField { field: "said_at_ms", reason });
    }
    match said {
        Said::Outcome(said) => Ok(Heard::Outcome(outcome(database, cluster, said_at, said))),
        Said::Observation(seen) => {
            let resource_version = i64::try_from(seen.resource_version).map_err(|_| Error::BadField {
                field: "resource_version",
                reason: format!("{} is out of range", seen.resource_version),
            })?;
            let sighting = Sighting { record, database, cluster, said_at, resource_version, seen };
            Ok(Heard::Sighting(sighting))
        }
    }
}

fn outcome(
    database: DatabaseId,
    cluster: ClusterId,
    said_at: Timestamp,
    outcome: wire::Outcome,
) -> store::Outcome {
    let kind = match outcome.kind {
        wire::OutcomeKind::Applied => store::OutcomeKind::Applied,
        wire::OutcomeKind::Superseded => store::OutcomeKind::Superseded,
        wire::OutcomeKind::Parked => store::OutcomeKind::Parked,
        wire::OutcomeKind::Refused => store::OutcomeKind::Refused,
    };
    let wire::Outcome { position, operation, code, message, .. } = outcome;
    // A failure without a code could not be told from one that never was.
    let code =
        if kind == store::OutcomeKind::Refused && code.is_empty() { "refused".to_owned() } else { code };
    let (code, message) = (storable(code), storable(message));
    store::Outcome { database, cluster, position, operation, kind, code, message, said_at }
}

/// An observation as it is written; or its record, and why it cannot be.
pub(crate) fn observation(sighting: Sighting<'_>) -> Result<store::Observation, (&Record, Error)> {
    let Sighting { record, database, cluster, said_at, resource_version, seen } = sighting;
    let body = document(&body(&seen))
        .map_err(|error| (record, Error::BadField { field: "observation", reason: error.to_string() }))?;
    let seen = *seen;
    Ok(store::Observation {
        database,
        cluster,
        position: seen.position,
        term: seen.term,
        resource_version,
        present: seen.present,
        content_hash: storable(seen.content_hash),
        phase: storable(seen.phase),
        carried_out: seen.carried_out,
        volume: seen.volume.is_some_and(|volume| !volume.id.is_empty()),
        steps: seen.steps.into_iter().map(step).collect(),
        body,
        body_schema: BODY_SCHEMA,
        said_at,
    })
}

/// A record that cannot be understood; headers and key still say where it belongs.
pub(crate) fn dead_letter(record: &Record, consumer: &str, error: &Error) -> store::DeadLetter {
    letter(record, consumer, (error.code(), &error.to_string()))
}

/// A record that is set aside for any reason: its code, and what people are told.
pub(crate) fn letter(record: &Record, consumer: &str, reason: (&str, &str)) -> store::DeadLetter {
    let text = |bytes: &[u8]| {
        let end = bytes.len().min(HEADER_LENGTH);
        storable(String::from_utf8_lossy(&bytes[..end]))
    };
    store::DeadLetter {
        topic: record.topic.to_string(),
        partition: record.partition,
        offset: record.offset,
        key: record.key.clone(),
        payload: record.payload.clone(),
        headers: record.headers.iter().map(|(name, value)| (text(name.as_bytes()), text(value))).collect(),
        cluster: record.header_text(headers::CLUSTER).and_then(|id| id.parse().ok()),
        database: record.key_text().and_then(|id| id.parse().ok()),
        position: None,
        code: reason.0.to_owned(),
        message: text(reason.1.as_bytes()),
        consumer: consumer.to_owned(),
    }
}

/// A body as it is written.
fn document(body: &Observed) -> Result<store::Body, serde_json::Error> {
    let written = store::Body::of(body)?;
    if !written.text().contains("\\u0000") {
        return Ok(written);
    }
    let mut tree = serde_json::to_value(body)?;
    clean(&mut tree);
    Ok(store::Body::from(tree))
}

fn clean(tree: &mut Value) {
    match tree {
        Value::String(text) => *text = storable(std::mem::take(text)),
        Value::Array(rows) => rows.iter_mut().for_each(clean),
        Value::Object(fields) => fields.values_mut().for_each(clean),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn body(seen: &wire::Observation) -> Observed {
    let carried_out = seen.carried_out.map_or((0, 0), |position| (position.epoch, position.seq));
    Observed {
        phase: seen.phase.clone(),
        epoch: carried_out.0,
        seq: carried_out.1,
        carried_hash: Some(seen.carried_hash.clone()).filter(|hash| !hash.is_empty()),
        conditions: seen.conditions.iter().map(condition).collect(),
        steps: seen.steps.iter().map(step_body).collect(),
        endpoints: seen.endpoints.as_ref().map(|endpoints| Endpoints {
            http: endpoints.http.clone(),
            postgres: endpoints.postgres.clone(),
            ilp: endpoints.ilp.clone(),
            health: endpoints.health.clone(),
        }),
        node: seen.node.as_ref().map(|node| Node {
            name: node.name.clone(),
            address: node.address.clone(),
            instance_id: node.instance_id.clone(),
            ready: node.ready,
        }),
        volume_id: seen.volume.as_ref().map(|volume| volume.id.clone()),
        volume_size_gib: seen.volume.as_ref().map(|volume| volume.size_gib).filter(|size| *size > 0),
        asked_size_gib: Some(seen.asked_size_gib).filter(|size| *size > 0),
        dns_state: seen.dns.as_ref().map(|dns| dns.state.clone()),
        namespace: seen.namespace.clone(),
        resource_name: seen.resource_name.clone(),
        credentials_secret: seen.credentials_secret.clone(),
        as_of: None,
    }
}

fn condition(condition: &wire::gossip::Condition) -> Condition {
    Condition {
        kind: condition.kind.clone(),
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        changed_at: condition.changed_at,
    }
}

fn step_body(step: &wire::gossip::Step) -> operation::Step {
    operation::Step {
        name: step.name.clone(),
        state: step.state.to_string(),
        message: step.message.clone(),
        started_at: step.started_at,
        ended_at: step.ended_at,
    }
}

fn step(step: wire::gossip::Step) -> store::Step {
    store::Step {
        name: storable(step.name),
        state: step.state,
        message: storable(step.message),
        started_at: step.started_at,
        ended_at: step.ended_at,
    }
}
