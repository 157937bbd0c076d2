//! Records as rows. Pure.

use bus::Record;
use domain::{ClusterId, DatabaseId};
use jiff::Timestamp;
use wire::decode::Error;
use wire::http::database::{Condition, Endpoints, Node, Observed};
use wire::http::operation;
use wire::{Gossip, Said, headers};

/// Schema of the JSON that holds an observation: it is the body that readers get.
pub const BODY_SCHEMA: i32 = 1;

/// Most bytes of a dead letter's headers, each.
const HEADER_LENGTH: usize = 1_024;

/// Gossip as it is written.
#[derive(Debug)]
pub(crate) enum Row {
    /// About an instruction.
    Outcome(store::Outcome),
    /// About a custom resource.
    Observation(store::Observation),
}

/// A record as it is written, or why it cannot be.
pub(crate) fn row(record: &Record) -> Result<Row, Error> {
    let Gossip { database, cluster, said_at, said } =
        Gossip::decode(record.payload.as_deref().unwrap_or_default())?;
    if record.key_text() != Some(database.to_string().as_str()) {
        // Under another key it stands in another order than the rest of what is said of its database.
        let reason = format!("is {database}, but the record's key is {:?}", record.key_text());
        return Err(Error::BadField { field: "database_id", reason });
    }
    match said {
        Said::Outcome(said) => Ok(Row::Outcome(outcome(database, cluster, said_at, said))),
        Said::Observation(seen) => observation(database, cluster, said_at, *seen).map(Row::Observation),
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
    let wire::Outcome { position, code, message, .. } = outcome;
    // A failure without a code could not be told from one that never was.
    let code =
        if kind == store::OutcomeKind::Refused && code.is_empty() { "refused".to_owned() } else { code };
    store::Outcome { database, cluster, position, kind, code, message, said_at }
}

fn observation(
    database: DatabaseId,
    cluster: ClusterId,
    said_at: Timestamp,
    seen: wire::Observation,
) -> Result<store::Observation, Error> {
    let no_row = |field, reason: String| Error::BadField { field, reason };
    let resource_version = i64::try_from(seen.resource_version)
        .map_err(|_| no_row("resource_version", format!("{} is out of range", seen.resource_version)))?;
    let body = serde_json::to_value(body(&seen)).map_err(|error| no_row("observation", error.to_string()))?;
    Ok(store::Observation {
        database,
        cluster,
        position: seen.position,
        term: seen.term,
        resource_version,
        present: seen.present,
        content_hash: seen.content_hash,
        phase: seen.phase,
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
    let text = |bytes: &[u8]| {
        let end = bytes.len().min(HEADER_LENGTH);
        // Postgres takes every character but this one.
        String::from_utf8_lossy(&bytes[..end]).replace('\0', "\u{fffd}")
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
        code: error.code().to_owned(),
        message: text(error.to_string().as_bytes()),
        consumer: consumer.to_owned(),
    }
}

fn body(seen: &wire::Observation) -> Observed {
    let carried_out = seen.carried_out.map_or((0, 0), |position| (position.epoch, position.seq));
    Observed {
        phase: seen.phase.clone(),
        epoch: carried_out.0,
        seq: carried_out.1,
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
        name: step.name,
        state: step.state,
        message: step.message,
        started_at: step.started_at,
        ended_at: step.ended_at,
    }
}
