//! A namespace of the test's own with clients of everyone who may act in it, and an operator as a process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::cloud_aws::{Aws, Credentials, Settings, Timeouts};
use cloud::{Cloud, DnsRecord, HostedZoneId, Instance, SecurityGroup, Select, Volume};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use resources::{QuestDB, names};
use serde_json::{Value, json};
use testkit::{ClusterFacts, Failpoint, Spawned, bare_cluster, unique};
use tokio::process::{Child, Command};

use super::rights::grant;
use crate::support::stack;

/// How long anything may take, on processors that are busy with other tests. Whoever waits goes on as soon as it is so.
pub(super) const PATIENCE: Duration = Duration::from_mins(3);

/// The program under test.
const PROGRAM: &str = "slipway-operator";

/// What a test works with.
pub(super) struct Rig {
    pub(super) admin: Client,
    pub(super) provisioner: Client,
    pub(super) operator: Client,
    pub(super) namespace: String,
    /// The cluster's name in AWS: nobody else has it.
    pub(super) cluster: String,
    pub(super) aws: Arc<dyn Cloud>,
    network: &'static ClusterFacts,
}

impl Rig {
    pub(super) async fn new() -> Self {
        let facts = bare_cluster();
        Self::at([&facts.kubeconfig, &facts.provisioner_kubeconfig, &facts.operator_kubeconfig]).await
    }

    /// By the ways of administrator, provisioner and operator to an API server.
    pub(super) async fn at([admin, provisioner, operator]: [&Path; 3]) -> Self {
        let client = async |path: &Path| testkit::client(path).await.unwrap();
        let admin = client(admin).await;
        let namespace = testkit::temporary_namespace(&admin, "operator").await.unwrap();
        let network = stack().clusters.iter().find(|cluster| !cluster.zones.is_empty()).expect("a network");
        let settings = Settings {
            endpoint: Some(stack().aws_endpoint_url.clone()),
            credentials: Credentials::Fixed { key_id: "test".into(), secret: "test".into() },
            // A second attempt at what was done after all is refused: the first is waited for.
            timeouts: Timeouts { connect: PATIENCE, attempt: PATIENCE, operation: PATIENCE },
            longest_wait: PATIENCE,
            ..Settings::new(network.region.as_str())
        };
        Self {
            provisioner: client(provisioner).await,
            operator: client(operator).await,
            aws: Arc::new(Aws::connect(settings).await),
            cluster: unique("op"),
            admin,
            namespace,
            network,
        }
    }

    /// An operator for this namespace alone. Each start competes for a lease of its own, so that a start after a kill
    /// need not wait for the old one's end.
    pub(super) async fn start(&self) -> Child {
        let lease = self.lease().await;
        self.start_with_lease(&lease).await
    }

    /// Another namespace of the same cluster, with databases that the same operator may look after.
    pub(super) async fn beside(&self) -> Self {
        Self {
            admin: self.admin.clone(),
            provisioner: self.provisioner.clone(),
            operator: self.operator.clone(),
            namespace: testkit::temporary_namespace(&self.admin, "operator").await.unwrap(),
            cluster: self.cluster.clone(),
            aws: Arc::clone(&self.aws),
            network: self.network,
        }
    }

    /// The same in a namespace of this name, which is made.
    pub(super) async fn in_namespace(self, name: String) -> Self {
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        let namespaces: Api<Namespace> = Api::all(self.admin.clone());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        Self { namespace: name, ..self }
    }

    /// Lets an operator with its Lease in a namespace look after this one alone; the way of its service account to the API
    /// server.
    pub(super) async fn rights(&self, lease: &str) -> PathBuf {
        grant(&self.admin, &[&self.namespace], lease).await
    }

    /// A namespace for the lease that operators compete for.
    pub(super) async fn lease(&self) -> String {
        testkit::temporary_namespace(&self.admin, "lease").await.unwrap()
    }

    /// An operator that is told how long EC2 may take to show what was created.
    pub(super) async fn start_with_lag(&self, lag: Duration) -> Child {
        let lease = self.lease().await;
        let lag = format!("{}ms", lag.as_millis());
        self.command(&lease, &self.rights(&lease).await).env("SLIPWAY_EC2_LAG", lag).spawn().unwrap()
    }

    /// An operator that competes for the lease of a namespace.
    pub(super) async fn start_with_lease(&self, lease: &str) -> Child {
        self.command(lease, &self.rights(lease).await).spawn().unwrap()
    }

