//! Whether an identity may be acted upon that status does not hold yet. Whoever may write a resource in a namespace may name any
//! database in its instruction, in its annotation and in the labels of what lies beside it. So these say which database is
//! meant, and never that it is the resource's.
//!
//! *Invariant:* what decides is written by us alone or by who may write tags in AWS: status, `PersistentVolumes` and Nodes, which
//! lie in no namespace, and what is in EC2.
//!
//! *Invariant:* a database that runs on a machine of another cluster is nobody's here: who brings a copy of a resource into a second
//! cluster of the same name neither stops nor destroys what the first one serves.

use std::sync::Arc;

use cloud::{Attachment, Instance, InstanceId, Tags, Volume, key};
use k8s_openapi::api::core::v1::{Node, PersistentVolume};

use crate::Subject;
use crate::tagged::instance_of;

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
    let of_others = standing.of_others(subject).map(|id| not_allowed(id, subject));
    of_others.or_else(|| standing.elsewhere(subject).map(|held| runs_elsewhere(held, subject)))
}

/// The resource that something in EC2 is for: whom somebody who may write tags in AWS has named on it, else for whom we made it.
pub(crate) fn whose(tags: &Tags) -> Option<&str> {
    tags.get(key::FOR).or_else(|| tags.get(key::NAME))
}

/// Whether somebody who may write tags in AWS has named this resource on it.
pub fn is_for(subject: &Subject, tags: &Tags) -> bool {
    tags.get(key::FOR) == Some(&subject.display())
}

/// The other resource that somebody who may write tags in AWS has named on it.
pub fn offered_to<'a>(subject: &Subject, tags: &'a Tags) -> Option<&'a str> {
    tags.get(key::FOR).filter(|named| *named != subject.display())
}

pub(crate) fn not_allowed(id: &str, subject: &Subject) -> String {
    let allow = allow(id, subject);
    format!("{id} is not known to belong to this namespace: if it may be used, tag it: {allow}")
}

fn runs_elsewhere(held: &Attachment, subject: &Subject) -> String {
    let Attachment { volume, instance, .. } = held;
    let (cluster, allow) = (&subject.cluster, allow(volume.as_str(), subject));
    format!(
        "{volume} is on {instance}, which runs and is no Node of this cluster: another cluster of the name {cluster} may serve the \
         database from there, and no two may have one name; if none does, restart the machine, so that it joins, or stop it; if the disk \
         is to be taken all the same, tag it: {allow}"
    )
}

/// How somebody who may write tags in AWS names a resource on something.
fn allow(id: &str, subject: &Subject) -> String {
    let (key, named) = (key::FOR, subject.display());
    format!("aws ec2 create-tags --resources {id} --tags Key={key},Value={named}")
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

    /// How a disk of the database is on a machine of its own which runs and is no Node here, unless somebody has named this very resource
    /// on the disk. Before a pod of ours has a disk its machine is a Node.
    fn elsewhere(&self, subject: &Subject) -> Option<&'a Attachment> {
        let runs = |id: &InstanceId| {
            let machine = self.instances.iter().find(|machine| machine.id == *id);
            machine.is_some_and(|found| !found.state.is_ending() && !found.state.is_confirmed_down())
        };
        let disks =
            self.volumes.iter().filter(|disk| !disk.state.is_ending() && !is_for(subject, &disk.tags));
        let mut held = disks.flat_map(Volume::live_attachments);
        held.find(|held| runs(&held.instance) && !self.is_node(&held.instance))
    }

    /// Whether a machine is a Node of the database here, by what nobody can change.
    fn is_node(&self, machine: &InstanceId) -> bool {
        self.nodes.iter().any(|node| instance_of(node) == Some(machine.as_str()))
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
