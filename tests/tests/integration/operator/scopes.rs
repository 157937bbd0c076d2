//! An operator of some namespaces, with the rights that it prints for them: it serves there, and sees nothing elsewhere.

use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::ListParams;
use resources::Phase;
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
    let kubeconfig = front.kubeconfig(&std::env::temp_dir());
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
    let lease = testkit::temporary_namespace(&rig.admin, "lease").await.unwrap();
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
    let lease = testkit::temporary_namespace(&rig.admin, "lease").await.unwrap();
    let kubeconfig = rights::grant(&rig.admin, &[&rig.namespace], &lease).await;
    let front = Front::before(&kubeconfig).await;
    let operator = behind(&rig, &front, (&lease, &[&rig.namespace, &late.namespace]));
    let (mut first, mut second) =
        (Subject::within(&rig, &unique("first")), Subject::within(&late, &unique("second")));
    second.wish_run_state("Running").await;
    first.serving().await;
    assert!(!operator.is_ready().await, "it does not look after all that it was told to");
    assert!(operator.log().contains(&format!("in namespace {}", late.namespace)), "{}", operator.log());

    // That its databases may be seen is not enough: their parts would be taken for missing.
    rights::apply_in_part(&rig.admin, &late.namespace, &lease).await;
    let works = format!("QuestDB in namespace {}", late.namespace);
    eventually(PATIENCE, "its databases to be seen", async || {
        let log = operator.log();
        log.lines().any(|line| line.contains("a watch works again") && line.contains(&works)).then_some(())
    })
    .await;
    first.wish(|spec| spec["network"] = json!({ "allowedCidrs": ["10.9.0.0/16"] })).await;
    first.carried_out(Phase::Ready).await;
    let unseen = late.as_admin().get(&second.name).await.unwrap();
    assert!(unseen.status.is_none() && unseen.metadata.finalizers.is_none(), "{unseen:?}");
    assert!(second.machines().await.is_empty());

    rights::apply(&rig.admin, &[&rig.namespace, &late.namespace], &lease).await;
    second.served().await;
    eventually(PATIENCE, "readiness", async || operator.is_ready().await.then_some(())).await;
    first.purge().await;
    second.purge().await;
}
