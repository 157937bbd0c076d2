//! What the user is told of an operation that ran out of time. Pure.

use domain::operation::{BESIDE, StepState};
use store::{OperationRecord, Step};

/// The step that was last under way, since when, and what it waited for.
pub(super) fn out_of_time(record: &OperationRecord) -> String {
    format!("not done by {:.0}: {}", record.deadline_at, last(&record.steps))
}

/// What a database serves without may fail for as long as it is asked for, and stands after most of what it lacks.
fn last(steps: &[Step]) -> String {
    let is_open = |step: &&Step| matches!(step.state, StepState::Running | StepState::Failed);
    let open = || steps.iter().rev().filter(is_open);
    let is_lacked = |step: &&Step| !BESIDE.contains(&step.name.as_str());
    if let Some(step) = open().find(is_lacked).or_else(|| open().next()) {
        let verb = if step.state == StepState::Failed { "has failed" } else { "is under way" };
        let since = step.started_at.map(|at| format!(" since {at:.0}")).unwrap_or_default();
        return format!("step {} {verb}{since}{}", step.name, said(step));
    }
    if let Some(step) = steps.iter().find(|step| step.state == StepState::Pending) {
        let since = step.started_at.map(|at| format!(" since {at:.0}")).unwrap_or_default();
        return format!("step {} waits{since}{}", step.name, said(step));
    }
    match steps.iter().rev().find(|step| step.state == StepState::Succeeded) {
        Some(step) => {
            let at = step.ended_at.map(|at| format!(" at {at:.0}")).unwrap_or_default();
            format!("after step {} was done{at} nothing more was heard", step.name)
        }
        None => "no cluster has taken it yet".to_owned(),
    }
}

fn said(step: &Step) -> String {
    if step.message.is_empty() { String::new() } else { format!(" ({})", step.message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str, state: StepState, message: &str) -> Step {
        let at = |text: &str| Some(text.parse().unwrap());
        Step {
            name: name.to_owned(),
            state,
            message: message.to_owned(),
            started_at: at("2026-11-21T06:00:01.5Z"),
            ended_at: (state == StepState::Succeeded).then(|| "2026-11-21T06:00:03Z".parse().unwrap()),
        }
    }

    #[test]
    fn the_last_step_under_way_is_named_with_its_beginning() {
        let (done, running, failed, waits) =
            (StepState::Succeeded, StepState::Running, StepState::Failed, StepState::Pending);
        let table = [
            (vec![], "no cluster has taken it yet"),
            (
                vec![step("apply", waits, "unreachable: no answer")],
                "step apply waits since 2026-11-21T06:00:01Z (unreachable: no answer)",
            ),
            (
                vec![step("apply", done, ""), step("volume", running, ""), step("pod", waits, "")],
                "step volume is under way since 2026-11-21T06:00:01Z",
            ),
            (
                vec![step("apply", done, ""), step("instance", failed, "InsufficientInstanceCapacity")],
                "step instance has failed since 2026-11-21T06:00:01Z (InsufficientInstanceCapacity)",
            ),
            (
                vec![step("pod", running, "ErrImagePull"), step("tags", failed, "TagLimitExceeded")],
                "step pod is under way since 2026-11-21T06:00:01Z (ErrImagePull)",
            ),
            (
                vec![step("pod", done, ""), step("tags", failed, "TagLimitExceeded")],
                "step tags has failed since 2026-11-21T06:00:01Z (TagLimitExceeded)",
            ),
            (
                vec![step("apply", done, "")],
                "after step apply was done at 2026-11-21T06:00:03Z nothing more was heard",
            ),
        ];
        for (steps, expected) in table {
            assert_eq!(last(&steps), expected);
        }
    }
}
