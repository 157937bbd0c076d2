//! A cluster name and a data directory of the test's own, an agent on them, and objects as the operator makes them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::cloud_aws::{Aws, Credentials, Settings};
use cloud::{
    ClientToken, Cloud, InstanceId, InstanceState, Launch, NewSnapshot, NewVolume, Owner, Protection, Role,
    Select, SnapshotId, SnapshotState, UserData, VolumeId, VolumeKind, VolumeState,
};
use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::{ClusterFacts, bare_cluster, eventually, unique};
use tokio::process::{Child, Command};

use crate::support::{questdb_lib, stack};

/// How long anything may take.
pub(super) const PATIENCE: Duration = Duration::from_mins(3);

/// What a test works with.
pub(super) struct Rig {
    pub(super) client: Client,
    pub(super) namespace: String,
    /// The cluster's name in AWS, which nobody else has.
    pub(super) cluster: String,
    pub(super) aws: Arc<dyn Cloud>,
    stack: String,
    data: PathBuf,
    network: &'static ClusterFacts,
}

impl Rig {
    pub(super) async fn new() -> Self {
        let network = stack().clusters.iter().find(|cluster| !cluster.zones.is_empty()).expect("a network");
        let settings = Settings {
            endpoint: Some(stack().aws_endpoint_url.clone()),
            credentials: Credentials::Fixed { key_id: "test".into(), secret: "test".into() },
            ..Settings::new(network.region.as_str())
        };
        let client = testkit::client(&bare_cluster().kubeconfig).await.unwrap();
        let namespace = testkit::temporary_namespace(&client, "nodes").await.unwrap();
        let cluster = unique("na");
        let stack_id: String = cluster.chars().filter(char::is_ascii_alphanumeric).collect();
        let rig = Self {
            // Where the AWS endpoint looks for disks when it is asked for a snapshot.
            data: stack().layout().nodes(&cluster),
            stack: stack_id.chars().rev().take(10).collect(),
            client,
            namespace,
            cluster,
            aws: Arc::new(Aws::connect(settings).await),
            network,
        };
        // Pods need one, and no controller makes it.
        rig.create(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}))
            .await;
        rig
    }

    /// An agent. Dropping it kills it, but not what runs on its nodes.
    pub(super) fn start(&self, mode: &str) -> Child {
        let mut agent = self.command();
        agent
            .env("KUBECONFIG", &bare_cluster().kubeconfig)
            .env("AWS_ENDPOINT_URL", &stack().aws_endpoint_url)
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .env("AWS_REGION", &self.network.region)
            .env("SLIPWAY_CLUSTER", &self.cluster)
            .env("SLIPWAY_AGENT_MODE", mode)
            .env("SLIPWAY_AGENT_NETWORK", "loopback")
            .env("SLIPWAY_AGENT_POLL_MS", "200")
            .env("SLIPWAY_AGENT_SNAPSHOTS_DIR", Self::snapshots())
            .env("SLIPWAY_QUESTDB_LIB", questdb_lib())
            .env("SLIPWAY_LOG", "warn");
        agent.kill_on_drop(true).spawn().unwrap()
    }

    /// Ends whatever runs on the nodes of this test.
    pub(super) async fn end(&self) {
        let cleaned = self.command().arg("cleanup").status().await.unwrap();
        assert!(cleaned.success());
        std::fs::remove_dir_all(self.data.parent().expect("a folder of the cluster")).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = Command::new(stack().programs.join("slipway-node-agent"));
        command.env("SLIPWAY_STACK", &self.stack).env("SLIPWAY_AGENT_DATA_DIR", &self.data);
        command
    }

    /// An instance told to be this node.
    pub(super) async fn launch(&self, node: &str) -> InstanceId {
        let taint = json!({"key": "questdb.io/dedicated", "value": "db", "effect": "NoSchedule"});
        let labels = json!({"questdb.io/database": "db", "node-restriction.kubernetes.io/role": "stolen"});
        let told = json!({"cluster": self.cluster, "nodeName": node, "labels": labels, "taints": [taint]});
        let launch = Launch {
            image: self.network.node_image.clone(),
            instance_type: "m5.large".into(),
            subnet: self.network.zones.values().next().expect("a subnet").clone(),
            security_groups: Vec::new(),
            user_data: UserData::new(told.to_string()),
            instance_profile: None,
            protection: Protection::OFF,
            tags: Owner::new(&self.cluster, node, Role::Instance).tags(),
        };
        let token = ClientToken::new(&self.cluster, node, Role::Instance, 1);
        let id = self.aws.run_instance(&launch, &token).await.unwrap().id;
        eventually(PATIENCE, "a running instance", async || {
            let found = self.aws.describe_instances(&Select::one(id.clone())).await.ok()?.pop()?;
            (found.state == InstanceState::Running).then_some(())
        })
        .await;
        id
    }

    /// An empty volume in the zone of the instances.
    pub(super) async fn volume(&self) -> VolumeId {
        self.make_volume(None, 1).await
    }

    /// A volume made from a snapshot. One for each rig.
    pub(super) async fn volume_from(&self, snapshot: &SnapshotId) -> VolumeId {
        self.make_volume(Some(snapshot.to_string()), 2).await
    }

    /// A snapshot of a volume, once it is whole.
    pub(super) async fn snapshot(&self, volume: &VolumeId) -> SnapshotId {
        let wanted = NewSnapshot {
            volume: volume.clone(),
            description: "of a test".into(),
            tags: Owner::new(&self.cluster, "db", Role::Snapshot).tags(),
        };
        let id = self.aws.create_snapshot(&wanted).await.unwrap().id;
        eventually(PATIENCE, "a whole snapshot", async || {
            let found = self.aws.describe_snapshots(&Select::one(id.clone())).await.ok()?.pop()?;
            assert_ne!(found.state, SnapshotState::Error, "{:?}", found.message);
            (found.state == SnapshotState::Completed).then_some(())
        })
        .await;
        id
    }

    /// Where the agent keeps a disk.
    pub(super) fn disk(&self, volume: &VolumeId) -> PathBuf {
        self.data.join("volumes").join(volume.as_str())
    }

    /// Where the AWS endpoint keeps what snapshots hold.
    pub(super) fn snapshots() -> PathBuf {
        stack().layout().snapshots()
    }

    /// The pid of a pod's process.
    pub(super) fn process(&self, pod: &Pod) -> Option<String> {
        let directory = format!("pods/{}_{}", self.namespace, pod.metadata.name.as_ref()?);
        let file = self.data.join(directory).join(pod.metadata.uid.as_ref()?).join("pid");
        let text = std::fs::read_to_string(file).ok()?;
        Some(text.split_once(' ')?.0.to_owned())
    }

    async fn make_volume(&self, snapshot: Option<String>, number: u64) -> VolumeId {
        let volume = NewVolume {
            zone: self.network.zones.keys().next().expect("a zone").clone(),
            size_gib: 10,
            kind: VolumeKind::Gp3,
            iops: None,
            throughput: None,
            encrypted: false,
            snapshot,
            tags: Owner::new(&self.cluster, "db", Role::Volume).tags(),
        };
        let token = ClientToken::new(&self.cluster, "db", Role::Volume, number);
        let id = self.aws.create_volume(&volume, &token).await.unwrap().id;
        eventually(PATIENCE, "an available volume", async || {
            let found = self.aws.describe_volumes(&Select::one(id.clone())).await.ok()?.pop()?;
            (found.state == VolumeState::Available).then_some(())
        })
        .await;
        id
    }

    /// A volume bound to a claim, as controllers would have bound it.
    pub(super) async fn bound_claim(&self, volume: &VolumeId, claim: &str) -> PersistentVolume {
        let name = format!("qdb-{volume}");
        let spec = json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name,
            "resources": {"requests": {"storage": "10Gi"}},
        });
        let object = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim}, "spec": spec});
        self.create(object).await;
        let claims: Api<k8s_openapi::api::core::v1::PersistentVolumeClaim> = self.api();
        let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
        claims.patch_status(claim, &PatchParams::default(), &bound).await.unwrap();
        let object = json!({
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}, "storageClassName": "",
                "persistentVolumeReclaimPolicy": "Retain",
                "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": volume.as_str()},
            },
        });
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        volumes.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
    }

    /// What the attach-detach controller makes when a pod with that volume is bound to that node.
    pub(super) async fn attachment(&self, volume: &VolumeId, node: &str) -> String {
        let name = unique("csi");
        let object = json!({
            "metadata": {"name": name},
            "spec": {"attacher": "ebs.csi.aws.com", "nodeName": node,
                "source": {"persistentVolumeName": format!("qdb-{volume}")}},
        });
        let object: VolumeAttachment = serde_json::from_value(object).unwrap();
        self.attachments().create(&PostParams::default(), &object).await.unwrap();
        name
    }

    pub(super) async fn until_attached(&self, name: &str) {
        eventually(PATIENCE, "an attached volume", async || {
            let found = self.attachments().get(name).await.ok()?;
            found.status.is_some_and(|status| status.attached).then_some(())
        })
        .await;
    }

    pub(super) fn attachments(&self) -> Api<VolumeAttachment> {
        Api::all(self.client.clone())
    }

    /// A pod's answer to `is`, once it is one.
    pub(super) async fn until_pod<T>(&self, name: &str, what: &str, is: impl Fn(&Pod) -> Option<T>) -> T {
        let pods: Api<Pod> = self.api();
        eventually(PATIENCE, what, async || pods.get(name).await.ok().as_ref().and_then(&is)).await
    }

    /// Creates an object of any namespaced core kind.
    pub(super) async fn create(&self, mut object: Value) {
        object["metadata"]["namespace"] = json!(self.namespace);
        match object["kind"].as_str().expect("a kind") {
            "Pod" => self.create_as::<Pod>(object).await,
            "Secret" => self.create_as::<k8s_openapi::api::core::v1::Secret>(object).await,
            "ConfigMap" => self.create_as::<k8s_openapi::api::core::v1::ConfigMap>(object).await,
            "ServiceAccount" => self.create_as::<k8s_openapi::api::core::v1::ServiceAccount>(object).await,
            "PersistentVolumeClaim" => {
                self.create_as::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(object).await;
            }
            other => panic!("no test makes a {other}"),
        }
    }

    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn create_as<K>(&self, object: Value)
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object).unwrap();
        self.api::<K>().create(&PostParams::default(), &object).await.unwrap();
    }
}

/// The image of the QuestDB that is installed.
pub(super) fn image() -> String {
    let lib = questdb_lib();
    let installation = lib.parent().and_then(|path| path.file_name()).and_then(|name| name.to_str());
    let version = installation.and_then(|name| name.strip_prefix("questdb-")).expect("a version");
    format!("questdb/questdb:{version}")
}
