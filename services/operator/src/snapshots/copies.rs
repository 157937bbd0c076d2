//! Looking for the copies of a snapshot in EC2. A thousand that only copy share their looks: what they ask must not be
//! missing to the databases.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cloud::{Batcher, Batching, Cloud, Select, SnapshotId, TagFilter, VolumeSnapshot, key};
use futures::FutureExt as _;
use plan::snapshot;
use resources::QuestDBSnapshot;
use tokio::sync::Mutex;

use crate::error::Error;

/// How long a look that nothing hangs on waits for others to go with it.
const WINDOW: Duration = Duration::from_millis(500);

/// Between two lists of all copies, where EC2 gave none.
const AGAIN: Duration = Duration::from_mins(5);

/// For how long EC2 is heard before a release that is made without its answer too.
const BRIEFLY: Duration = Duration::from_secs(2);

/// What EC2 says. Who owes a release and is `overdue` does not wait for it.
pub(super) async fn hear<T>(
    overdue: bool,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    if !overdue {
        return answer.await;
    }
    let late = Error::Deadline { call: "look at the copies or the disk in EC2", limit: BRIEFLY };
    tokio::time::timeout(BRIEFLY, answer).await.unwrap_or(Err(late))
}

/// What is known of a copy that was seen whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum There {
    /// Whether EC2 has it.
    Known(bool),
    /// EC2 does not tell.
    Untold,
    /// All copies are being listed.
    UnderWay,
}

/// Describes by the identities of snapshots.
pub(super) struct Copies {
    cloud: Arc<dyn Cloud>,
    cluster: String,
    shared: Batcher<String, Vec<VolumeSnapshot>>,
    all: All,
}

/// The copies of the whole cluster, as they were listed last. Whoever finds that they are being listed comes again: as many as there are
/// snapshots would wait for one list, and nothing else would have its turn.
#[derive(Default)]
struct All(Mutex<Option<List>>);

struct List {
    asked: Instant,
    /// None where EC2 did not tell.
    ids: Option<HashSet<SnapshotId>>,
}

impl All {
    async fn lists(
        &self,
        id: &SnapshotId,
        age: Duration,
        list: impl Future<Output = Option<HashSet<SnapshotId>>>,
    ) -> There {
        let Ok(mut kept) = self.0.try_lock() else { return There::UnderWay };
        if kept.as_ref().is_none_or(|last| last.is_older(age)) {
            let asked = Instant::now();
            *kept = Some(List { asked, ids: list.await });
        }
        let ids = kept.as_ref().and_then(|last| last.ids.as_ref());
        ids.map_or(There::Untold, |ids| There::Known(ids.contains(id)))
    }
}

impl List {
    fn is_older(&self, age: Duration) -> bool {
        self.asked.elapsed() >= if self.ids.is_some() { age } else { age.min(AGAIN) }
    }
}

impl Copies {
    pub(super) fn new(cloud: &Arc<dyn Cloud>, cluster: &str) -> Self {
        let (asked, of) = (Arc::clone(cloud), cluster.to_owned());
        let batching = Batching { window: WINDOW, ..Batching::default() };
        let shared = Batcher::new("DescribeSnapshots", batching, move |identities: Vec<String>| {
            let (cloud, cluster) = (Arc::clone(&asked), of.clone());
            async move { describe(&*cloud, &cluster, &identities).await.map(by_identity) }.boxed()
        });
        Self { cloud: Arc::clone(cloud), cluster: cluster.to_owned(), shared, all: All::default() }
    }

    /// Whether EC2 has a copy that was seen whole. By a list of all, at most so old; one that is not on it may only have lost its tags,
    /// and is asked for by itself.
    pub(super) async fn has(&self, id: &SnapshotId, age: Duration) -> There {
        let listed = self.all.lists(id, age, self.list()).await;
        if listed != There::Known(false) {
            return listed;
        }
        match self.cloud.describe_snapshots(&Select::one(id.clone())).await {
            Ok(found) => There::Known(!found.is_empty()),
            Err(error) => {
                let text = runtime::telemetry::chain(&error);
                tracing::debug!(error = text, "EC2 does not say whether {id} is still there");
                There::Untold
            }
        }
    }

