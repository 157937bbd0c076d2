//! A database goes to another machine on the real API server and EC2: the old one serves until the next is ready, and is ended
//! only when the disk has left it by everybody's word. Pods, Nodes and attachments are the test's.

use cloud::{ClientToken, Instance, Role, key};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::Api;
use kube::api::{DeleteParams, EvictParams, Patch, PatchParams, PostParams};
use resources::names::{self, condition};
use resources::{ChangeMeans, Phase, QuestDB};
use serde_json::{Value, json};
use testkit::{eventually, unique};

use super::others::Others;
use super::rig::PATIENCE;
use super::subject::Subject;
use crate::endpoint::{control, fault, serial};

/// The machine that every database of these tests begins with.
const FIRST: &str = "m7i.large";
/// The machine that it moves to.
const OTHER: &str = "m7i.xlarge";
/// Where images come from for an operator that is told so.
const MIRROR: &str = "registry.example.com:5000/mirror/questdb";

async fn begin(word: &str) -> (Subject, Others, tokio::process::Child) {
    let mut subject = Subject::new(&unique(word)).await;
    let (others, operator) = (Others::of(&subject.rig), subject.rig.start().await);
    subject.wish_run_state("Running").await;
    subject.carried_out(Phase::Ready).await;
    (subject, others, operator)
}

async fn wish_for(subject: &mut Subject, machine: &str) {
    subject.wish(|spec| spec["compute"] = json!({ "instanceType": machine })).await;
}

/// The machines that run, by generation and type.
async fn machines(subject: &Subject) -> Vec<(String, String)> {
    let of = |found: Instance| {
        (found.tags.get(key::GENERATION).unwrap_or_default().to_owned(), found.instance_type)
    };
    let mut found: Vec<_> = subject.rig.instances().await.into_iter().map(of).collect();
    found.sort();
    found
}

fn machine(generation: &str, kind: &str) -> (String, String) {
    (generation.to_owned(), kind.to_owned())
}

async fn pinned(subject: &Subject) -> Option<String> {
    let set = subject.sets().get_opt(&subject.name).await.unwrap()?;
    set.spec?.template.spec?.node_selector?.get(names::LABEL_NODE).cloned()
}

async fn resource(subject: &Subject) -> QuestDB {
    subject.rig.as_admin().get(&subject.name).await.unwrap()
}

fn told(resource: &QuestDB, kind: &str) -> Option<(String, String, String)> {
    let found = resource.status.as_ref()?.conditions.iter().find(|found| found.type_ == kind)?;
    Some((found.status.clone(), found.reason.clone(), found.message.clone()))
}

