//! Where a question is put: one resource of one cluster, through kubectl. What is written here is taken off again.

use std::time::Duration;

use tokio::time::Instant;

use super::question::{Question, Resource};
use crate::error::Error;
use crate::noun::databases::kubectl::Kubectl;

/// How long a write may take. It is not broken off, because whether it was done would not be known.
const WRITE: Duration = Duration::from_secs(10);
/// How long it is tried to take a question off.
const TAKE_OFF: Duration = Duration::from_secs(15);
/// Between two of those tries.
const AGAIN: Duration = Duration::from_millis(500);
/// The kind, in full: another group may have one of the same short name.
const KIND: &str = "questdbs.crd.questdb.io";

/// A resource.
#[derive(Debug, Clone)]
pub(super) struct Site<'a> {
    pub(super) kubectl: Kubectl<'a>,
    pub(super) namespace: String,
    pub(super) resource: String,
}

impl Site<'_> {
    /// Reads it.
    pub(super) async fn read(&self, deadline: Instant) -> Result<Resource, Error> {
        let words = ["--namespace", &self.namespace, "get", KIND, &self.resource, "--output=json"];
        let text = self.kubectl.run(&words, None, deadline).await.map_err(|error| self.named(error))?;
        serde_json::from_str(&text).map_err(|error| Error::Kubectl {
            reason: format!("cannot understand what kubectl says of {self}: {error}"),
        })
    }

    /// Puts a question there; an error of conflict says that the resource was changed since it was read.
    pub(super) async fn put(&self, question: &mut Question, read: &Resource) -> Result<(), Error> {
        self.write("merge", question.put(read)).await
    }

    /// Takes a question off, unless it is not there any more. Gives up after a while, and says so.
    pub(super) async fn take_off(&self, question: &Question) -> Result<(), Error> {
        let deadline = Instant::now() + TAKE_OFF;
        loop {
            let failed = match self.try_to_take_off(question, deadline).await {
                Ok(()) | Err(Error::NotFound { .. }) => return Ok(()),
                Err(failed) => failed,
            };
            if Instant::now() + AGAIN >= deadline {
                return Err(failed);
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn try_to_take_off(&self, question: &Question, deadline: Instant) -> Result<(), Error> {
        let Err(failed) = self.write("json", question.take_off()).await else { return Ok(()) };
        let found = self.read(deadline).await?;
        if question.stands_in(&found) {
            return Err(failed);
        }
        if question.is_named_in(&found) {
            return self.write("json", question.take_name_off()).await;
        }
        Ok(())
    }

    /// That it is not there, in words of its own.
    fn named(&self, error: Error) -> Error {
        match error {
            Error::NotFound { hint, .. } => Error::NotFound { what: format!("the resource {self}"), hint },
            other => other,
        }
    }

    async fn write(&self, kind: &str, patch: String) -> Result<(), Error> {
        let kind = format!("--type={kind}");
        let words =
            ["--namespace", &self.namespace, "patch", KIND, &self.resource, &kind, "--patch-file=/dev/stdin"];
        self.kubectl.run(&words, Some(patch), Instant::now() + WRITE).await.map(drop)
    }
}

impl std::fmt::Display for Site<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.resource)
    }
}
