//! How one database is repaired that holds what was never minted, or asks for less than there is.

use std::time::Duration;

use domain::recovery::kind_of;
use domain::{DatabaseId, OnFailure, Position};
use serde_json::json;
use store::{Audit, Database, DatabaseView, Mint, Terms, Turn};

use super::{ACTOR, Sweep, Tally};

/// How long a repair may take before somebody hears of it; it is never given up.
const REPAIR: Duration = Duration::from_hours(1);
/// What is told of a state that was never minted.
const AHEAD: &str =
    "the cluster held a state that was never minted, so rows were lost: what is left was minted above it";
/// What is told of a state that asked for a smaller volume than there is, or is asked for.
const OUTGROWN: &str = "a state was refused that asks for a smaller volume than there is, or than its resource asks for: it was \
                        minted again with the larger size";

impl Sweep {
    /// Repairs one database. Only what would stop all the others too ends the turn.
    pub(super) async fn try_repair(
        &self,
        turn: Turn,
        (database, judged): (DatabaseId, Position),
        tally: &mut Tally,
    ) -> Result<(), store::Error> {
        match self.repair(turn, database, judged).await {
            Ok(repaired) => tally.repaired += u64::from(repaired),
            // Others were in the way: it is looked at again in the next turn.
            Err(store::Error::Busy(_)) => tally.busy += 1,
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => {
                self.metrics.unrepaired.inc();
                tally.unrepaired.insert(database, runtime::telemetry::chain(&error));
            }
        }
        Ok(())
    }

    /// Mints what should be again, above what the cluster holds and no smaller: what is left in Postgres wins. Says
    /// whether it did.
    async fn repair(&self, turn: Turn, database: DatabaseId, judged: Position) -> Result<bool, store::Error> {
        let mut transaction = self.store.begin().await?;
        if !transaction.spend(turn, self.settings.cap).await? {
            return Ok(false);
        }
        let Some(locked) = transaction.lock_database(None, database).await? else { return Ok(false) };
        let view = transaction.database(database).await?;
        let Some(held) = view.as_ref().and_then(held) else { return Ok(false) };
        let ahead = held > locked.position;
        if !ahead && locked.position != judged {
            return Ok(false);
        }
        let minted = transaction.repair(&locked, held, again(&locked)).await?;
        let entry = Audit {
            tenant: Some(locked.tenant.clone()),
            principal: ACTOR.to_owned(),
            role: "system".to_owned(),
            action: "databases.repair".to_owned(),
            subject: database.to_string(),
            operation: Some(minted.operation),
            request_id: None,
            detail: json!({
                "held": held.to_string(),
                "before": locked.position.to_string(),
                "minted": minted.position.to_string(),
            }),
        };
        transaction.audit(&entry).await?;
        transaction.commit().await?;
        self.tell(&locked, held, minted.position);
        Ok(true)
    }

    /// Only what was ahead is counted, which tells that rows were lost: a size is refused also where the disk grew while it was taken back.
    fn tell(&self, locked: &Database, held: Position, minted: Position) {
        let (database, cluster) = (locked.id, &locked.cluster);
        if held > locked.position {
            self.metrics.repaired.inc();
            tracing::error!(db.id = %database, cluster.name = %cluster, db.held = %held, db.position = %minted, "{AHEAD}");
        } else {
            tracing::warn!(db.id = %database, cluster.name = %cluster, db.held = %held, db.position = %minted, "{OUTGROWN}");
        }
    }
}

fn held(view: &DatabaseView) -> Option<Position> {
    view.observed.as_ref().map(|observed| observed.position)
}

/// What should be, once more.
fn again(locked: &Database) -> Mint {
    let desired = locked.desired.clone();
    Mint {
        kind: kind_of(&desired),
        desired,
        actor: ACTOR.to_owned(),
        traceparent: None,
        hash: wire::hash::of,
        terms: Terms { deadline: REPAIR, on_failure: OnFailure::Keep, reverts: None },
    }
}
