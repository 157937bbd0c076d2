//! Kubernetes in the model: the API server's part in our objects, its controllers and the kubelet.

use std::collections::BTreeMap;
use std::sync::Arc;

use cloud::{Attachment, AttachmentState, Instance, InstanceState, key};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ObjectMeta;
use resources::{QuestDBSnapshot, SnapshotPhase, names};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::model::{Refusal, World};
use crate::snapshot::last_copy_of;
use crate::{Kind, Manifest, PodSeen, Reload, Setting, Step, Target, build};

/// The name of the resource of all these tests.
const NAME: &str = "trades-33445566";
/// What a pod is given to stop.
pub(super) const GRACE: SignedDuration = SignedDuration::from_mins(2);

impl World {
    pub(super) fn on_kubernetes(&mut self, step: &Step) -> Result<(), Refusal> {
        match step {
            Step::CreateSecret(manifest) | Step::KeepSecret(manifest) => {
                self.create_secret(manifest);
                Ok(())
            }
            Step::DrawKey(manifest, id) => self.draw_key(manifest, id),
            Step::RevokeKey(manifest) => {
                self.revoke_key(manifest);
                Ok(())
            }
            Step::SetCredentials(new) => self.set_credentials(new),
            Step::Apply(manifest) => self.write(manifest),
            Step::Delete(target) => self.delete(target),
            Step::LabelNode { name, uid, labels } => self.label(name, uid, labels),
            Step::Reload(reload) => self.reload(reload),
            other => panic!("{} is not a step on Kubernetes", other.name()),
        }
    }

    /// The metadata of an object of ours, if it is there.
    fn metadata(&self, kind: Kind, name: &str) -> Option<&ObjectMeta> {
        let children = &self.children;
        match kind {
            Kind::Secret => children.secret.as_deref().map(|found| &found.metadata),
            Kind::ConfigMap => children.config.as_deref().map(|found| &found.metadata),
            Kind::Service if name == names::headless(NAME) => {
                children.headless.as_deref().map(|found| &found.metadata)
            }
            Kind::Service => children.service.as_deref().map(|found| &found.metadata),
            Kind::StatefulSet => children.stateful_set.as_deref().map(|found| &found.metadata),
            Kind::Pod => children.pod.as_deref().map(|found| &found.metadata),
            Kind::PersistentVolume => children.persistent_volumes.first().map(|found| &found.metadata),
            Kind::PersistentVolumeClaim => children.claim.as_deref().map(|found| &found.metadata),
            Kind::Node => {
                let mut nodes = children.nodes.iter().map(|node| &node.metadata);
                nodes.find(|metadata| metadata.name.as_deref() == Some(name))
            }
            Kind::NetworkPolicy => children.network_policy.as_deref().map(|found| &found.metadata),
            Kind::PodDisruptionBudget => children.disruption_budget.as_deref().map(|found| &found.metadata),
            Kind::Snapshot => {
                let mut all = self.snapshots.iter().map(|found| &found.metadata);
                all.find(|metadata| metadata.name.as_deref() == Some(name))
            }
            Kind::ServiceMonitor | Kind::PodMonitor | Kind::IngressRoute | Kind::IngressRouteTcp => {
                let of_kind = children.others.iter().filter(|(other, _)| *other == kind);
                let mut metadata = of_kind.map(|(_, found)| &found.metadata);
                metadata.find(|metadata| metadata.name.as_deref() == Some(name))
            }
        }
    }

    /// QuestDB reads server.conf as it is, and says by its pod what it has read.
    fn reload(&mut self, reload: &Reload) -> Result<(), Refusal> {
        let pod = Arc::make_mut(self.children.pod.as_mut().ok_or("no such pod")?);
        if pod.metadata.uid.as_ref() != Some(&reload.pod.uid) {
            return Err("it is another pod");
        }
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.extend(reload.meanwhile.clone());
        if let Some(refuses) = self.deaf {
            let refused = reload.refused.clone().filter(|_| refuses);
            annotations.extend(refused.map(|refused| (names::CONFIG_REFUSED.to_owned(), refused)));
            return Err("QuestDB does not take it over");
        }
        let text = self.children.config.as_ref().unwrap().data.as_ref().unwrap()["server.conf"].clone();
        for Setting { key, value } in &reload.settings {
            let line = value.as_ref().map(|value| format!("{key}={value}\n"));
            assert!(line.is_none_or(|line| text.contains(&line)), "{key} is not in {text}");
        }
        let pod = Arc::make_mut(self.children.pod.as_mut().ok_or("no such pod")?);
        let annotations = pod.metadata.annotations.get_or_insert_default();
        for (key, value) in reload.annotations.clone() {
            match value {
                Some(value) => drop(annotations.insert(key, value)),
                None => drop(annotations.remove(&key)),
            }
        }
        self.reloads += 1;
        Ok(())
    }

