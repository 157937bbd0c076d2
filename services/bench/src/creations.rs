//! B8r, two hundred databases at once: how fast one operator makes what Kubernetes needs of them.
//!
//! Product: writes a second that cannot be done without, from the first resource that is applied until all of them have their
//! StatefulSet and their Services, on the real API server, in an AWS region that takes no time. Whoever does them, they count: the
//! resource itself and its machine that joins as a Node are written meanwhile, too. What the operator writes beyond them does not
//! count. Anchor: the lower of two rates: what five times the twenty databases a second take that an operator written with client-go
//! makes at most (it may ask twenty times a second for each kind), and three quarters of what a bare loop of applies reaches on the
//! same API server.
//!
//! `memory`: what another operator takes that began a little before, when all of that was there, as a part of what is promised: 60 MB and two and a
//! half times the bytes of these objects, without what the API server notes of their managers. Databases with all of their objects
//! are measured here alone: those of B9o to B12 are paused.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt as _};
use resources::{QuestDB, names};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::unique;
use tokio::sync::mpsc;

use crate::ground::Ground;
use crate::memory::{BASE, FACTOR};
use crate::meter::real;
use crate::pace::until;
use crate::process::Process;
use crate::region::{self, Launched, Region};
use crate::resource::Floor;
use crate::specimen::Specimen;
use crate::{Results, Slice};

const DATABASES: usize = 200;
/// A StatefulSet, and of Services the one of clients and the one of the pod.
const SERVICES: usize = DATABASES * 2;
/// Writes that one of them takes at least: by the operator its finalizer and the generation of its machine, Secret, `ConfigMap`,
/// two Services, `NetworkPolicy`, `PodDisruptionBudget`, its Node's labels, disk and claim, and the StatefulSet; by others the
/// resource, its Node and that Node's status.
const NEEDED: usize = 12 + 3;
/// Requests under way at once, beyond which an API server on few processors is only slower.
const IN_FLIGHT: usize = 16;
/// Databases a second that client-go allows by default, five times over.
const LIMITED: f64 = 5.0 * 20.0;
/// Share of a bare loop.
const SHARE: f64 = 0.75;
/// How long all of it may take.
const MADE: Duration = Duration::from_mins(3);
/// How long an operator is left alone before its memory is read.
const SETTLED: Duration = Duration::from_secs(5);

/// Names of the resources, by the databases that they stand for.
type Names = BTreeMap<String, String>;

/// Measures a slice.
pub async fn measure(slice: Slice) -> anyhow::Result<Results> {
    let ground = Ground::prepare().await?;
    let (writes, memory) = match slice {
        Slice::Product => product(&ground).await?,
        Slice::Anchor => (anchor(&ground).await?, 1.0),
    };
    Ok(Results::from([("writes".to_owned(), writes), ("memory".to_owned(), memory)]))
}

async fn anchor(ground: &Ground) -> anyhow::Result<f64> {
    let specimen = Specimen::make(ground).await?;
    let floor = Floor::prepare(ground, &specimen).await?;
    let times = floor.saturate(DATABASES * 10, IN_FLIGHT).await;
    floor.clear().await?;
    let times = times?;
    let (first, last) = times.iter().min().zip(times.iter().max()).context("too few resources")?;
    let bare = real(times.len()) / last.duration_since(*first).as_secs_f64();
    ground.sweep().await?;
    Ok((LIMITED * real(NEEDED)).min(SHARE * bare))
}

/// Writes a second, and the part of what it may take in memory.
async fn product(ground: &Ground) -> anyhow::Result<(f64, f64)> {
    let admin = &ground.admin;
    let namespace = testkit::temporary_namespace(admin, "bench-creations").await?;
    let (told, launched) = mpsc::unbounded_channel();
    let region = Region::start(told).await?;
    let cluster = unique("bench");
    let place = Place { namespace: &namespace, cluster: &cluster, region: &region };
    let operator = operator(ground, place).await?;
    // Nobody else may write the spec of what is managed.
    let provisioner = testkit::client(&ground.cluster.provisioner_kubeconfig).await?;
    let resources: Names =
        (0..DATABASES).map(|number| (uuid::Uuid::now_v7().to_string(), name(number))).collect();
    let machines = tokio::spawn(join(admin.clone(), namespace.clone(), resources.clone(), launched));
    let began = Instant::now();
    let applied = apply(&provisioner, &namespace, &resources).await;
    let made = match applied {
        Ok(()) => all_made(admin, &namespace).await,
        Err(error) => Err(error),
    };
    let took = began.elapsed();
    operator.kill().await?;
    let memory = match made {
        Ok(()) => memory(ground, place).await,
        Err(error) => Err(error),
    };
    machines.abort();
    clear(admin, &namespace).await?;
    Ok((real(DATABASES * NEEDED) / took.as_secs_f64(), memory?))
}

