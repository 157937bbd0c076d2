//! Table `observations`: what is believed of each database, and as of when. The newest stays, whatever order reports
//! come in: guarded by (epoch, seq, term, resource version), and what is said again is believed as of then.
//!
//! What was gone and is there again is another object, whose position may be lower: it is believed if it was seen after the
//! end of the former one. That end is remembered from then on, because the position of the former one would outrank this one:
//! what an observer that slept says of the former one, or what comes again, is refused although its position is higher.

use domain::operation::StepState;
use domain::{ClusterId, DatabaseId, Disk, Position};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgArguments, PgHasArrayType, PgTypeInfo};
use sqlx::{Arguments as _, Encode, PgConnection, Postgres, Type};
use uuid::Uuid;

use crate::Error;
use crate::document::word;

/// Everything seen of a custom resource. What only readers understand lies in `body`.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Of which database.
    pub database: DatabaseId,
    /// The cluster that speaks.
    pub cluster: ClusterId,
    /// Position that the spec holds.
    pub position: Position,
    /// Term of the observer.
    pub term: i64,
    /// Resource version of the object.
    pub resource_version: i64,
    /// False: the custom resource is gone.
    pub present: bool,
    /// Content hash that the spec carries.
    pub content_hash: String,
    /// Phase.
    pub phase: String,
    /// Position carried out in full.
    pub carried_out: Option<Position>,
    /// Whether a volume is there.
    pub volume: bool,
    /// Steps in order.
    pub steps: Vec<Step>,
    /// The whole, for readers.
    pub body: Body,
    /// Schema of `body`.
    pub body_schema: i32,
    /// When it was said.
    pub said_at: Timestamp,
}

/// A JSON document as it is written: nobody here looks into it, and its text takes a tenth of the memory of its tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body(Box<str>);

/// What is believed of a database.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservationView {
    /// Phase.
    pub phase: String,
    /// Position that the spec holds.
    pub position: Position,
    /// Position carried out in full.
    pub carried_out: Option<Position>,
    /// The whole, for readers.
    pub body: Value,
    /// Schema of `body`.
    pub body_schema: i32,
    /// As of when.
    pub said_at: Timestamp,
}

/// A step of provisioning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Such as `volume`.
    pub name: String,
    /// How far.
    pub state: StepState,
    /// What is waited for.
    pub message: String,
    /// Begun.
    pub started_at: Option<Timestamp>,
    /// Ended.
    pub ended_at: Option<Timestamp>,
}

/// A step as it lies in a JSON column; times are Unix milliseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StepDocument {
    name: String,
    state: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended_at: Option<i64>,
}

/// The columns of an observation beside those of its database; all absent where there is none.
#[derive(sqlx::FromRow)]
pub(crate) struct ObservationColumns {
    phase: Option<String>,
    observed_epoch: Option<i64>,
    observed_seq: Option<i64>,
    carried_epoch: Option<i64>,
    carried_seq: Option<i64>,
    body: Option<Value>,
    body_schema: Option<i32>,
    said_at: Option<jiff_sqlx::Timestamp>,
}

/// What operations are judged by: what is believed of a database, beside what was minted at the same positions.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub(crate) struct Standing {
    pub(crate) database_id: Uuid,
    pub(crate) epoch: i64,
    pub(crate) seq: i64,
    pub(crate) carried_epoch: i64,
    pub(crate) carried_seq: i64,
    /// Content of what the custom resource holds; empty if unknown.
    pub(crate) content_hash: String,
    /// Content of what was carried out; `None` if nobody told.
    pub(crate) carried_hash: Option<String>,
    /// Content that was minted at the position which the custom resource holds; `None` if there is no such row (any more).
    pub(crate) minted_hash: Option<String>,
    /// Content that was minted at the position which was carried out; `None` if there is no such row (any more).
    pub(crate) minted_carried_hash: Option<String>,
}

impl Standing {
    /// The position that the custom resource holds.
    pub(crate) const fn held(&self) -> Position {
        Position { epoch: self.epoch, seq: self.seq }
    }

    /// The position carried out in full.
    pub(crate) fn carried_out(&self) -> Option<Position> {
        Some(Position { epoch: self.carried_epoch, seq: self.carried_seq })
            .filter(|position| position.is_valid())
    }
}

impl ObservationColumns {
    pub(crate) fn view(self) -> Option<ObservationView> {
        let carried = Position { epoch: self.carried_epoch?, seq: self.carried_seq? };
        Some(ObservationView {
            phase: self.phase?,
            position: Position { epoch: self.observed_epoch?, seq: self.observed_seq? },
            carried_out: carried.is_valid().then_some(carried),
            body: self.body?,
            body_schema: self.body_schema?,
            said_at: self.said_at?.to_jiff(),
        })
    }
}

