//! What people chose of the pod, on a real API server: it takes all of it, the restart is told beforehand, nothing is written
//! again and again for it, and it goes without a trace.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use resources::names::condition;
use resources::{ChangeMeans, Phase};
use serde_json::{Value, json};
use testkit::{Spawned, eventually, unique};

use super::edits::resource;
use super::others::Others;
use super::rig::{PATIENCE, apply, refusal};
use super::subject::Subject;

/// Some of everything that may be chosen.
fn chosen() -> Value {
    json!({
        "labels": { "team": "trading" },
        "annotations": { "example.com/owner": "desk" },
        "resources": { "cpu": "1", "memory": "4096Mi" },
        "probes": { "readiness": { "periodSeconds": 2, "failureThreshold": 5 } },
        "env": [
            { "name": "TZ", "value": "UTC" },
            { "name": "EMPTY", "value": "" },
            { "name": "KEY", "valueFrom": { "secretKeyRef": { "name": "keys", "key": "a" } } },
        ],
        "volumes": [
            { "name": "scratch", "emptyDir": { "sizeLimit": "1024Mi" } },
            { "name": "ca", "configMap": { "name": "ca" } },
            { "name": "keys", "secret": { "secretName": "keys" } },
        ],
        "volumeMounts": [{ "name": "ca", "mountPath": "/etc/ca", "readOnly": true }],
        "containers": [{
            "name": "shipper", "image": "example.com/shipper:1", "command": ["/ship"], "args": ["--to", "desk"],
            "ports": [{ "name": "ship", "containerPort": 8080 }],
            "resources": { "cpu": "250m", "memory": "256Mi" },
            "volumeMounts": [{ "name": "scratch", "mountPath": "/scratch", "readOnly": false }],
        }],
        "tolerations": [{ "key": "desk", "value": "trading", "effect": "NoSchedule" }, { "key": "any" }],
        "imagePullSecrets": [{ "name": "registry" }],
        "serviceAccountName": "desk",
        "terminationGracePeriodSeconds": 300,
    })
}

async fn set(subject: &Subject) -> StatefulSet {
    let sets: Api<StatefulSet> = Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace);
    sets.get(&subject.name).await.unwrap()
}

fn template(set: &StatefulSet) -> Value {
    let mut template = serde_json::to_value(&set.spec.as_ref().unwrap().template).unwrap();
    template["metadata"]["annotations"] = Value::Null;
    template
}

/// Waits until the operator has looked so often more.
async fn looks(operator: &Spawned, more: f64) {
    let count = async || operator.metric("controller_runtime_reconcile_total", "").await;
    let before = count().await;
    eventually(PATIENCE, "more looks", async || (count().await >= before + more).then_some(())).await;
}

async fn uid_of_pod(subject: &Subject) -> Option<String> {
    let pod = subject.pods().get(&resources::names::pod(&subject.name)).await.unwrap();
    pod.metadata.uid
}

/// Makes a Secret, or writes another value to it.
async fn make_secret(subject: &Subject, name: &str, value: &str) {
    let secrets: Api<Secret> = Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace);
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
        "stringData": { "a": value } });
    secrets.patch(name, &PatchParams::apply("people"), &Patch::Apply(secret)).await.unwrap();
}

/// The pod names a `ConfigMap` and a service account that nobody has made yet: QuestDB runs on until somebody has.
async fn what_would_not_start_is_not_restarted(
    subject: &Subject,
    operator: &Spawned,
    before: Option<&String>,
) {
    let (api, name) = (subject.rig.as_admin(), &subject.name);
    let missing = async || {
        let conditions = api.get(name).await.ok()?.status?.conditions;
        let found = conditions.into_iter().find(|found| found.type_ == condition::REFERENCES_FOUND)?;
        (found.status == "False").then_some(found.message)
    };
    let account = "ServiceAccount desk, which /spec/pod/serviceAccountName names, is not there. ";
    let both = format!("ConfigMap ca, which /spec/pod/volumes/1 names, is not there; {account}");
    // Its watch of Secrets may be behind its watch of databases: a Secret that is there may be missed for a moment.
    eventually(PATIENCE, &format!("it to be told that {both}"), async || {
        missing().await.filter(|message| message.starts_with(&both))
    })
    .await;
    for number in 0..3 {
        // Nothing else would make it look.
        let note = json!({ "metadata": { "annotations": { "example.com/look": number.to_string() } } });
        api.patch(name, &PatchParams::default(), &Patch::Merge(note)).await.unwrap();
        looks(operator, 1.0).await;
    }
    assert_eq!((uid_of_pod(subject).await.as_ref(), missing().await.is_some()), (before, true));
    let maps: Api<ConfigMap> = Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace);
    let map = serde_json::from_value(json!({ "metadata": { "name": "ca" } })).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    eventually(PATIENCE, "the account alone to be missing", async || {
        missing().await.filter(|message| message.starts_with(account))
    })
    .await;
    assert_eq!(uid_of_pod(subject).await.as_ref(), before);
    let accounts: Api<ServiceAccount> = Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace);
    let account = serde_json::from_value(json!({ "metadata": { "name": "desk" } })).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    eventually(PATIENCE, "it to be found", async || missing().await.is_none().then_some(())).await;
}

