//! What RBAC denies beside the watches that every database needs: it is told, nothing else waits for it, and it is done once
//! it is allowed. A look that AWS denies is told, too.

use std::path::Path;

use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use resources::names::{self, condition};
use resources::{Phase, QuestDB};
use serde_json::{Value, json};
use testkit::{eventually, unique};

use super::foreign::{DEFINING, Kind, definition};
use super::hands::undefine;
use super::rig::PATIENCE;
use super::rights;
use super::subject::Subject;
use crate::endpoint::{control, fault};

/// Waits for a condition of this status that names all of `words`.
async fn told(subject: &Subject, kind: &str, status: &str, words: &[&str]) -> QuestDB {
    let api = subject.rig.as_admin();
    eventually(PATIENCE, &format!("{kind} to be {status} because of {words:?}"), async || {
        let resource = api.get(&subject.name).await.ok()?;
        let conditions = &resource.status.as_ref()?.conditions;
        let found = conditions.iter().find(|found| found.type_ == kind)?;
        let is_so = found.status == status && words.iter().all(|word| found.message.contains(word));
        is_so.then_some(resource)
    })
    .await
}

/// Waits until the operator's account may delete no `NetworkPolicy` of a namespace any more.
async fn denied_by_now(kubeconfig: &Path, namespace: &str) {
    let client = testkit::client(kubeconfig).await.unwrap();
    let policies: Api<NetworkPolicy> = Api::namespaced(client, namespace);
    eventually(PATIENCE, "the rights to be gone", async || {
        let answer = policies.delete("nobody", &DeleteParams::default()).await;
        matches!(answer, Err(kube::Error::Api(status)) if status.code == 403).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_is_denied_is_told_and_done_once_it_is_allowed() {
    let mut subject = Subject::new(&unique("write")).await;
    let (admin, namespace) = (subject.rig.admin.clone(), subject.rig.namespace.clone());
    let lease = testkit::temporary_namespace(&admin, "lease").await.unwrap();
    let kubeconfig = subject.rig.rights(&lease).await;
    let operator = subject.rig.spawn((&lease, &kubeconfig), &[], &[]);
    subject.serving().await;
    let policies: Api<NetworkPolicy> = Api::namespaced(admin.clone(), &namespace);
    let guard = names::guard(&subject.name);
    let before = policies.get(&guard).await.unwrap();

    rights::apply_in_part(&admin, &namespace, &lease, |rule| {
        if rights::is_of(rule, "networking.k8s.io") {
            rule["verbs"] = json!(["get", "list", "watch"]);
        }
        true
    })
    .await;
    denied_by_now(&kubeconfig, &namespace).await;
    subject.wish(|spec| spec["network"] = json!({ "allowedCidrs": ["10.9.0.0/16"] })).await;
    let words =
        [&*format!("patch networkpolicies.networking.k8s.io {guard} in namespace {namespace}"), "rbac"];
    let resource = told(&subject, condition::ACCESS_DENIED, "True", &words).await;
    let ready = |found: &&k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| found.type_ == "Ready";
    let status = resource.status.unwrap();
    assert_eq!(status.conditions.iter().find(ready).unwrap().status, "True", "what serves goes on");
    assert_eq!(policies.get(&guard).await.unwrap().spec, before.spec);
    operator.ready().await;

    rights::apply(&admin, &[&namespace], &lease).await;
    subject.carried_out(Phase::Ready).await;
    told(&subject, condition::ACCESS_DENIED, "False", &[]).await;
    assert_ne!(policies.get(&guard).await.unwrap().spec, before.spec);
    subject.purge().await;
}

/// Whether EC2 changes the disk already is asked before it is told to, and nothing else is done for a database of which that is not known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_that_aws_denies_is_told_and_what_waits_for_it_is_done_once_it_is_allowed() {
    let mut subject = Subject::new(&unique("look")).await;
    let _operator = subject.rig.start().await;
    subject.serving().await;
    let volume = subject.volume().await;
    let denied = json!({
        "kind": "fail",
        "action": "DescribeVolumesModifications",
        "code": "UnauthorizedOperation",
        "contains": volume.id.as_str(),
    });
    let denied = fault(&denied).await;
    subject.wish(|spec| spec["storage"]["iops"] = json!(4_000)).await;
    let words = ["DescribeVolumesModifications: UnauthorizedOperation"];
    let resource = told(&subject, condition::ACCESS_DENIED, "True", &words).await;
    assert!(!plan::is_judged(&resource), "nothing was done for this wish");
    assert_eq!(subject.volume().await.iops, volume.iops);

    control("DELETE", &format!("/faults/{denied}"), &Value::Null).await;
    subject.carried_out(Phase::Ready).await;
    told(&subject, condition::ACCESS_DENIED, "False", &[]).await;
    assert_eq!(subject.volume().await.iops, Some(4_000));
    subject.purge().await;
}

/// A kind of somebody else, defined by one test at a time.
const MONITORS: Kind = ("monitoring.coreos.com", "v1", "podmonitors", "PodMonitor");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_is_denied_is_told_to_whoever_asks_for_it_and_made_once_it_is_allowed() {
    let _defining = DEFINING.lock().await;
    let mut subject = Subject::new(&unique("kind")).await;
    let (admin, namespace) = (subject.rig.admin.clone(), subject.rig.namespace.clone());
    let definition = definition(MONITORS);
    let (group, version, plural, kind) = MONITORS;
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    let definitions: Api<CustomResourceDefinition> = Api::all(admin.clone());
    let name = definition.metadata.name.clone().unwrap();
    let parameters = PatchParams::apply("slipway-tests").force();
    definitions.patch(&name, &parameters, &Patch::Apply(&definition)).await.unwrap();
    let monitors: Api<DynamicObject> = Api::namespaced_with(admin.clone(), &namespace, &resource);
    eventually(PATIENCE, "the kind to be known", async || monitors.list(&ListParams::default()).await.ok())
        .await;
    let lease = testkit::temporary_namespace(&admin, "lease").await.unwrap();
    let kubeconfig = subject.rig.rights(&lease).await;
    let others = |rule: &mut serde_json::Value| !rights::is_of(rule, "monitoring.coreos.com");
    rights::apply_in_part(&admin, &namespace, &lease, others).await;
    let its_own = testkit::client(&kubeconfig).await.unwrap();
    let its_own: Api<DynamicObject> = Api::namespaced_with(its_own, &namespace, &resource);
    eventually(PATIENCE, "the right to be gone", async || {
        let answer = its_own.list(&ListParams::default()).await;
        matches!(answer, Err(kube::Error::Api(status)) if status.code == 403).then_some(())
    })
    .await;
    let operator = subject.rig.spawn((&lease, &kubeconfig), &[], &[]);
    let served = subject.serving().await;
    let conditions = served.status.unwrap().conditions;
    assert!(
        conditions.iter().all(|found| found.type_ != condition::INTEGRATIONS_READY),
        "nobody asked for it"
    );
    operator.ready().await;

    subject.wish(|spec| spec["network"] = json!({ "monitor": { "kind": "PodMonitor" } })).await;
    subject.carried_out(Phase::Ready).await;
    let words = [&*format!("list podmonitors.monitoring.coreos.com in namespace {namespace}"), "rbac"];
    told(&subject, condition::INTEGRATIONS_READY, "False", &words).await;
    assert!(monitors.get_opt(&subject.name).await.unwrap().is_none());

    rights::apply(&admin, &[&namespace], &lease).await;
    told(&subject, condition::INTEGRATIONS_READY, "True", &[]).await;
    eventually(PATIENCE, "the monitor", async || monitors.get_opt(&subject.name).await.ok()?).await;
    subject.purge().await;
    undefine(&admin, MONITORS).await;
}
