//! Live reads of single resources for many callers at once: each is fresh, and a thousand of them cost ten requests.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use futures::FutureExt as _;

use crate::{
    Batcher, Batching, Cloud, Error, Instance, InstanceId, Role, Select, TagFilter, Volume, VolumeId,
    VolumeModification,
};
use crate::{batch::Fetched, key, view::by_database};

/// Batched describes by id, and by the database that something is of. What is not found may merely not be visible yet.
#[derive(Debug)]
pub struct Lookup {
    instances: Batcher<InstanceId, Instance>,
    volumes: Batcher<VolumeId, Volume>,
    modifications: Batcher<VolumeId, VolumeModification>,
    /// By database.
    machines: Batcher<String, Vec<Instance>>,
    /// By database.
    disks: Batcher<String, Vec<Volume>>,
}

impl Lookup {
    /// Over this account and region, and over the databases of a cluster.
    pub fn new(cloud: &Arc<dyn Cloud>, cluster: &str, batching: Batching) -> Self {
        let (instances, volumes, modifications) = (Arc::clone(cloud), Arc::clone(cloud), Arc::clone(cloud));
        Self {
            instances: Batcher::new("DescribeInstances", batching, move |ids| {
                let cloud = Arc::clone(&instances);
                async move {
                    let found = cloud.describe_instances(&Select::Ids(ids)).await;
                    by(found, |instance| instance.id.clone())
                }
                .boxed()
            }),
            volumes: Batcher::new("DescribeVolumes", batching, move |ids| {
                let cloud = Arc::clone(&volumes);
                async move { by(cloud.describe_volumes(&Select::Ids(ids)).await, |volume| volume.id.clone()) }
                    .boxed()
            }),
            modifications: Batcher::new("DescribeVolumesModifications", batching, move |ids| {
                let cloud = Arc::clone(&modifications);
                async move {
                    let found = cloud.describe_volume_modifications(&ids).await;
                    by(found, |modification| modification.volume.clone())
                }
                .boxed()
            }),
            machines: machines(cloud, TagFilter::cluster(cluster), batching),
            disks: disks(cloud, TagFilter::cluster(cluster).role(Role::Volume), batching),
        }
    }

    /// One instance.
    pub async fn instance(&self, id: &InstanceId) -> Result<Option<Instance>, Error> {
        self.instances.get(id.clone()).await
    }

    /// One volume.
    pub async fn volume(&self, id: &VolumeId) -> Result<Option<Volume>, Error> {
        self.volumes.get(id.clone()).await
    }

    /// The latest modification of one volume, if it was ever modified.
    pub async fn volume_modification(&self, id: &VolumeId) -> Result<Option<VolumeModification>, Error> {
        self.modifications.get(id.clone()).await
    }

    /// Instances of a database, terminated ones included.
    pub async fn machines_of(&self, database: &str) -> Result<Vec<Instance>, Error> {
        Ok(self.machines.get(database.to_owned()).await?.unwrap_or_default())
    }

    /// Volumes that are the disk of a database, by their tags.
    pub async fn disks_of(&self, database: &str) -> Result<Vec<Volume>, Error> {
        Ok(self.disks.get(database.to_owned()).await?.unwrap_or_default())
    }
}

fn machines(cloud: &Arc<dyn Cloud>, all: TagFilter, batching: Batching) -> Batcher<String, Vec<Instance>> {
    let cloud = Arc::clone(cloud);
    Batcher::new("DescribeInstances", batching, move |databases: Vec<String>| {
        let (cloud, select) = (Arc::clone(&cloud), Select::Tags(of_these(&all, &databases)));
        async move {
            let found = cloud.describe_instances(&select).await;
            found.map(|found| by_database(found, |instance| &instance.tags))
        }
        .boxed()
    })
}

fn disks(cloud: &Arc<dyn Cloud>, all: TagFilter, batching: Batching) -> Batcher<String, Vec<Volume>> {
    let cloud = Arc::clone(cloud);
    Batcher::new("DescribeVolumes", batching, move |databases: Vec<String>| {
        let (cloud, select) = (Arc::clone(&cloud), Select::Tags(of_these(&all, &databases)));
        async move {
            let found = cloud.describe_volumes(&select).await;
            found.map(|found| by_database(found, |volume| &volume.tags))
        }
        .boxed()
    })
}

/// What of all is of one of these databases.
fn of_these(all: &TagFilter, databases: &[String]) -> TagFilter {
    let databases: Vec<&str> = databases.iter().map(String::as_str).collect();
    all.clone().and(key::DATABASE, &databases)
}

fn by<K: Eq + Hash, V>(found: Result<Vec<V>, Error>, key: impl Fn(&V) -> K) -> Fetched<K, V> {
    Ok(found?.into_iter().map(|value| (key(&value), value)).collect::<HashMap<_, _>>())
}
