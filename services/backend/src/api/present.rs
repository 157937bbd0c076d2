//! Rows as bodies. Pure.

use domain::operation::Failure;
use runtime::TraceContext;
use store::{ClusterRecord, DatabaseView, Event, EventKind, ObservationView, OperationRecord};
use wire::http::database::{Observed, Storage};
use wire::http::operation::{OperationError, Step};
use wire::http::{Cluster, Database, Operation, OperationEvent, RegisterCluster};

use crate::sink::BODY_SCHEMA;

/// A database as its readers see it.
pub(crate) fn database(view: DatabaseView) -> Database {
    let DatabaseView { database, region, observed, operation, diverged, purged_at, published_at, resent_at } =
        view;
    let desired = database.desired;
    Database {
        id: database.id.uuid(),
        name: desired.name.to_string(),
        tenant: database.tenant.to_string(),
        region,
        cluster: database.cluster.to_string(),
        run_state: desired.run_state.to_string(),
        version: desired.version,
        instance_type: desired.compute.instance_type,
        storage: Storage {
            size_gib: desired.storage.size_gib,
            volume_type: desired.storage.volume_type.to_string(),
            iops: desired.storage.iops,
            throughput: desired.storage.throughput,
            deletion_policy: desired.storage.deletion_policy.to_string(),
        },
        config: desired.config,
        hostname: desired.network.hostname,
        allowed_cidrs: desired.network.allowed_cidrs,
        exposure: desired.network.exposure.to_string(),
        deletion_protection: desired.deletion_protection,
        epoch: database.position.epoch,
        seq: database.position.seq,
        created_at: database.created_at,
        updated_at: database.minted_at,
        deleted_at: database.deleted_at,
        diverged: diverged.map(|(kind, _)| kind.as_str().to_owned()),
        diverged_since: diverged.map(|(_, since)| since),
        purged_at,
        published_at,
        resent_at,
        observed: observed.map(observation),
        operation_id: operation.map(domain::OperationId::uuid),
    }
}

/// What is believed of a database. A body of another schema (a newer sink wrote it) is left out; the columns remain.
fn observation(view: ObservationView) -> Observed {
    let body = (view.body_schema == BODY_SCHEMA).then(|| serde_json::from_value::<Observed>(view.body));
    let whole = body.and_then(Result::ok).unwrap_or_default();
    let carried_out = view.carried_out.map_or((0, 0), |position| (position.epoch, position.seq));
    Observed {
        phase: view.phase,
        epoch: carried_out.0,
        seq: carried_out.1,
        as_of: Some(view.said_at),
        ..whole
    }
}

/// An operation as its readers see it.
pub(crate) fn operation(record: OperationRecord) -> Operation {
    let OperationRecord { operation, database_name, failure, steps, actor, traceparent, .. } = record;
    let trace = traceparent.and_then(|header| TraceContext::parse(&header).ok());
    Operation {
        id: operation.id.uuid(),
        kind: operation.kind.to_string(),
        database_id: operation.database.uuid(),
        database_name,
        tenant: operation.tenant.to_string(),
        state: operation.state.to_string(),
        steps: steps.into_iter().map(step).collect(),
        error: failure.map(error),
        on_failure: record.on_failure.to_string(),
        deadline_at: record.ended_at.is_none().then_some(record.deadline_at),
        overdue_since: record.overdue_since,
        reverts: record.reverts.map(domain::OperationId::uuid),
        superseded_by: record.superseded_by.map(domain::OperationId::uuid),
        epoch: operation.position.epoch,
        seq: operation.position.seq,
        created_by: actor,
        created_at: record.created_at,
        updated_at: record.updated_at,
        ended_at: record.ended_at,
        trace_id: trace.map_or_else(String::new, |trace| trace.trace_id()),
    }
}

/// An event as its readers see it.
pub(crate) fn event(event: Event) -> OperationEvent {
    let kind = event.kind.as_str().to_owned();
    let (step_moved, failure) = match event.kind {
        EventKind::Step(moved) => (Some(step(moved)), None),
        EventKind::State(failure) => (None, failure),
    };
    OperationEvent {
        number: event.number,
        kind,
        state: event.state.to_string(),
        step: step_moved,
        error: failure.map(error),
        at: event.at,
    }
}

/// A cluster as its readers see it.
pub(crate) fn cluster(record: ClusterRecord, databases: u64) -> Cluster {
    let cluster = record.cluster;
    Cluster {
        id: cluster.id.to_string(),
        registration: RegisterCluster {
            region: cluster.region,
            account: cluster.account,
            zones: cluster.zones,
            hosted_zone_id: cluster.hosted_zone_id,
            dns_suffix: cluster.dns_suffix,
            namespace_template: cluster.namespace_template,
            state: Some(cluster.state.to_string()),
            credentials: cluster.credentials,
        },
        databases,
        created_at: record.created_at,
    }
}

fn step(step: store::Step) -> Step {
    Step {
        name: step.name,
        state: step.state.to_string(),
        message: step.message,
        started_at: step.started_at,
        ended_at: step.ended_at,
    }
}

fn error(failure: Failure) -> OperationError {
    OperationError { code: failure.code, message: failure.message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::Position;
    use jiff::Timestamp;
    use serde_json::json;

    fn view(body: serde_json::Value, body_schema: i32) -> ObservationView {
        ObservationView {
            phase: "Ready".to_owned(),
            position: Position::FIRST,
            carried_out: Some(Position::FIRST),
            body,
            body_schema,
            said_at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn what_the_sink_wrote_is_shown_whole() {
        let written =
            Observed { phase: "old".to_owned(), namespace: "qdb-acme".to_owned(), ..Observed::default() };
        let shown = observation(view(serde_json::to_value(&written).unwrap(), BODY_SCHEMA));
        let expected = Observed {
            phase: "Ready".to_owned(),
            epoch: 1,
            seq: 1,
            as_of: Some(Timestamp::UNIX_EPOCH),
            ..written
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_a_newer_sink_wrote_still_shows_its_columns() {
        for (body, schema) in [(json!({"anything": 1}), BODY_SCHEMA + 1), (json!({"phase": 7}), BODY_SCHEMA)]
        {
            let shown = observation(view(body, schema));
            assert_eq!((shown.phase.as_str(), shown.seq, shown.namespace.as_str()), ("Ready", 1, ""));
        }
    }
}
