//! What is refused: for each rule of the definitions one change that breaks it and no other, and changes that leave each kind of
//! bound.

use serde_json::{Value, json};

use super::Kind::{Database, Schedule, Snapshot};
use super::When::{Changed, Made, Told};
use super::{Kind, When};
use crate::operator::rig::DATABASE;

/// What breaks one rule.
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) when: When,
    /// A merge patch: of the resource, or of its status where that is written.
    pub(super) change: Value,
    /// Words by which the rule is known among those of its kind.
    pub(super) says: &'static str,
}

/// What is out of bounds.
pub(super) struct Bound {
    pub(super) kind: Kind,
    /// As the schema calls it.
    pub(super) word: &'static str,
    /// A merge patch of the resource.
    pub(super) change: Value,
    pub(super) field: &'static str,
}

const OTHER: &str = "0192f3a4-5b6c-7d8e-9f00-ffffffffffff";

fn row(kind: Kind, when: When, change: Value, says: &'static str) -> Row {
    Row { kind, when, change, says }
}

fn of_spec(spec: Value) -> Value {
    [("spec", spec)].into_iter().collect()
}

fn made(spec: Value, says: &'static str) -> Row {
    row(Database, Made, of_spec(spec), says)
}

fn changed(before: Value, spec: Value, says: &'static str) -> Row {
    row(Database, Changed(of_spec(before)), of_spec(spec), says)
}

fn told(before: Value, status: Value, says: &'static str) -> Row {
    row(Database, Told(before), status, says)
}

pub(super) fn all() -> Vec<Row> {
    [of_a_database(), of_its_changes(), of_its_status(), of_copies()].into_iter().flatten().collect()
}

fn of_a_database() -> Vec<Row> {
    let balanced = json!({ "network": { "service": { "type": "LoadBalancer" } } });
    let unnamed = json!({ "network": { "ingress": { "pg": { "entryPoints": ["pg"] } } } });
    let fast = json!({ "storage": { "sizeGib": 10, "type": "io2", "iops": 10_001 } });
    vec![
        made(json!({ "deletionProtection": true, "runState": "Deleted" }), "exclude each other"),
        made(json!({ "storage": { "source": {} } }), "exactly one of snapshot"),
        made(json!({ "storage": { "iops": 2_999 } }), "gp3 allows 3000"),
        made(json!({ "storage": { "throughput": 751 } }), "gp3 allows a throughput"),
        made(fast, "io2 allows"),
        made(balanced, "must name whom the load balancer"),
        made(unnamed, "spec.network.ingress.tls is needed"),
    ]
}

fn of_its_changes() -> Vec<Row> {
    let same = || json!({});
    let restored = json!({ "storage": { "source": { "snapshot": "nightly" } } });
    vec![
        changed(same(), json!({ "instruction": { "seq": 4 } }), "slipway-fence "),
        changed(
            same(),
            json!({ "instruction": { "databaseId": OTHER } }),
            "spec.instruction.databaseId is immutable",
        ),
        changed(same(), json!({ "zone": "eu-west-1a" }), "spec.zone is immutable"),
        changed(same(), restored, "spec.storage.source is immutable"),
        changed(same(), json!({ "storage": { "sizeGib": 19 } }), "can only grow"),
        changed(
            json!({ "storage": { "provisioned": true } }),
            json!({ "storage": { "provisioned": false } }),
            "cannot be taken back",
        ),
        changed(json!({ "runState": "Purged" }), json!({ "runState": "Running" }), "Purged is final"),
    ]
}

fn of_its_status() -> Vec<Row> {
    let carried = json!({ "instruction": { "id": "i", "epoch": 1, "seq": 5, "render": 1, "hash": "h" } });
    vec![
        told(carried, json!({ "instruction": { "seq": 4 } }), "status.instruction cannot go back"),
        told(
            json!({ "databaseId": DATABASE }),
            json!({ "databaseId": null }),
            "status.databaseId is immutable",
        ),
        told(json!({}), json!({ "databaseId": OTHER }), "names another database than status.databaseId"),
    ]
}

fn of_copies() -> Vec<Row> {
    let same = || Changed(json!({}));
    let other = || json!({ "spec": { "database": "other" } });
    let patient = json!({ "spec": { "deadlineSeconds": 601 } });
    let long = json!({ "metadata": { "name": "a".repeat(51) } });
    vec![
        row(Snapshot, same(), other(), "spec.database is immutable"),
        row(Snapshot, same(), patient, "spec.deadlineSeconds is immutable"),
        row(Schedule, same(), other(), "spec.database is immutable"),
        row(Schedule, Made, long, "at most 50 characters"),
    ]
}

/// By which the API server tells what kind of bound was left.
pub(super) fn reason(word: &str) -> &'static str {
    match word {
        "required" => "FieldValueRequired",
        "type" => "FieldValueTypeInvalid",
        "enum" => "FieldValueNotSupported",
        "maxLength" => "FieldValueTooLong",
        "maxItems" | "maxProperties" => "FieldValueTooMany",
        _ => "FieldValueInvalid",
    }
}

pub(super) fn bounds() -> Vec<Bound> {
    [numbers(), texts(), many(), words()].into_iter().flatten().collect()
}

