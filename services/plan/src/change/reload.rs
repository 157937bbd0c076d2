//! What a running QuestDB can be told to read again, so that nobody is restarted for it.
//!
//! Only where nothing else is asked for that needs a start, and where the pod is on the machine that its database is pinned
//! to: everything else is a restart, which brings along what could have been read again. A QuestDB that does not serve yet is
//! told once it does, and reads the file by itself when it is started again.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod};
use resources::names;
use sha2::{Digest, Sha256};

use super::running::Running;
use crate::planner::World;
use crate::secrets::Taking;
use crate::{Kind, Target, build};

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
    /// What the pod then says of itself; nothing takes an annotation off.
    pub annotations: BTreeMap<String, Option<String>>,
}

/// What is to be read again; nothing when nothing differs, or when a restart is needed.
pub(crate) fn reload(world: &World<'_>) -> Option<Reload> {
    let pod = world.observed.children.pod.as_deref()?;
    let is_given = matches!(world.choice.taking, Taking::Nothing | Taking::Note(_));
    let pin = pin_of(world, pod)?;
    if !is_given || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let wished = Running::of(world.validated);
    let running = Running::read(pod.metadata.annotations.as_ref())?;
    let keys = wished.to_read_again(&running, &world.validated.version);
    if keys.is_empty() {
        return None;
    }
    let values = build::server_keys(world.validated);
    let setting = |key: &str| Setting {
        key: key.to_owned(),
        value: values.get(key).map(|value| value.trim().to_owned()),
    };
    let settings = keys.into_iter().map(setting).collect();
    let annotations = [
        (names::CHECKSUM.to_owned(), Some(build::checksum(world.validated, &pin))),
        (names::RUNNING.to_owned(), Some(wished.text())),
        // A restart that is not asked for any more asks for none.
        (names::RESTART.to_owned(), world.validated.restart_nonce.clone()),
    ];
    let text = build::server_conf(world.validated);
    Some(Reload {
        pod: Target::of(Kind::Pod, &pod.metadata),
        shown: hex::encode(&Sha256::digest(text.as_bytes())[..4]),
        settings,
        annotations: annotations.into(),
    })
}

/// The machine that the database is pinned to, if the pod runs there and was made for it.
fn pin_of(world: &World<'_>, pod: &Pod) -> Option<String> {
    let pin = crate::planner::pinned(world.observed)?;
    let on = pod.spec.as_ref()?.node_name.as_ref()?;
    let label = |node: &Node| node.metadata.labels.as_ref()?.get(names::LABEL_NODE).cloned();
    let node = world.observed.children.nodes.iter().find(|node| node.metadata.name.as_ref() == Some(on))?;
    (label(node).as_ref() == Some(&pin)).then_some(pin)
}
