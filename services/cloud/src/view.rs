//! One shared picture of everything a cluster owns in AWS, taken by three paged describes, so that a pass over a
//! thousand databases costs tens of requests instead of thousands.
//!
//! It is for noticing that something is to be done, and for finding what nobody asked for. It is *never* the ground on
//! which something is created or destroyed: for that, read live ([`crate::Lookup`], or the port itself), because both
//! this picture and EC2's own answers may lag behind.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::{Call, Cloud, Error, Instance, SecurityGroup, Select, Tags, Volume, key};

/// What a cluster owned at one moment.
#[derive(Debug)]
pub struct Snapshot {
    as_of: Instant,
    instances: HashMap<String, Vec<Instance>>,
    volumes: HashMap<String, Vec<Volume>>,
    security_groups: HashMap<String, Vec<SecurityGroup>>,
}

impl Snapshot {
    /// Sorts what was described by the database in its tags; what has none goes under the empty name.
    pub fn new(
        as_of: Instant,
        instances: Vec<Instance>,
        volumes: Vec<Volume>,
        security_groups: Vec<SecurityGroup>,
    ) -> Self {
        Self {
            as_of,
            instances: by_database(instances, |instance| &instance.tags),
            volumes: by_database(volumes, |volume| &volume.tags),
            security_groups: by_database(security_groups, |group| &group.tags),
        }
    }

    /// It tells nothing about changes made after this moment.
    pub fn as_of(&self) -> Instant {
        self.as_of
    }

    /// How old it is.
    pub fn age(&self) -> Duration {
        self.as_of.elapsed()
    }

    /// Instances of a database, terminated ones included.
    pub fn instances(&self, database: &str) -> &[Instance] {
        of(&self.instances, database)
    }

    /// Volumes of a database.
    pub fn volumes(&self, database: &str) -> &[Volume] {
        of(&self.volumes, database)
    }

    /// Security groups of a database.
    pub fn security_groups(&self, database: &str) -> &[SecurityGroup] {
        of(&self.security_groups, database)
    }

    /// Every database that owns anything. The empty name stands for things with the cluster's tag and no database's:
    /// an alarm, like any name that nobody knows; never a reason to delete.
    pub fn databases(&self) -> BTreeSet<&str> {
        let names = self.instances.keys().chain(self.volumes.keys()).chain(self.security_groups.keys());
        names.map(String::as_str).collect()
    }
}

fn by_database<T>(found: Vec<T>, tags: impl Fn(&T) -> &Tags) -> HashMap<String, Vec<T>> {
    let mut sorted: HashMap<String, Vec<T>> = HashMap::new();
    for one in found {
        let database = tags(&one).get(key::DATABASE).unwrap_or_default().to_owned();
        sorted.entry(database).or_default().push(one);
    }
    sorted
}

fn of<'a, T>(sorted: &'a HashMap<String, Vec<T>>, database: &str) -> &'a [T] {
    sorted.get(database).map_or(&[], Vec::as_slice)
}

/// Takes the picture when somebody needs it, once for all who need it at that time.
pub struct ClusterView {
    cloud: Arc<dyn Cloud>,
    cluster: String,
    deadline: Duration,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    snapshot: Option<Arc<Snapshot>>,
    failure: Option<(Instant, Error)>,
}

impl fmt::Debug for ClusterView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterView").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl ClusterView {
    /// `deadline` bounds one taking of the whole picture.
    pub fn new(cloud: Arc<dyn Cloud>, cluster: impl Into<String>, deadline: Duration) -> Self {
        Self { cloud, cluster: cluster.into(), deadline, last: Mutex::default() }
    }

    /// A picture at most this old.
    pub async fn at_most(&self, age: Duration) -> Result<Arc<Snapshot>, Error> {
        let now = Instant::now();
        self.taken_after(now.checked_sub(age).unwrap_or(now)).await
    }

    /// A picture begun after this moment: of one's own last write, say.
    pub async fn taken_after(&self, moment: Instant) -> Result<Arc<Snapshot>, Error> {
        let arrived = Instant::now();
        let mut last = self.last.lock().await;
        if let Some(snapshot) = &last.snapshot
            && snapshot.as_of >= moment
        {
            return Ok(Arc::clone(snapshot));
        }
        // Whoever waited while an attempt failed shares its failure: a thousand callers behind a broken endpoint must
        // not try one after the other.
        if let Some((failed, error)) = &last.failure
            && *failed >= arrived
        {
            return Err(error.clone());
        }
        let taken = self.take().await;
        match &taken {
            Ok(snapshot) => last.snapshot = Some(Arc::clone(snapshot)),
            Err(error) => last.failure = Some((Instant::now(), error.clone())),
        }
        taken
    }

    async fn take(&self) -> Result<Arc<Snapshot>, Error> {
        let as_of = Instant::now();
        let (instances, volumes, groups) =
            (Select::cluster(&self.cluster), Select::cluster(&self.cluster), Select::cluster(&self.cluster));
        let all = async {
            tokio::try_join!(
                self.cloud.describe_instances(&instances),
                self.cloud.describe_volumes(&volumes),
                self.cloud.describe_security_groups(&groups),
            )
        };
        let (instances, volumes, groups) =
            tokio::time::timeout(self.deadline, all).await.map_err(|_| Error::Timeout {
                call: Box::new(Call::new(
                    "DescribeCluster",
                    format!("no whole picture within {:?}", self.deadline),
                )),
            })??;
        Ok(Arc::new(Snapshot::new(as_of, instances, volumes, groups)))
    }
}
