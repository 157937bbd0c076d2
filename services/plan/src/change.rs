//! What a change of the spec takes, told before it is done: the one place that classifies every field.
//!
//! What runs is read off the world (machine, disk, records, what the pod says of itself), never off an earlier spec: a
//! change that was taken back, or made by hand, is judged by where things are.
//!
//! *Invariant:* nobody is restarted unannounced: a pod is replaced only when every reason for it stands in status
//! ([`is_told`]).

mod reload;
mod running;

use cloud::VolumeChange;
use k8s_openapi::api::core::v1::Pod;
use resources::{ChangeMeans, PendingStatus, QuestDB};

use crate::planner::{Reason, World, is_named, other_name, reasons, volume_change, volume_words};
use crate::references::written_since;
use crate::secrets::{Choice, Taking};
use crate::{Goal, Kind, Part, Plan, State, Step, Validated, is_suspended, pod_serves, serving};

pub use reload::{Reload, Setting};

pub(crate) use reload::{is_being_told, last_attempt, reload};
pub(crate) use running::{
    Running, field_of, image_of_pod, image_of_template, is_stranded, keyring_of_pod, keyring_of_template,
    restart_in_force, takes_host_ports, template_digest,
};

/// The field by which ways in through a proxy are told.
const INGRESS: &str = "/spec/network/ingress";

/// A difference between what is asked for and what is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// Field of the resource, as a JSON pointer.
    pub field: String,
    /// What it takes.
    pub means: ChangeMeans,
    /// What happens, or why nothing does.
    pub why: String,
}

impl Change {
    pub(crate) fn new(field: impl Into<String>, means: ChangeMeans, why: impl Into<String>) -> Self {
        Self { field: field.into(), means, why: why.into() }
    }

    fn online(field: &str, why: &str) -> Self {
        Self::new(field, ChangeMeans::Online, why)
    }
}

/// Everything that is still to be done to a database that runs, by field. Of one that is being made all of it is, and
/// progress tells.
pub(crate) fn changes(world: &World<'_>, plan: &Plan) -> Vec<Change> {
    let children = &world.observed.children;
    if world.validated.goal != Goal::Serve {
        let runs = children.stateful_set.is_some() || children.pod.is_some();
        return runs.then(|| stop(world.validated)).into_iter().collect();
    }
    if children.pod.is_none() {
        return Vec::new();
    }
    let mut changes = machine(world);
    changes.extend(disk(world));
    changes.extend(name(world, plan));
    changes.extend(unasked(world, plan).unwrap_or_else(|| restarts(world)));
    changes.extend(left_out(world, plan));
    changes.extend(refused(world.choice));
    changes.extend(world.upgrade.change.clone());
    changes.extend(plan.actions.iter().filter_map(|action| of_step(&action.step)));
    changes.sort();
    changes.dedup_by(|one, other| one.field == other.field && one.means == other.means);
    changes
}

/// What QuestDB is to be asked about once more before its restart is told, where nobody asks it in this pass: it may have been
/// silent for no longer than nobody spoke to it.
fn unasked(world: &World<'_>, plan: &Plan) -> Option<Vec<Change>> {
    let pod = world.observed.children.pod.as_deref();
    let reload = last_attempt(world).filter(|_| pod.is_some_and(pod_serves))?;
    let is_asked = plan.actions.iter().any(|action| matches!(action.step, Step::Reload(_)));
    let is_asked = is_asked && !is_suspended(world.resource);
    (!is_asked).then(|| reload.settings.iter().map(Setting::change).collect())
}

/// Why the pod has to be replaced; empty while it runs what is asked for.
fn restarts(world: &World<'_>) -> Vec<Change> {
    let Some(pod) = &world.observed.children.pod else { return Vec::new() };
    if let Some(reload) = reload(world) {
        return reload.settings.iter().map(Setting::change).collect();
    }
    let annotations = pod.metadata.annotations.as_ref();
    let mut changes = match Running::read(annotations) {
        Some(running) => Running::of(world.validated).differences(&running),
        None => Vec::new(),
    };
    if matches!(world.choice.taking, Taking::Renewal(_) | Taking::Unread) {
        let why = "other credentials are given than are in force, and QuestDB reads them when it starts";
        changes.push(Change::new(running::CREDENTIALS, ChangeMeans::Restart, why));
        changes.dedup_by(|one, other| one.field == other.field);
    }
    let template = running::of_template(world.observed.children.stateful_set.as_deref());
    if changes.is_empty() && running::differs(annotations, template, resources::names::CHECKSUM) {
        changes.push(Change::new(
            "/spec",
            ChangeMeans::Restart,
            "QuestDB runs under an older configuration or machine",
        ));
    }
    if changes.is_empty() && is_stranded(world.observed.children.stateful_set.as_deref(), pod) {
        let why = "its image is waited for, and pods are made in another way by now, from another repository or with other Secrets";
        changes.push(Change::new("/spec/image", ChangeMeans::Restart, why));
    }
    if changes.is_empty() {
        changes.extend(read_anew(world.validated, annotations, template));
    }
    if changes.is_empty() && running::differs(annotations, template, resources::names::TEMPLATE) {
        let why = "the operator makes pods in another way by now: it takes effect with the next restart, which nothing asks for";
        changes.push(Change::new("/spec", ChangeMeans::Restart, why));
    }
    changes
}