/// Memory of an operator that begins with all objects there, as a part of what it may take.
async fn memory(ground: &Ground, place: Place<'_>) -> anyhow::Result<f64> {
    let leases: Api<Lease> = Api::namespaced(ground.admin.clone(), place.namespace);
    // The one before it is gone, and its Lease would be waited out.
    leases.delete(names::OPERATOR, &DeleteParams::default()).await.map(drop).context("freeing the Lease")?;
    let operator = operator(ground, place).await?;
    until(MADE, "as many passes as there are databases", async || {
        let passes = operator.metric("controller_runtime_reconcile_total", "controller=\"questdb\"").await?;
        Ok((passes >= real(DATABASES)).then_some(()))
    })
    .await?;
    // What its first lists and passes took is given back.
    tokio::time::sleep(SETTLED).await;
    let resident = operator.resident()?;
    operator.kill().await?;
    Ok(resident / (BASE + FACTOR * real(bytes(&ground.admin, place.namespace).await?) / 1e6))
}

/// Bytes of the objects of all databases.
async fn bytes(admin: &kube::Client, namespace: &str) -> anyhow::Result<usize> {
    let ours = ListParams::default().labels(&format!("{}={namespace}", names::LABEL_NAMESPACE));
    let all = ListParams::default();
    let sizes = [
        size(&Api::<QuestDB>::namespaced(admin.clone(), namespace), &all).await?,
        size(&Api::<StatefulSet>::namespaced(admin.clone(), namespace), &all).await?,
        size(&Api::<Service>::namespaced(admin.clone(), namespace), &all).await?,
        size(&Api::<ConfigMap>::namespaced(admin.clone(), namespace), &all).await?,
        size(&Api::<Secret>::namespaced(admin.clone(), namespace), &all).await?,
        size(&Api::<PersistentVolumeClaim>::namespaced(admin.clone(), namespace), &all).await?,
        size(&Api::<NetworkPolicy>::namespaced(admin.clone(), namespace), &all).await?,
        size(&Api::<PodDisruptionBudget>::namespaced(admin.clone(), namespace), &all).await?,
        size(&Api::<PersistentVolume>::all(admin.clone()), &ours).await?,
        size(&Api::<Node>::all(admin.clone()), &ours).await?,
    ];
    Ok(sizes.into_iter().sum())
}

async fn size<K>(api: &Api<K>, which: &ListParams) -> anyhow::Result<usize>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let mut size = 0;
    for mut one in api.list(which).await.context("listing what is there")?.items {
        one.meta_mut().managed_fields = None;
        size += serde_json::to_vec(&one)?.len();
    }
    Ok(size)
}

/// Where an operator works.
#[derive(Clone, Copy)]
struct Place<'a> {
    namespace: &'a str,
    /// The cluster's name in AWS.
    cluster: &'a str,
    region: &'a Region,
}

async fn operator(
    ground: &Ground,
    Place { namespace, cluster, region }: Place<'_>,
) -> anyhow::Result<Process> {
    let environment = [
        ("KUBECONFIG", ground.cluster.kubeconfig.display().to_string()),
        ("AWS_ENDPOINT_URL", region.url()),
        ("AWS_ACCESS_KEY_ID", "bench".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "bench".to_owned()),
        ("AWS_REGION", "bench-1".to_owned()),
        // What AWS allows is no part of the question.
        ("SLIPWAY_AWS_RATES", "read=1000/1000,write=1000/1000,launch=1000/1000,dns=1000/1000".to_owned()),
        ("SLIPWAY_CLUSTER", cluster.to_owned()),
        ("SLIPWAY_HOSTED_ZONE_ID", "ZBENCH".to_owned()),
        ("SLIPWAY_DNS_SUFFIX", "bench.example.com".to_owned()),
        ("SLIPWAY_VPC_ID", "vpc-bench".to_owned()),
        ("SLIPWAY_ZONES", format!("{}=subnet-bench", region::ZONE)),
        ("SLIPWAY_NODE_IMAGE", "ami-bench".to_owned()),
        ("SLIPWAY_LEASE_NAMESPACE", namespace.to_owned()),
        ("SLIPWAY_WATCH_NAMESPACE", namespace.to_owned()),
        ("SLIPWAY_EC2_LAG", "0s".to_owned()),
    ];
    Process::start("slipway-operator", &[], &environment).await
}

fn name(number: usize) -> String {
    format!("db-{number}")
}

