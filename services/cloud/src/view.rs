//! One shared picture of everything a cluster owns in AWS, taken by three paged describes, so that a pass over a
//! thousand databases costs tens of requests instead of thousands. And small ones of the few databases that are worked
//! on, many in a request, so that these need not wait for a picture of all of the others.
//!
//! It is for noticing that something is to be done, and for finding what nobody asked for. It is *never* the ground on
//! which something is created or destroyed: for that, read live ([`crate::Lookup`], or the port itself), because both
//! this picture and EC2's own answers may lag behind.

mod crowd;

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt as _;

use crate::{
    Batcher, Batching, Call, Cloud, Error, Instance, SecurityGroup, Select, TagFilter, Tags, Volume,
};
use crate::{batch::Fetched, key, shared::Shared};
use crowd::{Crowd, Look};

/// How long a small picture waits for others of the same moment.
const WINDOW: Duration = Duration::from_millis(50);
/// Between the beginnings of two whole pictures. Where many are worked on, and each has to see his own last write, one would be taken
/// right after the other for a few of them each, and all of it read anew.
const APART: Duration = Duration::from_millis(200);

/// What one database owned at one moment.
#[derive(Clone, Debug)]
pub struct Holdings {
    /// It tells nothing about changes made after this moment.
    pub as_of: Instant,
    /// Instances, terminated ones included.
    pub instances: Vec<Instance>,
    /// Volumes.
    pub volumes: Vec<Volume>,
    /// Security groups.
    pub security_groups: Vec<SecurityGroup>,
}

/// What a cluster owned at one moment.
#[derive(Debug)]
pub struct Snapshot {
    as_of: Instant,
    instances: HashMap<String, Vec<Instance>>,
    volumes: HashMap<String, Vec<Volume>>,
    security_groups: HashMap<String, Vec<SecurityGroup>>,
    /// How many things there are.
    size: usize,
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
            size: instances.len() + volumes.len() + security_groups.len(),
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

    /// Instances of all databases, terminated ones included.
    pub fn machines(&self) -> impl Iterator<Item = &Instance> {
        self.instances.values().flatten()
    }

    /// Security groups of all databases.
    pub fn firewalls(&self) -> impl Iterator<Item = &SecurityGroup> {
        self.security_groups.values().flatten()
    }

    /// Volumes of a database.
    pub fn volumes(&self, database: &str) -> &[Volume] {
        of(&self.volumes, database)
    }

    /// Security groups of a database.
    pub fn security_groups(&self, database: &str) -> &[SecurityGroup] {
        of(&self.security_groups, database)
    }

    /// Everything of a database.
    pub fn of(&self, database: &str) -> Arc<Holdings> {
        Arc::new(Holdings {
            as_of: self.as_of,
            instances: self.instances(database).to_vec(),
            volumes: self.volumes(database).to_vec(),
            security_groups: self.security_groups(database).to_vec(),
        })
    }

    /// Databases of which anything is another way than in an earlier picture. An answer may have another order.
    pub fn changed_since(&self, before: &Self) -> BTreeSet<String> {
        let changed = differing(&self.instances, &before.instances, |one| one.id.as_str())
            .chain(differing(&self.volumes, &before.volumes, |one| one.id.as_str()))
            .chain(differing(&self.security_groups, &before.security_groups, |one| one.id.as_str()));
        changed.map(str::to_owned).collect()
    }

    /// Every database that owns anything. The empty name stands for things with the cluster's tag and no database's:
    /// an alarm, like any name that nobody knows; never a reason to delete.
    pub fn databases(&self) -> BTreeSet<&str> {
        let names = self.instances.keys().chain(self.volumes.keys()).chain(self.security_groups.keys());
        names.map(String::as_str).collect()
    }
}

