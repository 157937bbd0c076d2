//! What the sweep looks at and what it does: of each database what was minted beside what its cluster shows.
//!
//! Judgement is the caller's. *Invariant:* whatever is done compares the position that was judged: what was minted
//! meanwhile is left alone, and so is what others hold locked: nobody waits for that, and the next turn judges it again.
//! *Invariant:* replicas take turns by a row with the database's clock, and what is sent again in a turn is counted in that
//! row, so the cap holds for all of them together.

mod aside;
mod pages;
mod rows;

use std::time::Duration;

use domain::{ClusterId, ClusterState, DatabaseId, Position, RunState};
use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use self::rows::ListingRow;
use crate::observations::held_size;
use crate::rows::read;
use crate::{Error, Store, Transaction, turns};

/// Name of the row by which replicas take turns.
const TURN: &str = "sweep";

/// How a cluster differs from what was minted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Divergence {
    /// It does not show the database.
    Missing,
    /// It shows an older state.
    Lagging,
    /// It shows a state that was never minted: rows were lost.
    Ahead,
    /// It shows another state at the same position.
    Content,
}

impl Divergence {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Missing, Self::Lagging, Self::Ahead, Self::Content];

    /// The word in the table and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Lagging => "lagging",
            Self::Ahead => "ahead",
            Self::Content => "content",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == text)
    }
}

/// A database as the sweep judges it. Times are ages by the database's clock.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    /// Which.
    pub database: DatabaseId,
    /// Where it lives.
    pub cluster: ClusterId,
    /// Where its desired state stands.
    pub minted: Position,
    /// Content hash of that state.
    pub content_hash: String,
    /// Whether it should run.
    pub run_state: RunState,
    /// Since when.
    pub minted_ago: Duration,
    /// How long Kafka has that state; `None` while it does not.
    pub published_ago: Option<Duration>,
    /// When it was last sent again.
    pub resent_ago: Option<Duration>,
    /// Nothing of it should be left.
    pub purged: bool,
    /// How it is known to differ.
    pub diverged: Option<Divergence>,
    /// What was last seen of it.
    pub seen: Option<Sighting>,
    /// Position that waits for its cluster.
    pub parked: Option<Position>,
    /// Whether it lies among the dead letters.
    pub letters: Letters,
    /// The removal of its tombstone was asked for.
    pub burying: bool,
    /// Its cluster holds a larger volume, or asks for one, than the state that should be, and nothing is to come any more that
    /// could take that back: no operation of it is open, or failed without what follows.
    pub outgrown: bool,
}

/// What of a database lies among the dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Letters {
    /// Nothing.
    None,
    /// Other states of it, or the one that should be for a reason that may have passed: sent again, it may be taken.
    Others,
    /// The very state that should be, for good.
    This,
}

/// What was last seen of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// Position that the custom resource held.
    pub position: Position,
    /// Term of the observer.
    pub term: i64,
    /// Whether it was there.
    pub present: bool,
    /// Content hash that it carried; empty if unknown.
    pub content_hash: String,
    /// Position carried out in full.
    pub carried_out: Option<Position>,
}

/// What is known of a cluster's observer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The cluster.
    pub cluster: ClusterId,
    /// Its state in the registry.
    pub state: ClusterState,
    /// The newest term under which everything was listed and told; 0 for none.
    pub term: i64,
    /// How long ago that was.
    pub listed_ago: Option<Duration>,
    /// How long ago the cluster last let itself be listed.
    pub confirmed_ago: Option<Duration>,
    /// Whether anything told under that term arrived here, or there was nothing to tell.
    pub arrived: bool,
}

/// Some databases, in the order of their identity.
#[derive(Debug, Default)]
pub struct Subjects {
    /// Those that can be read.
    pub subjects: Vec<Subject>,
    /// Those that cannot, and why: they hold up nobody else.
    pub unreadable: Vec<(DatabaseId, Error)>,
    /// Where the next ones begin; `None` after the last.
    pub next: Option<DatabaseId>,
}

/// A turn of the sweep: what was done in it is counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn(i64);

