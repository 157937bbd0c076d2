//! Databases that an operator makes on the real API server, all at once, in an AWS region that takes no time; and what others do
//! for them: their resources are applied, and their machines join as Nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use resources::{QuestDB, names};
use serde_json::json;
use testkit::{ClusterFacts, unique};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{IN_FLIGHT, MADE, objects};
use crate::ground::Ground;
use crate::meter::real;
use crate::pace::until;
use crate::process::{Process, REQUESTS};
use crate::region::{self, Launched, Region};

/// Services of a database: the one of clients, and the one of the pod.
const SERVICES: usize = 2;

/// Names of the resources, by the databases that they stand for.
pub(super) type Names = BTreeMap<String, String>;

/// New databases, with resources of these names.
pub(super) fn named(names: impl Iterator<Item = String>) -> Names {
    names.map(|name| (uuid::Uuid::now_v7().to_string(), name)).collect()
}

/// So many new databases.
pub(super) fn numbered(count: usize) -> Names {
    named((0..count).map(|number| format!("db-{number}")))
}

/// Where they are made.
pub(super) struct Place {
    /// As who operators write here.
    pub(super) admin: kube::Client,
    /// Nobody else may write the spec of what is managed.
    provisioner: kube::Client,
    facts: &'static ClusterFacts,
    pub(super) namespace: String,
    /// The cluster's name in AWS.
    cluster: String,
    region: Region,
    pub(super) resources: Names,
    /// Those that join.
    machines: JoinHandle<anyhow::Result<()>>,
    /// How many have joined.
    joined: Arc<AtomicUsize>,
}

impl Place {
    /// For these, none of which is there yet.
    pub(super) async fn prepare(ground: &Ground, resources: Names) -> anyhow::Result<Self> {
        let (admin, facts) = (ground.admin.clone(), ground.cluster);
        let namespace = testkit::temporary_namespace(&admin, "bench-creations").await?;
        let provisioner = testkit::client(&facts.provisioner_kubeconfig).await?;
        let (told, launched) = mpsc::unbounded_channel();
        let region = Region::start(told).await?;
        let joined = Arc::default();
        let counted = Arc::clone(&joined);
        let joining = join(admin.clone(), namespace.clone(), resources.clone(), launched, counted);
        let machines = tokio::spawn(joining);
        let cluster = unique("bench");
        Ok(Self { admin, provisioner, facts, namespace, cluster, region, resources, machines, joined })
    }

    /// How many there are to be.
    pub(super) fn count(&self) -> usize {
        self.resources.len()
    }

    /// Starts an operator.
    pub(super) async fn operator(&self) -> anyhow::Result<Process> {
        let environment = [
            ("KUBECONFIG", self.facts.kubeconfig.display().to_string()),
            ("AWS_ENDPOINT_URL", self.region.url()),
            ("AWS_ACCESS_KEY_ID", "bench".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "bench".to_owned()),
            ("AWS_REGION", "bench-1".to_owned()),
            // What AWS allows is no part of the question.
            ("SLIPWAY_AWS_RATES", "read=1000/1000,write=1000/1000,launch=1000/1000,dns=1000/1000".to_owned()),
            ("SLIPWAY_CLUSTER", self.cluster.clone()),
            ("SLIPWAY_HOSTED_ZONE_ID", "ZBENCH".to_owned()),
            ("SLIPWAY_DNS_SUFFIX", "bench.example.com".to_owned()),
            ("SLIPWAY_VPC_ID", "vpc-bench".to_owned()),
            ("SLIPWAY_ZONES", format!("{}=subnet-bench", region::ZONE)),
            ("SLIPWAY_NODE_IMAGE", "ami-bench".to_owned()),
            ("SLIPWAY_LEASE_NAMESPACE", self.namespace.clone()),
            ("SLIPWAY_WATCH_NAMESPACE", self.namespace.clone()),
            ("SLIPWAY_EC2_LAG", "0s".to_owned()),
        ];
        Process::start("slipway-operator", &[], &environment).await
    }