pub(crate) fn by_database<T>(found: Vec<T>, tags: impl Fn(&T) -> &Tags) -> HashMap<String, Vec<T>> {
    let mut sorted: HashMap<String, Vec<T>> = HashMap::new();
    for one in found {
        let database = tags(&one).get(key::DATABASE).unwrap_or_default().to_owned();
        match sorted.entry(database) {
            Entry::Occupied(mut known) => known.get_mut().push(one),
            // Room for one: nearly all have no more, and there are tens of thousands of them.
            Entry::Vacant(vacant) => {
                vacant.insert(vec![one]);
            }
        }
    }
    sorted
}

fn of<'a, T>(sorted: &'a HashMap<String, Vec<T>>, database: &str) -> &'a [T] {
    sorted.get(database).map_or(&[], Vec::as_slice)
}

/// Databases of which one picture shows other things than the other. Nearly always there are none, and every name is looked for
/// once in each.
fn differing<'a, T: PartialEq>(
    now: &'a HashMap<String, Vec<T>>,
    before: &'a HashMap<String, Vec<T>>,
    id: impl Fn(&T) -> &str,
) -> impl Iterator<Item = &'a str> {
    let changed = now.iter().filter(move |(database, things)| !same(things, of(before, database), &id));
    let gone = before.keys().filter(|database| !now.contains_key(*database));
    changed.map(|(database, _)| database).chain(gone).map(String::as_str)
}

/// Whether both are the same things, in whatever order.
fn same<T: PartialEq>(one: &[T], other: &[T], id: &impl Fn(&T) -> &str) -> bool {
    let twin = |wanted: &T| other.iter().find(|found| id(found) == id(wanted));
    one.len() == other.len() && one.iter().all(|wanted| twin(wanted) == Some(wanted))
}

/// Takes the picture when somebody needs it, once for all who need it at that time.
pub struct ClusterView {
    cloud: Arc<dyn Cloud>,
    cluster: String,
    deadline: Duration,
    shared: Shared<Snapshot>,
    /// When the last whole picture was begun, unless it failed.
    begun: Mutex<Option<Instant>>,
    small: Batcher<String, Arc<Holdings>>,
    /// The same for a crowd: as many go together as ask between two whole pictures, or as one question can be about.
    gathered: Batcher<String, Arc<Holdings>>,
    crowd: Crowd,
}

impl fmt::Debug for ClusterView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterView").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl ClusterView {
    /// `deadline` bounds one taking of the whole picture.
    pub fn new(cloud: Arc<dyn Cloud>, cluster: impl Into<String>, deadline: Duration) -> Self {
        let cluster: String = cluster.into();
        let small = batcher((&cloud, cluster.as_str()), WINDOW, deadline);
        let gathered = batcher((&cloud, cluster.as_str()), APART, deadline);
        let (shared, begun, crowd) = (Shared::default(), Mutex::default(), Crowd::default());
        Self { cloud, cluster, deadline, shared, begun, small, gathered, crowd }
    }

    /// What one database owns, seen after this moment: for those that are being worked on. Where many are, one picture
    /// of the whole cluster costs less than many small ones, and one a second does for all who need not see more.
    pub async fn of(&self, database: &str, moment: Instant) -> Result<Arc<Holdings>, Error> {
        if let Some(known) = self.crowd.recall(database, moment) {
            return Ok(known);
        }
        let last = self.shared.last();
        if let Some(snapshot) = last.as_ref().filter(|snapshot| snapshot.as_of >= moment) {
            return Ok(snapshot.of(database));
        }
        let (size, now) = (last.map_or(0, |snapshot| snapshot.size), Instant::now());
        let asked = self.crowd.join(database, now);
        let begun = *self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let together = match crowd::look((asked, size), begun, (moment, now)) {
            Look::Whole => return Ok(self.taken_after(moment).await?.of(database)),
            Look::Small => &self.small,
            Look::Gathered => &self.gathered,
        };
        let seen = together.get(database.to_owned()).await?;
        let seen = seen.ok_or_else(|| Error::Unavailable {
            call: Box::new(Call::new("DescribeDatabases", "a database was not answered for")),
        })?;
        self.crowd.remember(database, &seen);
        Ok(seen)
    }

    /// A picture at most this old.
    pub async fn at_most(&self, age: Duration) -> Result<Arc<Snapshot>, Error> {
        let now = Instant::now();
        self.taken_after(now.checked_sub(age).unwrap_or(now)).await
    }

    /// A picture begun after this moment: of one's own last write, say.
    pub async fn taken_after(&self, moment: Instant) -> Result<Arc<Snapshot>, Error> {
        let arrived = Instant::now();
        // Whoever waited while an attempt failed shares its failure: a thousand callers behind a broken endpoint must
        // not try one after the other.
        self.shared.get(|last| last.as_of >= moment, |failed| failed >= arrived, || self.take()).await
    }

    async fn take(&self) -> Result<Snapshot, Error> {
        let left = self.shared.last().map_or(Duration::ZERO, |last| APART.saturating_sub(last.age()));
        if !left.is_zero() {
            // Whoever asks meanwhile is shown by it, too.
            tokio::time::sleep(left).await;
        }
        self.begin(Some(Instant::now()));
        let taken = picture(&*self.cloud, &TagFilter::cluster(&self.cluster), self.deadline).await;
        if taken.is_err() {
            self.begin(None);
        }
        taken
    }

    fn begin(&self, at: Option<Instant>) {
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }
}

