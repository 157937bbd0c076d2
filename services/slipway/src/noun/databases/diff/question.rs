//! A question to the operator and what becomes of it, as values. Pure.

use std::collections::BTreeMap;

use domain::dry_run::{self, Line};
use domain::reference_token;
use serde::Deserialize;
use serde_json::{Value, json};

/// What is read of a resource.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Resource {
    pub(super) metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    pub(super) resource_version: String,
    pub(super) generation: i64,
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Spec {
    instruction: Option<Instruction>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Instruction {
    database_id: String,
    #[serde(default)]
    epoch: i64,
    #[serde(default)]
    seq: i64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    plan: Vec<String>,
    plan_for: Option<PlanFor>,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Deserialize)]
struct PlanFor {
    patch: String,
    #[serde(default)]
    question: Option<String>,
    generation: i64,
}

#[derive(Debug, Clone, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    message: String,
}

/// The database that is meant, as the API has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Meant {
    /// Its identity.
    pub(super) database: String,
    /// Epoch and number of its last change.
    pub(super) position: (i64, i64),
}

impl Resource {
    /// What forbids to ask it: that it is of another database than the one that is meant, that it has not got the last change
    /// of that yet, or that a question stands already whose place is not to be taken.
    pub(super) fn obstacle(&self, meant: Option<&Meant>, overwrite: bool) -> Option<Obstacle<'_>> {
        let instruction = self.spec.instruction.as_ref();
        let database = instruction.map(|instruction| instruction.database_id.as_str());
        let position = instruction.map(|instruction| (instruction.epoch, instruction.seq));
        if let Some(meant) = meant {
            if database != Some(&meant.database) {
                return Some(Obstacle::OfAnother(database));
            }
            if position.is_none_or(|position| position < meant.position) {
                return Some(Obstacle::Behind);
            }
        }
        self.standing().filter(|_| !overwrite).map(Obstacle::Stands)
    }

    /// The patch of a question that stands.
    fn standing(&self) -> Option<&str> {
        self.annotation(dry_run::PATCH)
    }

    /// What the operator says that may keep it from answering, in words.
    pub(super) fn hindrances(&self) -> Vec<String> {
        let bad = [
            ("NamespaceSeen", "False"),
            ("AccessDenied", "True"),
            ("Conflict", "True"),
            ("ReconcilePaused", "True"),
        ];
        let conditions = self.status.conditions.iter();
        conditions
            .filter(|condition| bad.contains(&(condition.kind.as_str(), condition.status.as_str())))
            .map(|condition| format!("{} is {}: {}", condition.kind, condition.status, condition.message))
            .collect()
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.get(name).map(String::as_str)
    }
}

/// Why a resource is not asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle<'a> {
    /// It carries out the instructions of this database, or of none.
    OfAnother(Option<&'a str>),
    /// It has an older state of the database than the API: an answer would be about that.
    Behind,
    /// The patch of a question that stands.
    Stands(&'a str),
}

/// A question.
#[derive(Debug, Clone)]
pub(super) struct Question {
    patch: String,
    hash: String,
    id: String,
    /// What the status said before it was asked.
    before: Vec<String>,
}

/// How far a question came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nobody has answered.
    Waits,
    /// The answer to it, about the spec that stands.
    Answered(Vec<Line>),
    /// Somebody answers, and does not say what.
    TooOld,
    /// It stands no more: somebody took it off, or put another in its place.
    Taken,
}

impl Question {
    /// Asks what a merge patch of the spec would take; `id` is nobody else's.
    pub(super) fn new(patch: &Value, id: String) -> Self {
        let patch = patch.to_string();
        let hash = dry_run::hash(&patch);
        Self { patch, hash, id, before: Vec::new() }
    }

    /// Its patch, as it stands in the annotation.
    pub(super) fn patch(&self) -> &str {
        &self.patch
    }

    /// The patch of a resource that puts it there, refused if the resource was changed since it was read.
    pub(super) fn put(&mut self, read: &Resource) -> String {
        self.before.clone_from(&read.status.plan);
        let annotations = json!({ dry_run::PATCH: self.patch, dry_run::QUESTION: self.id });
        let version = &read.metadata.resource_version;
        json!({ "metadata": { "resourceVersion": version, "annotations": annotations } }).to_string()
    }

    /// The JSON patch of a resource that takes it off, refused if it is not there any more.
    pub(super) fn take_off(&self) -> String {
        let (patch, question) = (pointer(dry_run::PATCH), pointer(dry_run::QUESTION));
        json!([
            { "op": "test", "path": patch, "value": self.patch },
            { "op": "test", "path": question, "value": self.id },
            { "op": "remove", "path": patch },
            { "op": "remove", "path": question },
        ])
        .to_string()
    }

    /// The same where somebody put another patch under its name, which stays.
    pub(super) fn take_name_off(&self) -> String {
        let question = pointer(dry_run::QUESTION);
        json!([{ "op": "test", "path": question, "value": self.id }, { "op": "remove", "path": question }])
            .to_string()
    }

