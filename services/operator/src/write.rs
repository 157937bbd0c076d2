//! How an object is written beside server-side apply: its whole status, or some of its fields merged into it. Only over what
//! was read: every write carries the version that was seen.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource};
use resources::names;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::Error;

/// Replaces the status of an object that was seen; what is stored then.
pub(crate) async fn status<K>(context: &Context, report: &K) -> Result<K, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize,
{
    let api = api(context, report);
    let parameters = parameters();
    context.call("write the status", api.replace_status(name(report), &parameters, report)).await
}

/// Changes metadata of an object as it was seen, or not at all.
pub(crate) async fn metadata<K>(
    context: &Context,
    seen: &K,
    what: &'static str,
    mut metadata: Value,
) -> Result<K, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    metadata["resourceVersion"] = json!(seen.meta().resource_version);
    merge(context, &api(context, seen), name(seen), what, &json!({ "metadata": metadata })).await
}

/// Merges fields into an object; the body says which one was seen, by its version or its uid.
pub(crate) async fn merge<K>(
    context: &Context,
    api: &Api<K>,
    name: &str,
    what: &'static str,
    body: &Value,
) -> Result<K, Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let PostParams { field_manager, .. } = parameters();
    let parameters = PatchParams { field_manager, ..PatchParams::default() };
    context.call(what, api.patch(name, &parameters, &Patch::Merge(body))).await
}

/// Everything is written under our name.
pub(crate) fn parameters() -> PostParams {
    PostParams { field_manager: Some(names::OPERATOR.to_owned()), ..PostParams::default() }
}

fn api<K>(context: &Context, of: &K) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(context.client.clone(), of.meta().namespace.as_deref().unwrap_or_default())
}

fn name<K: Resource>(of: &K) -> &str {
    of.meta().name.as_deref().unwrap_or_default()
}