/// Takes pictures of databases that are asked for within a window.
fn batcher(
    (cloud, cluster): (&Arc<dyn Cloud>, &str),
    window: Duration,
    deadline: Duration,
) -> Batcher<String, Arc<Holdings>> {
    let (cloud, cluster) = (Arc::clone(cloud), cluster.to_owned());
    let batching = Batching { window, ..Batching::default() };
    Batcher::new("DescribeDatabases", batching, move |databases| {
        let (cloud, cluster) = (Arc::clone(&cloud), cluster.clone());
        async move { take_small(&*cloud, &cluster, databases, deadline).await }.boxed()
    })
}

/// A picture of everything with these tags.
async fn picture(cloud: &dyn Cloud, filter: &TagFilter, deadline: Duration) -> Result<Snapshot, Error> {
    let as_of = Instant::now();
    let (instances, volumes, groups) =
        (Select::Tags(filter.clone()), Select::Tags(filter.clone()), Select::Tags(filter.clone()));
    let (instances, volumes, groups) = in_order(
        deadline,
        cloud.describe_instances(&instances),
        cloud.describe_volumes(&volumes),
        cloud.describe_security_groups(&groups),
    )
    .await?;
    Ok(Snapshot::new(as_of, instances, volumes, groups))
}

/// All three answers, or why the first in this order failed that did, whichever failed first: a failure of all of them that is told by
/// another one each time would be news each time. That one did not answer in time goes behind any cause that another one names.
async fn in_order<A, B, C>(
    deadline: Duration,
    one: impl Future<Output = Result<A, Error>>,
    two: impl Future<Output = Result<B, Error>>,
    three: impl Future<Output = Result<C, Error>>,
) -> Result<(A, B, C), Error> {
    let all = tokio::join!(in_time(deadline, one), in_time(deadline, two), in_time(deadline, three));
    let failures = match all {
        (Ok(one), Ok(two), Ok(three)) => return Ok((one, two, three)),
        (one, two, three) => [one.err(), two.err(), three.err()],
    };
    let mut failures: Vec<Error> = failures.into_iter().flatten().collect();
    let names_cause = |error: &Error| !matches!(error, Error::Timeout { .. });
    let told = failures.iter().position(names_cause).unwrap_or(0);
    Err(failures.swap_remove(told))
}

/// An answer, if it comes within the time that all of them have.
async fn in_time<T>(deadline: Duration, look: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let late = |_| Error::Timeout {
        call: Box::new(Call::new("DescribeCluster", format!("no whole picture within {deadline:?}"))),
    };
    tokio::time::timeout(deadline, look).await.map_err(late)?
}

