//! The Node, `CSINode` and Lease of one machine in the API server: registered when it boots, kept alive while it lives.
//! Never takes over a Node of another machine, and never brings one back that somebody deleted.

use std::collections::BTreeSet;
use std::sync::Arc;

use cloud::VolumeId;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};

use crate::api::{self, call, found};
use crate::context::Context;
use crate::manifest::{self, Machine};

/// Why a machine has no Node.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server did not answer, or refused.
    #[error("cannot keep the node")]
    Api(#[source] api::Error),
    /// A Node of that name belongs to another machine.
    #[error("node {name} belongs to {owner} and not to {machine}")]
    Taken {
        /// Name of the Node.
        name: String,
        /// Its provider id.
        owner: String,
        /// The provider id of this machine.
        machine: String,
    },
}

/// Keeps one machine's Node.
pub struct Registration {
    context: Arc<Context>,
    machine: Machine,
    uid: Option<String>,
    volumes: Option<BTreeSet<VolumeId>>,
    told: Option<BTreeSet<VolumeId>>,
}

impl Registration {
    /// For a machine.
    pub fn new(context: Arc<Context>, machine: Machine) -> Self {
        Self { context, machine, uid: None, volumes: None, told: None }
    }

    /// Creates the Node, or says anew what is true of the one that is there; then `CSINode` and Lease.
    pub async fn register(&mut self) -> Result<(), Error> {
        let now = Timestamp::now();
        let wanted = manifest::node(&self.machine, &self.context.settings, now);
        let nodes = self.nodes();
        let name = self.machine.intent.name.clone();
        let created = call("create a node", nodes.create(&PostParams::default(), &wanted)).await;
        let node = match created {
            Err(error) if error.is_already_exists() => self.take_up(&name, &wanted).await?,
            other => other.map_err(Error::Api)?,
        };
        let uid = node.metadata.uid.unwrap_or_default();
        self.uid = Some(uid.clone());
        self.told = None;
        self.ensure_csi_node(&uid).await?;
        self.renew_lease(now).await
    }

    /// Renews the Lease; looks whether the Node says Ready, and says so again if it does not.
    pub async fn renew(&mut self) -> Result<(), Error> {
        let now = Timestamp::now();
        self.renew_lease(now).await?;
        let name = self.machine.intent.name.clone();
        let node = found(call("get a node", self.nodes().get(&name)).await).map_err(Error::Api)?;
        let Some(node) = node.filter(|node| node.metadata.uid == self.uid) else { return Ok(()) };
        if !is_ready(&node) {
            let status = manifest::status(&self.machine, &self.context.settings, now);
            self.patch_status(&serde_json::json!({ "status": status })).await?;
            tracing::info!(node.name = name, "a node is ready again");
        }
        self.tell_volumes().await
    }

    /// Tells which volumes must not be detached yet. Said again with the next renewal if it does not get through.
    pub async fn volumes_in_use(&mut self, volumes: BTreeSet<VolumeId>) -> Result<(), Error> {
        self.volumes = Some(volumes);
        self.tell_volumes().await
    }

    async fn tell_volumes(&mut self) -> Result<(), Error> {
        let Some(volumes) = self.volumes.clone().filter(|volumes| self.told.as_ref() != Some(volumes)) else {
            return Ok(());
        };
        let names: Vec<_> = volumes.iter().map(|id| manifest::unique_volume_name(id.as_str())).collect();
        self.patch_status(&serde_json::json!({"status": {"volumesInUse": names}})).await?;
        self.told = Some(volumes);
        Ok(())
    }

    async fn take_up(&self, name: &str, wanted: &Node) -> Result<Node, Error> {
        let nodes = self.nodes();
        let node = call("get a node", nodes.get(name)).await.map_err(Error::Api)?;
        let owner = node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
        let machine = manifest::provider_id(&self.machine.instance);
        if owner != machine {
            return Err(Error::Taken { name: name.to_owned(), owner, machine });
        }
        let metadata = serde_json::json!({"metadata": {
            "uid": node.metadata.uid,
            "labels": wanted.metadata.labels,
            "annotations": wanted.metadata.annotations,
        }});
        call("patch a node", nodes.patch(name, &PatchParams::default(), &Patch::Strategic(metadata)))
            .await
            .map_err(Error::Api)?;
        self.patch_status(&serde_json::json!({ "status": wanted.status })).await?;
        Ok(node)
    }

    async fn ensure_csi_node(&self, node_uid: &str) -> Result<(), Error> {
        let csi_nodes = Api::<CSINode>::all(self.context.client.clone());
        let wanted = manifest::csi_node(&self.machine, node_uid);
        let name = &self.machine.intent.name;
        match call("create a CSINode", csi_nodes.create(&PostParams::default(), &wanted)).await {
            Err(error) if error.is_already_exists() => {}
            other => return other.map(|_| ()).map_err(Error::Api),
        }
        // One of an earlier Node of this name would be collected as garbage, and its driver names another machine.
        let current = call("get a CSINode", csi_nodes.get(name)).await.map_err(Error::Api)?;
        let owners = current.metadata.owner_references.unwrap_or_default();
        if owners.iter().any(|owner| owner.uid == node_uid) && current.spec == wanted.spec {
            return Ok(());
        }
        found(call("delete a CSINode", csi_nodes.delete(name, &DeleteParams::default())).await)
            .map_err(Error::Api)?;
        call("create a CSINode", csi_nodes.create(&PostParams::default(), &wanted))
            .await
            .map(|_| ())
            .map_err(Error::Api)
    }

