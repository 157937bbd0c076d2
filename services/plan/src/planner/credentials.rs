//! Credentials: drawn once and kept, or taken over from the Secrets that hold them.
//!
//! The operator's own Secret is what the pod sees, and QuestDB reads it when it starts. So other values are written only when
//! the restart that they need has been told and can be had: until then the old ones are both what is written and what is in
//! force. What a running QuestDB could be made to read again without a restart would be decided here.

use k8s_openapi::api::core::v1::{Node, Pod, Secret};

use super::World;
use super::existing::living;
use super::reach::leaving_node;
use super::workload::put_off;
use crate::beside::{is_owned, refers};
use crate::change::{is_told, keyring_of_pod};
use crate::few::few;
use crate::identity::goes_with;
use crate::matches::covers;
use crate::secrets::{Cause, NewCredentials, Revision, Taking};
use crate::{Action, Goal, Manifest, Part, Plan, State, Step, Subject, Validated, build};
use resources::names;
use serde_json::{Value, json};

/// The keys that a Secret must have.
const KEYS: [&str; 4] = [
    names::secret::PG_USER,
    names::secret::PG_PASSWORD,
    names::secret::HTTP_USER,
    names::secret::HTTP_PASSWORD,
];

/// What is said of credentials that wait for a key.
const AWAIT_KEY: &str = "a key is being drawn first";

/// Whether a plan says so.
pub(crate) fn await_key(plan: &Plan) -> bool {
    matches!(plan.state(Part::Credentials), Some(State::Running(text)) if text == AWAIT_KEY)
}

/// Whether a pod may be made with what is there.
pub(super) fn keep(world: &World<'_>, plan: &mut Plan) -> bool {
    plan.problems = world.choice.told();
    if !drawn(world, plan) {
        return false;
    }
    draw(world, plan);
    if plan.actions.iter().any(are_marks) && world.choice.taking.says_again() {
        // Each is written over the version that was seen, and the first makes another one of it.
        plan.wait(
            Part::Credentials,
            "what the Secret with the credentials is known by is being written again",
        );
        // What is only noted changes no value.
        return world.choice.put_right().is_none();
    }
    let done = take(world, plan);
    if done {
        plan.say(Part::Credentials, State::Done);
    }
    done
}

/// Whether this plan writes what the Secret lacks, or from whom it is taken.
fn is_written(plan: &Plan) -> bool {
    plan.actions.iter().any(|action| match action.step {
        Step::CreateSecret(_) => !are_marks(action),
        Step::KeepSecret(_) => true,
        _ => false,
    })
}

/// Whether it is only written what the Secret is known by, which somebody took off.
fn are_marks(action: &Action) -> bool {
    action.puts_right && matches!(action.step, Step::CreateSecret(_))
}

/// Writes what people ask for into the Secret. It waits for nobody who takes off again and again what the Secret is known by, of which
/// the next plan takes care: both would be written over the version that was seen.
fn write(plan: &mut Plan, new: &NewCredentials, reason: &str) {
    plan.actions.retain(|action| !are_marks(action));
    plan.act(Part::Credentials, Step::SetCredentials(Box::new(new.clone())), reason);
}

/// What the Secret is known by, and what is only noted in it, is written after all else, unless its values have to be put right: QuestDB
/// finds them without that, so nothing waits where somebody fights over it, or it cannot be written.
pub(super) fn values_first(world: &World<'_>, plan: &mut Plan) {
    let is_last = |action: &Action| match &world.choice.taking {
        Taking::PutRight(_) => false,
        Taking::Note(_) => are_marks(action) || matches!(action.step, Step::SetCredentials(_)),
        Taking::Nothing | Taking::Unread | Taking::Keep(_) | Taking::Renewal(_) => are_marks(action),
    };
    if let Some(place) = plan.actions.iter().position(is_last) {
        let last = plan.actions.remove(place);
        plan.actions.push(last);
    }
}

