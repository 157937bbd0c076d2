//! The end of a disk. Nothing here is decided from a cache or a shared picture.
//!
//! *Invariant:* a disk is destroyed only when EC2 and Kubernetes, both asked now, say that nothing holds it, its tags that it is
//! this database's, and the resource, read last, that this is still asked for, and by its report that this is the disk; where a
//! last copy is to be kept, EC2 shows it complete. The definition in force is one that shows all by which it could be kept.
//! *Invariant:* nor is it destroyed for a resource that only has the report of another one, for which it was made.
//! *Invariant:* what was seen is not old when the disk goes: the looks and the call each have a short deadline, in which the
//! turn that the call waits for is included.

use std::time::Duration;

use cloud::{
    Error as AwsError, Owner, Select, SnapshotId, SnapshotState, Volume, VolumeId, VolumeSnapshot, key,
};
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::Api;
use kube::api::ListParams;
use plan::{Evidence, Goal, MadeFor, Named, is_suspended, misread};
use resources::{DeletionPolicy, QuestDB, QuestDBSnapshot};

use super::{Pass, aws, definition};
use crate::error::Error;
use crate::moment::Moment;

/// How long all looks may take together.
const LOOK: Duration = Duration::from_secs(5);
/// How long the call may take, and wait for its turn: then everything is looked at again.
pub(super) const CALL: Duration = Duration::from_secs(2);

/// Destroys the disk; with `copy`, only once that is proved to hold all of it.
pub(super) async fn volume(
    pass: &Pass<'_>,
    (volume, copy): (&VolumeId, Option<&SnapshotId>),
    persistent_volume: &str,
) -> Result<(), Error> {
    runtime::failpoint::hit("operator.destroy", &pass.validated.subject.database).await;
    let looks = look(pass, (volume, copy), persistent_volume);
    if !seen_within(LOOK, "look at all that a disk rests on, before it is destroyed", looks).await? {
        return Ok(());
    }
    let call = async {
        match pass.context.cloud.delete_volume(volume).await {
            // Gone already is done.
            Ok(()) | Err(AwsError::NotFound { .. }) => Ok(()),
            Err(error) => Err(Error::aws("destroy the volume")(error)),
        }
    };
    within(CALL, "destroy the volume", call).await
}

pub(super) async fn within<T>(
    limit: Duration,
    call: &'static str,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(limit, work).await.map_err(|_| Error::Deadline { call, limit })?
}

/// The same for what was seen. An answer that came in time, of which a process that was halted took notice only later, or whose whole
/// machine was suspended, is as old as one that came late.
async fn seen_within<T>(
    limit: Duration,
    call: &'static str,
    look: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let began = Moment::now();
    let seen = within(limit, call, look).await?;
    if began.elapsed() > limit { Err(Error::Deadline { call, limit }) } else { Ok(seen) }
}

/// An error when anything speaks against it; whether the disk is still there.
async fn look(
    pass: &Pass<'_>,
    (volume, copy): (&VolumeId, Option<&SnapshotId>),
    persistent_volume: &str,
) -> Result<bool, Error> {
    definition::shows_all(pass).await?;
    let cloud = &pass.context.cloud;
    let found = cloud.describe_volumes(&Select::one(volume.clone())).await;
    let found = found.map_err(Error::aws("look at the volume"))?;
    let Some(disk) = found.first() else { return Ok(false) };
    check_free(pass, disk)?;
    if let Some(copy) = copy {
        check_copied(pass, disk, copy).await?;
    }
    check_unattached(pass, disk, persistent_volume).await?;
    check_own(pass, disk, persistent_volume).await?;
    let api: Api<QuestDB> = Api::namespaced(pass.context.client.clone(), &pass.validated.subject.namespace);
    let now = pass.context.call("look at the resource", api.get_opt(&pass.validated.subject.name)).await?;
    check_wish(pass.resource, now.as_ref(), copy).map_err(|what| Error::Stale { what })?;
    check_reported(pass.resource, volume).map_err(|what| Error::Stale { what })?;
    Ok(true)
}

/// Whether the report, which is that of the resource as it is now, says that this is the disk: tags may be on several. Pure.
fn check_reported(resource: &QuestDB, volume: &VolumeId) -> Result<(), String> {
    match plan::disk_reported(resource) {
        Some(reported) if reported == volume.as_str() => Ok(()),
        Some(reported) => Err(format!("the disk of the database is {reported}, and not {volume}")),
        None => Err(format!("no report says that {volume} is the disk of the database")),
    }
}

