//! What is to be read beside changes and steps: that no step is planned is no promise that nothing would change.

use domain::dry_run::Line;
use domain::reference_token;
use resources::{QuestDB, QuestDBSpec, RunState};
use serde_json::Value;

use crate::{Goal, Plan, Settings, State, Subject, validate};

/// What is refused by the API server, and cannot be told from a plan, in which the disk as it is stands for the wish.
pub(super) fn never(wished: &QuestDB, now: &QuestDBSpec) -> Vec<Line> {
    let disk = wished.status.as_ref().and_then(|status| status.volume.as_ref()).map(|volume| volume.size_gib);
    let (wished, now) = (wished.spec.storage.size_gib, now.storage.size_gib);
    if wished >= now || disk.is_some_and(|disk| wished >= disk) {
        return Vec::new();
    }
    let text = match disk.filter(|disk| *disk < now) {
        Some(disk) => format!("can be taken back to no less than the disk has, which is {disk} GiB"),
        None => format!("can only grow, and {now} GiB are asked for already"),
    };
    vec![Line::Wrong(format!("/spec/storage/sizeGib {text}"))]
}

/// What a plan waits for, which fields nothing is planned for, and what is wrong with the wish once it is to run.
pub(super) fn notes(
    (wished, now): (&QuestDB, &QuestDBSpec),
    plan: &Plan,
    settings: &Settings,
) -> impl Iterator<Item = Line> {
    let settled = plan.is_settled();
    let what = if settled {
        "nothing has to be done for it now"
    } else {
        "what it takes, if anything, is among these steps or those that follow"
    };
    let named = |field: &String| {
        plan.changes
            .iter()
            .any(|change| change.field == *field || field.starts_with(&format!("{}/", change.field)))
    };
    let mut fields = Vec::new();
    add_differing("/spec", (&json(&wished.spec), &json(now)), &mut fields);
    fields.retain(|field| !named(field));
    let fields = fields.into_iter().map(move |field| format!("{field} is asked for otherwise; {what}"));
    let later = when_it_runs(wished, settings).into_iter();
    unsettled(plan).into_iter().chain(fields).chain(later).map(Line::Note)
}

/// What is waited for, unless the steps say so themselves; what does not heal by itself in any case.
fn unsettled(plan: &Plan) -> Option<String> {
    if plan.is_settled() {
        return None;
    }
    let mut broken = plan.progress.iter().filter_map(|progress| match &progress.state {
        State::Broken(text) | State::Conflict(text) | State::Refused(text) => {
            Some((progress.part, text.as_str()))
        }
        State::Pending | State::Running(_) | State::Done => None,
    });
    let mut waiting = plan.progress.iter().filter(|_| plan.actions.is_empty()).filter_map(|progress| {
        match &progress.state {
            State::Running(text) => Some((progress.part, text.as_str())),
            State::Pending => Some((progress.part, "it has not begun")),
            State::Broken(_) | State::Conflict(_) | State::Refused(_) | State::Done => None,
        }
    });
    let (part, text) = broken.next().or_else(|| waiting.next())?;
    Some(format!("not settled: {part}: {text}"))
}

/// What is wrong with the wish of a database that is to be paused, which is checked only once it is to run again.
fn when_it_runs(wished: &QuestDB, settings: &Settings) -> Vec<String> {
    if Goal::of(wished) != Goal::Pause {
        return Vec::new();
    }
    let running = super::wished(wished, QuestDBSpec { run_state: RunState::Running, ..wished.spec.clone() });
    let subject = Subject::of(&running, settings);
    let violations = subject.and_then(|subject| validate(&running, subject, settings).err());
    let wrong = violations.into_iter().flat_map(|violations| violations.0);
    wrong
        .map(|wrong| format!("not accepted once it is to run again: {} {}", wrong.pointer, wrong.detail))
        .collect()
}

fn json(spec: &QuestDBSpec) -> Value {
    serde_json::to_value(spec).unwrap_or_default()
}

/// The fields in which two values differ, each as deep as objects go.
fn add_differing(path: &str, (one, other): (&Value, &Value), fields: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
            for key in keys {
                let of = |value: &serde_json::Map<String, Value>| value.get(key).cloned().unwrap_or_default();
                let path = format!("{path}/{}", reference_token(key));
                add_differing(&path, (&of(one), &of(other)), fields);
            }
        }
        _ if one != other => fields.push(path.to_owned()),
        _ => {}
    }
}
