//! What the definitions refuse, on a real API server: each of their rules by one change of a resource that is taken, in the words
//! that the rule declares, and each kind of bound. The tables know every rule, so that a new one needs a row.

mod rows;

use std::collections::BTreeSet;

use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::response::StatusCause;
use kube::core::{DynamicObject, Status};
use kube::discovery::ApiResource;
use resources::{QuestDB, QuestDBSnapshot, QuestDBSnapshotSchedule};
use serde_json::{Value, json};
use testkit::unique;

use self::rows::{Bound, Row};
use super::rig::{Rig, refusal};

/// The kinds that are defined.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Database,
    Snapshot,
    Schedule,
}

impl Kind {
    fn resource(self) -> ApiResource {
        match self {
            Self::Database => ApiResource::erase::<QuestDB>(&()),
            Self::Snapshot => ApiResource::erase::<QuestDBSnapshot>(&()),
            Self::Schedule => ApiResource::erase::<QuestDBSnapshotSchedule>(&()),
        }
    }

    /// As whoever may write its spec: that of a managed database is the provisioner's.
    fn api(self, rig: &Rig) -> Api<DynamicObject> {
        let client = if matches!(self, Self::Database) { &rig.provisioner } else { &rig.admin };
        Api::namespaced_with(client.clone(), &rig.namespace, &self.resource())
    }

    /// One that is taken.
    fn valid(self, rig: &Rig, name: &str) -> Value {
        let mut object = rig.managed(name, SEQ);
        let spec = match self {
            Self::Database => return object,
            Self::Snapshot => json!({ "database": "trades", "deadlineSeconds": 600 }),
            Self::Schedule => json!({ "database": "trades", "schedule": "0 3 * * *" }),
        };
        object["kind"] = json!(self.resource().kind);
        object["spec"] = spec;
        object
    }

    /// The next wish, which changes nothing else.
    fn next(self, mut object: Value) -> Value {
        if matches!(self, Self::Database) {
            object["spec"]["instruction"]["seq"] = json!(SEQ + 1);
        }
        object
    }
}

/// Where a database stands: something can be before it and after it.
const SEQ: i64 = 5;

/// When a rule refuses.
#[derive(Debug)]
enum When {
    /// When the resource is made.
    Made,
    /// When one that stands, with this beside what is always there, is changed.
    Changed(Value),
    /// When the status of one is written whose status is this.
    Told(Value),
}

/// A merge patch, carried out.
fn merged(mut target: Value, patch: &Value) -> Value {
    let Value::Object(fields) = patch else { return patch.clone() };
    if !target.is_object() {
        target = json!({});
    }
    for (field, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(field);
        } else {
            let old = target[field].take();
            target[field] = merged(old, value);
        }
    }
    target
}

async fn make(kind: Kind, rig: &Rig, object: &Value) -> kube::Result<DynamicObject> {
    let object = serde_json::from_value(object.clone()).unwrap();
    let rehearsed = PostParams { dry_run: true, ..PostParams::default() };
    kind.api(rig).create(&rehearsed, &object).await
}

async fn apply(kind: Kind, rig: &Rig, object: &Value, dry_run: bool) -> kube::Result<DynamicObject> {
    let name = object["metadata"]["name"].as_str().unwrap();
    let parameters = PatchParams { dry_run, ..PatchParams::apply("slipway-provisioner").force() };
    kind.api(rig).patch(name, &parameters, &Patch::Apply(object)).await
}

async fn tell(
    kind: Kind,
    rig: &Rig,
    name: &str,
    status: &Value,
    dry_run: bool,
) -> kube::Result<DynamicObject> {
    let api: Api<DynamicObject> = Api::namespaced_with(rig.admin.clone(), &rig.namespace, &kind.resource());
    let parameters = PatchParams { dry_run, ..PatchParams::default() };
    api.patch_status(name, &parameters, &Patch::Merge(&json!({ "status": status }))).await
}

/// The refusal of a row's change, which is the only thing that is wrong.
async fn refused(rig: &Rig, Row { kind, when, change, .. }: &Row) -> Box<Status> {
    let name = unique("refused");
    let valid = kind.valid(rig, &name);
    match when {
        When::Made => refusal(make(*kind, rig, &merged(valid, change)).await),
        When::Changed(before) => {
            let stands = merged(valid, before);
            apply(*kind, rig, &stands, false).await.unwrap();
            let next = kind.next(stands);
            apply(*kind, rig, &next, true).await.unwrap();
            refusal(apply(*kind, rig, &merged(next, change), true).await)
        }
        When::Told(before) => {
            apply(*kind, rig, &valid, false).await.unwrap();
            tell(*kind, rig, &name, before, false).await.unwrap();
            refusal(tell(*kind, rig, &name, change, true).await)
        }
    }
}

fn causes(status: &Status) -> &[StatusCause] {
    status.details.as_ref().map(|details| &details.causes[..]).unwrap_or_default()
}

/// A rule as a definition declares it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    kind: String,
    place: String,
    words: String,
    reason: String,
}

