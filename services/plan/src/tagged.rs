//! Tags in AWS that somebody changed by hand. What is found by them would be lost without them, so each is also known by
//! something nobody can change: a machine by the token of its launch, a disk by what holds its id, a firewall by its name.

use cloud::{ClientToken, Instance, InstanceId, Owner, Role, Tags, Volume, VolumeId, key};
use k8s_openapi::api::core::v1::Node;
use resources::{QuestDB, StepState, names};

use crate::planner::generation_of;
use crate::upgrade::reported_version;
use crate::{Account, Children, Goal, Observed, Part, Subject, Validated, build};

/// Something with other tags than ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistagged {
    /// What it is to the database.
    pub role: Role,
    /// Its id in EC2.
    pub id: String,
    /// Tags that it lacks.
    pub missing: Tags,
}

/// What is known by its id or name, and is not among what has our tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Machines: the one that served last, and those that Nodes of ours are.
    pub instances: Vec<InstanceId>,
    /// Disk, be there another one with our tags: [`is_still_its_disk`] says whether what is found by the id counts.
    pub volume: Option<VolumeId>,
    /// Firewall, by its name in the VPC.
    pub group: Option<String>,
}

/// What to look for beside what has our tags.
pub fn lost(resource: &QuestDB, validated: &Validated, observed: &Observed) -> Lost {
    let status = resource.status.as_ref();
    let volume = disk_had(resource, &observed.children);
    let instance =
        status.and_then(|status| Some(InstanceId::new(status.node.as_ref()?.instance_id.as_ref()?)));
    let account = &observed.account;
    let nodes = observed.children.nodes.iter();
    let by_node = nodes.filter_map(|node| machine_of(&validated.subject, node));
    let mut instances: Vec<InstanceId> = instance.into_iter().chain(by_node).collect();
    instances.retain(|id| account.instances.iter().all(|found| found.id != *id));
    instances.sort();
    instances.dedup();
    Lost {
        instances,
        // EC2 may leave out for a while what has our tags, and show another that has them, too: a copy that somebody made of it.
        volume: volume.filter(|id| account.volumes.iter().all(|found| found.id != *id)),
        group: must_have_group(resource, validated.goal)
            .then(|| build::security_group_name(&validated.subject))
            .filter(|name| account.groups.iter().all(|found| found.name != *name)),
    }
}

/// Whether there must be a firewall, or may be one still: one that was never made is not looked for.
fn must_have_group(resource: &QuestDB, goal: Goal) -> bool {
    match goal {
        // It is made before the generation of a machine is written down, and stays for the next.
        Goal::Serve | Goal::Pause => {
            let annotations = resource.metadata.annotations.as_ref();
            annotations.is_some_and(|annotations| annotations.contains_key(names::GENERATION))
        }
        Goal::Retire | Goal::Purge => !is_group_removed(resource),
    }
}

/// Whether the last report says that this very wish has removed the firewall.
fn is_group_removed(resource: &QuestDB) -> bool {
    let Some(status) = &resource.status else { return false };
    let removed = status
        .steps
        .iter()
        .any(|step| step.name == Part::SecurityGroupRemoval.as_str() && step.state == StepState::Succeeded);
    removed && crate::is_judged(resource)
}

/// The machine that a Node of ours is: one with the label that nobody but us may give, by its provider id, which stays.
pub(crate) fn machine_of(subject: &Subject, node: &Node) -> Option<InstanceId> {
    let label = node.metadata.labels.as_ref()?.get(names::LABEL_NODE)?;
    if build::node_value(subject, names::generation_of_node(label)?) != *label {
        return None;
    }
    let id = instance_of(node)?;
    (!id.is_empty()).then(|| InstanceId::new(id))
}

/// The instance that a Node says it is, wherever that is: by its provider id, which nobody can change.
pub fn instance_of(node: &Node) -> Option<&str> {
    let (_, id) = node.spec.as_ref()?.provider_id.as_deref()?.rsplit_once('/')?;
    Some(id)
}

/// The disk that a database had, unless that was seen to end: by the last report or, where that was lost, by our `PersistentVolume`,
/// whose handle cannot be changed. Where a disk was put in the place of another, each has one of its own, and the former may have
/// been kept by somebody.
fn disk_had(resource: &QuestDB, children: &Children) -> Option<VolumeId> {
    if let Some(volume) = resource.status.as_ref().and_then(|status| status.volume.as_ref()) {
        return (volume.state != "deleted").then(|| VolumeId::new(&volume.id));
    }
    let [volume] = children.persistent_volumes.as_slice() else { return None };
    Some(VolumeId::new(&volume.spec.as_ref()?.csi.as_ref()?.volume_handle))
}

/// Whether something that is known by its id is still ours: it is unless its tags name another database, or another cluster
/// that it went to.
pub fn is_still_ours(subject: &Subject, tags: &Tags) -> bool {
    let database = tags.get(key::DATABASE).filter(|database| crate::identity::is_uuid(database));
    let cluster = tags.get(key::CLUSTER).filter(|cluster| !cluster.is_empty());
    // Somebody who may has offered it to another.
    crate::offered_to(subject, tags).is_none()
        && database.is_none_or(|database| database == subject.database)
        && cluster.is_none_or(|cluster| cluster == subject.cluster)
}

