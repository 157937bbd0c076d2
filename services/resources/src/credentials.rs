//! Where a database's credentials come from, as far as its spec says.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Where credentials come from. What is absent comes from the Secret with the annotations `crd.questdb.io/name` (this
/// resource) and `crd.questdb.io/secret-type`, and without one the operator draws what a database cannot be without.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialsSpec {
    /// User and password of the Postgres wire protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub psql: Option<SecretSpec>,
    /// The same of a user who may only read. There is none unless it is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub psql_readonly: Option<SecretSpec>,
    /// User and password of REST, web console and line protocol over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<SecretSpec>,
    /// Keys of the line protocol over TCP, whose port is shut without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ilp: Option<IlpSpec>,
}

/// A Secret of this namespace, with the keys `username` and `password`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretSpec {
    /// Name of the Secret.
    #[schemars(regex(pattern = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"), length(min = 1, max = 253))]
    pub secret_name: String,
}

/// Keys of the line protocol over TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IlpSpec {
    /// Secret of this namespace whose key `auth.json` is a JSON Web Key of the curve P-256, or a set of them. QuestDB is given
    /// their public halves alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"), length(min = 1, max = 253))]
    pub secret_name: Option<String>,
    /// Ids of keys that the operator draws, each once. The private half is handed out in a Secret `<name>.ilp.<id>`, which
    /// nobody needs any more once it was fetched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::key_ids")]
    pub drawn: Vec<String>,
}
