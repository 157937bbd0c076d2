//! The outbox: not a table of its own, but the published position in `databases`. What lags there is to be published, and
//! only its newest state.

mod damaged;

use std::time::Duration;

use domain::{DatabaseId, Position};
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::document::SCHEMA;
use crate::instructions::{Instruction, Row, instruction_columns};
use crate::rows::read;
use crate::{Error, Store};

/// States that are to be published.
#[derive(Debug, Default)]
pub struct Unpublished {
    /// Those that can be.
    pub instructions: Vec<Instruction>,
    /// Rows that cannot be read: they hold up nobody else.
    pub unreadable: Vec<Unreadable>,
    /// Rows that Postgres itself fails at, which may be for a while only: they hold up nobody else either.
    pub damaged: Vec<Unreadable>,
    /// Whether there may be more.
    pub more: bool,
}

/// A state that cannot be read.
#[derive(Debug)]
pub struct Unreadable {
    /// Whose.
    pub database: DatabaseId,
    /// Where it stands.
    pub position: Position,
    /// What is wrong with it.
    pub error: Error,
}

/// Why a state cannot be published, ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetAside {
    /// Its row is damaged.
    Unreadable,
    /// Its record is larger than Kafka takes.
    TooLarge,
}

impl SetAside {
    /// The word in the table.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::TooLarge => "too_large",
        }
    }
}

/// How much is not yet published.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Backlog {
    /// Databases whose newest state Kafka does not have and a relay of this build can send.
    pub databases: i64,
    /// How long the oldest of these states waits, in seconds by the database's clock.
    pub oldest_seconds: f64,
    /// Databases whose newest state was set aside.
    pub set_aside: i64,
    /// Databases whose newest state only a newer build can read.
    pub newer: i64,
}

/// Which of `databases d` wait to be published, the longest waiting first: 1 most of them, 3 databases to leave out.
// As a sub-select these are looked up in a hash; as an array each row would be compared with each of them.
macro_rules! waiting {
    () => {
        "d.unpublished and d.id not in (select unnest($3)) \
         and not exists (select from unpublishable u where u.database_id = d.id and u.epoch = d.epoch and u.seq = d.seq) \
         order by greatest(d.minted_at, d.resent_at) limit $1"
    };
}
pub(crate) use waiting;

/// Newest states that are not yet published, the longest waiting first: 1 most of them, 2 the newest schema that is read,
/// 3 databases to leave out.
pub const UNPUBLISHED: &str = concat!(
    "select ",
    instruction_columns!(),
    " from databases d join instructions i on i.database_id = d.id and i.epoch = d.epoch and i.seq = d.seq \
     where i.desired_schema <= $2 and ",
    waiting!()
);

/// Marks databases as published where they still stand where they did: arrays of 1 databases, 2 and 3 their positions.
pub const MARK: &str = "with sent as (select d.id, s.epoch, s.seq from databases d \
    join unnest($1::uuid[], $2::bigint[], $3::bigint[]) as s (id, epoch, seq) on s.id = d.id \
    order by d.id for no key update of d skip locked) \
    update databases d set published_epoch = sent.epoch, published_seq = sent.seq, published_at = now() \
    from sent where d.id = sent.id and d.epoch = sent.epoch and d.seq = sent.seq and d.unpublished \
    returning d.id";

impl Unpublished {
    fn of(rows: &[PgRow], more: bool) -> Result<Self, Error> {
        let mut unpublished = Self { more, ..Self::default() };
        for row in rows {
            match read::<Row, Instruction>(("instructions", "id"), row) {
                Ok(instruction) => unpublished.instructions.push(instruction),
                Err(error) => unpublished.unreadable.push(unreadable(row, error)?),
            }
        }
        Ok(unpublished)
    }
}

impl Store {
    /// Newest states that are not yet published, the longest waiting first. Several relays may see the same ones:
    /// publishing twice does no harm. States that were set aside, or that a newer build wrote, are left out, so that they
    /// take nobody's place.
    pub async fn unpublished(&self, limit: u32) -> Result<Unpublished, Error> {
        self.unpublished_beside(limit, &[]).await
    }

