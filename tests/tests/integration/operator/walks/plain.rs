//! What is taken out of objects before they are compared: what only counts, what was drawn, what things are called.

use cloud::{Instance, SecurityGroup, Volume, key};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use resources::QuestDB;
use resources::names::{self, secret};
use serde_json::{Map, Value, json};

use super::super::subject::Subject;

/// An object without what only counts, and without what was drawn.
pub(super) fn plain(kind: &str, object: &DynamicObject) -> Value {
    let mut value = serde_json::to_value(object).unwrap();
    // A list says them of some kinds only.
    for field in ["apiVersion", "kind"] {
        value.as_object_mut().unwrap().remove(field);
    }
    // Given by the API server, to each object anew; and who wrote which field, when.
    for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"] {
        value["metadata"].as_object_mut().unwrap().remove(field);
    }
    for pointer in ["/metadata/annotations", "/spec/template/metadata/annotations"] {
        if let Some(Value::Object(annotations)) = value.pointer_mut(pointer) {
            plain_annotations(annotations);
        }
    }
    match kind {
        "Service" => plain_service(&mut value),
        "Secret" => plain_secret(&mut value),
        // A claim without a storage class cannot be expanded: it keeps the size it was made with.
        "PersistentVolumeClaim" => value["spec"]["resources"]["requests"]["storage"] = json!("as made"),
        // When it was first seen.
        "PersistentVolume" => drop_field(&mut value, "/status", "lastPhaseTransitionTime"),
        // Generations.
        "StatefulSet" => drop_field(&mut value, "/status", "observedGeneration"),
        "Pod" => {
            // One that was made a moment after its spec named something does not know which version of that it read.
            drop_field(&mut value, "/metadata/annotations", names::READ_AT_START);
            // One that was made for the start of another version has more time for its start, and is not made anew for that. What the next
            // one has is compared, by the StatefulSet.
            drop_field(&mut value, "/spec/containers/0/startupProbe", "failureThreshold");
            drop_field(&mut value, "/status", "observedGeneration");
            let conditions = value.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
            for condition in conditions.into_iter().flatten() {
                drop_field(condition, "", "observedGeneration");
                drop_field(condition, "", "lastTransitionTime");
            }
        }
        _ => {}
    }
    value
}

fn drop_field(value: &mut Value, pointer: &str, field: &str) {
    if let Some(Value::Object(map)) = value.pointer_mut(pointer) {
        map.remove(field);
    }
}

fn plain_annotations(annotations: &mut Map<String, Value>) {
    // What became of the last upgrade, which Secrets at which version were read last, that it has served before, and for which
    // restart it was started last: the past.
    for past in [names::UPGRADE, secret::TAKEN_FROM, names::SERVED_FROM, names::RESTART] {
        annotations.remove(past);
    }
    // Hashes over the names of the database and of its machine, and a text that is drawn for other credentials.
    for hash in [names::APPLIED, names::CHECKSUM, names::TEMPLATE, secret::REVISION] {
        if let Some(value) = annotations.get_mut(hash) {
            *value = json!("there");
        }
    }
    let parsed = |value: &Value| serde_json::from_str::<Value>(value.as_str().unwrap()).unwrap();
    // The public halves of what was drawn; which keys there are counts.
    if let Some(value) = annotations.get_mut(secret::DRAWN) {
        *value = parsed(value).as_object().unwrap().keys().cloned().collect();
    }
    if let Some(value) = annotations.get_mut(names::RUNNING) {
        *value = parsed(value);
        drop_field(value, "", "restartNonce");
        // The drawn text again.
        if let Some(revision) = value.get_mut("credentials") {
            *revision = json!("there");
        }
    }
}

/// Addresses and ports are given by the API server, to each Service its own.
fn plain_service(service: &mut Value) {
    let spec = service["spec"].as_object_mut().unwrap();
    if spec.get("clusterIP").is_some_and(|address| address != "None") {
        spec.insert("clusterIP".to_owned(), json!("given"));
        spec.insert("clusterIPs".to_owned(), json!("given"));
    }
    if let Some(port) = spec.get_mut("healthCheckNodePort") {
        *port = json!("given");
    }
    for port in spec["ports"].as_array_mut().unwrap() {
        if let Some(port) = port.get_mut("nodePort") {
            *port = json!("given");
        }
    }
}

/// What is drawn is as long as ever; who may come in by a Secret that people gave is compared.
fn plain_secret(object: &mut Value) {
    let given = [secret::PG_USER, secret::HTTP_USER, secret::PG_READONLY_USER, secret::PG_READONLY_PASSWORD];
    for (name, value) in object["data"].as_object_mut().unwrap() {
        if !given.contains(&name.as_str()) {
            *value = json!(value.as_str().unwrap().len());
        }
    }
}

type Cloud<'a> = (&'a [&'a Instance], &'a [&'a Volume], &'a [&'a SecurityGroup]);

/// What a database is called and what its things are called, and what each says instead.
pub(super) fn words(
    resource: &QuestDB,
    (subject, address): (&Subject, &str),
    (machines, volumes, groups): Cloud<'_>,
) -> Vec<(String, &'static str)> {
    let short = &subject.database[28..];
    let mut words = Vec::new();
    for machine in machines {
        // The generation is in it, which counts the machines that were.
        let generation = machine.tags.get(key::GENERATION).and_then(|text| text.parse().ok());
        words.extend(generation.map(|generation| (names::node(short, generation), "(node)")));
        words.push((machine.id.to_string(), "(machine)"));
        words.extend(machine.private_ip.map(|address| (address.to_string(), "(address)")));
    }
    words.extend(volumes.iter().map(|volume| (volume.id.to_string(), "(disk)")));
    words.extend(groups.iter().map(|group| (group.id.to_string(), "(group)")));
    words.push((resource.uid().unwrap(), "(uid)"));
    words.push((address.to_owned(), "(process)"));
    words.push((subject.database.clone(), "(database)"));
    words.push((subject.name.clone(), "(name)"));
    words.push((short.to_owned(), "(short)"));
    words
}

pub(super) fn say_alike(value: &mut Value, words: &[(String, &'static str)]) {
    let alike =
        |text: &str| words.iter().fold(text.to_owned(), |text, (word, other)| text.replace(word, other));
    match value {
        Value::Object(map) => {
            let fields = std::mem::take(map).into_iter();
            *map = fields.map(|(key, value)| (alike(&key), value)).collect();
            map.values_mut().for_each(|value| say_alike(value, words));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| say_alike(value, words)),
        Value::String(text) => *text = alike(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
