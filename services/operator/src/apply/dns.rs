//! Writes to Route 53.

use cloud::{DnsChange, RecordChange};

use super::Pass;
use crate::error::Error;

/// Changes records, all or none.
pub(super) async fn change(pass: &Pass<'_>, changes: &[RecordChange]) -> Result<DnsChange, Error> {
    match pass.context.cloud.change_records(&pass.context.zone(), changes).await {
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
