//! Where a question is put: one resource of one cluster, through kubectl. What is written here is taken off again.

use std::time::Duration;

use domain::dry_run::{PATCH, QUESTION};
use tokio::time::Instant;

use super::question::{Question, Resource};
use crate::error::Error;
use crate::noun::databases::kubectl::Kubectl;

/// How long a write may take. It is not broken off, because whether it was done would not be known.
const WRITE: Duration = Duration::from_secs(10);
/// How long it is tried to take a question off.
pub(super) const TAKE_OFF: Duration = Duration::from_secs(15);
/// Between two of those tries.
const AGAIN: Duration = Duration::from_millis(500);
/// The kind, in full: another group may have one of the same short name.
const KIND: &str = "questdbs.crd.questdb.io";

/// Whether a question was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    /// It was.
    Surely,
    /// Nobody said what became of the write.
    Perhaps,
}

/// Where a question that is to be taken off was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// In its place; not any more.
    There,
    /// It does not stand.
    Nowhere,
}

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
        let words = ["--namespace", &self.namespace, "get", &self.object(), "--output=json"];
        let text = self.kubectl.run(&words, None, deadline).await.map_err(|error| self.named(error))?;
        serde_json::from_str(&text).map_err(|error| Error::Kubectl {
            reason: format!("cannot understand what kubectl says of {self}: {error}"),
        })
    }

    /// Puts a question there; an error of conflict says that the resource was changed since it was read.
    pub(super) async fn put(&self, question: &mut Question, read: &Resource) -> Result<(), Error> {
        self.write("merge", question.put(read)).await
    }

    /// Takes a question off, unless it is not there any more. Gives up after a while, and says so. One of which it is not
    /// known whether it was put may come later: it is looked for until then.
    pub(super) async fn take_off(
        &self,
        question: &Question,
        put: Put,
        within: Duration,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + within;
        loop {
            let failed = match self.try_to_take_off(question, deadline).await {
                Ok(Found::There) | Err(Error::NotFound { .. }) => return Ok(()),
                Ok(Found::Nowhere) if put == Put::Surely => return Ok(()),
                Ok(Found::Nowhere) => Error::Kubectl {
                    reason: "kubectl did not say what became of it, and it was not seen since".to_owned(),
                },
                Err(failed) => failed,
            };
            if Instant::now() + AGAIN >= deadline {
                return Err(failed);
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn try_to_take_off(&self, question: &Question, deadline: Instant) -> Result<Found, Error> {
        let Err(failed) = self.write("json", question.take_off()).await else { return Ok(Found::There) };
        let found = self.read(deadline).await?;
        if question.stands_in(&found) {
            return Err(failed);
        }
        if question.is_named_in(&found) {
            return self.write("json", question.take_name_off()).await.map(|()| Found::There);
        }
        Ok(Found::Nowhere)
    }

    /// The command that takes off whatever question stands there.
    pub(super) fn by_hand(&self) -> String {
        let [patch, question] = [PATCH, QUESTION].map(|annotation| format!("{annotation}-"));
        self.kubectl.typed(&["--namespace", &self.namespace, "annotate", &self.object(), &patch, &question])
    }

    /// Kind and name in one word: a name is never taken for a flag then.
    fn object(&self) -> String {
        format!("{KIND}/{}", self.resource)
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
        let object = self.object();
        let words = ["--namespace", &self.namespace, "patch", &object, &kind, "--patch-file=/dev/stdin"];
        self.kubectl.run(&words, Some(patch), Instant::now() + WRITE).await.map(drop)
    }
}

impl std::fmt::Display for Site<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.resource)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::{Path, PathBuf};

    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;

    /// Plays kubectl against a folder, which is its configuration.
    const KUBECTL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/noun/databases/diff/kubectl.sh");

    fn at(folder: &Path) -> Site<'_> {
        let kubectl = Kubectl { program: Path::new(KUBECTL), kubeconfig: Some(folder), context: None };
        Site { kubectl, namespace: "data".to_owned(), resource: "trades".to_owned() }
    }

    /// A resource that a question comes to stand in after so many looks, and can be taken off from then on.
    pub(in super::super) struct Played {
        pub(in super::super) folder: PathBuf,
    }

    impl Played {
        pub(in super::super) fn new(free: &Value, comes_after: u32) -> Self {
            let folder = std::env::temp_dir().join(format!("slipway-question-{}", Uuid::now_v7().simple()));
            std::fs::create_dir_all(&folder).unwrap();
            let annotations = json!({ PATCH: "{}", QUESTION: "ada" });
            let asked = json!({ "metadata": { "annotations": annotations } });
            let texts = [("asked", asked.to_string()), ("free", free.to_string())];
            for (name, text) in texts.into_iter().chain([("looks", comes_after.to_string())]) {
                std::fs::write(folder.join(name), text).unwrap();
            }
            Self { folder }
        }

        pub(in super::super) fn site(&self) -> Site<'_> {
            at(&self.folder)
        }
    }

    impl Drop for Played {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    /// Takes a question off that comes to stand after so many looks; how that ended, and whether it stands.
    async fn taken_off(put: Put, comes_after: u32) -> (Result<(), String>, bool) {
        let played = Played::new(&json!({ "metadata": {} }), comes_after);
        let question = Question::new(&json!({}), "ada".to_owned());
        let ended = played.site().take_off(&question, put, Duration::from_secs(4)).await;
        (ended.map_err(|error| error.explain()), played.folder.join("stands").exists())
    }

    #[tokio::test]
    async fn a_question_that_may_come_yet_is_looked_for() {
        assert_eq!(taken_off(Put::Surely, 0).await, (Ok(()), false));
        assert_eq!(taken_off(Put::Surely, 99).await, (Ok(()), false), "somebody took it off");
        assert_eq!(taken_off(Put::Perhaps, 2).await, (Ok(()), false));
        let (ended, _) = taken_off(Put::Perhaps, 99).await;
        assert!(ended.unwrap_err().contains("not seen"), "that it may stand must be said");
    }

    #[test]
    fn what_takes_it_off_by_hand_goes_to_the_same_cluster() {
        let site = at(Path::new("/home/ada/my kube"));
        let expected = format!(
            "KUBECONFIG='/home/ada/my kube' {KUBECTL} --namespace data annotate questdbs.crd.questdb.io/trades \
             crd.questdb.io/dry-run- crd.questdb.io/dry-run-question-"
        );
        assert_eq!(site.by_hand(), expected);
    }
}