    /// The same without these databases.
    pub async fn unpublished_beside(&self, limit: u32, these: &[DatabaseId]) -> Result<Unpublished, Error> {
        let these: Vec<Uuid> = these.iter().map(|id| id.uuid()).collect();
        let rows = sqlx::query(UNPUBLISHED)
            .bind(i64::from(limit))
            .bind(SCHEMA)
            .bind(&these)
            .fetch_all(&self.pool)
            .await
            .map_err(Error::from_sqlx);
        match rows {
            Ok(rows) => Unpublished::of(&rows, rows.len() as u64 >= u64::from(limit)),
            Err(error) if error.is_about_a_row() => self.unpublished_around(limit, these).await,
            Err(error) => Err(error),
        }
    }

    /// Sets aside a state that cannot be published, unless another was minted meanwhile, or somebody holds the database locked:
    /// nobody waits for that here. Says whether it did.
    pub async fn set_aside(
        &self,
        database: DatabaseId,
        position: Position,
        why: SetAside,
        message: &str,
    ) -> Result<bool, Error> {
        let done = sqlx::query(
            "insert into unpublishable (database_id, epoch, seq, code, message) \
             select id, epoch, seq, $4, $5 from databases where id = $1 and epoch = $2 and seq = $3 for key share skip locked \
             on conflict (database_id) do update set epoch = excluded.epoch, seq = excluded.seq, \
             code = excluded.code, message = excluded.message, set_aside = now() \
             where (excluded.epoch, excluded.seq) > (unpublishable.epoch, unpublishable.seq)",
        )
        .bind(database.uuid())
        .bind(position.epoch)
        .bind(position.seq)
        .bind(why.as_str())
        .bind(message)
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected() == 1)
    }

    /// Records what Kafka acknowledged, where it is still what the database should be; names the databases that moved. What
    /// was minted meanwhile stays unpublished, and so does for now what others hold locked: nobody waits for them here.
    pub async fn mark(&self, sent: &[(DatabaseId, Position)]) -> Result<Vec<DatabaseId>, Error> {
        let (ids, (epochs, seqs)): (Vec<Uuid>, (Vec<i64>, Vec<i64>)) =
            sent.iter().map(|(id, position)| (id.uuid(), (position.epoch, position.seq))).unzip();
        let moved: Vec<Uuid> = sqlx::query_scalar(MARK)
            .bind(ids)
            .bind(epochs)
            .bind(seqs)
            .fetch_all(&self.pool)
            .await
            .map_err(Error::from_sqlx)?;
        Ok(moved.into_iter().map(DatabaseId::new).collect())
    }

    /// Databases whose newest state waits to be published for longer than this, though a relay of this build can send it; some of
    /// them, if there are more than `limit`.
    pub async fn waiting_longer(&self, than: Duration, limit: u32) -> Result<Vec<DatabaseId>, Error> {
        let ids: Vec<Uuid> = sqlx::query_scalar(
            "select d.id from databases d where d.unpublished and d.desired_schema <= $1 \
             and greatest(d.minted_at, d.resent_at) < now() - make_interval(secs => $2) \
             and not exists (select from unpublishable u \
             where u.database_id = d.id and u.epoch = d.epoch and u.seq = d.seq) limit $3",
        )
        .bind(SCHEMA)
        .bind(than.as_secs_f64())
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(ids.into_iter().map(DatabaseId::new).collect())
    }

    /// How much waits to be published.
    pub async fn backlog(&self) -> Result<Backlog, Error> {
        let (databases, oldest_seconds, set_aside, newer): (i64, f64, i64, i64) = sqlx::query_as(
            "select count(*) filter (where not aside and not newer), \
             coalesce(extract(epoch from now() - min(since) filter (where not aside and not newer)), 0)::float8, \
             count(*) filter (where aside), count(*) filter (where newer and not aside) \
             from (select greatest(d.minted_at, d.resent_at) as since, d.desired_schema > $1 as newer, exists (select from unpublishable u \
             where u.database_id = d.id and u.epoch = d.epoch and u.seq = d.seq) as aside \
             from databases d where d.unpublished) waiting",
        )
        .bind(SCHEMA)
        .fetch_one(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(Backlog { databases, oldest_seconds, set_aside, newer })
    }
}

/// What of a row that cannot be read says whose it is.
fn unreadable(row: &PgRow, error: Error) -> Result<Unreadable, Error> {
    let id: Uuid = row.try_get("database_id").map_err(Error::from_sqlx)?;
    let epoch: i64 = row.try_get("epoch").map_err(Error::from_sqlx)?;
    let seq: i64 = row.try_get("seq").map_err(Error::from_sqlx)?;
    Ok(Unreadable { database: DatabaseId::new(id), position: Position { epoch, seq }, error })
}