/// A picture of some databases, each told apart; also of those that own nothing.
async fn take_small(
    cloud: &dyn Cloud,
    cluster: &str,
    databases: Vec<String>,
    deadline: Duration,
) -> Fetched<String, Arc<Holdings>> {
    let names: Vec<&str> = databases.iter().map(String::as_str).collect();
    let filter = TagFilter::cluster(cluster).and(key::DATABASE, &names);
    let picture = picture(cloud, &filter, deadline).await?;
    Ok(databases.into_iter().map(|database| (database.clone(), picture.of(&database))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SecurityGroupId;

    fn picture(groups: &[(&str, &str, &str)]) -> Snapshot {
        let group = |(id, database, name): &(&str, &str, &str)| SecurityGroup {
            id: SecurityGroupId::new(*id),
            name: (*name).to_owned(),
            vpc: "vpc-1".to_owned(),
            description: String::new(),
            ingress: Vec::new(),
            tags: Tags::new().with(key::DATABASE, *database),
        };
        Snapshot::new(Instant::now(), Vec::new(), Vec::new(), groups.iter().map(group).collect())
    }

    async fn denied(operation: &'static str, turns: usize) -> Result<(), Error> {
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        Err(Error::Denied { call: Box::new(Call::new(operation, "no")) })
    }

    /// Nobody waits for it in these tests.
    const LONG: Duration = Duration::from_mins(5);

    #[tokio::test]
    async fn a_right_that_all_looks_lack_is_told_by_the_same_one_whichever_fails_first() {
        for turns in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [2, 0, 1]] {
            let [instances, volumes, groups] = turns;
            let found = in_order(
                LONG,
                denied("DescribeInstances", instances),
                denied("DescribeVolumes", volumes),
                denied("DescribeSecurityGroups", groups),
            );
            assert_eq!(found.await.unwrap_err().call().operation, "DescribeInstances", "{turns:?}");
        }
        let found = in_order(
            LONG,
            async { Ok(1) },
            denied("DescribeVolumes", 1),
            denied("DescribeSecurityGroups", 0),
        );
        assert_eq!(found.await.unwrap_err().call().operation, "DescribeVolumes");
    }

    #[tokio::test]
    async fn a_look_that_hangs_hides_no_cause_that_another_names() {
        let soon = Duration::from_millis(20);
        let hangs = std::future::pending::<Result<(), Error>>;
        let found = in_order(soon, hangs(), async { Ok(1) }, denied("DescribeSecurityGroups", 0)).await;
        assert!(matches!(found, Err(Error::Denied { .. })), "{found:?}");
        let found = in_order(soon, hangs(), denied("DescribeVolumes", 0), hangs()).await;
        assert_eq!(found.unwrap_err().call().operation, "DescribeVolumes");
        let found = in_order(soon, async { Ok(1) }, hangs(), hangs()).await;
        assert!(matches!(found, Err(Error::Timeout { .. })), "{found:?}");
    }

    #[test]
    fn what_is_another_way_than_before_is_found_whatever_the_order() {
        let before = picture(&[("sg-1", "a", "one"), ("sg-2", "a", "two"), ("sg-3", "b", "three")]);
        for (now, expected) in [
            (&[("sg-2", "a", "two"), ("sg-1", "a", "one"), ("sg-3", "b", "three")][..], &[][..]),
            (&[("sg-2", "a", "two"), ("sg-1", "a", "other"), ("sg-3", "b", "three")], &["a"]),
            (&[("sg-1", "a", "one"), ("sg-2", "a", "two")], &["b"]),
            (&[("sg-1", "a", "one"), ("sg-3", "b", "three")], &["a"]),
            (&[("sg-1", "a", "one"), ("sg-2", "b", "two"), ("sg-3", "b", "three")], &["a", "b"]),
            (&[("sg-1", "a", "one"), ("sg-2", "a", "two"), ("sg-4", "c", "four")], &["b", "c"]),
            (&[], &["a", "b"]),
        ] {
            let changed = picture(now).changed_since(&before);
            assert_eq!(changed.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{now:?}");
        }
    }
}
