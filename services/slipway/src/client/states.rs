//! The calls that move a database between its run states, and the way from the name of a deleted one to its identity.

use domain::lifecycle::Verb;
use reqwest::Method;
use reqwest::header::{HeaderValue, IF_MATCH};
use uuid::Uuid;
use wire::http::{Accepted, Database, PurgeDatabase};

use super::calls::{Filter, IDEMPOTENCY_KEY, choose};
use super::{Client, Request};
use crate::error::Error;

/// Databases of one name that are looked through.
const NAMESAKES: usize = 1_000;

impl Client {
    /// Asks something of a database in one word. The same key never does it twice.
    pub async fn ask_state(&self, id: Uuid, verb: Verb, key: &str) -> Result<Accepted, Error> {
        let key = HeaderValue::from_str(key).map_err(|_| Error::usage("that is no idempotency key"))?;
        let request = Request::new(Method::POST, format!("v1/databases/{id}:{verb}"));
        Ok(self.ask(request.header(IDEMPOTENCY_KEY, key)).await?.body)
    }

    /// Asks that the volume of a deleted database is destroyed, if it is still what was read. The same key never does it
    /// twice.
    pub async fn purge_database(
        &self,
        id: Uuid,
        body: &PurgeDatabase,
        (key, etag): (&str, HeaderValue),
    ) -> Result<Accepted, Error> {
        let key = HeaderValue::from_str(key).map_err(|_| Error::usage("that is no idempotency key"))?;
        let request = Request::new(Method::POST, format!("v1/databases/{id}:{}", Verb::Purge));
        let request = request.header(IDEMPOTENCY_KEY, key).header(IF_MATCH, etag);
        Ok(self.ask(request.body(body)?).await?.body)
    }

    /// The deleted database of an id or a name.
    pub async fn find_deleted(&self, text: &str) -> Result<Database, Error> {
        let text = text.strip_prefix("databases/").unwrap_or(text);
        if text.parse::<Uuid>().is_ok() {
            return self.find_database(text).await;
        }
        let filter = Filter { name: Some(text.to_owned()), deleted: true };
        deleted(text, self.of_name(&filter, NAMESAKES).await?)
    }
}

/// The one of a name that can be brought back. Where there is none, the one that cannot, so that the API says why.
fn deleted(name: &str, mut found: Vec<Database>) -> Result<Database, Error> {
    if found.iter().any(|database| database.run_state == "deleted") {
        found.retain(|database| database.run_state == "deleted");
    }
    choose(name, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    fn database(run_state: &str) -> Database {
        Database { id: Uuid::now_v7(), run_state: run_state.to_owned(), ..fixture::database() }
    }

    #[test]
    fn the_deleted_one_of_a_name_is_meant() {
        let name = fixture::database().name;
        let gone = database("deleted");
        let all = vec![database("running"), gone.clone(), database("purged")];
        assert_eq!(deleted(&name, all).unwrap().id, gone.id);
        let living = database("running");
        assert_eq!(deleted(&name, vec![living.clone(), database("purged")]).unwrap().id, living.id);
        let both = deleted(&name, vec![database("deleted"), database("deleted")]).unwrap_err();
        assert!(matches!(&both, Error::Ambiguous { databases, .. } if databases.len() == 2), "{both}");
        assert!(matches!(deleted(&name, Vec::new()).unwrap_err(), Error::NotFound { .. }));
    }
}
