//! What is not seen as it was written is asked for past all caches: a watch that was open while another definition was in force goes on
//! by that one for a moment, and what it told then is told again by no other. So is what is destroyed on the word of an object: a watch
//! that stands still does not tell that somebody wants to have it kept by now.

use kube::api::ListParams;
use kube::core::{NamespaceResourceScope, ObjectMeta};
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

/// Whether the same is wished of the same object, by what was seen of it and what it is now. Pure.
pub(crate) fn is_same_wish(seen: &ObjectMeta, now: &ObjectMeta) -> bool {
    seen.uid.is_some()
        && now.uid == seen.uid
        && now.generation == seen.generation
        && now.deletion_timestamp == seen.deletion_timestamp
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
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

    type Change = fn(&mut QuestDB);

    #[test]
    fn only_another_wish_or_another_object_is_not_what_was_seen() {
        let seen: QuestDB = serde_json::from_value(json!({
            "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB",
            "metadata": { "name": "a", "namespace": "qdb-a", "uid": "u", "generation": 2 },
            "spec": {
                "version": "9.3.4", "runState": "Paused",
                "compute": { "instanceType": "m7i.large" }, "storage": { "sizeGib": 50 },
            },
        }))
        .unwrap();
        let table: [(&str, Change, bool); 4] = [
            ("a status", |now| now.metadata.resource_version = Some("9".to_owned()), true),
            ("another wish", |now| now.metadata.generation = Some(3), false),
            ("another one of its name", |now| now.metadata.uid = Some("v".to_owned()), false),
            (
                "on its way out",
                |now| now.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH)),
                false,
            ),
        ];
        for (what, change, current) in table {
            let mut now = seen.clone();
            change(&mut now);
            assert_eq!(is_same_wish(&seen.metadata, &now.metadata), current, "{what}");
        }
    }
}
