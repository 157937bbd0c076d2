//! Operations, their steps and their events as rows.

use jiff::Timestamp;
use wire::http::operation::Step;
use wire::http::{Operation, OperationEvent};

use super::text::{NONE, age, or_none, table, took};
use crate::progress::length;

/// Operations, one a line.
pub fn list(operations: &[Operation], now: Timestamp, wide: bool) -> String {
    let mut header = vec!["ID", "KIND", "DATABASE", "STATE", "STEP", "AGE"];
    if wide {
        header.extend(["TOOK", "OVERDUE", "ERROR", "DATABASE-ID", "TENANT", "BY", "SEQ", "TRACE"]);
    }
    table(&header, operations.iter().map(|operation| row(operation, now, wide)).collect())
}

fn row(operation: &Operation, now: Timestamp, wide: bool) -> Vec<String> {
    let mut row = vec![
        operation.id.to_string(),
        operation.kind.clone(),
        operation.database_name.clone(),
        operation.state.clone(),
        current(&operation.steps),
        age(operation.created_at, now),
    ];
    if wide {
        let length =
            operation.ended_at.and_then(|end| end.duration_since(operation.created_at).try_into().ok());
        row.extend([
            length.map_or_else(|| NONE.to_owned(), took),
            operation.overdue_since.map_or_else(|| NONE.to_owned(), |since| age(since, now)),
            operation.error.as_ref().map_or_else(|| NONE.to_owned(), |error| or_none(&error.code)),
            operation.database_id.to_string(),
            operation.tenant.clone(),
            or_none(&operation.created_by),
            format!("{}/{}", operation.epoch, operation.seq),
            or_none(&operation.trace_id),
        ]);
    }
    row
}

/// The step that an operation is at, and how many are done.
fn current(steps: &[Step]) -> String {
    let done = steps.iter().filter(|step| step.state == "succeeded").count();
    let at = steps.iter().find(|step| matches!(step.state.as_str(), "running" | "failed"));
    match (at, steps.len()) {
        (_, 0) => NONE.to_owned(),
        (Some(step), all) => format!("{} ({done}/{all})", step.name),
        (None, all) => format!("{done}/{all}"),
    }
}

/// Steps, one a line.
pub fn steps(steps: &[Step]) -> String {
    let rows = steps.iter().map(|step| {
        let length = length(step).map_or_else(|| NONE.to_owned(), took);
        vec![step.name.clone(), step.state.clone(), length, or_none(&step.message)]
    });
    table(&["STEP", "STATE", "TOOK", "MESSAGE"], rows.collect())
}

/// Events, one a line, oldest first.
pub fn events(events: &[OperationEvent], now: Timestamp) -> String {
    let rows = events.iter().map(|event| {
        let what = match (&event.step, &event.error) {
            (_, Some(error)) => format!("{} ({})", error.message, error.code),
            (Some(step), None) if step.message.is_empty() => format!("{} {}", step.name, step.state),
            (Some(step), None) => format!("{} {}: {}", step.name, step.state, step.message),
            (None, None) => format!("operation {}", event.state),
        };
        vec![event.number.to_string(), age(event.at, now), event.kind.clone(), what]
    });
    table(&["NO", "AGE", "KIND", "WHAT"], rows.collect())
}

/// What other commands take for an operation.
pub fn name(operation: &Operation) -> String {
    format!("operations/{}", operation.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    fn all() -> Vec<Operation> {
        ["pending", "running", "succeeded", "failed"].into_iter().map(fixture::operation).collect()
    }

    #[test]
    fn as_a_table() {
        insta::assert_snapshot!(list(&all(), fixture::now(), false));
    }

    #[test]
    fn as_a_wide_table() {
        insta::assert_snapshot!(list(&all(), fixture::now(), true));
    }

    #[test]
    fn steps_and_events() {
        let text = [steps(&fixture::operation("failed").steps), events(&fixture::events(), fixture::now())]
            .join("\n\n");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn the_step_it_is_at() {
        assert_eq!(current(&[]), "-");
        assert_eq!(current(&fixture::operation("running").steps), "instance (1/2)");
        assert_eq!(current(&fixture::operation("running").steps[..1]), "1/1");
    }
}
