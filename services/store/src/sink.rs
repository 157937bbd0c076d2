//! Takes in what clusters say: observations, outcomes, operations and offsets in one transaction, or none of them.
//!
//! *Invariant:* the databases of a batch are locked first, in the order of their identity, as the API does: two writers
//! wait for each other, and never in a circle. *Invariant:* a cluster is believed about its own databases only.

use std::collections::{BTreeMap, BTreeSet};

use domain::{ClusterId, DatabaseId, OperationId, OperationKind, OperationState, Position};
use jiff::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::observations::{self, Standing};
use crate::operations::OperationRecord;
use crate::progress::{Facts, Moved, progress};
use crate::unclaimed::{self, UnclaimedCode};
use crate::{Advance, DeadLetter, Error, Observation, Store, dead_letters, offsets, operations};

/// What became of an instruction, as its cluster's provisioner says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Of which database.
    pub database: DatabaseId,
    /// The cluster it is about.
    pub cluster: ClusterId,
    /// Position of the instruction.
    pub position: Position,
    /// What became of it.
    pub kind: OutcomeKind,
    /// Stable reason; empty when applied.
    pub code: String,
    /// For people.
    pub message: String,
    /// When it was said.
    pub said_at: Timestamp,
}

/// What can become of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutcomeKind {
    /// The custom resource holds it.
    Applied,
    /// The custom resource held something newer.
    Superseded,
    /// Set aside until its cluster can take it.
    Parked,
    /// Will never be taken.
    Refused,
}

/// What is taken in at once.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// Name of the consumer.
    pub consumer: String,
    /// Topic that was consumed.
    pub topic: String,
    /// How far its partition moves.
    pub advance: Advance,
    /// At most one of each database: the newest.
    pub observations: Vec<Observation>,
    /// In the order they were said.
    pub outcomes: Vec<Outcome>,
    /// Records that could not be understood.
    pub dead_letters: Vec<DeadLetter>,
}

/// What a batch did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// Observations that were news.
    pub news: usize,
    /// Observations that were older than what is believed.
    pub stale: usize,
    /// Operations that reached their end.
    pub ended: Vec<Ended>,
    /// What is not believed as it stands.
    pub unclaimed: Vec<(DatabaseId, ClusterId, UnclaimedCode)>,
    /// Dead letters that are new.
    pub dead_letters: usize,
    /// Operations whose rows cannot be read: they did not move.
    pub unreadable: Vec<String>,
}

/// An operation that reached its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// Which.
    pub operation: OperationId,
    /// What was asked for.
    pub kind: OperationKind,
    /// The end.
    pub state: OperationState,
    /// Why it failed, where it did.
    pub code: Option<String>,
    /// Seconds since it was asked for.
    pub seconds: f64,
}

#[derive(sqlx::FromRow)]
struct Owner {
    id: Uuid,
    cluster_id: String,
    epoch: i64,
    seq: i64,
    content_hash: String,
    /// Whether any operation of it had not ended when its row was asked for. One that was minted since then is told of by
    /// nothing in this batch: its instruction was not published yet.
    busy: bool,
}

impl Owner {
    const fn minted(&self) -> Position {
        Position { epoch: self.epoch, seq: self.seq }
    }

    /// Whether a cluster holds what was never minted here: a later position, or other content at this one.
    fn is_foreign(&self, now: &Standing) -> bool {
        let other = !now.content_hash.is_empty() && now.content_hash != self.content_hash;
        now.held() > self.minted() || (now.held() == self.minted() && other)
    }
}

impl Ended {
    pub(crate) fn of(record: &OperationRecord, moved: &Moved) -> Self {
        Self {
            operation: record.operation.id,
            kind: record.operation.kind,
            state: moved.state,
            code: moved.failure.as_ref().map(|failure| failure.code.clone()),
            seconds: Timestamp::now().duration_since(record.created_at).as_secs_f64().max(0.0),
        }
    }
}

