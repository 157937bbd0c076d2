//! Saying how it is: the status, written only when it says something else than before, and only over what was read.

use std::fmt;

use kube::Api;
use kube::api::PostParams;
use resources::{Phase, QuestDB, QuestDBStatus, names};

use crate::context::Context;
use crate::error::Error;

/// The place right after a write to the API server, about a [`Position`].
pub(crate) const WRITTEN: &str = "operator.write";

/// A resource by name at a generation of its spec: whom tests mean at a place.
pub(crate) struct Position<'a>(pub(crate) &'a str, pub(crate) i64);

impl fmt::Display for Position<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0, self.1)
    }
}

/// Writes a status. `resource_version` is that of our own last write in this pass, where there was one.
pub(crate) async fn write(
    context: &Context,
    resource: &QuestDB,
    status: QuestDBStatus,
    resource_version: Option<&str>,
) -> Result<(), Error> {
    if resource.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let before = resource.status.as_ref().and_then(|status| status.phase);
    let after = status.phase;
    let mut report = resource.clone();
    report.status = Some(status);
    if let Some(version) = resource_version {
        report.metadata.resource_version = Some(version.to_owned());
    }
    let namespace = resource.metadata.namespace.as_deref().unwrap_or_default();
    let name = resource.metadata.name.as_deref().unwrap_or_default();
    let api: Api<QuestDB> = Api::namespaced(context.client.clone(), namespace);
    let parameters = PostParams { field_manager: Some(names::OPERATOR.to_owned()), ..PostParams::default() };
    context.call("write the status", api.replace_status(name, &parameters, &report)).await?;
    let generation = resource.metadata.generation.unwrap_or_default();
    runtime::failpoint::hit(WRITTEN, Position(name, generation)).await;
    if before != after {
        announce(context, resource, before, after).await;
    }
    Ok(())
}

async fn announce(context: &Context, resource: &QuestDB, before: Option<Phase>, after: Option<Phase>) {
    let Some(after) = after else { return };
    tracing::info!(
        db.phase.before = before.map(Phase::as_str),
        db.phase = after.as_str(),
        "the database is {}",
        after.as_str().to_lowercase()
    );
    if after == Phase::Ready && !matches!(before, Some(Phase::Updating | Phase::Degraded)) {
        let made = resource.metadata.creation_timestamp.as_ref();
        let took = made.map(|made| jiff::Timestamp::now().duration_since(made.0));
        if let Some(took) = took.and_then(|took| std::time::Duration::try_from(took).ok()) {
            context.measures.provisioned(took);
        }
    }
    let note = format!("the database is {}", after.as_str());
    if after == Phase::Degraded {
        context.events.wrong(resource, after.as_str(), note).await;
    } else {
        context.events.done(resource, after.as_str(), note).await;
    }
}
