//! What is not seen as it was written is asked for past all caches: a watch that was open while another definition was in force goes on
//! by that one for a moment, and what it told then is told again by no other.

use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource};
use resources::Readable;

use crate::context::Context;

/// Asks for an object that is seen otherwise than it was written. Where the API server itself shows it as it was, which `right` says,
/// everything is listed again. Who does not answer says nothing.
pub(crate) async fn ask<K>(context: &Context, seen: &K, right: impl Fn(&K) -> bool)
where
    K: Readable + Resource<Scope = NamespaceResourceScope> + Clone + std::fmt::Debug,
{
    let metadata = seen.meta();
    let (Some(namespace), Some(name)) = (&metadata.namespace, &metadata.name) else { return };
    let api: Api<K> = Api::namespaced(context.client.clone(), namespace);
    // What cannot be read in whole is an error here.
    // Not all kinds may be got one by one.
    let only = ListParams::default().fields(&format!("metadata.name={name}"));
    match context.call("look whether it is shown otherwise", api.list(&only)).await {
        Ok(found) => {
            if found.items.iter().any(|found| found.meta().uid == metadata.uid && right(found)) {
                context.watches.standing().mistold();
            }
        }
        Err(error) => tracing::debug!(error = runtime::telemetry::chain(&error), "it is not shown otherwise"),
    }
}