impl Store {
    /// Takes in a batch. [`Error::OffsetsMoved`] means that another consumer has the partitions: nothing was written.
    pub async fn absorb(&self, batch: &Batch) -> Result<Report, Error> {
        let mut transaction = self.pool.begin().await.map_err(Error::from_sqlx)?;
        let connection = &mut *transaction;
        // First, so that a consumer that lost its partitions learns it before it waits for any row.
        offsets::advance(connection, &batch.consumer, &batch.topic, batch.advance).await?;
        let owners = lock_owners(connection, batch).await?;
        let mut report = Report::default();
        let believed = believe(connection, batch, &owners, &mut report).await?;
        let news: BTreeSet<Uuid> = observations::upsert(connection, &believed).await?.into_iter().collect();
        (report.news, report.stale) = (news.len(), believed.len() - news.len());
        remember_volumes(connection, &believed).await?;
        move_operations(connection, batch, &owners, &news, &mut report).await?;
        for letter in &batch.dead_letters {
            report.dead_letters += usize::from(dead_letters::insert(connection, letter).await?);
        }
        transaction.commit().await.map_err(Error::from_sqlx)?;
        Ok(report)
    }
}

async fn lock_owners(connection: &mut PgConnection, batch: &Batch) -> Result<BTreeMap<Uuid, Owner>, Error> {
    let seen = batch.observations.iter().map(|seen| seen.database.uuid());
    let said = batch.outcomes.iter().map(|outcome| outcome.database.uuid());
    let ids: BTreeSet<Uuid> = seen.chain(said).collect();
    let rows: Vec<Owner> = sqlx::query_as(
        "select d.id, d.cluster_id, d.epoch, d.seq, d.content_hash, \
         exists (select from operations o where o.database_id = d.id and o.ended_at is null) as busy \
         from databases d where d.id = any($1) order by d.id for no key update of d",
    )
    .bind(ids.into_iter().collect::<Vec<_>>())
    .fetch_all(connection)
    .await
    .map_err(Error::from_sqlx)?;
    Ok(rows.into_iter().map(|row| (row.id, row)).collect())
}

/// Sorts observations by whether they are believed, and records what is not or what is alarming.
async fn believe<'a>(
    connection: &mut PgConnection,
    batch: &'a Batch,
    owners: &BTreeMap<Uuid, Owner>,
    report: &mut Report,
) -> Result<Vec<&'a Observation>, Error> {
    let mut believed = Vec::with_capacity(batch.observations.len());
    for seen in &batch.observations {
        let doubt = doubt(owners.get(&seen.database.uuid()), seen);
        if let Some(code) = doubt {
            unclaimed::record(connection, seen, code).await?;
            report.unclaimed.push((seen.database, seen.cluster.clone(), code));
        }
        match doubt {
            Some(UnclaimedCode::UnknownDatabase | UnclaimedCode::OtherCluster) => {}
            // What is there is there, even where it should not be: readers see it, and the alarm is raised.
            Some(UnclaimedCode::Ahead | UnclaimedCode::Content) | None => believed.push(seen),
        }
    }
    believed.sort_by_key(|seen| seen.database);
    Ok(believed)
}

/// Why an observation is not simply believed.
fn doubt(owner: Option<&Owner>, seen: &Observation) -> Option<UnclaimedCode> {
    let Some(owner) = owner else { return Some(UnclaimedCode::UnknownDatabase) };
    if owner.cluster_id != seen.cluster.as_str() {
        return Some(UnclaimedCode::OtherCluster);
    }
    let minted = owner.minted();
    if seen.position > minted {
        return Some(UnclaimedCode::Ahead);
    }
    let other =
        seen.position == minted && !seen.content_hash.is_empty() && seen.content_hash != owner.content_hash;
    other.then_some(UnclaimedCode::Content)
}

/// A volume that was seen once enters the desired state with the next mint.
async fn remember_volumes(connection: &mut PgConnection, believed: &[&Observation]) -> Result<(), Error> {
    let with: Vec<Uuid> =
        believed.iter().filter(|seen| seen.volume).map(|seen| seen.database.uuid()).collect();
    if with.is_empty() {
        return Ok(());
    }
    sqlx::query("update databases set provisioned = true where id = any($1) and not provisioned")
        .bind(with)
        .execute(connection)
        .await
        .map_err(Error::from_sqlx)?;
    Ok(())
}

