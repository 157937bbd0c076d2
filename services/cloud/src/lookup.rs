//! Live reads of single resources for many callers at once: each is fresh, and a thousand of them cost ten requests.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use futures::FutureExt as _;

use crate::{Batcher, Batching, Cloud, Error, Instance, InstanceId, Select, Volume, VolumeId};
use crate::{VolumeModification, batch::Fetched};

/// Batched describes by id. What is not found may merely not be visible yet.
#[derive(Debug)]
pub struct Lookup {
    instances: Batcher<InstanceId, Instance>,
    volumes: Batcher<VolumeId, Volume>,
    modifications: Batcher<VolumeId, VolumeModification>,
}

impl Lookup {
    /// Over this account and region.
    pub fn new(cloud: &Arc<dyn Cloud>, batching: Batching) -> Self {
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
}

fn by<K: Eq + Hash, V>(found: Result<Vec<V>, Error>, key: impl Fn(&V) -> K) -> Fetched<K, V> {
    Ok(found?.into_iter().map(|value| (key(&value), value)).collect::<HashMap<_, _>>())
}
