//! The last look before a resource is let go: afterwards nobody looks for what belonged to its database.
//!
//! *Invariant:* what plans the end saw a shared picture and caches, which may be behind; this asks EC2 and the API server
//! themselves. Nor does Kubernetes' garbage collector know of what lies beside the resource: what of that is there still, because
//! nobody saw it, is deleted here.

use cloud::{Select, Volume, VolumeId};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Secret};
use kube::api::{ListParams, PartialObjectMeta};
use kube::{Api, ResourceExt as _};
use plan::{Children, Goal, Kind, Unseen};
use resources::names;

use super::{Pass, aws, kubernetes};
use crate::error::Error;

/// An error while anything is left. What cannot be looked for holds nothing up, and is told.
pub(super) async fn check_nothing_left(pass: &Pass<'_>) -> Result<(), Error> {
    let left = match in_ec2(pass).await? {
        Some(left) => Some(left),
        None => in_kubernetes(pass).await?,
    };
    if let Some(what) = left {
        return Err(Error::Stale { what: format!("{what} is still there") });
    }
    tell_unseen(pass).await;
    Ok(())
}

async fn tell_unseen(pass: &Pass<'_>) {
    let context = pass.context;
    let unseen = context.caches.children(&pass.validated.subject).unseen;
    let may_stay = plan::unseen_beside(pass.validated, &unseen);
    if may_stay.is_empty() {
        return;
    }
    let note =
        format!("nobody looks any more whether these are left, and deletes them: {}", may_stay.join("; "));
    tracing::warn!("{note}");
    context.events.wrong(pass.resource, "MayBeLeft", note).await;
}

async fn in_ec2(pass: &Pass<'_>) -> Result<Option<String>, Error> {
    let instances = aws::instances(pass).await?;
    if let Some(instance) = instances.iter().find(|instance| !instance.state.is_ending()) {
        return Ok(Some(instance.id.to_string()));
    }
    let (subject, cloud) = (&pass.validated.subject, &pass.context.cloud);
    let groups = cloud.describe_security_groups(&Select::database(&subject.cluster, &subject.database)).await;
    let groups = groups.map_err(Error::aws("look for security groups of the database"))?;
    if let Some(group) = groups.first() {
        return Ok(Some(group.id.to_string()));
    }
    if let Some(left) = without_tags(pass).await? {
        return Ok(Some(left));
    }
    if pass.validated.goal != Goal::Purge {
        return Ok(None);
    }
    let volumes = cloud.describe_volumes(&Select::database(&subject.cluster, &subject.database)).await;
    let volumes = volumes.map_err(Error::aws("look for volumes of the database"))?;
    Ok(volumes.iter().find(|volume| !volume.state.is_ending()).map(|volume| volume.id.to_string()))
}

/// What only its name or its id leads to: the firewall, and the disk. One that stays is to carry our tags, by which alone it is found;
/// one that goes may only have been left out of what EC2 shows by them.
async fn without_tags(pass: &Pass<'_>) -> Result<Option<String>, Error> {
    let (context, subject) = (pass.context, &pass.validated.subject);
    let group = plan::build::security_group(subject, &context.settings);
    let group = context.cloud.find_security_group(&group.vpc, &group.name).await;
    let group = group.map_err(Error::aws("look for the security group by its name"))?;
    if let Some(group) = group.filter(|group| plan::is_still_ours(subject, &group.tags)) {
        return Ok(Some(group.id.to_string()));
    }
    let status = pass.resource.status.as_ref().and_then(|status| status.volume.as_ref());
    let Some(id) = status.map(|volume| VolumeId::new(&volume.id)) else { return Ok(None) };
    let disk = context.lookup.volume(&id).await.map_err(Error::aws("look for the disk by its id"))?;
    let is_left = |disk: &Volume| plan::is_disk_left(subject, pass.validated.goal, disk);
    Ok(disk.filter(is_left).map(|disk| disk.id.to_string()))
}

