//! What the sweep says in the log. Decides nothing.

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

pub(super) fn told(tally: Option<Tally>) {
    let Some(tally) = tally else { return };
    let Tally { seen, changed, resent, repaired, buried, purged } = tally;
    if changed + resent + repaired + buried + purged == 0 {
        tracing::debug!(seen, "everything was compared");
        return;
    }
    tracing::warn!(
        seen,
        changed,
        resent,
        repaired,
        buried,
        purged,
        "everything was compared, and not all was the same"
    );
}

pub(super) fn unrepaired(database: DatabaseId, error: &store::Error) {
    let reason = runtime::telemetry::chain(error);
    tracing::error!(
        db.id = %database,
        reason,
        "its cluster does not hold what it should, and that cannot be put right from here; compare the resource with the row"
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
