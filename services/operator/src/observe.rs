//! Looking: caches for Kubernetes, one shared picture for EC2, and live reads only where something is to be decided.

mod keys;
mod name;
mod tables;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cloud::{
    Holdings, Protection, Role, Select, Snapshot, SnapshotId, TagFilter, VolumeId, VolumeModification, key,
};
use kube::Api;
use plan::{Account, Dns, Goal, Memory, Observed, Plan, Source, Subject, Validated};
use resources::{Phase, QuestDB, QuestDBSnapshot, Seen};

use crate::context::Context;
use crate::error::Error;
use crate::{given, strays};

/// How old the picture of EC2 may be for a database that is being worked on.
const AT_WORK: Duration = Duration::from_secs(1);
/// How old it may be for one at rest: what it shows next is compared with it.
const AT_REST: Duration = Duration::from_mins(5);
/// The security group that EC2 makes with every VPC.
const OF_VPC: &str = "default";

/// Everything observed of one database.
pub(crate) async fn observe(
    context: &Context,
    resource: &QuestDB,
    validated: &Validated,
) -> Result<Observed, Error> {
    let look = strays::begin(context, resource, validated);
    let observed = everything(context, resource, validated, look.is_some()).await;
    if let Some(look) = look
        && observed.is_ok()
    {
        look.done(plan::is_suspended(resource));
    }
    observed
}

async fn everything(
    context: &Context,
    resource: &QuestDB,
    validated: &Validated,
    looks: bool,
) -> Result<Observed, Error> {
    let settled = is_settled(resource);
    let (caches, subject) = (&context.caches, &validated.subject);
    // What is looked for is all that is missing.
    let all = looks || plan::rests_on_all(resource, validated);
    let mut observed = Observed {
        children: if all { caches.children(subject) } else { caches.resting_children(subject) },
        secrets: plan::secrets::Secrets::default(),
        references: plan::references::References::default(),
        account: account(context, validated, settled).await?,
        dns: Dns::default(),
        listed_keys: None,
        suspended_tables: None,
        rivals: caches.rivals(resource, validated, &context.settings),
        memory: Memory {
            identity_left: context.contention.leaves_identity(&subject.uid, Instant::now()),
            ..context.memories.recall(&subject.uid, validated.generation)
        },
        at: context.clock.now(),
    };
    if looks {
        Box::pin(strays::find(context, resource, validated, &mut observed)).await?;
    }
    given::look(context, resource, validated, &mut observed).await?;
    observed.listed_keys = keys::listed(context, resource, validated, &observed).await;
    observed.suspended_tables = tables::suspended(context, resource, validated, &observed);
    observed.children.copies_unseen = context.side.unseen(&subject.namespace);
    if observed.children.copies_unseen.is_none() {
        let find = |name: &str| context.side.snapshot(&subject.namespace, name);
        observed.children.copy = plan::copy_to_look_at(resource, validated, &observed.children, find);
        let orders = |stem: &str| context.side.orders(&subject.namespace, stem);
        observed.children.last_copy = plan::last_copy_to_look_at(subject, orders);
    }
    find_lost(context, resource, validated, &mut observed).await?;
    if !settled && validated.goal != Goal::Serve {
        let elsewhere = elsewhere(context, &observed.account).await?;
        observed.account.conclusive &= elsewhere.is_none();
        observed.account.elsewhere = elsewhere;
    }
    plan::put_right(resource, &validated.subject, &mut observed.account);
    if !settled {
        observed.account.source = Box::pin(source(context, resource, validated, &observed)).await?;
        observed.account.copies = last_copies(context, validated, &observed).await?;
    }
    look_closer(context, resource, validated, &mut observed).await?;
    observed.dns = name::dns(context, resource, validated, &observed, settled).await?;
    Ok(observed)
}

/// Whether the last report says that this very spec has been carried out.
pub(crate) fn is_settled(resource: &QuestDB) -> bool {
    let Some(status) = &resource.status else { return false };
    let at_rest = matches!(status.phase, Some(Phase::Ready | Phase::Deleted | Phase::Paused));
    at_rest && plan::is_judged(resource) && !plan::is_leaving(resource)
}

