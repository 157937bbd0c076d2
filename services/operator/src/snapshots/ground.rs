//! Looking at the database that a snapshot is of: read live, because copying rests on it.
//!
//! *Invariant:* the disk that is copied of a database which answers is the one that its pod has. Tags alone may name another: somebody
//! has put it in the place of that one, and the database goes on with it only once it is started again. Nor is one of a database that
//! is stopped copied while another has the tags: the one that the report names is asked for by its id where EC2 leaves it out.

use std::net::IpAddr;
use std::sync::Arc;

use cloud::{InstanceId, Role, Select, TagFilter, Volume, VolumeId};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use plan::snapshot::{Disk, Ground};
use plan::{Settings, Subject, pod_serves};
use resources::{Phase, QuestDB, QuestDBSnapshot, names};

use super::copies::hear;
use super::{Snapshots, ended};
use crate::database::{Door, address};
use crate::error::Error;
use crate::observe;
use crate::store::Key;

/// What was seen, and how to enter QuestDB where it answers.
pub(super) struct Look {
    pub(super) ground: Ground,
    pub(super) door: Option<Door>,
    /// EC2 did not tell of the disk: what it is comes from the report, and nothing new may rest on it.
    pub(super) blind: Option<Error>,
}

impl Look {
    pub(super) fn unclear(what: impl Into<String>) -> Self {
        Self { ground: Ground::Unclear(what.into()), door: None, blind: None }
    }
}

/// Looks; whoever `owes` a release looks only whether the database is held.
pub(super) async fn look(
    snapshots: &Snapshots,
    resource: &QuestDBSnapshot,
    owes: bool,
) -> Result<Look, Error> {
    let context = &snapshots.context;
    let namespace = resource.metadata.namespace.as_deref().unwrap_or_default();
    let name = resource.spec.database.as_str();
    if name.is_empty() {
        // Of one that cannot be read in whole. That a database is not named does not say that it is gone.
        return Ok(Look::unclear("it does not say of which QuestDB it is"));
    }
    let key = Key::new(Some(namespace), name);
    let Some(database) = context.caches.resources.get(&key) else {
        let ground = unread(name, context.caches.resources.has(&key));
        return Ok(Look { ground, door: None, blind: None });
    };
    let overdue = snapshots.is_overdue(resource);
    let misread = plan::misread(&database).map(|what| format!("of QuestDB {name}: {what}"));
    if let Some(what) = misread.as_ref().filter(|_| !owes) {
        return Ok(Look::unclear(what));
    }
    let Some(subject) = believed(&database, &context.settings) else {
        return Ok(Look::unclear(format!("QuestDB {name} has no identity yet")));
    };
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    let pod = context.call("look at the pod", pods.get_opt(&names::pod(name))).await?;
    match (way(plan::snapshot::last_copy_of(resource), owes, pod.as_ref()), misread) {
        // The answer of its process is enough to let it go, and nothing new may rest on what cannot be read in whole.
        (Way::Serving(pod), misread) => {
            let look = serving(snapshots, (&database, &subject), pod, (owes, overdue)).await?;
            let blind = look.blind.or_else(|| misread.map(|what| Error::Definition { what }));
            Ok(Look { blind, ..look })
        }
        (_, Some(what)) => Ok(Look::unclear(what)),
        (Way::Shut, None) => Ok(Look::unclear(format!("QuestDB {name} still has its pod"))),
        (Way::Ended(number), None) => ended::look(snapshots, &database, number).await,
        (Way::Stopped, None) => stopped(snapshots, (&database, &subject), (owes, overdue)).await,
    }
}

/// A database that the cache does not give. One that is there all the same is not gone, and may be held by its checkpoint.
pub(super) fn unread(name: &str, is_there: bool) -> Ground {
    if is_there { Ground::Unclear(format!("QuestDB {name} could not be read")) } else { Ground::Absent }
}

/// How a database is looked at.
#[derive(Debug, PartialEq)]
pub(super) enum Way<'a> {
    /// As one that is being destroyed, for the last copy of this number.
    Ended(u64),
    /// The same, and it still has its pod.
    Shut,
    /// As one that answers.
    Serving(&'a Pod),
    /// As one that was stopped.
    Stopped,
}

/// A last copy that owes a release once asked QuestDB for a checkpoint, so QuestDB is asked again.
pub(super) fn way(last_copy: Option<u64>, owes: bool, pod: Option<&Pod>) -> Way<'_> {
    match (last_copy.filter(|_| !owes), pod) {
        (Some(_), Some(_)) => Way::Shut,
        (Some(number), None) => Way::Ended(number),
        (None, Some(pod)) => Way::Serving(pod),
        (None, None) => Way::Stopped,
    }
}

