//! What a database has been given already: a rule that another operator brings is for what is asked for later, and takes no
//! database out of anybody's care.
//!
//! *Invariant:* only what is exactly as it is in force stands against a rule: a key of server.conf, the name that clients know,
//! the type and the image of the machine, and a spec as it was accepted. Whoever changes it is judged anew. So does a zone, which
//! nobody may change, and which counts for nothing once there is a disk.
//! What a pod is made of is known to us by short digests alone, which two texts may share: they say that something changed, and
//! never that something is allowed.

use domain::{Rule, Violation, Violations, catalogue};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use resources::names::{self, condition};
use resources::{NodeStatus, QuestDB, QuestDBSpec};

use crate::Goal;
use crate::change::{Running, field_of};
use crate::report::conditions::INVALID;

/// What a database was started with, or would be by its StatefulSet.
#[derive(Clone, Debug, Default)]
pub struct InForce(Vec<Running>);

impl InForce {
    /// As its objects say it.
    pub fn of(set: Option<&StatefulSet>, pod: Option<&Pod>) -> Self {
        let pod = pod.and_then(|pod| Running::read(pod.metadata.annotations.as_ref()));
        Self(Running::of_template(set).into_iter().chain(pod).collect())
    }

    /// Takes out of what is wrong with a resource what it has all the same, and says it.
    pub(crate) fn pardon(&self, resource: &QuestDB, violations: &mut Violations) -> Vec<String> {
        let stands = |wrong: &Violation| {
            match wrong.pointer.as_str() {
                // It cannot have another.
                NAME => return wrong.rule == Rule::Format && self.is_there(resource),
                HOSTNAME => return keeps_name(resource),
                INGRESS_HOST | IMAGE => return was_accepted(resource),
                NODE_IMAGE => return is_image_of_machine(resource) || was_accepted(resource),
                INSTANCE_TYPE => return is_type_of_machine(resource),
                ZONE => return has_disk(resource) || is_placed(resource) || was_accepted(resource),
                // QuestDB gets what its machine has by now, and the next pod is made with no more.
                RESOURCES | CONTAINERS if wrong.rule == Rule::Range => return was_accepted(resource),
                _ => {}
            }
            let belongs = wrong.rule == Rule::Conflict && is_about_questdb(&wrong.pointer);
            // What we say of a pod is not for others to say, whoever accepted it.
            let is_ours = wrong.pointer.starts_with(ANNOTATIONS) || wrong.pointer.starts_with(LABELS);
            let (spec, pointer) = (&resource.spec, wrong.pointer.as_str());
            let stays =
                || was_accepted(resource) || self.has(spec, pointer) || self.overrules(resource, pointer);
            belongs && !is_ours && stays()
        };
        let (kept, wrong): (Vec<_>, Vec<_>) = std::mem::take(&mut violations.0).into_iter().partition(stands);
        violations.0 = wrong;
        kept.into_iter().map(|kept| format!("{} ({})", kept.pointer, kept.detail)).collect()
    }

    /// Whether what a pointer leads to is a key of server.conf that runs as it is asked for.
    fn has(&self, spec: &QuestDBSpec, pointer: &str) -> bool {
        let key = key_of(spec, pointer);
        key.is_some_and(|(key, value)| self.0.iter().any(|running| running.has_key(key, value)))
    }

    /// Whether it is a key that nobody heeds, of a database that is there: whoever asked for it before it was refused is told so, and
    /// loses nothing. One that is paused is resumed all the same.
    fn overrules(&self, resource: &QuestDB, pointer: &str) -> bool {
        let key = key_of(&resource.spec, pointer);
        let is_overruled =
            |key: &str, value| !catalogue::is_reserved(key) && catalogue::is_overruled(key, value);
        self.is_there(resource) && key.is_some_and(|(key, value)| is_overruled(key, value))
    }

    /// Whether something was made for a resource already: it runs, has a disk, or was given a machine. Its status may be lost.
    fn is_there(&self, resource: &QuestDB) -> bool {
        let annotations = resource.metadata.annotations.as_ref();
        let has_machine = annotations.is_some_and(|found| found.contains_key(names::GENERATION));
        !self.0.is_empty() || has_disk(resource) || has_machine
    }
}

