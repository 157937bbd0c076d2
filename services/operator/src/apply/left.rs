//! The proof that a database can do without one of its machines, before that is ended, and before a pod on it is forgotten. What
//! has to be so is for [`Left`] to say.
//!
//! *Invariant:* what decides is asked now and not remembered. Any other answer than one that proves it counts as held.

use cloud::{Role, Select, TagFilter, Volume};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::Api;
use kube::api::ListParams;
use plan::{Left, Proof};
use resources::names;

use super::Pass;
use crate::error::Error;

/// An error while anything holds the database to a machine.
pub(super) async fn prove(pass: &Pass<'_>, left: &Left) -> Result<(), Error> {
    let (subject, context) = (&pass.validated.subject, pass.context);
    let sets: Api<StatefulSet> = Api::namespaced(context.client.clone(), &subject.namespace);
    let set = context.call("look at what pins the database", sets.get_opt(&subject.name)).await?;
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &subject.namespace);
    let pod = context.call("look at the pod", pods.get_opt(&names::pod(&subject.name))).await?;
    let node = if left.asks_node() {
        let nodes: Api<Node> = Api::all(context.client.clone());
        context.call("look at the Node", nodes.get_opt(&left.node)).await?
    } else {
        None
    };
    let found = (pod.as_ref(), node.as_ref());
    left.check_objects(pass.validated, set.as_ref(), found, context.clock.now()).map_err(stale)?;
    match left.proof {
        Proof::All | Proof::Unjoined | Proof::Unready | Proof::Closed => detached(pass, left).await,
        Proof::Down => {
            down(pass, left).await?;
            spared(pass, left).await
        }
        // Its disk leaves it only when it ends.
        Proof::Silent | Proof::Unattended => spared(pass, left).await,
    }
}

fn stale(what: String) -> Error {
    Error::Stale { what }
}

async fn detached(pass: &Pass<'_>, left: &Left) -> Result<(), Error> {
    let volumes = volumes(pass, left).await?;
    left.check_disks(&volumes).map_err(stale)?;
    let context = pass.context;
    let attachments: Api<VolumeAttachment> = Api::all(context.client.clone());
    let attachments = context.call("list attachments", attachments.list(&ListParams::default())).await?;
    attachments.items.iter().try_for_each(|one| left.check_attachment(&volumes, one).map_err(stale))
}

/// Nobody asks to have the disk destroyed with the machine that still has it.
async fn spared(pass: &Pass<'_>, left: &Left) -> Result<(), Error> {
    left.check_spared(&volumes(pass, left).await?).map_err(stale)
}

/// The disks by their ids, which they keep whatever becomes of their tags; by these only where nothing is known of a disk.
async fn volumes(pass: &Pass<'_>, left: &Left) -> Result<Vec<Volume>, Error> {
    let subject = &pass.validated.subject;
    let select = if left.disks.is_empty() {
        Select::Tags(TagFilter::cluster(&subject.cluster).database(&subject.database).role(Role::Volume))
    } else {
        Select::Ids(left.disks.clone())
    };
    let found = pass.context.cloud.describe_volumes(&select).await;
    found.map_err(Error::aws("look whether the disk has left the machine"))
}

async fn down(pass: &Pass<'_>, left: &Left) -> Result<(), Error> {
    let found = pass.context.cloud.describe_instances(&Select::one(left.instance.clone())).await;
    let found = found.map_err(Error::aws("look whether the machine is down"))?;
    left.check_down(&found).map_err(stale)
}
