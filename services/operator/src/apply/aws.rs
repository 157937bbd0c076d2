//! Writes to EC2. What creates carries a client token and looks live first; what destroys looks live first.

use cloud::{
    ClientToken, Error as AwsError, Instance, InstanceId, Launch, NewSecurityGroup, NewVolume, Protection,
    Role, Select, Tags, Volume, VolumeId, key,
};
use plan::Step;
use resources::QuestDB;

use super::contention::firewall::{self, Change};
use super::contention::machines::{self, Setting};
use super::contention::tags::unless_fought;
use super::{Pass, current, destroy, opened};
use crate::error::Error;

/// How many disks of a database are asked for at most by tokens that EC2 may all remember, for a day: each only once the one before is
/// gone. What EC2 gives up every time is not asked for without an end.
const DISKS: u64 = 4;

/// Carries out a step on EC2.
pub(super) async fn step(pass: &Pass<'_>, step: &Step) -> Result<(), Error> {
    let cloud = &pass.context.cloud;
    match step {
        Step::CreateSecurityGroup(group) => create_security_group(pass, group).await,
        Step::AuthorizeIngress { group, rules } => firewall::change(pass, group, rules, Change::LetIn).await,
        Step::RevokeIngress { group, rules } => firewall::change(pass, group, rules, Change::KeepOut).await,
        Step::SetMachineGroups { instance, groups } => {
            let set = cloud.set_security_groups(instance, groups);
            let set = async { set.await.map_err(Error::aws("put the machine back into its security group")) };
            machines::unless_fought(pass, (instance, Setting::Groups(groups)), set).await
        }
        Step::GuardMetadata { instance } => {
            let set = cloud.guard_metadata(instance);
            let set =
                async { set.await.map_err(Error::aws("shut the machine's metadata service to others")) };
            machines::unless_fought(pass, (instance, Setting::Metadata), set).await
        }
        Step::RunInstance { generation, zone, launch } => run_instance(pass, *generation, zone, launch).await,
        Step::CreateVolume(volume) => create_volume(pass, volume).await,
        Step::Tag { resource, tags } => {
            let tagged = Box::pin(pass.context.within_lease(tag(pass, resource, tags)));
            unless_fought(pass, (resource.as_str(), tags), tagged).await
        }
        Step::ModifyVolume { volume, change } => {
            cloud.modify_volume(volume, change).await.map(drop).map_err(Error::aws("change the volume"))
        }
        Step::Protect { instance } => cloud
            .set_protection(instance, Protection::ON)
            .await
            .map_err(Error::aws("put the machine's protection back on")),
        Step::Unprotect { instance } => unprotect(pass, instance).await,
        Step::TerminateInstance { instance } => {
            let ended = unless_gone(cloud.terminate_instance(instance).await.map(drop));
            ended.map_err(Error::aws("end the machine"))
        }
        Step::DeleteSecurityGroup { group } => unless_gone(cloud.delete_security_group(group).await)
            .map_err(Error::aws("remove the security group")),
        Step::DeleteVolume { volume, copy, persistent_volume } => {
            // Its looks are many.
            Box::pin(destroy::volume(pass, (volume, copy.as_ref()), persistent_volume)).await
        }
        other => Err(Error::Stale { what: format!("{} is not a step on EC2", other.name()) }),
    }
}

/// Before a machine is replaced: none of the generation written now may still live, whatever the shared picture says, unless
/// the next one is to be made ready beside it.
pub(super) async fn check_no_living(
    pass: &Pass<'_>,
    next: u64,
    beside: Option<&InstanceId>,
) -> Result<(), Error> {
    let written = pass.resource.metadata.annotations.as_ref();
    let written =
        written.and_then(|annotations| annotations.get(resources::names::GENERATION)?.parse::<u64>().ok());
    let Some(written) = written.filter(|written| *written < next) else { return Ok(()) };
    let mut found = instances(pass).await?;
    let served = pass.resource.status.as_ref().and_then(|status| status.node.as_ref()?.instance_id.as_ref());
    if let Some(id) = served {
        let select = Select::one(InstanceId::new(id));
        let by_id = pass.context.cloud.describe_instances(&select).await;
        found.extend(by_id.map_err(Error::aws("look for the machine that served last"))?);
    }
    // Parameters may change while a launch has not been answered; that machine, should it come, is surplus later.
    let served_lives = |instance: &&Instance| {
        !instance.state.is_ending()
            && beside != Some(&instance.id)
            && generation_of(instance) == Some(written)
            && served.is_some_and(|id| id == instance.id.as_str())
    };
    match found.iter().find(served_lives) {
        Some(instance) => Err(Error::Stale { what: format!("{} is still there", instance.id) }),
        None => Ok(()),
    }
}

