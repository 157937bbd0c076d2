//! The state to return to when an operation failed or was cancelled, as the rows have it. Which way back there is decides
//! `domain::recovery`; whoever calls holds the locks.

use domain::Desired;
use domain::recovery::{DEADLINE, Evidence, WayBack, go_back, take_back, without_good_state};
use store::{Database, Error, OperationRecord, Transaction};

use crate::heard::Hearing;

/// The state that leads back from an operation of a locked database.
pub(crate) async fn desired(
    transaction: &mut Transaction,
    locked: &Database,
    record: &OperationRecord,
    (way, hearing): (WayBack, &Hearing),
) -> Result<Desired, Error> {
    let position = record.operation.position;
    let good = match way {
        WayBack::GoBack => transaction.last_good(locked, position).await?,
        WayBack::TakeBack => None,
    };
    if let Some(good) = good {
        let held = transaction.base(locked).await?;
        let before = transaction.before(locked, position).await?;
        let [held, before] = [&held, &before].map(|state| state.as_ref().unwrap_or(&good));
        let disk = transaction.disk(locked).await?;
        return Ok(go_back(&good, held, (before, &locked.desired), disk));
    }
    // Of a cluster of which nothing is known, silence is no proof: a machine may have been found meanwhile, and have served.
    let evidence = Evidence {
        provisioned: locked.provisioned || locked.desired.storage.provisioned,
        seen: transaction.is_known((locked.id, position), hearing.of(locked.id), hearing.lately()).await?,
        refused: record.failure.as_ref().is_some_and(|failure| failure.code != DEADLINE),
    };
    Ok(match way {
        WayBack::TakeBack => take_back(&locked.desired, evidence),
        WayBack::GoBack => without_good_state(&locked.desired, evidence),
    })
}
