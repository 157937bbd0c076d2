//! Credentials: drawn once and kept, or taken over from the Secrets that hold them.
//!
//! The operator's own Secret is what the pod sees, and QuestDB reads it when it starts. So other values are written only when
//! the restart that they need has been told and can be had: until then the old ones are both what is written and what is in
//! force. What a running QuestDB could be made to read again without a restart would be decided here.

use k8s_openapi::api::core::v1::Pod;

use super::World;
use super::reach::leaving_node;
use crate::change::is_told;
use crate::secrets::{NewCredentials, Taking};
use crate::{Part, Plan, State, Step, build};
use resources::names;

/// The keys that a Secret must have.
const KEYS: [&str; 4] = [
    names::secret::PG_USER,
    names::secret::PG_PASSWORD,
    names::secret::HTTP_USER,
    names::secret::HTTP_PASSWORD,
];

/// Whether a pod may be made with what is there.
pub(super) fn keep(world: &World<'_>, plan: &mut Plan) -> bool {
    plan.problems.clone_from(&world.choice.problems);
    if !drawn(world, plan) {
        return false;
    }
    for id in &world.choice.draws {
        let key = build::drawn_key(&world.validated.subject, id);
        plan.act(
            Part::Credentials,
            Step::DrawKey(key, id.clone()),
            format!("nobody has drawn the key {id} yet"),
        );
        plan.wait(Part::Credentials, "a key is being drawn");
    }
    let done = match &world.choice.taking {
        Taking::Nothing => world.choice.draws.is_empty(),
        Taking::Unread => {
            plan.wait(Part::Credentials, "the Secrets with the credentials are being read");
            false
        }
        Taking::Note(new) => {
            let reason = "the same values are in force, from another Secret or another version of it";
            plan.act(Part::Credentials, Step::SetCredentials(Box::new(new.clone())), reason);
            plan.wait(Part::Credentials, "where the credentials come from is being noted");
            true
        }
        Taking::Renewal(new) => {
            renew(world, plan, new);
            false
        }
    };
    if done {
        plan.say(Part::Credentials, State::Done);
    }
    done
}

/// Credentials that nobody gave are drawn; whether all that a database cannot be without are there.
fn drawn(world: &World<'_>, plan: &mut Plan) -> bool {
    let mut intended = build::secret(&world.validated.subject);
    let Some(secret) = &world.observed.children.secret else {
        plan.act(Part::Credentials, Step::CreateSecret(intended), "nobody can log in yet");
        plan.wait(Part::Credentials, "credentials are being made");
        return false;
    };
    let has = |key: &&str| secret.data.as_ref().is_some_and(|data| data.contains_key(*key));
    if KEYS.iter().all(has) {
        return true;
    }
    intended.uid.clone_from(&secret.metadata.uid);
    plan.act(Part::Credentials, Step::CreateSecret(intended), "the Secret lacks some of its keys");
    plan.wait(Part::Credentials, "missing credentials are being made");
    false
}

fn renew(world: &World<'_>, plan: &mut Plan, new: &NewCredentials) {
    let pod = world.observed.children.pod.as_ref();
    if pod.is_some_and(|pod| is_going(pod)) {
        plan.wait(Part::Credentials, "waiting for QuestDB to stop before its credentials change");
    } else if pod.is_some() && !is_told(world) {
        plan.wait(Part::Credentials, "the restart that other credentials need is being announced in status");
    } else if pod.is_some() && leaving_node(world.resource, world.observed).is_some() {
        plan.wait(
            Part::Credentials,
            "other credentials wait: the Node is cordoned, and QuestDB would not start again on it",
        );
    } else {
        let reason = "other credentials are given than are in force";
        plan.act(Part::Credentials, Step::SetCredentials(Box::new(new.clone())), reason);
        plan.wait(Part::Credentials, "other credentials are being written");
    }
}

fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}