fn generation_of(instance: &Instance) -> Option<u64> {
    instance.tags.get(key::GENERATION)?.parse().ok()
}

pub(super) async fn instances(pass: &Pass<'_>) -> Result<Vec<Instance>, Error> {
    let subject = &pass.validated.subject;
    let select = Select::database(&subject.cluster, &subject.database);
    pass.context
        .cloud
        .describe_instances(&select)
        .await
        .map_err(Error::aws("look for machines of the database"))
}

/// EC2 cannot compare and set: the number of a disk, and which QuestDB it says it is, are looked at right before, and what is less
/// than that or a number is tagged soon or not at all.
async fn tag(pass: &Pass<'_>, resource: &str, tags: &Tags) -> Result<(), Error> {
    let cloud = &pass.context.cloud;
    let tagged = async { cloud.create_tags(&[resource], tags).await.map_err(Error::aws("say whose it is")) };
    let understates = opened::understates(pass, resource, tags).await?;
    if is_number_of_disk(resource, tags) {
        let found = pass.context.lookup.volume(&VolumeId::new(resource)).await;
        let found = found.map_err(Error::aws("look at the number of the disk"))?;
        if let Some(disk) = found {
            check_not_lower(&disk, tags)?;
        }
    }
    if understates || is_number_of_disk(resource, tags) {
        return destroy::within(destroy::CALL, "say whose it is", tagged).await;
    }
    tagged.await
}

/// Whether a tag is the proof of something; whatever else is tagged may wait for its turn.
fn is_number_of_disk(resource: &str, tags: &Tags) -> bool {
    resource.starts_with("vol-") && tags.get(key::GENERATION).is_some()
}

/// Whether the disk has no higher number by now: that would be one which somebody else gave since this one was decided.
fn check_not_lower(disk: &Volume, tags: &Tags) -> Result<(), Error> {
    let number = |tags: &Tags| tags.get(key::GENERATION).and_then(|text| text.parse::<u64>().ok());
    match number(&disk.tags) {
        Some(shown) if number(tags) < Some(shown) => {
            Err(Error::Stale { what: format!("{} carries generation {shown} by now", disk.id) })
        }
        _ => Ok(()),
    }
}

async fn run_instance(pass: &Pass<'_>, generation: u64, zone: &str, launch: &Launch) -> Result<(), Error> {
    let subject = &pass.validated.subject;
    // Asked from now on, and with whoever else launches one.
    let found = pass.context.lookup.machines_of(&subject.database).await;
    let found = found.map_err(Error::aws("look for machines of the database"))?;
    if found.iter().any(|instance| generation_of(instance) == Some(generation)) {
        // It is there, alive or not: the picture that shows it decides.
        return Ok(());
    }
    let memories = &pass.context.memories;
    let node = resources::names::node(subject.short(), generation);
    let other = pass.context.caches.database_of_node(&node).filter(|other| *other != subject.database);
    if let Some(other) = other {
        // Of two databases that end alike both machines would be told to be this Node; by the next number it is another one.
        memories.spent(&subject.uid, generation);
        return Err(Error::Stale { what: format!("{node} is the Node of database {other}") });
    }
    let token = ClientToken::new(&subject.cluster, &subject.database, Role::Instance, generation);
    runtime::failpoint::hit("operator.launch", &subject.database).await;
    match pass.context.cloud.run_instance(launch, &token).await {
        Ok(instance) => {
            if instance.state.is_ending() {
                memories.spent(&subject.uid, generation);
            }
            Ok(())
        }
        Err(error) => {
            match &error {
                AwsError::Capacity { .. } => {
                    memories.exhausted(&subject.uid, (Role::Instance, zone), pass.context.ec2_lag);
                }
                AwsError::ParameterMismatch { .. } => memories.spent(&subject.uid, generation),
                _ => {}
            }
            Err(Error::aws("launch the machine")(error))
        }
    }
}

