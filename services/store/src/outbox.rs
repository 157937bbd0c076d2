//! The outbox: not a table of its own, but the published position in `databases`. What lags there is to be published, and
//! only its newest state.

use domain::{DatabaseId, Position};
use uuid::Uuid;

use crate::instructions::{Instruction, Row, instruction_columns};
use crate::{Error, Store};

/// States that are to be published.
#[derive(Debug, Default)]
pub struct Unpublished {
    /// Those that can be.
    pub instructions: Vec<Instruction>,
    /// Rows that cannot be read, each with its reason: they hold up nobody else.
    pub unreadable: Vec<Error>,
    /// Whether there may be more.
    pub more: bool,
}

/// How much is not yet published.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backlog {
    /// Databases whose newest state Kafka does not have.
    pub databases: i64,
    /// Age of the oldest of these states in seconds, by the database's clock.
    pub oldest_seconds: f64,
}

impl Store {
    /// Newest states that are not yet published, the longest waiting first. Several relays may see the same ones:
    /// publishing twice does no harm.
    pub async fn unpublished(&self, limit: u32) -> Result<Unpublished, Error> {
        let rows: Vec<Row> = sqlx::query_as(concat!(
            "select ",
            instruction_columns!(),
            " from databases d join instructions i on i.database_id = d.id and i.epoch = d.epoch and i.seq = d.seq \
             where d.unpublished order by d.minted_at limit $1"
        ))
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        let mut unpublished =
            Unpublished { more: rows.len() as u64 >= u64::from(limit), ..Unpublished::default() };
        for row in rows {
            match Instruction::try_from(row) {
                Ok(instruction) => unpublished.instructions.push(instruction),
                Err(error) => unpublished.unreadable.push(error),
            }
        }
        Ok(unpublished)
    }

    /// Records what Kafka acknowledged, where it is still what the database should be. What was minted meanwhile stays
    /// unpublished.
    pub async fn mark_published(&self, sent: &[(DatabaseId, Position)]) -> Result<u64, Error> {
        let (ids, (epochs, seqs)): (Vec<Uuid>, (Vec<i64>, Vec<i64>)) =
            sent.iter().map(|(id, position)| (id.uuid(), (position.epoch, position.seq))).unzip();
        let done = sqlx::query(
            "with sent as (select d.id, s.epoch, s.seq from databases d \
             join unnest($1::uuid[], $2::bigint[], $3::bigint[]) as s (id, epoch, seq) on s.id = d.id \
             order by d.id for no key update of d) \
             update databases d set published_epoch = sent.epoch, published_seq = sent.seq, published_at = now() \
             from sent where d.id = sent.id and d.epoch = sent.epoch and d.seq = sent.seq and d.unpublished",
        )
        .bind(ids)
        .bind(epochs)
        .bind(seqs)
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected())
    }

    /// How much waits to be published.
    pub async fn backlog(&self) -> Result<Backlog, Error> {
        let (databases, oldest_seconds): (i64, f64) = sqlx::query_as(
            "select count(*), coalesce(extract(epoch from now() - min(minted_at)), 0)::float8 \
             from databases where unpublished",
        )
        .fetch_one(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(Backlog { databases, oldest_seconds })
    }
}
