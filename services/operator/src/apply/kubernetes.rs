//! Writes to Kubernetes: server-side apply of our fields, merges with a `resourceVersion`, deletes with a uid.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::Api;
use kube::api::{DeleteParams, Patch, Preconditions};
use kube::core::{DynamicObject, ObjectMeta};
use kube::discovery::ApiResource;
use plan::{Kind, Manifest, Target};
use resources::{QuestDB, QuestDBSnapshot, names};
use serde_json::{Value, json};

use super::Pass;
use super::contention::{Repair, returns};
use crate::context::Context;
use crate::error::Error;
use crate::write;

/// A version that no object has: an apply that names it makes what is not there, and is refused where something is.
const NEVER: &str = "1";
/// How often a write of whose fields they are is tried.
const RELEASES: u8 = 5;

/// Adds the finalizer, and writes down the identity of the database beside it.
pub(crate) async fn hold(
    context: &Context,
    resource: &QuestDB,
    identity: Option<&str>,
) -> Result<ObjectMeta, Error> {
    let mut finalizers = resource.metadata.finalizers.clone().unwrap_or_default();
    if !plan::is_held(resource) {
        finalizers.push(names::FINALIZER.to_owned());
    }
    let mut metadata = json!({});
    // Nobody may add one to what is being deleted.
    if resource.metadata.deletion_timestamp.is_none() {
        metadata["finalizers"] = json!(finalizers);
    }
    if let Some(identity) = identity {
        metadata["annotations"] = json!({ names::ADOPTED_ID: identity });
    }
    change(context, resource, "add the finalizer", metadata).await
}

/// Changes metadata of a resource as it was seen, or not at all; what they are then.
async fn change(
    context: &Context,
    resource: &QuestDB,
    what: &'static str,
    metadata: Value,
) -> Result<ObjectMeta, Error> {
    let after = write::metadata(context, resource, what, metadata).await?;
    context.memories.overtook(&resource.metadata, after.resource_version.as_deref());
    Ok(after)
}

pub(super) async fn write_generation(
    pass: &Pass<'_>,
    generation: u64,
    launch: &str,
    zone: &str,
) -> Result<ObjectMeta, Error> {
    let annotations = json!({
        names::GENERATION: generation.to_string(),
        names::LAUNCH: launch,
        names::LAUNCH_ZONE: zone,
    });
    let metadata = json!({ "annotations": annotations });
    change(pass.context, pass.resource, "write down the generation", metadata).await
}

pub(super) async fn write_released(
    pass: &Pass<'_>,
    released: &str,
    unjoined: Option<&str>,
) -> Result<ObjectMeta, Error> {
    let mut metadata = json!({ "annotations": { names::RELEASED: released } });
    if let Some(unjoined) = unjoined {
        metadata["annotations"][names::UNJOINED] = json!(unjoined);
    }
    change(pass.context, pass.resource, "write down the release", metadata).await
}

/// Lets the resource go.
pub(crate) async fn release(context: &Context, resource: &QuestDB) -> Result<(), Error> {
    let finalizers = resource.metadata.finalizers.clone().unwrap_or_default();
    let others: Vec<_> = finalizers.into_iter().filter(|finalizer| finalizer != names::FINALIZER).collect();
    let metadata = json!({ "finalizers": others });
    match change(context, resource, "remove the finalizer", metadata).await {
        Err(error) if error.is_missing() => Ok(()),
        other => other.map(drop),
    }
}

