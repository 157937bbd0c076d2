//! What a running QuestDB can be told to read again, so that nobody is restarted for it.
//!
//! Only where nothing else is asked for that needs a start, and where the pod is on the machine that its database is pinned
//! to: everything else is a restart, which brings along what could have been read again. A QuestDB that does not serve yet is
//! told once it does, and reads the file by itself when it is started again. One that cannot be told for some minutes is
//! restarted after all; one that was told and does not take a value over is not, because it would not start with that value.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Node, Pod};
use resources::{ChangeMeans, names};

use super::running::{Running, digest, is_stranded};
use crate::planner::{World, is_on, pinned};
use crate::secrets::Taking;
use crate::upgrade::has_failed;
use crate::{Kind, Target, build};

/// What fields of keys begin with.
pub(super) const FIELD: &str = "/spec/config/";
/// How long QuestDB is tried to be told before it is restarted: a kubelet may take two minutes to show it the file.
const PATIENCE: SignedDuration = SignedDuration::from_mins(5);

/// A key of server.conf and what it is to be; nothing for QuestDB's default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Key.
    pub key: String,
    /// Value.
    pub value: Option<String>,
}

/// A running QuestDB is to read server.conf again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reload {
    /// Its pod.
    pub pod: Target,
    /// A hash of the server.conf that the pod is to be shown.
    pub shown: String,
    /// What it has to say afterwards.
    pub settings: Vec<Setting>,
    /// What the pod says of itself from before QuestDB is told until it has answered: nobody knows then which of the values
    /// it has, whatever is asked for next.
    pub meanwhile: BTreeMap<String, String>,
    /// What the pod says of itself afterwards; an annotation without a value is taken off.
    pub annotations: BTreeMap<String, Option<String>>,
}

/// What is to be read again; nothing when nothing differs, or when a restart is needed.
pub(crate) fn reload(world: &World<'_>) -> Option<Reload> {
    let pod = world.observed.children.pod.as_deref()?;
    let is_given = matches!(world.choice.taking, Taking::Nothing | Taking::Note(_));
    if !is_given || pod.metadata.deletion_timestamp.is_some() || has_failed(pod) {
        return None;
    }
    // It is made anew, and reads the file then.
    if is_stranded(world.observed.children.stateful_set.as_deref(), pod) {
        return None;
    }
    let pin = pin_of(world, pod)?;
    let wished = Running::of(world.validated);
    let running = Running::read(pod.metadata.annotations.as_ref())?;
    let keys = wished.to_read_again(&running, &world.validated.version);
    if keys.is_empty() || is_given_up(world, pod) {
        return None;
    }
    let shown = digest(build::server_conf(world.validated).as_bytes());
    let unknown = running.without(&keys).text();
    let meanwhile = [
        (names::CONFIG.to_owned(), shown.clone()),
        (names::RUNNING.to_owned(), unknown),
        (names::CHECKSUM.to_owned(), String::new()),
    ];
    let values = build::server_keys(world.validated);
    let setting = |key: &str| Setting {
        key: key.to_owned(),
        value: values.get(key).map(|value| value.trim().to_owned()),
    };
    let settings = keys.into_iter().map(setting).collect();
    let annotations = [
        (names::CHECKSUM.to_owned(), Some(build::checksum(world.validated, &pin))),
        (names::RUNNING.to_owned(), Some(wished.text())),
        (names::RESTART.to_owned(), world.validated.restart_nonce.clone()),
        (names::CONFIG.to_owned(), None),
        (names::CONFIG_REFUSED.to_owned(), None),
    ];
    Some(Reload {
        pod: Target::of(Kind::Pod, &pod.metadata),
        shown,
        settings,
        meanwhile: meanwhile.into(),
        annotations: annotations.into(),
    })
}

/// Whether a key has waited for too long, and QuestDB has not even said that it does not take a value over; or whether its
/// restart was told already.
fn is_given_up(world: &World<'_>, pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    let answers = annotations.is_some_and(|annotations| annotations.contains_key(names::CONFIG_REFUSED));
    let pending = world.resource.status.iter().flat_map(|status| &status.pending);
    let mut of_keys = pending.filter(|found| found.field.starts_with(FIELD));
    of_keys.any(|found| match found.means {
        ChangeMeans::Restart => true,
        ChangeMeans::Online => !answers && world.observed.at.duration_since(found.since.0) >= PATIENCE,
        ChangeMeans::Move | ChangeMeans::Stop | ChangeMeans::Refused => false,
    })
}

/// The machine that the database is pinned to, if the pod runs there and was made for it.
fn pin_of(world: &World<'_>, pod: &Pod) -> Option<String> {
    let pin = pinned(world.observed)?;
    let label = |node: &Node| node.metadata.labels.as_ref()?.get(names::LABEL_NODE).cloned();
    let node = world.observed.children.nodes.iter().find(|node| is_on(pod, node))?;
    (label(node).as_ref() == Some(&pin)).then_some(pin)
}