    /// Frees the Lease of an operator that is gone: it would be waited out.
    pub(super) async fn free_the_lease(&self) -> anyhow::Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.admin.clone(), &self.namespace);
        leases.delete(names::OPERATOR, &DeleteParams::default()).await.map(drop).context("freeing the Lease")
    }

    /// Applies all resources.
    pub(super) async fn apply(&self) -> anyhow::Result<()> {
        futures::stream::iter(&self.resources)
            .map(|(database, name)| self.apply_one(database, name))
            .buffer_unordered(IN_FLIGHT)
            .try_for_each(|_| futures::future::ok(()))
            .await
    }

    /// Applies a resource, as the provisioner does.
    pub(super) async fn apply_one(&self, database: &str, name: &str) -> anyhow::Result<QuestDB> {
        let namespace = &self.namespace;
        let api: Api<QuestDB> = Api::namespaced(self.provisioner.clone(), namespace);
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
    }

    /// Waits until all of them have their StatefulSet and their Services. Before the last machine has joined there is no use in asking the
    /// operator how often it has written, for which it writes down all that it has measured; and before it has asked for so many sets
    /// none in looking, which would only keep the API server busy.
    pub(super) async fn all_made(&self, operator: &Process) -> anyhow::Result<()> {
        until(MADE, "all StatefulSets and Services", async || {
            ensure!(!self.machines.is_finished(), "a machine did not join");
            if self.joined.load(Ordering::Relaxed) < self.count() {
                return Ok(None);
            }
            if operator.metric(REQUESTS, "resource=\"statefulsets\"").await? < real(self.count()) {
                return Ok(None);
            }
            Ok(self.has(self.count()).await?.then_some(()))
        })
        .await
    }

    /// Whether so many databases have their StatefulSet and their Services here.
    pub(super) async fn has(&self, count: usize) -> anyhow::Result<bool> {
        let sets: Api<StatefulSet> = Api::namespaced(self.admin.clone(), &self.namespace);
        let services: Api<Service> = Api::namespaced(self.admin.clone(), &self.namespace);
        // Answered from the server's cache.
        let all = ListParams::default().match_any();
        if sets.list_metadata(&all).await?.items.len() < count {
            return Ok(false);
        }
        Ok(services.list_metadata(&all).await?.items.len() >= count * SERVICES)
    }

    /// Bytes of all their objects.
    pub(super) async fn bytes(&self) -> anyhow::Result<usize> {
        objects::bytes(&self.admin, &self.namespace).await
    }

    /// Takes everything away that was made.
    pub(super) async fn clear(self) -> anyhow::Result<()> {
        self.machines.abort();
        objects::clear(&self.admin, &self.namespace).await
    }
}

/// Each machine joins as a ready Node, as a kubelet would have it: by itself, however many others do meanwhile.
async fn join(
    admin: kube::Client,
    namespace: String,
    resources: Names,
    launched: mpsc::UnboundedReceiver<Launched>,
    joined: Arc<AtomicUsize>,
) -> anyhow::Result<()> {
    let api: &Api<Node> = &Api::all(admin);
    let (namespace, resources, joined) = (&namespace, &resources, &joined);
    let launched = futures::stream::unfold(launched, |mut launched| async move {
        let next = launched.recv().await?;
        Some((next, launched))
    });
    launched
        .map(anyhow::Ok)
        .try_for_each_concurrent(IN_FLIGHT, async |machine| {
            join_one(api, namespace, resources, machine).await?;
            joined.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .await
}

async fn join_one(
    api: &Api<Node>,
    namespace: &str,
    resources: &Names,
    Launched { id, tags }: Launched,
) -> anyhow::Result<()> {
    let tag = |key: &str| tags.get(key).cloned().unwrap_or_default();
    let (database, generation) = (tag("questdb.io/database"), tag("questdb.io/generation").parse()?);
    let resource = resources.get(&database).context("a database of the bench")?;
    let node = node(namespace, (&database, resource), (&id, generation))?;
    enter(api, &node).await.map(drop)
}

/// A machine of this id and generation, which serves a database, as a Node.
pub(super) fn node(
    namespace: &str,
    (database, resource): (&str, &str),
    (machine, generation): (&str, u64),
) -> anyhow::Result<Node> {
    let name = names::node(database.get(28..).unwrap_or_default(), generation);
    let node = json!({
        "metadata": { "name": name, "labels": {
            names::LABEL_DATABASE: database, names::LABEL_NAMESPACE: namespace, names::LABEL_NAME: resource,
        } },
        "spec": { "providerID": format!("aws:///{}/{machine}", region::ZONE) },
    });
    Ok(serde_json::from_value(node)?)
}

/// Makes a Node, and then says that it is ready, as a kubelet does.
pub(super) async fn enter(api: &Api<Node>, node: &Node) -> anyhow::Result<Node> {
    api.create(&PostParams::default(), node).await.context("making a Node")?;
    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    let parameters = PatchParams::default();
    api.patch_status(&node.name_any(), &parameters, &Patch::Merge(&ready)).await.context("a ready Node")
}
