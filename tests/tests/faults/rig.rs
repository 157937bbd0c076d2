//! A delivery of the test's own: Postgres database, topics, consumer group, and the real programs as processes that the test
//! may harm; two clusters, `near` and `far`, each behind a proxy. No operator runs: a stand-in reports what was applied as
//! carried out, so that a test costs seconds.

#![cfg(test)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bus::{Connection, Producer, TopicSettings};
use reqwest::Method;
use serde_json::{Value, json};
use store::{Role, Store};
use testkit::load::{Ledger, Load, Plan};
use testkit::oracle::Oracle;
use testkit::{Console, Proxy, Readers, Stopwatch, Watched, eventually, stack, unique};
use tokio::sync::{Mutex, MutexGuard};

/// Longest time for anything, on two busy processors.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);
/// Regions of the two clusters.
pub(crate) const NEAR: &str = "eu-west-1";
pub(crate) const FAR: &str = "us-east-1";
/// How long a program may take to end when asked to.
pub(crate) const GRACE: Duration = Duration::from_secs(20);
/// Partitions of both topics.
pub(crate) const PARTITIONS: i32 = 4;

/// The size a database is born with.
pub(crate) const BORN: i64 = 50;
/// Databases that are asked for to see whether all is well again.
const PROBES: usize = 12;

/// Tests that harm servers are alone. What they left, namespace by namespace, goes when the next one begins.
static ALONE: Mutex<Vec<String>> = Mutex::const_new(Vec::new());

/// What a test works with.
pub(crate) struct Rig {
    pub(crate) console: Console,
    pub(crate) database_url: String,
    pub(crate) near: Proxy,
    pub(crate) far: Proxy,
    pub(crate) postgres: Proxy,
    pub(crate) client: kube::Client,
    pub(crate) tenant: String,
    pub(crate) watched: Watched,
    pub(crate) connection: Connection,
    pub(crate) producer: Producer,
    pub(crate) instructions: String,
    pub(crate) gossip: String,
    pub(crate) group: String,
    pub(crate) programs_url: String,
    pub(crate) folder: PathBuf,
    pub(crate) api: SocketAddr,
    store: Store,
    _alone: MutexGuard<'static, Vec<String>>,
}

/// What a rig stands on: the stack's servers, but for those that a test brings along.
#[derive(Debug, Default)]
pub(crate) struct Ground {
    /// Where Postgres is. The test finds it there, past every proxy.
    pub(crate) postgres: Option<String>,
    /// Where the programs find Postgres, where that is not by way of the proxy.
    pub(crate) programs: Option<String>,
    /// Where Kafka is, and how many copies of each partition there are.
    pub(crate) kafka: Option<(Connection, i32)>,
}

/// A store that waits for connections, answers and locks as long as anything may take: Postgres may be busy.
pub(crate) fn patient() -> store::Settings {
    let [acquire, statement, lock] = [PATIENCE; 3];
    store::Settings { acquire, statement, lock, ..store::Settings::default() }
}

impl Rig {
    /// Everything but running programs.
    pub(crate) async fn new() -> Self {
        Self::on(Ground::default()).await
    }

