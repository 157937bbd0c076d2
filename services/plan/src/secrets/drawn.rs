//! Keys of the line protocol over TCP that the operator drew. Their private halves were handed out and are known to nobody
//! here, so the public ones are kept in two places: the operator's Secret says them, and the StatefulSet.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::StatefulSet;
use resources::names;
use serde::{Deserialize, Serialize};

use super::Taken;
use crate::{Children, Kind, Observed, Subject, Target};

/// What is known for good of a key that the operator drew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrawnKey {
    /// Its public half, as QuestDB reads it.
    pub(super) line: String,
    /// Uid of the Secret in which its private half was handed out.
    pub(super) secret: String,
}

/// The keys that the operator drew, by what its Secret says; by the StatefulSet while that Secret is not there, or says
/// nothing.
pub(super) fn drawn_keys(children: &Children) -> BTreeMap<String, DrawnKey> {
    let noted = children.secret.as_ref().and_then(|secret| Taken::noted(&secret.metadata));
    noted.map(|noted| noted.keys).or_else(|| kept_keys(children.stateful_set.as_deref())).unwrap_or_default()
}

fn kept_keys(set: Option<&StatefulSet>) -> Option<BTreeMap<String, DrawnKey>> {
    serde_json::from_str(set?.metadata.annotations.as_ref()?.get(names::secret::DRAWN)?).ok()
}

/// The Secrets in which keys were handed out, as far as they are known and may still be there.
pub(crate) fn handed_out(subject: &Subject, children: &Children) -> Vec<Target> {
    drawn_keys(children).iter().filter_map(|(id, key)| key.handed_out(subject, id)).collect()
}

/// Ids of keys that may have been handed out without anybody having noted where: where the note that they were begun is lost, too, the
/// Secrets show it in which they were.
pub(crate) fn begun_keys(observed: &Observed) -> BTreeSet<String> {
    let children = &observed.children;
    let noted = children.secret.as_ref().and_then(|secret| Taken::noted(&secret.metadata));
    let known = drawn_keys(children);
    let is_noted = |id: &&String| known.get(*id).is_some_and(|key| !key.secret.is_empty());
    let shown = observed.secrets.handed_out.iter().filter(|id| !is_noted(id)).cloned();
    noted.map(|noted| noted.begun).unwrap_or_default().into_iter().chain(shown).collect()
}

impl DrawnKey {
    /// The Secret in which it was handed out.
    pub(super) fn handed_out(&self, subject: &Subject, id: &str) -> Option<Target> {
        let target = Target {
            kind: Kind::Secret,
            namespace: Some(subject.namespace.clone()),
            name: names::drawn_key(&subject.name, id),
            uid: self.secret.clone(),
            resource_version: None,
            at_once: false,
            pod: None,
        };
        (!self.secret.is_empty()).then_some(target)
    }
}