async fn what_is_written_is_told_and_restarts_nobody(subject: &Subject) {
    let before = uid_of_pod(subject).await;
    make_secret(subject, "keys", "2").await;
    let (api, name) = (subject.rig.as_admin(), &subject.name);
    let pending = eventually(PATIENCE, "what was written to be told", async || {
        let pending = api.get(name).await.ok()?.status?.pending;
        (!pending.is_empty()).then_some(pending)
    });
    let pending = pending.await;
    assert!(
        pending.len() == 1
            && pending[0].field == "/spec/pod/env/2"
            && pending[0].why.starts_with("Secret keys was written"),
        "{pending:?}"
    );
    subject.carried_out(Phase::Ready).await;
    assert_eq!(uid_of_pod(subject).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_as_it_was_chosen_and_the_usual_one_again_when_nothing_is() {
    let mut subject = Subject::new(&unique("pod")).await;
    let _others = Others::of(&subject.rig);
    let lease = subject.rig.lease().await;
    let kubeconfig = subject.rig.rights(&lease).await;
    let operator = subject.rig.spawn((&lease, &kubeconfig), &[], &[("SLIPWAY_RESYNC", "1s")]);
    subject.wish_run_state("Running").await;
    subject.carried_out(Phase::Ready).await;
    let usual = template(&set(&subject).await);

    let (name, api) = (subject.name.clone(), subject.rig.as_admin());
    let told = eventually(PATIENCE, "the restart to be told", async || {
        let pending = api.get(&name).await.ok()?.status?.pending;
        let told = |found: &resources::PendingStatus| {
            found.field == "/spec/pod/env" && found.means == ChangeMeans::Restart
        };
        pending.iter().any(told).then_some(())
    });
    let before = uid_of_pod(&subject).await;
    for secret in ["keys", "registry"] {
        make_secret(&subject, secret, "1").await;
    }
    tokio::join!(told, subject.wish(|spec| spec["pod"] = chosen()));
    what_would_not_start_is_not_restarted(&subject, &operator, before.as_ref()).await;
    subject.carried_out(Phase::Ready).await;
    let found = set(&subject).await;
    let pod = &template(&found)["spec"];
    assert_eq!(pod["containers"][1]["name"], "shipper");
    assert_eq!(pod["containers"][0]["resources"]["limits"], json!({ "cpu": "1", "memory": "4Gi" }));
    assert_eq!(pod["automountServiceAccountToken"], json!(false));
    let running = subject.pods().get(&resources::names::pod(&subject.name)).await.unwrap();
    assert_eq!(running.metadata.labels.unwrap()["team"], "trading");

    // The API server writes amounts and defaults in its own way: that is no reason to write them again.
    looks(&operator, 4.0).await;
    let version = |metadata: ObjectMeta| metadata.resource_version;
    let before = version(set(&subject).await.metadata);
    looks(&operator, 4.0).await;
    assert_eq!(version(set(&subject).await.metadata), before);

    what_is_written_is_told_and_restarts_nobody(&subject).await;
    subject.wish(|_| {}).await;
    subject.carried_out(Phase::Ready).await;
    assert_eq!(template(&set(&subject).await), usual);
    subject.purge_with_others().await;
}

#[tokio::test]
async fn what_no_pod_may_be_is_refused_by_the_definition() {
    let rig = super::rig::Rig::new().await;
    let mut plain = rig.managed("pod", 1);
    plain["spec"].as_object_mut().unwrap().remove("instruction");
    let refused = [
        json!({ "env": [{ "name": "A B", "value": "x" }] }),
        json!({ "volumes": [{ "name": "a", "hostPath": { "path": "/" } }] }),
        json!({ "resources": { "cpu": "-1", "memory": "4Gi" } }),
        json!({ "containers": [{ "name": "a", "image": "a" }] }),
        json!({ "tolerations": [{ "operator": "Exists" }] }),
    ];
    // Fields that a pod has and that nobody may choose: an apply is refused for them.
    let amounts = json!({ "cpu": "1", "memory": "64Mi" });
    let privileged = json!({ "privileged": true });
    let beyond = [
        json!({ "hostNetwork": true }),
        json!({ "hostPID": true }),
        json!({ "automountServiceAccountToken": true }),
        json!({ "securityContext": { "runAsUser": 0 } }),
        json!({ "containers": [{
            "name": "a", "image": "a", "resources": amounts, "securityContext": privileged,
        }] }),
    ];
    for pod in refused.iter().chain(&beyond) {
        plain["spec"]["pod"] = pod.clone();
        let status = refusal(apply(&rig.as_admin(), &plain).await);
        assert!(status.message.contains("pod"), "{status:?}");
    }
    // Another write leaves them out.
    plain["spec"]["pod"] = json!({});
    apply(&rig.as_admin(), &plain).await.unwrap();
    let any = Api::<DynamicObject>::namespaced_with(
        rig.admin.clone(),
        &rig.namespace,
        &resource("crd.questdb.io", "v1", "QuestDB"),
    );
    for pod in beyond {
        let change = json!({ "spec": { "pod": pod } });
        let stored = any.patch("pod", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
        let stored = stored.data["spec"]["pod"].to_string();
        for field in ["host", "automount", "security", "privileged"] {
            assert!(!stored.contains(field), "{stored}");
        }
    }
    rig.end().await;
}
