//! What the sweep says in the log. Decides nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::DatabaseId;
use store::Subject;

use super::decide::Judgement;
use super::{BACKOFF, Tally};

/// Most databases of one kind that a turn names in the log.
const NAMED: usize = 20;

/// Says once how a database differs, and once that it no longer does; of very many only how many.
pub(super) fn note(subject: &Subject, judgement: Judgement, number: usize) {
    if number > NAMED {
        return;
    }
    let Some(diverged) = judgement.diverged else {
        tracing::info!(db.id = %subject.database, cluster.name = %subject.cluster, "the cluster shows what was minted again");
        return;
    };
    tracing::warn!(
        db.id = %subject.database,
        cluster.name = %subject.cluster,
        db.position = %subject.minted,
        code = diverged.as_str(),
        act = ?judgement.act,
        "the cluster does not show what was minted"
    );
}

pub(super) fn raised(clusters: &[String]) {
    if !clusters.is_empty() {
        tracing::error!(
            clusters = clusters.join(", "),
            "more was heard of clusters than Postgres has terms for, so rows were lost: their observers begin a new term"
        );
    }
}

/// Of a row that cannot be read, each turn.
pub(super) fn unread(database: DatabaseId, error: &store::Error) {
    tracing::error!(
        db.id = %database,
        reason = runtime::telemetry::chain(error),
        "a database cannot be read, so that it alone is not swept: restore its rows, or upgrade again where a newer release \
         wrote them"
    );
}

/// What a turn did, and once of each database that it cannot be repaired: `before` are those of which it is known. One that was not
/// `whole` says nothing of those that it did not see.
pub(super) fn told(tally: Option<Tally>, whole: bool, before: &mut BTreeMap<DatabaseId, String>) {
    let Some(tally) = tally else { return };
    let Tally { seen, changed, resent, repaired, buried, purged, busy, unreadable, unrepaired } = tally;
    for (database, reason) in unrepaired.iter().filter(|(database, _)| !before.contains_key(database)) {
        tracing::error!(
            db.id = %database,
            reason,
            "a database cannot be repaired, and whatever is asked of it is not carried out: cure what the reason names, in its \
             rows or in its cluster; it is tried again each turn"
        );
    }
    if whole {
        before.clear();
    }
    before.extend(unrepaired);
    if busy > 0 {
        tracing::debug!(busy, "others had databases locked: they are repaired in a later turn");
    }
    if changed + resent + repaired + buried + purged == 0 {
        tracing::debug!(seen, unreadable = unreadable.len(), "everything that can be read was compared");
        return;
    }
    tracing::warn!(
        seen,
        changed,
        resent,
        repaired,
        buried,
        purged,
        unreadable = unreadable.len(),
        "everything that can be read was compared, and not all was the same"
    );
}

pub(super) fn failed(
    error: &(dyn std::error::Error + 'static),
    retry: &mut runtime::backoff::Retry,
) -> Duration {
    let reason = runtime::telemetry::chain(error);
    if retry.attempts() == 0 {
        tracing::error!(reason, "a turn of the sweep failed");
    } else {
        tracing::debug!(reason, "a turn of the sweep failed again");
    }
    retry.next_delay().max(BACKOFF.ceiling(0))
}