async fn account(context: &Context, validated: &Validated, settled: bool) -> Result<Account, Error> {
    let age = if settled { AT_REST.min(context.resync) } else { AT_WORK };
    let now = Instant::now();
    let moment = now.checked_sub(age).unwrap_or(now);
    let Subject { database, uid, .. } = &validated.subject;
    // A picture from before our own last write would show the past.
    let moment = context.memories.wrote_at(uid).map_or(moment, |wrote| wrote.max(moment));
    let picture = if settled {
        context.view.taken_after(moment).await.map(|picture| picture.of(database))
    } else {
        let moment = context.memories.seen_at(uid).map_or(moment, |seen| seen.max(moment));
        context.view.of(database, moment).await
    };
    let picture = picture.map_err(Error::aws("describe what the database owns in EC2"))?;
    let shared = picture.as_of;
    let picture = context.memories.newest(uid, picture, settled);
    // Nobody else has that of a database at rest: it is not copied.
    let Holdings { as_of, instances, volumes, security_groups } = Arc::unwrap_or_clone(picture);
    Ok(Account {
        instances,
        volumes,
        groups: security_groups,
        // That a settled database is down was proved when it settled: a new leader need not wait for it again.
        conclusive: settled || context.memories.shows_all(uid, as_of, context.ec2_lag),
        untold: settled && as_of > shared,
        ..Account::default()
    })
}

/// What EC2 does not show by its tags is asked for by its id or name: it lost them, or was left out of the answer. Nothing has, or
/// was, nearly always.
async fn find_lost(
    context: &Context,
    resource: &QuestDB,
    validated: &Validated,
    observed: &mut Observed,
) -> Result<(), Error> {
    let lost = plan::lost(resource, validated, observed);
    let is_ours = |tags: &cloud::Tags| plan::is_still_ours(&validated.subject, tags);
    for id in lost.instances {
        match context.lookup.instance(&id).await.map_err(Error::aws("look for a machine by its id"))? {
            Some(found) if is_ours(&found.tags) => observed.account.instances.push(found),
            Some(_) => {}
            None => observed.account.gone.push(id),
        }
    }
    if let Some(id) = lost.volume {
        let found = context.lookup.volume(&id).await.map_err(Error::aws("look for a disk by its id"))?;
        let account = &mut observed.account;
        let found = found.filter(|found| plan::is_still_its_disk(&validated.subject, account, &found.tags));
        account.volumes.extend(found);
    }
    if let Some(name) = lost.group {
        let found = context.cloud.find_security_group(&context.settings.vpc, &name).await;
        let found = found.map_err(Error::aws("look for a security group by its name"))?;
        observed.account.groups.extend(found.filter(|found| is_ours(&found.tags)));
    }
    Ok(())
}

/// Why nothing of a database that ends may be gone, where EC2 shows nothing of it.
async fn elsewhere(context: &Context, account: &Account) -> Result<Option<String>, Error> {
    let Account { instances, volumes, groups, .. } = account;
    if instances.is_empty() && volumes.is_empty() && groups.is_empty() {
        other_account(context).await
    } else {
        Ok(None)
    }
}

/// Why nothing may be gone that EC2 does not show: nor does it show anything of the cluster in its VPC, nor what is in every VPC and
/// nobody can delete. So it looks to whoever asks with another account's credentials, or another region.
pub(crate) async fn other_account(context: &Context) -> Result<Option<String>, Error> {
    let picture = context.view.at_most(AT_REST).await;
    let picture = picture.map_err(Error::aws("describe what the cluster owns in EC2"))?;
    let (cluster, vpc) = (&context.settings.cluster, &context.settings.vpc);
    if shows_vpc(&picture, vpc) {
        return Ok(None);
    }
    let group = context.cloud.find_security_group(vpc, OF_VPC).await;
    let group = group.map_err(Error::aws("look for the default security group of the VPC"))?;
    Ok(group.is_none().then(|| {
        format!(
            "EC2 shows nothing of cluster {cluster} in {vpc}, nor its default security group: this seems to be another account or \
             region than that of the cluster, so nothing is taken for gone; put credentials, AWS_REGION and SLIPWAY_VPC_ID of the \
             operator right, or, where {vpc} is shared by another account, tag a security group of the right one in it with \
             {}={cluster}",
            key::CLUSTER
        )
    }))
}