async fn create_volume(pass: &Pass<'_>, volume: &NewVolume) -> Result<(), Error> {
    let subject = &pass.validated.subject;
    let found = pass.context.lookup.disks_of(&subject.database).await;
    let found = found.map_err(Error::aws("look for the volume"))?;
    if found.iter().any(|volume| !volume.state.is_ending()) {
        return Ok(());
    }
    // A database has one disk in its life, so its token is that of number 1, by whatever process it is asked for. Only where EC2 itself
    // says that this disk is gone the next number is taken, which again gives one disk. EC2 may count it in each zone by itself: after a
    // zone that was given up, it is the look above that a disk which came there after all is found by.
    let mut number = 1;
    let made = loop {
        let token = ClientToken::new(&subject.cluster, &subject.database, Role::Volume, number);
        let made = pass.context.cloud.create_volume(volume, &token).await;
        let Some(next) = next_number(number, &made) else { break made };
        // By another token a request that comes late is carried out all the same. One for a resource that is on its way out by now would
        // make a disk that nobody looks for, and one that has had a disk since it was seen gets no empty one in its place.
        let reported = |resource: &QuestDB| plan::disk_reported(resource).map(str::to_owned);
        Box::pin(current::check(pass, "another disk was asked for", reported)).await?;
        number = next;
    };
    if let Err(AwsError::Capacity { .. }) = &made {
        let what = (Role::Volume, volume.zone.as_str());
        pass.context.memories.exhausted(&subject.uid, what, pass.context.ec2_lag);
    }
    made.map(drop).map_err(|error| not_created(error, &volume.zone))
}

/// The number of the next disk, where EC2 says that the one of this number is gone, as where it was destroyed before its database begins
/// anew. Another refusal of the token says nothing of the disk: it may be there.
fn next_number(number: u64, answer: &Result<Volume, AwsError>) -> Option<u64> {
    let is_gone = answer.as_ref().is_err_and(is_spent);
    (is_gone && number < DISKS).then_some(number + 1)
}

/// Why there is no volume. A failure also where EC2 took the request before and gave the volume up: what is asked for in vain is asked
/// for less and less often.
fn not_created(error: AwsError, zone: &str) -> Error {
    match error {
        error if is_spent(&error) => Error::GivenUp,
        AwsError::Capacity { .. } => Error::NoRoom { zone: zone.to_owned() },
        error => Error::aws("create the volume")(error),
    }
}

/// Whether EC2 says that what the client token made is deleted: it is not coming any more, and nothing else is by this token.
fn is_spent(error: &AwsError) -> bool {
    matches!(error, AwsError::ParameterMismatch { call } if call.message.contains("already deleted"))
}

async fn create_security_group(pass: &Pass<'_>, group: &NewSecurityGroup) -> Result<(), Error> {
    let cloud = &pass.context.cloud;
    match cloud.create_security_group(group).await {
        Ok(_) => Ok(()),
        Err(AwsError::AlreadyExists { .. }) => {
            let found = cloud.find_security_group(&group.vpc, &group.name).await;
            let found = found.map_err(Error::aws("look for the security group"))?;
            let Some(found) = found else { return Ok(()) };
            if !plan::is_still_ours(&pass.validated.subject, &found.tags) {
                return Err(Error::Foreign { what: format!("security group {}", group.name) });
            }
            let missing = group.tags.missing_from(&found.tags);
            if missing.is_empty() {
                return Ok(());
            }
            // The name is this database's, and no tag says otherwise: somebody took them off.
            let tagged = cloud.create_tags(&[found.id.as_str()], &missing).await;
            tagged.map_err(Error::aws("say whose the security group is"))
        }
        Err(error) => Err(Error::aws("create the security group")(error)),
    }
}

async fn unprotect(pass: &Pass<'_>, instance: &InstanceId) -> Result<(), Error> {
    let cloud = &pass.context.cloud;
    match cloud.describe_protection(instance).await {
        Ok(Protection::OFF) | Err(AwsError::NotFound { .. }) => Ok(()),
        Ok(_) => {
            let set = cloud.set_protection(instance, Protection::OFF).await;
            unless_gone(set).map_err(Error::aws("take the machine's protection off"))
        }
        Err(error) => Err(Error::aws("read the machine's protection")(error)),
    }
}

