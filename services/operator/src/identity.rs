//! Finding out which database a resource without an instruction stands for, before anything is done for it. What is found
//! or minted is written to the annotation, which copies take along, and then to status, which nobody replaces.
//!
//! *Invariant:* nothing of a database is changed, and nothing is told of it, for a resource whose status does not hold its identity,
//! unless [`doubt`] has nothing against it: everything else that names one may be written by who may write in the namespace. What this
//! process keeps back of a first status counts as if it were said: things are made by it already, which somebody has to look after.
//! *Invariant:* nor for one that was brought back with the status of another, which is there: of the two it is that one's for which the
//! disk was made.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use cloud::{Instance, Select, Volume};
use kube::api::ListParams;
use kube::runtime::reflector::ObjectRef;
use plan::{Holder, Identity, Kind, MadeFor, Named, Standing, Subject, Trace};
use resources::{QuestDB, names};

use crate::apply::kubernetes;
use crate::context::Context;
use crate::error::Error;
use crate::report::{self, KIND, Position, WRITTEN};
use crate::store::Key;
use crate::turn::Next;

/// How long a resource that nobody has held yet counts as new.
const NEW: Duration = Duration::from_mins(1);
/// How old the picture of EC2 may be in which a namesake's machine and disk are noticed.
const PICTURE: Duration = Duration::from_secs(45);
/// The same for whom a disk was made, which changes only by people.
const TAGS: Duration = Duration::from_mins(5);

/// Between two looks at what people have to make clear.
const UNCLEAR: Duration = Duration::from_secs(30);

/// Finds, mints or asks for the identity; the next pass knows it.
pub(crate) async fn settle(context: &Context, resource: &QuestDB) -> Result<Next, Error> {
    let traces = traces(context, resource).await?;
    let database = match plan::identify(resource, &traces) {
        Identity::Found(Trace { database, what }) => {
            let subject = Subject::naming(resource, &context.settings, &database);
            let subject =
                subject.ok_or_else(|| Error::Stale { what: "a resource without a name".to_owned() })?;
            if let Some(doubt) = doubt(context, resource, (&subject, &what)).await? {
                return refuse(context, resource, &doubt).await;
            }
            tracing::info!(db.id = database, "{what} knows which database this is");
            database
        }
        Identity::Mint => uuid::Uuid::now_v7().hyphenated().to_string(),
        Identity::Unneeded => {
            kubernetes::release(context, resource).await?;
            return Ok(Next::Change);
        }
        Identity::Unclear(text) => return ask(context, resource, &text).await,
    };
    let held = kubernetes::hold(context, resource, Some(&database)).await?;
    let position = Position::of(resource);
    runtime::failpoint::hit(WRITTEN, position).await;
    runtime::failpoint::hit(KIND, report::Kind(position, "Hold", "")).await;
    let version = held.resource_version.as_deref();
    report::write(context, resource, plan::identified(resource, &database), version).await?;
    Ok(Next::Change)
}

/// Why the identity of a resource must not be acted upon, which `what` names; nothing once it is believed, unless it came with the status
/// of another one. What EC2 shows may be older than the newest disk: that one's resource lives, or is gone for less than the age of a
/// picture. Nobody is turned away by what it shows of machines that may have ended since.
pub(crate) async fn doubt(
    context: &Context,
    resource: &QuestDB,
    (subject, what): (&Subject, &str),
) -> Result<Option<String>, Error> {
    let (caches, database) = (&context.caches, subject.database.as_str());
    if plan::is_believed(resource) {
        return Ok(original(context, subject).await?.map(|original| plan::copy_of(subject, &original)));
    }
    let uid = resource.metadata.uid.as_deref().unwrap_or_default();
    if context.memories.unsaid(uid).as_deref() == Some(database) {
        return Ok(None);
    }
    let now = Instant::now();
    let picture = context.view.taken_after(now.checked_sub(PICTURE).unwrap_or(now)).await;
    let picture = picture.map_err(Error::aws("look for whose the database is in EC2"))?;
    let mut holders = caches.namesakes(resource, database);
    holders.extend(unseen_holder(context, resource, database));
    let (persistent_volumes, nodes) = (caches.volumes_of(database), caches.nodes_of(database));
    let judge = |volumes: &[Volume], instances: &[Instance]| {
        let (persistent_volumes, nodes) = (persistent_volumes.as_slice(), nodes.as_slice());
        plan::doubt(
            subject,
            what,
            &Standing { holders: &holders, persistent_volumes, nodes, volumes, instances },
        )
    };
    if judge(picture.volumes(database), picture.instances(database)).is_none() {
        return Ok(None);
    }
    let seen = context.view.of(database, now).await;
    let seen = seen.map_err(Error::aws("look again for whose the database is in EC2"))?;
    Ok(judge(&seen.volumes, &seen.instances))
}