/// The key of server.conf that a pointer leads to, with the value that is asked for.
fn key_of<'a>(spec: &'a QuestDBSpec, pointer: &str) -> Option<(&'a str, &'a str)> {
    let found = spec.config.iter().find(|(key, _)| field_of(key) == pointer);
    found.map(|(key, value)| (key.as_str(), value.as_str()))
}

pub(crate) const NAME: &str = "/metadata/name";
const HOSTNAME: &str = "/spec/network/hostname";
const INGRESS_HOST: &str = "/spec/network/ingress/host";
pub(crate) const IMAGE: &str = "/spec/image";
pub(crate) const INSTANCE_TYPE: &str = "/spec/compute/instanceType";
const NODE_IMAGE: &str = "/spec/compute/nodeImage";
const ZONE: &str = "/spec/zone";
const POD: &str = "/spec/pod/";
const RESOURCES: &str = "/spec/pod/resources";
const CONTAINERS: &str = "/spec/pod/containers";
const ANNOTATIONS: &str = "/spec/pod/annotations";
const LABELS: &str = "/spec/pod/labels";

/// Whether a pointer leads to what QuestDB and its pod are started with, or to what no Service of it is written with.
fn is_about_questdb(pointer: &str) -> bool {
    pointer.starts_with(POD) || pointer.starts_with("/spec/config/") || crate::reach::refuses_service(pointer)
}

/// Whether the name that is asked for is the one that clients know or are about to, or was accepted for a database that runs.
pub(crate) fn keeps_name(resource: &QuestDB) -> bool {
    let Some(wish) = resource.spec.network.hostname.as_deref().map(cloud::normalise_name) else {
        return false;
    };
    let given = resource.status.as_ref().and_then(|status| status.dns.as_ref());
    let is_given = given
        .is_some_and(|given| given.name == wish || given.next.as_ref().is_some_and(|next| next.name == wish));
    // Of one that is paused nothing is looked at before it is accepted.
    is_given || Goal::of(resource) == Goal::Serve && was_accepted(resource)
}

/// Whether its machine was made from the image that is asked for.
fn is_image_of_machine(resource: &QuestDB) -> bool {
    let image = resource.spec.compute.node_image.as_ref();
    image.is_some() && node(resource).is_some_and(|node| node.image.as_ref() == image)
}

/// Whether its machine is of the type that is asked for, or was asked for as such. What that has must be known, though it is on
/// offer no more.
fn is_type_of_machine(resource: &QuestDB) -> bool {
    let wish = &resource.spec.compute.instance_type;
    let is_of_node = node(resource).is_some_and(|node| node.instance_type.as_ref() == Some(wish));
    catalogue::instance_type(wish).is_some() && (is_of_node || was_accepted(resource))
}

/// Whether it has a disk, as far as its report tells: whatever the spec says, the database is in the zone of that, which may have been
/// put in the place of another elsewhere.
fn has_disk(resource: &QuestDB) -> bool {
    resource.status.as_ref().is_some_and(|status| status.volume.is_some())
}

/// Whether its machine is in the zone that it is bound to, or was asked for there: before there is a disk it is to be made there.
fn is_placed(resource: &QuestDB) -> bool {
    let annotations = resource.metadata.annotations.as_ref();
    let asked = annotations.and_then(|annotations| annotations.get(names::LAUNCH_ZONE));
    let placed = node(resource).and_then(|node| node.zone.as_ref());
    resource.spec.zone.as_ref().is_some_and(|zone| [asked, placed].contains(&Some(zone)))
}

fn node(resource: &QuestDB) -> Option<&NodeStatus> {
    resource.status.as_ref()?.node.as_ref()
}

/// Whether this very spec was accepted once, be it by an older operator: whole, or but for a part that is not carried out.
fn was_accepted(resource: &QuestDB) -> bool {
    let conditions = resource.status.iter().flat_map(|status| &status.conditions);
    let mut accepted = conditions.filter(|found| found.type_ == condition::CONFIG_ACCEPTED);
    let generation = resource.metadata.generation;
    accepted.any(|found| {
        let is_accepted = found.status == "True" || found.reason != INVALID;
        is_accepted && generation.is_some() && found.observed_generation == generation
    })
}

#[cfg(test)]
mod tests;
