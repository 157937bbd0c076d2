//! One user of a load. Decides by its own random numbers only, so that a seed can be played again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::ledger::{Change, Entry, Ledger};
use super::{Plan, Shared};
use crate::{Console, Random};

/// How long one request may take before it is asked again.
const CALL: Duration = Duration::from_secs(8);
/// Pause before it is.
const AGAIN: Duration = Duration::from_millis(200);
/// The size a database is born with.
const BORN: i64 = 20;

pub(super) struct User {
    number: u64,
    console: Console,
    plan: Plan,
    random: Random,
    ledger: Ledger,
    living: Vec<String>,
    shared: Arc<Shared>,
}

/// What became of a request.
enum Answer {
    /// The body of a success.
    Accepted(Value),
    /// The database changed meanwhile.
    Changed,
    /// No answer, or one that says to come again: nobody knows. What was said instead.
    Unknown(String),
}

impl User {
    pub(super) fn new(
        number: u64,
        console: Console,
        plan: Plan,
        random: Random,
        shared: Arc<Shared>,
    ) -> Self {
        Self { number, console, plan, random, ledger: Ledger::default(), living: Vec::new(), shared }
    }

    /// Works until it is told to stop.
    pub(super) async fn work(mut self) -> anyhow::Result<Ledger> {
        while !self.shared.stop.load(Ordering::Relaxed) {
            match self.act().await {
                Ok(true) => _ = self.shared.accepted.fetch_add(1, Ordering::Relaxed),
                Ok(false) => {}
                Err(error) => {
                    self.shared.trouble(self.number, format!("ended: {error:#}"));
                    return Err(error);
                }
            }
            tokio::time::sleep(self.plan.pause).await;
        }
        Ok(self.ledger)
    }

    /// One choice and one request; false when there was nothing left to do.
    async fn act(&mut self) -> anyhow::Result<bool> {
        let room = self.ledger.databases.len() < self.plan.databases;
        if room && (self.living.is_empty() || self.random.chance(30)) {
            return self.create().await.map(|()| true);
        }
        let Some(id) = self.random.pick(&self.living).cloned() else { return Ok(false) };
        // Where no further one may be made, the last is kept, or the load would run dry.
        if self.random.chance(self.plan.deletes) && (room || self.living.len() > 1) {
            self.delete(&id).await?;
        } else {
            self.grow(&id).await?;
        }
        Ok(true)
    }

    async fn create(&mut self) -> anyhow::Result<()> {
        // Names are used again beside the tombstones of those who had them.
        let taken =
            |name: &str| self.ledger.databases.values().any(|entry| !entry.deleted && entry.name == name);
        let user = format!("load-{}-{}", self.plan.seed % 1_000_000, self.number);
        let names = (0..).map(|number| format!("{user}-{number}"));
        let name = names.into_iter().find(|name| !taken(name)).context("a free name")?;
        let region = self.random.pick(&self.plan.regions).context("a region")?.clone();
        let body = json!({
            "name": name,
            "region": region,
            "storage": {"size_gib": BORN, "deletion_policy": if self.random.chance(50) { "delete" } else { "retain" }},
        });
        let key = uuid::Uuid::now_v7().to_string();
        let begun = Instant::now();
        let mut prompt = true;
        let accepted = loop {
            let request = self.console.request(Method::POST, "/v1/databases").header("Idempotency-Key", &key);
            match ask(request.json(&body)).await? {
                Answer::Accepted(accepted) => break accepted,
                Answer::Changed => bail!("a creation was answered with 412"),
                Answer::Unknown(said) => prompt = self.again(begun, said).await?,
            }
        };
        let id = text(&accepted["database"]["id"])?;
        let entry =
            Entry { name, region, size_gib: BORN, position: (0, 0), deleted: false, changes: Vec::new() };
        self.ledger.databases.insert(id.clone(), entry);
        self.living.push(id.clone());
        self.note(&id, &accepted["database"], text(&accepted["operation"]["id"])?, prompt)
    }

