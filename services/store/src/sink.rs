//! Takes in what clusters say: observations, outcomes, operations and offsets in one transaction, or none of them.
//!
//! *Invariant:* the databases of a batch are locked first, in the order of their identity, as the API does: two writers
//! wait for each other, and never in a circle. *Invariant:* a cluster is believed about its own databases only.
//!
//! Most of what is said is about settled databases and moves nothing but what is believed of them: that takes one guarded
//! statement ([`plain`]). Everything else takes the whole way.

mod owner;
mod plain;

use std::collections::{BTreeMap, BTreeSet};

use domain::{ClusterId, DatabaseId, OperationId, OperationKind, OperationState, Position};
use jiff::Timestamp;
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use crate::observations::{self, Standing};
use crate::operations::OperationRecord;
use crate::progress::{Facts, Moved, progress};
use crate::unclaimed::{self, UnclaimedCode};
use crate::{Advance, DeadLetter, Error, Observation, Store, dead_letters, offsets, operations};
use owner::{Ours, Owner, doubt, stranger};

/// What became of an instruction, as its cluster's provisioner says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Of which database.
    pub database: DatabaseId,
    /// The cluster it is about.
    pub cluster: ClusterId,
    /// Position of the instruction.
    pub position: Position,
    /// The operation that the instruction was minted for.
    pub operation: OperationId,
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
    /// One of each database, the newest; more than one, in their order, only where one would not leave the same.
    pub observations: Vec<Observation>,
    /// In the order they were said.
    pub outcomes: Vec<Outcome>,
    /// Records that could not be understood.
    pub dead_letters: Vec<DeadLetter>,
}

/// What a batch did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// Whether one statement sufficed, because nothing moved but what is believed.
    pub plain: bool,
    /// Observations that were news.
    pub news: usize,
    /// Observations that were older than what is believed.
    pub stale: usize,
    /// Operations that reached their end.
    pub ended: Vec<Ended>,
    /// What is not believed as it stands.
    pub unclaimed: Vec<(DatabaseId, ClusterId, UnclaimedCode)>,
    /// Outcomes that are not believed, and why: they are of databases of other clusters, or of none that is known.
    pub unbelieved: Vec<(DatabaseId, ClusterId, UnclaimedCode)>,
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
        let mut connection = self.pool.acquire().await.map_err(Error::from_sqlx)?;
        if let Some(report) = plain::absorb(&mut connection, batch).await? {
            return Ok(report);
        }
        let mut transaction = connection.begin().await.map_err(Error::from_sqlx)?;
        let connection = &mut *transaction;
        let owners = owner::lock(connection, &mentioned(batch)).await?;
        offsets::advance(connection, &batch.consumer, &batch.topic, batch.advance).await?;
        let mut report = Report::default();
        let believed = believe(connection, batch, &owners, &mut report).await?;
        let news = write(connection, &believed, &mut report).await?;
        remember_volumes(connection, &believed, &owners).await?;
        move_operations(connection, batch, &owners, &news, &mut report).await?;
        for letter in &batch.dead_letters {
            report.dead_letters += usize::from(dead_letters::insert(connection, letter).await?);
        }
        transaction.commit().await.map_err(Error::from_sqlx)?;
        Ok(report)
    }
}

/// The databases that a batch is about.
fn mentioned(batch: &Batch) -> Vec<Uuid> {
    let seen = batch.observations.iter().map(|seen| seen.database.uuid());
    let said = batch.outcomes.iter().map(|outcome| outcome.database.uuid());
    seen.chain(said).collect::<BTreeSet<Uuid>>().into_iter().collect()
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

/// Writes what is newer than what is believed. Gives the last that was written of each database.
async fn write<'a>(
    connection: &mut PgConnection,
    believed: &[&'a Observation],
    report: &mut Report,
) -> Result<BTreeMap<Uuid, &'a Observation>, Error> {
    let mut news = BTreeMap::new();
    for round in rounds(believed) {
        let written: BTreeSet<Uuid> = observations::store(connection, &round).await?.into_iter().collect();
        report.news += written.len();
        let now = round.into_iter().map(|seen| (seen.database.uuid(), seen));
        news.extend(now.filter(|(id, _)| written.contains(id)));
    }
    report.stale = believed.len() - report.news;
    Ok(news)
}

