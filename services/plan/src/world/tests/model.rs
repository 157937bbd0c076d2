//! Kubernetes in the model, and what both sides share.

use std::sync::Arc;

use cloud::{
    Attachment, AttachmentState, ChangeId, DnsChange, DnsChangeState, DnsRecord, Instance, InstanceId,
    InstanceState, Protection, RecordChange, SecurityGroup, Volume, key,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use resources::{QuestDB, names};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{Children, Dns, Kind, Manifest, Observed, Step, Target, build};

/// What becomes of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It was not done.
    Request,
    /// It was done and nobody heard.
    Answer,
}

/// Everything there is.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) resource: QuestDB,
    pub(crate) children: Children,
    pub(crate) instances: Vec<Instance>,
    pub(crate) protected: Vec<InstanceId>,
    pub(crate) volumes: Vec<Volume>,
    pub(crate) groups: Vec<SecurityGroup>,
    pub(crate) records: Vec<DnsRecord>,
    pub(crate) change: Option<DnsChange>,
    pub(crate) secrets_drawn: u32,
    pub(crate) released: bool,
    /// For so many ticks EC2 answers from a time before the database.
    pub(crate) hidden: usize,
    /// EC2 takes no change of a volume for now.
    pub(crate) too_soon: bool,
    /// The API server takes no objects for now.
    pub(crate) read_only: bool,
    /// Time of day.
    pub(crate) now: Timestamp,
    pub(super) number: u32,
}

impl World {
    pub(crate) fn new(resource: QuestDB) -> Self {
        Self {
            resource,
            children: Children::default(),
            instances: Vec::new(),
            protected: Vec::new(),
            volumes: Vec::new(),
            groups: Vec::new(),
            records: Vec::new(),
            change: None,
            secrets_drawn: 0,
            released: false,
            hidden: 0,
            too_soon: false,
            read_only: false,
            now: Timestamp::UNIX_EPOCH,
            number: 0,
        }
    }

    /// What an observer sees.
    pub(crate) fn look(&self) -> Observed {
        let mut observed = Observed { children: self.children.clone(), at: self.now, ..Observed::default() };
        if self.hidden == 0 {
            observed.account.instances.clone_from(&self.instances);
            observed.account.volumes.clone_from(&self.volumes);
            observed.account.groups.clone_from(&self.groups);
            observed.account.conclusive = true;
        }
        let status = self.resource.status.as_ref().and_then(|status| status.dns.as_ref());
        let known = status.and_then(|status| status.change_id.as_ref());
        let change =
            self.change.clone().filter(|change| Some(change.id.as_str()) == known.map(String::as_str));
        let records = change.is_none().then(|| self.records.clone());
        observed.dns = Dns { records, change };
        observed
    }

    /// What EC2 says of an instance's protection.
    pub(crate) fn protection(&self, instance: &InstanceId) -> Protection {
        if self.protected.contains(instance) { Protection::ON } else { Protection::OFF }
    }

    /// Whether the other side says no to a step.
    pub(crate) fn refuses(&self, step: &Step) -> bool {
        match step {
            Step::ModifyVolume { .. } => self.too_soon,
            Step::Apply(_) => self.read_only,
            _ => false,
        }
    }

    /// Carries out a step, as the real ones would.
    pub(crate) fn apply(&mut self, step: &Step) -> Option<(DnsChange, Option<String>)> {
        match step {
            Step::AddFinalizer { .. } => {
                self.resource.metadata.finalizers = Some(vec![names::FINALIZER.to_owned()]);
            }
            Step::WriteGeneration { generation, launch, zone } => {
                self.annotate(names::GENERATION, &generation.to_string());
                self.annotate(names::LAUNCH, launch);
                self.annotate(names::LAUNCH_ZONE, zone);
            }
            Step::WriteReleased { generation } => self.annotate(names::RELEASED, &generation.to_string()),
            Step::RemoveFinalizer => self.released = true,
            Step::CreateSecret(manifest) => self.create_secret(manifest),
            Step::Apply(manifest) => self.write(manifest),
            Step::Delete(target) => self.delete(target),
            Step::LabelNode { name, value, .. } => self.label(name, value),
            Step::ChangeRecords { changes, address } => {
                return Some((self.change_records(changes), address.clone()));
            }
            other => self.on_aws(other),
        }
        None
    }