    /// An operator that competes for the lease of a namespace, can be halted, and dies or is held at these places.
    /// Its way to the API server is `kubeconfig`, the rest is by default or by `more`.
    pub(super) fn spawn(
        &self,
        (lease, kubeconfig): (&str, &Path),
        places: &[&Failpoint],
        more: &[(&'static str, &str)],
    ) -> Spawned {
        let ours = self.environment(lease);
        let all = ours.iter().map(|(name, value)| (*name, Path::new(value)));
        let more = more.iter().map(|(name, value)| (*name, Path::new(*value)));
        let all: Vec<_> = all.chain(more).chain([("KUBECONFIG", kubeconfig)]).collect();
        Spawned::start_in(PROGRAM, &[], &testkit::scratch(), (places, &all)).unwrap()
    }

    fn command(&self, lease: &str, kubeconfig: &Path) -> Command {
        let mut command = Command::new(stack().programs.join(PROGRAM));
        command
            .env("KUBECONFIG", kubeconfig)
            .env("SLIPWAY_OPS_LISTEN", "127.0.0.1:0")
            .envs(self.environment(lease))
            .kill_on_drop(true);
        command
    }

    fn environment(&self, lease: &str) -> Vec<(&'static str, String)> {
        let zones: Vec<_> =
            self.network.zones.iter().map(|(zone, subnet)| format!("{zone}={subnet}")).collect();
        let endpoint = stack().aws_endpoint_url.clone();
        vec![
            ("AWS_ENDPOINT_URL", endpoint),
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
            ("AWS_REGION", self.network.region.clone()),
            ("SLIPWAY_CLUSTER", self.cluster.clone()),
            ("SLIPWAY_HOSTED_ZONE_ID", self.network.hosted_zone_id.clone()),
            ("SLIPWAY_DNS_SUFFIX", self.network.dns_suffix.clone()),
            ("SLIPWAY_VPC_ID", self.network.vpc_id.clone()),
            ("SLIPWAY_ZONES", zones.join(",")),
            ("SLIPWAY_NODE_IMAGE", self.network.node_image.clone()),
            ("SLIPWAY_LEASE_NAMESPACE", lease.to_owned()),
            ("SLIPWAY_WATCH_NAMESPACE", self.namespace.clone()),
            // The endpoint shows new things after 0.2 s.
            ("SLIPWAY_EC2_LAG", "1s".to_owned()),
            // What a process sends that a test ends is there at once.
            ("SLIPWAY_QUESTDB_LAG", "1s".to_owned()),
        ]
    }

    /// The region of its machines and disks.
    pub(super) fn region(&self) -> &str {
        &self.network.region
    }

    /// Settings of an operator that asks as with credentials of another account: in another region EC2 shows nothing of the cluster,
    /// nor of its VPC.
    pub(super) fn elsewhere(&self) -> [(&'static str, &'static str); 1] {
        [("AWS_REGION", if self.region() == "us-east-1" { "eu-west-1" } else { "us-east-1" })]
    }

    pub(super) fn as_admin(&self) -> Api<QuestDB> {
        Api::namespaced(self.admin.clone(), &self.namespace)
    }

    pub(super) fn as_operator(&self) -> Api<QuestDB> {
        Api::namespaced(self.operator.clone(), &self.namespace)
    }

    /// A forced apply by the provisioner, as for an instruction.
    pub(super) async fn provision(&self, object: &Value) -> kube::Result<QuestDB> {
        let api: Api<QuestDB> = Api::namespaced(self.provisioner.clone(), &self.namespace);
        apply(&api, object).await
    }

    /// A resource of its name at a position.
    pub(super) fn managed(&self, name: &str, seq: i64) -> Value {
        json!({
            "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB",
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": {
                "instruction": { "id": format!("i-{seq}"), "databaseId": DATABASE, "epoch": 1, "seq": seq, "render": 1,
                    "hash": format!("h{seq}") },
                "runState": "Running",
                "storage": { "sizeGib": 20 },
            },
        })
    }

    /// The same resource as a database of this test alone.
    pub(super) fn unique(&self, name: &str, database: &str, seq: i64) -> Value {
        let mut object = self.managed(name, seq);
        object["spec"]["instruction"]["databaseId"] = json!(database);
        object
    }

    /// The machine joins: a ready Node with its provider id, for the database and the resource of its labels.
    pub(super) async fn node(&self, name: &str, instance: &Instance, of: (&str, &str)) {
        self.try_node(name, instance, of).await.unwrap();
    }

    /// The same, where that may fail.
    pub(super) async fn try_node(
        &self,
        name: &str,
        instance: &Instance,
        of: (&str, &str),
    ) -> kube::Result<()> {
        let nodes = self.sick_node(name, instance, of).await?;
        let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(&ready)).await.map(drop)
    }

