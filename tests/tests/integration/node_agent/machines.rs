//! Instances become nodes and leave again; attachments are made and undone.

use cloud::Select;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::CSINode;
use kube::Api;
use kube::api::DeleteParams;
use testkit::{eventually, unique};

use super::rig::{PATIENCE, Rig};

async fn until_node(rig: &Rig, name: &str) -> Node {
    let nodes: Api<Node> = Api::all(rig.client.clone());
    eventually(PATIENCE, "a node", async || nodes.get_opt(name).await.ok().flatten()).await
}

#[tokio::test]
async fn a_running_instance_becomes_a_node_and_a_terminated_one_leaves() {
    let rig = Rig::new().await;
    let _agent = rig.start("none");
    let name = unique("node");
    let instance = rig.launch(&name).await;
    let node = until_node(&rig, &name).await;
    let described = rig.aws.describe_instances(&Select::one(instance.clone())).await.unwrap().pop().unwrap();
    let spec = node.spec.unwrap();
    assert_eq!(spec.provider_id, Some(format!("aws:///{}/{instance}", described.zone)));
    assert!(spec.taints.unwrap().iter().any(|taint| taint.key == "questdb.io/dedicated"));
    let labels = node.metadata.labels.unwrap();
    assert_eq!(labels["topology.kubernetes.io/zone"], described.zone);
    assert_eq!(labels["node.kubernetes.io/instance-type"], "m5.large");
    assert_eq!(labels["questdb.io/database"], "db");
    assert!(!labels.contains_key("node-restriction.kubernetes.io/role"));
    let addresses = node.status.unwrap().addresses.unwrap();
    assert!(addresses.iter().any(|address| Some(address.address.parse().ok()) == Some(described.private_ip)));

    let csi_nodes: Api<CSINode> = Api::all(rig.client.clone());
    let leases: Api<Lease> = Api::namespaced(rig.client.clone(), "kube-node-lease");
    let lease = eventually(PATIENCE, "a lease", async || leases.get_opt(&name).await.ok().flatten()).await;
    assert!(lease.spec.unwrap().renew_time.is_some());
    let driver = csi_nodes.get(&name).await.unwrap().spec.drivers.remove(0);
    assert_eq!((driver.name.as_str(), driver.node_id.as_str()), ("ebs.csi.aws.com", instance.as_str()));

    rig.aws.terminate_instance(&instance).await.unwrap();
    let nodes: Api<Node> = Api::all(rig.client.clone());
    eventually(PATIENCE, "the node's end", async || nodes.get_opt(&name).await.ok()?.is_none().then_some(()))
        .await;
    rig.end().await;
}

#[tokio::test]
async fn an_attachment_is_made_and_undone_even_when_the_node_is_gone() {
    let rig = Rig::new().await;
    let _agent = rig.start("none");
    let name = unique("node");
    let instance = rig.launch(&name).await;
    until_node(&rig, &name).await;
    let volume = rig.volume().await;
    rig.bound_claim(&volume, "data").await;
    let attachment = rig.attachment(&volume, &name).await;
    rig.until_attached(&attachment).await;
    let attached = rig.aws.describe_volumes(&Select::one(volume.clone())).await.unwrap().pop().unwrap();
    assert_eq!(attached.attachments[0].instance, instance);
    let object = rig.attachments().get(&attachment).await.unwrap();
    let metadata = object.status.unwrap().attachment_metadata.unwrap();
    assert_eq!(metadata["devicePath"], attached.attachments[0].device);

    let nodes: Api<Node> = Api::all(rig.client.clone());
    nodes.delete(&name, &DeleteParams::default()).await.unwrap();
    rig.attachments().delete(&attachment, &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, "the attachment's end", async || {
        rig.attachments().get_opt(&attachment).await.ok()?.is_none().then_some(())
    })
    .await;
    let detached = rig.aws.describe_volumes(&Select::one(volume.clone())).await.unwrap().pop().unwrap();
    assert!(detached.is_detached(), "{detached:?}");
    rig.aws.terminate_instance(&instance).await.unwrap();
    rig.end().await;
}

#[tokio::test]
async fn a_second_attachment_of_a_volume_is_refused_in_its_status() {
    let rig = Rig::new().await;
    let _agent = rig.start("none");
    let (one, other) = (unique("node"), unique("node"));
    let instances = [rig.launch(&one).await, rig.launch(&other).await];
    until_node(&rig, &one).await;
    until_node(&rig, &other).await;
    let volume = rig.volume().await;
    rig.bound_claim(&volume, "data").await;
    let first = rig.attachment(&volume, &one).await;
    rig.until_attached(&first).await;
    let second = rig.attachment(&volume, &other).await;
    let message = eventually(PATIENCE, "an error", async || {
        let status = rig.attachments().get(&second).await.ok()?.status?;
        assert!(!status.attached);
        status.attach_error?.message
    })
    .await;
    assert!(message.contains(instances[0].as_str()), "{message}");
    // The first one gone, the second is made without anybody asking again.
    rig.attachments().delete(&first, &DeleteParams::default()).await.unwrap();
    rig.until_attached(&second).await;
    for instance in &instances {
        rig.aws.terminate_instance(instance).await.unwrap();
    }
    rig.end().await;
}
