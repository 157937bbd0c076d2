//! The clusters: which there are, how to reach each, and how each is.
//!
//! The registry is read from Postgres on a period and kept while Postgres is away; credentials are files that are read
//! again on a period. *Invariant:* what one cluster does to us stays with that cluster: each has its own client, bound
//! and breaker, no other one waits for its credentials, and one whose registration cannot be read is out of reach alone. Nothing
//! here writes to a cluster.

pub mod breaker;
pub mod client;
pub mod credentials;
pub mod guard;
mod member;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use domain::{Cluster, ClusterId};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use runtime::CancellationToken;
use store::{Store, in_time};

pub use member::Member;

use crate::metrics::Metrics;

/// How often the registry and the credentials are read.
const REFRESH: Duration = Duration::from_secs(5);
/// How long a reading of the registry waits for the credentials of clusters that are new in it.
const FIRST: Duration = Duration::from_secs(3);
/// Least time between two readings of the registry for clusters that are not known.
const APART: Duration = Duration::from_secs(1);
/// How often each cluster is asked whether it answers.
const PROBE: Duration = Duration::from_secs(5);
/// Least time between two questions.
const LEAST: Duration = Duration::from_millis(100);

/// All registered clusters.
#[derive(Debug)]
pub struct Fleet {
    store: Store,
    settings: Settings,
    health: runtime::Health,
    metrics: Metrics,
    registry: RwLock<Arc<Registry>>,
    /// One refresh at a time; what it says is what came of the last one.
    refreshing: tokio::sync::Mutex<Option<Reading>>,
}

/// A reading of the registry that ended.
#[derive(Debug)]
struct Reading {
    began: Instant,
    /// Why it failed, if it did.
    result: Result<(), String>,
}

/// What the registry says.
#[derive(Debug, Default)]
struct Registry {
    members: HashMap<ClusterId, Arc<Member>>,
    /// Clusters whose registration cannot be read, and why: a newer program may have written it, and know what this one would
    /// do wrong there.
    unreadable: BTreeMap<String, String>,
}

/// How clusters are reached.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the credentials are.
    pub credentials_dir: PathBuf,
    /// How long one call may take.
    pub call_timeout: Duration,
    /// How many calls to one cluster may be under way at once.
    pub cluster_concurrency: usize,
}

/// What is known of a cluster by its name.
#[derive(Debug, Clone)]
pub enum Found {
    /// It is registered.
    Member(Arc<Member>),
    /// It is registered, in a way that cannot be read.
    Unreadable(String),
    /// The registry does not have it.
    Unknown,
    /// The registry cannot be read, so nobody knows.
    NotKnown(String),
}

impl Fleet {
    /// A fleet that knows nothing yet.
    pub fn new(store: Store, settings: Settings, health: runtime::Health, metrics: Metrics) -> Arc<Self> {
        Arc::new(Self {
            store,
            settings,
            health,
            metrics,
            registry: RwLock::default(),
            refreshing: tokio::sync::Mutex::default(),
        })
    }

    /// Looks a cluster up; one that is not known may have been registered just now, so the registry is asked again, at
    /// most once a second for all who ask.
    ///
    /// *Invariant:* a cluster is called unknown only by a reading that began after the question: an older one cannot know of
    /// a registration that went before the instruction.
    pub async fn find(&self, id: &ClusterId) -> Found {
        let asked = Instant::now();
        if let Some(found) = self.known(id) {
            return found;
        }
        let refreshed = self.refresh(Some(asked)).await;
        match (self.known(id), refreshed) {
            (Some(found), _) => found,
            (None, Ok(())) => Found::Unknown,
            (None, Err(reason)) => Found::NotKnown(reason),
        }
    }

    /// All clusters.
    pub fn members(&self) -> Vec<Arc<Member>> {
        self.registry().members.values().cloned().collect()
    }