/// Makes an object what we intend, unless one of that name belongs to somebody else; `over` what was seen to leave no place for
/// ours, if it would stay. Whether it was there as we know it all along, and was not seen yet.
pub(super) async fn apply(pass: &Pass<'_>, manifest: &Manifest, over: bool) -> Result<bool, Error> {
    let api = dynamic(pass.context, manifest.kind, manifest.namespace.as_deref());
    let mut body = manifest.body.clone();
    let (mut repair, mut is_hidden) = (None, false);
    if let Some(uid) = &manifest.uid {
        repair = Some(Repair::begin(pass, &api, manifest).await?);
        body["metadata"]["uid"] = json!(uid);
    } else {
        body["metadata"]["resourceVersion"] = json!(NEVER);
        let made = write::applied(pass.context, &api, (&manifest.name, &body));
        match pass.context.call("make an object", made).await {
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error),
            Ok(()) => {
                returns::came_back(pass, manifest);
                return Ok(false);
            }
        }
        let Some(found) = check_ours(pass, &api, manifest).await? else {
            return Err(Error::Stale { what: format!("{} is not there any more", manifest.name) });
        };
        if pass.validated.subject.is_yet_to_be_seen(manifest, &found.metadata) {
            let kind = manifest.kind.as_str();
            return Err(Error::Stale {
                what: format!("{kind} {} is there, and is not seen yet", manifest.name),
            });
        }
        // What is only seen late has its labels.
        is_hidden = !pass.validated.subject.owns(found.metadata.labels.as_ref());
        body = manifest.body.clone();
        body["metadata"]["uid"] = json!(found.metadata.uid);
    }
    let applied = if over && is_crowded_out(pass, &api, manifest).await? {
        // An API server that does not look into it would take both, and no pod could be made of that.
        overwrite(pass, &api, manifest, None).await?
    } else {
        match send(pass.context, &api, (&manifest.name, &body)).await {
            // What somebody wrote beside it may have no place there.
            Err(error) if error.is_invalid() && repair.is_some() => {
                overwrite(pass, &api, manifest, Some(error)).await?
            }
            applied => applied?,
        }
    };
    // A program that wrote over something may have ended before it gave that back. What fills a Secret is a merge, and stays one.
    if manifest.kind != Kind::Secret && is_updated(&applied) {
        release_updated(pass.context, &api, applied).await?;
    }
    if let Some(repair) = repair {
        repair.done(pass);
    }
    if is_hidden {
        returns::came_back(pass, manifest);
    }
    Ok(manifest.uid.is_none() && !is_hidden)
}

/// Applies a body to the object of a name; what its metadata are then.
async fn send(
    context: &Context,
    api: &Api<DynamicObject>,
    (name, body): (&str, &Value),
) -> Result<ObjectMeta, Error> {
    let (parameters, body) = (write::applying(), Patch::Apply(body));
    let stored = context.call("apply an object", api.patch_metadata(name, &parameters, &body)).await?;
    Ok(stored.metadata)
}

/// Whether what leaves no place for ours would stay beside it. What we wrote for an earlier wish an apply takes away itself.
async fn is_crowded_out(
    pass: &Pass<'_>,
    api: &Api<DynamicObject>,
    manifest: &Manifest,
) -> Result<bool, Error> {
    let found = pass.context.call("see who leaves no place for our fields", api.get_opt(&manifest.name));
    let found = serde_json::to_value(found.await?).unwrap_or_default();
    Ok(plan::crowds_out(&found, manifest))
}

/// Writes over what others wrote where ours cannot stand beside it, and applies. Where that is not it the error of before stands;
/// who was not refused before only applies.
async fn overwrite(
    pass: &Pass<'_>,
    api: &Api<DynamicObject>,
    manifest: &Manifest,
    refused: Option<Error>,
) -> Result<ObjectMeta, Error> {
    let (context, name) = (pass.context, &manifest.name);
    let found = context.call("see what stands beside our fields", api.get_opt(name)).await?;
    let Some(found) = found.filter(|found| found.metadata.uid == manifest.uid) else {
        let gone = || Error::Stale { what: format!("{name} is not there any more") };
        return Err(refused.unwrap_or_else(gone));
    };
    let decided_on = manifest.body["metadata"]["resourceVersion"].as_str();
    if decided_on.is_some_and(|version| found.metadata.resource_version.as_deref() != Some(version)) {
        return Err(Error::Stale { what: format!("{name} has changed since it was decided on") });
    }
    let found = serde_json::to_value(found).unwrap_or_default();
    let mut body = manifest.body.clone();
    body["metadata"]["uid"] = json!(manifest.uid);
    if let Some(patch) = plan::overwriting(&found, manifest) {
        let what = "write over what stands beside our fields";
        let written = match write::merge(context, api, name, what, &patch).await {
            Err(error) if error.is_invalid() => return Err(refused.unwrap_or(error)),
            written => written?,
        };
        let released = release_updated(context, api, written).await?;
        body["metadata"]["resourceVersion"] = json!(released.resource_version);
    } else if let Some(refused) = refused {
        return Err(refused);
    }
    // What we once wrote and intend no more only an apply takes away.
    send(context, api, (name, &body)).await
}

/// What a merge made us own: to the API server who merges is somebody else than who applies under the same name, and what two
/// own neither can take away.
fn is_by_update(owner: &ManagedFieldsEntry) -> bool {
    owner.manager.as_deref() == Some(names::OPERATOR)
        && owner.operation.as_deref() == Some("Update")
        && owner.subresource.is_none()
}

fn is_updated(metadata: &ObjectMeta) -> bool {
    metadata.managed_fields.iter().flatten().any(is_by_update)
}

