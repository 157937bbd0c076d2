//! Table `operation_events`: numbered per operation under the operation's row lock, so whoever saw number n missed
//! nothing below it. The last event of an operation is kept as long as the operation, the others for a while after its end
//! (`history`).

use std::collections::BTreeMap;

use domain::operation::Failure;
use domain::{OperationId, OperationState};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use crate::document::word;
use crate::observations::{Step, StepDocument};
use crate::rows::read;
use crate::{Error, Store};

/// Appends events that 1 to 4 list, each an array: operations, numbers, kinds and bodies.
pub const APPEND: &str = "insert into operation_events (operation_id, number, kind, body) \
     select e.id, e.number, e.kind, e.body \
     from unnest($1::uuid[], $2::bigint[], $3::text[], $4::jsonb[]) as e (id, number, kind, body)";

/// Something that happened to an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// To which.
    pub operation: OperationId,
    /// From 1, without gaps; of an operation that ended long ago only the last one is kept.
    pub number: i64,
    /// State of the operation after it.
    pub state: OperationState,
    /// What happened.
    pub kind: EventKind,
    /// When it was recorded.
    pub at: Timestamp,
}

/// What can happen to an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// Its state moved; with the reason where it failed.
    State(Option<Failure>),
    /// A step moved.
    Step(Step),
}

/// Events of some operations, those of each in their order.
#[derive(Debug, Default)]
pub struct Events {
    /// Those that can be read.
    pub events: Vec<Event>,
    /// Where an operation's events end for now, because one cannot be read: what is behind it is not told.
    pub unreadable: Vec<UnreadableEvent>,
}

/// An event that cannot be read.
#[derive(Debug)]
pub struct UnreadableEvent {
    /// Of which operation.
    pub operation: OperationId,
    /// Its number.
    pub number: i64,
    /// What is wrong with it.
    pub error: Error,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Document {
    state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step: Option<StepDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

#[derive(sqlx::FromRow)]
struct Row {
    operation_id: Uuid,
    number: i64,
    body: Json<Document>,
    at: jiff_sqlx::Timestamp,
}

impl Store {
    /// New events of many operations in one statement: of each the next `each` after the given number, so that one with many
    /// takes nobody's place, and one with an event that cannot be read ends before that and stops nobody else.
    pub async fn events_after(&self, streams: &[(OperationId, i64)], each: u32) -> Result<Events, Error> {
        let (ids, numbers): (Vec<Uuid>, Vec<i64>) =
            streams.iter().map(|(id, number)| (id.uuid(), *number)).unzip();
        let rows: Vec<PgRow> = sqlx::query(
            "select e.operation_id, e.number, e.body, e.at from unnest($1::uuid[], $2::bigint[]) as s (id, after) \
             cross join lateral (select * from operation_events where operation_id = s.id and number > s.after \
             order by number limit $3) e order by e.operation_id, e.number",
        )
        .bind(ids)
        .bind(numbers)
        .bind(i64::from(each))
        .fetch_all(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        let mut found = Events::default();
        for row in &rows {
            let (id, number): (Uuid, i64) = place(row).map_err(Error::from_sqlx)?;
            let operation = OperationId::new(id);
            if found.unreadable.last().is_some_and(|last| last.operation == operation) {
                continue;
            }
            match read::<Row, Event>(("operation_events", "operation_id"), row) {
                Ok(event) => found.events.push(event),
                Err(error) => found.unreadable.push(UnreadableEvent { operation, number, error }),
            }
        }
        Ok(found)
    }

    /// Of these operations those that are there: the number of the last event of each, and whether it has ended.
    pub async fn last_events(&self, of: &[OperationId]) -> Result<BTreeMap<OperationId, (i64, bool)>, Error> {
        let ids: Vec<Uuid> = of.iter().map(|id| id.uuid()).collect();
        let rows: Vec<(Uuid, i64, bool)> =
            sqlx::query_as("select id, last_event, ended_at is not null from operations where id = any($1)")
                .bind(ids)
                .fetch_all(&self.pool)
                .await
                .map_err(Error::from_sqlx)?;
        Ok(rows.into_iter().map(|(id, last, ended)| (OperationId::new(id), (last, ended))).collect())
    }
}

fn place(row: &PgRow) -> sqlx::Result<(Uuid, i64)> {
    Ok((row.try_get("operation_id")?, row.try_get("number")?))
}

/// Events of one operation: those from this number on.
pub(crate) type Told<'a> = (OperationId, i64, &'a [(OperationState, EventKind)]);

/// Appends events, already numbered, to operations whose rows are locked.
pub(crate) async fn append(connection: &mut PgConnection, all: &[Told<'_>]) -> Result<(), Error> {
    let (mut ids, mut numbers, mut kinds, mut bodies) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (operation, first, events) in all {
        for (number, (state, kind)) in (*first..).zip(*events) {
            ids.push(operation.uuid());
            numbers.push(number);
            kinds.push(kind.as_str());
            bodies.push(Json(Document::new(*state, kind)));
        }
    }
    if ids.is_empty() {
        return Ok(());
    }
    sqlx::query(APPEND)
        .bind(ids)
        .bind(numbers)
        .bind(kinds)
        .bind(bodies)
        .execute(connection)
        .await
        .map_err(Error::from_sqlx)?;
    Ok(())
}

impl EventKind {
    /// The word in every contract.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::State(_) => "state",
            Self::Step(_) => "step",
        }
    }
}

impl Document {
    pub(crate) fn new(state: OperationState, kind: &EventKind) -> Self {
        let mut document = Self { state: state.to_string(), step: None, code: None, message: None };
        match kind {
            EventKind::State(Some(failure)) => {
                document.code = Some(failure.code.clone());
                document.message = Some(failure.message.clone());
            }
            EventKind::State(None) => {}
            EventKind::Step(step) => document.step = Some(step.into()),
        }
        document
    }
}

impl TryFrom<Row> for Event {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let corrupt = |what: String| {
            Error::corrupt("operation_events", format!("{}/{}: {what}", row.operation_id, row.number))
        };
        let document = row.body.0;
        let kind = match (document.step, document.code) {
            (Some(step), _) => EventKind::Step(step.read().map_err(corrupt)?),
            (None, Some(code)) => {
                EventKind::State(Some(Failure { code, message: document.message.unwrap_or_default() }))
            }
            (None, None) => EventKind::State(None),
        };
        Ok(Self {
            operation: OperationId::new(row.operation_id),
            number: row.number,
            state: word("state", &document.state, OperationState::parse).map_err(corrupt)?,
            kind,
            at: row.at.to_jiff(),
        })
    }
}
