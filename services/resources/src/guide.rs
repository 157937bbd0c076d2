//! What the operator's guide shows is what the types read: no field in it is misspelt or gone.

use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;

use crate::{
    CredentialsSpec, NetworkSpec, PodOverrides, QuestDB, QuestDBSnapshot, QuestDBSnapshotSchedule,
    QuestDBSpec,
};

const GUIDE: &str = include_str!("../../../deploy/operator/README.md");
const SNAPSHOTS: &str = include_str!("../../../deploy/operator/snapshots.md");

/// Whether everything that was written is still there after it was read: what no type knows is lost on the way.
fn check<T: serde::de::DeserializeOwned + serde::Serialize>(text: &str) -> T {
    let written: Value = serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let read: T = serde_json::from_value(written.clone()).unwrap_or_else(|error| panic!("{error}: {text}"));
    contains(&serde_json::to_value(&read).unwrap(), &written, text);
    read
}

fn contains(read: &Value, written: &Value, text: &str) {
    match (read, written) {
        (Value::Object(read), Value::Object(written)) => {
            for (key, value) in written {
                let found = read.get(key).unwrap_or_else(|| panic!("no type knows {key}: {text}"));
                contains(found, value, text);
            }
        }
        (read, written) => assert_eq!(read, written, "{text}"),
    }
}

/// Indented blocks, without their indentation.
fn blocks() -> Vec<String> {
    let mut blocks = vec![String::new()];
    for line in GUIDE.lines() {
        match (line.strip_prefix("    "), blocks.last_mut()) {
            (Some(line), Some(block)) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, Some(block)) if !block.is_empty() => blocks.push(String::new()),
            (Some(_), None) | (None, _) => {}
        }
    }
    blocks
}

#[test]
fn the_resource_of_the_guide_is_one() {
    let (_, rest) = GUIDE.split_once("<<'YAML'\n").unwrap();
    let (text, _) = rest.split_once("    YAML\n").unwrap();
    let text: Vec<&str> = text.lines().map(|line| line.strip_prefix("    ").unwrap()).collect();
    let text = text.join("\n");
    let resource: QuestDB = check(&text);
    assert_eq!(resource.metadata.name.as_deref(), Some("trades"));
}

/// The kind of a whole object, which the type of that kind reads.
fn object(text: &str) -> String {
    let written: Value = serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let kind = written["kind"].as_str().unwrap_or_default().to_owned();
    match kind.as_str() {
        "QuestDB" => drop(check::<QuestDB>(text)),
        "QuestDBSnapshot" => drop(check::<QuestDBSnapshot>(text)),
        "QuestDBSnapshotSchedule" => drop(check::<QuestDBSnapshotSchedule>(text)),
        "Secret" => drop(check::<Secret>(text)),
        other => panic!("no type is known for {other}: {text}"),
    }
    kind
}

#[test]
fn each_object_of_the_guide_and_of_what_it_says_of_snapshots_is_one() {
    let indented = blocks().into_iter().filter(|block| block.starts_with("apiVersion:"));
    let kinds: Vec<String> = indented.map(|block| object(&block)).collect();
    assert_eq!(kinds, ["Secret", "QuestDBSnapshot", "QuestDBSnapshotSchedule", "QuestDB", "QuestDB"]);
    let fenced = SNAPSHOTS.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let kinds: Vec<String> = fenced.map(object).collect();
    assert_eq!(kinds, ["QuestDBSnapshot", "QuestDBSnapshotSchedule", "QuestDB"]);
}

#[test]
fn each_network_of_the_guide_is_one() {
    let networks: Vec<String> = blocks().into_iter().filter(|block| block.starts_with("network:")).collect();
    assert_eq!(networks.len(), 3);
    for block in networks {
        let body: Value = serde_saphyr::from_str(&block).unwrap();
        check::<NetworkSpec>(&body["network"].to_string());
    }
}

#[test]
fn the_credentials_of_the_guide_are_some() {
    let all: Vec<String> = blocks().into_iter().filter(|block| block.starts_with("credentials:")).collect();
    assert_eq!(all.len(), 1);
    let body: Value = serde_saphyr::from_str(&all[0]).unwrap();
    check::<CredentialsSpec>(&body["credentials"].to_string());
}

#[test]
fn the_pod_of_the_guide_is_one() {
    let pods: Vec<String> = blocks().into_iter().filter(|block| block.starts_with("pod:")).collect();
    assert_eq!(pods.len(), 1);
    let body: Value = serde_saphyr::from_str(&pods[0]).unwrap();
    check::<PodOverrides>(&body["pod"].to_string());
}

#[test]
fn each_edit_of_the_guide_is_one() {
    let edits = GUIDE.lines().filter(|line| line.starts_with("| ")).filter_map(|line| line.split('`').nth(1));
    let edits: Vec<&str> = edits.filter(|edit| edit.contains(": ") && !edit.contains('…')).collect();
    assert!(edits.len() >= 5, "{edits:?}");
    for edit in edits {
        let mut spec: Value = serde_saphyr::from_str(&format!("{{{edit}}}")).unwrap();
        if spec.get("storage").is_none() {
            spec["storage"] = serde_json::json!({ "sizeGib": 50 });
        }
        check::<QuestDBSpec>(&spec.to_string());
    }
}
