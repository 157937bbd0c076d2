//! What another spec would take, without doing anything: the spec of an annotation goes through the same checks and the same
//! plan as a real one.

mod notes;

use std::sync::LazyLock;

use domain::Violations;
use domain::dry_run::{self, Line, QUESTION_LENGTH};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use resources::{PlanForStatus, QuestDB, QuestDBSpec, QuestDBStatus, names};
use serde_json::Value;

use crate::change::field_of;
use crate::misspelt::misspelt;
use crate::{InForce, Observed, Plan, Settings, Subject, plan, validate_over};

/// Most lines of an answer.
const LINES: usize = 64;
/// Most characters of a line.
const LENGTH: usize = 300;

/// The answer to the question in the annotations of a resource; nothing to nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rehearsal {
    lines: Vec<String>,
    question: Option<PlanForStatus>,
}

impl Rehearsal {
    /// Says in a status what was answered, and to which question, in place of what was said before.
    pub fn tell(self, status: &mut QuestDBStatus) {
        status.plan = self.lines;
        status.plan_for = self.question;
    }
}

/// What the spec in the annotation would take, in lines for people: first what changes, then the first steps. Nothing
/// without the annotation.
pub fn rehearse(resource: &QuestDB, observed: &Observed, settings: &Settings) -> Rehearsal {
    let children = &observed.children;
    let in_force = || InForce::of(children.stateful_set.as_deref(), children.pod.as_deref());
    answered(resource, |wished| answer((wished, &resource.spec), Some(observed), settings, in_force))
}

/// The same while the spec as it stands is refused, so that nothing is looked at: whether the other one would be too.
pub fn rehearse_refused(
    resource: &QuestDB,
    violations: &Violations,
    settings: &Settings,
    in_force: impl FnOnce() -> InForce,
) -> Rehearsal {
    answered(resource, |wished| {
        let mut lines = answer((wished, &resource.spec), None, settings, in_force);
        if lines.is_empty() {
            lines.push(Line::Note(format!(
                "this spec would be accepted; what it would take is not known, because the spec as it stands is refused: {violations}"
            )));
        }
        lines
    })
}

/// Whether the annotations of a resource ask anything.
pub(crate) fn is_asked(resource: &QuestDB) -> bool {
    resource.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(names::DRY_RUN))
}

/// The keys of server.conf in what is asked.
pub(crate) fn config_keys(resource: &QuestDB) -> Vec<String> {
    let annotations = resource.metadata.annotations.as_ref();
    let patch = annotations.and_then(|all| serde_json::from_str::<Value>(all.get(names::DRY_RUN)?).ok());
    let config = patch.as_ref().and_then(|patch| patch.get("config")?.as_object());
    config.into_iter().flat_map(|config| config.keys().cloned()).collect()
}

fn answered(resource: &QuestDB, answer: impl FnOnce(&QuestDB) -> Vec<Line>) -> Rehearsal {
    let annotation = |name| resource.metadata.annotations.as_ref().and_then(|all| all.get(name));
    let Some(patch) = annotation(names::DRY_RUN) else {
        return Rehearsal::default();
    };
    let lines = match patched(&resource.spec, patch) {
        Ok(spec) => answer(&wished(resource, spec)),
        Err(wrong) => wrong.into_iter().map(Line::Wrong).collect(),
    };
    let question = PlanForStatus {
        patch: dry_run::hash(patch),
        question: annotation(names::DRY_RUN_QUESTION)
            .map(|text| text.chars().take(QUESTION_LENGTH).collect()),
        generation: resource.metadata.generation.unwrap_or_default(),
    };
    Rehearsal { lines: bounded(lines), question: Some(question) }
}

/// The resource with another spec, as the API server would store it: what was accepted of the present one was another
/// generation.
fn wished(resource: &QuestDB, spec: QuestDBSpec) -> QuestDB {
    let mut wished = QuestDB { spec, ..resource.clone() };
    if wished.spec != resource.spec {
        let generation = &mut wished.metadata.generation;
        *generation = Some(generation.unwrap_or_default().saturating_add(1));
    }
    wished
}

/// As many lines as there is room for; that some are left out is said.
fn bounded(mut lines: Vec<Line>) -> Vec<String> {
    if lines.len() > LINES {
        let left_out = lines.len() + 1 - LINES;
        lines.truncate(LINES - 1);
        lines.push(Line::Note(format!("{left_out} more lines are left out")));
    }
    lines.into_iter().map(|line| line.to_string().chars().take(LENGTH).collect()).collect()
}

