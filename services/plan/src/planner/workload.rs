//! What runs on the machine: configuration, Services, the StatefulSet and its pod.

use std::borrow::Cow;
use std::sync::Arc;

use cloud::AttachmentState;
use domain::catalogue::InstanceType;
use k8s_openapi::api::core::v1::{Node, Pod};
use resources::names;

use super::World;
use super::child::{ensure, lost_labels};
use super::{emptied, going, home, misplaced, ready, shut_out, source, unbegun, unmade, version};
use crate::change::{image_of_template, is_being_told, is_stranded, is_told, last_attempt, reload};
use crate::few::few;
use crate::secrets::Taking;
use crate::{Kind, Observed, Part, Plan, State, Step, Target, Validated, build, overrides, pod, references};

/// server.conf and Services; whether a pod may be started with what there is. A Service that stands leads clients to it, however it is to
/// be changed.
pub(super) fn config(world: &World<'_>, plan: &mut Plan) -> bool {
    let (known, children) = (&world.observed.memory.agreed, &world.observed.children);
    let config = build::config_map(world.validated);
    let is_written = ensure(known, plan, Part::Config, config, children.config.as_deref());
    let services = [
        (build::headless(world.validated), children.headless.as_deref()),
        (build::service(world.validated), children.service.as_deref()),
    ];
    let stand = services.each_ref().map(|(_, found)| found.is_some());
    let done = services.map(|(service, found)| {
        let part = if found.is_some() { Part::Reach } else { Part::Config };
        ensure(known, plan, part, service, found)
    });
    let is_done = is_written && stand == [true; 2];
    if is_done {
        plan.say(Part::Config, State::Done);
    } else {
        plan.wait(Part::Config, "configuration and Services are being written");
    }
    if stand.into_iter().zip(done).any(|(stands, done)| stands && !done) {
        plan.wait(Part::Reach, "a Service is being changed");
    }
    is_done
}

/// StatefulSet, disk on machine, and pod; whether the pod serves what is asked for. While it waits for a move, one that
/// serves is left as it is.
pub(super) fn pod(world: &World<'_>, plan: &mut Plan, node: &Arc<Node>, waits: bool) -> bool {
    unmade::tell_if_held(world, plan);
    let pod = world.observed.children.pod.as_deref();
    let at_home = pod.is_some_and(|pod| is_on(pod, node));
    // What would not fit is not written either: the next pod would not start, whatever ends this one.
    let cramped = is_cramped(world, node);
    if (waits || cramped)
        && at_home
        && pod_is_ready(world.observed)
        && world.observed.children.stateful_set.is_some()
    {
        version::note(world, plan, false);
        attachment(world, plan, node);
        plan.say(Part::Pod, State::Done);
        return true;
    }
    let labels = node.metadata.labels.as_ref();
    let Some(value) = labels.and_then(|labels| labels.get(names::LABEL_NODE)) else { return false };
    let observed = world.observed.children.stateful_set.as_deref();
    let takes_back = cramped && takes_back(world);
    let mut fitted = fitted(world, node);
    if takes_back {
        // What is beside it comes back with the machine that has room for it: a version that does not start waits for none.
        fitted.overrides.containers.clear();
    }
    let mut intended = build::stateful_set(&fitted, value, source::copied(world).as_ref());
    world.upgrade.write_to(&mut intended);
    if let Some(noted) = references::noted(world) {
        intended.body["spec"]["template"]["metadata"]["annotations"][names::READ_AT_START] = noted.into();
    }
    let stays = cramped && !takes_back && home::pinned(world.observed).as_ref() == Some(value);
    version::note(world, plan, !stays);
    let applied = stays || emptied::ensure(world, plan, intended, observed);
    if !applied {
        hold_to_what_was_seen(world, plan, value);
    }
    attachment(world, plan, node);
    if !applied {
        plan.wait(Part::Pod, "the StatefulSet is being written");
        return false;
    }
    let Some(pod) = &world.observed.children.pod else {
        plan.wait(Part::Pod, unmade::text(world));
        return false;
    };
    if lost_labels(world, plan, pod) {
        return false;
    }
    let checksum = build::checksum(world.validated, value);
    // A pod that only has to read again what it can serves as it is.
    let reload = reload(world).filter(|_| at_home);
    let is_current = (reload.is_some() || is_current(pod, &checksum)) && !is_stranded(observed, pod);
    restart(world, plan, (pod, is_current), node);
    let reload = if is_current { reload } else { last_attempt(world).filter(|_| at_home) };
    if let Some(reload) = reload.filter(|_| pod_is_ready(world.observed)) {
        let reason = "QuestDB takes other values of these keys over while it serves";
        plan.act(Part::Reload, Step::Reload(reload), reason);
        plan.wait(Part::Reload, "QuestDB is being told to read server.conf again");
    }
    is_current && judge(world, plan, pod, node)
}