/// Which database a resource stands for, once that is believed: whoever only names another's would get a copy of its disk.
pub(super) fn believed(database: &QuestDB, settings: &Settings) -> Option<Subject> {
    Subject::of(database, settings).filter(|_| plan::is_believed(database))
}

/// A database that `owes` a release is asked although its pod is not ready, or EC2 shows something odd: its answer is enough
/// to let it go. EC2 is not waited for where that is `overdue`.
async fn serving(
    snapshots: &Snapshots,
    (database, subject): (&QuestDB, &Subject),
    pod: &Pod,
    (owes, overdue): (bool, bool),
) -> Result<Look, Error> {
    let name = &subject.name;
    let address = match asked_at(subject, pod, owes) {
        Ok(address) => address,
        Err(why) => return Ok(Look::unclear(why)),
    };
    let Some(door) = Door::of(&snapshots.context, subject, address).await? else {
        return Ok(Look::unclear(format!("Secret {} has no credentials for HTTP", names::credentials(name))));
    };
    // Without EC2 a database that is held can still be let go.
    let found = hear(overdue, disk(snapshots, database, subject)).await;
    let machine = machine_of(pod, &snapshots.context.caches.nodes_of(&subject.database));
    let is_it = |(disk, volume): (Disk, Volume)| match is_apart(&volume, machine.as_ref()) {
        Some(why) => Err(why),
        None => Ok((disk, volume)),
    };
    let found = found.map(|found| found.and_then(is_it));
    let (disk, blind) = match known(found, owes, || reported(database, subject)) {
        Ok(known) => known,
        Err(why) => return Ok(Look::unclear(why)),
    };
    Ok(match snapshots.context.databases.held(&door).await {
        Ok(held) => Look { ground: Ground::Serving { disk, held }, door: Some(door), blind },
        Err(error) => Look::unclear(runtime::telemetry::chain(&error)),
    })
}

/// Where QuestDB is asked, or why it is not.
pub(super) fn asked_at(subject: &Subject, pod: &Pod, owes: bool) -> Result<IpAddr, String> {
    let name = &subject.name;
    if !subject.owns(pod.metadata.labels.as_ref()) {
        return Err(format!("the pod {name}-0 is not of this database"));
    }
    let answers = pod.metadata.deletion_timestamp.is_none() && (owes || pod_serves(pod));
    address(pod).filter(|_| answers).ok_or_else(|| format!("the pod of QuestDB {name} is not ready"))
}

/// The disk of a database that answers, and why it is only what the report has, or why nothing is known.
pub(super) fn known(
    found: Result<Result<(Disk, Volume), String>, Error>,
    owes: bool,
    reported: impl FnOnce() -> Disk,
) -> Result<(Disk, Option<Error>), String> {
    match found {
        Ok(Ok((disk, _))) => Ok((disk, None)),
        Ok(Err(what)) if owes => Ok((reported(), Some(Error::Stale { what }))),
        Ok(Err(why)) => Err(why),
        Err(error) => Ok((reported(), Some(error))),
    }
}

/// The machine on which a pod is, where its Node tells.
pub(super) fn machine_of(pod: &Pod, nodes: &[Arc<Node>]) -> Option<InstanceId> {
    let on = pod.spec.as_ref()?.node_name.as_ref()?;
    let node = nodes.iter().find(|node| node.metadata.name.as_ref() == Some(on))?;
    plan::instance_of(node).map(InstanceId::new)
}

/// Why a disk is not the one that a pod on this machine has; on any machine, where it is not known on which the pod is.
pub(super) fn is_apart(volume: &Volume, machine: Option<&InstanceId>) -> Option<String> {
    let is_there = |on: &InstanceId| machine.is_none_or(|machine| machine == on);
    let is_apart = !volume.live_attachments().any(|found| is_there(&found.instance));
    is_apart.then(|| {
        format!(
            "{} is the disk by its tags, and EC2 does not have it on the machine of the pod, which goes on with another one or is about \
             to get it",
            volume.id
        )
    })
}

/// Stopped is what a wish asked for and the report says was reached, and what the API server and EC2 say now. EC2 is not waited for where
/// a release that is owed is `overdue`.
async fn stopped(
    snapshots: &Snapshots,
    (database, subject): (&QuestDB, &Subject),
    (owes, overdue): (bool, bool),
) -> Result<Look, Error> {
    if !is_stopped(database) {
        return Ok(Look::unclear(format!("QuestDB {} has no pod and is not paused", subject.name)));
    }
    let found = hear(overdue, disk(snapshots, database, subject)).await;
    stopped_with(found, (database, subject), owes)
}

