//! States that the operator never sees, events that it never gets, and caches of which one is behind the others: a whole life
//! under each, while somebody takes the database's objects away and puts others there. There is never a machine, a disk, a firewall
//! or a record more than there should be, no launch is given up, and the end is the same.

mod hand;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cloud::key;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Resource, ResourceExt as _};
use resources::{Phase, names};
use testkit::telling::{Fate, Fates};
use testkit::{Random, Spawned, eventually, unique};
use tokio::task::JoinHandle;

use self::hand::Hand;
use super::crash::{OPERATIONS, Operation, judge, secret};
use super::edits::{self, OBJECTS, behind};
use super::others::Others;
use super::quiet::{asked, rounds};
use super::rig::PATIENCE;
use super::stale::launches;
use super::subject::Subject;
use crate::endpoint::serial;
use crate::front::{Front, Seen};

/// The seed with which a life is led as another one was, as far as the servers let it.
const SEED: &str = "SLIPWAY_WATCH_SEED";
/// The kinds of which the operator keeps a cache, by their names in paths.
const KINDS: [&str; 12] = [
    "questdbs",
    "configmaps",
    "secrets",
    "services",
    "statefulsets",
    "pods",
    "persistentvolumeclaims",
    "persistentvolumes",
    "nodes",
    "volumeattachments",
    "networkpolicies",
    "poddisruptionbudgets",
];
/// Those of them that lie in no namespace.
const OF_CLUSTER: [&str; 3] = ["persistentvolumes", "nodes", "volumeattachments"];
/// So many kinds are behind the others at a time.
const AT_ONCE: usize = 3;
/// For how long at least, and how many milliseconds more that may be.
const LEAST: Duration = Duration::from_secs(3);
const MORE: u64 = 2_000;
/// How often more an object is taken away where none has come and gone unseen: as often as makes that no accident on a machine that
/// looks late.
const MORE_TRIES: usize = 20;
/// Between two looks at what is left.
const BEAT: Duration = Duration::from_millis(200);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_that_nobody_saw_make_no_difference() {
    let fates = lead("merged", Fate::Merged).await;
    let all = sum(&fates);
    let fired = all.covered > 10 && all.unseen > 0 && all.replaced > 0;
    assert!(fired, "the fault did not fire: {fates:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_are_lost_before_a_watch_expires_make_no_difference() {
    let fates = lead("lost", Fate::Lost).await;
    let kinds = fates.values().filter(|fates| fates.lost > 0).count();
    assert!(sum(&fates).lost > 5 && kinds > 2, "the fault did not fire: {fates:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caches_that_disagree_for_seconds_make_no_difference() {
    let fates = lead("late", Fate::Late).await;
    let kinds = fates.values().filter(|fates| fates.late > 0).count();
    assert!(sum(&fates).late > 5 && kinds > 2, "the fault did not fire: {fates:#?}");
}

fn sum(fates: &BTreeMap<String, Fates>) -> Fates {
    fates.values().fold(Fates::default(), |sum, fates| sum.and(*fates))
}

/// Leads a whole life under a fault; what became of the events, by kind.
async fn lead(name: &str, fate: Fate) -> BTreeMap<String, Fates> {
    let mut random = Random::new(testkit::seed(SEED));
    let subject = Subject::new(&unique(name)).await;
    let _others = Others::of(&subject.rig);
    let (operator, front) = behind(&subject.rig).await;
    let (front, since) = (Arc::new(front), serial().await);
    let hand = Hand::of(&subject, random.next_number());
    let mut life = Life { subject, operator, front: Arc::clone(&front), hand, password: None, since };

    let (last, most) = OPERATIONS.split_last().unwrap();
    let faults = Faults::begin(&front, fate, random.next_number());
    for operation in most {
        life.carry_out(*operation).await;
    }
    for _ in 0..MORE_TRIES {
        // Which events meet is chance: an object is taken away twice more until one has come and gone unseen.
        if fate == Fate::Merged && sum(&own(&front)).unseen == 0 {
            life.hand.take_twice().await;
        }
    }
    faults.end().await;
    life.comes_to_rest().await;
    let faults = Faults::begin(&front, fate, random.next_number());
    life.carry_out(*last).await;
    faults.end().await;
    life.leaves_nothing().await;

    let fates = front.fates();
    for kind in fates.iter().filter(|(_, fates)| fates.lost > 0).map(|(kind, _)| format!("/{kind}")) {
        let is_its = |seen: &Seen| seen.is_list() && seen.about().ends_with(&kind);
        let again = async || (front.seen(is_its).len() > 1).then_some(());
        eventually(PATIENCE, &format!("{kind} to be listed again"), again).await;
    }
    println!("{fates:?}");
    own(&front)
}

/// What became of the events of its own namespace, by kind: what lies in none is other tests' as well.
fn own(front: &Front) -> BTreeMap<String, Fates> {
    let mut fates = front.fates();
    fates.retain(|kind, _| !OF_CLUSTER.contains(&kind.as_str()));
    fates
}

/// A database, its operator behind a front, and who has a hand in it.
struct Life {
    subject: Subject,
    operator: Spawned,
    front: Arc<Front>,
    hand: Hand,
    password: Option<ByteString>,
    /// The number of the last call to AWS before it began.
    since: u64,
}

impl Life {
    /// Carries one operation out, while somebody meddles with it; whatever came of that, there is one of each.
    async fn carry_out(&mut self, (word, change, end): Operation) {
        self.subject.wish(change).await;
        for _ in 0..2 {
            self.hand.replace(end == Phase::Ready).await;
        }
        self.subject.carried_out(end).await;
        judge(&self.subject, end, word).await;
        let drawn = secret(&self.subject).await;
        assert!(
            end == Phase::Deleted || self.password.is_none() || drawn == self.password,
            "{word}: another password"
        );
        self.password = drawn;
        if end == Phase::Ready {
            self.hand.take_twice().await;
        }
    }

    /// Once everything is told again, all is as intended, and nothing is asked for any more.
    async fn comes_to_rest(&self) {
        self.subject.carried_out(Phase::Ready).await;
        eventually(PATIENCE, "nothing to be asked for", async || {
            let before = asked(&self.front).len();
            rounds(&self.operator, 3.0).await;
            (asked(&self.front).len() == before).then_some(())
        })
        .await;
        judge(&self.subject, Phase::Ready, "at rest").await;
        self.hand.is_undone().await;

        // One machine for the create, one for the move, one for the resume. EC2 itself forgets those that have ended.
        let rig = &self.subject.rig;
        let launches = launches(rig, self.since).await;
        let machines = launches.iter().filter(|action| *action == "RunInstances").count();
        assert_eq!(machines, 3, "{launches:?}");
        let resource = rig.as_admin().get(&self.subject.name).await.unwrap();
        assert_eq!(resource.annotations().get(names::GENERATION).map(String::as_str), Some("3"));
        let serving = self.subject.machines().await.remove(0);
        assert_eq!(serving.tags.get(key::GENERATION), Some("3"));
        let status = resource.status.unwrap();
        assert_eq!(status.observed_generation, resource.metadata.generation);
    }

    /// After its end nothing of it is left, in Kubernetes too, and no pass of the operator panicked.
    async fn leaves_nothing(&self) {
        let begun = Instant::now();
        let mut left = left(&self.subject).await;
        while !left.is_empty() && begun.elapsed() < PATIENCE {
            tokio::time::sleep(BEAT).await;
            left = self::left(&self.subject).await;
        }
        assert_eq!(left, Vec::<String>::new(), "left behind");
        judge(&self.subject, Phase::Deleted, "in the end").await;
        let panics = self.operator.metric("controller_runtime_reconcile_panics_total", "").await;
        assert!(panics < 1.0, "{panics} passes panicked");
        self.subject.rig.end().await;
    }
}

/// What there is of a database in Kubernetes beside its resource and its snapshots.
pub(super) async fn left(subject: &Subject) -> Vec<String> {
    let Subject { rig, name, database, .. } = subject;
    let mut left = Vec::new();
    for object in OBJECTS {
        let (api, name) = (edits::api(rig, object), edits::name(name, object.3));
        let found: Option<DynamicObject> = api.get_opt(&name).await.unwrap();
        left.extend(found.map(|_| format!("{} {name}", object.2)));
    }
    let ours = ListParams::default().labels(&format!("{}={database}", names::LABEL_DATABASE));
    left.extend(named::<Node>(Api::all(rig.admin.clone()), &ours).await);
    left.extend(named::<PersistentVolume>(Api::all(rig.admin.clone()), &ours).await);
    left.extend(named(subject.pods(), &ours).await);
    left
}

async fn named<K>(api: Api<K>, of: &ListParams) -> Vec<String>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let found = api.list_metadata(of).await.unwrap();
    found.items.iter().map(|found| format!("{} {}", K::kind(&()), found.name_any())).collect()
}

/// A fault that goes on until it is ended.
struct Faults {
    front: Arc<Front>,
    turns: JoinHandle<()>,
}

impl Faults {
    fn begin(front: &Arc<Front>, fate: Fate, seed: u64) -> Self {
        let turns = tokio::spawn(turns(Arc::clone(front), fate, Random::new(seed)));
        Self { front: Arc::clone(front), turns }
    }

    /// Everything is told again, what was held back first.
    async fn end(self) {
        self.turns.abort();
        // Or it would begin another turn.
        let _ = self.turns.await;
        self.front.set_fate(Fate::Told, &[], 0);
    }
}

/// What is merged is so of all kinds. What is lost or late is so of some at a time, and the others tell what they know.
async fn turns(front: Arc<Front>, fate: Fate, mut random: Random) {
    let size = if fate == Fate::Merged { KINDS.len() } else { AT_ONCE };
    loop {
        let mut kinds = KINDS;
        random.shuffle(&mut kinds);
        for kinds in kinds.chunks(size) {
            front.set_fate(fate, kinds, random.next_number());
            testkit::lasting(LEAST + Duration::from_millis(random.below(MORE))).await;
        }
    }
}
