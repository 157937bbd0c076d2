//! How an object is written beside server-side apply: its whole status, or some of its fields merged into it. Only over what
//! was read: every write carries the version that was seen.
//!
//! Of most answers nothing but metadata is asked for: whoever writes knows the rest.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{DynamicObject, ObjectMeta, Request};
use kube::{Api, Resource};
use resources::names;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::error::Error;

/// What is stored after a status was written, as far as anybody asks.
#[derive(Debug, Deserialize)]
pub(crate) struct Stored {
    pub(crate) metadata: Version,
    /// As it is stored: what it lacks is seen by nothing else.
    pub(crate) status: Option<Map<String, Value>>,
}

/// Which version of an object it is.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Version {
    pub(crate) resource_version: Option<String>,
}

/// Replaces the status of an object that was seen; what is stored then.
pub(crate) async fn status<K>(context: &Context, report: &K) -> Result<Stored, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Serialize,
{
    context.call("write the status", replace_status(context, report)).await
}

/// As `Api::replace_status` does it, but that the rest of the answer is not unpacked.
async fn replace_status<K>(context: &Context, report: &K) -> kube::Result<Stored>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Serialize,
{
    let body = serde_json::to_vec(report).map_err(kube::Error::SerdeError)?;
    let request = Request::new(api(context, report).resource_url());
    let request = request.replace_subresource("status", name(report), &parameters(), body);
    let mut request = request.map_err(kube::Error::BuildRequest)?;
    request.extensions_mut().insert("replace_status");
    context.client.request(request).await
}

/// Changes metadata of an object as it was seen, or not at all; what they are then.
pub(crate) async fn metadata<K>(
    context: &Context,
    seen: &K,
    what: &'static str,
    metadata: Value,
) -> Result<ObjectMeta, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    merge(context, &api(context, seen), name(seen), what, &over(seen, metadata)).await
}

/// The same; the whole object as it is then.
pub(crate) async fn metadata_of<K>(
    context: &Context,
    seen: &K,
    what: &'static str,
    metadata: Value,
) -> Result<K, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let (api, body) = (api(context, seen), over(seen, metadata));
    context.call(what, api.patch(name(seen), &merging(), &Patch::Merge(&body))).await
}

/// Metadata to be merged into an object as it was seen.
fn over<K: Resource>(seen: &K, mut metadata: Value) -> Value {
    metadata["resourceVersion"] = json!(seen.meta().resource_version);
    json!({ "metadata": metadata })
}

/// Merges fields into an object; the body says which one was seen, by its version or its uid. What its metadata are then.
pub(crate) async fn merge<K>(
    context: &Context,
    api: &Api<K>,
    name: &str,
    what: &'static str,
    body: &Value,
) -> Result<ObjectMeta, Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let stored = context.call(what, api.patch_metadata(name, &merging(), &Patch::Merge(body))).await?;
    Ok(stored.metadata)
}

/// How objects are applied. After an apply the API server would read the body as YAML once more, to warn of fields that stand in it twice:
/// in what is written here none does, and nobody hears its warnings. A field that it does not know is an error of an apply all the same.
pub(crate) fn applying() -> PatchParams {
    PatchParams::apply(names::OPERATOR).force().validation_ignore()
}

/// Applies a body to the object of a name, as `Api::patch_metadata` does it, but that nothing of the answer is unpacked: whoever makes what
/// was not there asks for none of it, and the API server says in it of each field whose it is.
pub(crate) async fn applied(
    context: &Context,
    api: &Api<DynamicObject>,
    (name, body): (&str, &Value),
) -> kube::Result<()> {
    let request = Request::new(api.resource_url()).patch_metadata(name, &applying(), &Patch::Apply(body));
    let mut request = request.map_err(kube::Error::BuildRequest)?;
    request.extensions_mut().insert("patch_metadata");
    context.client.request::<IgnoredAny>(request).await.map(drop)
}

fn merging() -> PatchParams {
    let PostParams { field_manager, .. } = parameters();
    PatchParams { field_manager, ..PatchParams::default() }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_applied_is_read_once() {
        let request = Request::new("/api/v1/namespaces/n/configmaps");
        let request = request.patch("a", &applying(), &Patch::Apply(json!({}))).unwrap();
        let asked: Vec<&str> = request.uri().query().unwrap_or_default().split('&').collect();
        for wanted in ["force=true", "fieldValidation=Ignore"] {
            assert!(asked.contains(&wanted), "{wanted} in {asked:?}");
        }
    }
}
