//! Whether an identity may be acted upon that status does not hold yet. Whoever may write a resource in a namespace may name any
//! database in its instruction, in its annotation and in the labels of what lies beside it. So these say which database is
//! meant, and never that it is the resource's.
//!
//! *Invariant:* what decides is written by us alone or by who may write tags in AWS: status, `PersistentVolumes` and Nodes, which
//! lie in no namespace, and what is in EC2.

use std::sync::Arc;

use cloud::{Instance, Tags, Volume, key};
use k8s_openapi::api::core::v1::{Node, PersistentVolume};

use crate::Subject;

/// Another resource that stands for the same database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its namespace and name, for people.
    pub name: String,
    /// Whether its status holds the identity.
    pub is_believed: bool,
}

/// What there is of a database that a resource names.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standing<'a> {
    /// Other resources that name it.
    pub holders: &'a [Holder],
    /// Those with its label.
    pub persistent_volumes: &'a [Arc<PersistentVolume>],
    /// Those with its label.
    pub nodes: &'a [Arc<Node>],
    /// Its volumes in EC2, by their tags.
    pub volumes: &'a [Volume],
    /// Its machines in EC2, by their tags.
    pub instances: &'a [Instance],
}

/// Why an identity that is not believed yet must not be acted upon; `what` names it. Nothing, where nobody else has a claim.
pub fn doubt(subject: &Subject, what: &str, standing: &Standing<'_>) -> Option<String> {
    // Who only says so does not keep the one out for whom it was made.
    let counts = |other: &&Holder| other.is_believed || !standing.is_made_for(subject);
    let others = standing.holders.iter().filter(counts);
    if let Some(Holder { name, .. }) = others.max_by_key(|other| other.is_believed) {
        let database = &subject.database;
        return Some(format!("{name} stands for database {database} already, which {what} names too"));
    }
    standing.of_others(subject).map(|id| not_allowed(id, subject))
}

/// The resource that something in EC2 is for: whom somebody who may write tags in AWS has named on it, else for whom we made it.
pub(crate) fn whose(tags: &Tags) -> Option<&str> {
    tags.get(key::FOR).or_else(|| tags.get(key::NAME))
}

/// Whether somebody who may write tags in AWS has named this resource on it.
pub(crate) fn is_for(subject: &Subject, tags: &Tags) -> bool {
    tags.get(key::FOR) == Some(&subject.display())
}

/// The other resource that somebody who may write tags in AWS has named on it.
pub fn offered_to<'a>(subject: &Subject, tags: &'a Tags) -> Option<&'a str> {
    tags.get(key::FOR).filter(|named| *named != subject.display())
}

pub(crate) fn not_allowed(id: &str, subject: &Subject) -> String {
    let (key, named) = (key::FOR, subject.display());
    format!(
        "{id} is not known to belong to this namespace: if it may be used, tag it: aws ec2 create-tags --resources {id} \
         --tags Key={key},Value={named}"
    )
}

impl<'a> Standing<'a> {
    /// Whether something of the database that nobody can forge names this very resource.
    fn is_made_for(&self, subject: &Subject) -> bool {
        let display = subject.display();
        let tags = || self.volumes().chain(self.instances()).map(|(_, tags)| tags);
        let offered = tags().any(|tags| tags.get(key::FOR).is_some_and(|named| named != display));
        let labels = self.persistent_volumes.iter().map(|volume| volume.metadata.labels.as_ref());
        let mut labels = labels.chain(self.nodes.iter().map(|node| node.metadata.labels.as_ref()));
        let named = |tags: &Tags| whose(tags) == Some(display.as_str());
        !offered && (labels.any(|labels| subject.owns(labels)) || tags().any(named))
    }

    /// Something in EC2 that is not known to be of the resource's namespace.
    fn of_others(&self, subject: &Subject) -> Option<&'a str> {
        let disk = self.own_disk(subject);
        let unknown = |tags: &Tags| !is_of_namespace(subject, tags) && !is_for(subject, tags);
        let volume = self.volumes().find(|(id, tags)| disk != Some(*id) && unknown(tags));
        // A machine is for the disk that it serves.
        let mut instances = self.instances().filter(|_| disk.is_none());
        volume.or_else(|| instances.find(|(_, tags)| unknown(tags))).map(|(id, _)| id)
    }

    /// The living disk that a `PersistentVolume` says is this very resource's.
    fn own_disk(&self, subject: &Subject) -> Option<&'a str> {
        let ours =
            self.persistent_volumes.iter().filter(|found| subject.owns(found.metadata.labels.as_ref()));
        let handle = |found: &'a Arc<PersistentVolume>| {
            Some(found.spec.as_ref()?.csi.as_ref()?.volume_handle.as_str())
        };
        ours.filter_map(handle).find(|id| self.volumes().any(|(living, _)| living == *id))
    }

    /// Volumes that are not on their way out, with their tags.
    fn volumes(&self) -> impl Iterator<Item = (&'a str, &'a Tags)> + use<'a> {
        let living = self.volumes.iter().filter(|volume| !volume.state.is_ending());
        living.map(|volume| (volume.id.as_str(), &volume.tags))
    }

    /// The same of machines.
    fn instances(&self) -> impl Iterator<Item = (&'a str, &'a Tags)> + use<'a> {
        let living = self.instances.iter().filter(|instance| !instance.state.is_ending());
        living.map(|instance| (instance.id.as_str(), &instance.tags))
    }
}

/// Whether it was made for a resource of this namespace in this cluster, as what the console shows of it tells, and was given to
/// nobody elsewhere since.
fn is_of_namespace(subject: &Subject, tags: &Tags) -> bool {
    let whole = format!("{}/{}/", subject.cluster, subject.namespace);
    let is_within = |key| {
        let name = tags.get(key)?.strip_prefix(&whole);
        Some(name.is_some_and(|name| !name.is_empty() && !name.contains('/')))
    };
    is_within(key::NAME) == Some(true) && is_within(key::FOR) != Some(false)
}

#[cfg(test)]
mod tests;