    /// Whether its name stands, be it over another patch.
    pub(super) fn is_named_in(&self, read: &Resource) -> bool {
        read.annotation(dry_run::QUESTION) == Some(&self.id)
    }

    /// Whether it stands.
    pub(super) fn stands_in(&self, read: &Resource) -> bool {
        self.is_named_in(read) && read.standing() == Some(&self.patch)
    }

    /// Whether it is still to be put into a resource, or why it may not be. One that stands is not: a conflict may have been
    /// with a write of our own, of which nobody heard.
    pub(super) fn is_to_be_put<'a>(
        &self,
        read: &'a Resource,
        meant: Option<&Meant>,
        overwrite: bool,
    ) -> Result<bool, Obstacle<'a>> {
        if self.stands_in(read) {
            return Ok(false);
        }
        read.obstacle(meant, overwrite).map_or(Ok(true), Err)
    }

    /// How far it came.
    pub(super) fn verdict(&self, read: &Resource) -> Verdict {
        if !self.stands_in(read) {
            return Verdict::Taken;
        }
        let status = &read.status;
        match &status.plan_for {
            Some(PlanFor { patch, question, generation })
                if *patch == self.hash
                    && question.as_deref() == Some(&self.id)
                    && *generation == read.metadata.generation =>
            {
                let lines = status.plan.iter().map(|line| match line.parse() {
                    Ok(line) => line,
                });
                Verdict::Answered(lines.collect())
            }
            Some(_) => Verdict::Waits,
            // What stood there before may be what is left of an older operator.
            None if status.plan.is_empty() || status.plan == self.before => Verdict::Waits,
            None => Verdict::TooOld,
        }
    }
}

