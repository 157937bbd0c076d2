//! What earlier tests left in the API server, taken away before the next one begins: observers of a test tell of every
//! resource of the server, and thousands that are nobody's would be most of what it measures.

#![cfg(test)]

use futures::StreamExt as _;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use resources::QuestDB;
use serde_json::json;

/// Requests at once.
const AT_ONCE: usize = 16;

/// Removes the resources of a namespace in which nobody works any more.
pub(crate) async fn clear(client: &kube::Client, namespace: &str) {
    let api: Api<QuestDB> = Api::namespaced(client.clone(), namespace);
    let left = api.list_metadata(&ListParams::default()).await.unwrap();
    let names = left.items.into_iter().filter_map(|object| object.metadata.name);
    let removals = names.map(|name| remove(&api, name));
    futures::stream::iter(removals).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

/// A managed resource may go only once its database is said to be gone.
async fn remove(api: &Api<QuestDB>, name: String) {
    let gone = Patch::Merge(json!({"status": {"phase": "Deleted"}}));
    api.patch_status(&name, &PatchParams::default(), &gone).await.unwrap();
    api.delete(&name, &DeleteParams::background()).await.unwrap();
}
