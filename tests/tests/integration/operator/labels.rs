//! Objects of a database that somebody calls another's: by each of the labels by which they are found. They stay what they are
//! and get their labels back; what others put beside ours is left.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service,
};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use resources::{Phase, names};
use serde_json::{Value, json};
use testkit::{eventually, unique};

use super::rig::PATIENCE;
use super::subject::Subject;

const MARKS: [&str; 3] = [names::LABEL_DATABASE, names::LABEL_NAME, names::LABEL_NAMESPACE];

/// Writes another value, or none, to each of these labels in turn, and waits until it is ours again on the same object.
async fn call<K>(api: Api<K>, name: &str, keys: &[&str], value: &Value)
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let before = api.get(name).await.unwrap();
    for key in keys {
        assert!(before.labels().contains_key(*key), "{} {name} has no {key}", K::kind(&()));
        let patch = json!({ "metadata": { "labels": { *key: value } } });
        let changed = api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        assert_ne!(changed.labels().get(*key), before.labels().get(*key));
        eventually(PATIENCE, &format!("{key} of {} {name}", K::kind(&())), async || {
            let found = api.get(name).await.unwrap();
            assert_eq!(found.meta().uid, before.meta().uid, "made again instead of put right");
            (found.labels().get(*key) == before.labels().get(*key)).then_some(())
        })
        .await;
    }
}

/// Nothing was made again, and nothing was stopped.
async fn is_the_same(subject: &Subject, pod: &Pod) {
    subject.carried_out(Phase::Ready).await;
    let found = subject.pod().await;
    assert_eq!((found.uid(), found.metadata.deletion_timestamp), (pod.uid(), None));
    assert_eq!((subject.rig.instances().await.len(), subject.rig.volumes().await.len()), (1, 1));
}

fn of<K>(subject: &Subject) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_called_somebody_elses_is_still_ours_and_is_called_so_again() {
    let mut subject = Subject::new(&unique("called")).await;
    let _operator = subject.rig.start().await;
    let born = subject.serving().await;
    let (client, name): (Client, _) = (subject.rig.admin.clone(), subject.name.clone());
    let pod = subject.pods().get(&names::pod(&name)).await.unwrap();
    let status = born.status.unwrap();
    let node = status.node.unwrap().name.unwrap();
    let disk = names::persistent_volume(&status.volume.unwrap().id);
    let theirs = json!("theirs");
    call::<ConfigMap>(of(&subject), &names::config(&name), &MARKS, &theirs).await;
    call::<Secret>(of(&subject), &names::credentials(&name), &MARKS, &theirs).await;
    call::<Service>(of(&subject), &name, &MARKS, &theirs).await;
    call::<Service>(of(&subject), &names::headless(&name), &MARKS, &theirs).await;
    call::<StatefulSet>(of(&subject), &name, &MARKS, &theirs).await;
    call::<PersistentVolumeClaim>(of(&subject), &names::claim(&name), &MARKS, &theirs).await;
    call::<PersistentVolume>(Api::all(client.clone()), &disk, &MARKS, &theirs).await;
    call::<Node>(Api::all(client), &node, &MARKS, &theirs).await;
    call::<Pod>(of(&subject), &names::pod(&name), &MARKS, &theirs).await;
    is_the_same(&subject, &pod).await;
    subject.purge().await;
}

/// The Service sends nobody to a pod that it does not select, and its StatefulSet disowns it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_gets_the_label_back_by_which_clients_come_in() {
    let mut subject = Subject::new(&unique("selected")).await;
    let _operator = subject.rig.start().await;
    subject.serving().await;
    let services: Api<Service> = of(&subject);
    let selector = services.get(&subject.name).await.unwrap().spec.unwrap().selector.unwrap();
    let keys: Vec<&str> = selector.keys().map(String::as_str).collect();
    assert!(keys.len() > 1, "{keys:?}");
    let name = names::pod(&subject.name);
    let pod = subject.pods().get(&name).await.unwrap();
    for value in [json!("theirs"), Value::Null] {
        call(subject.pods(), &name, &keys, &value).await;
    }
    is_the_same(&subject, &pod).await;
    subject.purge().await;
}

/// By its own label the pod finds its machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_keeps_what_others_put_on_it_and_gets_our_labels_back() {
    let mut subject = Subject::new(&unique("node")).await;
    let _operator = subject.rig.start().await;
    let born = subject.serving().await;
    let pod = subject.pod().await;
    let node = born.status.unwrap().node.unwrap().name.unwrap();
    let nodes: Api<Node> = Api::all(subject.rig.admin.clone());
    let taint = json!({ "key": "example.com/slow", "effect": "PreferNoSchedule" });
    let theirs = json!({ "metadata": { "labels": { "example.com/a": "1" } }, "spec": { "taints": [taint] } });
    nodes.patch(&node, &PatchParams::default(), &Patch::Merge(&theirs)).await.unwrap();
    let all = [names::LABEL_NODE, names::LABEL_DATABASE, names::LABEL_NAME, names::LABEL_NAMESPACE];
    for value in [json!("theirs"), Value::Null] {
        call(nodes.clone(), &node, &all, &value).await;
    }
    is_the_same(&subject, &pod).await;
    let found = nodes.get(&node).await.unwrap();
    assert_eq!(found.labels().get("example.com/a").map(String::as_str), Some("1"));
    let taints = serde_json::to_value(found.spec.unwrap().taints).unwrap();
    assert_eq!(taints, json!([taint]));
    subject.purge().await;
}