    fn write(&mut self, manifest: &Manifest) -> Result<(), Refusal> {
        let found = self.metadata(manifest.kind, &manifest.name);
        if manifest.uid.is_some() && found.and_then(|found| found.uid.as_ref()) != manifest.uid.as_ref() {
            return Err("it is another object, or none");
        }
        let seen = manifest.body.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        if seen.is_some() && found.and_then(|found| found.resource_version.as_deref()) != seen {
            return Err("it has changed since it was seen");
        }
        let (uid, generation) =
            found.map_or((None, 0), |found| (found.uid.clone(), found.generation.unwrap_or(0)));
        if manifest.kind == Kind::StatefulSet {
            self.check_pin(manifest);
        }
        let mut body = manifest.body.clone();
        let number = self.next();
        body["metadata"]["uid"] =
            json!(uid.unwrap_or_else(|| format!("{}-{number}", manifest.kind.as_str())));
        body["metadata"]["generation"] = json!(generation + 1);
        body["metadata"]["resourceVersion"] = json!(number.to_string());
        let children = &mut self.children;
        match manifest.kind {
            Kind::ConfigMap => children.config = Some(Arc::new(parse(&body))),
            Kind::Service if manifest.name == names::headless(NAME) => {
                children.headless = Some(Arc::new(parse(&body)));
            }
            Kind::Service => children.service = Some(Arc::new(parse(&body))),
            Kind::StatefulSet => children.stateful_set = Some(Arc::new(parse(&body))),
            Kind::PersistentVolume => self.write_disk(body),
            Kind::PersistentVolumeClaim => self.write_claim(&body)?,
            Kind::Pod => {
                let pod = Arc::make_mut(children.pod.as_mut().ok_or("no such pod")?);
                let labels: BTreeMap<String, String> = parse(&body["metadata"]["labels"]);
                pod.metadata.labels.get_or_insert_default().extend(labels);
            }
            Kind::Snapshot => {
                if self.snapshots.iter().all(|found| found.metadata.name.as_ref() != Some(&manifest.name)) {
                    body["metadata"]["creationTimestamp"] = json!(self.now);
                    self.snapshots.push(Arc::new(parse(&body)));
                }
            }
            other @ (Kind::Secret | Kind::Node) => panic!("{} is not applied", other.as_str()),
            other => super::reach::write(children, other, &manifest.name, &body),
        }
        Ok(())
    }

    fn delete(&mut self, target: &Target) -> Result<(), Refusal> {
        if target.kind == Kind::Secret && target.name != names::credentials(NAME) {
            self.delete_handed_out(target);
            return Ok(());
        }
        let Some(found) = self.metadata(target.kind, &target.name) else { return Ok(()) };
        let version = target.resource_version.is_none() || target.resource_version == found.resource_version;
        if found.uid.as_ref() != Some(&target.uid) || !version {
            return Err("it is not the object that was seen");
        }
        if target.pod.as_ref().is_some_and(|seen| *seen != PodSeen::of(self.children.pod.as_deref())) {
            return Err("its pod is not as it was seen");
        }
        let children = &mut self.children;
        match target.kind {
            Kind::Secret => children.secret = None,
            Kind::ConfigMap => children.config = None,
            Kind::Service if target.name == names::headless(NAME) => children.headless = None,
            Kind::Service => children.service = None,
            Kind::StatefulSet => children.stateful_set = None,
            Kind::Pod if target.at_once => {
                let on = children.pod.as_ref().and_then(|pod| pod.spec.as_ref()?.node_name.clone());
                let node = children.nodes.iter().find(|node| node.metadata.name == on);
                let mut machines =
                    self.instances.iter().filter(|found| node.is_some_and(|node| is_of(node, found)));
                let down = machines.all(|instance| instance.state.is_confirmed_down());
                assert!(down, "a pod is forgotten while its machine runs");
                children.pod = None;
            }
            Kind::Pod => {
                // The API server puts the grace period into it, once.
                let end = Time(self.now + GRACE);
                if let Some(pod) = children.pod.as_mut() {
                    Arc::make_mut(pod).metadata.deletion_timestamp.get_or_insert(end);
                }
            }
            Kind::PersistentVolume => children.persistent_volumes.clear(),
            Kind::PersistentVolumeClaim => children.claim = None,
            Kind::Node => children.nodes.retain(|node| node.metadata.name.as_ref() != Some(&target.name)),
            Kind::Snapshot => self.delete_snapshot(&target.name),
            other => super::reach::delete(children, other, &target.name),
        }
        Ok(())
    }