/// Whether something of the cluster is in this VPC. A name tells nothing: in another account or region another cluster may have the same
/// one. Nor does a disk, which is in no VPC.
fn shows_vpc(picture: &Snapshot, vpc: &str) -> bool {
    picture.machines().any(|machine| machine.vpc.as_deref() == Some(vpc))
        || picture.firewalls().any(|group| group.vpc == vpc)
}

/// What the first disk is to be made from, read live: a disk is made by it.
async fn source(
    context: &Context,
    resource: &QuestDB,
    validated: &Validated,
    observed: &Observed,
) -> Result<Option<Source>, Error> {
    let Some(source) = plan::source_to_look_at(resource, validated, observed) else { return Ok(None) };
    let subject = &validated.subject;
    if let Some(id) = &source.volume_id {
        let found = context.cloud.describe_volumes(&Select::one(VolumeId::new(id))).await;
        let mut found = found.map_err(Error::aws("look at the volume that becomes the disk"))?;
        return Ok(Some(Source::Volume(found.pop().map(Box::new))));
    }
    let select = match (&source.snapshot_id, &source.snapshot) {
        (Some(id), _) => Select::one(SnapshotId::new(id)),
        (None, name) => {
            let name = name.as_deref().unwrap_or_default();
            if let Some(unseen) = &observed.children.copies_unseen {
                return Ok(Some(Source::Unseen(unseen.clone())));
            }
            let seen = context.side.snapshot(&subject.namespace, name);
            if let Some(text) = seen.as_deref().and_then(plan::snapshot::unfinished) {
                return Ok(Some(Source::Unfinished(text)));
            }
            // The watch of snapshots may be behind that of databases: one that was made again a moment ago under its name would be
            // taken for the one before it, and the database would begin with an older copy.
            let object = snapshot_now(context, subject, name).await?;
            if let Some(text) = object.as_ref().and_then(plan::snapshot::unfinished) {
                return Ok(Some(Source::Unfinished(text)));
            }
            let named = TagFilter::cluster(&subject.cluster)
                .role(Role::Snapshot)
                .and(key::NAMESPACE, &[&subject.namespace])
                .and(key::OBJECT, &[name]);
            // An earlier one of the same name may have left its copy.
            Select::Tags(match object.as_ref().and_then(plan::snapshot::identity) {
                Some(identity) => named.and(key::SNAPSHOT, &[identity]),
                None => named,
            })
        }
    };
    let found = context.cloud.describe_snapshots(&select).await;
    found.map(Source::Copies).map(Some).map_err(Error::aws("look at the snapshot that the disk is made from"))
}

/// A snapshot as the API server has it now, and not as a watch told of it.
async fn snapshot_now(
    context: &Context,
    subject: &Subject,
    name: &str,
) -> Result<Option<QuestDBSnapshot>, Error> {
    let api: Api<Seen<QuestDBSnapshot>> = Api::namespaced(context.client.clone(), &subject.namespace);
    let found = context.call("look at the snapshot that is named as the source", api.get_opt(name)).await?;
    Ok(found.map(|seen| *seen.marked()))
}

/// Last copies of the disk, read live: it is destroyed by them. Who still waits for one that is being made need not ask.
async fn last_copies(
    context: &Context,
    validated: &Validated,
    observed: &Observed,
) -> Result<Vec<cloud::VolumeSnapshot>, Error> {
    let Some((_, basis)) = plan::copies_to_look_at(validated, observed) else { return Ok(Vec::new()) };
    let subject = &validated.subject;
    let filter = TagFilter::cluster(&subject.cluster)
        .database(&subject.database)
        .role(Role::Snapshot)
        .and(key::BASIS, &[&basis]);
    let found = context.cloud.describe_snapshots(&Select::Tags(filter)).await;
    found.map_err(Error::aws("look for the last copy of the disk"))
}

