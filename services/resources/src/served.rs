//! What an API server knows of our kind, by its own word. Pure.
//!
//! It drops what its definition does not have, of what is written and of what it shows: a definition that is older than this
//! program may hide a wish by which a disk is kept.

use serde_json::Value;

use crate::{definition, names};

/// Where an API server tells it: in the document of our group.
pub const DOCUMENT: &str = "/openapi/v3/apis/crd.questdb.io/v1";

/// Where an API server tells which documents there are.
pub const DOCUMENTS: &str = "/openapi/v3";

/// A word that is another one once our kinds are defined otherwise, out of what an API server tells of its documents; nothing when it
/// tells of none of our group.
pub fn state(documents: &Value) -> Option<String> {
    state_at(documents, DOCUMENT.strip_prefix(DOCUMENTS)?.trim_start_matches('/'))
}

/// The same of the kinds of another group in a version of it, such as `example.com/v1`.
pub fn state_of(documents: &Value, version: &str) -> Option<String> {
    state_at(documents, &format!("apis/{version}"))
}

fn state_at(documents: &Value, path: &str) -> Option<String> {
    // It ends in a hash of the document.
    documents.get("paths")?.get(path)?.get("serverRelativeURL")?.as_str().map(str::to_owned)
}

/// Fields of our spec, by path, that the definition in force drops; nothing when the document does not tell of our kind.
pub fn lacking(document: &Value) -> Option<Vec<String>> {
    let schemas = document.pointer("/components/schemas")?.as_object()?;
    let served = schemas.values().find(|schema| is_ours(schema))?.pointer("/properties/spec")?;
    let ours = serde_json::to_value(definition()).ok()?;
    let ours = ours.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec")?;
    let mut lacking = Vec::new();
    add_lacking("/spec", ours, served, &mut lacking);
    Some(lacking)
}

fn is_ours(schema: &Value) -> bool {
    let kinds = schema["x-kubernetes-group-version-kind"].as_array();
    kinds.into_iter().flatten().any(|kind| {
        kind["group"] == names::GROUP && kind["version"] == names::VERSION && kind["kind"] == names::KIND
    })
}

fn add_lacking(path: &str, ours: &Value, served: &Value, lacking: &mut Vec<String>) {
    if served["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    for (name, field) in ours["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}/{name}");
        match served["properties"].get(name) {
            Some(served) => add_lacking(&path, field, served, lacking),
            None => lacking.push(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What a server tells of our kind, and of others beside it.
    fn document(change: impl FnOnce(&mut Value)) -> Value {
        let definition = serde_json::to_value(definition()).unwrap();
        let mut schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
        let kind = |kind: &str| json!([{ "group": names::GROUP, "version": names::VERSION, "kind": kind }]);
        schema["x-kubernetes-group-version-kind"] = kind(names::KIND);
        change(&mut schema["properties"]["spec"]);
        json!({ "components": { "schemas": {
            "io.questdb.crd.v1.A": { "x-kubernetes-group-version-kind": kind("QuestDBList") },
            "io.questdb.crd.v1.B": { "type": "object" },
            "io.questdb.crd.v1.QuestDB": schema,
        } } })
    }

    fn without(pointer: &'static str) -> impl FnOnce(&mut Value) {
        move |spec| {
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            spec.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name).unwrap();
        }
    }

    #[test]
    fn the_state_of_our_documents_is_told_apart_from_others() {
        let told = |hash: &str| {
            let at = |path: &str| json!({ "serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}") });
            json!({ "paths": { "api/v1": at("api/v1"), "apis/crd.questdb.io/v1": at("apis/crd.questdb.io/v1") } })
        };
        assert_eq!(state(&told("A")).unwrap(), "/openapi/v3/apis/crd.questdb.io/v1?hash=A");
        assert_ne!(state(&told("A")), state(&told("B")));
        assert_eq!(state_of(&told("A"), "crd.questdb.io/v1"), state(&told("A")));
        assert_eq!(state_of(&told("A"), "traefik.io/v1alpha1"), None);
        assert_eq!(state(&json!({ "paths": { "api/v1": {} } })), None);
        assert_eq!(state(&json!("nothing")), None);
    }

    #[test]
    fn what_an_older_definition_has_not_is_named() {
        assert_eq!(DOCUMENT, format!("/openapi/v3/apis/{}/{}", names::GROUP, names::VERSION));
        assert_eq!(lacking(&document(|_| {})), Some(Vec::new()));
        let found = lacking(&document(without("/properties/deletionProtection")));
        assert_eq!(found, Some(vec!["/spec/deletionProtection".to_owned()]));
        let found = lacking(&document(without("/properties/instruction/properties/seq")));
        assert_eq!(found, Some(vec!["/spec/instruction/seq".to_owned()]));
    }

    #[test]
    fn what_a_newer_definition_has_beyond_ours_is_no_lack() {
        let newer = |spec: &mut Value| spec["properties"]["next"] = json!({ "type": "string" });
        assert_eq!(lacking(&document(newer)), Some(Vec::new()));
    }

    #[test]
    fn what_keeps_fields_that_it_does_not_know_drops_none() {
        let open = |spec: &mut Value| *spec = json!({ "x-kubernetes-preserve-unknown-fields": true });
        assert_eq!(lacking(&document(open)), Some(Vec::new()));
    }

    #[test]
    fn a_document_that_does_not_tell_of_our_kind_says_nothing() {
        for document in [json!({}), json!({ "components": { "schemas": {} } }), json!(null)] {
            assert_eq!(lacking(&document), None);
        }
    }
}