    async fn grow(&mut self, id: &str) -> anyhow::Result<()> {
        let entry = self.ledger.databases.get(id).context("a database of this user")?;
        let (size, mut etag) = (entry.size_gib + 1, tag(entry.position));
        let path = format!("/v1/databases/{id}");
        let begun = Instant::now();
        let mut prompt = true;
        loop {
            let body = json!({"storage": {"size_gib": size}});
            let request = self.console.request(Method::PATCH, &path).header("If-Match", &etag).json(&body);
            let said = match ask(request).await? {
                Answer::Accepted(accepted) => {
                    self.size(id, size);
                    return self.note(id, &accepted["database"], text(&accepted["operation"]["id"])?, prompt);
                }
                Answer::Changed => format!("412 for {etag} of {id}"),
                Answer::Unknown(said) => said,
            };
            prompt = self.again(begun, said).await?;
            // Nobody else changes this database: if it has the size, the request had been accepted.
            let Answer::Accepted(now) = ask(self.console.request(Method::GET, &path)).await? else {
                continue;
            };
            if now["storage"]["size_gib"] == size {
                self.size(id, size);
                return self.note(id, &now, text(&now["operation_id"])?, prompt);
            }
            etag = tag(position(&now)?);
        }
    }

    async fn delete(&mut self, id: &str) -> anyhow::Result<()> {
        let path = format!("/v1/databases/{id}");
        let begun = Instant::now();
        let mut prompt = true;
        // Deleting what is deleted answers with the operation that did it.
        let accepted = loop {
            match ask(self.console.request(Method::DELETE, &path)).await? {
                Answer::Accepted(accepted) => break accepted,
                Answer::Changed => prompt = self.again(begun, format!("412 for a delete of {id}")).await?,
                Answer::Unknown(said) => prompt = self.again(begun, said).await?,
            }
        };
        self.living.retain(|living| living != id);
        if let Some(entry) = self.ledger.databases.get_mut(id) {
            entry.deleted = true;
        }
        self.note(id, &accepted["database"], text(&accepted["operation"]["id"])?, prompt)
    }

    /// Rests before another try, unless that was long enough; false, because what follows is not prompt.
    async fn again(&self, begun: Instant, said: String) -> anyhow::Result<bool> {
        let patience = self.plan.patience;
        ensure!(begun.elapsed() < patience, "the API did not answer for {patience:?}: {said}");
        self.shared.trouble(self.number, said);
        tokio::time::sleep(AGAIN).await;
        Ok(false)
    }

    fn size(&mut self, id: &str, size: i64) {
        if let Some(entry) = self.ledger.databases.get_mut(id) {
            entry.size_gib = size;
        }
    }

    fn note(&mut self, id: &str, database: &Value, operation: String, prompt: bool) -> anyhow::Result<()> {
        let position = position(database)?;
        let entry = self.ledger.databases.get_mut(id).context("a database of this user")?;
        ensure!(position > entry.position, "{id}: {position:?} was accepted after {:?}", entry.position);
        entry.position = position;
        if let Some(readers) = &self.plan.readers {
            readers.follow(&operation);
        }
        entry.changes.push(Change { operation, position, accepted: Instant::now(), prompt });
        Ok(())
    }
}

/// Sends a request; a refusal that asking again cannot change is an error.
async fn ask(request: RequestBuilder) -> anyhow::Result<Answer> {
    let response = match request.timeout(CALL).send().await {
        Ok(response) => response,
        Err(error) => return Ok(Answer::Unknown(format!("{error:?}"))),
    };
    let status = response.status();
    let body = match response.text().await {
        Ok(body) => body,
        Err(error) => return Ok(Answer::Unknown(format!("{status}, then {error:?}"))),
    };
    match status.as_u16() {
        200..300 => {
            let body = serde_json::from_str(&body).with_context(|| format!("not JSON: {body}"))?;
            Ok(Answer::Accepted(body))
        }
        412 => Ok(Answer::Changed),
        409 if body.contains("idempotency_key_in_flight") => Ok(Answer::Unknown(body)),
        // What a server in trouble says; every other answer is a mistake of this user or of the API.
        429 | 502 | 503 | 504 => Ok(Answer::Unknown(format!("{status}: {body}"))),
        _ => bail!("the API refused with {status}: {body}"),
    }
}

fn position(database: &Value) -> anyhow::Result<(i64, i64)> {
    let number = |name: &str| database[name].as_i64().with_context(|| format!("no {name} in {database}"));
    Ok((number("epoch")?, number("seq")?))
}

fn tag((epoch, seq): (i64, i64)) -> String {
    format!("\"{epoch}-{seq}\"")
}

fn text(value: &Value) -> anyhow::Result<String> {
    Ok(value.as_str().with_context(|| format!("not a text: {value}"))?.to_owned())
}