    /// All that the cluster has; nothing where EC2 does not tell.
    async fn list(&self) -> Option<HashSet<SnapshotId>> {
        let found = self.cloud.describe_snapshots(&Select::cluster(&self.cluster)).await;
        let found = found.inspect_err(|error| {
            tracing::warn!(error = runtime::telemetry::chain(error), "EC2 does not list the copies");
        });
        Some(found.ok()?.into_iter().map(|copy| copy.id).collect())
    }

    /// Those of one snapshot.
    pub(super) async fn of(&self, resource: &QuestDBSnapshot) -> Result<Vec<VolumeSnapshot>, Error> {
        let Some(identity) = snapshot::identity(resource) else { return Ok(Vec::new()) };
        let found = if snapshot::is_copying(resource) || snapshot::is_settled(resource) {
            self.shared.get(identity.to_owned()).await.map(Option::unwrap_or_default)
        } else {
            describe(&*self.cloud, &self.cluster, &[identity.to_owned()]).await
        };
        let mut found = found.map_err(Error::aws("look for snapshots"))?;
        // An object that was copied brings the identity of the first along, and has nothing of it.
        found.retain(|copy| snapshot::is_of(resource, &copy.tags));
        // Whatever became of its tags.
        if let Some(id) = snapshot::left_out(resource, &found) {
            let told = self.cloud.describe_snapshots(&Select::one(id)).await;
            found.extend(told.map_err(Error::aws("look for the snapshot by its id"))?);
        }
        Ok(found)
    }
}

async fn describe(
    cloud: &dyn Cloud,
    cluster: &str,
    identities: &[String],
) -> Result<Vec<VolumeSnapshot>, cloud::Error> {
    let identities: Vec<&str> = identities.iter().map(String::as_str).collect();
    let filter = TagFilter::cluster(cluster).and(key::SNAPSHOT, &identities);
    cloud.describe_snapshots(&Select::Tags(filter)).await
}

fn by_identity(found: Vec<VolumeSnapshot>) -> HashMap<String, Vec<VolumeSnapshot>> {
    let mut sorted: HashMap<String, Vec<VolumeSnapshot>> = HashMap::new();
    for copy in found {
        let identity = copy.tags.get(key::SNAPSHOT).unwrap_or_default().to_owned();
        sorted.entry(identity).or_default().push(copy);
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_waits_for_a_list_that_somebody_else_asked_for() {
        const LONG: Duration = Duration::from_mins(10);
        let (all, [one, other]) = (All::default(), ["snap-1", "snap-2"].map(SnapshotId::new));
        let (give, given) = tokio::sync::oneshot::channel::<Option<HashSet<SnapshotId>>>();
        let list = async { given.await.unwrap() };
        let mut first = std::pin::pin!(all.lists(&one, LONG, list));
        assert!(futures::poll!(&mut first).is_pending());
        let never = || std::future::pending();
        let second = all.lists(&other, LONG, never()).now_or_never();
        assert_eq!(second, Some(There::UnderWay));
        give.send(Some(HashSet::from([one.clone()]))).unwrap();
        assert_eq!(first.await, There::Known(true));
        // It is new enough for everybody.
        assert_eq!(all.lists(&other, LONG, never()).await, There::Known(false));
        let untold = all.lists(&one, Duration::ZERO, std::future::ready(None)).await;
        assert_eq!(untold, There::Untold);
    }

    #[tokio::test]
    async fn an_overdue_release_does_not_wait_for_ec2() {
        let silent = std::future::pending::<Result<(), Error>>();
        let heard = tokio::time::timeout(10 * BRIEFLY, hear(true, silent)).await.expect("in time");
        assert!(matches!(heard, Err(Error::Deadline { .. })), "{heard:?}");
        assert_eq!(hear(true, std::future::ready(Ok(7))).await.unwrap(), 7);
        assert!(hear(false, std::future::pending::<Result<(), Error>>()).now_or_never().is_none());
    }
}