/// The place of an annotation, as a JSON pointer.
fn pointer(annotation: &str) -> String {
    format!("/metadata/annotations/{}", reference_token(annotation))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0192f3a4-5b6c-7d8e-9f00-112233445566";

    fn read(value: &Value) -> Resource {
        serde_json::from_value(value.clone()).unwrap()
    }

    fn question() -> Question {
        Question::new(&json!({ "storage": { "sizeGib": 80 } }), ID.to_owned())
    }

    /// A resource in which the question stands and is answered.
    fn answered() -> Value {
        let question = question();
        json!({
            "metadata": {
                "resourceVersion": "7", "generation": 3,
                "annotations": { dry_run::PATCH: question.patch, dry_run::QUESTION: ID },
            },
            "status": {
                "plan": ["online /spec/storage/sizeGib: why", "step ModifyVolume: how"],
                "planFor": { "patch": question.hash, "question": ID, "generation": 3 },
            },
        })
    }

    #[test]
    fn the_hash_is_the_one_that_the_operator_writes() {
        // printf %s '{"storage":{"sizeGib":80}}' | sha256sum | cut -c-16
        assert_eq!(
            (question().patch(), question().hash.as_str()),
            (r#"{"storage":{"sizeGib":80}}"#, "a53c5f69ccffa37a")
        );
    }

    #[test]
    fn only_the_answer_to_this_question_about_this_spec_counts() {
        let line = |text: &str| text.parse::<Line>().unwrap();
        let lines = vec![line("online /spec/storage/sizeGib: why"), line("step ModifyVolume: how")];
        let table: [(&str, Value, Verdict); 12] = [
            ("/status/plan", answered()["status"]["plan"].clone(), Verdict::Answered(lines)),
            ("/status/plan", json!([]), Verdict::Answered(Vec::new())),
            ("/status/planFor/patch", json!("0000000000000000"), Verdict::Waits),
            ("/status/planFor/question", json!("another"), Verdict::Waits),
            ("/status/planFor/question", Value::Null, Verdict::Waits),
            ("/status/planFor/generation", json!(2), Verdict::Waits),
            ("/metadata/generation", json!(4), Verdict::Waits),
            ("/status", json!({}), Verdict::Waits),
            ("/status/planFor", Value::Null, Verdict::TooOld),
            ("/metadata/annotations", json!({}), Verdict::Taken),
            ("/metadata/annotations/crd.questdb.io~1dry-run", json!("{}"), Verdict::Taken),
            ("/metadata/annotations/crd.questdb.io~1dry-run-question", json!("another"), Verdict::Taken),
        ];
        for (place, value, expected) in table {
            let mut resource = answered();
            *resource.pointer_mut(place).unwrap() = value.clone();
            assert_eq!(question().verdict(&read(&resource)), expected, "{place} = {value}");
        }
    }

    #[test]
    fn what_stood_there_before_is_not_the_answer_of_an_older_operator() {
        let mut resource = answered();
        resource["status"]["planFor"] = Value::Null;
        let mut question = question();
        question.put(&read(&resource));
        assert_eq!(question.verdict(&read(&resource)), Verdict::Waits);
        resource["status"]["plan"] = json!(["nothing would change"]);
        assert_eq!(question.verdict(&read(&resource)), Verdict::TooOld);
    }

    #[test]
    fn it_is_put_over_what_was_read_and_taken_off_only_where_it_stands() {
        let mut question = question();
        let put: Value = serde_json::from_str(&question.put(&read(&answered()))).unwrap();
        assert_eq!(put["metadata"]["resourceVersion"], "7");
        assert_eq!(put["metadata"]["annotations"], answered()["metadata"]["annotations"]);
        let off: Value = serde_json::from_str(&question.take_off()).unwrap();
        let steps: Vec<_> = off.as_array().unwrap().iter().map(|step| step["op"].as_str().unwrap()).collect();
        assert_eq!(steps, ["test", "test", "remove", "remove"]);
        assert_eq!(off[1]["path"], "/metadata/annotations/crd.questdb.io~1dry-run-question");
        assert_eq!((&off[0]["value"], &off[1]["value"]), (&json!(question.patch), &json!(ID)));
        let off: Value = serde_json::from_str(&question.take_name_off()).unwrap();
        assert_eq!(off.as_array().unwrap().len(), 2);
    }

    #[test]
    fn what_may_keep_the_operator_from_answering_is_read_from_its_conditions() {
        let condition =
            |kind: &str, status: &str| json!({ "type": kind, "status": status, "message": "because" });
        let resource = json!({ "metadata": {}, "status": { "conditions": [
            condition("Ready", "False"), condition("NamespaceSeen", "False"), condition("AccessDenied", "False"),
            condition("ReconcilePaused", "True"),
        ]}});
        let expected = ["NamespaceSeen is False: because", "ReconcilePaused is True: because"];
        assert_eq!(read(&resource).hindrances(), expected);
        assert_eq!(read(&json!({ "metadata": {} })).hindrances(), Vec::<String>::new());
    }

    /// The database, as the API has it after so many changes.
    fn meant(position: (i64, i64)) -> Meant {
        Meant { database: ID.to_owned(), position }
    }

    #[test]
    fn a_question_of_our_own_is_nobody_elses() {
        let asked = read(&answered());
        assert_eq!(question().is_to_be_put(&asked, None, false), Ok(false));
        let other = Question::new(&json!({}), "another".to_owned());
        assert!(matches!(other.is_to_be_put(&asked, None, false), Err(Obstacle::Stands(_))));
        assert_eq!(other.is_to_be_put(&asked, None, true), Ok(true));
        assert_eq!(question().is_to_be_put(&read(&json!({ "metadata": {} })), None, false), Ok(true));
    }

    #[test]
    fn a_resource_that_has_not_got_the_last_change_is_not_asked() {
        let resource = |annotations: Value| {
            read(&json!({ "metadata": { "annotations": annotations },
                "spec": { "instruction": { "databaseId": ID, "epoch": 2, "seq": 7 } } }))
        };
        let table = [
            ((2, 6), None),
            ((2, 7), None),
            ((1, 9), None),
            ((2, 8), Some(Obstacle::Behind)),
            ((3, 1), Some(Obstacle::Behind)),
        ];
        for (position, expected) in table {
            let found = resource(json!({}));
            assert_eq!(found.obstacle(Some(&meant(position)), false), expected, "{position:?}");
            assert_eq!(found.obstacle(None, false), None);
        }
        let asked = resource(json!({ dry_run::PATCH: "{}" }));
        assert_eq!(asked.obstacle(Some(&meant((2, 8))), true), Some(Obstacle::Behind));
    }

    #[test]
    fn it_is_asked_only_of_the_right_database_and_over_nobody_else() {
        const OTHER: &str = "0192f3a4-5b6c-7d8e-9f00-ffffffffffff";
        let resource = |database: Option<&str>, annotations: Value| {
            let instruction = database.map(|id| json!({ "databaseId": id, "epoch": 1, "seq": 1 }));
            read(
                &json!({ "metadata": { "annotations": annotations }, "spec": { "instruction": instruction } }),
            )
        };
        let free = || json!({ "another": "annotation" });
        let asked = || json!({ dry_run::PATCH: "{}" });
        let table = [
            (resource(Some(ID), free()), Some(meant((1, 1))), false, None),
            (resource(Some(ID), free()), None, false, None),
            (resource(None, free()), None, false, None),
            (
                resource(Some(OTHER), free()),
                Some(meant((1, 1))),
                false,
                Some(Obstacle::OfAnother(Some(OTHER))),
            ),
            (
                resource(Some(OTHER), free()),
                Some(meant((1, 1))),
                true,
                Some(Obstacle::OfAnother(Some(OTHER))),
            ),
            (resource(None, free()), Some(meant((1, 1))), false, Some(Obstacle::OfAnother(None))),
            (resource(Some(ID), asked()), Some(meant((1, 1))), false, Some(Obstacle::Stands("{}"))),
            (resource(Some(ID), asked()), Some(meant((1, 1))), true, None),
            (resource(None, asked()), None, false, Some(Obstacle::Stands("{}"))),
        ];
        for (resource, meant, overwrite, expected) in table {
            assert_eq!(
                resource.obstacle(meant.as_ref(), overwrite),
                expected,
                "{meant:?} {overwrite} {resource:?}"
            );
        }
    }
}
