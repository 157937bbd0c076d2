//! What is taken away of what is over: operations of which nothing else is left, dead letters that are settled, alarms that are
//! resolved.
//!
//! *Invariant:* nothing that is open goes, and no operation whose state a database may return to: that is still there. *Invariant:*
//! no statement takes more rows than it is told, and none waits for whoever holds an operation: that goes another time.

use std::time::Duration;

use domain::OperationId;
use uuid::Uuid;

use crate::{Error, Store};

impl Store {
    /// Takes away operations that ended longer ago than this, of which all that follows was done, with their last events: of the next
    /// ones after an operation, as many as one statement may look at. Those stay whose state is kept (`prune_instructions`), and
    /// those that one that stays names as what it took back, or as what took its place. Says how many went, and where older ones may
    /// go on; `None` where no more are that old.
    // By identity, which rises as time does: behind one that was asked for lately none has ended long ago. Those that name each other
    // go together: one by one a long row of them would take as many turns.
    pub async fn prune_operations(
        &self,
        after: Option<OperationId>,
        older_than: Duration,
        limit: u32,
    ) -> Result<(u64, Option<OperationId>), Error> {
        let (gone, next): (i64, Option<Uuid>) = sqlx::query_as(
            "with recursive page as materialized (select id, created_at < now() - make_interval(secs => $3) as old \
             from operations where id > $1 order by id limit $2), \
             free as materialized (select o.id, o.reverts, o.superseded_by from operations o \
             join page p on p.id = o.id where p.old and o.ended_at is not null \
             and (o.state <> 'failed' or o.settled_at is not null) \
             and greatest(o.ended_at, o.settled_at) < now() - make_interval(secs => $3) \
             and not exists (select from instructions i where i.operation_id = o.id) \
             for update of o skip locked), \
             named as (select f.id, f.reverts, f.superseded_by from free f where exists (select from operations r \
             where r.reverts = f.id and not exists (select from free g where g.id = r.id)) \
             or exists (select from operations r where r.superseded_by = f.id \
             and not exists (select from free g where g.id = r.id)) \
             union select f.id, f.reverts, f.superseded_by from free f join named n \
             on f.id = n.reverts or f.id = n.superseded_by), \
             due as materialized (select f.id from free f where not exists (select from named n where n.id = f.id)), \
             events as (delete from operation_events e using due d where e.operation_id = d.id), \
             gone as (delete from operations o using due d where o.id = d.id returning 1) \
             select (select count(*) from gone), case when count(*) = $2 and bool_and(old) \
             then (array_agg(id order by id desc))[1] end from page",
        )
        .bind(after.map_or_else(Uuid::nil, OperationId::uuid))
        .bind(i64::from(limit))
        .bind(older_than.as_secs_f64())
        .fetch_one(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok((gone.unsigned_abs(), next.map(OperationId::new)))
    }

    /// Takes away dead letters that were settled longer ago than this, in the same manner. The time must be longer than any record is
    /// found on its topic: one that is read again would else be kept as a new letter.
    pub async fn prune_dead_letters(
        &self,
        after: Option<i64>,
        older_than: Duration,
        limit: u32,
    ) -> Result<(u64, Option<i64>), Error> {
        let (gone, next): (i64, Option<i64>) = sqlx::query_as(
            "with page as materialized (select id, received_at < now() - make_interval(secs => $3) as old, \
             superseded_at < now() - make_interval(secs => $3) as due from dead_letters \
             where id > $1 order by id limit $2), \
             gone as (delete from dead_letters l using page p where l.id = p.id and p.due returning 1) \
             select (select count(*) from gone), case when count(*) = $2 and bool_and(old) then max(id) end from page",
        )
        .bind(after.unwrap_or_default())
        .bind(i64::from(limit))
        .bind(older_than.as_secs_f64())
        .fetch_one(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok((gone.unsigned_abs(), next))
    }

    /// Takes away alarms that were resolved longer ago than this, as many as one statement may. Those stay that were told under the
    /// term in which their cluster was listed last, or a later one: it may be by them that is known that anything of it arrived. Says
    /// how many went.
    pub async fn prune_unclaimed(&self, older_than: Duration, limit: u32) -> Result<u64, Error> {
        let done = sqlx::query(
            "delete from unclaimed where ctid = any (array(select u.ctid from unclaimed u \
             where u.resolved_at < now() - make_interval(secs => $1) \
             and not exists (select from cluster_observers o where o.cluster_id = u.cluster_id \
             and o.listed_term <= u.term) limit $2)) and resolved_at < now() - make_interval(secs => $1)",
        )
        .bind(older_than.as_secs_f64())
        .bind(i64::from(limit))
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected())
    }
}
