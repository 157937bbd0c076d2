//! What another spec would take, without doing anything: the spec of an annotation goes through the same checks and the same
//! plan as a real one.

use resources::{QuestDB, QuestDBSpec, names};
use serde_json::Value;

use crate::{InForce, Observed, Plan, Settings, Subject, plan, validate_over};

/// Most lines of an answer.
const LINES: usize = 64;
/// Most characters of a line.
const LENGTH: usize = 300;

/// What the spec in the annotation would take, in lines for people: first what changes, then the first steps. Nothing
/// without the annotation.
pub fn rehearse(resource: &QuestDB, observed: &Observed, settings: &Settings) -> Vec<String> {
    let annotations = resource.metadata.annotations.as_ref();
    let Some(patch) = annotations.and_then(|annotations| annotations.get(names::DRY_RUN)) else {
        return Vec::new();
    };
    let lines = match patched(&resource.spec, patch) {
        Ok(spec) => answer(&QuestDB { spec, ..resource.clone() }, observed, settings),
        Err(wrong) => vec![format!("wrong: {wrong}")],
    };
    lines.into_iter().take(LINES).map(|line| line.chars().take(LENGTH).collect()).collect()
}

fn answer(wished: &QuestDB, observed: &Observed, settings: &Settings) -> Vec<String> {
    let Some(subject) = Subject::of(wished, settings) else {
        return vec!["wrong: it is not known yet which database this is".to_owned()];
    };
    let children = &observed.children;
    let in_force = InForce::of(children.stateful_set.as_deref(), children.pod.as_deref());
    match validate_over(wished, subject, settings, &in_force) {
        Ok(validated) => told(&plan(wished, &validated, observed, settings)),
        Err(violations) => {
            violations.0.iter().map(|wrong| format!("wrong: {} {}", wrong.pointer, wrong.detail)).collect()
        }
    }
}

fn told(plan: &Plan) -> Vec<String> {
    let changes = plan
        .changes
        .iter()
        .map(|change| format!("{} {}: {}", change.means.as_str(), change.field, change.why));
    let steps = plan.actions.iter().map(|action| format!("step {}: {}", action.step.name(), action.reason));
    let lines: Vec<String> = changes.chain(steps).collect();
    if lines.is_empty() { vec!["nothing would change".to_owned()] } else { lines }
}

fn patched(spec: &QuestDBSpec, patch: &str) -> Result<QuestDBSpec, serde_json::Error> {
    let mut value = serde_json::to_value(spec)?;
    merge(&mut value, serde_json::from_str(patch)?);
    serde_json::from_value(value)
}

/// A merge patch (RFC 7386): what is null goes, what is an object is merged, everything else is put in place.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(&key);
        } else {
            merge(target.entry(key).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patches_are_merged_as_the_rfc_has_it() {
        let check = |mut target: Value, patch: Value, expected: Value| {
            merge(&mut target, patch);
            assert_eq!(target, expected);
        };
        check(
            json!({ "a": "b", "c": { "d": "e", "f": "g" } }),
            json!({ "a": "z", "c": { "f": null } }),
            json!({ "a": "z", "c": { "d": "e" } }),
        );
        check(json!({ "a": [1] }), json!({ "a": [2, 3] }), json!({ "a": [2, 3] }));
        check(json!({ "a": "b" }), json!({ "a": { "b": null, "c": 1 } }), json!({ "a": { "c": 1 } }));
        check(json!([1]), json!({ "a": null }), json!({}));
    }
}