/// Gone already is done.
fn unless_gone(answer: Result<(), AwsError>) -> Result<(), AwsError> {
    match answer {
        Err(AwsError::NotFound { .. }) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::disk;

    #[test]
    fn people_are_told_where_there_is_no_room_for_a_volume() {
        let call = |text: &str| Box::new(cloud::Call::new("CreateVolume", text));
        let full = not_created(AwsError::Capacity { call: call("full") }, "eu-west-1a");
        assert!(full.is_lasting() && full.to_string().contains("no room now"), "{full}");
        assert!(full.stable().contains("eu-west-1a") && full.stable().contains("spec.zone"), "{full}");
        let busy = not_created(AwsError::Throttled { retry_after: None, call: call("busy") }, "eu-west-1a");
        assert!(matches!(busy, Error::Aws { .. }) && !busy.is_lasting(), "{busy}");
    }

    #[test]
    fn a_number_that_was_decided_long_ago_is_not_written_over_a_higher_one() {
        let numbered = |number: &str| Tags::new().with(key::GENERATION, number);
        for (shown, written, goes) in
            [("3", "4", true), ("4", "4", true), ("5", "4", false), ("odd", "4", true)]
        {
            let checked = check_not_lower(&disk(numbered(shown)), &numbered(written));
            assert_eq!(checked.is_ok(), goes, "{written} over {shown}");
            assert!(checked.err().is_none_or(|error| error.is_conflict()), "the next look decides anew");
        }
        assert!(check_not_lower(&disk(Tags::new()), &numbered("1")).is_ok());
        // Nothing rests on any other tag, and it is not given up while it waits for its turn.
        for (resource, tags, is_number) in [
            ("vol-1", numbered("1"), true),
            ("i-1", numbered("1"), false),
            ("vol-1", Tags::new().with(key::NAME, "a"), false),
        ] {
            assert_eq!(is_number_of_disk(resource, &tags), is_number, "{resource} {tags:?}");
        }
        assert!(check_not_lower(&disk(numbered("2")), &numbered("odd")).is_err());
    }

    #[test]
    fn a_token_is_spent_where_what_it_made_is_deleted() {
        for (words, expected) in [
            (
                "The client token you have provided is associated with a resource that is already deleted. Please use a \
                 different client token.",
                true,
            ),
            (
                "Arguments on this idempotent request are inconsistent with those used in previous request(s).",
                false,
            ),
        ] {
            let call = || Box::new(cloud::Call::new("CreateVolume", words));
            let error = not_created(AwsError::ParameterMismatch { call: call() }, "eu-west-1a");
            assert_eq!(error.stable().contains("the key"), expected, "{error}");
            assert!(!expected || error.is_lasting(), "it would be asked for without a pause");
            assert!(!is_spent(&AwsError::IncorrectState { call: call() }), "{words}");
        }
    }

    /// By which number a disk is asked for last in a pass, and whether there is one then. EC2 says of so many that their disks are gone,
    /// and this of the next one.
    fn asked(gone: u64, answer: impl Fn() -> Result<Volume, AwsError>) -> (u64, bool) {
        let call = || Box::new(cloud::Call::new("CreateVolume", "a resource that is already deleted"));
        let mut number = 1;
        loop {
            let made =
                if number <= gone { Err(AwsError::ParameterMismatch { call: call() }) } else { answer() };
            match next_number(number, &made) {
                Some(next) => number = next,
                None => return (number, made.is_ok()),
            }
        }
    }

    #[test]
    fn a_disk_that_is_known_to_be_gone_is_followed_by_one_with_another_token_and_no_other_is() {
        let made = || Ok(disk(Tags::new()));
        assert_eq!(asked(0, made), (1, true), "the first one, and every repeat that it answers");
        assert_eq!(asked(1, made), (2, true), "the first was destroyed by hand");
        assert_eq!(asked(DISKS - 1, made), (DISKS, true));
        assert_eq!(asked(DISKS, made), (DISKS, false), "EC2 gives up all of them");
        let call = |words: &str| Box::new(cloud::Call::new("CreateVolume", words));
        let other = || Err(AwsError::ParameterMismatch { call: call("the arguments are inconsistent") });
        let busy = || Err(AwsError::Throttled { retry_after: None, call: call("busy") });
        assert_eq!((asked(0, other), asked(0, busy)), ((1, false), (1, false)));
    }
}
