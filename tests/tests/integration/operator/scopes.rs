//! An operator of some namespaces, with the rights that it prints for them: it serves there, and sees nothing elsewhere.

use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::ListParams;
use resources::Phase;
use resources::names::{self, condition};
use serde_json::json;
use testkit::{Spawned, eventually, unique};

use super::rig::{PATIENCE, Rig, apply};
use super::rights;
use super::subject::Subject;
use crate::front::{Front, Seen};

/// Whether the API server lets somebody list Secrets of a namespace, or of all.
async fn lists_secrets(kubeconfig: &Path, namespace: Option<&str>) -> bool {
    let client = testkit::client(kubeconfig).await.unwrap();
    let secrets: Api<Secret> = match namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    match secrets.list_metadata(&ListParams::default()).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 403 => false,
        other => panic!("{other:?}"),
    }
}

/// An operator of these namespaces behind a front, which sees what it asks for.
fn behind(rig: &Rig, front: &Front, (lease, namespaces): (&str, &[&str])) -> Spawned {
    let kubeconfig = front.kubeconfig(&testkit::scratch());
    let scope = namespaces.join(",");
    rig.spawn((lease, &kubeconfig), &[], &[("SLIPWAY_WATCH_NAMESPACE", &scope)])
}

/// What somebody wishes for in a namespace that nobody looks after.
async fn elsewhere(rig: &Rig) -> Rig {
    let elsewhere = rig.beside().await;
    let mut plain = elsewhere.managed("elsewhere", 1);
    plain["spec"].as_object_mut().unwrap().remove("instruction");
    apply(&elsewhere.as_admin(), &plain).await.unwrap();
    elsewhere
}

/// Kinds that lie in namespaces, as they are asked for in the whole cluster.
fn reaches_too_far(seen: &Seen, namespaces: &[&str]) -> bool {
    let about = seen.about();
    let clustered = ["/nodes", "/persistentvolumes", "/volumeattachments"];
    let inside = |namespace: &&str| about.contains(&format!("/namespaces/{namespace}/"));
    let of_the_cluster = clustered.iter().any(|kind| about.contains(kind)) && !about.contains("/namespaces/");
    !seen.is_discovery() && !of_the_cluster && !namespaces.iter().any(inside)
}

async fn serves_in(count: usize) {
    let rig = Arc::new(Rig::new().await);
    let mut rigs = vec![Arc::clone(&rig)];
    while rigs.len() < count {
        rigs.push(Arc::new(rig.beside().await));
    }
    let elsewhere = elsewhere(&rig).await;
    let lease = rig.lease().await;
    let namespaces: Vec<_> = rigs.iter().map(|rig| rig.namespace.as_str()).collect();
    let kubeconfig = rights::grant(&rig.admin, &namespaces, &lease).await;
    assert!(!lists_secrets(&kubeconfig, Some(&elsewhere.namespace)).await);
    assert!(!lists_secrets(&kubeconfig, None).await);

    let front = Front::before(&kubeconfig).await;
    let operator = behind(&rig, &front, (&lease, &namespaces));
    operator.ready().await;
    let mut subjects: Vec<_> = rigs.iter().map(|rig| Subject::within(rig, &unique("scope"))).collect();
    for subject in &mut subjects {
        subject.serving().await;
    }
    for subject in &mut subjects {
        subject.wish(|spec| spec["network"] = json!({ "allowedCidrs": ["10.9.0.0/16"] })).await;
        subject.carried_out(Phase::Ready).await;
    }

    let untouched = elsewhere.as_admin().get("elsewhere").await.unwrap();
    assert!(untouched.status.is_none() && untouched.metadata.finalizers.is_none(), "{untouched:?}");
    let mut expected = namespaces.clone();
    expected.push(&lease);
    let too_far = front.seen(|seen| reaches_too_far(seen, &expected));
    assert!(too_far.is_empty(), "{too_far:#?}");
    assert!(operator.log().matches("forbidden").count() == 0, "{}", operator.log());
    for subject in &mut subjects {
        subject.purge().await;
    }
    elsewhere.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_of_one_namespace_serves_there_and_sees_nothing_elsewhere() {
    serves_in(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_of_two_namespaces_serves_in_both_and_sees_nothing_elsewhere() {
    serves_in(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_without_rights_holds_no_other_up_and_is_served_once_it_has_them() {
    let rig = Arc::new(Rig::new().await);
    let late = Arc::new(rig.beside().await);
    let lease = rig.lease().await;
    let kubeconfig = rights::grant(&rig.admin, &[&rig.namespace], &lease).await;
    let front = Front::before(&kubeconfig).await;
    let operator = behind(&rig, &front, (&lease, &[&rig.namespace, &late.namespace]));
    let (mut first, mut second) =
        (Subject::within(&rig, &unique("first")), Subject::within(&late, &unique("second")));
    second.wish_run_state("Running").await;
    first.serving().await;
    eventually(PATIENCE, "the refusal", async || (refused(&operator, &late).await > 0.0).then_some(())).await;
    // That one namespace is refused is no reason to restart it.
    operator.ready().await;
    let what = format!("in namespace {}", late.namespace);
    eventually(PATIENCE, "a word of the refusal", async || operator.log().contains(&what).then_some(()))
        .await;

    // That its databases may be seen is not enough: their parts would be taken for missing.
    rights::apply_in_part(&rig.admin, &late.namespace, &lease, |rule| rights::is_of(rule, names::GROUP))
        .await;
    let unseen = eventually(PATIENCE, "it to be told that its parts are not seen", async || {
        let found = late.as_admin().get(&second.name).await.unwrap();
        let conditions = &found.status.as_ref()?.conditions;
        let seen = conditions.iter().find(|condition| condition.type_ == condition::NAMESPACE_SEEN)?;
        let named =
            ["secrets", &what, "slipway-operator rbac"].iter().all(|word| seen.message.contains(word));
        (seen.status == "False" && seen.reason == "Refused" && named).then_some(found)
    })
    .await;
    first.wish(|spec| spec["network"] = json!({ "allowedCidrs": ["10.9.0.0/16"] })).await;
    first.carried_out(Phase::Ready).await;
    assert!(unseen.metadata.finalizers.is_none() && unseen.status.unwrap().database_id.is_none());
    assert!(second.machines().await.is_empty());

    rights::apply(&rig.admin, &[&rig.namespace, &late.namespace], &lease).await;
    let served = second.served().await;
    assert!(served.status.unwrap().conditions.iter().all(|found| found.reason != "NamespaceUnseen"));
    eventually(PATIENCE, "no refusal", async || (refused(&operator, &late).await == 0.0).then_some(())).await;
    operator.ready().await;
    first.purge().await;
    second.purge().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_may_see_none_of_its_namespaces_is_not_ready_until_it_may() {
    let rig = Arc::new(Rig::new().await);
    let other = rig.beside().await;
    let lease = rig.lease().await;
    let kubeconfig = rights::grant(&rig.admin, &[&other.namespace], &lease).await;
    let operator = rig.spawn((&lease, &kubeconfig), &[], &[]);
    eventually(PATIENCE, "the refusal", async || (refused(&operator, &rig).await > 0.0).then_some(())).await;
    assert!(!operator.is_ready().await);
    rights::apply(&rig.admin, &[&rig.namespace], &lease).await;
    operator.ready().await;
    other.end().await;
    rig.end().await;
}

/// How many watches of a namespace are refused.
async fn refused(operator: &Spawned, rig: &Rig) -> f64 {
    let label = format!("namespace=\"{}\"", rig.namespace);
    operator.metric("slipway_operator_watches_refused", &label).await
}