    fn label(&mut self, name: &str, uid: &str, labels: &BTreeMap<String, String>) -> Result<(), Refusal> {
        let mut nodes = self.children.nodes.iter_mut();
        let node = nodes.find(|node| node.metadata.name.as_deref() == Some(name));
        let node = node.filter(|node| node.metadata.uid.as_deref() == Some(uid)).ok_or("no such Node")?;
        Arc::make_mut(node).metadata.labels.get_or_insert_default().extend(labels.clone());
        Ok(())
    }

    pub(super) fn tick_kubernetes(&mut self) {
        self.tick_snapshots();
        self.tick_pod();
        if let Some(found) = &mut self.children.stateful_set {
            let generation = found.metadata.generation;
            let seen = found.status.as_ref().and_then(|status| status.observed_generation);
            if seen != generation {
                self.number += 1;
                let set = Arc::make_mut(found);
                set.status.get_or_insert_default().observed_generation = generation;
                set.metadata.resource_version = Some(self.number.to_string());
            }
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
        self.detach_from_the_gone();
        if self.children.pod.is_none() && self.children.stateful_set.is_none() && self.listens() {
            self.let_go();
        }
        if !self.is_bound() || self.refuses_the_pod() {
            return;
        }
        let Some(set) = &self.children.stateful_set else { return };
        let template = set.spec.as_ref().unwrap().template.clone();
        let selector = template.spec.as_ref().unwrap().node_selector.as_ref().unwrap();
        let running = self.instances.iter().filter(|found| found.state == InstanceState::Running);
        // A disk never leaves its zone.
        let near = running.filter(|found| self.volumes.first().is_none_or(|disk| disk.zone == found.zone));
        let machines: Vec<String> = near.map(provider).collect();
        let fits = |node: &&Arc<Node>| {
            let labels = node.metadata.labels.clone().unwrap_or_default();
            let provider = node.spec.as_ref().unwrap().provider_id.as_ref().unwrap();
            machines.contains(provider) && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        };
        let on = self.children.pod.as_ref().and_then(|pod| pod.spec.as_ref()?.node_name.clone());
        let stays = |node: &&Arc<Node>| node.metadata.name == on && on.is_some();
        let all = &self.children.nodes;
        // A pod is never moved: it stays where it was made.
        let found = if on.is_some() {
            all.iter().find(stays)
        } else {
            all.iter().find(fits).filter(|node| !is_closed(node))
        };
        let Some(node) = found.cloned() else { return };
        if !self.attach(&node) {
            return;
        }
        let before = self.children.pod.clone();
        let made = self.children.pod.as_ref().map(|pod| &pod.metadata);
        let of_template = template.metadata.as_ref().unwrap();
        let metadata = made.unwrap_or(of_template);
        let (labels, annotations) = (json!(metadata.labels), json!(metadata.annotations));
        let uid = self.children.pod.as_ref().and_then(|pod| pod.metadata.uid.clone());
        let uid = uid.unwrap_or_else(|| format!("pod-{}", self.number));
        self.number += 1;
        if before.is_none() {
            self.process.clone_from(&self.children.secret);
        }
        let mut made = pod(&uid, (&labels, &annotations), &node, before.is_some());
        let asked = before.as_deref().map_or(template.spec.as_ref(), |pod| pod.spec.as_ref());
        take_images(made.spec.get_or_insert_default(), asked.unwrap());
        if made.spec.as_ref().is_some_and(|spec| spec.containers.is_empty()) {
            // Which image it is, is known from its kubelet alone.
            let status = before.as_ref().and_then(|pod| pod.status.as_ref());
            let statuses = status.and_then(|status| status.container_statuses.clone());
            made.status.get_or_insert_default().container_statuses = statuses;
        }
        let since = before.as_ref().and_then(|pod| pod.metadata.creation_timestamp.clone());
        made.metadata.creation_timestamp = since.or(Some(Time(self.now)));
        self.children.pod = Some(Arc::new(self.play(made, before.as_deref())));
    }

    /// Whether there is no pod, and none may be made.
    fn refuses_the_pod(&self) -> bool {
        self.children.pod.is_none() && self.read_only_for == Some(Kind::Pod)
    }

    /// QuestDB starts, or its image is waited for, or it ends at once and is started again.
    fn play(&self, mut pod: Pod, before: Option<&Pod>) -> Pod {
        let image = crate::change::image_of_pod(&pod).unwrap_or_default();
        super::copies::check_told(self.volumes.first().filter(|_| before.is_none()), &image);
        if super::repositories::is_out_of_reach(&self.unpulled, &pod, &image) {
            pod.status = Some(super::repositories::waiting(&pod, &image));
            return pod;
        }
        if !self.broken.contains(&image) {
            return pod;
        }
        let statuses = before.and_then(|pod| pod.status.as_ref()?.container_statuses.clone());
        unready(&mut pod);
        let count = statuses.and_then(|all| all.first().map(|found| found.restart_count + 1)).unwrap_or(0);
        let status = pod.status.get_or_insert_default();
        status.container_statuses = parse(&json!([{
            "name": "questdb", "image": image, "imageID": "", "ready": false, "restartCount": count,
            "state": { "waiting": { "reason": "CrashLoopBackOff" } },
            "lastState": { "terminated": { "exitCode": 1 } },
        }]));
        pod
    }

    /// Snapshots come along, or do not.
    fn tick_snapshots(&mut self) {
        let ready = self.children.pod.as_ref().is_some_and(|pod| {
            pod.status
                .iter()
                .flat_map(|status| status.conditions.iter().flatten())
                .all(|found| found.status == "True")
        });
        let usual = |snapshot: &&mut Arc<QuestDBSnapshot>| last_copy_of(snapshot).is_none();
        for snapshot in self.snapshots.iter_mut().filter(usual) {
            let status = Arc::make_mut(snapshot).status.get_or_insert_default();
            if status.phase == Some(SnapshotPhase::Checkpointing) {
                status.started_at = Some(Time(self.now));
            }
            status.phase = Some(match status.phase {
                _ if self.uncopied => SnapshotPhase::Failed,
                None if ready => SnapshotPhase::Checkpointing,
                None => SnapshotPhase::Pending,
                Some(SnapshotPhase::Pending | SnapshotPhase::Checkpointing) if !ready => {
                    SnapshotPhase::Pending
                }
                Some(SnapshotPhase::Pending) => SnapshotPhase::Checkpointing,
                Some(SnapshotPhase::Checkpointing) => SnapshotPhase::Copying,
                Some(_) => SnapshotPhase::Succeeded,
            });
        }
    }

    /// Whether the kubelets are alive: without them no pod ends and no disk is let go.
    pub(super) fn listens(&self) -> bool {
        self.children.nodes.iter().all(|node| listens(node))
    }

    /// The machine that the StatefulSet pins.
    pub(super) fn pinned(&self) -> Option<&str> {
        let template = &self.children.stateful_set.as_ref()?.spec.as_ref()?.template;
        template.spec.as_ref()?.node_selector.as_ref()?.get(names::LABEL_NODE).map(String::as_str)
    }

    /// A database that serves is pinned to another machine only when that one is ready for it.
    fn check_pin(&self, manifest: &Manifest) {
        let pointer = format!("/spec/template/spec/nodeSelector/{}", names::LABEL_NODE.replace('/', "~1"));
        let next = manifest.body.pointer(&pointer).and_then(Value::as_str);
        let machine = |name: Option<&str>| {
            let node = self.children.nodes.iter().find(|node| node.metadata.name.as_deref() == name)?;
            let mut machines = self.instances.iter().filter(|found| found.state == InstanceState::Running);
            machines.any(|found| is_of(node, found)).then_some(node)
        };
        let before = self.pinned();
        if before.is_some() && before != next && machine(before).is_some() {
            let ready = machine(next).is_some_and(|node| listens(node) && !is_closed(node));
            assert!(ready, "pinned to {next:?}, which is not ready, while {before:?} runs");
        }
    }

    /// A disk that Kubernetes has on a Node that is gone is taken off it.
    fn detach_from_the_gone(&mut self) {
        let nodes: Vec<_> = self.children.nodes.iter().map(|node| node.metadata.name.clone()).collect();
        self.children.attachments.retain(|found| nodes.contains(&Some(found.spec.node_name.clone())));
    }

    /// Kubelets that were silent are heard again.
    pub(super) fn wake_kubelets(&mut self) {
        for node in &mut self.children.nodes {
            let status = Arc::make_mut(node).status.get_or_insert_default();
            for condition in status.conditions.iter_mut().flatten() {
                "True".clone_into(&mut condition.status);
            }
        }
    }

    /// Nobody but the kubelet of its own Node ends a pod, where it has one.
    fn is_stopped_by_its_kubelet(&self) -> bool {
        let node = self.children.pod.as_ref().and_then(|pod| pod.spec.as_ref()?.node_name.as_ref());
        let mut of_pod = self.children.nodes.iter().filter(|found| found.metadata.name.as_ref() == node);
        node.is_none() || of_pod.any(|found| listens(found))
    }

    /// Kubernetes takes disks off where it knows of them: what others attached to a machine of theirs stays there.
    pub(super) fn let_go(&mut self) {
        self.children.attachments.clear();
        let is_ours = |held: &Attachment| self.instances.iter().any(|found| found.id == held.instance);
        self.volumes.iter_mut().for_each(|volume| volume.attachments.retain(|held| !is_ours(held)));
    }

    /// The disk goes on a Node; whether it is there. Nobody takes it from another.
    fn attach(&mut self, node: &Node) -> bool {
        let mut machines = self.instances.iter().filter(|found| found.state == InstanceState::Running);
        let Some(instance) = machines.find(|found| is_of(node, found)).map(|found| found.id.clone()) else {
            return false;
        };
        let Some(volume) = self.volumes.first_mut() else { return true };
        if volume.attachments.is_empty() && self.children.attachments.is_empty() {
            super::copies::check_numbered(volume, node);
            let (volume_id, device, state) =
                (volume.id.clone(), "/dev/sdf".to_owned(), AttachmentState::Attached);
            volume.attachments.push(Attachment {
                volume: volume_id,
                instance: instance.clone(),
                device,
                state,
                goes_with_machine: false,
            });
            let attachment: VolumeAttachment = parse(&json!({
                "metadata": { "name": "va" },
                "spec": { "attacher": "ebs", "nodeName": node.metadata.name,
                    "source": { "persistentVolumeName": names::persistent_volume(volume.id.as_str()) } },
            }));
            self.children.attachments = vec![Arc::new(attachment)];
        }
        let holds = volume.attachments.iter().any(|found| found.instance == instance);
        self.written += u64::from(holds);
        holds
    }
}

/// A pod does not answer its probes.
pub(super) fn unready(pod: &mut Pod) {
    let conditions = pod.status.iter_mut().flat_map(|status| status.conditions.iter_mut().flatten());
    conditions.filter(|found| found.type_ == "Ready").for_each(|found| "False".clone_into(&mut found.status));
}

/// Whether a Node is an instance's.
pub(super) fn is_of(node: &Node, instance: &Instance) -> bool {
    node.spec.as_ref().and_then(|spec| spec.provider_id.as_ref()) == Some(&provider(instance))
}

/// Whether the kubelet of a Node is alive.
pub(super) fn listens(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().all(|condition| condition.status == "True")
}

/// Containers, and with what their images are pulled.
fn take_images(spec: &mut PodSpec, asked: &PodSpec) {
    spec.containers.clone_from(&asked.containers);
    spec.image_pull_secrets.clone_from(&asked.image_pull_secrets);
}

/// Whether no pod is started on a Node.
fn is_closed(node: &Node) -> bool {
    node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true) || super::shut_out::evicts(spec))
}

pub(super) fn parse<T: DeserializeOwned>(value: &Value) -> T {
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

fn pod(uid: &str, (labels, annotations): (&Value, &Value), node: &Node, ready: bool) -> Pod {
    let ready = if ready { "True" } else { "False" };
    parse(&json!({
        "metadata": { "name": names::pod(NAME), "namespace": "qdb-acme", "uid": uid, "labels": labels,
            "annotations": annotations },
        "spec": { "nodeName": node.metadata.name, "containers": [] },
        "status": { "conditions": [{ "type": "PodScheduled", "status": "True" }, { "type": "Ready", "status": ready }] },
    }))
}
