//! The short way for what nearly everything is: observations of settled databases, all believed as they stand.
//!
//! Two round trips instead of five. It is decided by a glance at the databases whether a batch is of this kind, in the same
//! words as on the whole way; the one statement that then writes holds only if not one of these databases was minted anew
//! since, and the offset stands where it should. An operation is never opened without a mint, so this covers them too.

use sqlx::{Arguments as _, PgConnection};

use super::{Batch, Report, mentioned, owner};
use crate::{Error, Observation, observations};

/// Behind the list of observations: consumer, topic, partition, offset to go on at and to stand at, and the position at
/// which each database was seen to be minted.
const WRITE: &str = concat!(
    "with known as materialized (select d.id from databases d \
     join unnest($1::uuid[], $20::bigint[], $21::bigint[]) as r (id, epoch, seq) \
     on d.id = r.id and d.epoch = r.epoch and d.seq = r.seq order by d.id for no key update of d), \
     moved as (update consumer_offsets set next_offset = $18, updated_at = now() \
     where consumer = $15 and topic = $16 and kafka_partition = $17 and next_offset = $19 \
     and (select count(*) from known) = cardinality($1::uuid[]) returning 1), \
     stored as (",
    observations::upsert!("where exists (select from moved)"),
    ") select (select count(*) from moved), (select count(*) from stored)"
);

/// Takes in a batch in which nothing else is said. `None`: nothing was written, the whole way is to be taken.
pub(super) async fn absorb(connection: &mut PgConnection, batch: &Batch) -> Result<Option<Report>, Error> {
    let Some(from) = batch.advance.from else { return Ok(None) };
    if batch.observations.is_empty() || !batch.outcomes.is_empty() || !batch.dead_letters.is_empty() {
        return Ok(None);
    }
    let databases = mentioned(batch);
    if databases.len() < batch.observations.len() {
        // One statement writes no row twice.
        return Ok(None);
    }
    let owners = owner::glance(connection, &databases).await?;
    let of = |seen: &Observation| owners.get(&seen.database.uuid());
    if !batch.observations.iter().all(|seen| owner::is_plain(of(seen), seen)) {
        return Ok(None);
    }
    let seen: Vec<&Observation> = batch.observations.iter().collect();
    let minted: Vec<_> = seen.iter().filter_map(|seen| of(seen)).map(owner::Owner::minted).collect();
    let arguments = || {
        let mut list = observations::list(&seen)?;
        list.add(&batch.consumer)?;
        list.add(&batch.topic)?;
        list.add(batch.advance.partition)?;
        list.add(batch.advance.to)?;
        list.add(from)?;
        list.add(minted.iter().map(|position| position.epoch).collect::<Vec<_>>())?;
        list.add(minted.iter().map(|position| position.seq).collect::<Vec<_>>())?;
        Ok(list)
    };
    let arguments = arguments().map_err(|error| Error::from_sqlx(sqlx::Error::Encode(error)))?;
    let written = sqlx::query_as_with(WRITE, arguments).fetch_one(connection).await;
    let (moved, stored): (i64, i64) = written.map_err(Error::from_sqlx)?;
    if moved == 0 {
        return Ok(None);
    }
    let news = usize::try_from(stored).unwrap_or_default();
    Ok(Some(Report { plain: true, news, stale: seen.len() - news, ..Report::default() }))
}