async fn apply(provisioner: &kube::Client, namespace: &str, resources: &Names) -> anyhow::Result<()> {
    let api: &Api<QuestDB> = &Api::namespaced(provisioner.clone(), namespace);
    futures::stream::iter(resources)
        .map(|(database, name)| async move {
            let object = json!({
                "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB",
                "metadata": { "name": name, "namespace": namespace },
                "spec": {
                    "instruction": { "id": format!("i-{name}"), "databaseId": database, "epoch": 1, "seq": 1,
                        "render": names::RENDER, "hash": "0123456789abcdef" },
                    "storage": { "sizeGib": 20 },
                },
            });
            let parameters = PatchParams::apply(names::PROVISIONER).force();
            api.patch(name, &parameters, &Patch::Apply(&object)).await.context("applying")
        })
        .buffer_unordered(IN_FLIGHT)
        .try_for_each(|_| futures::future::ok(()))
        .await
}

/// Each machine joins as a ready Node, as a kubelet would have it.
async fn join(
    admin: kube::Client,
    namespace: String,
    resources: Names,
    mut launched: mpsc::UnboundedReceiver<Launched>,
) -> anyhow::Result<()> {
    let api: Api<Node> = Api::all(admin);
    while let Some(Launched { id, tags }) = launched.recv().await {
        let tag = |key: &str| tags.get(key).cloned().unwrap_or_default();
        let (database, generation) = (tag("questdb.io/database"), tag("questdb.io/generation").parse()?);
        let name = names::node(database.get(28..).unwrap_or_default(), generation);
        let node: Node = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": {
                names::LABEL_DATABASE: database, names::LABEL_NAMESPACE: namespace,
                names::LABEL_NAME: resources.get(&database).context("a database of the bench")?,
            } },
            "spec": { "providerID": format!("aws:///{}/{id}", region::ZONE) },
        }))?;
        api.create(&PostParams::default(), &node).await.context("making a Node")?;
        let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&ready))
            .await
            .context("a ready Node")?;
    }
    Ok(())
}

async fn all_made(admin: &kube::Client, namespace: &str) -> anyhow::Result<()> {
    let sets: Api<StatefulSet> = Api::namespaced(admin.clone(), namespace);
    let services: Api<Service> = Api::namespaced(admin.clone(), namespace);
    // Answered from the server's cache.
    let all = ListParams::default().match_any();
    until(MADE, "all StatefulSets and Services", async || {
        if sets.list_metadata(&all).await?.items.len() < DATABASES {
            return Ok(None);
        }
        Ok((services.list_metadata(&all).await?.items.len() >= SERVICES).then_some(()))
    })
    .await
}

/// Takes everything away that was made.
async fn clear(admin: &kube::Client, namespace: &str) -> anyhow::Result<()> {
    let ours = ListParams::default().labels(&format!("{}={namespace}", names::LABEL_NAMESPACE));
    let all = ListParams::default();
    let databases = Api::<QuestDB>::namespaced(admin.clone(), namespace);
    for one in databases.list_metadata(&all).await.context("looking for databases")?.items {
        // What is managed can be removed in no other phase.
        let deleted = Patch::Merge(json!({ "status": { "phase": "Deleted" } }));
        let parameters = PatchParams::default();
        databases.patch_status(&one.name_any(), &parameters, &deleted).await.context("ending a database")?;
    }
    remove(databases, &all).await?;
    remove(Api::<StatefulSet>::namespaced(admin.clone(), namespace), &all).await?;
    remove(Api::<Service>::namespaced(admin.clone(), namespace), &all).await?;
    remove(Api::<ConfigMap>::namespaced(admin.clone(), namespace), &all).await?;
    remove(Api::<Secret>::namespaced(admin.clone(), namespace), &all).await?;
    remove(Api::<PersistentVolumeClaim>::namespaced(admin.clone(), namespace), &all).await?;
    remove(Api::<NetworkPolicy>::namespaced(admin.clone(), namespace), &all).await?;
    remove(Api::<PodDisruptionBudget>::namespaced(admin.clone(), namespace), &all).await?;
    remove(Api::<PersistentVolume>::all(admin.clone()), &ours).await?;
    remove(Api::<Node>::all(admin.clone()), &ours).await
}

/// Removes objects, held or not: nobody is left who could let them go.
async fn remove<K>(api: Api<K>, which: &ListParams) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let found = api.list_metadata(which).await.context("looking for what is left")?;
    let api = &api;
    futures::stream::iter(found.items)
        .map(|one| async move {
            let name = one.name_any();
            let delete = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
            if !one.finalizers().is_empty() {
                let free: Value = json!({ "metadata": { "finalizers": null } });
                let _ = api.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(&free)).await;
            }
            match api.delete(&name, &delete).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                other => other.map(drop).context("clearing"),
            }
        })
        .buffer_unordered(IN_FLIGHT)
        .try_collect()
        .await
}
