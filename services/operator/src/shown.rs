//! What is not seen as it was written is asked for past all caches: a watch that was open while another definition was in force goes on
//! by that one for a moment, and what it told then is told again by no other. So is what is destroyed on the word of an object: a watch
//! that stands still does not tell that somebody wants to have it kept by now.

use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use resources::Readable;

use crate::context::Context;
use crate::error::Error;

/// Asks for an object that is seen otherwise than it was written. Where the API server itself shows it as it was, which `right` says,
/// everything is listed again. Who does not answer says nothing.
pub(crate) async fn ask<K>(context: &Context, seen: &K, right: impl FnOnce(&K) -> bool)
where
    K: Readable + Resource<Scope = NamespaceResourceScope> + Clone + std::fmt::Debug,
{
    match context.call("look whether it is shown otherwise", shown(&context.client, seen)).await {
        Ok(Some(found)) if right(&found) => context.watches.standing().mistold(),
        Ok(_) => {}
        Err(error) => tracing::debug!(error = runtime::telemetry::chain(&error), "it is not shown otherwise"),
    }
}

/// The same object as the API server has it now; none when it is not there, or another one has its name.
pub(crate) async fn now<K>(context: &Context, seen: &K) -> Result<Option<K>, Error>
where
    K: Readable + Resource<Scope = NamespaceResourceScope> + Clone + std::fmt::Debug,
{
    context.call("look at an object as it is now", shown(&context.client, seen)).await
}

/// The same object as the API server shows it now; an error when it cannot be read in whole.
async fn shown<K>(client: &Client, seen: &K) -> kube::Result<Option<K>>
where
    K: Readable + Resource<Scope = NamespaceResourceScope> + Clone + std::fmt::Debug,
{
    let metadata = seen.meta();
    let (Some(namespace), Some(name)) = (&metadata.namespace, &metadata.name) else { return Ok(None) };
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    // Not all kinds may be got one by one.
    let found = api.list(&ListParams::default().fields(&format!("metadata.name={name}"))).await?;
    Ok(found.items.into_iter().find(|found| found.meta().uid == metadata.uid))
}

#[cfg(test)]
mod tests {
    use resources::QuestDB;
    use serde_json::{Value, json};

    use super::*;
    use crate::played::{self, Answer};

    fn resource(uid: &str, state: &str) -> Value {
        json!({
            "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB",
            "metadata": { "name": "a", "namespace": "qdb-a", "uid": uid },
            "spec": {
                "version": "9.3.4", "runState": state,
                "compute": { "instanceType": "m7i.large" }, "storage": { "sizeGib": 50 },
            },
        })
    }

    /// A server that has this one alone.
    fn server(item: Value) -> Client {
        played::client(move |path, watches| {
            assert!(!watches && path.ends_with("/namespaces/qdb-a/questdbs"), "{path}");
            Answer::Is(200, json!({ "metadata": {}, "items": [item.clone()] }))
        })
    }

    #[tokio::test]
    async fn only_the_same_object_that_is_whole_is_shown_otherwise() {
        let seen: QuestDB = serde_json::from_value(resource("1", "Running")).unwrap();
        let shown = async |item: Value| shown(&server(item), &seen).await;
        let found = shown(resource("1", "Paused")).await.unwrap().unwrap();
        assert_eq!(serde_json::to_value(found.spec.run_state).unwrap(), json!("Paused"));
        assert!(shown(resource("2", "Running")).await.unwrap().is_none(), "another one has its name");
        assert!(shown(resource("1", "Hibernating")).await.is_err(), "it is not whole there either");
    }
}