/// Observations, sorted by database, in rounds with one of a database at most: one statement writes no row twice.
fn rounds<'a>(sorted: &[&'a Observation]) -> Vec<Vec<&'a Observation>> {
    let mut rounds: Vec<Vec<&Observation>> = Vec::new();
    for same in sorted.chunk_by(|one, next| one.database == next.database) {
        for (number, &seen) in same.iter().enumerate() {
            match rounds.get_mut(number) {
                Some(round) => round.push(seen),
                None => rounds.push(vec![seen]),
            }
        }
    }
    rounds
}

/// A volume that was seen once enters the desired state with the next mint.
async fn remember_volumes(
    connection: &mut PgConnection,
    believed: &[&Observation],
    owners: &BTreeMap<Uuid, Owner>,
) -> Result<(), Error> {
    let is_news = |id: &Uuid| owners.get(id).is_some_and(|owner| !owner.provisioned);
    let with = believed.iter().filter(|seen| seen.volume).map(|seen| seen.database.uuid());
    let with: Vec<Uuid> = with.filter(is_news).collect();
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

/// The outcomes that are believed, of each database in the order they were said.
fn hear(batch: &Batch, owners: &BTreeMap<Uuid, Owner>, report: &mut Report) -> BTreeMap<Uuid, Vec<Outcome>> {
    let mut said: BTreeMap<Uuid, Vec<Outcome>> = BTreeMap::new();
    for outcome in &batch.outcomes {
        let id = outcome.database.uuid();
        match stranger(owners.get(&id), &outcome.cluster) {
            Some(code) => report.unbelieved.push((outcome.database, outcome.cluster.clone(), code)),
            None => said.entry(id).or_default().push(outcome.clone()),
        }
    }
    said
}

async fn move_operations(
    connection: &mut PgConnection,
    batch: &Batch,
    owners: &BTreeMap<Uuid, Owner>,
    news: &BTreeMap<Uuid, &Observation>,
    report: &mut Report,
) -> Result<(), Error> {
    let said = hear(batch, owners, report);
    // Most of what is told is about settled databases: without an open operation there is nothing to ask for.
    let busy = |id: &Uuid| owners.get(id).is_some_and(|owner| owner.busy);
    let touched: BTreeSet<Uuid> = news.keys().copied().chain(said.keys().copied()).filter(busy).collect();
    let touched: Vec<Uuid> = touched.into_iter().collect();
    if touched.is_empty() {
        return Ok(());
    }
    let standing: BTreeMap<Uuid, Standing> = observations::standing(connection, &touched)
        .await?
        .into_iter()
        .map(|one| (one.database_id, one))
        .collect();
    let mut all = Vec::new();
    for record in operations::lock_open(connection, &touched).await? {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                report.unreadable.push(error.to_string());
                continue;
            }
        };
        let id = record.operation.database.uuid();
        let ours = owners.get(&id).zip(standing.get(&id)).map(|(owner, now)| owner.ours(now));
        let Ours { held, carried_out } = ours.unwrap_or_default();
        let facts = Facts {
            held,
            carried_out,
            seen: news.get(&id).copied().filter(|_| held.is_some()),
            outcomes: said.get(&id).map_or(&[], Vec::as_slice),
            minted: owners.get(&id).map(Owner::minted),
        };
        let Some(moved) = progress(&record, facts) else { continue };
        if moved.state.is_terminal() {
            report.ended.push(Ended::of(&record, &moved));
        }
        all.push((record, moved));
    }
    let all: Vec<_> = all.iter().map(|(record, moved)| (record, moved)).collect();
    operations::update(connection, &all).await
}