    /// The others do their part: Kubernetes' controllers, kubelet, EC2, Route 53.
    pub(crate) fn tick(&mut self) {
        self.hidden = self.hidden.saturating_sub(1);
        self.tick_aws();
        self.tick_pod();
        if let Some(found) = &mut self.children.stateful_set {
            let set = Arc::make_mut(found);
            let generation = set.metadata.generation;
            set.status.get_or_insert_default().observed_generation = generation;
        }
    }

    fn tick_pod(&mut self) {
        let leaving = self.children.pod.as_ref().is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
        if leaving || (self.children.pod.is_some() && self.children.stateful_set.is_none()) {
            if self.is_stopped_by_its_kubelet() {
                self.children.pod = None;
                self.let_go();
            }
            return;
        }
        if self.children.pod.is_none() && self.children.stateful_set.is_none() && self.listens() {
            self.let_go();
        }
        let Some(set) = &self.children.stateful_set else { return };
        let template = &set.spec.as_ref().unwrap().template;
        let selector = template.spec.as_ref().unwrap().node_selector.as_ref().unwrap();
        let running = self.instances.iter().filter(|found| found.state == InstanceState::Running);
        let machines: Vec<String> = running.map(provider).collect();
        let fits = |node: &&Arc<Node>| {
            let labels = node.metadata.labels.as_ref().unwrap();
            let provider = node.spec.as_ref().unwrap().provider_id.as_ref().unwrap();
            machines.contains(provider) && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        };
        let Some(node) = self.children.nodes.iter().find(fits).cloned() else { return };
        let ready = self.children.pod.is_some();
        let annotations = match &self.children.pod {
            Some(pod) => pod.metadata.annotations.clone(),
            None => template.metadata.as_ref().unwrap().annotations.clone(),
        };
        let uid = self.children.pod.as_ref().and_then(|pod| pod.metadata.uid.clone());
        let uid = uid.unwrap_or_else(|| format!("pod-{}", self.number));
        self.number += 1;
        self.attach(&node);
        self.children.pod = Some(Arc::new(pod(&uid, &json!(annotations), &node, ready)));
    }

    /// Whether the kubelets are alive: without them no pod ends and no disk is let go.
    pub(super) fn listens(&self) -> bool {
        let conditions =
            self.children.nodes.iter().filter_map(|node| node.status.as_ref()?.conditions.as_ref());
        conditions.flatten().all(|condition| condition.status == "True")
    }

    /// Nobody but the kubelet of its own Node ends a pod.
    fn is_stopped_by_its_kubelet(&self) -> bool {
        let node = self.children.pod.as_ref().and_then(|pod| pod.spec.as_ref()?.node_name.as_ref());
        self.listens() && self.children.nodes.iter().any(|found| found.metadata.name.as_ref() == node)
    }

    fn let_go(&mut self) {
        self.children.attachments.clear();
        self.volumes.iter_mut().for_each(|volume| volume.attachments.clear());
    }

    fn attach(&mut self, node: &Node) {
        let instance =
            self.instances.iter().find(|found| found.state == InstanceState::Running).unwrap().id.clone();
        let Some(volume) = self.volumes.first_mut() else { return };
        if volume.attachments.is_empty() {
            let (volume_id, device, state) =
                (volume.id.clone(), "/dev/sdf".to_owned(), AttachmentState::Attached);
            volume.attachments.push(Attachment { volume: volume_id, instance, device, state });
            let attachment: VolumeAttachment = parse(&json!({
                "metadata": { "name": "va" },
                "spec": { "attacher": "ebs", "nodeName": node.metadata.name,
                    "source": { "persistentVolumeName": names::persistent_volume(volume.id.as_str()) } },
            }));
            self.children.attachments = vec![Arc::new(attachment)];
        }
    }

    pub(super) fn next(&mut self) -> u32 {
        self.number += 1;
        self.number
    }

    fn annotate(&mut self, key: &str, value: &str) {
        let annotations = self.resource.metadata.annotations.get_or_insert_default();
        annotations.insert(key.to_owned(), value.to_owned());
    }

    fn create_secret(&mut self, manifest: &Manifest) {
        if self.children.secret.is_none() {
            self.secrets_drawn += 1;
            let mut body = manifest.body.clone();
            body["metadata"]["uid"] = json!(format!("secret-{}", self.secrets_drawn));
            body["data"] = json!({ "pg-user": "YQ==", "pg-password": "YQ==", "http-user": "YQ==", "http-password": "YQ==" });
            self.children.secret = Some(Arc::new(parse(&body)));
        }
    }

