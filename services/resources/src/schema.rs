//! Pieces of schema that a derive cannot say, and the whole definition.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::CustomResourceExt as _;
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::QuestDB;

/// The definition as it is applied to a cluster.
pub fn definition() -> CustomResourceDefinition {
    QuestDB::crd()
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
    json_schema!({
        "type": "array",
        "description": "CIDRs that may connect.",
        "maxItems": domain::catalogue::ALLOWED_CIDRS,
        "items": { "type": "string", "maxLength": 43 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_definition_is_the_generated_one() {
        let committed = include_str!("../../../deploy/crds/questdb.yaml");
        let generated = serde_saphyr::to_string(&definition()).unwrap();
        assert_eq!(
            committed.trim_end(),
            generated.trim_end(),
            "run: cargo run -p resources --example crd > deploy/crds/questdb.yaml"
        );
    }

    #[test]
    fn the_definition_says_what_kubectl_users_see() {
        let definition = definition();
        assert_eq!(definition.metadata.name.as_deref(), Some(crate::names::DEFINITION));
        assert_eq!(definition.spec.names.short_names, Some(vec!["qdb".to_owned(), "qdbs".to_owned()]));
        let version = &definition.spec.versions[0];
        assert!(version.subresources.as_ref().is_some_and(|subresources| subresources.status.is_some()));
        let columns = version.additional_printer_columns.iter().flatten().map(|column| column.name.as_str());
        let columns: Vec<_> = columns.collect();
        assert_eq!(columns, ["Phase", "Version", "Instance", "Size", "NodeReady", "NodeIp", "DNS", "Age"]);
    }
}
