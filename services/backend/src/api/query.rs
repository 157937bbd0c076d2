//! Query parameters: parsed one by one, so that each refusal names its parameter.

use std::collections::BTreeMap;
use std::str::FromStr;

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use domain::Rule;
use store::Page;
use uuid::Uuid;

use super::failure::Failure;

/// Rows of a page that names no limit.
const DEFAULT_LIMIT: u32 = 20;
/// Most rows of a page.
const LIMIT: u32 = 100;

/// The query's parameters that nobody took yet.
#[derive(Debug, Clone)]
pub(crate) struct Parameters(BTreeMap<String, String>);

impl<S: Send + Sync> FromRequestParts<S> for Parameters {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let pairs = Query::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let Query(pairs) = pairs.map_err(|error| Failure::bad_query("", Rule::Format, &error.to_string()))?;
        let mut parameters = BTreeMap::new();
        for (name, value) in pairs {
            // Postgres keeps no such text, and would refuse the statement.
            if value.contains('\0') {
                return Err(Failure::bad_query(&name, Rule::Format, "holds a NUL character"));
            }
            if parameters.insert(name.clone(), value).is_some() {
                return Err(Failure::bad_query(&name, Rule::Conflict, "is given more than once"));
            }
        }
        Ok(Self(parameters))
    }
}

impl Parameters {
    /// Takes a parameter.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    /// Takes a parameter that has a type.
    pub(crate) fn take_as<T: FromStr>(&mut self, name: &str, expected: &str) -> Result<Option<T>, Failure> {
        let value = self.take(name).map(|text| text.parse());
        value.transpose().map_err(|_| Failure::bad_query(name, Rule::Format, &format!("must be {expected}")))
    }

    /// Takes `limit`.
    pub(crate) fn limit(&mut self) -> Result<u32, Failure> {
        let limit = self.take_as::<u32>("limit", "a number")?.unwrap_or(DEFAULT_LIMIT);
        if !(1..=LIMIT).contains(&limit) {
            return Err(Failure::bad_query("limit", Rule::Range, &format!("must be 1 to {LIMIT}")));
        }
        Ok(limit)
    }

    /// Takes `limit` and `cursor`.
    pub(crate) fn page(&mut self) -> Result<Page, Failure> {
        let limit = self.limit()?;
        let after = self.take_as::<Uuid>("cursor", "the next_cursor of the page before")?;
        Ok(Page { after, limit })
    }

    /// Whatever was not taken is unknown.
    pub(crate) fn end(self) -> Result<(), Failure> {
        match self.0.keys().next() {
            Some(name) => {
                Err(Failure::bad_query(name, Rule::UnknownField, "is not a parameter of this path"))
            }
            None => Ok(()),
        }
    }
}

/// The page with one row more, which says whether another follows; [`cut`] takes it off again.
pub(crate) const fn one_more(page: Page) -> Page {
    Page { limit: page.limit + 1, ..page }
}

/// Cuts a list that was read with one row more than the page has, and says where the next page begins.
pub(crate) fn cut<T>(rows: Vec<T>, limit: u32, id: impl Fn(&T) -> Uuid) -> (Vec<T>, Option<String>) {
    cut_by(rows, limit, |row| id(row).simple().to_string())
}

/// The same for rows whose place is more than an identity.
pub(crate) fn cut_by<T>(
    mut rows: Vec<T>,
    limit: u32,
    place: impl Fn(&T) -> String,
) -> (Vec<T>, Option<String>) {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(place);
    (rows, next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    async fn parameters(query: &str) -> Result<Parameters, Failure> {
        let request = Request::get(format!("/?{query}")).body(()).unwrap();
        Parameters::from_request_parts(&mut request.into_parts().0, &()).await
    }

    #[tokio::test]
    async fn pages_are_bounded() {
        let page = |query: &'static str| async move { parameters(query).await.unwrap().page() };
        assert_eq!(page("").await.unwrap(), Page { after: None, limit: DEFAULT_LIMIT });
        assert_eq!(page("limit=100").await.unwrap().limit, 100);
        for bad in ["limit=0", "limit=101", "limit=-1", "limit=many", "cursor=x"] {
            assert_eq!(page(bad).await.unwrap_err().problem.status, 400, "{bad}");
        }
    }

    #[tokio::test]
    async fn unknown_and_repeated_parameters_are_refused() {
        assert!(parameters("a=1&a=2").await.is_err());
        let mut unknown = parameters("name=a&colour=red").await.unwrap();
        assert_eq!(unknown.take("name").as_deref(), Some("a"));
        let failure = unknown.end().unwrap_err();
        assert_eq!(failure.problem.errors[0].pointer, "query:colour");
    }

    #[tokio::test]
    async fn what_no_text_can_hold_is_refused_by_name() {
        for query in ["name=a%00b", "cursor=%00"] {
            let failure = parameters(query).await.unwrap_err();
            let name = query.split('=').next().unwrap();
            assert_eq!(failure.problem.errors[0].pointer, format!("query:{name}"));
        }
    }

    #[test]
    fn a_cursor_follows_only_a_full_page() {
        let ids: Vec<Uuid> = (1..=3).map(Uuid::from_u128).collect();
        let (rows, next) = cut(ids.clone(), 2, |id| *id);
        assert_eq!((rows.len(), next.unwrap().parse::<Uuid>().unwrap()), (2, ids[1]));
        assert_eq!(cut(ids, 3, |id| *id).1, None);
        assert_eq!(cut(Vec::<Uuid>::new(), 3, |id| *id), (Vec::new(), None));
    }
}