/// Keys of server.conf that are asked for and left out.
fn left_out(world: &World<'_>, plan: &Plan) -> Vec<Change> {
    let Some(State::Refused(why)) = plan.state(Part::Config) else { return Vec::new() };
    let keys = world.resource.spec.config.keys();
    let left_out = keys.filter(|key| !world.validated.config.contains_key(*key));
    left_out.map(|key| Change::new(field_of(key), ChangeMeans::Refused, why)).collect()
}

/// Credentials that are not taken over, and a way to a port that is shut without any: nothing waits for them, and no part of the progress
/// tells of them.
fn refused(choice: &Choice) -> impl Iterator<Item = Change> {
    let way = choice.shut.clone().map(|why| (INGRESS, why));
    let given = choice.refused().map(|why| (running::CREDENTIALS, why));
    way.into_iter().chain(given).map(|(field, why)| Change::new(field, ChangeMeans::Refused, why))
}

/// What a pod would read otherwise if it were made now, which nobody asks for.
fn read_anew(
    validated: &Validated,
    pod: running::Annotations<'_>,
    template: running::Annotations<'_>,
) -> Option<Change> {
    let of =
        |annotations: running::Annotations<'_>| annotations?.get(resources::names::READ_AT_START).cloned();
    let (field, written) = written_since(validated, &of(pod)?, &of(template)?)?;
    let why = format!(
        "{written} was written after the pod was made: a variable that is read from it has its new value from the next \
         restart on, which nothing asks for"
    );
    Some(Change::new(field, ChangeMeans::Restart, why))
}

/// An annotation of the template that is there now.
pub(crate) fn annotation_of_template(world: &World<'_>, key: &str) -> Option<String> {
    running::of_template(world.observed.children.stateful_set.as_deref())?.get(key).cloned()
}

/// Whether a pod is to be restarted for anything else than another image.
pub(crate) fn has_other_restarts(validated: &Validated, choice: &Choice, pod: &Pod) -> bool {
    let with_the_image = ["/spec/version", "/spec/restartNonce"];
    let running = Running::read(pod.metadata.annotations.as_ref());
    let mut differences = running.iter().flat_map(|running| Running::of(validated).differences(running));
    matches!(choice.taking, Taking::Renewal(_))
        || differences.any(|change| !with_the_image.contains(&change.field.as_str()))
}

/// What status says of a change of a field by these means.
pub(crate) fn told<'a>(resource: &'a QuestDB, field: &str, means: ChangeMeans) -> Option<&'a PendingStatus> {
    let mut pending = resource.status.iter().flat_map(|status| &status.pending);
    pending.find(|found| found.field == field && found.means == means)
}

/// Whether status says every reason for which the pod is about to be replaced.
pub(crate) fn is_told(world: &World<'_>) -> bool {
    let is_told = |change: &Change| told(world.resource, &change.field, ChangeMeans::Restart).is_some();
    restarts(world).iter().all(is_told)
}

fn stop(validated: &Validated) -> Change {
    let why = match validated.goal {
        Goal::Pause => "QuestDB stops and its machine goes; disk and name stay",
        Goal::Retire => "QuestDB stops, its machine goes and its name is given back; the disk stays",
        Goal::Purge if validated.keeps_copy() => {
            "QuestDB stops, its machine and its name go, and the disk is destroyed once a last copy of it is complete"
        }
        Goal::Purge => "QuestDB stops, and machine, name and disk are destroyed",
        Goal::Serve => "",
    };
    Change::new("/spec/runState", ChangeMeans::Stop, why)
}

fn machine(world: &World<'_>) -> Vec<Change> {
    let Some(instance) = serving(world.resource, world.observed) else { return Vec::new() };
    let reasons = reasons(world, instance);
    let mut changes: Vec<Change> = reasons.iter().map(moved).collect();
    let named = world.resource.spec.compute.node_image.is_some();
    if !named && instance.image != world.validated.node_image {
        let why = "the cluster has another machine image by now: the next machine is made from it, which nothing asks for";
        changes.push(Change::new("/spec/compute/nodeImage", ChangeMeans::Move, why));
    }
    changes
}