async fn move_operations(
    connection: &mut PgConnection,
    batch: &Batch,
    owners: &BTreeMap<Uuid, Owner>,
    news: &BTreeSet<Uuid>,
    report: &mut Report,
) -> Result<(), Error> {
    let mut said: BTreeMap<Uuid, Vec<Outcome>> = BTreeMap::new();
    for outcome in &batch.outcomes {
        let owner = owners.get(&outcome.database.uuid());
        if owner.is_some_and(|owner| owner.cluster_id == outcome.cluster.as_str()) {
            said.entry(outcome.database.uuid()).or_default().push(outcome.clone());
        }
    }
    // Most of what is told is about settled databases: without an open operation there is nothing to ask for.
    let busy = |id: &Uuid| owners.get(id).is_some_and(|owner| owner.busy);
    let touched: BTreeSet<Uuid> = news.iter().copied().chain(said.keys().copied()).filter(busy).collect();
    let touched: Vec<Uuid> = touched.into_iter().collect();
    if touched.is_empty() {
        return Ok(());
    }
    let standing: BTreeMap<Uuid, Standing> = observations::standing(connection, &touched)
        .await?
        .into_iter()
        .map(|one| (one.database_id, one))
        .collect();
    let seen: BTreeMap<Uuid, &Observation> = batch
        .observations
        .iter()
        .map(|seen| (seen.database.uuid(), seen))
        .filter(|(id, _)| news.contains(id))
        .collect();
    for record in operations::lock_open(connection, &touched).await? {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                report.unreadable.push(error.to_string());
                continue;
            }
        };
        let id = record.operation.database.uuid();
        // What was never minted says nothing of what was: rows were lost, and their positions may be given again.
        let foreign = |now: &Standing| owners.get(&id).is_some_and(|owner| owner.is_foreign(now));
        let now = standing.get(&id).filter(|now| !foreign(now));
        let facts = Facts {
            held: now.map(Standing::held),
            carried_out: now.and_then(Standing::carried_out),
            seen: seen.get(&id).copied().filter(|_| now.is_some()),
            outcomes: said.get(&id).map_or(&[], Vec::as_slice),
            minted: owners.get(&id).map(Owner::minted),
        };
        let Some(moved) = progress(&record, facts) else { continue };
        operations::update(connection, &record, &moved).await?;
        if moved.state.is_terminal() {
            report.ended.push(Ended::of(&record, &moved));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(cluster: &str, seq: i64, content_hash: &str) -> Owner {
        let (cluster_id, content_hash) = (cluster.to_owned(), content_hash.to_owned());
        Owner { id: Uuid::nil(), cluster_id, epoch: 1, seq, content_hash, busy: true }
    }

    fn seen(cluster: &str, seq: i64, content_hash: &str) -> Observation {
        Observation {
            database: DatabaseId::new(Uuid::nil()),
            cluster: cluster.parse().unwrap(),
            position: Position { epoch: 1, seq },
            term: 1,
            resource_version: 1,
            present: true,
            content_hash: content_hash.to_owned(),
            phase: String::new(),
            carried_out: None,
            volume: false,
            steps: Vec::new(),
            body: serde_json::Value::Null,
            body_schema: 1,
            said_at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn what_was_never_minted_is_foreign() {
        let standing = |seq, content_hash: &str| Standing {
            database_id: Uuid::nil(),
            epoch: 1,
            seq,
            carried_epoch: 1,
            carried_seq: seq,
            content_hash: content_hash.to_owned(),
        };
        let table = [(1, "y", false), (2, "x", false), (2, "", false), (2, "y", true), (3, "x", true)];
        for (seq, content_hash, foreign) in table {
            let now = standing(seq, content_hash);
            assert_eq!(owner("a", 2, "x").is_foreign(&now), foreign, "{now:?}");
        }
    }

    #[test]
    fn clusters_are_believed_about_their_own_databases_only() {
        let table = [
            (None, seen("a", 1, ""), Some(UnclaimedCode::UnknownDatabase)),
            (Some(owner("b", 1, "")), seen("a", 1, ""), Some(UnclaimedCode::OtherCluster)),
            (Some(owner("a", 1, "x")), seen("a", 2, "y"), Some(UnclaimedCode::Ahead)),
            (Some(owner("a", 2, "x")), seen("a", 2, "y"), Some(UnclaimedCode::Content)),
            (Some(owner("a", 2, "x")), seen("a", 2, "x"), None),
            (Some(owner("a", 2, "x")), seen("a", 2, ""), None),
            (Some(owner("a", 2, "x")), seen("a", 1, "y"), None),
        ];
        for (owner, seen, expected) in table {
            assert_eq!(doubt(owner.as_ref(), &seen), expected, "{seen:?}");
        }
    }
}