/// What is known of the clusters' observers.
// The highest term up to that one, and not whether there is that one: for one row of it Postgres may begin anywhere in the table, and
// comes to its end where there is none.
pub const LISTINGS: &str = "select c.id, c.state, coalesce(o.listed_term, 0) as listed_term, \
     extract(epoch from now() - o.listed_at)::float8 as listed_ago, \
     extract(epoch from now() - o.confirmed_at)::float8 as confirmed_ago, \
     coalesce(o.listed_databases = 0, false) or coalesce((select s.term from observations s \
     where s.cluster_id = c.id and s.term <= o.listed_term order by s.term desc limit 1) = o.listed_term, false) \
     or exists (select from unclaimed u where u.cluster_id = c.id and u.term = o.listed_term) as arrived \
     from clusters c left join cluster_observers o on o.cluster_id = c.id order by c.id";

/// Some databases with what is seen of them, in the order of their identity: behind database 1 and up to 5, 2 most of them; dead
/// letters of topic 3 do not count, and 4 are the reasons that are for good.
// Those of which nothing is left gather for years. That they are left out is seen from indexes of the others: in one pass over all of
// them the first page would take longer from year to year, and at last more time than a statement has.
pub const SUBJECTS: &str = concat!(
    "with page as materialized (select k.id from \
     ((select id from databases where purged_at is null and id > $1 and id <= $5 order by id limit $2) union \
     (select database_id from observations where present and database_id > $1 and database_id <= $5 \
     order by database_id limit $2)) k \
     order by k.id limit $2) \
     select d.id, d.cluster_id, d.epoch, d.seq, d.content_hash, d.desired ->> 'run_state' as run_state, \
     d.unpublished, extract(epoch from now() - d.minted_at)::float8 as minted_ago, \
     extract(epoch from now() - d.published_at)::float8 as published_ago, \
     extract(epoch from now() - d.resent_at)::float8 as resent_ago, \
     d.purged_at is not null as purged, d.diverged_kind, \
     s.epoch as seen_epoch, s.seq as seen_seq, s.term, s.present, s.content_hash as seen_hash, \
     s.carried_epoch, s.carried_seq, p.epoch as parked_epoch, p.seq as parked_seq, \
     exists (select from dead_letters l where l.database_id = d.id and l.superseded_at is null \
     and l.topic <> $3 and l.epoch = d.epoch and l.seq = d.seq and l.code = any($4)) as dead, \
     exists (select from dead_letters l where l.database_id = d.id and l.superseded_at is null \
     and l.topic <> $3) as dead_letters, \
     t.database_id is not null as burying, \
     coalesce(d.desired #> '{storage,size_gib}' < ",
    held_size!("s.body"),
    " and s.present, false) and not exists (select from operations o where o.database_id = d.id \
     and o.epoch = d.epoch and o.seq = d.seq and o.ended_at is null) \
     and not exists (select from operations o where o.database_id = d.id \
     and o.epoch = d.epoch and o.seq = d.seq and o.state = 'failed' and o.settled_at is null) as outgrown \
     from page join databases d on d.id = page.id left join observations s on s.database_id = d.id \
     left join parked_instructions p on p.database_id = d.id \
     left join tombstones t on t.database_id = d.id order by d.id"
);

impl Store {
    /// Begins the next turn, if its time has come and no other replica was quicker.
    pub async fn begin_sweep(&self, period: Duration) -> Result<Option<Turn>, Error> {
        Ok(turns::begin(&self.pool, TURN, period).await?.map(Turn))
    }

    /// What is known of the clusters' observers. An error within is about one cluster.
    pub async fn listings(&self) -> Result<Vec<Result<Listing, Error>>, Error> {
        let rows: Vec<PgRow> = sqlx::query(LISTINGS).fetch_all(&self.pool).await.map_err(Error::from_sqlx)?;
        Ok(rows.iter().map(|row| read::<ListingRow, Listing>(("clusters", "id"), row)).collect())
    }