fn check_free(pass: &Pass<'_>, disk: &Volume) -> Result<(), Error> {
    let subject = &pass.validated.subject;
    let is_ours = |owner: &Owner| owner.cluster == subject.cluster && owner.database == subject.database;
    if !matches!(Owner::parse(&disk.tags), Ok(Some(ref owner)) if is_ours(owner)) {
        return Err(Error::NotTagged { what: disk.id.to_string() });
    }
    if let Some(named) = plan::offered_to(subject, &disk.tags) {
        return Err(Error::Stale { what: format!("{} is offered to {named} by now", disk.id) });
    }
    if !disk.is_detached() {
        return Err(Error::Stale { what: format!("{} is {} and not free yet", disk.id, disk.state) });
    }
    Ok(())
}

async fn check_copied(pass: &Pass<'_>, disk: &Volume, copy: &SnapshotId) -> Result<(), Error> {
    let machines = aws::instances(pass).await?;
    let found = pass.context.cloud.describe_snapshots(&Select::one(copy.clone())).await;
    let found = found.map_err(Error::aws("look at the last copy of the disk"))?;
    let Some(found) = found.iter().find(|found| found.id == *copy) else {
        return Err(Error::Stale { what: format!("EC2 does not show {copy}, the last copy of {}", disk.id) });
    };
    // The resource is the one that is there now: that is read last.
    let given = plan::number_given(pass.resource);
    let subject = &pass.validated.subject;
    let evidence = Evidence { subject, disk, machines: &machines, given, copy: found };
    evidence.judge().map_err(|what| Error::Stale { what })?;
    check_stays(pass, found).await
}

/// An order that is being deleted may take its copy with it, whichever of the orders it is. One that is gone by now may have
/// done so since the copy was looked at.
async fn check_stays(pass: &Pass<'_>, copy: &VolumeSnapshot) -> Result<(), Error> {
    let Some(name) = copy.tags.get(key::OBJECT) else { return Ok(()) };
    let api: Api<QuestDBSnapshot> =
        Api::namespaced(pass.context.client.clone(), &pass.validated.subject.namespace);
    let order = pass.context.call("look at the order for the last copy", api.get_opt(name)).await?;
    let Some(order) = order else {
        let found = pass.context.cloud.describe_snapshots(&Select::one(copy.id.clone())).await;
        let found = found.map_err(Error::aws("look once more at the last copy of the disk"))?;
        return check_complete(copy, &found).map_err(|what| Error::Stale { what });
    };
    if plan::takes_copy(&order, copy) {
        return Err(Error::Stale { what: format!("QuestDBSnapshot {name} is being deleted with its copy") });
    }
    Ok(())
}

/// Whether a copy is shown as it was, complete. Pure.
fn check_complete(copy: &VolumeSnapshot, found: &[VolumeSnapshot]) -> Result<(), String> {
    let id = &copy.id;
    match found.iter().find(|found| found.id == *id) {
        Some(found) if found.state == SnapshotState::Completed => Ok(()),
        Some(found) => Err(format!("EC2 calls {id} {} by now", found.state)),
        None => Err(format!("EC2 does not show {id} any more, and its QuestDBSnapshot is gone")),
    }
}

async fn check_unattached(pass: &Pass<'_>, disk: &Volume, persistent_volume: &str) -> Result<(), Error> {
    let api: Api<VolumeAttachment> = Api::all(pass.context.client.clone());
    let attachments = pass.context.call("list attachments", api.list(&ListParams::default())).await?;
    let held = attachments.items.iter().find(|attachment| {
        attachment.spec.source.persistent_volume_name.as_deref() == Some(persistent_volume)
    });
    let Some(attachment) = held else { return Ok(()) };
    let node = &attachment.spec.node_name;
    Err(Error::Stale { what: format!("{} is still attached to Node {node} by Kubernetes' word", disk.id) })
}