/// Stores what `$1` to `$14` list, at most one observation of a database, where it is newer than what is stored, and answers
/// of which databases: only these moved. Sorted by database, so that two writers never wait for each other. The argument
/// narrows down what is stored. `backend::sink::fold` rests on how this guard decides.
macro_rules! upsert {
    ($narrowed:literal) => {
        concat!(
            "insert into observations as t (database_id, cluster_id, epoch, seq, term, resource_version, present, \
             content_hash, phase, carried_epoch, carried_seq, body, body_schema, said_at) \
             select database_id, cluster_id, epoch, seq, term, resource_version, present, content_hash, phase, \
             carried_epoch, carried_seq, body, body_schema, to_timestamp(said_at_ms / 1000.0) \
             from unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bool[], \
             $8::text[], $9::text[], $10::bigint[], $11::bigint[], $12::jsonb[], $13::int[], $14::bigint[]) \
             as s (database_id, cluster_id, epoch, seq, term, resource_version, present, content_hash, phase, \
             carried_epoch, carried_seq, body, body_schema, said_at_ms) ",
            $narrowed,
            " order by database_id \
             on conflict (database_id) do update set cluster_id = excluded.cluster_id, epoch = excluded.epoch, \
             seq = excluded.seq, term = excluded.term, resource_version = excluded.resource_version, \
             present = excluded.present, content_hash = excluded.content_hash, phase = excluded.phase, \
             carried_epoch = excluded.carried_epoch, carried_seq = excluded.carried_seq, body = excluded.body, \
             body_schema = excluded.body_schema, said_at = excluded.said_at, received_at = now(), \
             gone_term = case when t.present then t.gone_term else t.term end, \
             gone_version = case when t.present then t.gone_version else t.resource_version end \
             where (excluded.term, excluded.resource_version) > (t.gone_term, t.gone_version) \
             and case when t.present \
             then (excluded.epoch, excluded.seq, excluded.term, excluded.resource_version, excluded.said_at) \
             > (t.epoch, t.seq, t.term, t.resource_version, t.said_at) \
             else (excluded.term, excluded.resource_version) > (t.term, t.resource_version) end \
             returning database_id"
        )
    };
}
pub(crate) use upsert;

/// Stores what 1 to 14 list, each an array: databases, clusters, positions (epochs, seqs), terms, resource versions, whether
/// present, content hashes, phases, positions carried out, bodies, their schemas, and when it was said in milliseconds.
pub const UPSERT: &str = upsert!("");

/// The list for [`upsert`].
pub(crate) fn list(seen: &[&Observation]) -> Result<PgArguments, BoxDynError> {
    let column = |of: fn(&Observation) -> i64| seen.iter().map(|one| of(one)).collect::<Vec<i64>>();
    let text = |of: fn(&Observation) -> &str| seen.iter().map(|one| of(one)).collect::<Vec<&str>>();
    let mut list = PgArguments::default();
    list.add(seen.iter().map(|one| one.database.uuid()).collect::<Vec<_>>())?;
    list.add(text(|one| one.cluster.as_str()))?;
    list.add(column(|one| one.position.epoch))?;
    list.add(column(|one| one.position.seq))?;
    list.add(column(|one| one.term))?;
    list.add(column(|one| one.resource_version))?;
    list.add(seen.iter().map(|one| one.present).collect::<Vec<_>>())?;
    list.add(text(|one| &one.content_hash))?;
    list.add(text(|one| &one.phase))?;
    list.add(column(|one| one.carried_out.map_or(0, |position| position.epoch)))?;
    list.add(column(|one| one.carried_out.map_or(0, |position| position.seq)))?;
    list.add(seen.iter().map(|one| &one.body).collect::<Vec<_>>())?;
    list.add(seen.iter().map(|one| one.body_schema).collect::<Vec<_>>())?;
    list.add(column(|one| one.said_at.as_millisecond()))?;
    Ok(list)
}

/// Stores observations, at most one of a database, where they are newer than what is stored. Says of which databases:
/// only these moved.
pub(crate) async fn store(connection: &mut PgConnection, seen: &[&Observation]) -> Result<Vec<Uuid>, Error> {
    let list = list(seen).map_err(|error| Error::from_sqlx(sqlx::Error::Encode(error)))?;
    let stored = sqlx::query_scalar_with(UPSERT, list).fetch_all(connection).await;
    stored.map_err(Error::from_sqlx)
}

