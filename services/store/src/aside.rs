//! What was set aside, for people: pages of `parked_instructions` and `dead_letters`, without the bytes. What is known of
//! the database stands beside each row; rows of databases that nobody knows are shown too.

use domain::{DatabaseId, Position};
use jiff::Timestamp;
use uuid::Uuid;

use crate::databases::Page;
use crate::letters::{LetterRow, letter};
use crate::{DeadLetterView, Error, Store};

/// Which rows of what was set aside.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AsideFilter {
    /// Only of this database.
    pub database: Option<DatabaseId>,
    /// Only of this cluster.
    pub cluster: Option<String>,
    /// Only with this reason.
    pub code: Option<String>,
}

/// A database as whoever looks at its rows must know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub tenant: String,
    /// Where its desired state stands.
    pub minted: Position,
}

/// An instruction that waits for its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedView {
    /// Of which database.
    pub database: Uuid,
    /// What is known of it.
    pub about: Option<About>,
    /// Where it is to go.
    pub cluster: String,
    /// Its position.
    pub position: Position,
    /// Stable reason.
    pub code: String,
    /// Reason for people.
    pub message: String,
    /// How often it was tried.
    pub attempts: i64,
    /// Since when its database waits, in this state or an older one.
    pub parked_at: Timestamp,
    /// When it is tried next.
    pub retry_at: Timestamp,
}

/// What `About` is made of, in the rows of others: columns of `databases d`, joined where there is one.
#[derive(sqlx::FromRow)]
#[expect(clippy::struct_field_names, reason = "named after columns that stand beside others of such names")]
pub(crate) struct AboutColumns {
    about_name: Option<String>,
    about_tenant: Option<String>,
    about_epoch: Option<i64>,
    about_seq: Option<i64>,
}

macro_rules! about_columns {
    () => {
        "d.name as about_name, d.tenant_id as about_tenant, d.epoch as about_epoch, d.seq as about_seq"
    };
}
pub(crate) use about_columns;

#[derive(sqlx::FromRow)]
struct ParkedRow {
    database_id: Uuid,
    cluster_id: String,
    epoch: i64,
    seq: i64,
    code: String,
    message: String,
    attempts: i64,
    parked_at: jiff_sqlx::Timestamp,
    retry_at: jiff_sqlx::Timestamp,
    #[sqlx(flatten)]
    about: AboutColumns,
}

/// Dead letters, the latest first: 1 whether settled ones too; where given, 2 before a letter, 4 of a database, 5 of a cluster, 6 with
/// a reason; 3 most of them.
pub const LETTERS: &str = concat!(
    letter!(),
    "where ($1 or l.superseded_at is null) and ($2::bigint is null or l.id < $2) \
     and ($4::uuid is null or l.database_id = $4) and ($5::text is null or l.cluster_id = $5) \
     and ($6::text is null or l.code = $6) order by l.id desc limit $3"
);

impl Store {
    /// What is parked, the latest database first.
    pub async fn parked(&self, filter: &AsideFilter, page: Page) -> Result<Vec<ParkedView>, Error> {
        let rows: Vec<ParkedRow> = sqlx::query_as(concat!(
            "select p.database_id, p.cluster_id, p.epoch, p.seq, p.code, p.message, p.attempts, p.parked_at, p.retry_at, ",
            about_columns!(),
            " from parked_instructions p left join databases d on d.id = p.database_id \
             where ($1::uuid is null or p.database_id < $1) and ($3::uuid is null or p.database_id = $3) \
             and ($4::text is null or p.cluster_id = $4) and ($5::text is null or p.code = $5) \
             order by p.database_id desc limit $2"
        ))
        .bind(page.after)
        .bind(i64::from(page.limit))
        .bind(filter.database.map(DatabaseId::uuid))
        .bind(&filter.cluster)
        .bind(&filter.code)
        .fetch_all(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(rows.into_iter().map(ParkedView::from).collect())
    }

    /// Dead letters, the latest first, before the one of identity `before`; settled ones only if asked for.
    pub async fn dead_letters(
        &self,
        filter: &AsideFilter,
        with_settled: bool,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<DeadLetterView>, Error> {
        let rows: Vec<LetterRow> = sqlx::query_as(LETTERS)
            .bind(with_settled)
            .bind(before)
            .bind(i64::from(limit))
            .bind(filter.database.map(DatabaseId::uuid))
            .bind(&filter.cluster)
            .bind(&filter.code)
            .fetch_all(&self.pool)
            .await
            .map_err(Error::from_sqlx)?;
        rows.into_iter().map(DeadLetterView::try_from).collect()
    }
}

impl AboutColumns {
    /// What is known, where there is a database.
    pub(crate) fn about(self) -> Option<About> {
        Some(About {
            name: self.about_name?,
            tenant: self.about_tenant?,
            minted: Position { epoch: self.about_epoch?, seq: self.about_seq? },
        })
    }
}

impl From<ParkedRow> for ParkedView {
    fn from(row: ParkedRow) -> Self {
        Self {
            database: row.database_id,
            about: row.about.about(),
            cluster: row.cluster_id,
            position: Position { epoch: row.epoch, seq: row.seq },
            code: row.code,
            message: row.message,
            attempts: row.attempts,
            parked_at: row.parked_at.to_jiff(),
            retry_at: row.retry_at.to_jiff(),
        }
    }
}
