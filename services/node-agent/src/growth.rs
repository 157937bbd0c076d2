//! The part of kubelet and CSI driver that lets a file system follow its disk: where a `PersistentVolume` says more than the
//! status of its claim and a pod uses it here, the file system is grown, and the claim says so. Nothing else grows it.
//!
//! Folders of the host have no size, so what is played is when it happens and what is said. *Invariant:* it is not said before
//! EC2 lets the new size be used: what a real file system would have missed then, it would miss for ever.

use std::sync::Arc;
use std::time::Duration;

use cloud::VolumeId;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::api::{call, chain};
use crate::context::Context;
use crate::manifest::DRIVER;
use crate::settings::Mode;

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(2);
/// What a size is called among resources.
const STORAGE: &str = "storage";

/// Looks after all file systems of the cluster until stopped.
pub async fn run(context: Arc<Context>, stop: CancellationToken) {
    while runtime::backoff::sleep(PERIOD, &stop).await {
        for volume in context.caches.volumes.state() {
            if let Err(problem) = look(&context, &volume).await {
                tracing::warn!("a file system does not grow: {problem}");
            }
        }
    }
}

/// A file system that is to grow.
#[derive(Debug, PartialEq)]
struct Growth {
    namespace: String,
    claim: String,
    volume: VolumeId,
    size: Quantity,
}

async fn look(context: &Context, volume: &PersistentVolume) -> Result<(), String> {
    let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()).and_then(|claim| {
        let reference = ObjectRef::new(claim.name.as_deref()?).within(claim.namespace.as_deref()?);
        context.caches.claims.get(&reference)
    });
    let Some(growth) = claim.and_then(|claim| growth(volume, &claim)) else { return Ok(()) };
    let name = volume.metadata.name.as_deref();
    let attached = context.caches.attachments.find(|attachment| {
        attachment.spec.source.persistent_volume_name.as_deref() == name
            && attachment.status.as_ref().is_some_and(|status| status.attached)
    });
    let used = context.settings.mode == Mode::None || context.disks.is_used(&growth.volume);
    if attached.is_none() || !used {
        return Ok(());
    }
    let asked = [growth.volume.clone()];
    let found = context.cloud.describe_volume_modifications(&asked).await.map_err(|error| chain(&error))?;
    if let Some(early) = found.iter().find(|found| found.state.is_under_way()) {
        return Err(format!(
            "PersistentVolume {} says {}, and EC2 is still {} {}: a real file system would stay as it is for ever",
            name.unwrap_or_default(),
            growth.size.0,
            early.state,
            growth.volume
        ));
    }
    let claims = Api::<PersistentVolumeClaim>::namespaced(context.client.clone(), &growth.namespace);
    let patch = Patch::Merge(json!({ "status": { "capacity": { STORAGE: growth.size } } }));
    let params = PatchParams::default();
    let patched = claims.patch_status(&growth.claim, &params, &patch);
    call("say how large a file system is", patched).await.map_err(|error| chain(&error))?;
    tracing::info!(volume = %growth.volume, size = growth.size.0, "a file system has grown");
    Ok(())
}

/// What is to be done for a volume and its claim, by what they say.
fn growth(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<Growth> {
    let spec = volume.spec.as_ref()?;
    let source = spec.csi.as_ref().filter(|source| source.driver == DRIVER)?;
    let status = claim.status.as_ref().filter(|status| status.phase.as_deref() == Some("Bound"))?;
    let size = spec.capacity.as_ref()?.get(STORAGE)?;
    let known = status.capacity.as_ref()?.get(STORAGE)?;
    let is_of_it = claim.spec.as_ref()?.volume_name == volume.metadata.name;
    (is_of_it && gibibytes(known)? < gibibytes(size)?).then(|| Growth {
        namespace: claim.metadata.namespace.clone().unwrap_or_default(),
        claim: claim.metadata.name.clone().unwrap_or_default(),
        volume: VolumeId::new(source.volume_handle.clone()),
        size: size.clone(),
    })
}

/// Disks have whole GiB, which the API server writes as Gi or Ti.
fn gibibytes(quantity: &Quantity) -> Option<u64> {
    let text = quantity.0.as_str();
    match text.strip_suffix("Ti") {
        Some(number) => number.parse::<u64>().ok()?.checked_mul(1_024),
        None => text.strip_suffix("Gi")?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(size: &str) -> PersistentVolume {
        let body = json!({
            "metadata": { "name": "v" },
            "spec": { "capacity": { "storage": size }, "csi": { "driver": DRIVER, "volumeHandle": "vol-1" } },
        });
        serde_json::from_value(body).unwrap()
    }

    fn claim(size: &str, phase: &str, of: &str) -> PersistentVolumeClaim {
        let body = json!({
            "metadata": { "name": "c", "namespace": "n" },
            "spec": { "volumeName": of },
            "status": { "phase": phase, "capacity": { "storage": size } },
        });
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn a_file_system_follows_its_own_disk_upwards() {
        let found = growth(&volume("80Gi"), &claim("50Gi", "Bound", "v")).unwrap();
        assert_eq!((found.namespace.as_str(), found.claim.as_str()), ("n", "c"));
        assert_eq!((found.volume.as_str(), found.size.0.as_str()), ("vol-1", "80Gi"));
        assert!(growth(&volume("1Ti"), &claim("1023Gi", "Bound", "v")).is_some());
        for (size, claim) in [
            ("80Gi", claim("80Gi", "Bound", "v")),
            ("80Gi", claim("1Ti", "Bound", "v")),
            ("80Gi", claim("50Gi", "Pending", "v")),
            ("80Gi", claim("50Gi", "Bound", "other")),
        ] {
            assert_eq!(growth(&volume(size), &claim), None, "{claim:?}");
        }
    }
}
