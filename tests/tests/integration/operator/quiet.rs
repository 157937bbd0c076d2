//! A fleet at rest costs the API server nothing, however often its databases are looked at; and what is not ours costs the
//! operator neither requests nor memory, however much there is of it.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use resources::Phase;
use serde_json::json;
use testkit::{Spawned, eventually, unique};

use super::rig::{PATIENCE, Rig, apply};
use super::subject::Subject;
use crate::front::{Front, Seen};

/// Databases beside the one that serves.
const PAUSED: usize = 9;
/// Looks at all of them together: eight at each.
const ROUNDS: f64 = 80.0;
/// Foreign objects of each kind in a namespace, and bytes in each.
const FOREIGN: (usize, usize) = (100, 500_000);
/// By which they are told from what the databases have.
const MARK: (&str, &str) = ("foreign", "yes");
/// What a process may take more from one moment to the next, which is the allocator's doing: a small part of what is
/// foreign.
pub(super) const NOISE: f64 = 12_000_000.0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_at_rest_asks_for_nothing_and_what_is_foreign_is_not_even_noticed() {
    let mut subject = Subject::new(&unique("quiet")).await;
    let lease = subject.rig.lease().await;
    let front = Front::before(&subject.rig.rights(&lease).await).await;
    let kubeconfig = front.kubeconfig(&testkit::scratch());
    let operator = subject.rig.spawn((&lease, &kubeconfig), &[], &[("SLIPWAY_RESYNC", "1s")]);
    subject.serving().await;
    for number in 0..PAUSED {
        paused(&subject.rig, &format!("paused-{number}")).await;
    }
    at_rest(&subject.rig).await;

    // Memory that comes with the first rounds is there once and for all.
    until_quiet((&operator, &front), ROUNDS).await;
    let (before, requests) = (memory(&operator).await, asked(&front).len());
    rounds(&operator, ROUNDS).await;
    let requests = assert_quiet(&front, requests, "a settled database costs requests");

    // Among the databases, and in a namespace that nobody looks after.
    let foreign = testkit::temporary_namespace(&subject.rig.admin, "foreign").await.unwrap();
    let namespaces = [&subject.rig.namespace, &foreign];
    for namespace in namespaces {
        fill(&subject.rig, namespace).await;
    }
    rounds(&operator, ROUNDS).await;
    let grown = memory(&operator).await - before;
    for namespace in namespaces {
        empty(&subject.rig, namespace).await;
    }
    let requests = assert_quiet(&front, requests, "foreign objects cost requests");
    assert!(grown < NOISE, "{grown} bytes more in memory for what is not ours");

    // The count counts: another wish is seen by it.
    subject.wish(|spec| spec["network"] = json!({ "allowedCidrs": ["10.9.0.0/16"] })).await;
    subject.carried_out(Phase::Ready).await;
    assert!(asked(&front).len() > requests);
    subject.purge().await;
}

/// A database of which there is nothing but its wish.
async fn paused(rig: &Rig, name: &str) {
    let mut object = rig.managed(name, 1);
    object["spec"].as_object_mut().unwrap().remove("instruction");
    object["spec"]["runState"] = json!("Paused");
    apply(&rig.as_admin(), &object).await.unwrap();
}

async fn at_rest(rig: &Rig) {
    eventually(PATIENCE, "all databases at rest", async || {
        let found = rig.as_admin().list(&ListParams::default()).await.unwrap().items;
        let rests = |phase: Option<Phase>| matches!(phase, Some(Phase::Ready | Phase::Paused));
        let all = found.iter().all(|one| rests(one.status.as_ref().and_then(|status| status.phase)));
        (all && found.len() == PAUSED + 1).then_some(())
    })
    .await;
}

/// Waits for so many looks at databases at rest.
pub(super) async fn rounds(operator: &Spawned, looks: f64) {
    let passes = async || operator.metric("controller_runtime_reconcile_total", "result=\"success\"").await;
    let wanted = passes().await + looks;
    eventually(PATIENCE, "looks at all databases", async || (passes().await >= wanted).then_some(())).await;
}

/// What a process takes by its own account, in bytes.
pub(super) async fn memory(operator: &Spawned) -> f64 {
    let told = async || {
        let bytes = operator.metric("process_resident_memory_bytes", "").await;
        // Who does not answer in time has some all the same.
        (bytes > 0.0).then_some(bytes)
    };
    eventually(PATIENCE, "a word about its memory", told).await
}

