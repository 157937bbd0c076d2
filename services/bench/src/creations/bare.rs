//! The bare rate: how fast the same writes are that make databases, when a loop makes them that knows nothing.
//!
//! An operator makes one database; its objects are the model. Then it is ended, and what was written for that one is written for many
//! others: the same requests in the same order, with bodies of the same shape and size, by the same clients. What they hang on is taken
//! from the answers: the uid and the versions of the resource, and the uid of the Node. Nothing else is read, nothing is watched, and
//! nothing but the first status says how far a database is.

use std::fmt::Debug;
use std::iter::once;
use std::time::Instant;

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ObjectMeta, Request};
use kube::{Api, ResourceExt as _};
use resources::{QuestDB, QuestDBStatus, names};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};

use super::place::{self, Names, Place};
use super::said;
use super::written::{GENERATION, Identity, Written};
use super::{IN_FLIGHT, MADE, NEEDED};
use crate::meter::real;
use crate::pace::until;

/// Name of the model's resource: nothing else of what an operator writes has this word in it.
const SPECIMEN: &str = "specimen";

/// The database that an operator makes.
pub(super) fn specimen() -> Names {
    place::named(once(SPECIMEN.to_owned()))
}

/// Writes a second, from the first resource that is applied until the last StatefulSet is there, for so many databases beside the one
/// of this place, which is made before.
pub(super) async fn rate(place: &Place, count: usize) -> anyhow::Result<f64> {
    let model = model(place).await?;
    let others = place::numbered(count).into_iter();
    let others = others.map(|(database, name)| model.copy(Identity::new(name, database)));
    let others = others.collect::<anyhow::Result<Vec<Written>>>()?;
    let began = Instant::now();
    futures::stream::iter(others)
        .map(|one| make(place, one))
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<()>()
        .await?;
    let took = began.elapsed();
    let all = place.count() + count;
    until(MADE, "what was made", async || Ok(place.has(all).await?.then_some(()))).await?;
    Ok(real(count * NEEDED) / took.as_secs_f64())
}

/// Has an operator make the database of a place; what it wrote.
async fn model(place: &Place) -> anyhow::Result<Written> {
    let operator = place.operator().await?;
    let since = said::now(place).await?;
    place.apply().await?;
    place.all_made(&operator).await?;
    operator.kill().await?;
    let status = said::first(place, &since).await?;
    Written::read(place, status).await
}

/// The sixteen writes that a database takes.
async fn make(place: &Place, one: Written) -> anyhow::Result<()> {
    let Written { identity, status, secret, first, launch, labels, last } = one;
    let (name, namespace) = (identity.name.as_str(), place.namespace.as_str());
    let databases: Api<QuestDB> = Api::namespaced(place.admin.clone(), namespace);
    let nodes: Api<Node> = Api::all(place.admin.clone());

    let resource = place.apply_one(&identity.database, name).await?;
    let uid = resource.metadata.uid.clone().context("what is stored has a uid")?;
    let version = &resource.metadata.resource_version;
    let held = json!({ "finalizers": [names::FINALIZER], "resourceVersion": version });
    let held = merge(&databases, name, &held).await?;
    secret.create(&uid).await?;
    for part in first {
        part.apply(&uid).await?;
    }
    let noted = json!({ "annotations": launch, "resourceVersion": held.resource_version });
    let noted = merge(&databases, name, &noted).await?;
    let machine = identity.machine();
    let node = place::node(namespace, (&identity.database, name), (&machine, GENERATION))?;
    // Two writes: it joins, and then it is ready.
    let node = place::enter(&nodes, &node).await?;
    let labelled = json!({ "uid": node.metadata.uid, "labels": labels });
    merge(&nodes, &node.name_any(), &labelled).await?;
    // An operator keeps it back until there is a disk, which it tells of.
    let report = report(QuestDB { metadata: noted, ..resource }, *status)?;
    say(place, &databases, name, report).await?;
    for part in last {
        part.apply(&uid).await?;
    }
    Ok(())
}

/// Merges metadata into an object, as an operator does; what they are then.
async fn merge<K>(api: &Api<K>, name: &str, metadata: &Value) -> anyhow::Result<ObjectMeta>
where
    K: Clone + Debug + DeserializeOwned,
{
    let parameters =
        PatchParams { field_manager: Some(names::OPERATOR.to_owned()), ..PatchParams::default() };
    let body = Patch::Merge(json!({ "metadata": metadata }));
    let merged = api.patch_metadata(name, &parameters, &body).await;
    Ok(merged.with_context(|| format!("merging into {name}"))?.metadata)
}

/// A resource with another status, as an operator sends it: over the version that it has since its own last write, without what the API
/// server notes of its managers.
fn report(mut resource: QuestDB, status: QuestDBStatus) -> anyhow::Result<Vec<u8>> {
    resource.managed_fields_mut().clear();
    resource.status = Some(status);
    Ok(serde_json::to_vec(&resource)?)
}

/// Replaces the status of a resource, as an operator does.
async fn say(place: &Place, databases: &Api<QuestDB>, name: &str, report: Vec<u8>) -> anyhow::Result<()> {
    let parameters = PostParams { field_manager: Some(names::OPERATOR.to_owned()), ..PostParams::default() };
    let request = Request::new(databases.resource_url());
    let request = request.replace_subresource("status", name, &parameters, report)?;
    let stored: kube::Result<IgnoredAny> = place.admin.request(request).await;
    stored.map(drop).with_context(|| format!("saying how {name} is"))
}

#[cfg(test)]
mod tests {
    use resources::Phase;

    use super::*;

    #[test]
    fn a_status_is_said_over_the_last_write_and_without_the_managers() {
        let resource = serde_json::from_value(json!({
            "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB",
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "8",
                "managedFields": [{ "manager": "other", "operation": "Apply" }],
            },
            "spec": { "storage": { "sizeGib": 20 } },
        }));
        let status = QuestDBStatus { phase: Some(Phase::Provisioning), ..QuestDBStatus::default() };
        let report = report(resource.unwrap(), status).unwrap();
        let report: Value = serde_json::from_slice(&report).unwrap();
        assert_eq!(
            report["metadata"],
            json!({ "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "8", "managedFields": [] })
        );
        assert_eq!(report["status"], json!({ "phase": "Provisioning" }));
        assert_eq!(report["spec"]["storage"]["sizeGib"], 20, "the whole resource is sent");
    }
}
