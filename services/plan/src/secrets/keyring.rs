//! Which credentials there are: what decides about ports, about the pod's environment, and about a restart.

use std::collections::BTreeMap;

use resources::names;

use super::choice::Choice;
use super::drawn::drawn_keys;
use super::{Credential, DrawnKey};
use crate::Children;

/// Which credentials are in force, by the operator's own Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keyring {
    /// Another text for other values; `None` of those that were drawn before there were revisions.
    pub revision: Option<String>,
    /// There is a user who may only read.
    pub readonly: bool,
    /// There are keys for the line protocol over TCP: a pod that is made now has them.
    pub ilp: bool,
    /// Whoever would listen on its port now asks for a key, so that it may be open.
    pub open: bool,
    /// Keys that the operator drew.
    pub drawn: BTreeMap<String, DrawnKey>,
}

impl Keyring {
    /// As observed. While the Secret is away, and while keys are brought back that were lost with it, everything is as the
    /// StatefulSet has it.
    pub(crate) fn of(children: &Children, choice: &Choice) -> Self {
        let set = children.stateful_set.as_deref();
        let template = crate::change::keyring_of_template(set);
        let mut keyring = match &children.secret {
            None => template.clone(),
            Some(secret) => {
                // What somebody changed there is put right before anybody is started with it.
                let put_right = choice.put_right();
                let has = |key: &str| {
                    let stands = || secret.data.as_ref().is_some_and(|data| data.contains_key(key));
                    put_right.and_then(|new| new.values.get(key)).map_or_else(stands, Option::is_some)
                };
                let annotations = secret.metadata.annotations.as_ref();
                let said = || annotations.and_then(|found| found.get(names::secret::REVISION)).cloned();
                let revision = put_right.map_or_else(said, |new| new.revision.known());
                Self {
                    // Who takes the annotation off asks for no restart.
                    revision: revision.or(template.revision),
                    readonly: Credential::PsqlReadonly.keys().iter().all(|key| has(key)),
                    ilp: has(names::secret::ILP_KEYS) || template.ilp && choice.brings_keys(),
                    ..Self::default()
                }
            }
        };
        // A pod made from now on has what the template has. One of before this was written down has what its revision has.
        let asks = match children.pod.as_deref().map(crate::change::keyring_of_pod) {
            Some(found) => found.is_some_and(|found| {
                found.ilp || (found.revision.is_some() && found.revision == keyring.revision)
            }),
            None => set.is_none() || template.ilp,
        };
        keyring.open = keyring.ilp && asks;
        keyring.drawn = drawn_keys(children);
        keyring
    }
}
