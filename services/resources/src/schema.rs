//! Pieces of schema that a derive cannot say, and the whole definition.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::CustomResourceExt as _;
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::{QuestDB, QuestDBSnapshot, QuestDBSnapshotSchedule};

/// The definition as it is applied to a cluster.
pub fn definition() -> CustomResourceDefinition {
    QuestDB::crd()
}

/// Every definition, by the name of its file.
pub fn definitions() -> [(&'static str, CustomResourceDefinition); 3] {
    [
        ("questdb.yaml", definition()),
        ("questdbsnapshot.yaml", QuestDBSnapshot::crd()),
        ("questdbsnapshotschedule.yaml", QuestDBSnapshotSchedule::crd()),
    ]
}

pub(crate) fn config(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "description": "Keys of server.conf.",
        "maxProperties": domain::catalogue::CONFIG_KEYS,
        "additionalProperties": { "type": "string", "maxLength": domain::catalogue::CONFIG_VALUE_LENGTH },
    })
}

pub(crate) fn cidrs(_: &mut SchemaGenerator) -> Schema {
    list_of_cidrs("CIDRs that may connect.")
}

pub(crate) fn called_cidrs(_: &mut SchemaGenerator) -> Schema {
    list_of_cidrs("CIDRs that may be called.")
}

fn list_of_cidrs(description: &str) -> Schema {
    json_schema!({
        "type": "array",
        "description": description,
        "maxItems": domain::catalogue::ALLOWED_CIDRS,
        "items": { "type": "string", "maxLength": domain::catalogue::CIDR_LENGTH },
    })
}

pub(crate) fn namespaces(_: &mut SchemaGenerator) -> Schema {
    list_of_namespaces("Namespaces of this cluster whose pods may connect, beside the allowed CIDRs.")
}

pub(crate) fn called_namespaces(_: &mut SchemaGenerator) -> Schema {
    list_of_namespaces("Namespaces of this cluster whose pods may be called.")
}

fn list_of_namespaces(description: &str) -> Schema {
    json_schema!({
        "type": "array",
        "description": description,
        "maxItems": 32,
        "items": { "type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" },
    })
}

pub(crate) fn key_ids(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "description": "Ids of keys that the operator draws, each once. The private half is handed out in a Secret \
            `<name>.ilp.<id>`, which nobody needs any more once it was fetched.",
        "maxItems": 4,
        "items": { "type": "string", "minLength": 1, "maxLength": 32, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" },
    })
}

pub(crate) fn annotations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "description": "Annotations, beside our own.",
        "maxProperties": 32,
        "additionalProperties": { "type": "string", "maxLength": 1_024 },
    })
}

pub(crate) fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "description": "Labels, beside our own.",
        "maxProperties": 16,
        "additionalProperties": {
            "type": "string", "maxLength": 63, "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
        },
    })
}

pub(crate) fn entry_points(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "description": "Entry points of Traefik, by name.",
        "minItems": 1,
        "maxItems": 8,
        "items": { "type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[A-Za-z0-9][-A-Za-z0-9_]*$" },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_definitions_are_the_generated_ones() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crds");
        for (file, definition) in definitions() {
            let committed = std::fs::read_to_string(format!("{folder}/{file}")).unwrap_or_default();
            let generated = serde_saphyr::to_string(&definition).unwrap();
            assert_eq!(committed.trim_end(), generated.trim_end(), "{file}: run cargo xtask generate");
        }
    }

    fn undescribed(at: &str, schema: &serde_json::Value, found: &mut Vec<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let at = format!("{at}.{name}");
            if !field["description"].is_string() {
                found.push(at.clone());
            }
            undescribed(&at, field, found);
            undescribed(&format!("{at}[]"), &field["items"], found);
        }
    }

    #[test]
    fn every_field_is_described() {
        for (file, definition) in definitions() {
            let definition = serde_json::to_value(definition).unwrap();
            let mut found = Vec::new();
            let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
            for part in ["spec", "status"] {
                undescribed(part, &schema[part], &mut found);
            }
            assert_eq!(found, Vec::<String>::new(), "{file}");
        }
    }

    #[test]
    fn the_definition_says_what_kubectl_users_see() {
        let definition = definition();
        assert_eq!(definition.metadata.name.as_deref(), Some(crate::names::DEFINITION));
        assert_eq!(definition.spec.names.short_names, Some(vec!["qdb".to_owned(), "qdbs".to_owned()]));
        let version = &definition.spec.versions[0];
        assert!(version.subresources.as_ref().is_some_and(|subresources| subresources.status.is_some()));
        let columns: Vec<_> = version.additional_printer_columns.iter().flatten().collect();
        let narrow = columns.iter().filter(|column| column.priority.is_none());
        let narrow: Vec<_> = narrow.map(|column| column.name.as_str()).collect();
        assert_eq!(
            narrow,
            ["Phase", "Ready", "Version", "Instance", "Size", "NodeReady", "NodeIp", "DNS", "Age"]
        );
        assert_eq!(columns.last().map(|column| column.name.as_str()), Some("Degraded"));
    }
}
