//! Looking for the copies of a snapshot in EC2. A thousand that only copy share their looks: what they ask must not be
//! missing to the databases.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cloud::{Batcher, Batching, Cloud, Select, TagFilter, VolumeSnapshot, key};
use futures::FutureExt as _;
use plan::snapshot;
use resources::QuestDBSnapshot;

use crate::error::Error;

/// How long a look that nothing hangs on waits for others to go with it.
const WINDOW: Duration = Duration::from_millis(500);

/// Describes by the identities of snapshots.
pub(super) struct Copies {
    cloud: Arc<dyn Cloud>,
    cluster: String,
    shared: Batcher<String, Vec<VolumeSnapshot>>,
}

impl Copies {
    pub(super) fn new(cloud: &Arc<dyn Cloud>, cluster: &str) -> Self {
        let (asked, of) = (Arc::clone(cloud), cluster.to_owned());
        let batching = Batching { window: WINDOW, ..Batching::default() };
        let shared = Batcher::new("DescribeSnapshots", batching, move |identities: Vec<String>| {
            let (cloud, cluster) = (Arc::clone(&asked), of.clone());
            async move { describe(&*cloud, &cluster, &identities).await.map(by_identity) }.boxed()
        });
        Self { cloud: Arc::clone(cloud), cluster: cluster.to_owned(), shared }
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