/// What is taken over; whether a pod may be made with what is there.
fn take(world: &World<'_>, plan: &mut Plan) -> bool {
    let awaits_keys = world.choice.awaits_keys(world.observed);
    match &world.choice.taking {
        Taking::Nothing if awaits_keys && world.observed.children.pod.is_none() => {
            plan.wait(Part::Credentials, AWAIT_KEY);
            false
        }
        Taking::Nothing => true,
        Taking::Unread => {
            let what =
                if awaits_keys { AWAIT_KEY } else { "the Secrets with the credentials are being read" };
            plan.wait(Part::Credentials, what);
            false
        }
        Taking::PutRight(new) => {
            put_right(plan, new);
            true
        }
        Taking::Keep(new) => {
            for secret in &world.choice.revoked {
                let reason = "nobody asks for the key any more that was handed out in it";
                plan.act(Part::Credentials, Step::Delete(secret.clone()), reason);
            }
            for id in &world.choice.abandoned {
                let key = build::drawn_key(&world.validated.subject, id);
                let reason = format!("nobody asks any more for the key {id}, which may have been drawn");
                plan.act(Part::Credentials, Step::RevokeKey(key), reason);
            }
            let reason = "what is drawn is noted before, so that somebody knows of it, and after, because its private half may be \
                          gone any time";
            write(plan, new, reason);
            plan.wait(Part::Credentials, "which keys are drawn is being noted");
            false
        }
        Taking::Note(new) => {
            note(plan, new);
            true
        }
        Taking::Renewal(new) => {
            match &world.observed.children.pod {
                None => renew(plan, new),
                Some(pod) => plan.wait(Part::Credentials, waiting_for(world, pod)),
            }
            false
        }
    }
}

/// What somebody changed is written as it was: QuestDB runs with that, or is started with it. One that was started with what somebody
/// wrote is restarted once another revision is written, as for any other values.
fn put_right(plan: &mut Plan, new: &NewCredentials) {
    let keys: Vec<&str> = new.values.keys().copied().collect();
    let what = if keys.is_empty() { "the revision".to_owned() } else { few(&keys, ", ") };
    let restart = match new.revision {
        Revision::Another => "; QuestDB was started with that, and is restarted for it",
        Revision::Same(_) => "",
    };
    let reason = format!(
        "somebody changed {what} in the Secret with the credentials, which is written again{restart}"
    );
    plan.put_right(Part::Credentials, Step::SetCredentials(Box::new(new.clone())), reason);
    plan.wait(Part::Credentials, "what somebody changed in the Secret is being put right");
}

/// Values stay, and what is said of them changes.
fn note(plan: &mut Plan, new: &NewCredentials) {
    let step = Step::SetCredentials(Box::new(new.clone()));
    match new.cause {
        Cause::Given => {
            let reason =
                "other Secrets were read, or other versions of them, and the same values are in force";
            plan.act(Part::Credentials, step, reason);
            plan.wait(Part::Credentials, "where the credentials come from is being noted");
        }
        Cause::Unheld => {
            let reason = "the Secret has no copy of what it holds, by which that could be put right";
            plan.act(Part::Credentials, step, reason);
            plan.wait(Part::Credentials, "the credentials are being copied within their Secret");
        }
        Cause::Changed => {
            let reason = "somebody changed the copy of the credentials, by which they are put right";
            plan.put_right(Part::Credentials, step, reason);
            plan.wait(Part::Credentials, "the credentials are being copied within their Secret");
        }
    }
}

/// Keys that are asked for and that nobody has.
fn draw(world: &World<'_>, plan: &mut Plan) {
    for id in &world.choice.draws {
        let key = build::drawn_key(&world.validated.subject, id);
        let reason = format!("nobody has drawn the key {id} yet");
        plan.act(Part::Keys, Step::DrawKey(key, id.clone()), reason);
        plan.wait(Part::Keys, "a key is being drawn");
    }
}

/// Credentials that nobody gave are drawn; whether all that a database cannot be without are there.
fn drawn(world: &World<'_>, plan: &mut Plan) -> bool {
    let mut intended = build::secret(&world.validated.subject);
    let Some(secret) = &world.observed.children.secret else {
        plan.act(Part::Credentials, Step::CreateSecret(intended), "nobody can log in yet");
        plan.wait(Part::Credentials, "credentials are being made");
        return false;
    };
    let is_kept = is_left_alone(secret, &world.validated.subject.uid);
    if is_kept && living(&world.observed.account.volumes).next().is_none() {
        plan.wait(Part::Credentials, "the disk that they were kept beside is missing");
        return false;
    }
    if free(world, plan) {
        plan.wait(Part::Credentials, "the credentials are being taken from their resource");
        return false;
    }
    let has = |key: &&str| secret.data.as_ref().is_some_and(|data| data.contains_key(*key));
    intended.uid.clone_from(&secret.metadata.uid);
    // What was taken out is put right by who knows it.
    if KEYS.iter().all(has) || world.choice.put_right().is_some() {
        let found = serde_json::to_value(&secret.metadata).unwrap_or_default();
        if !covers(&found, &intended.body["metadata"]) {
            let reason = "somebody took off by what the Secret is known to be of this database";
            plan.put_right(Part::Credentials, Step::CreateSecret(intended), reason);
        }
        return true;
    }
    plan.act(Part::Credentials, Step::CreateSecret(intended), "the Secret lacks some of its keys");
    plan.wait(Part::Credentials, "missing credentials are being made");
    false
}

