//! What the operator's guide and its page on snapshots have people write is what the types read, and is accepted by the API server's
//! rules and by ours. For tests alone.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use resources::{QuestDB, QuestDBSnapshot, QuestDBSnapshotSchedule, QuestDBSpec};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::validate;
use crate::Subject;
use crate::fixture::{DATABASE, plain, settings};
use crate::schedule::Clock;

const GUIDE: &str = include_str!("../../../../deploy/operator/README.md");
const SNAPSHOTS: &str = include_str!("../../../../deploy/operator/snapshots.md");

fn read(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// What stands in the guide by itself, without its indentation. A command that is given a file is followed by that.
fn blocks() -> Vec<String> {
    let mut blocks = vec![String::new()];
    for line in GUIDE.lines() {
        match (line.strip_prefix("    "), blocks.last_mut()) {
            (Some("YAML") | None, _) => blocks.push(String::new()),
            (Some(line), _) if line.ends_with("<<'YAML'") => blocks.push(String::new()),
            (Some(line), Some(block)) => {
                block.push_str(line);
                block.push('\n');
            }
            (Some(_), None) => {}
        }
    }
    blocks
}

/// All whole objects, of both pages.
fn objects() -> Vec<Value> {
    let fenced = SNAPSHOTS.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let all = blocks().into_iter().chain(fenced.map(str::to_owned));
    all.filter(|text| text.starts_with("apiVersion:")).map(|text| read(&text)).collect()
}

/// What was written, as its type reads it: what no type knows is lost on the way, and found missing here.
fn typed<T: DeserializeOwned + Serialize>(written: &Value) -> T {
    let read: T =
        serde_json::from_value(written.clone()).unwrap_or_else(|error| panic!("{error}: {written}"));
    has(&serde_json::to_value(&read).unwrap(), written);
    read
}

fn has(read: &Value, written: &Value) {
    match (read, written) {
        (Value::Object(read), Value::Object(written)) => {
            for (key, value) in written {
                let found = read.get(key).unwrap_or_else(|| panic!("no type knows {key} of {written:?}"));
                has(found, value);
            }
        }
        (read, written) => assert_eq!(read, written),
    }
}

fn check(resource: &QuestDB, shown: &Value) {
    let refused = resource.validate_cel().err();
    assert!(refused.is_none(), "{refused:?}: {shown}");
    let settings = settings();
    let subject = Subject::naming(resource, &settings, DATABASE).unwrap();
    let refused = validate(resource, subject, &settings).err();
    assert_eq!(refused.map(|violations| violations.to_string()), None, "{shown}");
}

fn check_database(shown: &Value) {
    let mut resource: QuestDB = typed(shown);
    resource.metadata.uid = Some("uid-1".to_owned());
    check(&resource, shown);
}

fn check_schedule(shown: &Value) {
    let spec = typed::<QuestDBSnapshotSchedule>(shown).spec;
    let clock = Clock::new(&spec.schedule, &spec.time_zone, Timestamp::UNIX_EPOCH);
    assert!(clock.is_ok(), "{clock:?}: {shown}");
}

/// A part of a spec, in a spec that says nothing else.
fn check_part(shown: &Value) {
    let mut spec = json!({ "storage": { "sizeGib": 50 } });
    spec.as_object_mut().unwrap().extend(shown.as_object().unwrap().clone());
    let mut resource = plain();
    resource.spec = typed::<QuestDBSpec>(&spec);
    check(&resource, shown);
}

#[test]
fn each_object_is_accepted() {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for shown in objects() {
        let kind = shown["kind"].as_str().unwrap_or_default();
        match kind {
            "QuestDB" => check_database(&shown),
            "QuestDBSnapshot" => drop(typed::<QuestDBSnapshot>(&shown)),
            "QuestDBSnapshotSchedule" => check_schedule(&shown),
            "Secret" => drop(typed::<Secret>(&shown)),
            other => panic!("no type is known for {other}: {shown}"),
        }
        *kinds.entry(kind.to_owned()).or_default() += 1;
    }
    let expected = [("QuestDB", 4), ("QuestDBSnapshot", 2), ("QuestDBSnapshotSchedule", 2), ("Secret", 1)];
    assert_eq!(kinds, BTreeMap::from(expected.map(|(kind, count)| (kind.to_owned(), count))));
}

fn is_part(text: &str) -> bool {
    ["network:\n", "credentials:\n", "pod:\n"].iter().any(|field| text.starts_with(field))
}

#[test]
fn each_part_of_a_spec_is_accepted() {
    let parts: Vec<Value> = blocks().iter().filter(|text| is_part(text)).map(|text| read(text)).collect();
    assert_eq!(parts.len(), 5, "{parts:?}");
    for part in parts {
        check_part(&part);
    }
}

#[test]
fn each_edit_is_accepted() {
    let edits = GUIDE.lines().filter(|line| line.starts_with("| ")).filter_map(|line| line.split('`').nth(1));
    let edits = edits.filter(|edit| edit.contains(": ") && !edit.contains('…'));
    let edits: Vec<Value> = edits.map(|edit| read(&format!("{{{edit}}}"))).collect();
    assert!(edits.len() > 10, "{edits:?}");
    for edit in edits {
        check_part(&edit);
    }
}