/// Kubernetes has the disk on a Node until somebody takes this away.
async fn attachment(subject: &Subject, node: &str) -> (Api<VolumeAttachment>, String) {
    let api: Api<VolumeAttachment> = Api::all(subject.rig.admin.clone());
    let name = unique("attachment");
    let disk = names::persistent_volume(subject.volume().await.id.as_str());
    let object = json!({
        "metadata": { "name": name },
        "spec": { "attacher": "ebs.csi.aws.com", "nodeName": node, "source": { "persistentVolumeName": disk } },
    });
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    (api, name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_moves_and_its_old_machine_is_ended_when_everybody_says_that_the_disk_has_left() {
    let (mut subject, others, _operator) = begin("moves").await;
    let before = resource(&subject).await.status.unwrap();
    let (disk, old) = (subject.volume().await, before.node.unwrap().name.unwrap());
    let (attachments, held) = attachment(&subject, &old).await;
    // Nobody joins before it was read: once the database is pinned to the next machine it is told no more.
    drop(others);
    wish_for(&mut subject, OTHER).await;
    eventually(PATIENCE, "the move to be told beforehand", async || {
        let status = resource(&subject).await.status?;
        status.pending.iter().any(|found| found.means == ChangeMeans::Move).then_some(())
    })
    .await;
    let _others = Others::of(&subject.rig);
    let waits = eventually(PATIENCE, "QuestDB on the next machine, and the old one waited for", async || {
        let found = resource(&subject).await;
        let text = told(&found, condition::MOVING).filter(|(_, reason, _)| reason == "Leaving")?.2;
        (told(&found, condition::READY)?.0 == "True" && text.contains("to leave")).then_some(found)
    })
    .await;
    assert_eq!(
        machines(&subject).await,
        [machine("1", FIRST), machine("2", OTHER)],
        "an attachment holds it"
    );
    assert_eq!(waits.status.unwrap().phase, Some(Phase::Updating));

    // There may be two of one disk: the one of where it is now holds nothing.
    let (_, beside) = attachment(&subject, &pinned(&subject).await.unwrap()).await;
    attachments.delete(&held, &DeleteParams::default()).await.unwrap();
    let moved = subject.carried_out(Phase::Ready).await;
    assert_eq!(machines(&subject).await, [machine("2", OTHER)]);
    subject.exists_once(&moved).await;
    let now = subject.volume().await;
    assert_eq!((&now.id, now.tags.get(key::GENERATION)), (&disk.id, Some("2")));
    let machine = subject.rig.instances().await.remove(0);
    assert!(now.live_attachments().all(|found| found.instance == machine.id), "{now:?}");
    let status = moved.status.unwrap();
    let name = status.dns.unwrap();
    assert_eq!(name.address, machine.private_ip.map(|address| address.to_string()));
    assert_eq!(status.pending, []);
    let nodes: Api<Node> = Api::all(subject.rig.admin.clone());
    // Its kubelet may have made it once more at its end.
    eventually(PATIENCE, "the end of the Node of a machine that is gone", async || {
        nodes.get_opt(&old).await.unwrap().is_none().then_some(())
    })
    .await;
    attachments.delete(&beside, &DeleteParams::default()).await.unwrap();
    subject.purge_with_others().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_ec2_does_not_have_costs_nothing_and_is_tried_again_later() {
    let (mut subject, _others, mut operator) = begin("full").await;
    let pod = subject.pods().get(&names::pod(&subject.name)).await.unwrap().metadata.uid;
    let token = ClientToken::new(&subject.rig.cluster, &subject.database, Role::Instance, 2);
    let full = fault(&json!({
        "kind": "fail", "action": "RunInstances", "contains": token.as_str(), "code": "InsufficientInstanceCapacity",
        "status": 500,
    }))
    .await;
    let since = serial().await;
    wish_for(&mut subject, OTHER).await;
    let found = eventually(PATIENCE, "the refusal to be told", async || {
        let found = resource(&subject).await;
        told(&found, condition::MOVING).filter(|(_, reason, _)| reason == "Delayed").map(|_| found)
    })
    .await;
    let text = told(&found, condition::MOVING).unwrap().2;
    assert!(text.contains("tried again after 2") && text.contains("serves on"), "{text}");
    assert_eq!(told(&found, condition::READY).unwrap().0, "True");

    // What needs no other machine does not wait, and what cannot be had is not asked for at every pass.
    subject
        .wish(|spec| {
            spec["compute"] = json!({ "instanceType": FIRST });
            spec["restartNonce"] = json!("once");
        })
        .await;
    subject.carried_out(Phase::Ready).await;
    assert_ne!(subject.pods().get(&names::pod(&subject.name)).await.unwrap().metadata.uid, pod, "restarted");
    assert_eq!(machines(&subject).await, [machine("1", FIRST)], "back where it was");
    let asked = control("GET", &format!("/journal?since={since}&action=RunInstances"), &Value::Null).await;
    let runs = asked["calls"].as_array().unwrap().iter();
    let ours = runs.filter(|call| call.to_string().contains(token.as_str())).count();
    // The client of AWS itself tries a few times.
    assert!((1..=5).contains(&ours), "{ours}");

    control("DELETE", &format!("/faults/{full}"), &Value::Null).await;
    operator.kill().await.unwrap();
    let _next = subject.rig.start().await;
    wish_for(&mut subject, OTHER).await;
    let moved = subject.carried_out(Phase::Ready).await;
    subject.exists_once(&moved).await;
    assert_eq!(machines(&subject).await.remove(0).1, OTHER);
    subject.purge_with_others().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_moves_the_database_away() {
    let (mut subject, _others, _operator) = begin("drained").await;
    let nodes: Api<Node> = Api::all(subject.rig.admin.clone());
    let old = resource(&subject).await.status.unwrap().node.unwrap().name.unwrap();
    // The API server asks no budget about a pod that never ran.
    let running = json!({ "status": { "phase": "Running" } });
    let pod = names::pod(&subject.name);
    subject.pods().patch_status(&pod, &PatchParams::default(), &Patch::Strategic(&running)).await.unwrap();
    nodes.cordon(&old).await.unwrap();
    // What a drain does next, again and again: refused until the database has left, which may be so already.
    let refused = subject.pods().evict(&pod, &EvictParams::default()).await;
    let has_left = pinned(&subject).await.is_some_and(|node| node != old);
    let is_refused = matches!(&refused, Err(kube::Error::Api(status)) if status.code == 429);
    assert!(is_refused || has_left, "{refused:?}");
    eventually(PATIENCE, "the drained Node to be gone with its machine", async || {
        nodes.get_opt(&old).await.unwrap().is_none().then_some(())
    })
    .await;
    let moved = subject.carried_out(Phase::Ready).await;
    assert_eq!(machines(&subject).await, [machine("2", FIRST)]);
    assert!(pinned(&subject).await.unwrap().ends_with("-g2"));
    assert_eq!(told(&moved, condition::NODE_CORDONED).unwrap().0, "False");
    subject.exists_once(&moved).await;
    subject.purge_with_others().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wish_that_turns_back_before_the_pin_leaves_the_old_machine_and_after_it_goes_on() {
    let (mut subject, _others, _operator) = begin("back").await;
    let pod = subject.pods().get(&names::pod(&subject.name)).await.unwrap().metadata.uid;
    wish_for(&mut subject, OTHER).await;
    // It may serve there alone by the next look.
    eventually(PATIENCE, "the next machine", async || {
        machines(&subject).await.iter().any(|(_, kind)| kind == OTHER).then_some(())
    })
    .await;
    wish_for(&mut subject, FIRST).await;
    subject.carried_out(Phase::Ready).await;
    // EC2 may not have shown the machine yet when the wish was carried out without it.
    let left = eventually(PATIENCE, "one machine", async || {
        let left = machines(&subject).await;
        (left.len() == 1).then_some(left)
    })
    .await;
    assert_eq!(left[0].1, FIRST, "{left:?}");
    if left[0].0 == "1" {
        assert_eq!(subject.pods().get(&names::pod(&subject.name)).await.unwrap().metadata.uid, pod);
    }

    let before = pinned(&subject).await;
    wish_for(&mut subject, OTHER).await;
    eventually(PATIENCE, "the pin", async || (pinned(&subject).await != before).then_some(())).await;
    wish_for(&mut subject, FIRST).await;
    let back = subject.carried_out(Phase::Ready).await;
    let left = machines(&subject).await;
    assert!(left.len() == 1 && left[0].1 == FIRST, "{left:?}");
    subject.exists_once(&back).await;
    subject.purge_with_others().await;
}

/// The image of QuestDB that a pod is made with, and the pod.
async fn runs(subject: &Subject) -> (Option<String>, Option<String>) {
    let pod = subject.pod().await;
    (pod.spec.unwrap().containers.remove(0).image, pod.metadata.uid)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_is_told_of_other_machines_and_another_registry_restarts_nobody_for_it() {
    let (mut subject, _others, mut operator) = begin("told").await;
    let before = runs(&subject).await;
    operator.kill().await.unwrap();
    let lease = subject.rig.lease().await;
    let kubeconfig = subject.rig.rights(&lease).await;
    let more = [
        ("SLIPWAY_QUESTDB_IMAGE", MIRROR),
        ("SLIPWAY_IMAGE_PULL_SECRETS", "mirror-key"),
        ("SLIPWAY_INSTANCE_TYPES", "m7i.large,m5.xlarge:16384:4"),
        ("SLIPWAY_RESYNC", "1s"),
    ];
    let _operator = subject.rig.spawn((&lease, &kubeconfig), &[], &more);
    let image = format!("{MIRROR}:{}", domain::catalogue::DEFAULT_VERSION);
    eventually(PATIENCE, "the next pod to be of the other registry", async || {
        let set = subject.sets().get(&subject.name).await.unwrap();
        let mut spec = set.spec?.template.spec?;
        let asked = spec.containers.remove(0).image;
        let secrets = spec.image_pull_secrets.into_iter().flatten();
        let secrets: Vec<_> = secrets.map(|secret| secret.name).collect();
        let pending = resource(&subject).await.status?.pending;
        let is_told = pending.iter().any(|found| found.means == ChangeMeans::Restart);
        (asked.as_ref() == Some(&image) && secrets == ["mirror-key"] && is_told).then_some(())
    })
    .await;
    assert_eq!(runs(&subject).await, before, "it runs on");

    wish_for(&mut subject, "m5.xlarge").await;
    subject.carried_out(Phase::Ready).await;
    assert_eq!(machines(&subject).await, [machine("2", "m5.xlarge")]);
    assert_eq!(runs(&subject).await.0, Some(image));
    let pod = subject.pod().await.spec.unwrap();
    assert_eq!(pod.image_pull_secrets.unwrap().remove(0).name, "mirror-key");

    wish_for(&mut subject, OTHER).await;
    let text = eventually(PATIENCE, "a word on the machine", async || {
        let (status, _, text) = told(&resource(&subject).await, condition::CONFIG_ACCEPTED)?;
        (status == "False").then_some(text)
    })
    .await;
    let words = ["/spec/compute/instanceType", "m7i.large, m5.xlarge", "SLIPWAY_INSTANCE_TYPES"];
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    assert_eq!(machines(&subject).await, [machine("2", "m5.xlarge")]);
    subject.purge_with_others().await;
}