/// The resource that stands for a database as surely as one whose status holds it, and for which its disk was made. Nothing is asked
/// for one whose disk has its object, and no object is unpacked: of all that there are, these are nearly all.
async fn original(context: &Context, subject: &Subject) -> Result<Option<Named>, Error> {
    let (caches, database) = (&context.caches, subject.database.as_str());
    if caches.has_own_volume(subject) {
        return Ok(None);
    }
    let mut objects = caches.volumes_of(database);
    // A backup that is brought back may bring one beside it, under a name of its own, which has all labels of this one's and the other claim.
    objects.retain(|object| plan::is_named_by_us(object));
    let mut disks: Vec<_> = objects.iter().map(|object| MadeFor::by_object(subject, object)).collect();
    if disks.iter().all(|disk| *disk == MadeFor::Untold) {
        let picture = context.view.at_most(TAGS).await;
        let picture = picture.map_err(Error::aws("look for whom the disk was made in EC2"))?;
        let living = picture.volumes(database).iter().filter(|disk| !disk.state.is_ending());
        disks = living.map(|disk| MadeFor::by_tags(subject, &disk.tags)).collect();
    }
    let mut others = plan::made_for_others(disks).into_iter();
    Ok(others.find(|other| caches.is_believed(&Key::new(Some(&other.namespace), &other.name), database)))
}

/// What is done for a resource whose identity is in doubt: nothing. One that is being deleted is let go, because nothing was made
/// for it.
pub(crate) async fn refuse(context: &Context, resource: &QuestDB, doubt: &str) -> Result<Next, Error> {
    if resource.metadata.deletion_timestamp.is_some() {
        kubernetes::release(context, resource).await?;
        return Ok(Next::Change);
    }
    ask(context, resource, doubt).await
}

/// Tells people what they have to make clear.
async fn ask(context: &Context, resource: &QuestDB, text: &str) -> Result<Next, Error> {
    let status = plan::unidentified(resource, text, context.clock.now());
    report::write(context, resource, status, None).await?;
    Ok(Next::Soon(UNCLEAR))
}

/// Everything that names a database: the annotation alone where there is one, else whatever there is.
async fn traces(context: &Context, resource: &QuestDB) -> Result<Vec<Trace>, Error> {
    if let Some(database) = plan::annotated(resource) {
        let what = format!("the annotation {}", names::ADOPTED_ID);
        return Ok(vec![Trace { database: database.to_owned(), what }]);
    }
    let mut traces = in_kubernetes(context, resource).await?;
    traces.extend(in_ec2(context, resource).await?);
    Ok(traces)
}