/// Looks at a schema and at all schemas within it, with the place of each.
fn walk(schema: &Value, at: &str, look: &mut dyn FnMut(&str, &Value)) {
    look(at, schema);
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        walk(field, &format!("{at}.{name}"), look);
    }
    for within in ["items", "additionalProperties"] {
        if schema[within].is_object() {
            walk(&schema[within], &format!("{at}[*]"), look);
        }
    }
}

/// The schema of each kind.
fn schemas() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for (_, definition) in resources::definitions() {
        for version in definition.spec.versions {
            let schema = serde_json::to_value(version.schema.unwrap()).unwrap();
            found.push((definition.spec.names.kind.clone(), schema["openAPIV3Schema"].clone()));
        }
    }
    found
}

fn declared() -> Vec<Rule> {
    let mut found = Vec::new();
    for (kind, schema) in schemas() {
        walk(&schema, "", &mut |at, schema| {
            let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
            found.extend(rules.map(|rule| Rule::of(&kind, at, rule)));
        });
    }
    found
}

impl Rule {
    fn of(kind: &str, at: &str, rule: &Value) -> Self {
        let text = |key: &str| rule[key].as_str().unwrap_or_default().to_owned();
        // Of a message that is worked out only the beginning is known.
        let worked_out = text("messageExpression");
        let begins = worked_out.trim_start_matches('\'').split('%').next().unwrap_or_default();
        let words = if worked_out.is_empty() { text("message") } else { begins.to_owned() };
        assert!(!words.is_empty(), "a rule without words: {rule}");
        let place = format!("{at}{}", text("fieldPath")).trim_start_matches('.').to_owned();
        Self { kind: kind.to_owned(), place, words, reason: text("reason") }
    }
}

/// The one rule that a row is about.
fn rule_of<'a>(row: &Row, rules: &'a [Rule]) -> &'a Rule {
    let kind = row.kind.resource().kind;
    let is_meant = |rule: &&Rule| rule.kind == kind && rule.words.contains(row.says);
    let found: Vec<&Rule> = rules.iter().filter(is_meant).collect();
    let [rule] = found[..] else { panic!("{kind}, {:?} names not one rule: {found:#?}", row.says) };
    rule
}

#[test]
fn every_rule_has_a_row() {
    let rules = declared();
    let rows = rows::all();
    let met: BTreeSet<&Rule> = rows.iter().map(|row| rule_of(row, &rules)).collect();
    let without: Vec<&Rule> = rules.iter().filter(|rule| !met.contains(rule)).collect();
    assert!(!rules.is_empty() && without.is_empty(), "{without:#?}");
}

/// What a schema says of a value without refusing any, or by what has rows of its own.
fn is_no_bound(word: &str) -> bool {
    let others = [
        "description",
        "title",
        "default",
        "nullable",
        "format",
        "properties",
        "items",
        "additionalProperties",
    ];
    others.contains(&word) || word.starts_with("x-kubernetes-")
}

#[test]
fn every_kind_of_bound_has_a_row() {
    let mut used = BTreeSet::new();
    for (_, schema) in schemas() {
        walk(&schema["properties"]["spec"], "", &mut |_, schema| {
            let words = schema.as_object().unwrap().keys().filter(|word| !is_no_bound(word));
            used.extend(words.cloned());
        });
    }
    let met: BTreeSet<String> = rows::bounds().iter().map(|bound| bound.word.to_owned()).collect();
    assert_eq!(met, used);
}

#[tokio::test]
async fn what_is_valid_is_taken() {
    let rig = Rig::new().await;
    for kind in [Kind::Database, Kind::Snapshot, Kind::Schedule] {
        let made = make(kind, &rig, &kind.valid(&rig, "valid")).await;
        assert!(made.is_ok(), "{kind:?}: {made:?}");
    }
    rig.end().await;
}

#[tokio::test]
async fn each_rule_refuses_what_breaks_it_in_its_own_words() {
    let rig = Rig::new().await;
    let rules = declared();
    for row in rows::all() {
        let status = refused(&rig, &row).await;
        let rule = rule_of(&row, &rules);
        assert_eq!(status.code, 422, "{rule:?}: {status:?}");
        let [cause] = causes(&status) else { panic!("{rule:?}: {status:?}") };
        assert!(cause.message.contains(&rule.words), "{rule:?}: {cause:?}");
        assert_eq!(cause.reason, rule.reason, "{rule:?}: {cause:?}");
        // The whole resource is no field.
        if !rule.place.is_empty() {
            assert_eq!(cause.field, rule.place, "{rule:?}: {cause:?}");
        }
    }
    rig.end().await;
}

#[tokio::test]
async fn what_is_out_of_bounds_is_refused_by_its_field() {
    let rig = Rig::new().await;
    for Bound { kind, word, change, field } in rows::bounds() {
        let object = merged(kind.valid(&rig, "bounds"), &change);
        let status = refusal(make(kind, &rig, &object).await);
        assert_eq!(status.code, 422, "{word} of {field}: {status:?}");
        let reason = rows::reason(word);
        let is_told = |cause: &StatusCause| cause.reason == reason && cause.field.starts_with(field);
        assert!(causes(&status).iter().any(is_told), "{word} of {field}: {status:?}");
    }
    rig.end().await;
}