    /// The same, on servers of the test's own.
    pub(crate) async fn on(ground: Ground) -> Self {
        let mut alone = ALONE.lock().await;
        let database_url = match ground.postgres {
            Some(url) => url,
            None => testkit::fresh_database().await.unwrap(),
        };
        let store = Store::connect(&database_url, &patient()).unwrap();
        store.migrate().await.unwrap();
        testkit::audit::begin(&database_url).await.unwrap();
        let (_, server) = testkit::at_port(&database_url, 0).unwrap();
        let postgres = Proxy::to(server).await.unwrap();
        let (proxied_url, _) = testkit::at_port(&database_url, postgres.address().port()).unwrap();

        let of_stack = || (Connection::new(&stack().kafka_bootstrap, "test"), 1);
        let (connection, copies) = ground.kafka.unwrap_or_else(of_stack);
        let (instructions, gossip) = (unique("instructions"), unique("gossip"));
        let topics = [&instructions, &gossip].map(|topic| TopicSettings::new(topic, PARTITIONS, copies));
        bus::Admin::new(&connection).unwrap().ensure_topics(&topics, PATIENCE).await.unwrap();

        let bare = testkit::bare_cluster();
        let api_server = bare.server.trim_start_matches("https://").parse().unwrap();
        let client = testkit::client(&bare.kubeconfig).await.unwrap();
        for namespace in alone.drain(..) {
            crate::former::clear(&client, &namespace).await;
        }
        let (api, tenant) = (testkit::free_address().unwrap(), unique("t"));
        alone.push(format!("qdb-{tenant}"));
        let wish =
            backend::tokens::Wish { role: Role::Sre, tenant: None, name: "faults".to_owned(), days: None };
        let token = backend::tokens::create(&store, wish).await.unwrap();
        let folder = stack().state_dir.join("logs").join("faults").join(&tenant);
        std::fs::create_dir_all(&folder).unwrap();
        let rig = Self {
            console: Console::at(&format!("http://{api}"), &token, &tenant),
            near: Proxy::to(api_server).await.unwrap(),
            far: Proxy::to(api_server).await.unwrap(),
            watched: Watched::start(&bare.kubeconfig, &format!("qdb-{tenant}")).await.unwrap(),
            producer: Producer::new(&connection).unwrap(),
            group: unique("group"),
            database_url,
            postgres,
            client,
            tenant,
            connection,
            instructions,
            gossip,
            programs_url: ground.programs.unwrap_or(proxied_url),
            folder,
            api,
            store,
            _alone: alone,
        };
        rig.register("near", NEAR, &format!("https://{}", rig.near.address())).await;
        rig.register("far", FAR, &format!("https://{}", rig.far.address())).await;
        rig
    }

    /// Registers a cluster whose API server is at this address.
    pub(crate) async fn register(&self, name: &str, region: &str, server: &str) {
        let facts = testkit::bare_cluster();
        let text = std::fs::read_to_string(&facts.provisioner_kubeconfig).unwrap();
        let text = text.replace(&facts.server, server);
        // Whole or not at all: a provisioner may be reading it.
        let unfinished = self.folder.join(format!("{name}.new"));
        std::fs::write(&unfinished, text).unwrap();
        std::fs::rename(unfinished, self.folder.join(format!("{name}.kubeconfig"))).unwrap();
        let cluster = domain::Cluster {
            id: name.parse().unwrap(),
            region: region.to_owned(),
            account: "000000000000".to_owned(),
            zones: std::collections::BTreeMap::new(),
            hosted_zone_id: "Z1".to_owned(),
            dns_suffix: format!("{name}.example.com"),
            namespace_template: "qdb-{tenant}".to_owned(),
            state: domain::ClusterState::Active,
            credentials: format!("file:{name}.kubeconfig"),
        };
        self.store.put_cluster(&cluster).await.unwrap();
    }

    /// Users at work in both regions.
    pub(crate) fn load(&self, seed: u64) -> Load {
        Load::start(&self.console, &Plan::new(seed, &[NEAR, FAR]))
    }

    /// The same in a test whose fault lasts so long.
    pub(crate) fn load_during(&self, fault: Duration, seed: u64) -> Load {
        Load::start(&self.console, &Plan::new(seed, &[NEAR, FAR]).during(fault))
    }

    /// What is compared afterwards.
    pub(crate) fn oracle<'a>(&'a self, namespace: &'a str) -> Oracle<'a> {
        Oracle {
            database: &self.database_url,
            connection: &self.connection,
            instructions: &self.instructions,
            gossip: &self.gossip,
            partitions: PARTITIONS,
            group: &self.group,
            client: &self.client,
            namespace,
            watched: &self.watched,
        }
    }

    /// Ends the load, waits until everything has settled and asks all oracles. Says how long settling took.
    pub(crate) async fn proven(&self, load: Load, letters: &[&str]) -> (Ledger, Duration) {
        let ledger = load.stop().await.unwrap();
        let settled = self.proven_of(&ledger, letters).await;
        (ledger, settled)
    }

    /// The same for a load that has ended.
    pub(crate) async fn proven_of(&self, ledger: &Ledger, letters: &[&str]) -> Duration {
        let namespace = format!("qdb-{}", self.tenant);
        let oracle = self.oracle(&namespace);
        let settled = oracle.settled(PATIENCE).await;
        oracle.check(ledger, letters).await.unwrap();
        self.nobody_went_wrong();
        self.nobody_is_busy().await;
        self.nobody_complains().await;
        settled
    }

