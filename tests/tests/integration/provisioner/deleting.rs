//! Resources deleted by hand: one, all, with their namespace. Where the policies stand it is refused; where somebody took them
//! away everything comes back as it was asked for.

use domain::ClusterState;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use resources::{QuestDB, names};
use serde_json::json;
use testkit::eventually;
use wire::Instruction;

use super::healing::{OFTEN, World, resource, stands_at};
use super::rig::{PATIENCE, name};
use crate::own::Own;

const DATABASES: usize = 4;
const BINDING: &str = "slipway-managed-delete";
const OF_NAMESPACES: &str = "slipway-managed-namespace";

/// A client of a cluster as one of its own controllers.
async fn as_controller(own: &Own, controller: &str) -> kube::Client {
    let mut config = Kubeconfig::read_from(&own.admin).unwrap();
    for auth in config.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        auth.impersonate = Some(format!("system:serviceaccount:kube-system:{controller}"));
        auth.impersonate_groups = Some(vec!["system:masters".to_owned()]);
    }
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

/// Ends a namespace that is on its way out, as its controller does when nothing is left in it.
async fn finish(client: &kube::Client, namespace: &str) {
    let mut ending = Api::<Namespace>::all(client.clone()).get(namespace).await.unwrap();
    ending.spec.as_mut().unwrap().finalizers = Some(Vec::new());
    let request = axum::http::Request::put(format!("/api/v1/namespaces/{namespace}/finalize"))
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&json!(ending)).unwrap());
    client.request::<Namespace>(request.unwrap()).await.unwrap();
}

/// Every identity of the resources that are there.
async fn identities(api: &Api<QuestDB>, of: &[Instruction]) -> Vec<String> {
    let mut found = Vec::new();
    for one in of {
        found.push(api.get(&name(one)).await.unwrap().metadata.uid.unwrap());
    }
    found
}

/// Waits until all are there again as they were asked for: others than before, at the same position.
async fn back(world: &World, api: &Api<QuestDB>, of: &[Instruction], before: &[String], seq: i64) {
    for (one, uid) in of.iter().zip(before) {
        let again = |found: &QuestDB| found.metadata.uid.as_ref() != Some(uid) && stands_at(found, (1, seq));
        resource(api, one, "it again", again).await;
        world.settled(one).await;
    }
}

fn refused_by(policy: &str, error: &kube::Error) {
    let text = error.to_string();
    assert!(text.contains(policy), "refused by the policy: {text}");
}

/// An API server heeds a policy a moment after it was written: what is only tried shows that it does.
async fn in_force(api: &Api<QuestDB>, name: &str, namespaces: &Api<Namespace>, namespace: &str) {
    let tried = DeleteParams { dry_run: true, ..DeleteParams::default() };
    eventually(PATIENCE, "the policies in force", async || {
        let heeded = api.delete(name, &tried).await.is_err();
        (heeded && namespaces.delete(namespace, &tried).await.is_err()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_deleted_by_hand_is_refused_or_comes_back() {
    let world = World::new().await;
    let own = Own::start().await;
    std::fs::copy(&own.provisioner, world.rig.credentials.join("own.kubeconfig")).unwrap();
    world.rig.register_as("own", ClusterState::Active).await;
    let running = world.rig.start(&OFTEN);
    let mut all = Vec::new();
    for _ in 0..DATABASES {
        all.push(world.create("own").await);
    }
    let client = testkit::client(&own.admin).await.unwrap();
    let namespace = format!("qdb-{}", world.rig.tenant);
    let api: Api<QuestDB> = Api::namespaced(client.clone(), &namespace);
    for one in &all {
        resource(&api, one, "the resource", |found| stands_at(found, (1, 1))).await;
        world.settled(one).await;
    }
    let (one, every) = (DeleteParams::default(), ListParams::default());
    let refused = |error: kube::Error| refused_by(BINDING, &error);

    // With the policies: not one, not all, and not the namespace. Who took the label off it may remove it; of what lies in it
    // the same is refused to the namespace's own controller, and it stays on its way out.
    let namespaces: Api<Namespace> = Api::all(client.clone());
    in_force(&api, &name(&all[0]), &namespaces, &namespace).await;
    let before = identities(&api, &all).await;
    let controller = as_controller(&own, "namespace-controller").await;
    let by_controller: Api<QuestDB> = Api::namespaced(controller.clone(), &namespace);
    refused(api.delete(&name(&all[0]), &one).await.map(|_| ()).unwrap_err());
    refused(api.delete_collection(&one, &every).await.map(|_| ()).unwrap_err());
    refused_by(OF_NAMESPACES, &namespaces.delete(&namespace, &one).await.map(|_| ()).unwrap_err());
    let unlabelled = Patch::Merge(json!({ "metadata": { "labels": { names::LABEL_MANAGED_BY: null } } }));
    namespaces.patch(&namespace, &PatchParams::default(), &unlabelled).await.unwrap();
    namespaces.delete(&namespace, &one).await.unwrap();
    refused(by_controller.delete_collection(&one, &every).await.map(|_| ()).unwrap_err());
    assert_eq!(identities(&api, &all).await, before, "nothing is gone");
    // What lives in it goes on; only what is new must wait for a namespace that is whole.
    world.change(&all[0], |desired| desired.storage.size_gib = 100).await;
    resource(&api, &all[0], "the change", |found| stands_at(found, (1, 2))).await;
    let new = world.create("own").await;
    world.count("select count(*) from parked_instructions where code = 'namespace'", "1").await;

    // Without it: the namespace with everything in it, then one, then all.
    Api::<ValidatingAdmissionPolicyBinding>::all(client.clone()).delete(BINDING, &one).await.unwrap();
    eventually(PATIENCE, "the policy to be gone", async || {
        by_controller.delete_collection(&one, &every).await.ok()
    })
    .await;
    finish(&controller, &namespace).await;
    back(&world, &api, &all[1..], &before[1..], 1).await;
    back(&world, &api, &all[..1], &before[..1], 2).await;
    resource(&api, &new, "the new one", |found| stands_at(found, (1, 1))).await;
    let namespace = namespaces.get(&namespace).await.unwrap();
    assert!(namespace.metadata.deletion_timestamp.is_none(), "it was made anew");
    let before = identities(&api, &all).await;
    api.delete(&name(&all[1]), &one).await.unwrap();
    back(&world, &api, &all[1..2], &before[1..2], 1).await;
    let before = identities(&api, &all).await;
    api.delete_collection(&one, &every).await.unwrap();
    back(&world, &api, &all[1..], &before[1..], 1).await;
    back(&world, &api, &all[..1], &before[..1], 2).await;
    world.settled(&new).await;
    world.count("select count(*) from parked_instructions", "0").await;
    assert_eq!(world.ask("select count(*) from dead_letters").await, "0");
    running.stop().await;
}