    async fn renew_lease(&self, now: Timestamp) -> Result<(), Error> {
        let Some(uid) = &self.uid else { return Ok(()) };
        let leases = Api::<Lease>::namespaced(self.context.client.clone(), "kube-node-lease");
        let name = &self.machine.intent.name;
        let patch = Patch::Merge(serde_json::json!({"spec": {
            "renewTime": MicroTime(now), "holderIdentity": name, "leaseDurationSeconds": manifest::LEASE_SECONDS,
        }}));
        let parameters = PatchParams::default();
        let patched = leases.patch(name, &parameters, &patch);
        if found(call("renew a lease", patched).await).map_err(Error::Api)?.is_some() {
            return Ok(());
        }
        let lease = manifest::lease(&self.machine, uid, now);
        call("create a lease", leases.create(&PostParams::default(), &lease))
            .await
            .map(|_| ())
            .map_err(Error::Api)
    }

    async fn patch_status(&self, patch: &serde_json::Value) -> Result<(), Error> {
        let name = &self.machine.intent.name;
        let (nodes, parameters, patch) = (self.nodes(), PatchParams::default(), Patch::Strategic(patch));
        let patched = nodes.patch_status(name, &parameters, &patch);
        found(call("patch a node's status", patched).await).map(|_| ()).map_err(Error::Api)
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.context.client.clone())
    }
}

/// Deletes the Node of a machine that is gone for good, as a cloud controller does: one that died with disks in use only
/// once its Lease ran out, which leaves time for whoever heals to close it first. Another machine's Node of that name
/// is left alone. Returns whether nothing is left to do.
pub async fn bury(context: &Context, name: &str, instance: &str) -> Result<bool, api::Error> {
    let nodes = Api::<Node>::all(context.client.clone());
    let Some(node) = found(call("get a node", nodes.get(name)).await)? else { return Ok(true) };
    if must_wait(&node) {
        return Ok(false);
    }
    let provider_id = node.spec.and_then(|spec| spec.provider_id).unwrap_or_default();
    if manifest::instance_of_provider_id(&provider_id) != Some(instance) {
        return Ok(true);
    }
    let parameters = DeleteParams {
        preconditions: Some(Preconditions { uid: node.metadata.uid, resource_version: None }),
        ..DeleteParams::default()
    };
    match found(call("delete a node", nodes.delete(name, &parameters)).await) {
        Err(error) if error.is_conflict() => Ok(true),
        other => other.map(|_| true),
    }
}

/// A Node called ready that still names disks in use: its machine died a moment ago.
fn must_wait(node: &Node) -> bool {
    let in_use = node.status.as_ref().and_then(|status| status.volumes_in_use.as_ref());
    is_ready(node) && in_use.is_some_and(|in_use| !in_use.is_empty())
}

/// The Nodes an agent of this cluster registered: name and instance.
pub async fn registered(context: &Context) -> Result<Vec<(String, String)>, api::Error> {
    let nodes = Api::<Node>::all(context.client.clone());
    let list = call("list nodes", nodes.list(&kube::api::ListParams::default())).await?;
    let ours = list.items.into_iter().filter(|node| {
        let annotations = node.metadata.annotations.as_ref();
        annotations.and_then(|annotations| annotations.get(manifest::MANAGED_BY))
            == Some(&context.settings.cluster)
    });
    let named = ours.filter_map(|node| {
        let provider_id = node.spec?.provider_id?;
        let instance = manifest::instance_of_provider_id(&provider_id)?.to_owned();
        Some((node.metadata.name?, instance))
    });
    Ok(named.collect())
}

/// Makes the `CSIDriver`, which a cluster has once.
pub async fn ensure_driver(context: &Context) -> Result<(), api::Error> {
    let drivers = Api::<CSIDriver>::all(context.client.clone());
    let driver = manifest::csi_driver();
    match call("create the CSIDriver", drivers.create(&PostParams::default(), &driver)).await {
        Err(error) if error.is_already_exists() => Ok(()),
        other => other.map(|_| ()),
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.filter(|condition| condition.type_ == "Ready").any(|condition| condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_node_that_died_with_disks_is_not_deleted_before_its_lease_ran_out() {
        let check = |ready: &str, in_use: &[&str], expected: bool| {
            let machine = fixture::machine("i-1", "n");
            let mut node = manifest::node(&machine, &fixture::settings(), Timestamp::UNIX_EPOCH);
            let status = node.status.as_mut().unwrap();
            status.volumes_in_use = Some(in_use.iter().map(|name| (*name).to_owned()).collect());
            for condition in
                status.conditions.iter_mut().flatten().filter(|condition| condition.type_ == "Ready")
            {
                condition.status = ready.to_owned();
            }
            assert_eq!(must_wait(&node), expected, "{ready} {in_use:?}");
        };
        check("True", &["v"], true);
        check("True", &[], false);
        check("Unknown", &["v"], false);
    }
}