async fn in_kubernetes(pass: &Pass<'_>) -> Result<Option<String>, Error> {
    let (subject, context) = (&pass.validated.subject, pass.context);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), &subject.namespace);
    let name = names::claim(&subject.name);
    let claim = context.call("look for the claim", claims.get_metadata_opt(&name)).await?;
    if claim.is_some_and(|claim| subject.owns(claim.metadata.labels.as_ref())) {
        return Ok(Some(format!("PersistentVolumeClaim {name}")));
    }
    let ours = ListParams::default().labels(&format!("{}={}", names::LABEL_DATABASE, subject.database));
    let volumes: Api<PersistentVolume> = Api::all(context.client.clone());
    let volumes = context.call("look for PersistentVolumes", volumes.list_metadata(&ours)).await?.items;
    let owned = |volume: &&PartialObjectMeta<PersistentVolume>| subject.owns(volume.metadata.labels.as_ref());
    if let Some(volume) = volumes.iter().find(owned) {
        return Ok(Some(format!("PersistentVolume {}", volume.name_any())));
    }
    let nodes: Api<Node> = Api::all(context.client.clone());
    let nodes = context.call("look for Nodes", nodes.list_metadata(&ours)).await?.items;
    if let Some(node) = nodes.first() {
        return Ok(Some(format!("Node {}", node.name_any())));
    }
    match beside(pass).await? {
        Some(left) => Ok(Some(left)),
        None => owned_secret(pass).await,
    }
}

/// What lies beside the resource; it is told to go.
async fn beside(pass: &Pass<'_>) -> Result<Option<String>, Error> {
    let (subject, context) = (&pass.validated.subject, pass.context);
    let seen = context.caches.children(subject);
    let mut left = None;
    for (kind, name) in
        plan::beside(pass.validated).into_iter().filter(|(kind, _)| is_asked_for(*kind, &seen))
    {
        let api = kubernetes::dynamic(context, kind, Some(&subject.namespace));
        let found =
            context.call("look for what lies beside the resource", api.get_metadata_opt(&name)).await?;
        let Some(found) = found.map(|found| found.metadata) else { continue };
        let Some(target) = plan::left_beside(subject, kind, &found) else { continue };
        if found.deletion_timestamp.is_none() {
            kubernetes::delete(pass, &target).await?;
        }
        left.get_or_insert_with(|| format!("{} {name}", kind.as_str()));
    }
    Ok(left)
}

/// Whether it is asked what there is of a kind. What we may not see of one that a cluster may lack holds nothing up; what only our
/// watch does not show now may be there all the same.
fn is_asked_for(kind: Kind, seen: &Children) -> bool {
    let may_be_there = |unseen: &Unseen| !matches!(unseen, Unseen::Refused(_));
    kind.definition().is_none()
        || seen.served.contains(&kind)
        || seen.unseen.get(&kind).is_some_and(may_be_there)
}

/// The Secret with the credentials of a disk that stays: it is taken from the resource first, or would not be known to be kept.
async fn owned_secret(pass: &Pass<'_>) -> Result<Option<String>, Error> {
    if pass.validated.goal == Goal::Purge {
        return Ok(None);
    }
    let (subject, context) = (&pass.validated.subject, pass.context);
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &subject.namespace);
    let name = names::credentials(&subject.name);
    let secret = context.call("look for the Secret", secrets.get_metadata_opt(&name)).await?;
    let owned = secret.is_some_and(|found| plan::is_owned(&found.metadata, &subject.uid));
    Ok(owned.then(|| format!("Secret {name}, which goes with the resource,")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_our_watch_does_not_show_is_asked_for() {
        let asked = |seen: &Children| {
            [Kind::Service, Kind::ServiceMonitor, Kind::PodMonitor, Kind::IngressRoute, Kind::IngressRouteTcp]
                .map(|kind| is_asked_for(kind, seen))
        };
        let mut seen = Children::default();
        assert_eq!(
            asked(&seen),
            [true, false, false, false, false],
            "the cluster lacks all that it may lack"
        );
        seen.served.insert(Kind::ServiceMonitor);
        seen.unseen.insert(Kind::PodMonitor, Unseen::Yet);
        seen.unseen.insert(Kind::IngressRoute, Unseen::Broken("its watch breaks".to_owned()));
        seen.unseen.insert(Kind::IngressRouteTcp, Unseen::Refused("a right is missing".to_owned()));
        assert_eq!(asked(&seen), [true, true, true, true, false]);
    }
}
