//! The calls of the API, one function each, and the way from what people type to identities. Nothing is decided here about
//! what to show.

use domain::ClusterId;
use reqwest::Method;
use reqwest::Response;
use reqwest::header::{HeaderName, HeaderValue, IF_MATCH};
use uuid::Uuid;
use wire::http::{
    Accepted, Cluster, ClusterList, CreateDatabase, Database, DatabaseList, Operation, OperationList,
    RegisterCluster, UpdateCluster, UpdateDatabase,
};

use super::{Answer, Client, Request};
use crate::error::Error;

/// Databases and operations of one page: the most that the API gives.
const PAGE: u32 = 100;

pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Which databases to list.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only of this name.
    pub name: Option<String>,
    /// Deleted ones too.
    pub deleted: bool,
}

/// Which operations to list.
#[derive(Debug, Clone, Default)]
pub struct Operations {
    /// Only of this database.
    pub database: Option<Uuid>,
    /// Only in this state.
    pub state: Option<String>,
    /// Only those that are past their deadline and go on.
    pub overdue: bool,
}

impl Client {
    /// Asks for a database. The same key never makes two.
    pub async fn create_database(&self, body: &CreateDatabase, key: &str) -> Result<Accepted, Error> {
        let key = HeaderValue::from_str(key).map_err(|_| Error::usage("that is no idempotency key"))?;
        let request = Request::new(Method::POST, "v1/databases").header(IDEMPOTENCY_KEY, key).body(body)?;
        Ok(self.ask(request).await?.body)
    }

    /// One database.
    pub async fn database(&self, id: Uuid) -> Result<Answer<Database>, Error> {
        self.ask(Request::new(Method::GET, format!("v1/databases/{id}"))).await
    }

    /// Databases, newest first, page by page up to a number.
    pub async fn databases(&self, filter: &Filter, limit: usize) -> Result<DatabaseList, Error> {
        let mut found = DatabaseList { databases: Vec::new(), unreadable: Vec::new(), next_cursor: None };
        let mut cursor = None;
        loop {
            let request = Request::new(Method::GET, "v1/databases")
                .query("name", filter.name.as_ref())
                .query("deleted", filter.deleted.then_some(true))
                .query("limit", Some(page(limit, found.databases.len())))
                .query("cursor", cursor.take());
            let page: DatabaseList = self.ask(request).await?.body;
            let empty = page.databases.is_empty() && page.unreadable.is_empty();
            found.databases.extend(page.databases);
            found.unreadable.extend(page.unreadable);
            cursor = page.next_cursor;
            if found.databases.len() >= limit || cursor.is_none() || empty {
                found.databases.truncate(limit);
                return Ok(found);
            }
        }
    }

    /// Changes a database, if it is still what was read.
    pub async fn update_database(
        &self,
        id: Uuid,
        body: &UpdateDatabase,
        etag: HeaderValue,
    ) -> Result<Accepted, Error> {
        let request =
            Request::new(Method::PATCH, format!("v1/databases/{id}")).header(IF_MATCH, etag).body(body)?;
        Ok(self.ask(request).await?.body)
    }

    /// Deletes a database, if it is still what was read.
    pub async fn delete_database(&self, id: Uuid, etag: HeaderValue) -> Result<Accepted, Error> {
        Ok(self
            .ask(Request::new(Method::DELETE, format!("v1/databases/{id}")).header(IF_MATCH, etag))
            .await?
            .body)
    }

    /// One operation.
    pub async fn operation(&self, id: Uuid) -> Result<Operation, Error> {
        Ok(self.ask(Request::new(Method::GET, format!("v1/operations/{id}"))).await?.body)
    }

    /// Operations, newest first, page by page up to a number; those that are asked for.
    pub async fn operations(&self, filter: &Operations, limit: usize) -> Result<OperationList, Error> {
        let mut found = OperationList { operations: Vec::new(), unreadable: Vec::new(), next_cursor: None };
        let mut cursor = None;
        loop {
            let request = Request::new(Method::GET, "v1/operations")
                .query("database", filter.database)
                .query("state", filter.state.as_ref())
                .query("overdue", filter.overdue.then_some(true))
                .query("limit", Some(page(limit, found.operations.len())))
                .query("cursor", cursor.take());
            let page: OperationList = self.ask(request).await?.body;
            let empty = page.operations.is_empty() && page.unreadable.is_empty();
            found.operations.extend(page.operations);
            found.unreadable.extend(page.unreadable);
            cursor = page.next_cursor;
            if found.operations.len() >= limit || cursor.is_none() || empty {
                found.operations.truncate(limit);
                return Ok(found);
            }
        }
    }

    /// Cancels an operation. The same key never does it twice.
    pub async fn cancel_operation(&self, id: Uuid, key: &str) -> Result<Accepted, Error> {
        let key = HeaderValue::from_str(key).map_err(|_| Error::usage("that is no idempotency key"))?;
        let request = Request::new(Method::POST, format!("v1/operations/{id}:cancel"));
        Ok(self.ask(request.header(IDEMPOTENCY_KEY, key)).await?.body)
    }

    /// The events of an operation after the given one.
    pub async fn events(&self, operation: Uuid, after: i64) -> Result<Response, Error> {
        let mut request = Request::new(Method::GET, format!("v1/operations/{operation}/events")).stream();
        if after > 0 {
            request = request.header(LAST_EVENT_ID, HeaderValue::from(after));
        }
        self.send(request).await
    }

    /// All clusters.
    pub async fn clusters(&self) -> Result<ClusterList, Error> {
        Ok(self.ask(Request::new(Method::GET, "v1/clusters")).await?.body)
    }

