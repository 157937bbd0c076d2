//! Readers of event streams: each follows one operation to its end, and goes on behind what it saw when its stream breaks.
//!
//! A reader writes down every number that it is shown. *Invariant:* it never asks for what it saw already, so what it has
//! twice or not at all is the API's doing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use reqwest::{Method, StatusCode};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::{Console, query};

/// Pause before a broken stream is asked for again.
const AGAIN: Duration = Duration::from_millis(200);

/// Readers of a console. Clones share them.
#[derive(Debug, Clone)]
pub struct Readers {
    console: Console,
    tasks: Arc<Mutex<Vec<JoinHandle<Read>>>>,
}

/// What one of them saw.
#[derive(Debug, Default)]
struct Read {
    operation: String,
    numbers: Vec<i64>,
    /// The operation's state, by the last event that told one.
    state: String,
    /// How often it had to ask again.
    resumed: usize,
}

impl Readers {
    /// Nobody yet.
    pub fn new(console: &Console) -> Self {
        Self { console: console.clone(), tasks: Arc::default() }
    }

    /// One more reader.
    pub fn follow(&self, operation: &str) {
        let read = Read { operation: operation.to_owned(), ..Read::default() };
        let reader = tokio::spawn(read.followed(self.console.clone()));
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
    }

    /// Waits until every stream has ended, and compares what was shown with what is there. Says how many streams there
    /// were, and how often one was resumed.
    ///
    /// # Errors
    /// When one has not ended in time; or with everything that was missed, repeated, or out of order.
    pub async fn check(&self, database_url: &str, limit: Duration) -> anyhow::Result<(usize, usize)> {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        let all = futures::future::try_join_all(tasks);
        let read = tokio::time::timeout(limit, all).await.context("a stream has not ended")??;
        let rows = query(database_url, "select id, state, last_event from operations").await?;
        let mut wrong = Vec::new();
        for one in &read {
            let row = rows.lines().find_map(|row| row.strip_prefix(&format!("{}|", one.operation)));
            let shown: Vec<i64> = (1..=i64::try_from(one.numbers.len())?).collect();
            let told = format!("{}|{}", one.state, one.numbers.len());
            if shown != one.numbers || row != Some(&told) {
                wrong.push(format!("a reader was shown {one:?}, and its row is {row:?}"));
            }
        }
        anyhow::ensure!(wrong.is_empty(), "{wrong:#?}");
        Ok((read.len(), read.iter().map(|one| one.resumed).sum()))
    }
}

impl Read {
    async fn followed(mut self, console: Console) -> Self {
        // An unanswered or broken request is no end: only an event, or the word that there is no more.
        while !matches!(self.some(&console).await, Ok(true)) {
            self.resumed += 1;
            tokio::time::sleep(AGAIN).await;
        }
        self
    }

    /// Reads until the stream closes; whether the operation has ended.
    async fn some(&mut self, console: &Console) -> anyhow::Result<bool> {
        let path = format!("/v1/operations/{}/events", self.operation);
        let mut request = console.request(Method::GET, &path);
        if let Some(last) = self.numbers.last() {
            request = request.header("Last-Event-ID", *last);
        }
        let mut response = request.send().await?.error_for_status()?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(true);
        }
        let mut buffer = String::new();
        while let Some(chunk) = response.chunk().await? {
            buffer.push_str(std::str::from_utf8(&chunk)?);
            while let Some(end) = buffer.find("\n\n") {
                let frame: String = buffer.drain(..end + 2).collect();
                self.note(&frame)?;
            }
        }
        Ok(["succeeded", "failed", "superseded"].contains(&self.state.as_str()))
    }

    fn note(&mut self, frame: &str) -> anyhow::Result<()> {
        let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        // What keeps the stream alive has no number.
        let (Some(number), Some(data)) = (field("id:"), field("data:")) else { return Ok(()) };
        self.numbers.push(number.parse().context("the number of an event")?);
        let data: Value = serde_json::from_str(data)?;
        if let Some(state) = data["state"].as_str() {
            state.clone_into(&mut self.state);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_with_a_number_counts() {
        let mut read = Read::default();
        for frame in [
            "retry: 1000\n\n",
            "id: 1\nevent: state\ndata: {\"state\":\"pending\"}\n\n",
            ": alive\n\n",
            "id: 2\nevent: state\ndata: {\"state\":\"running\"}\n\n",
            "id: 2\nevent: state\ndata: {\"state\":\"running\"}\n\n",
        ] {
            read.note(frame).unwrap();
        }
        assert_eq!((read.numbers, read.state.as_str()), (vec![1, 2, 2], "running"));
    }
}
