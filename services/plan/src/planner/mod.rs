//! The planner: what is observed, compared with what is asked for, gives the steps that can be taken now and how far
//! every part is. Reads top-down in the order of a machine's life.

mod child;
mod claim;
mod credentials;
mod disk;
mod emptied;
mod existing;
mod former;
mod going;
mod held;
mod home;
mod joined;
mod last_copy;
mod left;
mod machine;
mod machine_groups;
mod machine_metadata;
mod misplaced;
mod moving;
mod name;
mod network;
mod purge;
mod reach;
mod ready;
mod released;
mod rename;
mod serves;
mod shut_out;
mod source;
mod teardown;
mod tuning;
mod unbegun;
mod unmade;
mod version;
mod workload;
mod zones;

use std::sync::Arc;

use cloud::{Role, Tags, key};
use resources::{QuestDB, names};

use crate::Mistagged;
use crate::change::{changes, restart_in_force};
use crate::misspelt::{LeftOut, left_out};
use crate::report::are_copies_outdated;
use crate::secrets::{Choice, Keyring, choose};
use crate::{Goal, Observed, Part, Plan, Settings, State, Step, Validated, upgrade};

pub(crate) use credentials::await_key;
pub use existing::disk_reported;
pub(crate) use existing::living;
pub(crate) use home::pinned;
pub use home::{machine_to_check, number_given, serving};
pub use left::{Left, Proof};
pub(crate) use machine::{generation_of, is_ready};
pub(crate) use moving::{Reason, reasons};
pub use name::{
    DnsQuestion, are_as_noted, database_of_text, dns_question, has_records, is_named, is_taken, name_at_rest,
    names_left, names_to_release, owner_text,
};
pub(crate) use name::{is_reserved, name_had, name_in_force, other_name};
pub(crate) use reach::{leaving_node, missing_kinds};
pub use source::{Source, source_to_look_at};
pub(crate) use source::{has_served, is_older_than};
pub use tuning::{Work, modification_must_be_read, work};
pub(crate) use tuning::{change as volume_change, progress, told as volume_words};
pub(crate) use workload::is_on;
pub use workload::{pod_is_ready, pod_serves};
pub(crate) use zones::other_than_asked_for;

/// Everything a decision rests on.
pub(crate) struct World<'a> {
    pub(crate) resource: &'a QuestDB,
    pub(crate) validated: &'a Validated,
    pub(crate) observed: &'a Observed,
    pub(crate) settings: &'a Settings,
    /// What is to be done about the credentials.
    pub(crate) choice: &'a Choice,
    /// Which image is in force; `validated` has it.
    pub(crate) upgrade: &'a upgrade::Decision,
}

/// What to do now. `resource` is the one that `validated` was made of.
pub fn plan(resource: &QuestDB, validated: &Validated, observed: &Observed, settings: &Settings) -> Plan {
    // Which ports there are follows from which credentials there are.
    let choice = &choose(validated, observed);
    let keyring = Keyring::of(&observed.children, choice);
    // Nobody is restarted because a restart that was made is not asked for any more.
    let restart_nonce = validated.restart_nonce.clone().or_else(|| restart_in_force(&observed.children));
    let mut in_force = Validated { keyring, restart_nonce, ..validated.clone() };
    let left_out = left_out(resource, validated, observed);
    if let Some(LeftOut { keys, .. }) = &left_out {
        in_force.config.retain(|key, _| !keys.contains(key));
    }
    let upgrade = upgrade::decide(resource, &in_force, observed, choice);
    if upgrade.image != in_force.image {
        upgrade::version_of(&upgrade.image).clone_into(&mut in_force.version);
        in_force.image.clone_from(&upgrade.image);
    }
    let validated = &in_force;
    let world = World { resource, validated, observed, settings, choice, upgrade: &upgrade };
    let copies_outdated = are_copies_outdated(resource.status.as_ref());
    let mut plan = Plan { upgrade: upgrade.record.clone(), copies_outdated, ..Plan::default() };
    if let Some(LeftOut { why, .. }) = left_out {
        plan.say(Part::Config, State::Refused(why));
    }
    // Nobody may put a finalizer on what is being deleted.
    if !world.is_held() && (validated.removing || validated.held_back) {
        return plan;
    }
    if !world.is_held() || !world.is_named() {
        let reason = "nothing is made before the resource is sure to be cleaned up after, and known in every copy of it";
        plan.act(Part::Resource, Step::AddFinalizer { identity: world.identity() }, reason);
        plan.wait(Part::Resource, "finalizer and identity are being written");
        return plan;
    }
    last_copy::withdraw(&world, &mut plan);
    match validated.goal {
        Goal::Serve => {
            serve(&world, &mut plan);
            name_again(&world, &mut plan);
        }
        Goal::Pause | Goal::Retire | Goal::Purge => teardown::plan(&world, &mut plan),
    }
    plan.changes = changes(&world, &plan);
    plan
}

