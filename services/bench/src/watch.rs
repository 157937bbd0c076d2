//! A watch of the custom resources of one namespace, apart from the product's own: when each version came to be seen.

use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::TryStreamExt as _;
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::PartialObjectMeta;
use resources::{QuestDB, names};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Sightings that wait to be asked for.
const WAITING: usize = 4_096;
/// How long a change may take to be seen.
const PATIENCE: Duration = Duration::from_secs(20);

/// A version of a resource that was seen.
#[derive(Debug)]
pub(crate) struct Sighting {
    /// The database by the resource's label.
    pub(crate) database: Option<String>,
    /// Version of the resource.
    pub(crate) version: String,
    /// When.
    pub(crate) at: Instant,
}

/// A running watch; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    seen: mpsc::Receiver<Sighting>,
    task: JoinHandle<()>,
}

impl Watch {
    /// Sees everything that happens in the namespace from now on.
    pub(crate) async fn start(client: &kube::Client, namespace: &str) -> anyhow::Result<Self> {
        let api: Api<QuestDB> = Api::namespaced(client.clone(), namespace);
        let list = api.list_metadata(&ListParams::default().limit(1)).await.context("listing resources")?;
        let mut version = list.metadata.resource_version.context("a list without a version")?;
        let (tell, seen) = mpsc::channel(WAITING);
        let task = tokio::spawn(async move {
            // The server ends a watch after a while; what happens meanwhile is told by the next one.
            while !tell.is_closed() && follow(&api, &mut version, &tell).await.is_ok() {}
        });
        Ok(Self { seen, task })
    }

    /// The first sighting of this kind, among those not asked for yet.
    pub(crate) async fn find(
        &mut self,
        what: &str,
        is_it: impl Fn(&Sighting) -> bool,
    ) -> anyhow::Result<Sighting> {
        tokio::time::timeout(PATIENCE, self.search(is_it))
            .await
            .with_context(|| format!("{what} was not seen within {PATIENCE:?}"))?
    }

    async fn search(&mut self, is_it: impl Fn(&Sighting) -> bool) -> anyhow::Result<Sighting> {
        loop {
            let sighting = self.seen.recv().await.context("the watch broke")?;
            if is_it(&sighting) {
                return Ok(sighting);
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(
    api: &Api<QuestDB>,
    version: &mut String,
    tell: &mpsc::Sender<Sighting>,
) -> anyhow::Result<()> {
    let stream = api.watch_metadata(&WatchParams::default(), version).await?;
    let mut stream = pin!(stream);
    while let Some(event) = stream.try_next().await? {
        let at = Instant::now();
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
                let sighting = sighting(object, at);
                version.clone_from(&sighting.version);
                tell.send(sighting).await?;
            }
            WatchEvent::Bookmark(bookmark) => version.clone_from(&bookmark.metadata.resource_version),
            WatchEvent::Error(status) => anyhow::bail!("the watch was refused: {}", status.message),
        }
    }
    Ok(())
}

fn sighting(object: PartialObjectMeta<QuestDB>, at: Instant) -> Sighting {
    let labels = object.metadata.labels.unwrap_or_default();
    Sighting {
        database: labels.get(names::LABEL_DATABASE).cloned(),
        version: object.metadata.resource_version.unwrap_or_default(),
        at,
    }
}