/// The way to another version, before the pod is touched for it.
pub(super) fn upgrade(world: &World<'_>, plan: &mut Plan, node: &Node, prepares: bool) {
    if prepares && world.upgrade.copy.is_some() {
        plan.wait(Part::Upgrade, "waiting for the next machine before the disk is copied");
        return;
    }
    // Nor one that would be old when the restart can be made. A next machine that waits for it is no reason to wait.
    let pod = world.observed.children.pod.as_deref().filter(|_| !super::moving::awaits_version(plan));
    if world.upgrade.copy.is_some()
        && let Some(obstacle) = pod.and_then(|pod| obstacle(world, pod, node))
    {
        plan.wait(Part::Upgrade, obstacle);
        return;
    }
    // A copy is taken by who knows the password: not between its writing and the restart.
    if let Some(copy) = world.upgrade.copy.as_ref().filter(|_| !super::credentials::are_ahead(world)) {
        let reason = "nothing is started on data that no copy was made of";
        plan.act(Part::Upgrade, Step::Apply(copy.clone()), reason);
    }
    told(world, plan);
}

/// How far the way to another version is, whatever else there is to do.
pub(super) fn told(world: &World<'_>, plan: &mut Plan) {
    if let Some(state) = &world.upgrade.state {
        plan.say(Part::Upgrade, state.clone());
    }
}

/// What the StatefulSet is to be from now on is written only over the very one that it was decided on: where the database is, which image
/// is in force and what else is kept is read off it, and a look that is behind would take back what was written since. Where it only
/// becomes again what it was, its controller, which says all the time how far the pod is, is not waited for: unless the image, or the word
/// on it, is another, or the database may have moved on from there.
fn hold_to_what_was_seen(world: &World<'_>, plan: &mut Plan, pin: &str) {
    let Some(set) = world.observed.children.stateful_set.as_deref() else { return };
    let annotations = set.metadata.annotations.as_ref();
    let written = annotations.and_then(|annotations| annotations.get(names::UPGRADE).cloned());
    let image = image_of_template(Some(set));
    let same = written == world.upgrade.text() && image.is_none_or(|image| image == world.upgrade.image);
    let stays = same && !home::has_younger(world, names::generation_of_node(pin));
    let Some(action) = plan.actions.last_mut() else { return };
    if !(action.puts_right && stays)
        && let Some(version) = &set.metadata.resource_version
        && let Step::Apply(manifest) = &mut action.step
    {
        manifest.body["metadata"]["resourceVersion"] = version.as_str().into();
    }
}

/// The wish as far as the machine that is there can carry it: a pod that asks for more would never be scheduled again.
fn fitted(world: &World<'_>, node: &Node) -> Validated {
    Validated { instance_type: type_of_machine(world, node).clone(), ..world.validated.clone() }
}

/// The type of the machine that is there, where it is known, or else the one that is asked for.
fn type_of_machine<'a>(world: &World<'a>, node: &Node) -> &'a InstanceType {
    let World { observed, settings, validated, .. } = *world;
    let instance = observed.account.instances.iter().find(|instance| super::machine::is_of(node, instance));
    let known = instance.and_then(|instance| settings.instance_types.known(&instance.instance_type));
    known.unwrap_or(&validated.instance_type)
}