fn serve(world: &World<'_>, plan: &mut Plan) {
    retag(world, plan, serving_part);
    plan.strangers = home::strangers(world);
    let keyed = credentials::keep(world, plan) || world.observed.children.pod.is_some();
    let group = network::security_group(world, plan);
    machine_groups::keep(world, plan);
    machine_metadata::guard(world, plan);
    let disk = existing::volume(world, plan);
    let Some(disk) = disk else {
        leave_alone(world, plan);
        return;
    };
    let instance = machine::instance(world, plan, group, disk);
    let volume = disk::volume(world, plan, disk, instance);
    let node = machine::node(world, plan, instance);
    let configured = workload::config(world, plan);
    // What runs already is judged whatever becomes of its rules; nothing is started without them.
    let safe = reach::isolation(world, plan) || world.observed.children.pod.is_some();
    let claimed = claim::keep(world, plan, volume);
    let home = instance.zip(node).filter(|_| configured && claimed && safe && keyed);
    let (is_current, on) = if let Some((instance, node)) = home {
        let target = moving::target(world, plan, &moving::Home { instance, node, group, disk: volume });
        if !Arc::ptr_eq(target, node) {
            disk::goes_to(world, plan, volume, target);
        }
        let takes_along = Arc::ptr_eq(target, node) && moving::takes_along(world, plan, instance);
        // A copy that is taken before the next machine is ready would be old when that takes over.
        let prepares = takes_along && !moving::awaits_version(plan);
        workload::upgrade(world, plan, target, prepares);
        // Who has been given the new credentials comes in only after a restart.
        let waits = (world.upgrade.waits() || takes_along) && !credentials::are_ahead(world);
        plan.locked_out = credentials::locked_out(world, target);
        (workload::pod(world, plan, target, waits), Some(target))
    } else {
        workload::told(world, plan);
        moving::waits(world, plan);
        plan.say(Part::Attachment, State::Pending);
        plan.say(Part::Pod, State::Pending);
        (false, node)
    };
    plan.serves = on.is_some_and(|node| serves::serves(world, plan, node));
    plan.serves_on = serves::elsewhere(world, plan, on.map(|node| &**node));
    if !nameless(world, plan) {
        name::resolve(world, plan, instance.filter(|_| is_current || plan.serves));
    }
    reach::beside(world, plan);
    former::end_all(world, plan, instance, volume);
    version::note_begun(world, plan);
    credentials::values_first(world, plan);
}

/// Nobody can say which disk is the database's, or that it is to have one: what serves does so all the same, and that is told.
fn leave_alone(world: &World<'_>, plan: &mut Plan) {
    plan.say(Part::Node, State::Pending);
    workload::told(world, plan);
    moving::waits(world, plan);
    if !nameless(world, plan) {
        plan.say(Part::Dns, State::Pending);
    }
    plan.serves_on = serves::elsewhere(world, plan, None);
}

/// Whether no name is to lead to the database: whatever else it lacks, one that it had is given back.
fn nameless(world: &World<'_>, plan: &mut Plan) -> bool {
    let is_nameless = !is_named(world.validated, &world.observed.children);
    if is_nameless && teardown::release_name(world, plan) {
        plan.say(Part::DnsRelease, State::Done);
    }
    is_nameless
}

/// What somebody took off or changed by hand. What goes needs no name for people.
fn retag(world: &World<'_>, plan: &mut Plan, part: fn(Role) -> Part) {
    for Mistagged { role, id, missing } in &world.observed.account.mistagged {
        if is_name(missing) {
            continue;
        }
        let step = Step::Tag { resource: id.clone(), tags: missing.clone() };
        let reason = match missing.get(key::QUESTDB) {
            Some(version) if !is_missed(missing) => {
                format!("that QuestDB {version} may have opened {id} is to be known from it alone")
            }
            _ => format!("{id} is found by its tags, which somebody changed"),
        };
        plan.act(part(*role), step, reason);
    }
}

/// Names for people come back after all else, so that nothing waits where they are refused, or somebody takes them off again and again.
fn name_again(world: &World<'_>, plan: &mut Plan) {
    let nameless = world.observed.account.mistagged.iter().filter(|found| is_name(&found.missing));
    for Mistagged { id, missing, .. } in nameless {
        let step = Step::Tag { resource: id.clone(), tags: missing.clone() };
        plan.act(Part::Tags, step, format!("people know {id} by its name, which somebody took off"));
        plan.wait(Part::Tags, "names by which people know what is in EC2 are being put back");
    }
}

/// Whether these tags are none that anything rests on.
fn is_name(tags: &Tags) -> bool {
    tags.iter().all(|(key, _)| key == key::NAME)
}

/// Whether something is not found by the tags that it has without these.
pub(crate) fn is_missed(missing: &Tags) -> bool {
    missing.iter().any(|(key, _)| ![key::NAME, key::QUESTDB].contains(&key))
}

/// The part of a serving database that something in EC2 is.
const fn serving_part(role: Role) -> Part {
    match role {
        Role::Instance => Part::Instance,
        Role::SecurityGroup => Part::SecurityGroup,
        Role::Volume | Role::Snapshot => Part::Volume,
    }
}

impl World<'_> {
    fn annotation(&self, key: &str) -> Option<&str> {
        self.resource.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Of a resource without an instruction: what its annotation has to say. Two who write it have no end, and nothing else would be done.
    fn identity(&self) -> Option<String> {
        let plain = self.validated.instruction.is_none() && !self.observed.memory.identity_left;
        plain.then(|| self.validated.subject.database.clone())
    }

    /// Whether the annotation says it: who copies a resource elsewhere takes annotations along, and not the status.
    fn is_named(&self) -> bool {
        self.identity().is_none_or(|identity| self.annotation(names::ADOPTED_ID) == Some(identity.as_str()))
    }

    fn is_held(&self) -> bool {
        crate::is_held(self.resource)
    }
}
