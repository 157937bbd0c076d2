//! The proof that a database can do without one of its machines, before that is ended while the database serves on another.
//!
//! *Invariant:* what decides is asked now and not remembered: the StatefulSet does not pin the machine, EC2 does not have
//! the disk on it, and Kubernetes has no attachment of the disk on its Node. Any other answer counts as held, and a disk
//! that EC2 does not find is no proof. Of a machine that is ended because its Node is silent, that is asked again instead.

use cloud::{Role, Select, TagFilter, Volume};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::Api;
use kube::api::ListParams;
use plan::Left;
use resources::names;

use super::Pass;
use crate::error::Error;

/// An error while anything holds the database to a machine.
pub(super) async fn prove(pass: &Pass<'_>, left: &Left) -> Result<(), Error> {
    let (subject, context) = (&pass.validated.subject, pass.context);
    let sets: Api<StatefulSet> = Api::namespaced(context.client.clone(), &subject.namespace);
    let set = context.call("look at what pins the database", sets.get_opt(&subject.name)).await?;
    let template = set.and_then(|set| set.spec?.template.spec?.node_selector);
    if template.and_then(|selector| selector.get(names::LABEL_NODE).cloned()).as_ref() == Some(&left.pin) {
        return Err(Error::Stale { what: format!("the StatefulSet pins {}", left.instance) });
    }
    if left.silent { abandoned(pass, left).await } else { detached(pass, left).await }
}

/// Its disk leaves a silent machine only when that ends.
async fn abandoned(pass: &Pass<'_>, left: &Left) -> Result<(), Error> {
    let (subject, context) = (&pass.validated.subject, pass.context);
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &subject.namespace);
    let pod = context.call("look at the pod", pods.get_opt(&names::pod(&subject.name))).await?;
    let nodes: Api<Node> = Api::all(context.client.clone());
    let node = context.call("look at the Node", nodes.get_opt(&left.node)).await?;
    match pod.zip(node) {
        Some((pod, node)) if plan::is_abandoned(&pod, &node, context.clock.now()) => Ok(()),
        _ => Err(Error::Stale { what: format!("Node {} is not silent any more", left.node) }),
    }
}

async fn detached(pass: &Pass<'_>, left: &Left) -> Result<(), Error> {
    let volumes = volumes(pass, left).await?;
    let mut attached = volumes.iter().flat_map(Volume::live_attachments);
    if attached.any(|attachment| attachment.instance == left.instance) {
        return Err(Error::Stale { what: format!("the disk is still on {}", left.instance) });
    }
    let context = pass.context;
    let attachments: Api<VolumeAttachment> = Api::all(context.client.clone());
    let attachments = context.call("list attachments", attachments.list(&ListParams::default())).await?;
    let of_disk = |attachment: &VolumeAttachment| {
        let disk = attachment.spec.source.persistent_volume_name.as_deref().unwrap_or_default();
        volumes.iter().any(|volume| names::persistent_volume(volume.id.as_str()) == disk)
    };
    if attachments.items.iter().any(|one| one.spec.node_name == left.node && of_disk(one)) {
        return Err(Error::Stale { what: format!("Kubernetes still has the disk on Node {}", left.node) });
    }
    Ok(())
}

/// The disk by its id, which it keeps whatever becomes of its tags; by these only where nothing is known of a disk.
async fn volumes(pass: &Pass<'_>, left: &Left) -> Result<Vec<Volume>, Error> {
    let subject = &pass.validated.subject;
    let select = match &left.disk {
        Some(disk) => Select::one(disk.clone()),
        None => {
            Select::Tags(TagFilter::cluster(&subject.cluster).database(&subject.database).role(Role::Volume))
        }
    };
    let found = pass.context.cloud.describe_volumes(&select).await;
    let found = found.map_err(Error::aws("look whether the disk has left the machine"))?;
    match &left.disk {
        Some(disk) if found.is_empty() => {
            Err(Error::Stale { what: format!("{disk} is not found, so that it may be anywhere") })
        }
        _ => Ok(found),
    }
}
