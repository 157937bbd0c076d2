//! What the operator's guide and its page on snapshots have people write is accepted, by the API server's rules and by ours. For tests
//! alone.

use jiff::Timestamp;
use resources::{QuestDB, QuestDBSnapshotSchedule};
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

/// All objects of a kind.
fn objects(kind: &str) -> Vec<Value> {
    let fenced = SNAPSHOTS.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let all = blocks().into_iter().chain(fenced.map(str::to_owned));
    let objects = all.filter(|text| text.starts_with("apiVersion:")).map(|text| read(&text));
    objects.filter(|object| object["kind"] == kind).collect()
}

fn check(resource: &QuestDB, shown: &Value) {
    let refused = resource.validate_cel().err();
    assert!(refused.is_none(), "{refused:?}: {shown}");
    let settings = settings();
    let subject = Subject::naming(resource, &settings, DATABASE).unwrap();
    let refused = validate(resource, subject, &settings).err();
    assert_eq!(refused.map(|violations| violations.to_string()), None, "{shown}");
}

/// A part of a spec, in a spec that says nothing else.
fn check_part(shown: &Value) {
    let mut spec = json!({ "storage": { "sizeGib": 50 } });
    spec.as_object_mut().unwrap().extend(shown.as_object().unwrap().clone());
    let mut resource = plain();
    resource.spec = serde_json::from_value(spec).unwrap();
    check(&resource, shown);
}

#[test]
fn each_database_is_accepted() {
    let databases = objects("QuestDB");
    assert_eq!(databases.len(), 4, "{databases:?}");
    for shown in databases {
        let mut written = shown.clone();
        written["metadata"]["uid"] = json!("uid-1");
        check(&serde_json::from_value(written).unwrap(), &shown);
    }
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

#[test]
fn each_schedule_can_be_followed() {
    let schedules = objects("QuestDBSnapshotSchedule");
    assert_eq!(schedules.len(), 2, "{schedules:?}");
    for shown in schedules {
        let schedule: QuestDBSnapshotSchedule = serde_json::from_value(shown).unwrap();
        let clock = Clock::new(&schedule.spec.schedule, &schedule.spec.time_zone, Timestamp::UNIX_EPOCH);
        assert!(clock.is_ok(), "{clock:?}");
    }
}