/// Whether the template has a version that was taken back.
fn takes_back(world: &World<'_>) -> bool {
    let template = image_of_template(world.observed.children.stateful_set.as_deref());
    template.is_some_and(|image| world.upgrade.has_taken_back(&image))
}

/// Whether a machine has no room for what is asked for beside QuestDB.
fn is_cramped(world: &World<'_>, node: &Node) -> bool {
    !overrides::fit(&world.validated.overrides, type_of_machine(world, node))
}

pub(super) fn target(pod: &Pod) -> Target {
    Target::of(Kind::Pod, &pod.metadata)
}

/// Whether the pod answers its probes: before that nobody is sent to it.
pub fn pod_is_ready(observed: &Observed) -> bool {
    observed.children.pod.as_deref().is_some_and(pod_serves)
}

/// The same of a pod.
pub fn pod_serves(pod: &Pod) -> bool {
    pod::is(pod, "Ready")
}

/// Whether a pod is on a Node.
pub(crate) fn is_on(pod: &Pod, node: &Node) -> bool {
    let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    on.is_some() && on == node.metadata.name.as_ref()
}

fn is_current(pod: &Pod, checksum: &str) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    pod.metadata.deletion_timestamp.is_none()
        && annotations
            .and_then(|annotations| annotations.get(names::CHECKSUM))
            .is_some_and(|found| found == checksum)
}

fn judge(world: &World<'_>, plan: &mut Plan, pod: &Pod, node: &Node) -> bool {
    if pod::is(pod, "Ready") {
        plan.say(Part::Pod, State::Done);
        return true;
    }
    if let Some(state) = shut_out::by_taint(world, node) {
        plan.say(Part::Pod, state);
        return false;
    }
    if emptied::holds_up(world, plan, pod) || misplaced::holds_up(world, plan, pod) {
        return false;
    }
    let missing = references::missing(world.validated, world.observed);
    let stuck = || {
        let version = crate::upgrade::stuck(world.observed, world.upgrade, pod).map(State::Broken);
        version.or_else(|| unbegun::state(world, plan, pod, node))
    };
    if let Some(state) = missing.is_empty().then(stuck).flatten() {
        plan.say(Part::Pod, state);
        return false;
    }
    let missing = if missing.is_empty() { String::new() } else { format!("; {}", few(&missing, "; ")) };
    plan.wait(Part::Pod, pod::awaited(pod) + &missing);
    false
}

/// A pod that runs something older is restarted, and one for which other credentials are given is prepared for it: they are
/// written first, because they make it older.
fn restart(world: &World<'_>, plan: &mut Plan, (pod, is_current): (&Pod, bool), node: &Node) {
    let renewal = match &world.choice.taking {
        Taking::Renewal(new) => Some(new),
        Taking::PutRight(_) | Taking::Keep(_) | Taking::Note(_) | Taking::Nothing | Taking::Unread => None,
    };
    if is_current && renewal.is_none() {
        return;
    }
    let obstacle = obstacle(world, pod, node);
    if is_current {
        match (renewal, obstacle) {
            (Some(_), Some(obstacle)) => plan.explain(Part::Credentials, &obstacle),
            (Some(new), None) => super::credentials::renew(plan, new),
            (None, _) => {}
        }
        return;
    }
    if let Some(obstacle) = obstacle {
        plan.wait(Part::Pod, obstacle);
        return;
    }
    if let Some(new) = renewal {
        super::credentials::renew(plan, new);
        plan.wait(Part::Pod, "the restart waits for the credentials that come with it");
        return;
    }
    let reason = "it runs with an older configuration, version or machine";
    let mut target = target(pod);
    let is_untouched = version::unserved(world).is_some();
    let says_more = is_untouched || world.upgrade.takes_back(pod) || world.upgrade.rests_on(pod);
    if says_more || is_being_told(pod) {
        // One that serves by now, or has answered, says so, and has another version by that.
        target.resource_version.clone_from(&pod.metadata.resource_version);
    }
    plan.act(Part::Pod, Step::Delete(target), reason);
    plan.wait(Part::Pod, "QuestDB is being restarted");
}