/// Gives back what a merge made us own. Whoever else writes meanwhile, as a controller does its status, has changed nothing about
/// that, so it is tried again with what there is then.
async fn release_updated(
    context: &Context,
    api: &Api<DynamicObject>,
    mut written: ObjectMeta,
) -> Result<ObjectMeta, Error> {
    let name = written.name.clone().unwrap_or_default();
    for _ in 1..RELEASES {
        match write_owners(context, api, &name, &written).await {
            Err(error) if error.is_conflict() => {}
            released => return released,
        }
        let found = context.call("see whose fields they are", api.get_opt(&name)).await?;
        let found = found.map(|found| found.metadata).filter(|found| found.uid == written.uid);
        written = found.ok_or_else(|| Error::Stale { what: format!("{name} is not there any more") })?;
    }
    write_owners(context, api, &name, &written).await
}

async fn write_owners(
    context: &Context,
    api: &Api<DynamicObject>,
    name: &str,
    written: &ObjectMeta,
) -> Result<ObjectMeta, Error> {
    let mut owners = written.managed_fields.clone().unwrap_or_default();
    owners.retain(|owner| !is_by_update(owner));
    let (uid, version) = (&written.uid, &written.resource_version);
    let metadata = json!({ "uid": uid, "resourceVersion": version, "managedFields": owners });
    let body = json!({ "metadata": metadata });
    write::merge(context, api, name, "give back what was only written over", &body).await
}

/// A name that our caches do not show may still be taken: by somebody else, or by our own object whose labels, by which the
/// caches find it, somebody took off.
pub(super) async fn check_ours(
    pass: &Pass<'_>,
    api: &Api<DynamicObject>,
    manifest: &Manifest,
) -> Result<Option<DynamicObject>, Error> {
    let Some(found) = pass.context.call("look for an object", api.get_opt(&manifest.name)).await? else {
        return Ok(None);
    };
    let value = serde_json::to_value(&found).unwrap_or_default();
    if pass.validated.subject.recognises(manifest, &value) {
        return Ok(Some(found));
    }
    Err(Error::Foreign { what: format!("{} {}", manifest.kind.as_str(), manifest.name) })
}

/// Deletes exactly what was seen; gone already is done, and so it is when another one has its name by now.
pub(super) async fn delete(pass: &Pass<'_>, target: &Target) -> Result<(), Error> {
    let api = dynamic(pass.context, target.kind, target.namespace.as_deref());
    let preconditions =
        Preconditions { uid: Some(target.uid.clone()), resource_version: target.resource_version.clone() };
    let parameters = DeleteParams {
        preconditions: Some(preconditions),
        grace_period_seconds: target.at_once.then_some(0),
        ..DeleteParams::background()
    };
    returns::deleted(pass, target);
    match pass.context.call("delete an object", api.delete(&target.name, &parameters)).await {
        Err(error) if error.is_missing() => Ok(()),
        // Nothing but the uid was asked for.
        Err(error) if error.is_conflict() && target.resource_version.is_none() => Ok(()),
        other => other.map(drop),
    }
}

/// Says on a Node whose machine it is.
pub(super) async fn label_node(
    pass: &Pass<'_>,
    name: &str,
    uid: &str,
    labels: &BTreeMap<String, String>,
) -> Result<(), Error> {
    let api: Api<Node> = Api::all(pass.context.client.clone());
    let body = json!({ "metadata": { "uid": uid, "labels": labels } });
    write::merge(pass.context, &api, name, "label a Node", &body).await.map(drop)
}

/// An API for any of the kinds that we write.
pub(crate) fn dynamic(context: &Context, kind: Kind, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = match kind {
        Kind::Secret => namespaced::<Secret>(),
        Kind::ConfigMap => namespaced::<ConfigMap>(),
        Kind::Service => namespaced::<Service>(),
        Kind::StatefulSet => namespaced::<StatefulSet>(),
        Kind::Pod => namespaced::<Pod>(),
        Kind::PersistentVolumeClaim => namespaced::<PersistentVolumeClaim>(),
        Kind::PersistentVolume => clustered::<PersistentVolume>(),
        Kind::Node => clustered::<Node>(),
        Kind::NetworkPolicy => namespaced::<NetworkPolicy>(),
        Kind::PodDisruptionBudget => namespaced::<PodDisruptionBudget>(),
        Kind::Snapshot => namespaced::<QuestDBSnapshot>(),
        Kind::ServiceMonitor | Kind::PodMonitor | Kind::IngressRoute | Kind::IngressRouteTcp => {
            crate::reach::api_resource(kind)
        }
    };
    match namespace {
        Some(namespace) => Api::namespaced_with(context.client.clone(), namespace, &resource),
        None => Api::all_with(context.client.clone(), &resource),
    }
}

fn namespaced<K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

fn clustered<K: kube::Resource<DynamicType = (), Scope = ClusterResourceScope>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}