/// Our own objects under the resource's names. Asked for live, and only of a resource that may have some: a new one has
/// nothing but what EC2 kept, and the credentials beside that, which know it although its name in EC2 was changed.
async fn in_kubernetes(context: &Context, resource: &QuestDB) -> Result<Vec<Trace>, Error> {
    if !plan::is_held(resource) && !context.caches.has_credentials(resource) && age(context, resource) < NEW {
        return Ok(Vec::new());
    }
    let name = resource.metadata.name.as_deref().unwrap_or_default();
    let named = [
        (Kind::PersistentVolumeClaim, names::claim(name)),
        (Kind::StatefulSet, name.to_owned()),
        (Kind::Secret, names::credentials(name)),
        (Kind::ConfigMap, names::config(name)),
    ];
    let mut traces = Vec::new();
    for (kind, name) in named {
        let api = kubernetes::dynamic(context, kind, resource.metadata.namespace.as_deref());
        let found = context.call("look for what knows the database", api.get_metadata_opt(&name)).await?;
        traces.extend(found.and_then(|found| plan::trace_of(resource, kind.as_str(), &found.metadata)));
    }
    let volumes = kubernetes::dynamic(context, Kind::PersistentVolume, None);
    let ours = ListParams::default().labels(&format!("{}={name}", names::LABEL_NAME));
    let found = context.call("look for disks that know the database", volumes.list_metadata(&ours)).await?;
    let kind = Kind::PersistentVolume.as_str();
    traces.extend(found.items.iter().filter_map(|found| plan::trace_of(resource, kind, &found.metadata)));
    Ok(traces)
}

/// What carries the resource's name in EC2: noticed in the shared picture, believed when EC2 says so again. A resource that
/// is new waits until EC2 is sure not to show what its namesake had before it.
async fn in_ec2(context: &Context, resource: &QuestDB) -> Result<Vec<Trace>, Error> {
    // Taken since the resource was made, lest it be older than the disk that its namesake left.
    let (now, seen) = (Instant::now(), age(context, resource).min(PICTURE));
    let picture = context.view.taken_after(now.checked_sub(seen).unwrap_or(now)).await;
    let picture = picture.map_err(Error::aws("look for what the resource owns in EC2"))?;
    let databases = picture.databases();
    let instances = databases.iter().flat_map(|database| picture.instances(database));
    let volumes = databases.iter().flat_map(|database| picture.volumes(database));
    let settings = &context.settings;
    let noticed = plan::traces_in_aws(resource, settings, instances, volumes);
    let Some(first) = noticed.first() else { return Ok(noticed) };
    if age(context, resource) < context.ec2_lag {
        let what = format!("EC2 shows {} under this name, and may be late", first.what);
        return Err(Error::Stale { what });
    }
    let mut traces = Vec::new();
    for database in noticed.iter().map(|trace| trace.database.as_str()).collect::<BTreeSet<_>>() {
        let call = "look again for what the resource owns in EC2";
        let instances =
            context.cloud.describe_instances(&Select::database(&settings.cluster, database)).await;
        let volumes = context.cloud.describe_volumes(&Select::database(&settings.cluster, database)).await;
        let (instances, volumes) = (instances.map_err(Error::aws(call))?, volumes.map_err(Error::aws(call))?);
        traces.extend(plan::traces_in_aws(resource, settings, instances.iter(), volumes.iter()));
    }
    Ok(traces)
}

fn age(context: &Context, resource: &QuestDB) -> Duration {
    let made = resource.metadata.creation_timestamp.as_ref();
    let age = made.map(|made| context.clock.now().duration_since(made.0));
    age.and_then(|age| Duration::try_from(age).ok()).unwrap_or_default()
}

/// Another resource of a database that is not seen, because its namespace is not looked after or not shown to us: it is known by its
/// disk and its Node, which lie in no namespace.
fn unseen_holder(context: &Context, resource: &QuestDB, database: &str) -> Option<Holder> {
    let own = ObjectRef::from_obj(resource);
    let mut owners = context.caches.owners_in_cluster(database).into_iter();
    let unseen = |namespace: &str| {
        !context.scope.covers(namespace) || context.watches.unseen(Some(namespace)).is_some()
    };
    let other = owners.find(|other| *other != own && other.namespace.as_deref().is_some_and(unseen))?;
    Some(Holder { name: Key::to(&other).to_string(), is_believed: true })
}
