//! Where the API server stands. One that was restored from a copy of its store stands lower than it did, and a watch that waits
//! for what comes after a version that there is not yet any more stays silent for however long it takes to get there again. So
//! it is asked now and then, and all watches are begun anew, with a list, when it went back.

use std::sync::Mutex;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use kube::api::ListParams;
use kube::runtime::watcher::{self, Error, Event};
use kube::{Api, Client};
use resources::QuestDB;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::pauses;
use super::{Upkeep, namespaced};

/// Between two questions.
const PERIOD: Duration = Duration::from_secs(150);
/// Within which all watches are begun anew.
const SPREAD: Duration = Duration::from_secs(3);
/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(30);

/// The newest version that was seen, and how often all watches were begun anew.
#[derive(Debug)]
pub(crate) struct Standing {
    newest: Mutex<u64>,
    anew: watch::Sender<u64>,
}

impl Default for Standing {
    fn default() -> Self {
        Self { newest: Mutex::default(), anew: watch::Sender::new(0) }
    }
}

impl Standing {
    /// A version that the API server gave out. Text that is no number says nothing: such a server does not compare them.
    pub(super) fn note(&self, version: Option<&str>) {
        if let Some(version) = version.and_then(number) {
            let mut newest = self.lock();
            *newest = (*newest).max(version);
        }
    }

    /// The newest version that was seen by now.
    fn newest(&self) -> u64 {
        *self.lock()
    }

    /// Takes in where it stands by its own word, given after `before` was seen; whether it went back, by which all watches are
    /// begun anew. What was seen since it was asked is no older than its word and says nothing against it.
    fn stands_at(&self, version: u64, before: u64) -> bool {
        let back = version < before;
        let mut newest = self.lock();
        *newest = if back { version } else { version.max(*newest) };
        drop(newest);
        if back {
            self.anew.send_modify(|times| *times += 1);
        }
        back
    }

    /// Tells each time that watches are to be begun anew.
    pub(super) fn anew(&self) -> watch::Receiver<u64> {
        self.anew.subscribe()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, u64> {
        self.newest.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn number(version: &str) -> Option<u64> {
    version.parse().ok()
}

/// Asks now and then where the API server stands, until stopped.
pub(crate) fn ask_now_and_then(client: &Client, upkeep: &Upkeep) {
    let (client, upkeep) = (client.clone(), upkeep.clone());
    upkeep.tasks.clone().spawn("where the API server stands", async move {
        loop {
            // Spread, so that the replicas do not ask together.
            let pause = PERIOD.mul_f64(0.75 + runtime::backoff::random_share() / 2.0);
            if !runtime::backoff::sleep(pause, &upkeep.stop).await {
                return;
            }
            if upkeep.stop.run_until_cancelled(ask(&client, &upkeep)).await.is_none() {
                return;
            }
        }
    });
}

/// Asks in the first place that answers.
async fn ask(client: &Client, upkeep: &Upkeep) {
    for source in namespaced::<QuestDB>(client, &upkeep.scope) {
        let before = upkeep.watches.standing().newest();
        let one = ListParams::default().limit(1);
        let list = match tokio::time::timeout(LIMIT, source.api.list_metadata(&one)).await {
            Ok(Ok(list)) => list,
            // What does not answer is told by its watch.
            Ok(Err(error)) => {
                let error = runtime::telemetry::chain(&error);
                tracing::debug!(error, "the API server does not say where it stands");
                continue;
            }
            Err(_) => continue,
        };
        let Some(version) = list.metadata.resource_version.as_deref().and_then(number) else { return };
        if upkeep.watches.standing().stands_at(version, before) {
            tracing::warn!(
                version,
                "the API server stands at an older version than was seen, so it was restored: everything is listed again"
            );
        }
        return;
    }
}

/// A watch that pauses after each failure, and begins again with a list each time that `anew` tells.
pub(super) fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
    anew: watch::Receiver<u64>,
) -> impl Stream<Item = Result<Event<K>, Error>> + Send + 'static
where
    K: kube::Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let begin = move || pauses::paced(watcher::watcher(api.clone(), config.clone())).boxed();
    let first = begin();
    futures::stream::unfold((first, anew, begin), |(mut stream, mut anew, begin)| async move {
        loop {
            tokio::select! {
                biased;
                () = told(&mut anew) => {
                    // Not all kinds of all replicas at once.
                    tokio::time::sleep(SPREAD.mul_f64(runtime::backoff::random_share())).await;
                    stream = begin();
                }
                item = stream.next() => return item.map(|item| (item, (stream, anew, begin))),
            }
        }
    })
}

/// Never, once nobody can tell any more.
async fn told(anew: &mut watch::Receiver<u64>) {
    if anew.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests;
