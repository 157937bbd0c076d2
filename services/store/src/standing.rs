//! How a database stands towards being published again because a person asks for it: what is in the way, and the asking.
//!
//! *Invariant:* what is asked for is the state that should be, at its own position; the relay publishes nothing else.

use domain::{DatabaseId, Position, RunState, TenantId};
use jiff::Timestamp;

use crate::document::word;
use crate::{Error, Store, Transaction};

/// How a database stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Which.
    pub database: DatabaseId,
    /// Whose.
    pub tenant: TenantId,
    /// Its name.
    pub name: String,
    /// Where its desired state stands.
    pub minted: Position,
    /// Whether it should run.
    pub run_state: RunState,
    /// The position that its cluster is seen to have carried out in full.
    pub carried_out: Option<Position>,
    /// Since when nothing of it is left.
    pub purged_at: Option<Timestamp>,
    /// Whether its state waits to be published already.
    pub waits: bool,
    /// Why no relay can publish its state.
    pub set_aside: Option<String>,
    /// The position that waits for its cluster.
    pub parked: Option<Position>,
}

#[derive(sqlx::FromRow)]
struct Row {
    tenant_id: String,
    name: String,
    epoch: i64,
    seq: i64,
    run_state: String,
    unpublished: bool,
    purged_at: Option<jiff_sqlx::Timestamp>,
    carried_epoch: Option<i64>,
    carried_seq: Option<i64>,
    set_aside: Option<String>,
    parked_epoch: Option<i64>,
    parked_seq: Option<i64>,
}

macro_rules! select {
    () => {
        "select d.tenant_id, d.name, d.epoch, d.seq, d.desired ->> 'run_state' as run_state, d.unpublished, d.purged_at, \
         s.carried_epoch, s.carried_seq, u.code || ': ' || u.message as set_aside, \
         p.epoch as parked_epoch, p.seq as parked_seq from databases d \
         left join observations s on s.database_id = d.id \
         left join unpublishable u on u.database_id = d.id and u.epoch = d.epoch and u.seq = d.seq \
         left join parked_instructions p on p.database_id = d.id where d.id = $1"
    };
}

impl Store {
    /// How a database stands; `None` where there is none.
    pub async fn standing(&self, database: DatabaseId) -> Result<Option<Standing>, Error> {
        let row: Option<Row> = sqlx::query_as(select!())
            .bind(database.uuid())
            .fetch_optional(&self.pool)
            .await
            .map_err(Error::from_sqlx)?;
        row.map(|row| read(database, row)).transpose()
    }
}

impl Transaction {
    /// The same, with the database locked until the end of the transaction.
    // In two statements: one that waits for the row sees of all other tables what was there before it waited.
    pub async fn lock_standing(&mut self, database: DatabaseId) -> Result<Option<Standing>, Error> {
        sqlx::query("select 1 from databases where id = $1 for no key update")
            .bind(database.uuid())
            .execute(&mut *self.inner)
            .await
            .map_err(Error::from_sqlx)?;
        let row: Option<Row> = sqlx::query_as(select!())
            .bind(database.uuid())
            .fetch_optional(&mut *self.inner)
            .await
            .map_err(Error::from_sqlx)?;
        row.map(|row| read(database, row)).transpose()
    }

    /// Makes the state of a locked database unpublished again, at its position, because a person asks for it. What waits
    /// already goes on waiting. Says whether anything changed; the relay does the rest.
    pub async fn resend(&mut self, locked: &Standing, by: &str) -> Result<bool, Error> {
        let done = sqlx::query(
            "update databases set published_epoch = 0, published_seq = 0, resent_at = clock_timestamp(), resent_by = $4, \
             resends = resends + 1 where id = $1 and epoch = $2 and seq = $3 and not unpublished",
        )
        .bind(locked.database.uuid())
        .bind(locked.minted.epoch)
        .bind(locked.minted.seq)
        .bind(by)
        .execute(&mut *self.inner)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected() == 1)
    }
}

fn read(database: DatabaseId, row: Row) -> Result<Standing, Error> {
    let corrupt = |what: String| Error::corrupt("databases", format!("{database}: {what}"));
    let position = |(epoch, seq)| Position { epoch, seq };
    let carried_out = row.carried_epoch.zip(row.carried_seq).map(position);
    Ok(Standing {
        database,
        tenant: row.tenant_id.parse().map_err(|error: domain::id::Error| corrupt(error.to_string()))?,
        name: row.name,
        minted: Position { epoch: row.epoch, seq: row.seq },
        run_state: word("run_state", &row.run_state, RunState::parse).map_err(corrupt)?,
        carried_out: carried_out.filter(|position| position.is_valid()),
        purged_at: row.purged_at.map(jiff_sqlx::Timestamp::to_jiff),
        waits: row.unpublished,
        set_aside: row.set_aside,
        parked: row.parked_epoch.zip(row.parked_seq).map(position),
    })
}