    fn write(&mut self, manifest: &Manifest) {
        let mut body = manifest.body.clone();
        body["metadata"]["uid"] = json!(format!("{}-{}", manifest.kind.as_str(), manifest.name));
        let generation =
            self.children.stateful_set.as_ref().and_then(|set| set.metadata.generation).unwrap_or(0) + 1;
        body["metadata"]["generation"] = json!(generation);
        let children = &mut self.children;
        match manifest.kind {
            Kind::ConfigMap => children.config = Some(Arc::new(parse(&body))),
            Kind::Service if manifest.name == names::headless("trades-33445566") => {
                children.headless = Some(Arc::new(parse(&body)));
            }
            Kind::Service => children.service = Some(Arc::new(parse(&body))),
            Kind::StatefulSet => children.stateful_set = Some(Arc::new(parse(&body))),
            Kind::PersistentVolume => children.persistent_volumes = vec![Arc::new(parse(&body))],
            Kind::PersistentVolumeClaim => children.claim = Some(Arc::new(parse(&body))),
            other => panic!("{} is not applied", other.as_str()),
        }
    }

    fn delete(&mut self, target: &Target) {
        let children = &mut self.children;
        match target.kind {
            Kind::Secret => children.secret = None,
            Kind::ConfigMap => children.config = None,
            Kind::Service if target.name == names::headless("trades-33445566") => children.headless = None,
            Kind::Service => children.service = None,
            Kind::StatefulSet => children.stateful_set = None,
            Kind::Pod if target.at_once => {
                let down = self.instances.iter().all(|instance| instance.state.is_confirmed_down());
                assert!(down, "a pod is forgotten while its machine runs");
                children.pod = None;
            }
            Kind::Pod => {
                if let Some(pod) =
                    children.pod.as_mut().filter(|pod| pod.metadata.uid.as_ref() == Some(&target.uid))
                {
                    let now: Value = json!("2026-01-01T00:00:00Z");
                    Arc::make_mut(pod).metadata.deletion_timestamp = Some(parse(&now));
                }
            }
            Kind::PersistentVolume => children.persistent_volumes.clear(),
            Kind::PersistentVolumeClaim => children.claim = None,
            Kind::Node => children.nodes.retain(|node| node.metadata.name.as_ref() != Some(&target.name)),
        }
    }

    fn label(&mut self, name: &str, value: &str) {
        let node =
            self.children.nodes.iter_mut().find(|node| node.metadata.name.as_deref() == Some(name)).unwrap();
        let labels = Arc::make_mut(node).metadata.labels.get_or_insert_default();
        labels.insert(names::LABEL_NODE.to_owned(), value.to_owned());
    }

    fn change_records(&mut self, changes: &[RecordChange]) -> DnsChange {
        for change in changes {
            let record = change.record();
            if let RecordChange::Delete(record) = change {
                self.records.retain(|found| found != record);
                continue;
            }
            self.records.retain(|found| found.kind != record.kind);
            self.records.push(record.clone());
        }
        let change =
            DnsChange { id: ChangeId::new(format!("c-{}", self.next())), state: DnsChangeState::Pending };
        self.change = Some(change.clone());
        change
    }
}

fn parse<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn provider(instance: &Instance) -> String {
    format!("aws:///{}/{}", instance.zone, instance.id)
}

pub(super) fn node(instance: &Instance) -> Node {
    let subject = crate::fixture::subject();
    let generation: u64 = instance.tags.get(key::GENERATION).unwrap().parse().unwrap();
    parse(&json!({
        "metadata": { "name": names::node(subject.short(), generation), "uid": format!("node-{}", instance.id),
            "labels": build::node_labels(&subject) },
        "spec": { "providerID": provider(instance) },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    }))
}

fn pod(uid: &str, annotations: &Value, node: &Node, ready: bool) -> Pod {
    let ready = if ready { "True" } else { "False" };
    parse(&json!({
        "metadata": { "name": "trades-33445566-0", "namespace": "qdb-acme", "uid": uid, "annotations": annotations },
        "spec": { "nodeName": node.metadata.name, "containers": [] },
        "status": { "conditions": [
            { "type": "PodScheduled", "status": "True" }, { "type": "Ready", "status": ready },
        ] },
    }))
}