    /// Users at work, each of whose operations is followed to its end.
    pub(crate) fn followed(&self, seed: u64) -> (Load, Readers) {
        let readers = Readers::new(&self.console);
        let plan = Plan { readers: Some(readers.clone()), ..Plan::new(seed, &[NEAR, FAR]) };
        (Load::start(&self.console, &plan), readers)
    }

    /// Waits until what was accepted for a region is applied.
    pub(crate) async fn applied(&self, ledger: &Ledger, region: &str) {
        self.oracle("").applied(ledger, region, PATIENCE).await;
    }

    /// Databases asked for now, enough of them to meet every partition and both clusters; gives how long it takes until all of
    /// them are there.
    pub(crate) async fn recovery(&self) -> Duration {
        let probes = (0..PROBES).map(|number| self.round_trip(if number % 2 == 0 { NEAR } else { FAR }));
        futures::future::join_all(probes).await.into_iter().max().unwrap()
    }

    /// A database asked for now; gives how long it takes until its operation has succeeded.
    pub(crate) async fn round_trip(&self, region: &str) -> Duration {
        let begun = Stopwatch::start();
        let accepted = self.create(&unique("probe"), region).await;
        let operation = format!("/v1/operations/{}", accepted["operation"]["id"].as_str().unwrap());
        eventually(PATIENCE, "the operation of a database that was asked for now", async || {
            let request = self.console.request(Method::GET, &operation).timeout(Duration::from_secs(5));
            let body: Value = request.send().await.ok()?.json().await.ok()?;
            (body["state"] == "succeeded").then_some(())
        })
        .await;
        begun.elapsed()
    }

    /// Asks for a database until the API has answered.
    pub(crate) async fn create(&self, name: &str, region: &str) -> Value {
        let (key, body) = (unique("key"), json!({"name": name, "region": region}));
        eventually(PATIENCE, "a database accepted", async || {
            let request = self.console.request(Method::POST, "/v1/databases").header("Idempotency-Key", &key);
            let answer = request.json(&body).timeout(Duration::from_secs(5)).send().await.ok()?;
            (answer.status() == 202).then_some(answer)?.json::<Value>().await.ok()
        })
        .await
    }

    /// A database that is there, about which nothing is open; its id.
    pub(crate) async fn victim(&self, region: &str) -> String {
        let accepted = self.create(&unique("victim"), region).await;
        let id = accepted["database"]["id"].as_str().unwrap().to_owned();
        let ended =
            format!("select count(*) from operations where database_id = '{id}' and state = 'succeeded'");
        eventually(PATIENCE, "the victim there", async || (self.ask(&ended).await == "1").then_some(()))
            .await;
        id
    }

    /// Waits until nothing is open any more and all that was read is committed and marked: whoever comes next meets what comes next, and
    /// nothing again.
    pub(crate) async fn settled(&self) {
        self.oracle(&format!("qdb-{}", self.tenant)).settled(PATIENCE).await;
    }

    /// Lets a database that nobody else changes grow, from this seq to the next.
    pub(crate) async fn grow(&self, id: &str, seq: i64) {
        let (path, etag) = (format!("/v1/databases/{id}"), format!("\"1-{seq}\""));
        let body = json!({"storage": {"size_gib": BORN + seq}});
        let answer = eventually(PATIENCE, "an answer of the API", async || {
            let request = self.console.request(Method::PATCH, &path).header("If-Match", &etag).json(&body);
            let answer = request.send().await.unwrap();
            // Beside others who ask, no connection to Postgres may be free, nor a place for a token that is new to the process.
            (answer.status() != 503 && answer.status() != 429).then_some(answer)
        })
        .await;
        assert_eq!(answer.status(), 202, "{:?}", answer.text().await);
    }

    /// Whether a change has waited for longer than any relay takes that reaches the brokers. Under load each database may be changed
    /// again before that: then, whether something waits although nothing at all was published for so long.
    pub(crate) async fn waits_for_brokers(&self) -> bool {
        let waiting = "select count(*) from databases where unpublished \
                       and (greatest(minted_at, resent_at) < clock_timestamp() - interval '1 s' \
                       or (select max(published_at) from databases) < clock_timestamp() - interval '3 s')";
        self.ask(waiting).await != "0"
    }

    /// A value out of the rig's database.
    pub(crate) async fn ask(&self, statement: &str) -> String {
        eventually(PATIENCE, "an answer of Postgres", async || {
            testkit::query(&self.database_url, statement).await.ok()
        })
        .await
    }
}
