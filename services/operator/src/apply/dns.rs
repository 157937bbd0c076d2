//! Writes to Route 53.

use cloud::{DnsChange, RecordChange};
use resources::QuestDB;

use super::{Pass, current};
use crate::error::Error;

/// Changes records, all or none; those that only add or replace together with what other databases ask for.
///
/// *Invariant:* what takes a record away is done on the word of the resource as it is now. Route 53 has no fence, and by a cache
/// that stood still another name may be in force, or the database may serve again.
pub(super) async fn change(pass: &Pass<'_>, changes: &[RecordChange]) -> Result<DnsChange, Error> {
    let answer = if changes.iter().any(|change| matches!(change, RecordChange::Delete(_))) {
        let names = |resource: &QuestDB| resource.status.as_ref().and_then(|status| status.dns.clone());
        current::check(pass, "its name was taken out of service", names).await?;
        // Not with others, for which it would have to wait.
        pass.context.cloud.change_records(&pass.context.zone(), changes).await
    } else {
        pass.context.zone_writer.change(changes.to_vec()).await
    };
    match answer {
        Ok(change) => Ok(change),
        // What the list showed is no longer so: somebody took or gave back the name in between.
        Err(
            error @ (cloud::Error::AlreadyExists { .. }
            | cloud::Error::NotFound { .. }
            | cloud::Error::IncorrectState { .. }),
        ) => Err(Error::Stale {
            what: format!("the records of the name changed while they were looked at: {error}"),
        }),
        Err(error) => Err(Error::aws("change the records of the name")(error)),
    }
}
