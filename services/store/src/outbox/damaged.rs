//! What is unpublished, read around the states that Postgres itself fails at: first whose they are, of `databases` alone, then what
//! they are, by their keys.
//!
//! Nothing overtakes such a state. Of a database there is at most one to be published, its newest: what was minted before it is
//! published no more, and what is minted after it takes its place, here as on the topic, where the highest position wins. So a
//! damaged state holds up its own database alone, until something else is minted.
//!
//! A page of `databases` that is damaged is not read around: it is not known then what waits there, in which order, or whose it is.

use domain::{DatabaseId, Position};
use uuid::Uuid;

use super::{Unpublished, Unreadable, waiting};
use crate::document::SCHEMA;
use crate::halves::Asked;
use crate::instructions::instruction_columns;
use crate::{Error, Store};

/// So many of them are found in one portion: others are left to the next one, which is asked for without these.
const MOST: usize = 8;

/// A database, and where it stands.
type Key = (Uuid, i64, i64);

/// Whose newest states are not yet published, the longest waiting first, with the parameters of `UNPUBLISHED`. The schema of a state
/// stands at its database as well.
const KEYS: &str =
    concat!("select d.id, d.epoch, d.seq from databases d where d.desired_schema <= $2 and ", waiting!());

/// These states in their order, if they are still the newest: arrays of 1 databases, 2 and 3 their positions; 4 the newest schema
/// that is read.
const STATES: &str = concat!(
    "select ",
    instruction_columns!(),
    " from unnest($1::uuid[], $2::bigint[], $3::bigint[]) with ordinality as k (id, epoch, seq, place) \
     join databases d on d.id = k.id and d.epoch = k.epoch and d.seq = k.seq \
     join instructions i on i.database_id = k.id and i.epoch = k.epoch and i.seq = k.seq \
     where d.unpublished and i.desired_schema <= $4 order by k.place"
);

impl Store {
    /// The same as `unpublished_beside`, where that failed at a row.
    pub(super) async fn unpublished_around(
        &self,
        limit: u32,
        these: Vec<Uuid>,
    ) -> Result<Unpublished, Error> {
        let keys: Vec<Key> = sqlx::query_as(KEYS)
            .bind(i64::from(limit))
            .bind(SCHEMA)
            .bind(these)
            .fetch_all(&self.pool)
            .await
            .map_err(Error::from_sqlx)?;
        let readable = self.read_around(&keys, MOST, states).await?;
        let is_full = keys.len() as u64 >= u64::from(limit);
        let mut unpublished = Unpublished::of(&readable.rows, is_full || readable.is_cut)?;
        let damaged = readable.damaged.into_iter();
        unpublished.damaged.extend(damaged.map(|(which, error)| named(keys[which], error)));
        Ok(unpublished)
    }
}

fn states(keys: &[Key]) -> Asked {
    let (ids, (epochs, seqs)): (Vec<Uuid>, (Vec<i64>, Vec<i64>)) =
        keys.iter().map(|(id, epoch, seq)| (*id, (*epoch, *seq))).unzip();
    sqlx::query(STATES).bind(ids).bind(epochs).bind(seqs).bind(SCHEMA)
}

fn named((id, epoch, seq): Key, error: Error) -> Unreadable {
    Unreadable { database: DatabaseId::new(id), position: Position { epoch, seq }, error }
}
