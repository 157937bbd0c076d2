//! Looking at the database that a snapshot is of: read live, because copying rests on it.

use cloud::{Role, Select, TagFilter, Volume};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use plan::snapshot::{Disk, Ground};
use plan::{Settings, Subject, pod_serves};
use resources::{Phase, QuestDB, QuestDBSnapshot, names};

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

/// Looks.
pub(super) async fn look(snapshots: &Snapshots, resource: &QuestDBSnapshot) -> Result<Look, Error> {
    let context = &snapshots.context;
    let namespace = resource.metadata.namespace.as_deref().unwrap_or_default();
    let name = resource.spec.database.as_str();
    let key = Key::new(Some(namespace), name);
    let Some(database) = context.caches.resources.get(&key) else {
        // One that is there all the same is not gone, and may be held by its checkpoint.
        if context.caches.resources.has(&key) {
            return Ok(Look::unclear(format!("QuestDB {name} could not be read")));
        }
        return Ok(Look { ground: Ground::Absent, door: None, blind: None });
    };
    let Some(subject) = believed(&database, &context.settings) else {
        return Ok(Look::unclear(format!("QuestDB {name} has no identity yet")));
    };
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    let pod = context.call("look at the pod", pods.get_opt(&names::pod(name))).await?;
    let owes = plan::snapshot::owes(resource);
    if let Some(number) = plan::snapshot::last_copy_of(resource).filter(|_| !owes) {
        return match pod {
            Some(_) => Ok(Look::unclear(format!("QuestDB {name} still has its pod"))),
            None => ended::look(snapshots, &database, number).await,
        };
    }
    match pod {
        Some(pod) => serving(snapshots, (&database, &subject), &pod, owes).await,
        None => stopped(snapshots, &database, &subject).await,
    }
}

/// Which database a resource stands for, once that is believed: whoever only names another's would get a copy of its disk.
pub(super) fn believed(database: &QuestDB, settings: &Settings) -> Option<Subject> {
    Subject::of(database, settings).filter(|_| plan::is_believed(database))
}

/// A database that `owes` a release is asked although its pod is not ready, or EC2 shows something odd: its answer is enough
/// to let it go.
async fn serving(
    snapshots: &Snapshots,
    (database, subject): (&QuestDB, &Subject),
    pod: &Pod,
    owes: bool,
) -> Result<Look, Error> {
    let name = &subject.name;
    if !subject.owns(pod.metadata.labels.as_ref()) {
        return Ok(Look::unclear(format!("the pod {name}-0 is not of this database")));
    }
    let answers = pod.metadata.deletion_timestamp.is_none() && (owes || pod_serves(pod));
    let Some(address) = address(pod).filter(|_| answers) else {
        return Ok(Look::unclear(format!("the pod of QuestDB {name} is not ready")));
    };
    let Some(door) = Door::of(&snapshots.context, subject, address).await? else {
        return Ok(Look::unclear(format!("Secret {} has no credentials for HTTP", names::credentials(name))));
    };
    // Without EC2 a database that is held can still be let go.
    let (disk, blind) = match disk(snapshots, database, subject).await {
        Ok(Ok((disk, _))) => (disk, None),
        Ok(Err(what)) if owes => (reported(database, subject), Some(Error::Stale { what })),
        Ok(Err(why)) => return Ok(Look::unclear(why)),
        Err(error) => (reported(database, subject), Some(error)),
    };
    Ok(match snapshots.context.databases.held_since(&door).await {
        Ok(held_since) => Look { ground: Ground::Serving { disk, held_since }, door: Some(door), blind },
        Err(error) => Look::unclear(runtime::telemetry::chain(&error)),
    })
}

/// Stopped is what a wish asked for and the report says was reached, and what the API server and EC2 say now.
async fn stopped(snapshots: &Snapshots, database: &QuestDB, subject: &Subject) -> Result<Look, Error> {
    let name = &subject.name;
    let phase = database.status.as_ref().and_then(|status| status.phase);
    if !observe::is_settled(database) || !matches!(phase, Some(Phase::Paused | Phase::Deleted)) {
        return Ok(Look::unclear(format!("QuestDB {name} has no pod and is not paused")));
    }
    let (disk, volume) = match disk(snapshots, database, subject).await? {
        Ok(found) => found,
        Err(why) => return Ok(Look::unclear(why)),
    };
    if !volume.is_detached() {
        return Ok(Look::unclear(format!("{} is {} and not free", volume.id, volume.state)));
    }
    let wish = format!("{}:{}", subject.uid, database.metadata.generation.unwrap_or_default());
    Ok(Look { ground: Ground::Stopped { disk, wish }, door: None, blind: None })
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
    found.retain(|volume| !volume.state.is_ending());
    let count = found.len();
    let Some(volume) = found.pop().filter(|_| count == 1) else {
        return Ok(Err(format!("QuestDB {} has {count} volumes", subject.name)));
    };
    let disk = Disk { volume: volume.id.clone(), ..reported(database, subject) };
    Ok(Ok((disk, volume)))
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
    }
}
