//! The calls about what was set aside, and the way from what people type to its identities.

use reqwest::Method;
use reqwest::header::HeaderValue;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;
use wire::http::aside::{DeadLetter, Parked, Unclaimed};
use wire::http::{
    DeadLetterList, Intervention, ParkedList, Resent, SettledLetter, UnclaimedList, WholeLetter,
};

use super::calls::{IDEMPOTENCY_KEY, page};
use super::{Client, Request};
use crate::error::Error;

/// Which rows of what was set aside.
#[derive(Debug, Clone, Default)]
pub struct Which {
    /// Only of this database.
    pub database: Option<Uuid>,
    /// Only of this cluster.
    pub cluster: Option<String>,
    /// Only with this reason.
    pub code: Option<String>,
    /// Also what is over: settled letters, what is no longer unclaimed.
    pub over: bool,
}

/// What is done to a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// The newest state of its database is published again.
    Redrive,
    /// It is given up.
    Discard,
}

impl Verb {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Redrive => "redrive",
            Self::Discard => "discard",
        }
    }
}

impl Client {
    /// Dead letters, the latest first, page by page up to a number.
    pub async fn dead_letters(&self, which: &Which, limit: usize) -> Result<Vec<DeadLetter>, Error> {
        let path = |have, cursor| rows("v1/dead-letters", which, "settled", (limit, have), cursor);
        self.pages(path, limit, |list: DeadLetterList| (list.dead_letters, list.next_cursor)).await
    }

    /// What is parked, page by page up to a number.
    pub async fn parked(&self, which: &Which, limit: usize) -> Result<Vec<Parked>, Error> {
        let path = |have, cursor| rows("v1/parked", which, "", (limit, have), cursor);
        self.pages(path, limit, |list: ParkedList| (list.parked, list.next_cursor)).await
    }

    /// What is unclaimed, page by page up to a number.
    pub async fn unclaimed(&self, which: &Which, limit: usize) -> Result<Vec<Unclaimed>, Error> {
        let path = |have, cursor| rows("v1/unclaimed", which, "resolved", (limit, have), cursor);
        self.pages(path, limit, |list: UnclaimedList| (list.unclaimed, list.next_cursor)).await
    }

    /// One dead letter with all that came with it.
    pub async fn dead_letter(&self, id: i64) -> Result<WholeLetter, Error> {
        Ok(self.ask(Request::new(Method::GET, format!("v1/dead-letters/{id}"))).await?.body)
    }

    /// Deals with a dead letter. The same key never does it twice; a dry run needs none.
    pub async fn settle_letter(
        &self,
        id: i64,
        verb: Verb,
        body: &Intervention,
        key: Option<&str>,
    ) -> Result<SettledLetter, Error> {
        self.intervene(format!("v1/dead-letters/{id}:{}", verb.as_str()), body, key).await
    }

    /// Has a database's state published again. The same key never does it twice; a dry run needs none.
    pub async fn resend_database(
        &self,
        id: Uuid,
        body: &Intervention,
        key: Option<&str>,
    ) -> Result<Resent, Error> {
        self.intervene(format!("v1/databases/{id}:resend"), body, key).await
    }

    async fn intervene<T: DeserializeOwned>(
        &self,
        path: String,
        body: &impl Serialize,
        key: Option<&str>,
    ) -> Result<T, Error> {
        let mut request = Request::new(Method::POST, path);
        if let Some(key) = key {
            let key = HeaderValue::from_str(key).map_err(|_| Error::usage("that is no idempotency key"))?;
            request = request.header(IDEMPOTENCY_KEY, key);
        }
        Ok(self.ask(request.body(body)?).await?.body)
    }

    /// Page by page up to a number.
    async fn pages<L: DeserializeOwned, T>(
        &self,
        request: impl Fn(usize, Option<String>) -> Request,
        limit: usize,
        open: impl Fn(L) -> (Vec<T>, Option<String>),
    ) -> Result<Vec<T>, Error> {
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let (rows, next) = open(self.ask(request(found.len(), cursor.take())).await?.body);
            let empty = rows.is_empty();
            found.extend(rows);
            cursor = next;
            if found.len() >= limit || cursor.is_none() || empty {
                found.truncate(limit);
                return Ok(found);
            }
        }
    }
}

/// The request for a page; `over` is the parameter by which what is over comes too.
fn rows(
    path: &str,
    which: &Which,
    over: &'static str,
    (limit, have): (usize, usize),
    cursor: Option<String>,
) -> Request {
    Request::new(Method::GET, path)
        .query("database", which.database)
        .query("cluster", which.cluster.as_ref())
        .query("code", which.code.as_ref())
        .query(over, (which.over && !over.is_empty()).then_some(true))
        .query("limit", Some(page(limit, have)))
        .query("cursor", cursor)
}

/// The id of a dead letter.
pub fn letter_id(text: &str) -> Result<i64, Error> {
    let text = text.strip_prefix("dead-letters/").unwrap_or(text);
    text.parse().map_err(|_| Error::Usage {
        message: format!("{text:?} is not the id of a dead letter"),
        hint: "slipway dead-letters list".to_owned(),
    })
}