    /// One cluster.
    pub async fn cluster(&self, id: &ClusterId) -> Result<Cluster, Error> {
        Ok(self.ask(Request::new(Method::GET, format!("v1/clusters/{id}"))).await?.body)
    }

    /// Registers a cluster or changes its registration.
    pub async fn register_cluster(&self, id: &ClusterId, body: &RegisterCluster) -> Result<Cluster, Error> {
        Ok(self.ask(Request::new(Method::PUT, format!("v1/clusters/{id}")).body(body)?).await?.body)
    }

    /// Opens or closes a cluster for new databases.
    pub async fn update_cluster(&self, id: &ClusterId, body: &UpdateCluster) -> Result<Cluster, Error> {
        Ok(self.ask(Request::new(Method::PATCH, format!("v1/clusters/{id}")).body(body)?).await?.body)
    }

    /// The database of an id or a name.
    pub async fn find_database(&self, text: &str) -> Result<Database, Error> {
        let text = text.strip_prefix("databases/").unwrap_or(text);
        if let Ok(id) = text.parse::<Uuid>() {
            return Ok(self.database(id).await?.body);
        }
        let name = text.parse::<domain::DatabaseName>().map_err(|error| Error::Usage {
            message: format!("{text:?} is neither an id nor a name: a name {error}"),
            hint: String::new(),
        })?;
        let filter = Filter { name: Some(name.to_string()), deleted: false };
        choose(name.as_str(), self.of_name(&filter, PAGE as usize).await?)
    }

    /// The databases of a name, as far as they can be read.
    pub(super) async fn of_name(&self, filter: &Filter, limit: usize) -> Result<Vec<Database>, Error> {
        let DatabaseList { databases, unreadable, .. } = self.databases(filter, limit).await?;
        if let ([], [first, ..]) = (databases.as_slice(), unreadable.as_slice()) {
            // It is there: the answer says what cannot be read of it.
            return Ok(vec![self.database(first.id).await?.body]);
        }
        Ok(databases)
    }
}

/// How many to ask for next.
pub(super) fn page(limit: usize, have: usize) -> u32 {
    u32::try_from(limit.saturating_sub(have)).map_or(PAGE, |left| left.clamp(1, PAGE))
}

/// The one database of a name: living before deleted.
pub(super) fn choose(name: &str, mut found: Vec<Database>) -> Result<Database, Error> {
    found.retain(|database| database.name == name);
    if found.len() > 1 && found.iter().any(living) {
        found.retain(living);
    }
    match found.len() {
        0 => Err(Error::NotFound {
            what: format!("database {name:?}"),
            hint: "names are looked for in one tenant only (--tenant), and a deleted database is mostly named by its id: \
                   `slipway databases list --deleted -o wide`"
                .to_owned(),
        }),
        1 => Ok(found.remove(0)),
        _ => Err(Error::Ambiguous { name: name.to_owned(), databases: found }),
    }
}

fn living(database: &Database) -> bool {
    matches!(database.run_state.as_str(), "running" | "paused")
}

/// The id of an operation.
pub fn operation_id(text: &str) -> Result<Uuid, Error> {
    let text = text.strip_prefix("operations/").unwrap_or(text);
    text.parse().map_err(|_| Error::Usage {
        message: format!("{text:?} is not the id of an operation"),
        hint: "slipway operations list".to_owned(),
    })
}

/// The id of a cluster.
pub fn cluster_id(text: &str) -> Result<ClusterId, Error> {
    let text = text.strip_prefix("clusters/").unwrap_or(text);
    text.parse().map_err(|error: domain::id::Error| Error::Usage {
        message: format!("{text:?} is not the id of a cluster: it {error}"),
        hint: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    fn database(name: &str, run_state: &str) -> Database {
        let mut database = fixture::database();
        database.id = Uuid::now_v7();
        name.clone_into(&mut database.name);
        run_state.clone_into(&mut database.run_state);
        database
    }

    #[test]
    fn the_living_one_of_a_name_is_meant() {
        let living = database("a", "running");
        let all = vec![database("a", "deleted"), living.clone(), database("b", "running")];
        assert_eq!(choose("a", all).unwrap().id, living.id);
        let gone = database("a", "deleted");
        assert_eq!(choose("a", vec![gone.clone()]).unwrap().id, gone.id);
    }

    #[test]
    fn namesakes_and_strangers_are_told_apart() {
        let both = choose("a", vec![database("a", "running"), database("a", "paused")]).unwrap_err();
        assert!(matches!(&both, Error::Ambiguous { databases, .. } if databases.len() == 2), "{both}");
        let none = choose("a", vec![database("b", "running")]).unwrap_err();
        assert!(matches!(none, Error::NotFound { .. }), "{none}");
        // An operation that failed may have been the creation of it.
        assert!(none.explain().contains("databases list --deleted"), "{}", none.explain());
    }

    #[test]
    fn pages_ask_for_no_more_than_is_wanted() {
        assert_eq!((page(5, 0), page(500, 0), page(150, 100), page(usize::MAX, 7)), (5, 100, 50, 100));
    }

    #[test]
    fn names_as_printed_are_taken_back() {
        let id = Uuid::now_v7();
        assert_eq!(operation_id(&format!("operations/{id}")).unwrap(), id);
        assert_eq!(cluster_id("clusters/eu-west-1").unwrap().as_str(), "eu-west-1");
        assert!(operation_id("x").is_err() && cluster_id("../x").is_err());
    }
}
