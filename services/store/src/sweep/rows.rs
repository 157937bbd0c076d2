//! Rows of the sweep, as Postgres gives them.

use domain::{ClusterState, DatabaseId, Position, RunState};
use uuid::Uuid;

use super::{Divergence, Letters, Listing, Sighting, Subject};
use crate::Error;
use crate::document::word;
use crate::rows::age;

#[derive(sqlx::FromRow)]
#[expect(clippy::struct_excessive_bools, reason = "columns of a row, each a question of its own")]
pub(super) struct Row {
    id: Uuid,
    cluster_id: String,
    epoch: i64,
    seq: i64,
    content_hash: String,
    run_state: String,
    unpublished: bool,
    minted_ago: f64,
    published_ago: Option<f64>,
    resent_ago: Option<f64>,
    purged: bool,
    diverged_kind: Option<String>,
    seen_epoch: Option<i64>,
    seen_seq: Option<i64>,
    term: Option<i64>,
    present: Option<bool>,
    seen_hash: Option<String>,
    carried_epoch: Option<i64>,
    carried_seq: Option<i64>,
    parked_epoch: Option<i64>,
    parked_seq: Option<i64>,
    dead: bool,
    dead_letters: bool,
    burying: bool,
    outgrown: bool,
}

#[derive(sqlx::FromRow)]
pub(super) struct ListingRow {
    id: String,
    state: String,
    listed_term: i64,
    listed_ago: Option<f64>,
    confirmed_ago: Option<f64>,
    arrived: bool,
}

impl TryFrom<Row> for Subject {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let corrupt = |what: String| Error::corrupt("databases", format!("{}: {what}", row.id));
        let seen = row.seen_epoch.zip(row.seen_seq).map(|(epoch, seq)| Sighting {
            position: Position { epoch, seq },
            term: row.term.unwrap_or_default(),
            present: row.present.unwrap_or_default(),
            content_hash: row.seen_hash.unwrap_or_default(),
            carried_out: row
                .carried_epoch
                .zip(row.carried_seq)
                .map(|(epoch, seq)| Position { epoch, seq })
                .filter(|position| position.is_valid()),
        });
        Ok(Self {
            database: DatabaseId::new(row.id),
            cluster: row.cluster_id.parse().map_err(|error: domain::id::Error| corrupt(error.to_string()))?,
            minted: Position { epoch: row.epoch, seq: row.seq },
            content_hash: row.content_hash,
            run_state: word("run_state", &row.run_state, RunState::parse).map_err(corrupt)?,
            minted_ago: age(row.minted_ago),
            published_ago: row.published_ago.filter(|_| !row.unpublished).map(age),
            resent_ago: row.resent_ago.map(age),
            purged: row.purged,
            diverged: row.diverged_kind.as_deref().and_then(Divergence::parse),
            seen,
            parked: row.parked_epoch.zip(row.parked_seq).map(|(epoch, seq)| Position { epoch, seq }),
            letters: match (row.dead, row.dead_letters) {
                (true, _) => Letters::This,
                (false, true) => Letters::Others,
                (false, false) => Letters::None,
            },
            burying: row.burying,
            outgrown: row.outgrown,
        })
    }
}

impl TryFrom<ListingRow> for Listing {
    type Error = Error;

    fn try_from(row: ListingRow) -> Result<Self, Error> {
        let corrupt = |what: String| Error::corrupt("clusters", format!("{}: {what}", row.id));
        Ok(Self {
            cluster: row.id.parse().map_err(|error: domain::id::Error| corrupt(error.to_string()))?,
            state: word("state", &row.state, ClusterState::parse).map_err(corrupt)?,
            term: row.listed_term,
            listed_ago: row.listed_ago.map(age),
            confirmed_ago: row.confirmed_ago.map(age),
            arrived: row.arrived,
        })
    }
}
