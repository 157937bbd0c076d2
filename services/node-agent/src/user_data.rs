//! What a booting machine is told about itself: its node's name, labels and taints, as JSON in the instance's user
//! data. Pure: parses, never fetches.
//!
//! *Invariant:* labels that a kubelet may not give itself (`node-restriction.kubernetes.io/`, and those that the agent
//! derives from EC2) are never taken from user data.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use serde::Deserialize;

/// A node as its machine's user data describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeIntent {
    /// Name of the Node object.
    pub name: String,
    /// Labels a kubelet may set on itself.
    pub labels: BTreeMap<String, String>,
    /// Taints the node is registered with.
    pub taints: Vec<Taint>,
}

/// Why user data does not describe a node.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not the JSON of a node.
    #[error("cannot read user data: {reason}")]
    Parse {
        /// Where and what, without the data itself.
        reason: String,
    },
    /// It belongs to another cluster.
    #[error("user data names cluster {found:?} and not {expected:?}")]
    OtherCluster {
        /// Cluster in the data.
        found: String,
        /// Cluster of this agent.
        expected: String,
    },
    /// The name is no DNS subdomain.
    #[error("{name:?} cannot be the name of a node")]
    BadName {
        /// The name.
        name: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    cluster: String,
    node_name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    taints: Vec<TaintDocument>,
}

#[derive(Deserialize)]
struct TaintDocument {
    key: String,
    #[serde(default)]
    value: Option<String>,
    effect: String,
}

/// Reads user data. `None` when there is none: the tag may still tell the name.
pub fn parse(text: &str, cluster: &str) -> Result<Option<NodeIntent>, Error> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let document: Document = serde_json::from_str(text)
        .map_err(|error| Error::Parse { reason: format!("line {} {:?}", error.line(), error.classify()) })?;
    if document.cluster != cluster {
        return Err(Error::OtherCluster { found: document.cluster, expected: cluster.to_owned() });
    }
    let Some(mut intent) = named(&document.node_name) else {
        return Err(Error::BadName { name: document.node_name });
    };
    intent.labels = document.labels.into_iter().filter(|(key, _)| may_set_label(key)).collect();
    intent.taints = document.taints.into_iter().map(taint).collect();
    Ok(Some(intent))
}

/// A node of which only the name is known. `None` if it cannot be one.
pub fn named(name: &str) -> Option<NodeIntent> {
    let fits = !name.is_empty()
        && name.len() <= 253
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))
        && name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && name.bytes().last().is_some_and(|byte| byte.is_ascii_alphanumeric());
    fits.then(|| NodeIntent { name: name.to_owned(), labels: BTreeMap::new(), taints: Vec::new() })
}

fn taint(document: TaintDocument) -> Taint {
    Taint { key: document.key, value: document.value, effect: document.effect, time_added: None }
}

/// The rule of the admission plugin `NodeRestriction`: its own prefix is closed, and of the `kubernetes.io` and `k8s.io`
/// names only those of kubelet and node are open (the well-known ones come from EC2 here).
fn may_set_label(key: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    let within = |domain: &str| prefix == domain || prefix.ends_with(&format!(".{domain}"));
    if within("kubernetes.io") || within("k8s.io") {
        return within("kubelet.kubernetes.io") || within("node.kubernetes.io");
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_document_is_read() {
        let text = r#"{"cluster":"eu","nodeName":"qdb-1a2b3c4d-g1","labels":{"questdb.io/database":"x",
            "node-restriction.kubernetes.io/role":"db","topology.kubernetes.io/zone":"moon","node.kubernetes.io/a":"b"},
            "taints":[{"key":"questdb.io/dedicated","value":"x","effect":"NoSchedule"}],"later":1}"#;
        let intent = parse(text, "eu").unwrap().unwrap();
        assert_eq!(intent.name, "qdb-1a2b3c4d-g1");
        assert_eq!(intent.labels.keys().collect::<Vec<_>>(), ["node.kubernetes.io/a", "questdb.io/database"]);
        assert_eq!(intent.taints.len(), 1);
        assert_eq!(intent.taints[0].effect, "NoSchedule");
    }

    #[test]
    fn nothing_told_is_no_error() {
        assert_eq!(parse("  \n", "eu"), Ok(None));
    }

    #[test]
    fn another_cluster_is_refused() {
        let error = parse(r#"{"cluster":"us","nodeName":"n"}"#, "eu").unwrap_err();
        assert_eq!(error, Error::OtherCluster { found: "us".into(), expected: "eu".into() });
    }

    #[test]
    fn bad_names_are_refused() {
        for name in ["", "-a", "a-", "Upper", "sp ace", "a/b"] {
            let text = format!(r#"{{"cluster":"eu","nodeName":"{name}"}}"#);
            assert_eq!(parse(&text, "eu"), Err(Error::BadName { name: name.into() }), "{name}");
        }
    }

    #[test]
    fn a_script_is_no_node_and_is_not_repeated_in_the_error() {
        let error = parse("#!/bin/bash secret", "eu").unwrap_err();
        assert!(matches!(&error, Error::Parse { .. }));
        assert!(!error.to_string().contains("secret"));
    }
}
