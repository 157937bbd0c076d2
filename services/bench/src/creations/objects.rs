//! All objects of the databases of a namespace: how many bytes they are, and how they are taken away.

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Resource, ResourceExt as _};
use resources::{QuestDB, names};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::IN_FLIGHT;

/// How many bytes they are, without what the API server notes of their managers.
pub(super) async fn bytes(admin: &kube::Client, namespace: &str) -> anyhow::Result<usize> {
    let ours = ListParams::default().labels(&format!("{}={namespace}", names::LABEL_NAMESPACE));
    let all = ListParams::default();
    let sizes = [
        size(&Api::<QuestDB>::namespaced(admin.clone(), namespace), &all).await?,
        size(&Api::<StatefulSet>::namespaced(admin.clone(), namespace), &all).await?,
        size(&Api::<Service>::namespaced(admin.clone(), namespace), &all).await?,
        size(&Api::<ConfigMap>::namespaced(admin.clone(), namespace), &all).await?,
        size(&Api::<Secret>::namespaced(admin.clone(), namespace), &all).await?,
        size(&Api::<PersistentVolumeClaim>::namespaced(admin.clone(), namespace), &all).await?,
        size(&Api::<NetworkPolicy>::namespaced(admin.clone(), namespace), &all).await?,
        size(&Api::<PodDisruptionBudget>::namespaced(admin.clone(), namespace), &all).await?,
        size(&Api::<PersistentVolume>::all(admin.clone()), &ours).await?,
        size(&Api::<Node>::all(admin.clone()), &ours).await?,
    ];
    Ok(sizes.into_iter().sum())
}

async fn size<K>(api: &Api<K>, which: &ListParams) -> anyhow::Result<usize>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let mut size = 0;
    for mut one in api.list(which).await.context("listing what is there")?.items {
        one.meta_mut().managed_fields = None;
        size += serde_json::to_vec(&one)?.len();
    }
    Ok(size)
}

/// Takes all of them away.
pub(super) async fn clear(admin: &kube::Client, namespace: &str) -> anyhow::Result<()> {
    let ours = ListParams::default().labels(&format!("{}={namespace}", names::LABEL_NAMESPACE));
    let all = ListParams::default();
    let databases = &Api::<QuestDB>::namespaced(admin.clone(), namespace);
    let found = databases.list_metadata(&all).await.context("looking for databases")?;
    futures::stream::iter(found.items)
        .map(|one| async move {
            // What is managed can be removed in no other phase.
            let deleted = Patch::Merge(json!({ "status": { "phase": "Deleted" } }));
            let ended = databases.patch_status(&one.name_any(), &PatchParams::default(), &deleted).await;
            ended.map(drop).context("ending a database")
        })
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<()>()
        .await?;
    remove(databases.clone(), &all).await?;
    remove(Api::<StatefulSet>::namespaced(admin.clone(), namespace), &all).await?;
    remove(Api::<Service>::namespaced(admin.clone(), namespace), &all).await?;
    remove(Api::<ConfigMap>::namespaced(admin.clone(), namespace), &all).await?;
    remove(Api::<Secret>::namespaced(admin.clone(), namespace), &all).await?;
    remove(Api::<PersistentVolumeClaim>::namespaced(admin.clone(), namespace), &all).await?;
    remove(Api::<NetworkPolicy>::namespaced(admin.clone(), namespace), &all).await?;
    remove(Api::<PodDisruptionBudget>::namespaced(admin.clone(), namespace), &all).await?;
    remove(Api::<PersistentVolume>::all(admin.clone()), &ours).await?;
    remove(Api::<Node>::all(admin.clone()), &ours).await
}

/// Removes objects, held or not: nobody is left who could let them go.
async fn remove<K>(api: Api<K>, which: &ListParams) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let found = api.list_metadata(which).await.context("looking for what is left")?;
    let api = &api;
    futures::stream::iter(found.items)
        .map(|one| async move {
            let name = one.name_any();
            let delete = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
            if !one.finalizers().is_empty() {
                let free: Value = json!({ "metadata": { "finalizers": null } });
                let _ = api.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(&free)).await;
            }
            match api.delete(&name, &delete).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                other => other.map(drop).context("clearing"),
            }
        })
        .buffer_unordered(IN_FLIGHT)
        .try_collect()
        .await
}
