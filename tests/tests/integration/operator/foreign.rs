//! Kinds of other projects, as those define them: what is rendered must pass their rules, and what they do not know is cut
//! off.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use crate::support::installed;

/// Files that such definitions are in.
const FILES: [&str; 3] = ["traefik.yaml", "servicemonitors.yaml", "podmonitors.yaml"];

/// Held by whoever defines kinds of others that more than one test defines, until they are taken away again.
pub(super) static DEFINING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A kind: its group, version, name in the plural and name.
pub(super) type Kind = (&'static str, &'static str, &'static str, &'static str);

/// The definition of a kind, as its project ships it.
pub(super) fn definition((group, version, plural, kind): Kind) -> CustomResourceDefinition {
    let folder = installed("definitions-");
    let documents = FILES.iter().flat_map(|file| {
        let text =
            std::fs::read_to_string(folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        serde_saphyr::from_multiple::<Value>(&text).unwrap_or_else(|error| panic!("{file}: {error}"))
    });
    let name = format!("{plural}.{group}");
    let mut named = documents.filter(|document| document["metadata"]["name"] == *name);
    let found = named.next().unwrap_or_else(|| panic!("nobody defines {name}"));
    let found: CustomResourceDefinition = serde_json::from_value(found).unwrap();
    assert_eq!(found.spec.names.kind, kind);
    assert!(
        found.spec.versions.iter().any(|one| one.name == version && one.served),
        "{name} has no {version}"
    );
    found
}