    /// Keeps registry and credentials fresh until the program stops; `joined` is told of each cluster that comes, with a
    /// token that is cancelled when it goes or its registration changes.
    pub async fn keep(self: Arc<Self>, stop: CancellationToken, joined: impl Fn(Arc<Member>) + Send + Sync) {
        let mut told: Vec<Arc<Member>> = Vec::new();
        let mut rereads = FuturesUnordered::new();
        loop {
            if let Err(reason) = self.refresh(None).await {
                tracing::debug!(reason, "the registry of clusters was not read");
            }
            let members = self.members();
            for member in members.iter().filter(|member| !told.iter().any(|known| Arc::ptr_eq(known, member)))
            {
                joined(Arc::clone(member));
            }
            rereads.extend(members.iter().map(|member| reread(Arc::clone(member), self.settings.clone())));
            told = members;
            // As they come: neither the others nor the registry wait for one that takes long.
            let goes_on = tokio::select! {
                goes_on = runtime::backoff::sleep(REFRESH, &stop) => goes_on,
                () = go_on_with(&mut rereads) => true,
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Asks a cluster on a period whether it answers, which also closes its breaker, until it leaves the fleet.
    pub async fn probe(self: Arc<Self>, member: Arc<Member>, stop: CancellationToken) {
        let name = component(member.cluster.id.as_str());
        let component = self.health.readiness.informative(name.as_str());
        let mut phases = member.guard.watch();
        loop {
            phases.mark_unchanged();
            // At a stop no answer is waited for, which may take longer than the program has.
            let asked = stop.run_until_cancelled(member.probe(self.settings.call_timeout)).await;
            let Some(answer) = asked else { return };
            self.metrics.cluster_up(&member.cluster, answer.is_ok());
            match answer {
                Ok(()) => component.set_ok(),
                Err(reason) => component.set_failing(reason),
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = member.left.cancelled() => break,
                () = until_probe(&member, &mut phases) => {}
                // Whoever looks is to see at once what is wrong.
                () = member.trouble.notified() => {}
            }
        }
        // Its successor of the same name, if there is one, has registered anew by its first probe.
        let found = self.known(&member.cluster.id);
        if !matches!(found, Some(Found::Member(_))) {
            self.metrics.forget_cluster(&member.cluster.id);
        }
        if found.is_none() {
            self.health.readiness.remove(&name);
        }
    }

    fn known(&self, id: &ClusterId) -> Option<Found> {
        let registry = self.registry();
        let member = registry.members.get(id).map(|member| Found::Member(Arc::clone(member)));
        member.or_else(|| registry.unreadable.get(id.as_str()).cloned().map(Found::Unreadable))
    }

    fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the registry, unless somebody else began to after `asked`. Those who ask share one reading in a second, and what came of
    /// it, that it failed too.
    async fn refresh(&self, asked: Option<Instant>) -> Result<(), String> {
        let mut last = self.refreshing.lock().await;
        if let (Some(asked), Some(last)) = (asked, &*last) {
            if last.began >= asked {
                return last.result.clone();
            }
            tokio::time::sleep(APART.saturating_sub(last.began.elapsed())).await;
        }
        let began = Instant::now();
        let result = match in_time(self.store.clusters()).await {
            Ok(registry) => {
                self.take_in(registry).await;
                Ok(())
            }
            Err(error) => Err(runtime::telemetry::chain(&error)),
        };
        // Not before everybody can find what was read: this may be given up at any moment until then.
        *last = Some(Reading { began, result: result.clone() });
        result
    }

    /// What was read is what is known from now on.
    async fn take_in(&self, read: store::Registry) {
        let store::Registry { clusters, unreadable } = read;
        let mut fresh = Vec::new();
        let before = self.registry();
        let reason = |one: store::UnreadableCluster| (one.id, runtime::telemetry::chain(&one.error));
        let mut registry =
            Registry { unreadable: unreadable.into_iter().map(reason).collect(), ..Registry::default() };
        for record in clusters {
            let id = record.cluster.id.clone();
            let known = before.members.get(&id);
            let same = known.filter(|member| member.cluster == record.cluster);
            let member = same.cloned().unwrap_or_else(|| {
                let member = Arc::new(self.member(known, record.cluster));
                fresh.push(Arc::clone(&member));
                member
            });
            registry.members.insert(id, member);
        }
        for member in &fresh {
            tracing::info!(cluster.name = %member.cluster.id, cluster.state = %member.cluster.state, "cluster registered");
        }
        // Each goes on by itself: the others are not to wait for one that takes longer, nor is that one to begin anew.
        let first =
            fresh.iter().map(|member| tokio::spawn(reread(Arc::clone(member), self.settings.clone())));
        let _ = runtime::deadline(FIRST, "the first credentials", futures::future::join_all(first)).await;
        let registry = Arc::new(registry);
        // First of all: those who leave look at what is there now.
        *self.registry.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&registry);
        for (id, old) in &before.members {
            let now = registry.members.get(id);
            if !now.is_some_and(|member| Arc::ptr_eq(member, old)) {
                old.left.cancel();
            }
            if !now.is_some_and(|member| member.is_same_server(old)) {
                old.gone.cancel();
            }
        }
        self.tell_unreadable(&before, &registry);
    }

    fn member(&self, known: Option<&Arc<Member>>, cluster: Cluster) -> Member {
        match known {
            Some(known) if known.cluster.credentials == cluster.credentials => known.registered_anew(cluster),
            _ => Member::new(cluster, self.settings.cluster_concurrency),
        }
    }

    /// Says of which clusters the registration cannot be read: once aloud, and all the time to whoever looks.
    fn tell_unreadable(&self, before: &Registry, now: &Registry) {
        for (name, reason) in &now.unreadable {
            if before.unreadable.get(name) != Some(reason) {
                tracing::error!(
                    cluster.name = name,
                    reason,
                    "the registration of a cluster cannot be read: what is meant for it waits"
                );
            }
            self.health.readiness.informative(component(name)).set_failing(reason.clone());
        }
        let is_registered = |name: &str| {
            now.unreadable.contains_key(name) || now.members.keys().any(|id| id.as_str() == name)
        };
        for name in before.unreadable.keys().filter(|name| !is_registered(name)) {
            self.health.readiness.remove(&component(name));
        }
        self.metrics.unreadable(now.unreadable.len());
    }
}

/// Goes on with what was begun, and never ends.
async fn go_on_with(begun: &mut FuturesUnordered<impl Future<Output = ()>>) {
    while begun.next().await.is_some() {}
    std::future::pending::<()>().await;
}

async fn reread(member: Arc<Member>, settings: Settings) {
    member.reread_credentials(&settings).await;
}

/// What health says of a cluster stands under this name.
fn component(cluster: &str) -> String {
    format!("cluster/{cluster}")
}

/// Waits until a probe is due: on a period, and as soon as one could close an open breaker.
async fn until_probe(member: &Member, phases: &mut tokio::sync::watch::Receiver<breaker::Phase>) {
    let usual = Instant::now() + PROBE.mul_f64(0.8 + 0.4 * runtime::backoff::random_share());
    loop {
        let usual = usual.saturating_duration_since(Instant::now());
        let due = member.guard.probe_due().unwrap_or(usual).max(LEAST);
        tokio::select! {
            () = tokio::time::sleep(due) => return,
            // The sender lives in the member.
            _ = phases.changed() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::ClusterState;
    use runtime::health::State;

    use super::breaker::Phase;
    use super::*;

    /// Without Postgres, where nothing listens.
    fn fleet() -> Arc<Fleet> {
        with_credentials(std::env::temp_dir())
    }

    fn with_credentials(credentials_dir: PathBuf) -> Arc<Fleet> {
        let patience = store::Settings { acquire: Duration::from_millis(200), ..store::Settings::default() };
        let store = Store::connect("postgres://nobody@127.0.0.1:1/nothing", &patience).unwrap();
        let call_timeout = Duration::from_secs(20);
        let settings = Settings { credentials_dir, call_timeout, cluster_concurrency: 1 };
        let metrics = Metrics::new(&runtime::Metrics::new(runtime::service!("test")));
        Fleet::new(store, settings, runtime::Health::new(), metrics)
    }

    fn kubeconfig(server: &str, user: &serde_json::Value) -> String {
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": {"server": server}}],
            "users": [{"name": "a", "user": user}],
        });
        config.to_string()
    }

    fn registry(state: ClusterState, credentials: &str) -> store::Registry {
        let cluster = crate::apply::tests::cluster();
        let cluster = Cluster { state, credentials: credentials.to_owned(), ..cluster };
        let at = jiff::Timestamp::UNIX_EPOCH;
        let record = store::ClusterRecord { cluster, created_at: at, updated_at: at };
        store::Registry { clusters: vec![record], unreadable: Vec::new() }
    }

    /// Who closes a sick cluster for new databases does not have it asked as if it were well.
    #[tokio::test]
    async fn a_cluster_that_is_registered_otherwise_is_as_ill_as_before() {
        let fleet = fleet();
        let table = [
            (ClusterState::Active, "file:one", Phase::Closed),
            (ClusterState::Draining, "file:one", Phase::Resting),
            // Another server, for all that is known.
            (ClusterState::Draining, "file:two", Phase::Closed),
        ];
        let mut before: Option<Arc<Member>> = None;
        for (state, credentials, phase) in table {
            fleet.take_in(registry(state, credentials)).await;
            let [member]: [Arc<Member>; 1] = fleet.members().try_into().unwrap();
            assert_eq!((member.cluster.state, member.guard.phase()), (state, phase), "{credentials}");
            assert!(!member.left.is_cancelled() && !member.gone.is_cancelled());
            // Who observes the server goes on as long as it is the same.
            assert_eq!(member.is_to_be_observed(), phase == Phase::Closed, "{credentials}");
            let ended =
                before.as_ref().map(|before| (before.left.is_cancelled(), before.gone.is_cancelled()));
            assert!(
                ended.is_none_or(|ended| ended == (true, phase == Phase::Closed)),
                "{credentials}: {ended:?}"
            );
            member.guard.rest(Duration::from_secs(30));
            before = Some(member);
        }
        fleet.take_in(store::Registry::default()).await;
        assert!(before.is_some_and(|before| before.left.is_cancelled() && before.gone.is_cancelled()));
    }

    /// They are waited for a while; what takes longer is not begun anew for that.
    #[tokio::test]
    async fn first_credentials_that_take_long_are_not_given_up() {
        runtime::install_crypto();
        let folder = std::env::temp_dir().join(format!("provisioner-slow-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let given = r#"{"apiVersion": "client.authentication.k8s.io/v1", "status": {"token": "swordfish"}}"#;
        let line = format!("cd '{}'; until [ -e go ]; do sleep 0.1; done; echo '{given}'", folder.display());
        let user = serde_json::json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", line],
            "interactiveMode": "Never",
        }});
        std::fs::write(folder.join("slow"), kubeconfig("http://127.0.0.1:1", &user)).unwrap();
        let fleet = with_credentials(folder.clone());
        fleet.take_in(registry(ClusterState::Active, "file:slow")).await;
        let [member]: [Arc<Member>; 1] = fleet.members().try_into().unwrap();
        assert!(member.clients().is_err(), "nothing was given yet");
        std::fs::write(folder.join("go"), "").unwrap();
        let begun = Instant::now();
        while member.clients().is_err() {
            assert!(begun.elapsed() < Duration::from_secs(30), "nobody reads them any more");
            tokio::task::yield_now().await;
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test]
    async fn at_a_stop_the_answer_of_a_black_hole_is_not_waited_for() {
        runtime::install_crypto();
        let hole = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let folder = std::env::temp_dir().join(format!("provisioner-hole-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let server = format!("http://{}", hole.local_addr().unwrap());
        let user = serde_json::json!({"token": "swordfish"});
        std::fs::write(folder.join("hole"), kubeconfig(&server, &user)).unwrap();
        let fleet = with_credentials(folder.clone());
        fleet.take_in(registry(ClusterState::Active, "file:hole")).await;
        let [member]: [Arc<Member>; 1] = fleet.members().try_into().unwrap();
        let stop = CancellationToken::new();
        let probing = tokio::spawn(Arc::clone(&fleet).probe(member, stop.clone()));
        let half = fleet.settings.call_timeout / 2;
        let asked = tokio::time::timeout(half, hole.accept()).await.expect("a question").unwrap();
        stop.cancel();
        tokio::time::timeout(half / 2, probing).await.expect("an end before the answer is late").unwrap();
        drop(asked);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test]
    async fn what_is_wrong_with_credentials_is_shown_at_once() {
        let fleet = fleet();
        let cluster = registry(ClusterState::Active, "file:nowhere").clusters.remove(0).cluster;
        let member = Arc::new(Member::new(cluster, 1));
        let probing = Arc::clone(&fleet).probe(Arc::clone(&member), CancellationToken::new());
        let probing = tokio::spawn(probing);
        let is_shown = |reason: &str| {
            let report = fleet.health.readiness.report();
            let state = report.get("cluster/eu-west-1").map(|cluster| cluster.state.clone());
            matches!(state, Some(State::Failing(why)) if why.contains(reason))
        };
        let mut begun = Instant::now();
        while !is_shown("not read yet") {
            assert!(begun.elapsed() < Duration::from_secs(30), "nothing is shown");
            tokio::task::yield_now().await;
        }
        member.reread_credentials(&fleet.settings).await;
        begun = Instant::now();
        while !is_shown("read the credentials") {
            // A busy machine hesitates, and the next probe is a moment less than its period away.
            assert!(begun.elapsed() < PROBE * 4 / 5, "only with the next probe");
            tokio::task::yield_now().await;
        }
        probing.abort();
    }

    #[tokio::test]
    async fn who_asks_while_the_registry_cannot_be_read_does_not_wait_for_those_before() {
        let (fleet, id): (_, ClusterId) = (fleet(), "eu-west-1".parse().unwrap());
        let begun = Instant::now();
        let found = futures::future::join_all((0..100).map(|_| fleet.find(&id))).await;
        assert!(found.iter().all(|found| matches!(found, Found::NotKnown(_))), "{found:?}");
        // One after the other they would take longer still.
        assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
    }
}