/// Why a pod cannot be restarted now.
fn obstacle(world: &World<'_>, pod: &Pod, node: &Node) -> Option<Cow<'static, str>> {
    let stateful_set = world.observed.children.stateful_set.as_deref();
    if pod.metadata.deletion_timestamp.is_some() {
        let held = going::held(world.observed.at, Kind::Pod, &pod.metadata).map(|held| format!("; {held}"));
        Some(format!("waiting for QuestDB to stop{}", held.unwrap_or_default()).into())
    } else if !stateful_set.is_some_and(unmade::is_seen) {
        Some("waiting for the StatefulSet's controller to see the change".into())
    } else if !is_told(world) {
        Some("the restart is being announced in status".into())
    } else if matches!(world.choice.taking, Taking::Keep(_) | Taking::Unread) {
        Some("the restart waits for the credentials that come with it".into())
    } else if world.choice.put_right().is_some() {
        Some("the restart waits until the Secret with the credentials is as it was written".into())
    } else {
        put_off(world, pod, node)
    }
}

/// The same of what may last, until somebody does something about it.
pub(super) fn put_off(world: &World<'_>, pod: &Pod, node: &Node) -> Option<Cow<'static, str>> {
    if unmade::leaving(world).is_some() {
        return Some(
            "the restart waits: the StatefulSet is being removed, and no pod would be made of it".into(),
        );
    }
    kept_away(world, pod, node).map(Cow::from).or_else(|| lacking(world, pod))
}

/// Why a pod would not start on a Node if it were stopped now: what runs is worth more than the change.
fn kept_away(world: &World<'_>, pod: &Pod, node: &Node) -> Option<&'static str> {
    let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    let elsewhere = on.is_some() && on != node.metadata.name.as_ref();
    // A version that was taken back makes room for the one before, whose template fits.
    if is_cramped(world, node) && !world.upgrade.takes_back(pod) {
        Some("the restart waits for a machine with room for the containers beside QuestDB")
    } else if super::reach::is_leaving(node) {
        Some("the restart waits: the Node is cordoned, and QuestDB would not start again on it")
    } else if (elsewhere || pod::is(pod, "Ready")) && ready::repelling(world.validated, node).is_some() {
        Some("the restart waits: a taint keeps QuestDB from starting on its Node")
    } else if elsewhere && !super::machine::is_ready(node) {
        Some("QuestDB runs on where it is until its next Node is ready")
    } else {
        None
    }
}

/// The same for what the next pod names. One whose version is taken back has nothing to lose.
fn lacking(world: &World<'_>, pod: &Pod) -> Option<Cow<'static, str>> {
    let obstacle = references::obstacle(world).filter(|_| !world.upgrade.takes_back(pod))?;
    Some(format!("the restart waits: {obstacle}").into())
}

fn attachment(world: &World<'_>, plan: &mut Plan, node: &Node) {
    let instance =
        world.observed.account.instances.iter().find(|instance| super::machine::is_of(node, instance));
    let attached = |instance: &cloud::Instance| {
        super::existing::living(&world.observed.account.volumes).any(|volume| {
            volume.live_attachments().any(|attachment| {
                attachment.instance == instance.id && attachment.state == AttachmentState::Attached
            })
        })
    };
    if instance.is_some_and(attached) {
        plan.say(Part::Attachment, State::Done);
    } else if unmade::is_missed(world) || shut_out::by_taint(world, node).is_some() {
        // Disks are attached for pods: it is the pod that is waited for.
        plan.say(Part::Attachment, State::Pending);
    } else {
        let mut disks = super::existing::living(&world.observed.account.volumes);
        let text = disks.find_map(|disk| super::disk::on_stranger(world, disk));
        let waits = || super::held::before_it_comes(world, node);
        plan.say(Part::Attachment, text.map_or_else(waits, State::Running));
    }
}