/// What is wrong with a wish, or else what it takes where that can be seen.
fn answer(
    (wished, now): (&QuestDB, &QuestDBSpec),
    observed: Option<&Observed>,
    settings: &Settings,
    in_force: impl FnOnce() -> InForce,
) -> Vec<Line> {
    let Some(subject) = Subject::of(wished, settings) else {
        return vec![Line::Wrong("it is not known yet which database this is".to_owned())];
    };
    let mut wrong = notes::never(wished, now);
    let validated = validate_over(wished, subject, settings, in_force);
    let mut misspelt = match (&validated, observed) {
        (Ok(validated), Some(observed)) => misspelt(validated, observed),
        _ => Violations::default(),
    };
    // One that is asked for already is left out, and all else is carried out: the plan tells of it.
    misspelt.0.retain(|wrong| !now.config.keys().any(|key| field_of(key) == wrong.pointer));
    let wrongs = validated.as_ref().err().into_iter().chain([&misspelt]).flat_map(|violations| &violations.0);
    wrong.extend(wrongs.map(|wrong| Line::Wrong(format!("{} {}", wrong.pointer, wrong.detail))));
    match (validated, observed) {
        (Ok(validated), Some(observed)) if wrong.is_empty() => {
            let plan = plan(wished, &validated, observed, settings);
            let notes: Vec<Line> = notes::notes((wished, now), &plan, settings).collect();
            told(plan, notes)
        }
        _ => wrong,
    }
}

/// Only a plan with which everything is as it should be, for the spec that stands, is nothing.
fn told(plan: Plan, notes: Vec<Line>) -> Vec<Line> {
    let changes = plan.changes.into_iter().map(|change| Line::Change {
        means: change.means.as_str().to_owned(),
        field: change.field.clone(),
        why: change.why,
    });
    let steps = plan
        .actions
        .into_iter()
        .map(|action| Line::Step { name: action.step.name().to_owned(), reason: action.reason });
    let lines: Vec<Line> = changes.chain(steps).chain(notes).collect();
    if lines.is_empty() { vec![Line::Nothing] } else { lines }
}

fn patched(spec: &QuestDBSpec, patch: &str) -> Result<QuestDBSpec, Vec<String>> {
    let told = |error: serde_json::Error| vec![error.to_string()];
    let patch: Value = serde_json::from_str(patch).map_err(told)?;
    // A field that does not exist is no wish: that nothing would change would be said of a typing error.
    let mut unknown = Vec::new();
    add_unknown(SCHEMA.as_ref(), "/spec", &patch, &mut unknown);
    if !unknown.is_empty() {
        return Err(unknown.into_iter().map(|field| format!("{field} is no field of a database")).collect());
    }
    let mut value = serde_json::to_value(spec).map_err(told)?;
    merge(&mut value, patch);
    serde_json::from_value(value).map_err(told)
}

/// The schema of the spec, as the API server has it.
static SCHEMA: LazyLock<Option<JSONSchemaProps>> = LazyLock::new(|| {
    let version = resources::definition().spec.versions.into_iter().next()?;
    version.schema?.open_api_v3_schema?.properties?.remove("spec")
});

/// Fields of a wish that the schema has no place for.
fn add_unknown(schema: Option<&JSONSchemaProps>, path: &str, wish: &Value, unknown: &mut Vec<String>) {
    let Some(schema) = schema.filter(|schema| !takes_anything(schema)) else { return };
    match wish {
        Value::Object(fields) => {
            for (key, value) in fields {
                let field = format!("{path}/{key}");
                match of_field(schema, key) {
                    Some(known) => add_unknown(Some(known), &field, value, unknown),
                    None => unknown.push(field),
                }
            }
        }
        Value::Array(items) => {
            if let Some(JSONSchemaPropsOrArray::Schema(each)) = &schema.items {
                for (place, item) in items.iter().enumerate() {
                    add_unknown(Some(each), &format!("{path}/{place}"), item, unknown);
                }
            }
        }
        _ => {}
    }
}

fn takes_anything(schema: &JSONSchemaProps) -> bool {
    schema.x_kubernetes_preserve_unknown_fields == Some(true)
        || schema.additional_properties == Some(JSONSchemaPropsOrBool::Bool(true))
}

/// The schema of a field, if there may be one of that name.
fn of_field<'a>(schema: &'a JSONSchemaProps, key: &str) -> Option<&'a JSONSchemaProps> {
    let own = schema.properties.as_ref().and_then(|known| known.get(key));
    own.or_else(|| match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(every)) => Some(every.as_ref()),
        _ => None,
    })
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
