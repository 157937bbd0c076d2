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

/// Describes by the identities of snapshots.
pub(super) struct Copies {
    cloud: Arc<dyn Cloud>,
    cluster: String,
    shared: Batcher<String, Vec<VolumeSnapshot>>,
    all: Mutex<Option<All>>,
}

/// The copies of the whole cluster.
struct All {
    asked: Instant,
    /// None where EC2 did not tell.
    ids: Option<HashSet<SnapshotId>>,
}

impl All {
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
        Self { cloud: Arc::clone(cloud), cluster: cluster.to_owned(), shared, all: Mutex::default() }
    }

    /// Whether EC2 has a copy that was seen whole; nothing while it does not tell. By a list of all, at most so old; one that is not
    /// on it may only have lost its tags, and is asked for by itself.
    pub(super) async fn has(&self, id: &SnapshotId, age: Duration) -> Option<bool> {
        if self.lists(id, age).await? {
            return Some(true);
        }
        match self.cloud.describe_snapshots(&Select::one(id.clone())).await {
            Ok(found) => Some(!found.is_empty()),
            Err(error) => {
                let text = runtime::telemetry::chain(&error);
                tracing::debug!(error = text, "EC2 does not say whether {id} is still there");
                None
            }
        }
    }

    async fn lists(&self, id: &SnapshotId, age: Duration) -> Option<bool> {
        let mut all = self.all.lock().await;
        if all.as_ref().is_none_or(|all| all.is_older(age)) {
            let asked = Instant::now();
            let found = self.cloud.describe_snapshots(&Select::cluster(&self.cluster)).await;
            let found = found.inspect_err(|error| {
                tracing::warn!(error = runtime::telemetry::chain(error), "EC2 does not list the copies");
            });
            let ids = found.ok().map(|found| found.into_iter().map(|copy| copy.id).collect());
            *all = Some(All { asked, ids });
        }
        all.as_ref()?.ids.as_ref().map(|ids| ids.contains(id))
    }

    /// Those of one snapshot.
    pub(super) async fn of(&self, resource: &QuestDBSnapshot) -> Result<Vec<VolumeSnapshot>, Error> {
        let Some(identity) = snapshot::identity(resource) else { return Ok(Vec::new()) };
        let found = if snapshot::is_copying(resource) {
            self.shared.get(identity.to_owned()).await.map(Option::unwrap_or_default)
        } else {
            describe(&*self.cloud, &self.cluster, &[identity.to_owned()]).await
        };
        let mut found = found.map_err(Error::aws("look for snapshots"))?;
        // An object that was copied brings the identity of the first along, and has nothing of it.
        found.retain(|copy| snapshot::is_of(resource, &copy.tags));
        // One that was told of as whole is known by its id, whatever became of its tags. Nothing is destroyed by that alone.
        if let Some((id, _)) = snapshot::whole_copy(resource)
            && resource.metadata.deletion_timestamp.is_none()
            && found.iter().all(|copy| copy.id != id)
        {
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
