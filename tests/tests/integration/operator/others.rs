//! Everybody else in the cluster, for a database that a test does not lead step by step: machines that join, the
//! StatefulSet's controller, the kubelet, what attaches disks, and what lets go of claims.

use std::sync::Arc;
use std::time::Duration;

use cloud::{
    AttachmentState, ClientToken, Instance, InstanceState, Launch, Protection, Role, Tags, UserData, Volume,
    key,
};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use resources::names;
use serde_json::{Value, json};
use testkit::eventually;
use tokio::task::AbortHandle;

use super::rig::{PATIENCE, Rig, patiently};
use crate::support::stack;

/// A version of QuestDB that does not start: a pod that is to run it ends again and again.
pub(super) const BROKEN_VERSION: &str = "9.3.6";
/// Between two rounds of theirs.
const PAUSE: Duration = Duration::from_millis(150);

/// They do their part until dropped.
pub(super) struct Others(AbortHandle);

impl Others {
    /// Of a rig's namespace and its cluster in AWS.
    pub(super) fn of(rig: &Arc<Rig>) -> Self {
        let rig = Arc::clone(rig);
        let rounds = tokio::spawn(async move {
            loop {
                round(&rig).await;
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self(rounds.abort_handle())
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What did not work of one is tried again in the next round, and holds up no other.
async fn round(rig: &Rig) {
    // Asked for once a round: all of AWS shares so many describes a second, however many databases there are.
    let (machines, volumes) = (rig.instances().await, rig.volumes().await);
    for machine in machines.iter().filter(|machine| machine.state == InstanceState::Running) {
        let _ = join(rig, machine).await;
    }
    let sets: Api<StatefulSet> = Api::namespaced(rig.admin.clone(), &rig.namespace);
    // A set that is not seen is not one that is gone: without them nobody knows which pods are to end.
    if let Ok(sets) = sets.list(&ListParams::default().labels(names::LABEL_DATABASE)).await {
        let _ = end_pods(rig, &sets.items, (&machines, &volumes)).await;
        for set in &sets.items {
            let _ = control(rig, set, (&machines, &volumes)).await;
        }
    }
    let _ = let_go::<PersistentVolumeClaim>(Api::namespaced(rig.admin.clone(), &rig.namespace), "").await;
    let ours = format!("{}={}", names::LABEL_NAMESPACE, rig.namespace);
    let _ = let_go::<PersistentVolume>(Api::all(rig.admin.clone()), &ours).await;
}

/// A machine joins as the Node that it was told to be.
async fn join(rig: &Rig, machine: &Instance) -> kube::Result<()> {
    let tag = |key| machine.tags.get(key).unwrap_or_default();
    let (database, generation) = (tag(key::DATABASE), tag(key::GENERATION).parse().unwrap_or_default());
    let resource = tag(key::NAME).rsplit('/').next().unwrap_or_default();
    // Somebody may have taken its tags off.
    let Some(short) = database.get(28..) else { return Ok(()) };
    let name = names::node(short, generation);
    let nodes: Api<Node> = Api::all(rig.admin.clone());
    if nodes.get_metadata_opt(&name).await?.is_some() {
        return Ok(());
    }
    // It may have ended since the round began, and its Node have been taken away for that.
    if rig.instances().await.iter().any(|found| found.id == machine.id) {
        rig.try_node(&name, machine, (database, resource)).await?;
    }
    Ok(())
}

/// The StatefulSet's controller sees its newest form; the kubelet runs the pod once its disk is there.
async fn control(
    rig: &Rig,
    set: &StatefulSet,
    (machines, volumes): (&[Instance], &[Volume]),
) -> kube::Result<()> {
    let (pods, name) = (pods(rig), names::pod(&set.name_any()));
    let seen = set.status.as_ref().and_then(|status| status.observed_generation);
    if seen != set.metadata.generation {
        let status = json!({ "status": { "replicas": 1, "observedGeneration": set.metadata.generation } });
        let sets: Api<StatefulSet> = Api::namespaced(rig.admin.clone(), &rig.namespace);
        sets.patch_status(&set.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await?;
    }
    let template = &set.spec.as_ref().unwrap().template;
    let selector = template.spec.as_ref().unwrap().node_selector.clone().unwrap_or_default();
    let node = selector.get(names::LABEL_NODE).cloned().unwrap_or_default();
    let found = pods.get_opt(&name).await?;
    let Some(machine) = machines.iter().find(|machine| is_node(machine, &node)) else { return Ok(()) };
    match found {
        None => {
            let template = serde_json::to_value(template).unwrap();
            let mut pod = json!({ "metadata": template["metadata"], "spec": template["spec"] });
            pod["metadata"]["name"] = json!(name);
            pod["spec"]["nodeName"] = json!(node);
            pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await?;
        }
        Some(pod) if is_broken(&pod) => {
            if pod.status.and_then(|status| status.container_statuses).is_none() {
                pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&ending())).await?;
            }
            attach(rig, machine, volumes).await;
        }
        // A disk that is on its way from or to a machine is there for nobody yet.
        Some(_) if !is_attached(machine, volumes) => attach(rig, machine, volumes).await,
        Some(pod) if !is_ready(&pod) => {
            let condition = |kind: &str| json!({ "type": kind, "status": "True" });
            let status =
                json!({ "status": { "conditions": [condition("PodScheduled"), condition("Ready")] } });
            pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&status)).await?;
        }
        Some(_) => {}
    }
    Ok(())
}

fn is_broken(pod: &Pod) -> bool {
    let image = domain::catalogue::image_of(BROKEN_VERSION);
    let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.any(|container| container.image.as_ref() == Some(&image))
}

/// What the kubelet says of a QuestDB that ended too often.
fn ending() -> Value {
    let container = json!({
        "name": "questdb", "image": "", "imageID": "", "ready": false, "restartCount": 3,
        "lastState": { "terminated": { "exitCode": 55 } },
        "state": { "waiting": { "reason": "CrashLoopBackOff" } },
    });
    json!({ "status": { "containerStatuses": [container] } })
}

/// Pods that are to end, or that nobody keeps, end; a disk leaves every machine that its pod is not on, tried until it has.
async fn end_pods(
    rig: &Rig,
    sets: &[StatefulSet],
    (machines, volumes): (&[Instance], &[Volume]),
) -> kube::Result<()> {
    let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    let (mut running, pods) = (Vec::new(), pods(rig));
    for pod in pods.list(&ListParams::default()).await?.items {
        let kept = sets.iter().any(|set| names::pod(&set.name_any()) == pod.name_any());
        let runs = kept && pod.metadata.deletion_timestamp.is_none();
        // One that could not be ended has its disk for another round.
        if runs || pods.delete(&pod.name_any(), &at_once).await.is_err() {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            running.push((pod.labels().get(names::LABEL_DATABASE).cloned().unwrap_or_default(), node));
        }
    }
    for volume in volumes {
        let database = volume.tags.get(key::DATABASE).unwrap_or_default();
        let pod = running.iter().find(|(running, _)| running == database);
        for attachment in volume.live_attachments() {
            let on = machines.iter().find(|machine| machine.id == attachment.instance).and_then(node_of);
            // Of a machine that is not there any more nobody knows which Node it was.
            let stays = pod.is_some_and(|(_, node)| on.is_none() || node.is_none() || on == *node);
            if !stays {
                let _ = rig.aws.detach_volume(&volume.id, &attachment.instance).await;
            }
        }
    }
    Ok(())
}

async fn attach(rig: &Rig, machine: &Instance, volumes: &[Volume]) {
    for volume in disks(machine, volumes) {
        if volume.is_detached() {
            let _ = rig.aws.attach_volume(&volume.id, &machine.id, "/dev/sdf").await;
        }
    }
}

fn is_attached(machine: &Instance, volumes: &[Volume]) -> bool {
    let mut attachments = disks(machine, volumes).flat_map(|volume| &volume.attachments);
    attachments.any(|found| found.instance == machine.id && found.state == AttachmentState::Attached)
}

/// The disks of a machine's database.
fn disks<'a>(machine: &'a Instance, volumes: &'a [Volume]) -> impl Iterator<Item = &'a Volume> {
    volumes.iter().filter(|volume| volume.tags.get(key::DATABASE) == machine.tags.get(key::DATABASE))
}

/// Objects that are being deleted go: nothing here uses them.
async fn let_go<K>(api: Api<K>, labels: &str) -> kube::Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let free = json!({ "metadata": { "finalizers": null } });
    for found in api.list_metadata(&ListParams::default().labels(labels)).await?.items {
        if found.metadata.deletion_timestamp.is_some() {
            // What has gone meanwhile is free, too.
            let _ =
                api.patch_metadata(&found.name_any(), &PatchParams::default(), &Patch::Merge(&free)).await;
        }
    }
    Ok(())
}

fn pods(rig: &Rig) -> Api<Pod> {
    let client: Client = rig.admin.clone();
    Api::namespaced(client, &rig.namespace)
}

fn is_node(machine: &Instance, node: &str) -> bool {
    machine.state == InstanceState::Running && node_of(machine).as_deref() == Some(node)
}

/// The name of the Node that a machine was told to be.
fn node_of(machine: &Instance) -> Option<String> {
    let generation = machine.tags.get(key::GENERATION)?.parse().ok()?;
    Some(names::node(machine.tags.get(key::DATABASE)?.get(28..)?, generation))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_cannot_join_holds_up_no_other() {
    let rig = Arc::new(Rig::new().await);
    let _others = Others::of(&rig);
    let network = stack().clusters.iter().find(|cluster| !cluster.zones.is_empty()).expect("a network");
    let run = async |name: &str| {
        let database = uuid::Uuid::now_v7().hyphenated().to_string();
        let tags = Tags::new().with(key::CLUSTER, &rig.cluster).with(key::DATABASE, &database);
        let launch = Launch {
            image: network.node_image.clone(),
            instance_type: "m5.large".into(),
            subnet: network.zones.values().next().unwrap().clone(),
            security_groups: Vec::new(),
            user_data: UserData::default(),
            instance_profile: None,
            protection: Protection::OFF,
            tags: tags.with(key::GENERATION, "1").with(key::NAME, name),
        };
        let token = ClientToken::new(&rig.cluster, &database, Role::Instance, 1);
        // Two a second are launched in all, for whichever test; one that is asked for again is the same.
        let id = patiently(|| rig.aws.run_instance(&launch, &token)).await.id;
        eventually(PATIENCE, "a machine that runs", async || {
            let all = rig.instances().await;
            let found = all.into_iter().find(|found| found.id == id)?;
            (found.state == InstanceState::Running).then_some(())
        })
        .await;
        (id, names::node(&database[28..], 1))
    };
    // No Node can have such a label.
    let (broken, _) = run("a/no label!").await;
    let (good, node) = run("a/trades").await;
    let nodes: Api<Node> = Api::all(rig.admin.clone());
    eventually(PATIENCE, "the other one's Node", async || nodes.get_opt(&node).await.unwrap()).await;
    nodes.delete(&node, &DeleteParams::default()).await.unwrap();
    for machine in [broken, good] {
        rig.aws.terminate_instance(&machine).await.unwrap();
    }
    rig.end().await;
}
