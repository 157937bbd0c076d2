//! An operator of all namespaces: a database at rest costs the API server nothing, however much of others lies beside it and
//! changes, and the operator no memory.

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use resources::Phase;
use serde_json::{Value, json};
use testkit::{eventually, unique};

use super::edits::resource;
use super::quiet::{self, asked, assert_quiet, memory, rounds};
use super::rig::PATIENCE;
use super::rights;
use super::subject::Subject;
use crate::front::Front;

/// Foreign objects of each kind in each of two namespaces.
const FOREIGN: usize = 120;
/// Looks at the database.
const ROUNDS: f64 = 6.0;
/// What the operator may take more for some that are large. It sees what databases of other tests have, too.
const NOISE: f64 = 2.0 * quiet::NOISE;
/// By which they are told from what the database has.
const MARK: (&str, &str) = ("foreign", "yes");

fn body(kind: &str, number: usize) -> Value {
    let mut body = json!({
        "apiVersion": "v1", "kind": kind,
        "metadata": { "name": format!("f-{number}"), "labels": { MARK.0: MARK.1 } },
    });
    match kind {
        "Pod" => {
            body["spec"] = json!({
                "automountServiceAccountToken": false, "containers": [{ "name": "a", "image": "a" }],
            });
        }
        "Secret" => body["stringData"] = json!({ "a": "b" }),
        _ => body["data"] = json!({ "a": "b" }),
    }
    body
}

/// Does the same to each of the foreign objects in a namespace.
async fn each<F>(client: &Client, namespace: &str, act: impl Fn(Api<DynamicObject>, Value) -> F)
where
    F: Future<Output = kube::Result<DynamicObject>>,
{
    for kind in ["ConfigMap", "Secret", "Pod"] {
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), namespace, &resource("", "v1", kind));
        let all = (0..FOREIGN).map(|number| act(api.clone(), body(kind, number)));
        futures::stream::iter(all).buffer_unordered(8).map_ok(drop).try_collect::<()>().await.unwrap();
    }
}

async fn fill(client: &Client, namespace: &str) {
    each(client, namespace, |api, body| async move {
        api.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await
    })
    .await;
}

async fn change(client: &Client, namespace: &str) {
    let note = Patch::Merge(json!({ "metadata": { "annotations": { "example.com/a": "1" } } }));
    let note = &note;
    each(client, namespace, |api, body| async move {
        api.patch(body["metadata"]["name"].as_str().unwrap(), &PatchParams::default(), note).await
    })
    .await;
}

async fn empty(client: &Client, namespace: &str) {
    let all = ListParams::default().labels(&format!("{}={}", MARK.0, MARK.1));
    let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    let configs: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let _ = configs.delete_collection(&at_once, &all).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let _ = secrets.delete_collection(&at_once, &all).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let _ = pods.delete_collection(&at_once, &all).await.unwrap();
}

/// The way to the API server of an operator that may see all namespaces, before which nobody else's databases are shown.
async fn front(subject: &Subject, lease: &str) -> Front {
    let kubeconfig = rights::grant(&subject.rig.admin, &[], lease).await;
    let secrets: Api<Secret> = Api::all(testkit::client(&kubeconfig).await.unwrap());
    eventually(PATIENCE, "the rights to be heeded", async || {
        secrets.list_metadata(&ListParams::default().limit(1)).await.ok().map(drop)
    })
    .await;
    let front = Front::before(&kubeconfig).await;
    // Those of other tests have operators of their own.
    front.show_databases_of(&subject.rig.namespace);
    front
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_at_rest_costs_nothing_in_a_cluster_full_of_what_is_foreign() {
    let mut subject = Subject::new(&unique("all")).await;
    let admin = subject.rig.admin.clone();
    let lease = testkit::temporary_namespace(&admin, "lease").await.unwrap();
    let front = front(&subject, &lease).await;
    let kubeconfig = front.kubeconfig(&testkit::scratch());
    let all = [("SLIPWAY_RESYNC", "1s"), ("SLIPWAY_WATCH_NAMESPACE", "")];
    let operator = subject.rig.spawn((&lease, &kubeconfig), &[], &all);
    subject.serving().await;
    let in_all = front.seen(|seen| seen.is_watch() && seen.about() == "/api/v1/secrets");
    assert!(!in_all.is_empty(), "it does not look after all namespaces");
    rounds(&operator, ROUNDS).await;
    let requests = asked(&front).len();

    let foreign = testkit::temporary_namespace(&admin, "foreign").await.unwrap();
    let namespaces = [&subject.rig.namespace, &foreign];
    for namespace in namespaces {
        fill(&admin, namespace).await;
    }
    rounds(&operator, ROUNDS).await;
    let requests = assert_quiet(&front, requests, "what is there costs requests");
    for namespace in namespaces {
        change(&admin, namespace).await;
    }
    rounds(&operator, ROUNDS).await;
    let requests = assert_quiet(&front, requests, "what changes costs requests");
    for namespace in namespaces {
        empty(&admin, namespace).await;
    }
    rounds(&operator, ROUNDS).await;
    let requests = assert_quiet(&front, requests, "what goes costs requests");

    let large = testkit::temporary_namespace(&admin, "large").await.unwrap();
    let before = memory(&operator).await;
    quiet::fill(&subject.rig, &large).await;
    rounds(&operator, ROUNDS).await;
    let grown = memory(&operator).await - before;
    quiet::empty(&subject.rig, &large).await;
    let requests = assert_quiet(&front, requests, "what is large costs requests");
    assert!(grown < NOISE, "{grown} bytes more in memory for what is not ours");

    // The count counts: another wish is seen by it.
    subject.wish(|spec| spec["network"] = json!({ "allowedCidrs": ["10.9.0.0/16"] })).await;
    subject.carried_out(Phase::Ready).await;
    assert!(asked(&front).len() > requests);
    subject.purge().await;
}
