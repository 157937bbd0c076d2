//! The StatefulSet: one pod, pinned to one machine, restarted only by the operator.

use std::collections::BTreeMap;

use resources::names::{self, port};
use serde_json::{Value, json};

use super::config::checksum;
use super::linker;
use super::overlay;
use super::ports::of_pod;
use super::restorer::{Copied, restorer};
use super::with_parts;
use crate::change::{Running, template_digest};
use crate::overrides::amounts_of_questdb;
use crate::pod::QUESTDB;
use crate::{Kind, Manifest, Subject, Validated};

/// User and group of the image.
pub(crate) const USER: i64 = 10_001;
/// Root of QuestDB: the whole of it is the volume, because checkpoints lie beside the data.
pub(super) const ROOT: &str = "/var/lib/questdb";
/// Where the credentials are.
const SECRETS: &str = "/etc/questdb/secrets";
/// In seconds.
const HALF_A_DAY: u64 = 43_200;

/// The StatefulSet, whose pod runs on the machine with this label, on a disk that may be a copy.
pub fn stateful_set(validated: &Validated, node: &str, copied: Option<&Copied>) -> Manifest {
    let subject = &validated.subject;
    let mut metadata = subject.owned(&subject.name);
    if !validated.keyring.drawn.is_empty() {
        // A second place for what nobody could draw again.
        metadata["annotations"][names::secret::DRAWN] = json!(json!(validated.keyring.drawn).to_string());
    }
    let spec = with_parts(
        json!({
            "replicas": 1,
            "serviceName": names::headless(&subject.name),
            "selector": { "matchLabels": subject.selector() },
            // The operator decides when the only writer stops.
            "updateStrategy": { "type": "OnDelete" },
        }),
        [("template", template(validated, node, copied))],
    );
    Manifest {
        kind: Kind::StatefulSet,
        namespace: Some(subject.namespace.clone()),
        name: subject.name.clone(),
        uid: None,
        body: with_parts(
            json!({ "apiVersion": "apps/v1", "kind": "StatefulSet" }),
            [("metadata", metadata), ("spec", spec)],
        ),
    }
}

/// Gives the start of another version its time, unless more of it is chosen: it may rewrite what lies on the disk, and one that is ended
/// half-way leaves that to whatever begins next. For this alone a pod counts as made like any other, so that nothing is to be told or done once that
/// version serves.
pub(crate) fn give_time(set: &mut Manifest) {
    let probe = &mut set.body["spec"]["template"]["spec"]["containers"][0]["startupProbe"];
    let period = probe["periodSeconds"].as_u64().unwrap_or(2).max(1);
    let chosen = probe["failureThreshold"].as_u64().unwrap_or_default();
    probe["failureThreshold"] = json!(chosen.max(HALF_A_DAY.div_ceil(period)));
}

/// Nothing but the labels of a pod: the StatefulSet's controller wrote the rest.
pub fn pod_labels(subject: &Subject, uid: Option<&str>) -> Manifest {
    let name = names::pod(&subject.name);
    Manifest {
        kind: Kind::Pod,
        namespace: Some(subject.namespace.clone()),
        body: json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": name, "namespace": subject.namespace, "labels": labels(subject) },
        }),
        name,
        uid: uid.map(str::to_owned),
    }
}

fn labels(subject: &Subject) -> BTreeMap<&'static str, &str> {
    let mut labels = subject.labels();
    labels.extend(subject.selector());
    labels
}

fn template(validated: &Validated, node: &str, copied: Option<&Copied>) -> Value {
    let mut spec = pod(validated, node, copied);
    let mut metadata = json!({ "labels": {}, "annotations": {} });
    overlay::metadata(&mut metadata, &validated.overrides);
    // Over whatever others say: we go by these.
    for (key, value) in labels(&validated.subject) {
        metadata["labels"][key] = json!(value);
    }
    let annotations = &mut metadata["annotations"];
    annotations[names::CHECKSUM] = json!(checksum(validated, node));
    annotations[names::RUNNING] = json!(Running::of(validated).text());
    annotations[names::TEMPLATE] = json!(template_digest(&mut spec));
    if let Some(nonce) = &validated.restart_nonce {
        annotations[names::RESTART] = json!(nonce);
    }
    with_parts(json!({}), [("metadata", metadata), ("spec", spec)])
}

fn pod(validated: &Validated, node: &str, copied: Option<&Copied>) -> Value {
    let subject = &validated.subject;
    let pod = json!({
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "nodeSelector": { names::LABEL_NODE: node },
        "terminationGracePeriodSeconds": 120,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        // Names the claim itself instead of a claim template: templates cannot be changed, claims outlive StatefulSets.
        "volumes": [
            { "name": "data", "persistentVolumeClaim": { "claimName": names::claim(&subject.name) } },
            { "name": "config", "configMap": { "name": names::config(&subject.name) } },
            { "name": "secrets", "secret": { "secretName": names::credentials(&subject.name), "defaultMode": 288 } },
        ],
    });
    let restorer = copied.map(|copied| restorer(validated, copied));
    let prepare = restorer.into_iter().chain([linker::linker(validated)]).collect();
    let mut pod = with_parts(
        pod,
        [
            ("affinity", alone(subject)),
            ("tolerations", tolerations(subject)),
            ("containers", Value::Array(vec![container(validated, copied)])),
            ("initContainers", Value::Array(prepare)),
        ],
    );
    overlay::pod(&mut pod, validated, copied.is_some());
    pod
}