    /// The machine joins as a Node of which nobody says that it is ready.
    pub(super) async fn sick_node(
        &self,
        name: &str,
        instance: &Instance,
        (database, resource): (&str, &str),
    ) -> kube::Result<Api<Node>> {
        let nodes: Api<Node> = Api::all(self.admin.clone());
        let labels = json!({
            names::LABEL_DATABASE: database, names::LABEL_NAME: resource, names::LABEL_NAMESPACE: self.namespace,
        });
        let node: Node = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": labels },
            "spec": { "providerID": format!("aws:///{}/{}", instance.zone, instance.id) },
        }))
        .unwrap();
        nodes.create(&PostParams::default(), &node).await?;
        Ok(nodes)
    }

    pub(super) async fn instances(&self) -> Vec<Instance> {
        let ours = Select::cluster(&self.cluster);
        let mut found = patiently(|| self.aws.describe_instances(&ours)).await;
        found.retain(|instance| !instance.state.is_ending());
        found
    }

    pub(super) async fn volumes(&self) -> Vec<Volume> {
        let ours = Select::cluster(&self.cluster);
        patiently(|| self.aws.describe_volumes(&ours)).await
    }

    pub(super) async fn groups(&self) -> Vec<SecurityGroup> {
        let ours = Select::cluster(&self.cluster);
        patiently(|| self.aws.describe_security_groups(&ours)).await
    }

    /// The name that a resource without one of its own gets.
    pub(super) fn hostname(&self, resource: &str) -> String {
        format!("{resource}.{}", self.network.dns_suffix)
    }

    /// What the names of databases end with.
    pub(super) fn suffix(&self) -> &str {
        &self.network.dns_suffix
    }

    /// Where machines can be.
    pub(super) fn zones(&self) -> Vec<String> {
        self.network.zones.keys().cloned().collect()
    }

    /// The hosted zone of all names.
    pub(super) fn zone(&self) -> &str {
        &self.network.hosted_zone_id
    }

    /// The records of a name.
    pub(super) async fn records(&self, name: &str) -> Vec<DnsRecord> {
        let zone = HostedZoneId::new(&self.network.hosted_zone_id);
        patiently(|| self.aws.list_records(&zone, name)).await
    }

    /// Removes the namespace's marks; nobody waits for its end, because nothing here ends it.
    pub(super) async fn end(&self) {
        let namespaces: Api<Namespace> = Api::all(self.admin.clone());
        let _ = namespaces.delete(&self.namespace, &kube::api::DeleteParams::default()).await;
    }
}

/// A database's identity where no AWS is touched.
pub(super) const DATABASE: &str = "0192f3a4-5b6c-7d8e-9f00-112233445566";

/// A forced server-side apply.
pub(super) async fn apply(api: &Api<QuestDB>, object: &Value) -> kube::Result<QuestDB> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap();
    api.patch(name, &PatchParams::apply("slipway-provisioner").force(), &Patch::Apply(object)).await
}

/// The refusal of a write that must be refused.
pub(super) fn refusal<T: std::fmt::Debug>(answer: kube::Result<T>) -> Box<kube::core::Status> {
    match answer {
        Err(kube::Error::Api(status)) => status,
        other => panic!("not refused: {other:?}"),
    }
}

/// Waits until an operator that lists the zone every second has compared its lists: whatever somebody changes from here on, the
/// next one tells. A database that came to rest is looked at again only minutes later.
pub(super) async fn listed_again(operator: &Spawned) {
    let lists = async || {
        let listed = operator.metric("aws_api_requests_total", "op=\"ListResourceRecordSets\"").await;
        (listed > 0.0).then_some(listed)
    };
    let before = testkit::eventually(PATIENCE, "a list of the zone", lists).await;
    let more = async || lists().await.filter(|listed| *listed >= before + 6.0);
    testkit::eventually(PATIENCE, "more lists of the zone", more).await;
}

/// What AWS answers once it has the patience: all tests ask at one account, of one endpoint that is busy with all of them.
pub(super) async fn patiently<T, F>(ask: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, cloud::Error>>,
{
    let until = tokio::time::Instant::now() + PATIENCE;
    let mut beat = tokio::time::interval(Duration::from_millis(500));
    loop {
        beat.tick().await;
        match ask().await {
            Err(error) if is_passing(&error) && tokio::time::Instant::now() < until => {}
            answer => return answer.unwrap(),
        }
    }
}

/// Whether another attempt may have another answer.
const fn is_passing(error: &cloud::Error) -> bool {
    use cloud::Error::{Throttled, Timeout, Unavailable};
    matches!(error, Throttled { .. } | Timeout { .. } | Unavailable { .. })
}