/// Whether a Secret goes neither with the resource of this uid nor with anything else, as one that was kept beside a disk, until
/// somebody returns to that; or went with a resource that is not there any more.
pub(super) fn is_left_alone(secret: &Secret, uid: &str) -> bool {
    let metadata = &secret.metadata;
    metadata.owner_references.as_ref().is_none_or(Vec::is_empty) && !goes_with(metadata, uid)
}

/// Whether the Secret stays although its resource goes: without it nobody could log in again to what its disk holds.
pub(super) fn stay(world: &World<'_>) -> bool {
    let Validated { goal, removing, .. } = world.validated;
    *goal == Goal::Retire && *removing && living(&world.observed.account.volumes).next().is_some()
}

/// Lets the Secret go with no resource any more; nothing where that is done. Then it is known by its labels alone, so they are
/// written too. Whoever returns to the disk takes it over ([`drawn`]).
pub(super) fn disown(world: &World<'_>) -> Option<Step> {
    let secret = world.observed.children.secret.as_deref()?;
    let subject = &world.validated.subject;
    if !is_owned(&secret.metadata, &subject.uid) {
        return None;
    }
    let mut kept = without_owner(subject, secret);
    kept.body["metadata"]["annotations"][names::RESOURCE] = Value::Null;
    Some(Step::KeepSecret(kept))
}

/// Takes off the reference that older operators gave the Secret: by that Kubernetes would take it away as soon as its resource is
/// deleted in the foreground, before anybody can say that it stays. Whether there is one.
pub(super) fn free(world: &World<'_>, plan: &mut Plan) -> bool {
    let subject = &world.validated.subject;
    let secret = world.observed.children.secret.as_deref();
    let secret = secret.filter(|secret| refers(&secret.metadata, &subject.uid));
    if let Some(secret) = secret {
        let reason = "Kubernetes would not wait for the operator before it takes the credentials away";
        plan.act(Part::Credentials, Step::KeepSecret(without_owner(subject, secret)), reason);
    }
    secret.is_some()
}

/// What the Secret is known by, over the version that was seen, and without its resource as its owner.
fn without_owner(subject: &Subject, secret: &Secret) -> Manifest {
    let owners = secret.metadata.owner_references.iter().flatten();
    let others: Vec<_> = owners.filter(|owner| owner.uid != subject.uid).collect();
    let mut kept = build::secret(subject);
    kept.uid.clone_from(&secret.metadata.uid);
    kept.body["metadata"]["ownerReferences"] = json!(others);
    kept.body["metadata"]["resourceVersion"] = json!(secret.metadata.resource_version);
    kept
}

/// Writes other values, unless this plan writes into the Secret what comes first. *Invariant:* while there is a pod, only where its
/// restart is decided ([`super::workload`]), so that nothing that puts the restart off comes between.
pub(super) fn renew(plan: &mut Plan, new: &NewCredentials) {
    if is_written(plan) {
        return;
    }
    write(plan, new, "other credentials are given than are in force");
    plan.wait(Part::Credentials, "other credentials are being written");
}

/// What other values wait for, as long as QuestDB runs.
fn waiting_for(world: &World<'_>, pod: &Pod) -> &'static str {
    if pod.metadata.deletion_timestamp.is_some() {
        "waiting for QuestDB to stop before its credentials change"
    } else if !is_told(world) {
        "the restart that other credentials need is being announced in status"
    } else if leaving_node(world.resource, world.observed).is_some() {
        "other credentials wait: the Node is cordoned, and QuestDB would not start again on it"
    } else {
        "other credentials are written with the restart that they need"
    }
}

/// Whether other values are written than QuestDB read when it started.
pub(super) fn are_ahead(world: &World<'_>) -> bool {
    let written = &world.validated.keyring.revision;
    let read = world.observed.children.pod.as_deref().and_then(keyring_of_pod);
    written.is_some() && read.is_some_and(|read| read.revision != *written)
}

/// That nobody comes in with what is written, as long as QuestDB, which read other values, cannot be started again on a Node.
pub(super) fn locked_out(world: &World<'_>, node: &Node) -> Option<String> {
    let pod = world.observed.children.pod.as_deref().filter(|_| are_ahead(world))?;
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let obstacle = put_off(world, pod, node)?;
    let secret = names::credentials(&world.validated.subject.name);
    let cure = leaving_node(world.resource, world.observed).map_or_else(String::new, |node| {
        format!("; uncordon Node {node}, or see to what keeps the database from its next machine (condition Moving)")
    });
    Some(format!(
        "QuestDB was started with other values than Secret {secret} has, so who reads them there does not come in: {obstacle}{cure}"
    ))
}