/// The same, by what EC2 tells of the disk. Where a release is owed that no process is left is enough, whatever became of the disk: it
/// may have been destroyed, and its resource be there for long.
pub(super) fn stopped_with(
    found: Result<Result<(Disk, Volume), String>, Error>,
    (database, subject): (&QuestDB, &Subject),
    owes: bool,
) -> Result<Look, Error> {
    let free = |(disk, volume): (Disk, Volume)| match is_held(&volume) {
        Some(why) => Err(why),
        None => Ok((disk, volume)),
    };
    let found = found.map(|found| found.and_then(free));
    let found = if owes { found } else { Ok(found?) };
    let (disk, blind) = match known(found, owes, || reported(database, subject)) {
        Ok(known) => known,
        Err(why) => return Ok(Look::unclear(why)),
    };
    let wish = format!("{}:{}", subject.uid, database.metadata.generation.unwrap_or_default());
    Ok(Look { ground: Ground::Stopped { disk, wish }, door: None, blind })
}

/// Whether the report says so of the very wish that there is.
pub(super) fn is_stopped(database: &QuestDB) -> bool {
    let phase = database.status.as_ref().and_then(|status| status.phase);
    observe::is_settled(database) && matches!(phase, Some(Phase::Paused | Phase::Deleted))
}

/// Why a disk is not free.
pub(super) fn is_held(volume: &Volume) -> Option<String> {
    (!volume.is_detached()).then(|| format!("{} is {} and not free", volume.id, volume.state))
}

/// The database's one disk, or why there is none to copy.
pub(super) async fn disk(
    snapshots: &Snapshots,
    database: &QuestDB,
    subject: &Subject,
) -> Result<Result<(Disk, Volume), String>, Error> {
    let filter = TagFilter::cluster(&subject.cluster).database(&subject.database).role(Role::Volume);
    let found = snapshots.context.cloud.describe_volumes(&Select::Tags(filter)).await;
    let mut found = found.map_err(Error::aws("look for the volume"))?;
    if let Some(id) = left_out(&found, database) {
        let disk = snapshots.context.lookup.volume(&id).await;
        let disk = disk.map_err(Error::aws("look for the disk by its id"))?;
        found.extend(disk.filter(|disk| plan::carries_our_tags(subject, &disk.tags)));
    }
    Ok(only(found, subject).map(|volume| (as_found(&volume, database, subject), volume)))
}

/// What is to be copied, by the disk itself.
pub(super) fn as_found(volume: &Volume, database: &QuestDB, subject: &Subject) -> Disk {
    Disk {
        volume: volume.id.clone(),
        version: version_on(volume, database),
        unrestored: plan::snapshot::unrestored(database, volume),
        ..reported(database, subject)
    }
}

/// The disk that the report names, where it is not in an answer by tags: EC2 may leave it out for a while, and a copy of it with its
/// tags would be taken for it.
pub(super) fn left_out(found: &[Volume], database: &QuestDB) -> Option<VolumeId> {
    let reported = plan::disk_reported(database)?;
    found.iter().all(|volume| volume.id.as_str() != reported).then(|| VolumeId::new(reported))
}

/// The version whose data is on a disk. One that was stopped before it served is known by the disk alone.
pub(super) fn version_on(volume: &Volume, database: &QuestDB) -> String {
    let reported = database.status.as_ref().and_then(|status| status.version.as_deref());
    plan::version_on(volume, reported).unwrap_or(&database.spec.version).to_owned()
}

/// The one of these that is no disk of before.
pub(super) fn only(mut found: Vec<Volume>, subject: &Subject) -> Result<Volume, String> {
    found.retain(|volume| !volume.state.is_ending());
    let count = found.len();
    let one = found.pop().filter(|_| count == 1);
    one.ok_or_else(|| format!("QuestDB {} has {count} volumes", subject.name))
}

/// The disk as the database's own report has it.
fn reported(database: &QuestDB, subject: &Subject) -> Disk {
    let status = database.status.as_ref();
    let volume = status.and_then(|status| Some(status.volume.as_ref()?.id.clone()));
    let version = status.and_then(|status| status.version.clone());
    Disk {
        volume: volume.unwrap_or_default().into(),
        cluster: subject.cluster.clone(),
        database: subject.database.clone(),
        version: version.unwrap_or_else(|| database.spec.version.clone()),
        unrestored: None,
    }
}
