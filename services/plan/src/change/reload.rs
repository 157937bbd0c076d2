//! What a running QuestDB can be told to read again, so that nobody is restarted for it.
//!
//! Only where nothing else is asked for that needs a start, and where the pod is on the machine that its database is pinned
//! to: everything else is a restart, which brings along what could have been read again. A QuestDB that does not serve yet is
//! told once it does, and reads the file by itself when it is started again. One that cannot be told for some minutes is
//! restarted after all; one that was told and does not take a value over is not, because it would not start with that value.
//!
//! *Invariant:* that it does not is believed only of an answer that came when the file had to be there, and for as long as all of those
//! values are asked for: a value that is corrected is no reason to wait.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Node, Pod};
use resources::{ChangeMeans, names};

use super::running::{Running, digest, field_of, is_stranded};
use super::{Change, is_of, told};
use crate::planner::{World, is_on, pinned};
use crate::secrets::Taking;
use crate::upgrade::has_failed;
use crate::{Kind, Target, build, pod_serves};

/// What fields of keys begin with.
pub(super) const FIELD: &str = "/spec/config/";
/// How long a kubelet may take to show QuestDB the file: until then it cannot have taken over what is new in that.
const ON_ITS_WAY: SignedDuration = SignedDuration::from_mins(2);
/// How long QuestDB is tried to be told before it is restarted.
const PATIENCE: SignedDuration = SignedDuration::from_mins(5);

/// A key of server.conf and what it is to be; nothing for QuestDB's default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Key.
    pub key: String,
    /// Value.
    pub value: Option<String>,
}

impl Setting {
    /// What it takes, while QuestDB is told.
    pub(super) fn change(&self) -> Change {
        let asked = self.value.as_deref().unwrap_or("its default");
        let why = format!("QuestDB reads it again while it serves: {asked}");
        Change::online(&field_of(&self.key), &why)
    }
}

/// A running QuestDB is to read server.conf again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reload {
    /// Its pod.
    pub pod: Target,
    /// What it has to say afterwards.
    pub settings: Vec<Setting>,
    /// What the pod says of itself where QuestDB answers and has not taken all of them over; nothing while the file need not be there.
    pub refused: Option<String>,
    /// What the pod says of itself from before QuestDB is told until it has answered: nobody knows then which of the values
    /// it has, whatever is asked for next.
    pub meanwhile: BTreeMap<String, String>,
    /// What the pod says of itself afterwards; an annotation without a value is taken off.
    pub annotations: BTreeMap<String, Option<String>>,
}

/// What is to be read again; nothing when nothing differs, or when a restart is needed.
pub(crate) fn reload(world: &World<'_>) -> Option<Reload> {
    wanted(world).filter(|(_, given_up)| !given_up).map(|(reload, _)| reload)
}

/// The same once more, before it is told that QuestDB is restarted instead: nobody may have asked it for as long as it seems, because
/// no operator ran, or the API server did not answer.
pub(crate) fn last_attempt(world: &World<'_>) -> Option<Reload> {
    let is_last = |(_, given_up): &(Reload, bool)| *given_up && !is_restart_told(world);
    wanted(world).filter(is_last).map(|(reload, _)| reload)
}

/// Whether QuestDB is being told, and says by its pod what it answers.
pub(crate) fn is_being_told(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(names::CONFIG))
}

/// What could be read again, and whether that is given up.
fn wanted(world: &World<'_>) -> Option<(Reload, bool)> {
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
    if keys.is_empty() {
        return None;
    }
    let shown = digest(build::server_conf(world.validated).as_bytes());
    let unknown = running.without(&keys).text();
    let values = build::server_keys(world.validated);
    let setting = |key: &str| Setting {
        key: key.to_owned(),
        value: values.get(key).map(|value| value.trim().to_owned()),
    };
    let settings: Vec<Setting> = keys.into_iter().map(setting).collect();
    let waited = waited(world, (pod, shown.as_str()), &settings);
    let is_given_up = !is_refused(pod, &settings) && (waited >= PATIENCE || is_restart_told(world));
    let meanwhile = [
        (names::CONFIG.to_owned(), shown),
        (names::RUNNING.to_owned(), unknown),
        (names::CHECKSUM.to_owned(), String::new()),
    ];
    let annotations = [
        (names::CHECKSUM.to_owned(), Some(build::checksum(world.validated, &pin))),
        (names::RUNNING.to_owned(), Some(wished.text())),
        (names::RESTART.to_owned(), world.validated.restart_nonce.clone()),
        (names::CONFIG.to_owned(), None),
        (names::CONFIG_REFUSED.to_owned(), None),
    ];
    let reload = Reload {
        pod: Target::of(Kind::Pod, &pod.metadata),
        refused: (waited >= ON_ITS_WAY).then(|| text_of(&settings)),
        settings,
        meanwhile: meanwhile.into(),
        annotations: annotations.into(),
    };
    Some((reload, is_given_up))
}

/// For how long all of these have been asked for. Where QuestDB serves, not before it was told of them for the first time.
fn waited(world: &World<'_>, (pod, shown): (&Pod, &str), settings: &[Setting]) -> SignedDuration {
    let annotations = pod.metadata.annotations.as_ref();
    let told_of = annotations.and_then(|annotations| annotations.get(names::CONFIG));
    if pod_serves(pod) && told_of.is_none_or(|told_of| told_of != shown) {
        return SignedDuration::ZERO;
    }
    let since_asked = |setting: &Setting| {
        let change = setting.change();
        let known = told(world.resource, &change.field, change.means).filter(|known| is_of(known, &change));
        known.map_or(SignedDuration::ZERO, |known| world.observed.at.duration_since(known.since.0))
    };
    settings.iter().map(since_asked).min().unwrap_or(SignedDuration::ZERO)
}

/// Whether it was told that QuestDB is restarted for a key.
fn is_restart_told(world: &World<'_>) -> bool {
    let mut pending = world.resource.status.iter().flat_map(|status| &status.pending);
    pending.any(|found| found.field.starts_with(FIELD) && found.means == ChangeMeans::Restart)
}

/// Whether QuestDB did not take values over that are all asked for still. Which of them it would not start with, nobody knows.
fn is_refused(pod: &Pod, settings: &[Setting]) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    let Some(text) = annotations.and_then(|annotations| annotations.get(names::CONFIG_REFUSED)) else {
        return false;
    };
    // An older operator did not say of which values.
    let Ok(refused) = serde_json::from_str::<BTreeMap<String, String>>(text) else { return true };
    let asked = hashed(settings);
    refused.iter().all(|(key, value)| asked.get(key) == Some(value))
}

fn text_of(settings: &[Setting]) -> String {
    serde_json::to_string(&hashed(settings)).unwrap_or_default()
}

/// Keys with a hash of the value, which may be long; an empty one for QuestDB's default.
fn hashed(settings: &[Setting]) -> BTreeMap<String, String> {
    let hash = |setting: &Setting| setting.value.as_ref().map(|value| digest(value.as_bytes()));
    settings.iter().map(|setting| (setting.key.clone(), hash(setting).unwrap_or_default())).collect()
}

/// The machine that the database is pinned to, if the pod runs there and was made for it.
fn pin_of(world: &World<'_>, pod: &Pod) -> Option<String> {
    let pin = pinned(world.observed)?;
    let label = |node: &Node| node.metadata.labels.as_ref()?.get(names::LABEL_NODE).cloned();
    let node = world.observed.children.nodes.iter().find(|node| is_on(pod, node))?;
    (label(node).as_ref() == Some(&pin)).then_some(pin)
}
