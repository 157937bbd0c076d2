//! Many operations move at once: one statement for their rows, one for their events.

use std::collections::HashSet;

use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::{MOVE, OperationRecord};
use crate::observations::StepDocument;
use crate::progress::Moved;
use crate::{Error, events};

/// Writes what moved in operations whose rows are locked, each once, with their events, in two statements however many they
/// are. One that has ended stays as it is: that is not looked at here, but refused by the statement.
pub(crate) async fn update(
    connection: &mut PgConnection,
    all: &[(&OperationRecord, &Moved)],
) -> Result<(), Error> {
    if all.is_empty() {
        return Ok(());
    }
    let mut columns = Columns::default();
    for (record, moved) in all {
        columns.push(record, moved);
    }
    let updated: Vec<Uuid> = sqlx::query_scalar(MOVE)
        .bind(columns.ids)
        .bind(columns.states)
        .bind(columns.failure_codes)
        .bind(columns.failure_messages)
        .bind(columns.steps)
        .bind(columns.last_events)
        .bind(columns.ended)
        .bind(columns.epochs)
        .bind(columns.seqs)
        .fetch_all(&mut *connection)
        .await
        .map_err(Error::from_sqlx)?;
    let updated: HashSet<Uuid> = updated.into_iter().collect();
    let told = all.iter().filter(|(record, _)| updated.contains(&record.operation.id.uuid()));
    let told: Vec<_> = told
        .map(|(record, moved)| (record.operation.id, record.last_event + 1, moved.events.as_slice()))
        .collect();
    events::append(connection, &told).await
}

/// What moved, column by column.
#[derive(Default)]
struct Columns<'a> {
    ids: Vec<Uuid>,
    states: Vec<&'static str>,
    failure_codes: Vec<Option<&'a str>>,
    failure_messages: Vec<Option<&'a str>>,
    steps: Vec<Json<Vec<StepDocument>>>,
    last_events: Vec<i64>,
    ended: Vec<bool>,
    epochs: Vec<Option<i64>>,
    seqs: Vec<Option<i64>>,
}

impl<'a> Columns<'a> {
    fn push(&mut self, record: &OperationRecord, moved: &'a Moved) {
        let failure = moved.failure.as_ref();
        self.ids.push(record.operation.id.uuid());
        self.states.push(moved.state.as_str());
        self.failure_codes.push(failure.map(|failure| failure.code.as_str()));
        self.failure_messages.push(failure.map(|failure| failure.message.as_str()));
        self.steps.push(Json(moved.steps.iter().map(StepDocument::from).collect()));
        self.last_events.push(record.last_event + i64::try_from(moved.events.len()).unwrap_or_default());
        self.ended.push(moved.state.is_terminal());
        self.epochs.push(moved.superseded_by.map(|position| position.epoch));
        self.seqs.push(moved.superseded_by.map(|position| position.seq));
    }
}
