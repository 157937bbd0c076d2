//! The last look before a disk is said to be another QuestDB's. Whoever finds it alone starts no older major version on it than
//! its tag names.
//!
//! *Invariant:* an older major version than EC2 shows, asked now, is written only while the API server, asked now too, says that
//! this very version serves and that nothing starts another, and EC2 that the disk is on a machine.

use cloud::{Tags, VolumeId, key};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use resources::names;

use super::Pass;
use crate::error::Error;

/// Whether tags say less of a disk than it says itself, which was proved to be right; an error where it was not.
pub(super) async fn understates(pass: &Pass<'_>, resource: &str, tags: &Tags) -> Result<bool, Error> {
    let Some(version) = tags.get(key::QUESTDB).filter(|_| resource.starts_with("vol-")) else {
        return Ok(false);
    };
    let disk = pass.context.lookup.volume(&VolumeId::new(resource)).await;
    let disk = disk.map_err(Error::aws("look at which QuestDB the disk is"))?;
    let Some(disk) = disk.filter(|disk| plan::understates(disk, version)) else { return Ok(false) };
    let (subject, context) = (&pass.validated.subject, pass.context);
    let sets: Api<StatefulSet> = Api::namespaced(context.client.clone(), &subject.namespace);
    let set = context.call("look at what starts QuestDB", sets.get_opt(&subject.name)).await?;
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &subject.namespace);
    let pod = context.call("look at the pod", pods.get_opt(&names::pod(&subject.name))).await?;
    if plan::serves_as(version, &disk, set.as_ref(), pod.as_ref()) {
        return Ok(true);
    }
    Err(Error::Stale { what: format!("QuestDB {version} does not serve alone on {resource}") })
}