/// Reports and tags may be those of another resource, as where a backup was brought back into another namespace with its status: a disk
/// is destroyed for the one that it was made for, or for whom somebody who may write tags in AWS has named on it. One whose object is
/// gone is told by its tags alone, and of the other one nothing is known where its namespace is not looked after.
async fn check_own(pass: &Pass<'_>, disk: &Volume, persistent_volume: &str) -> Result<(), Error> {
    let (context, subject) = (pass.context, &pass.validated.subject);
    if plan::is_for(subject, &disk.tags) {
        return Ok(());
    }
    let api: Api<PersistentVolume> = Api::all(context.client.clone());
    let object = context.call("look for whom the disk was made", api.get_opt(persistent_volume)).await?;
    match object.map_or(MadeFor::Untold, |object| MadeFor::by_object(subject, &object)) {
        MadeFor::This => return Ok(()),
        MadeFor::Other(other) => {
            let gone = format!(
                "if there is no {other} that is to have it, delete PersistentVolume {persistent_volume}"
            );
            return Err(kept(&disk.id, &other, &gone));
        }
        MadeFor::Untold => {}
    }
    let MadeFor::Other(other) = MadeFor::by_tags(subject, &disk.tags) else { return Ok(()) };
    if !context.scope.covers(&other.namespace) {
        return Ok(());
    }
    let api: Api<QuestDB> = Api::namespaced(context.client.clone(), &other.namespace);
    let found =
        context.call("look at the resource that the disk was made for", api.get_opt(&other.name)).await?;
    let is_held = |found: &QuestDB| {
        plan::is_believed(found) && plan::settled_identity(found) == Some(subject.database.as_str())
    };
    if found.as_ref().is_some_and(is_held) {
        return Err(kept(&disk.id, &other, &format!("if {other} is not to have it, delete that one first")));
    }
    Ok(())
}

/// That a disk stays which was made for another resource. Pure.
fn kept(disk: &VolumeId, other: &Named, or: &str) -> Error {
    Error::OfAnother {
        what: format!(
            "{disk} was made for {other}, so it is not destroyed: to have this resource go without it, give it \
             spec.storage.deletionPolicy Retain; {or}"
        ),
    }
}

