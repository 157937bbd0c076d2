//! The proof that a database can do without one of its machines, before that is ended while the database serves on another.
//!
//! *Invariant:* what decides is asked now and not remembered: the StatefulSet does not pin the machine, EC2 does not have
//! the disk on it, and Kubernetes has no attachment of the disk on its Node. Any other answer counts as held.

use cloud::{InstanceId, Role, Select, TagFilter};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::Api;
use kube::api::ListParams;
use resources::names;

use super::Pass;
use crate::error::Error;

/// An error while anything holds the database to a machine. Without a `node` nothing is asked of the disk: it leaves a silent
/// machine only when that ends, and one that never joined has none.
pub(super) async fn prove(
    pass: &Pass<'_>,
    instance: &InstanceId,
    pin: &str,
    node: Option<&str>,
) -> Result<(), Error> {
    let (subject, context) = (&pass.validated.subject, pass.context);
    let sets: Api<StatefulSet> = Api::namespaced(context.client.clone(), &subject.namespace);
    let set = context.call("look at what pins the database", sets.get_opt(&subject.name)).await?;
    let template = set.and_then(|set| set.spec?.template.spec?.node_selector);
    if template.and_then(|selector| selector.get(names::LABEL_NODE).cloned()).as_deref() == Some(pin) {
        return Err(Error::Stale { what: format!("the StatefulSet pins {instance}") });
    }
    let Some(node) = node else { return Ok(()) };
    let filter = TagFilter::cluster(&subject.cluster).database(&subject.database).role(Role::Volume);
    let volumes = context.cloud.describe_volumes(&Select::Tags(filter)).await;
    let volumes = volumes.map_err(Error::aws("look whether the disk has left the machine"))?;
    let mut attached = volumes.iter().flat_map(cloud::Volume::live_attachments);
    if attached.any(|attachment| attachment.instance == *instance) {
        return Err(Error::Stale { what: format!("the disk is still on {instance}") });
    }
    let attachments: Api<VolumeAttachment> = Api::all(context.client.clone());
    let attachments = context.call("list attachments", attachments.list(&ListParams::default())).await?;
    let of_disk = |attachment: &VolumeAttachment| {
        let disk = attachment.spec.source.persistent_volume_name.as_deref().unwrap_or_default();
        volumes.iter().any(|volume| names::persistent_volume(volume.id.as_str()) == disk)
    };
    if attachments.items.iter().any(|one| one.spec.node_name == node && of_disk(one)) {
        return Err(Error::Stale { what: format!("Kubernetes still has the disk on Node {node}") });
    }
    Ok(())
}