/// What is believed of these databases now. The content of what was carried out lies in the body, which every program writes
/// as a whole: one that does not know it yet leaves none there, and never that of another position.
pub(crate) async fn standing(
    connection: &mut PgConnection,
    databases: &[Uuid],
) -> Result<Vec<Standing>, Error> {
    sqlx::query_as(
        "select s.database_id, s.epoch, s.seq, s.carried_epoch, s.carried_seq, s.content_hash, \
         s.body ->> 'carried_hash' as carried_hash, held.content_hash as minted_hash, \
         carried.content_hash as minted_carried_hash from observations s \
         left join instructions held on held.database_id = s.database_id and held.epoch = s.epoch and held.seq = s.seq \
         left join instructions carried on carried.database_id = s.database_id \
         and carried.epoch = s.carried_epoch and carried.seq = s.carried_seq where s.database_id = any($1)",
    )
    .bind(databases)
    .fetch_all(connection)
    .await
    .map_err(Error::from_sqlx)
}

/// What a cluster is seen to hold of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Held {
    /// The position of its resource, if that is one.
    pub(crate) position: Option<Position>,
    /// What is told of its disk.
    pub(crate) disk: Disk,
}

#[derive(sqlx::FromRow)]
struct HeldRow {
    epoch: i64,
    seq: i64,
    has: Option<i64>,
    asked: Option<i64>,
    changing: bool,
}

/// The largest size that is shown of a volume, as a JSON number: what it has, or what its resource asks for. Null where nobody told.
macro_rules! held_size {
    ($body:literal) => {
        concat!("greatest(", $body, " -> 'volume_size_gib', ", $body, " -> 'asked_size_gib')")
    };
}
pub(crate) use held_size;

/// What the cluster holds of a database, as far as anybody has told; nothing where nobody did. Beside what is said of the disk and the
/// content carried out no field of the body is read here.
pub(crate) async fn held(connection: &mut PgConnection, database: DatabaseId) -> Result<Held, Error> {
    let row: Option<HeldRow> = sqlx::query_as(
        "select epoch, seq, (body -> 'volume_size_gib')::bigint as has, (body -> 'asked_size_gib')::bigint as asked, \
         coalesce(jsonb_path_exists(body, '$.conditions[*] ? (@.type == \"VolumeResizing\" && @.status == \"True\")'), false) \
         as changing from observations where database_id = $1 and present",
    )
    .bind(database.uuid())
    .fetch_optional(connection)
    .await
    .map_err(Error::from_sqlx)?;
    Ok(row.map(Held::from).unwrap_or_default())
}

impl From<HeldRow> for Held {
    fn from(row: HeldRow) -> Self {
        let HeldRow { epoch, seq, has, asked, changing } = row;
        let [has, asked] = [has, asked].map(|size| size.and_then(|size| u32::try_from(size).ok()));
        Self {
            position: Some(Position { epoch, seq }).filter(|position| position.is_valid()),
            disk: Disk { has, asked, changing },
        }
    }
}

impl Body {
    /// The document that a value makes.
    pub fn of(document: &impl Serialize) -> Result<Self, serde_json::Error> {
        Ok(Self(serde_json::to_string(document)?.into()))
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl From<Value> for Body {
    fn from(document: Value) -> Self {
        Self(document.to_string().into())
    }
}

impl Type<Postgres> for Body {
    fn type_info() -> PgTypeInfo {
        <Value as Type<Postgres>>::type_info()
    }
}

impl PgHasArrayType for Body {
    fn array_type_info() -> PgTypeInfo {
        <Value as PgHasArrayType>::array_type_info()
    }
}

impl Encode<'_, Postgres> for Body {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        // The version of the form, then the text: it is the only one that Postgres knows.
        buffer.push(1);
        buffer.extend(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn size_hint(&self) -> usize {
        1 + self.0.len()
    }
}

impl From<&Step> for StepDocument {
    fn from(step: &Step) -> Self {
        Self {
            name: step.name.clone(),
            state: step.state.to_string(),
            message: step.message.clone(),
            started_at: step.started_at.map(Timestamp::as_millisecond),
            ended_at: step.ended_at.map(Timestamp::as_millisecond),
        }
    }
}

impl StepDocument {
    pub(crate) fn read(self) -> Result<Step, String> {
        let time = |milliseconds: Option<i64>| {
            milliseconds.map(Timestamp::from_millisecond).transpose().map_err(|error| error.to_string())
        };
        Ok(Step {
            state: word("step.state", &self.state, StepState::parse)?,
            started_at: time(self.started_at)?,
            ended_at: time(self.ended_at)?,
            name: self.name,
            message: self.message,
        })
    }
}