/// Whether the resource, read now, is the one that the plan was made of, and asks for the end of its disk still. Pure.
fn check_wish(planned: &QuestDB, now: Option<&QuestDB>, copy: Option<&SnapshotId>) -> Result<(), String> {
    let Some(now) = now else { return Err("the resource is not there any more".to_owned()) };
    let (before, after) = (&planned.metadata, &now.metadata);
    if before.uid.is_none() || before.uid != after.uid {
        return Err("another resource has the name by now".to_owned());
    }
    if before.resource_version.is_none() || before.resource_version != after.resource_version {
        return Err("the resource was changed meanwhile".to_owned());
    }
    if let Some(what) = misread(now) {
        return Err(what);
    }
    if is_suspended(now) {
        return Err("nothing is to be done for the resource, as its annotation says".to_owned());
    }
    if now.spec.deletion_protection {
        return Err("the database is protected from deletion".to_owned());
    }
    if Goal::of(now) != Goal::Purge {
        return Err("nobody asks for the end of the disk any more".to_owned());
    }
    match (now.spec.storage.deletion_policy, copy) {
        (DeletionPolicy::Snapshot, None) => Err("a last copy of the disk is to be kept".to_owned()),
        (DeletionPolicy::Retain | DeletionPolicy::Delete, Some(_)) => {
            Err("a last copy of the disk is not asked for any more".to_owned())
        }
        (DeletionPolicy::Snapshot, Some(_)) | (DeletionPolicy::Retain | DeletionPolicy::Delete, None) => {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource() -> QuestDB {
        let value = json!({
            "apiVersion": "crd.questdb.io/v1",
            "kind": "QuestDB",
            "metadata": { "name": "trades", "namespace": "ns", "uid": "u", "resourceVersion": "7" },
            "spec": {
                "version": "9.3.4",
                "runState": "Purged",
                "compute": { "instanceType": "m6g.large" },
                "storage": { "sizeGib": 50, "deletionPolicy": "Snapshot" },
            },
        });
        serde_json::from_value(value).unwrap()
    }

    type Change = fn(&mut QuestDB);

    #[test]
    fn whatever_changed_since_the_plan_was_made_keeps_the_disk() {
        let planned = resource();
        let copy = SnapshotId::new("snap-1");
        assert_eq!(check_wish(&planned, Some(&planned), Some(&copy)), Ok(()));
        assert!(check_wish(&planned, None, Some(&copy)).unwrap_err().contains("not there"));
        assert!(check_wish(&planned, Some(&planned), None).unwrap_err().contains("is to be kept"));
        let changes: [(&str, Change); 7] = [
            ("another resource", |now| now.metadata.uid = Some("v".to_owned())),
            ("was changed", |now| now.metadata.resource_version = Some("8".to_owned())),
            ("its annotation", |now| {
                let pause = resources::names::PAUSE_RECONCILE.to_owned();
                now.metadata.annotations = Some([(pause, "true".to_owned())].into());
            }),
            ("protected", |now| now.spec.deletion_protection = true),
            ("nobody asks", |now| now.spec.run_state = resources::RunState::Deleted),
            ("not asked for any more", |now| now.spec.storage.deletion_policy = DeletionPolicy::Delete),
            ("not asked for any more", |now| now.spec.storage.deletion_policy = DeletionPolicy::Retain),
        ];
        for (expected, change) in changes {
            let mut now = planned.clone();
            change(&mut now);
            let said = check_wish(&planned, Some(&now), Some(&copy)).unwrap_err();
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn no_disk_is_destroyed_that_is_not_the_reported_one() {
        let mut resource = resource();
        let (disk, other) = (VolumeId::new("vol-1"), VolumeId::new("vol-2"));
        assert!(check_reported(&resource, &disk).unwrap_err().contains("no report"));
        let status = json!({ "volume": { "id": "vol-1", "sizeGib": 50, "state": "available" } });
        resource.status = Some(serde_json::from_value(status).unwrap());
        assert_eq!(check_reported(&resource, &disk), Ok(()));
        assert!(check_reported(&resource, &other).unwrap_err().contains("vol-1"));
    }

    #[test]
    fn whose_disk_stays_is_told_with_what_to_do() {
        let other = Named { namespace: "data".to_owned(), name: "trades".to_owned() };
        let error = kept(&VolumeId::new("vol-1"), &other, "delete it");
        let told = error.to_string();
        assert!(
            told.starts_with("vol-1 was made for data/trades, ") && told.ends_with("; delete it"),
            "{told}"
        );
        assert!(error.is_lasting() && error.is_trouble(), "people have to hear of it");
    }

    #[test]
    fn a_copy_that_went_with_its_order_is_not_there() {
        let copy = |id: &str, state| VolumeSnapshot {
            id: SnapshotId::new(id),
            state,
            volume: VolumeId::new("vol-1"),
            size_gib: 50,
            progress: None,
            message: None,
            encrypted: true,
            tags: cloud::Tags::new(),
            started_at: None,
        };
        let (whole, ended) = (SnapshotState::Completed, SnapshotState::Error);
        let one = copy("snap-1", whole.clone());
        assert_eq!(check_complete(&one, &[copy("snap-2", whole.clone()), one.clone()]), Ok(()));
        for found in [vec![], vec![copy("snap-2", whole)], vec![copy("snap-1", ended)]] {
            assert!(check_complete(&one, &found).is_err(), "{found:?}");
        }
    }

    #[test]
    fn what_cannot_be_compared_is_not_the_same() {
        let copy = SnapshotId::new("snap-1");
        let wipes: [Change; 2] = [|one| one.metadata.uid = None, |one| one.metadata.resource_version = None];
        for wipe in wipes {
            let mut planned = resource();
            wipe(&mut planned);
            assert!(check_wish(&planned, Some(&planned), Some(&copy)).is_err());
        }
    }

    #[test]
    fn without_a_copy_only_who_asks_for_none_loses_the_disk() {
        for (policy, goes) in [
            (DeletionPolicy::Delete, true),
            (DeletionPolicy::Retain, true),
            (DeletionPolicy::Snapshot, false),
        ] {
            let mut planned = resource();
            planned.spec.storage.deletion_policy = policy;
            assert_eq!(check_wish(&planned, Some(&planned), None).is_ok(), goes, "{policy:?}");
        }
    }

    #[tokio::test]
    async fn a_call_that_waits_for_its_turn_is_given_up() {
        assert!(CALL <= Duration::from_secs(2), "what was seen gets old");
        let short = Duration::from_millis(1);
        assert!(within(short, "destroy the volume", async { Ok(()) }).await.is_ok());
        let late = within(short, "destroy the volume", std::future::pending::<Result<(), Error>>()).await;
        assert!(matches!(late, Err(Error::Deadline { .. })), "{late:?}");
    }

    /// Keeps the thread for longer than this.
    fn halt(limit: Duration) {
        let began = Moment::now();
        while began.elapsed() <= limit {
            std::hint::spin_loop();
        }
    }

    #[tokio::test]
    async fn what_a_halted_process_takes_notice_of_too_late_is_not_seen() {
        let short = Duration::from_millis(1);
        // No timer runs meanwhile, and the answer is there when it wakes.
        let halted = async {
            halt(short);
            Ok(())
        };
        let late = seen_within(short, "look at the volume", halted).await;
        assert!(matches!(late, Err(Error::Deadline { .. })), "{late:?}");
        let soon = seen_within(Duration::from_mins(10), "look at the volume", async { Ok(7) }).await;
        assert_eq!(soon.ok(), Some(7));
    }
}