/// One of the database's pods on a machine: whoever has the StatefulSet make a second one (by hand, or by an autoscaler) would have it
/// start on the same disk, which a claim of `ReadWriteOnce` allows on one machine. QuestDB locks its tables, but only after it has
/// brought files of another version to its own. A second pod waits, the first runs on, whether or not it was made with this.
fn alone(subject: &Subject) -> Value {
    json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
        "labelSelector": { "matchLabels": subject.selector() },
        // The one that every cluster allows.
        "topologyKey": "kubernetes.io/hostname",
    }] } })
}

/// What the pod bears of its Node, with what people chose.
pub(crate) fn all_tolerations(validated: &Validated) -> Value {
    let mut all = tolerations(&validated.subject);
    overlay::tolerations(&mut all, &validated.overrides);
    all
}

/// Nobody evicts behind our back: a machine that looks dead may still be writing.
fn tolerations(subject: &Subject) -> Value {
    json!([
        { "key": names::TAINT, "operator": "Equal", "value": subject.short(), "effect": "NoSchedule" },
        { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute" },
        { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute" },
    ])
}

fn container(validated: &Validated, copied: Option<&Copied>) -> Value {
    // The database's name leads to its machine, and in most clusters a pod has an address of its own.
    let clients = of_pod(validated).into_iter().map(|(name, port)| {
        let mut client = json!({ "name": name, "containerPort": port, "protocol": "TCP" });
        if validated.reach.host_ports {
            client["hostPort"] = json!(port);
        }
        client
    });
    let min = json!({ "name": "min", "containerPort": port::MIN, "protocol": "TCP" });
    // A start may replay much: ten minutes before it counts as failed. A restore rewrites files that are fetched as they are
    // first read: half a day, because one that is ended half-way begins anew.
    let startup = if copied.is_some() { patient() } else { probe(2, 300) };
    with_parts(
        json!({
            "name": QUESTDB,
            "image": validated.container_image(),
            "imagePullPolicy": "IfNotPresent",
            "volumeMounts": [
                { "name": "data", "mountPath": ROOT },
                { "name": "config", "mountPath": linker::SHOWN, "readOnly": true },
                { "name": "secrets", "mountPath": SECRETS, "readOnly": true },
            ],
        }),
        [
            ("env", Value::Array(environment(validated))),
            ("ports", Value::Array(clients.chain([min]).collect())),
            ("resources", resources(validated)),
            ("securityContext", overlay::security()),
            ("startupProbe", startup),
            ("readinessProbe", probe(3, 3)),
            ("livenessProbe", probe(10, 6)),
        ],
    )
}

/// Names of users, and the files in which their passwords are: no password is ever in the environment.
fn environment(validated: &Validated) -> Vec<Value> {
    let secret = names::credentials(&validated.subject.name);
    let user = |name: &str, key: &str| json!({ "name": name, "valueFrom": { "secretKeyRef": { "name": secret, "key": key } } });
    let file = |name: &str, key: &str| json!({ "name": name, "value": format!("{SECRETS}/{key}") });
    let fixed = |name: &str, value: &str| json!({ "name": name, "value": value });
    let mut all = vec![
        fixed("DO_CHOWN", "false"),
        user("QDB_PG_USER", names::secret::PG_USER),
        file("QDB_PG_PASSWORD_FILE", names::secret::PG_PASSWORD),
        user("QDB_HTTP_USER", names::secret::HTTP_USER),
        file("QDB_HTTP_PASSWORD_FILE", names::secret::HTTP_PASSWORD),
    ];
    if validated.keyring.readonly {
        all.push(fixed("QDB_PG_READONLY_USER_ENABLED", "true"));
        all.push(user("QDB_PG_READONLY_USER", names::secret::PG_READONLY_USER));
        all.push(file("QDB_PG_READONLY_PASSWORD_FILE", names::secret::PG_READONLY_PASSWORD));
    }
    if validated.keyring.ilp {
        // QuestDB takes the path from its root on, and does not start without the file.
        let path = format!("../../..{SECRETS}/{}", names::secret::ILP_KEYS);
        all.push(fixed("QDB_LINE_TCP_ENABLED", "true"));
        all.push(fixed("QDB_LINE_TCP_AUTH_DB_PATH", &path));
    }
    all
}

/// Half a day for what may rewrite the disk.
fn patient() -> Value {
    probe(2, HALF_A_DAY / 2)
}

fn probe(period: u64, failures: u64) -> Value {
    json!({
        "httpGet": { "path": "/status", "port": "min", "scheme": "HTTP" },
        "periodSeconds": period,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    })
}

/// What QuestDB gets of the machine.
pub(super) fn resources(validated: &Validated) -> Value {
    overlay::guaranteed(amounts_of_questdb(validated))
}
