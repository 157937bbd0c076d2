//! server.conf: the user's keys and ours, and the hash of everything that a running QuestDB heeds only after a restart.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use domain::catalogue::OWN_CONFIG;
use resources::{PodOverrides, names};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::with_parts;
use crate::{Kind, Manifest, Validated};

/// A key of ours that databases which were started without it get with their next restart: the firewall and the Services keep
/// its port shut, and nobody is stopped for it.
const LATE: &str = "line.tcp.enabled";

/// The keys of server.conf with their values: the user's and ours, which win.
pub(crate) fn server_keys(validated: &Validated) -> BTreeMap<&str, &str> {
    let mut keys: BTreeMap<&str, &str> =
        validated.config.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    keys.extend(OWN_CONFIG);
    keys
}

/// Whether a key of server.conf is written by us, whatever anybody asks for.
pub(crate) fn is_fixed(key: &str) -> bool {
    OWN_CONFIG.iter().any(|(own, _)| *own == key)
}

/// Whether a pod is restarted for a key of server.conf.
pub(crate) fn is_heeded(key: &str) -> bool {
    key != LATE
}

/// The text of server.conf.
pub fn server_conf(validated: &Validated) -> String {
    in_ascii(&text_of(&server_keys(validated)))
}

fn text_of(keys: &BTreeMap<&str, &str>) -> String {
    keys.iter().fold(String::new(), |mut text, (key, value)| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{key}={}", escape(value));
        text
    })
}

/// Java properties: a backslash and leading blanks need a backslash.
fn escape(value: &str) -> String {
    let escaped = value.replace('\\', "\\\\");
    if escaped.starts_with([' ', '\t']) { format!("\\{escaped}") } else { escaped }
}

/// The same with what is not ASCII written by its numbers in UTF-16: QuestDB reads the file as ISO 8859-1. Not in the hash of what needs
/// a restart: databases that were started without it get it with their next one.
fn in_ascii(text: &str) -> String {
    let mut ascii = String::with_capacity(text.len());
    for unit in text.encode_utf16() {
        if let Some(byte) = u8::try_from(unit).ok().filter(u8::is_ascii) {
            ascii.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(ascii, "\\u{unit:04x}");
        }
    }
    ascii
}

/// The ConfigMap.
pub fn config_map(validated: &Validated) -> Manifest {
    let subject = &validated.subject;
    let name = names::config(&subject.name);
    Manifest {
        kind: Kind::ConfigMap,
        namespace: Some(subject.namespace.clone()),
        body: with_parts(
            json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "data": { "server.conf": server_conf(validated) },
            }),
            [("metadata", subject.owned(&name))],
        ),
        name,
        uid: None,
    }
}

/// A hash of what needs a restart. Not of the whole pod: a new operator with other probes must not restart the fleet.
pub fn checksum(validated: &Validated, node: &str) -> String {
    let nonce = validated.restart_nonce.as_deref().unwrap_or_default();
    let mut hash = Sha256::new();
    let mut keys = server_keys(validated);
    keys.retain(|key, _| is_heeded(key));
    let parts = [text_of(&keys), validated.image.clone(), nonce.to_owned(), node.to_owned()];
    // Not a word of credentials that were drawn before there were revisions: their pods go on.
    for part in parts.iter().chain(&validated.keyring.revision) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    if validated.overrides != PodOverrides::default() {
        hash.update(serde_json::to_string(&validated.overrides).unwrap_or_default());
    }
    if !validated.reach.host_ports {
        hash.update("no host ports");
    }
    hex::encode(&hash.finalize()[..16])
}