/// What needs another machine.
fn moved(reason: &Reason) -> Change {
    let why = format!(
        "{}: another machine is made ready, then QuestDB stops, its disk goes there, and it starts again",
        reason.why
    );
    Change::new(reason.field, ChangeMeans::Move, why)
}

/// Whether status says every reason for which the database is about to move. Where no pod runs, nobody has to be told.
pub(crate) fn is_move_told(world: &World<'_>) -> bool {
    if world.observed.children.pod.is_none() {
        return true;
    }
    let is_told = |change: &Change| told(world.resource, &change.field, ChangeMeans::Move).is_some();
    machine(world).iter().all(is_told)
}

fn disk(world: &World<'_>) -> Vec<Change> {
    let mut volumes = crate::planner::living(&world.observed.account.volumes);
    let Some(volume) = volumes.next() else { return Vec::new() };
    let change = volume_change(world.validated, volume);
    // Another type is asked for with what stays of the former as well.
    let other = VolumeChange {
        iops: change.iops.filter(|_| change.iops != volume.iops),
        throughput: change.throughput.filter(|_| change.throughput != volume.throughput),
        ..change
    };
    let online = |(field, words): (&str, String)| {
        let why = format!("EC2 changes the disk to {words} while QuestDB serves");
        Change::online(&format!("/spec/storage/{field}"), &why)
    };
    volume_words(&other).map(online).collect()
}

fn name(world: &World<'_>, plan: &Plan) -> Option<Change> {
    if world.validated.goal == Goal::Serve && !is_named(world.validated, &world.observed.children) {
        // It is to have none: the one in force is given back, and none takes its place.
        return None;
    }
    let in_force = other_name(world)?;
    let field = "/spec/network/hostname";
    if let Some(State::Refused(why)) = plan.state(Part::Rename) {
        return Some(Change::new(field, ChangeMeans::Refused, why));
    }
    let hostname = &world.validated.hostname;
    let why = format!("{hostname} is added and takes the place of {in_force}, which is given back then");
    Some(Change::new(field, ChangeMeans::Online, why))
}

/// What is done to objects beside the pod.
fn of_step(step: &Step) -> Option<Change> {
    match step {
        Step::AuthorizeIngress { .. } | Step::RevokeIngress { .. } => {
            Some(Change::online("/spec/network/allowedCidrs", "the firewall changes while QuestDB serves"))
        }
        Step::Apply(manifest) => of_kind(manifest.kind),
        Step::Delete(target) => of_kind(target.kind),
        _ => None,
    }
}

fn of_kind(kind: Kind) -> Option<Change> {
    let field = match kind {
        Kind::Service => "/spec/network/service",
        Kind::NetworkPolicy => "/spec/network/networkPolicy",
        Kind::PodDisruptionBudget => "/spec/network/disruptionBudget",
        Kind::ServiceMonitor | Kind::PodMonitor => "/spec/network/monitor",
        Kind::IngressRoute | Kind::IngressRouteTcp => INGRESS,
        // What the pod reads only when it starts, and what stands for machine and disk.
        Kind::Secret
        | Kind::ConfigMap
        | Kind::StatefulSet
        | Kind::Pod
        | Kind::PersistentVolume
        | Kind::PersistentVolumeClaim
        | Kind::Node
        | Kind::Snapshot => return None,
    };
    Some(Change::online(field, "the object is changed while QuestDB serves"))
}

/// The same for status, with the times of before, where the same was asked for.
pub(crate) fn pending(resource: &QuestDB, changes: Vec<Change>, now: jiff::Timestamp) -> Vec<PendingStatus> {
    let since = |change: &Change| {
        let known = told(resource, &change.field, change.means).filter(|known| is_of(known, change));
        known.map_or(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now), |known| known.since.clone())
    };
    let status = |change: Change| PendingStatus {
        since: since(&change),
        field: change.field,
        means: change.means,
        why: change.why,
    };
    changes.into_iter().take(MOST).map(status).collect()
}

/// Whether what was told is of the same wish. A move, and what is changed while QuestDB serves, is told by what is asked for; others
/// are told in words that may change on the way.
fn is_of(known: &PendingStatus, change: &Change) -> bool {
    match change.means {
        ChangeMeans::Online | ChangeMeans::Move => known.why == change.why,
        ChangeMeans::Restart | ChangeMeans::Stop | ChangeMeans::Refused => true,
    }
}

/// Most changes in a status: as many as server.conf may have keys, and the others.
const MOST: usize = 256;