/// Everything asked of the API server so far but what a process asks without any database: watches, its Lease, and now and
/// then whether there are routes and monitors in this cluster, and where the API server stands.
pub(super) fn asked(front: &Front) -> Vec<String> {
    let process = |seen: &Seen| {
        let of_process = seen.is_watch() || seen.is_of_lease() || seen.is_discovery();
        of_process || seen.asks_for_a_version() || is_of_another_test(seen)
    };
    let seen = front.seen(|seen: &Seen| !process(seen));
    seen.iter().map(|seen| format!("{} {}", seen.method, seen.path)).collect()
}

/// Nothing was asked since, but what a watch begins anew with, once each: an API server ends one that does not keep up with what
/// is written of its kind, be it by a test beside this one, and may not know any more what came after. How much was asked so far.
pub(super) fn assert_quiet(front: &Front, since: usize, otherwise: &str) -> usize {
    let asked = asked(front).split_off(since);
    let so_far = since + asked.len();
    assert_eq!(beside_watches(asked), *Vec::<String>::new(), "{otherwise}");
    so_far
}

fn beside_watches(mut asked: Vec<String>) -> Vec<String> {
    let mut listed = BTreeSet::new();
    asked.retain(|request| !request.contains("limit=") || !listed.insert(request.clone()));
    asked
}

/// Waits until so many looks at databases that have come to rest cost nothing. What was written last a watch may tell late: until it does,
/// whoever looks writes it once more, and is refused.
pub(super) async fn until_quiet((operator, front): (&Spawned, &Front), looks: f64) {
    eventually(PATIENCE, "looks that cost nothing", async || {
        let since = asked(front).len();
        rounds(operator, looks).await;
        beside_watches(asked(front).split_off(since)).is_empty().then_some(())
    })
    .await;
}

/// Waits until no pass of a controller is under way: what the last one had to tell by an event is told, or was given up.
pub(super) async fn idle(operator: &Spawned, controller: &str) {
    let label = format!("controller=\"{controller}\"");
    eventually(PATIENCE, &format!("an idle controller of {controller}"), async || {
        let metrics = operator.metrics().await;
        let active = testkit::spawned::sum(&metrics, "controller_runtime_active_workers", &label);
        (!metrics.is_empty() && active < 1.0).then_some(())
    })
    .await;
}

/// Monitors and routes exist while a test beside this one defines them, and are then watched as everything is.
fn is_of_another_test(seen: &Seen) -> bool {
    ["/apis/monitoring.coreos.com/", "/apis/traefik.io/"].iter().any(|group| seen.path.starts_with(group))
}

/// Fills a namespace with foreign objects that are large.
pub(super) async fn fill(rig: &Rig, namespace: &str) {
    let (count, size) = FOREIGN;
    let configs: Api<ConfigMap> = Api::namespaced(rig.admin.clone(), namespace);
    let secrets: Api<Secret> = Api::namespaced(rig.admin.clone(), namespace);
    let labels = BTreeMap::from([(MARK.0.to_owned(), MARK.1.to_owned())]);
    let metadata = |number: usize| ObjectMeta {
        name: Some(format!("f-{number}")),
        labels: Some(labels.clone()),
        ..ObjectMeta::default()
    };
    let parameters = PostParams::default();
    let each = |number: usize| {
        let data = [("large".to_owned(), "x".repeat(size))].into();
        let config = ConfigMap { metadata: metadata(number), data: Some(data), ..ConfigMap::default() };
        let data = [("large".to_owned(), ByteString(vec![b'x'; size]))].into();
        let secret = Secret { metadata: metadata(number), data: Some(data), ..Secret::default() };
        let (configs, secrets, parameters) = (&configs, &secrets, &parameters);
        async move {
            configs.create(parameters, &config).await?;
            secrets.create(parameters, &secret).await.map(drop)
        }
    };
    futures::stream::iter(0..count).map(each).buffer_unordered(4).try_collect::<()>().await.unwrap();
}

pub(super) async fn empty(rig: &Rig, namespace: &str) {
    let all = ListParams::default().labels(&format!("{}={}", MARK.0, MARK.1));
    let parameters = DeleteParams::default();
    let configs: Api<ConfigMap> = Api::namespaced(rig.admin.clone(), namespace);
    let _ = configs.delete_collection(&parameters, &all).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(rig.admin.clone(), namespace);
    let _ = secrets.delete_collection(&parameters, &all).await.unwrap();
}