    /// Notes how databases differ, or that they no longer do, each at the position that was judged.
    pub async fn mark_diverged(
        &self,
        judged: &[(DatabaseId, Position, Option<Divergence>)],
    ) -> Result<u64, Error> {
        let (ids, epochs, seqs) = columns(judged.iter().map(|(id, position, _)| (*id, *position)));
        let kinds: Vec<Option<&str>> =
            judged.iter().map(|(_, _, kind)| kind.map(Divergence::as_str)).collect();
        let done = sqlx::query(
            "with judged as (select d.id, s.kind from databases d \
             join unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[]) as s (id, epoch, seq, kind) \
             on s.id = d.id and s.epoch = d.epoch and s.seq = d.seq order by d.id \
             for no key update of d skip locked) \
             update databases d set diverged_kind = judged.kind, \
             diverged_since = case when judged.kind is not null then coalesce(d.diverged_since, now()) end \
             from judged where d.id = judged.id and d.diverged_kind is distinct from judged.kind",
        )
        .bind(ids)
        .bind(epochs)
        .bind(seqs)
        .bind(kinds)
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected())
    }

    /// Makes states unpublished again, where they are still what should be, as far as the turn's cap allows. Says how
    /// many; the relay does the rest. A purge that is sent again makes a tombstone, whose own time has still to come: that
    /// a former one should go is taken back.
    pub async fn resend(&self, turn: Turn, cap: u32, due: &[(DatabaseId, Position)]) -> Result<u64, Error> {
        let mut transaction = self.pool.begin().await.map_err(Error::from_sqlx)?;
        let granted = spend(&mut transaction, turn, cap, due.len()).await?;
        let due = due.get(..granted).unwrap_or(due);
        if due.is_empty() {
            return Ok(0);
        }
        let (ids, epochs, seqs) = columns(due.iter().copied());
        let done = sqlx::query(
            "with due as (select d.id from databases d \
             join unnest($1::uuid[], $2::bigint[], $3::bigint[]) as s (id, epoch, seq) \
             on s.id = d.id and s.epoch = d.epoch and s.seq = d.seq \
             where not d.unpublished order by d.id for no key update of d skip locked), \
             kept as (delete from tombstones t using due where t.database_id = due.id) \
             update databases d set published_epoch = 0, published_seq = 0, resent_at = clock_timestamp(), \
             resent_by = null, resends = d.resends + 1 from due where d.id = due.id",
        )
        .bind(ids)
        .bind(epochs)
        .bind(seqs)
        .execute(&mut *transaction)
        .await
        .map_err(Error::from_sqlx)?;
        transaction.commit().await.map_err(Error::from_sqlx)?;
        Ok(done.rows_affected())
    }

    /// How many databases differ, by how.
    pub async fn diverged_count(&self) -> Result<Vec<(String, i64)>, Error> {
        sqlx::query_as(
            "select diverged_kind, count(*) from databases where diverged_kind is not null \
             group by diverged_kind order by diverged_kind",
        )
        .fetch_all(&self.pool)
        .await
        .map_err(Error::from_sqlx)
    }
}

impl Transaction {
    /// Takes one piece of the turn's cap; `false` when it is used up or the turn is over.
    pub async fn spend(&mut self, turn: Turn, cap: u32) -> Result<bool, Error> {
        Ok(spend(&mut self.inner, turn, cap, 1).await? == 1)
    }
}

/// Takes up to `wanted` pieces of the turn's cap. A turn that is over has none left.
async fn spend(connection: &mut PgConnection, turn: Turn, cap: u32, wanted: usize) -> Result<usize, Error> {
    let wanted = i64::try_from(wanted).unwrap_or(i64::MAX);
    let granted: Option<i64> = sqlx::query_scalar(
        "with before as (select spent from turns where name = $1 and number = $2 for update) \
         update turns t set spent = t.spent + least($3, greatest($4 - before.spent, 0)) from before \
         where t.name = $1 and t.number = $2 returning t.spent - before.spent",
    )
    .bind(TURN)
    .bind(turn.0)
    .bind(wanted)
    .bind(i64::from(cap))
    .fetch_optional(connection)
    .await
    .map_err(Error::from_sqlx)?;
    Ok(granted.and_then(|granted| usize::try_from(granted).ok()).unwrap_or_default())
}

fn columns(of: impl Iterator<Item = (DatabaseId, Position)>) -> (Vec<Uuid>, Vec<i64>, Vec<i64>) {
    let (ids, (epochs, seqs)) = of.map(|(id, position)| (id.uuid(), (position.epoch, position.seq))).unzip();
    (ids, epochs, seqs)
}