fn bound(kind: Kind, word: &'static str, spec: Value, field: &'static str) -> Bound {
    Bound { kind, word, change: of_spec(spec), field }
}

fn numbers() -> Vec<Bound> {
    let (least, most) = ("minimum", "maximum");
    let instruction = |field: &str, value: i64| json!({ "instruction": { field: value } });
    let storage = |field: &str, value: i64| json!({ "storage": { field: value } });
    vec![
        bound(Database, least, storage("sizeGib", 9), "spec.storage.sizeGib"),
        bound(Database, most, storage("sizeGib", 5_000_000_000), "spec.storage.sizeGib"),
        bound(Database, least, storage("iops", 1), "spec.storage.iops"),
        bound(Database, most, storage("throughput", 2_001), "spec.storage.throughput"),
        bound(Database, least, instruction("seq", 0), "spec.instruction.seq"),
        bound(Database, most, instruction("epoch", i64::MAX), "spec.instruction.epoch"),
        bound(
            Database,
            most,
            json!({ "pod": { "terminationGracePeriodSeconds": 601 } }),
            "spec.pod.terminationGracePeriodSeconds",
        ),
        bound(Snapshot, least, json!({ "deadlineSeconds": 29 }), "spec.deadlineSeconds"),
        bound(Snapshot, most, json!({ "deadlineSeconds": 86_401 }), "spec.deadlineSeconds"),
        bound(Schedule, least, json!({ "retention": { "keepLast": 0 } }), "spec.retention.keepLast"),
        bound(
            Schedule,
            most,
            json!({ "retention": { "maxAgeHours": 87_601 } }),
            "spec.retention.maxAgeHours",
        ),
        bound(Schedule, least, json!({ "startingDeadlineSeconds": 59 }), "spec.startingDeadlineSeconds"),
    ]
}

fn texts() -> Vec<Bound> {
    let (short, long, form) = ("minLength", "maxLength", "pattern");
    let text = |length: usize| "a".repeat(length);
    let network = |field: &str, item: String| json!({ "network": { field: [item] } });
    let volume = json!({ "storage": { "source": { "volumeId": "vol-trades" } } });
    let login = json!({ "credentials": { "psql": { "secretName": "-" } } });
    vec![
        bound(Database, short, json!({ "zone": "" }), "spec.zone"),
        bound(Database, long, json!({ "zone": text(65) }), "spec.zone"),
        bound(Database, long, json!({ "config": { "a": text(1_025) } }), "spec.config.a"),
        bound(Database, long, network("allowedCidrs", text(44)), "spec.network.allowedCidrs"),
        bound(Database, form, network("allowedNamespaces", "A".to_owned()), "spec.network.allowedNamespaces"),
        bound(
            Database,
            form,
            json!({ "instruction": { "databaseId": "trades" } }),
            "spec.instruction.databaseId",
        ),
        bound(Database, form, volume, "spec.storage.source.volumeId"),
        bound(Database, form, login, "spec.credentials.psql.secretName"),
        bound(Snapshot, short, json!({ "database": "" }), "spec.database"),
        bound(Snapshot, long, json!({ "database": text(254) }), "spec.database"),
        bound(Schedule, short, json!({ "timeZone": "" }), "spec.timeZone"),
        bound(Schedule, long, json!({ "schedule": text(129) }), "spec.schedule"),
    ]
}

fn many() -> Vec<Bound> {
    let cidrs = vec!["10.0.0.0/8"; domain::catalogue::ALLOWED_CIDRS + 1];
    let keys = 0..=domain::catalogue::CONFIG_KEYS;
    let config: serde_json::Map<String, Value> = keys.map(|key| (format!("a.{key}"), json!("1"))).collect();
    let nowhere = json!({ "network": { "ingress": { "http": { "entryPoints": [] } } } });
    vec![
        bound(
            Database,
            "maxItems",
            json!({ "network": { "allowedCidrs": cidrs } }),
            "spec.network.allowedCidrs",
        ),
        bound(Database, "maxProperties", json!({ "config": config }), "spec.config"),
        bound(Database, "minItems", nowhere, "spec.network.ingress.http.entryPoints"),
    ]
}

fn words() -> Vec<Bound> {
    let policy = |policy: &str| json!({ "deletionPolicy": policy });
    vec![
        bound(Database, "enum", json!({ "storage": { "type": "tape" } }), "spec.storage.type"),
        bound(Database, "enum", json!({ "runState": "Sideways" }), "spec.runState"),
        bound(Snapshot, "enum", policy("Snapshot"), "spec.deletionPolicy"),
        bound(
            Schedule,
            "enum",
            json!({ "snapshotTemplate": policy("Snapshot") }),
            "spec.snapshotTemplate.deletionPolicy",
        ),
        bound(Database, "required", json!({ "storage": { "sizeGib": null } }), "spec.storage.sizeGib"),
        bound(Snapshot, "required", json!({ "database": null }), "spec.database"),
        bound(Schedule, "required", json!({ "schedule": null }), "spec.schedule"),
        bound(Database, "type", json!({ "deletionProtection": "yes" }), "spec.deletionProtection"),
        bound(Schedule, "type", json!({ "suspend": "no" }), "spec.suspend"),
    ]
}