/// Reads that only somebody at work needs, and whoever's disk somebody else is growing or EC2 optimizes.
async fn look_closer(
    context: &Context,
    resource: &QuestDB,
    validated: &Validated,
    observed: &mut Observed,
) -> Result<(), Error> {
    if !plan::modification_must_be_read(resource, validated, observed) {
        return Ok(());
    }
    let living = observed.account.volumes.iter().filter(|volume| !volume.state.is_ending());
    let living: Vec<VolumeId> = living.map(|volume| volume.id.clone()).collect();
    for id in living {
        let found = context.lookup.volume_modification(&id).await;
        let found = found.map_err(Error::aws("describe the modification of a volume"));
        take_in(&mut observed.account, found)?;
    }
    Ok(())
}

/// Takes in what EC2 told of the last change of a disk. Where it is only busy with questions of this kind, the disk is left as it is and
/// all else goes on: a machine that ended is replaced meanwhile.
fn take_in(account: &mut Account, found: Result<Option<VolumeModification>, Error>) -> Result<(), Error> {
    match found {
        Ok(found) => account.modification = account.modification.take().or(found),
        Err(error) if error.is_passing() => {
            tracing::warn!(error = runtime::telemetry::chain(&error), "the disk is not changed meanwhile");
            account.modification_untold = Some(error.stable());
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The protection of the machine that is to serve, if this plan asks for it: whoever gets one that is not on plans again.
pub(crate) async fn protection(
    context: &Context,
    resource: &QuestDB,
    (validated, observed): (&Validated, &Observed),
    plan: &Plan,
) -> Result<Option<Protection>, Error> {
    // Of a database at rest it was read when it came to rest.
    if is_settled(resource) {
        return Ok(None);
    }
    let Some(instance) = plan::machine_to_check(resource, validated, observed, plan) else { return Ok(None) };
    match context.cloud.describe_protection(&instance.id).await {
        Ok(protection) => Ok(Some(protection)),
        Err(cloud::Error::NotFound { .. }) => {
            Err(Error::Stale { what: format!("{} is not there any more", instance.id) })
        }
        Err(error) => Err(Error::aws("read the machine's protection")(error)),
    }
}

#[cfg(test)]
mod tests {
    use cloud::{Call, SecurityGroup, SecurityGroupId, Tags};

    use super::*;
    use crate::fixture::disk;

    #[test]
    fn what_ec2_is_too_busy_to_tell_of_a_change_holds_up_nothing_else() {
        let call = || Box::new(Call::new("DescribeVolumesModifications", "words").with_code("Code"));
        let refused = |source| Err(Error::aws("describe the modification of a volume")(source));
        let mut account = Account::default();
        let busy = cloud::Error::Throttled { retry_after: None, call: call() };
        assert!(take_in(&mut account, refused(busy)).is_ok());
        let told = account.modification_untold.take().unwrap_or_default();
        assert!(told.contains("DescribeVolumesModifications: Code"), "{told}");
        // Only people cure that, and they are told by what it holds up.
        let denied = cloud::Error::Denied { call: call() };
        assert!(take_in(&mut account, refused(denied)).is_err() && account.modification_untold.is_none());
        assert!(take_in(&mut account, Ok(None)).is_ok() && account.modification_untold.is_none());
    }

    #[test]
    fn another_cluster_of_the_same_name_is_known_by_its_vpc() {
        let ours = || Tags::new().with(key::CLUSTER, "eu").with(key::DATABASE, "d");
        let group = |vpc: &str| SecurityGroup {
            id: SecurityGroupId::new("sg-1"),
            name: "questdb".to_owned(),
            vpc: vpc.to_owned(),
            description: String::new(),
            ingress: Vec::new(),
            tags: ours(),
        };
        for (groups, shown) in
            [(vec![], false), (vec![group("vpc-2")], false), (vec![group("vpc-2"), group("vpc-1")], true)]
        {
            let what = format!("{groups:?}");
            let picture = Snapshot::new(Instant::now(), Vec::new(), vec![disk(ours())], groups);
            assert_eq!(shows_vpc(&picture, "vpc-1"), shown, "{what}");
        }
    }
}
