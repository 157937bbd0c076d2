//! `/v1/unclaimed`, `/v1/parked`, `/v1/dead-letters`: what was set aside, for those who run the fleet, and what they do
//! about it.

pub(crate) mod act;
mod advice;
mod decide;
pub(crate) mod letter;
mod show;

use axum::Json;
use axum::extract::State;
use store::AsideFilter;
use uuid::Uuid;
use wire::http::{DeadLetterList, ParkedList, Problem, UnclaimedList};

use super::Api;
use super::auth::Caller;
use super::failure::Failure;
use super::query::{Parameters, cut, cut_by, one_more};

/// List what is unclaimed
///
/// What clusters hold although nobody can say why: databases that are not known, or not theirs, or at positions that were
/// never minted. The latest database first.
#[utoipa::path(
    get,
    path = "/v1/unclaimed",
    tag = "fleet",
    operation_id = "list_unclaimed",
    params(
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 100; 20 unless given", minimum = 1, maximum = 100),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
        ("database" = Option<Uuid>, Query, description = "Only of this database"),
        ("cluster" = Option<String>, Query, description = "Only of this cluster"),
        ("code" = Option<String>, Query, description = "Only with this reason"),
        ("resolved" = Option<bool>, Query, description = "Also what is no longer so"),
    ),
    responses(
        (status = 200, description = "A page", body = UnclaimedList),
        (status = 403, description = "The token's role is not sre", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn unclaimed(
    State(api): State<Api>,
    caller: Caller,
    mut parameters: Parameters,
) -> Result<Json<UnclaimedList>, Failure> {
    caller.require_sre()?;
    let limit = parameters.limit()?;
    let after: Option<Place> = parameters.take_as("cursor", "the next_cursor of the page before")?;
    let filter = filter(&mut parameters)?;
    let resolved = parameters.take_as("resolved", "true or false")?.unwrap_or(false);
    parameters.end()?;
    let after = after.as_ref().map(|Place(database, cluster)| (*database, cluster.as_str()));
    let rows = api.store().unclaimed(&filter, resolved, after, limit + 1).await?;
    let (rows, next_cursor) = cut_by(rows, limit, |row| place(row.database.uuid(), &row.cluster));
    Ok(Json(UnclaimedList { unclaimed: rows.into_iter().map(show::unclaimed).collect(), next_cursor }))
}

/// List what is parked
///
/// Instructions that wait because their cluster cannot take them now, the latest database first.
#[utoipa::path(
    get,
    path = "/v1/parked",
    tag = "fleet",
    operation_id = "list_parked",
    params(
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 100; 20 unless given", minimum = 1, maximum = 100),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
        ("database" = Option<Uuid>, Query, description = "Only of this database"),
        ("cluster" = Option<String>, Query, description = "Only of this cluster"),
        ("code" = Option<String>, Query, description = "Only with this reason"),
    ),
    responses(
        (status = 200, description = "A page", body = ParkedList),
        (status = 403, description = "The token's role is not sre", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn parked(
    State(api): State<Api>,
    caller: Caller,
    mut parameters: Parameters,
) -> Result<Json<ParkedList>, Failure> {
    caller.require_sre()?;
    let page = parameters.page()?;
    let filter = filter(&mut parameters)?;
    parameters.end()?;
    let rows = api.store().parked(&filter, one_more(page)).await?;
    let (rows, next_cursor) = cut(rows, page.limit, |row| row.database);
    Ok(Json(ParkedList { parked: rows.into_iter().map(show::parked).collect(), next_cursor }))
}

/// List dead letters
///
/// Records that cannot be understood or carried out, the latest first.
#[utoipa::path(
    get,
    path = "/v1/dead-letters",
    tag = "fleet",
    operation_id = "list_dead_letters",
    params(
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 100; 20 unless given", minimum = 1, maximum = 100),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
        ("database" = Option<Uuid>, Query, description = "Only of this database"),
        ("cluster" = Option<String>, Query, description = "Only of this cluster"),
        ("code" = Option<String>, Query, description = "Only with this reason"),
        ("settled" = Option<bool>, Query, description = "Also those that are settled: superseded, redriven or discarded"),
        ("superseded" = Option<bool>, Query, description = "The same, by its older name"),
    ),
    responses(
        (status = 200, description = "A page", body = DeadLetterList),
        (status = 403, description = "The token's role is not sre", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn dead_letters(
    State(api): State<Api>,
    caller: Caller,
    mut parameters: Parameters,
) -> Result<Json<DeadLetterList>, Failure> {
    caller.require_sre()?;
    let page = parameters.page()?;
    let filter = filter(&mut parameters)?;
    let settled = parameters.take_as("settled", "true or false")?.unwrap_or(false);
    let settled = parameters.take_as("superseded", "true or false")?.unwrap_or(settled);
    parameters.end()?;
    let before = page.after.map(|cursor| i64::try_from(cursor.as_u128()).unwrap_or(i64::MAX));
    let rows = api.store().dead_letters(&filter, settled, before, one_more(page).limit).await?;
    // Cursors are made of identities of one form everywhere; these are numbers.
    let (rows, next_cursor) =
        cut(rows, page.limit, |row| Uuid::from_u128(u128::try_from(row.id).unwrap_or_default()));
    let dead_letters = rows.into_iter().map(|row| show::letter(row, api.gossip_topic())).collect();
    Ok(Json(DeadLetterList { dead_letters, next_cursor }))
}

fn filter(parameters: &mut Parameters) -> Result<AsideFilter, Failure> {
    Ok(AsideFilter {
        database: parameters.take_as("database", "the identity of a database")?,
        cluster: parameters.take("cluster"),
        code: parameters.take("code"),
    })
}

/// Where a page of what is unclaimed ended: several clusters may speak of one database, so both are needed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place(Uuid, String);

fn place(database: Uuid, cluster: &str) -> String {
    format!("{}.{cluster}", database.simple())
}

impl std::str::FromStr for Place {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (database, cluster) = text.split_once('.').unwrap_or((text, ""));
        Ok(Self(database.parse()?, cluster.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_both_of_its_parts() {
        let id = Uuid::now_v7();
        assert_eq!(place(id, "eu-west-1").parse(), Ok(Place(id, "eu-west-1".to_owned())));
        assert!("eu-west-1".parse::<Place>().is_err());
    }
}