/// Whether a disk that was found by its id, beside what the account shows by our tags, is the database's. One that lost its tags is
/// only where no other one has them: people take them off a disk to be rid of it. One that has them was left out of the answer.
pub fn is_still_its_disk(subject: &Subject, account: &Account, tags: &Tags) -> bool {
    let is_alone = account.volumes.iter().all(|found| found.state.is_ending());
    if is_alone { is_still_ours(subject, tags) } else { carries_our_tags(subject, tags) }
}

/// Whether something has the tags by which all that is a database's is looked for.
pub fn carries_our_tags(subject: &Subject, tags: &Tags) -> bool {
    tags.get(key::CLUSTER).is_some_and(|cluster| cluster == subject.cluster)
        && tags.get(key::DATABASE).is_some_and(|database| database == subject.database)
}

/// Whether the disk that the last report names is still to be seen to before the resource goes: one that stays has to carry our tags, by
/// which alone it is found then, and one that is destroyed has to be gone, whether or not EC2 shows it by them.
pub fn is_disk_left(subject: &Subject, goal: Goal, disk: &Volume) -> bool {
    let lacks_tags = || !subject.owner(Role::Volume).tags().missing_from(&disk.tags).is_empty();
    !disk.state.is_ending() && is_still_ours(subject, &disk.tags) && (goal == Goal::Purge || lacks_tags())
}

/// Reads what is observed as if all tags were right, and notes which are not.
pub fn put_right(resource: &QuestDB, subject: &Subject, account: &mut Account) {
    let annotations = resource.metadata.annotations.as_ref();
    let written = annotations.and_then(|annotations| annotations.get(names::GENERATION)?.parse().ok());
    // Of one that is to serve the plan knows more than its report, and of one that goes nobody will ask.
    let stays = matches!(Goal::of(resource), Goal::Pause | Goal::Retire);
    let version = reported_version(resource).filter(|_| stays);
    let mut mistagged = Vec::new();
    let mut check = |tags: &mut Tags, id: &str, owner: Owner| {
        let role = owner.role;
        // Accounts have rules of their own for what the console shows: a name that is there is left.
        let named = tags.get(key::NAME).is_some_and(|name| !name.is_empty());
        let wanted = if named { owner.tags() } else { owner.tags().named(subject.display()) };
        let version = version.filter(|_| role == Role::Volume && tags.get(key::QUESTDB).is_none());
        let wanted = match version {
            Some(version) => wanted.with(key::QUESTDB, version),
            None => wanted,
        };
        let missing = wanted.missing_from(tags);
        if !missing.is_empty() {
            *tags = missing.iter().fold(tags.clone(), |tags, (key, value)| tags.with(key, value));
            mistagged.push(Mistagged { role, id: id.to_owned(), missing });
        }
    };
    for instance in account.instances.iter_mut().filter(|instance| !instance.state.is_ending()) {
        let generation = written.and_then(|written| launched_as(instance, subject, written));
        check(
            &mut instance.tags,
            instance.id.as_str(),
            Owner { generation, ..subject.owner(Role::Instance) },
        );
    }
    for volume in account.volumes.iter_mut().filter(|volume| !volume.state.is_ending()) {
        let owner = subject.owner(Role::Volume);
        // A disk that lost its tags lost with them which machine it served last: a return goes on from there.
        let lost = !owner.tags().missing_from(&volume.tags).is_empty();
        let generation = written.filter(|_| lost && volume.tags.get(key::GENERATION).is_none());
        check(&mut volume.tags, volume.id.as_str(), Owner { generation, ..owner });
    }
    for group in &mut account.groups {
        check(&mut group.tags, group.id.as_str(), subject.owner(Role::SecurityGroup));
    }
    account.mistagged = mistagged;
}

/// How many generations before the one that is written down may still have a machine.
const RECENT: u64 = 8;

/// The generation that a machine was launched under, whatever its tag says: one of the last.
fn launched_as(instance: &Instance, subject: &Subject, written: u64) -> Option<u64> {
    let recent = (written.saturating_sub(RECENT)..=written).rev();
    recent
        .into_iter()
        .find(|generation| is_of_launch(instance, (&subject.cluster, &subject.database), *generation))
}

/// Whether a machine is the one that was launched under a generation, whatever its tag says.
fn is_of_launch(instance: &Instance, (cluster, database): (&str, &str), generation: u64) -> bool {
    let token = ClientToken::new(cluster, database, Role::Instance, generation);
    instance.client_token.as_deref() == Some(token.as_str())
}

/// Whether a machine is the one that was launched for the database and under the generation that its tags name.
pub(crate) fn is_original(instance: &Instance) -> bool {
    let named = |key: &str| instance.tags.get(key).unwrap_or_default();
    let is_of = |generation| is_of_launch(instance, (named(key::CLUSTER), named(key::DATABASE)), generation);
    generation_of(instance).is_some_and(is_of)
}

/// Whether a machine was launched with a token that is not ours: who copies one copies its tags. Of one that shows no token nobody
/// knows.
pub(crate) fn is_of_others(instance: &Instance) -> bool {
    instance.client_token.is_some() && !is_original(instance)
}
