//! A provisioner of the test's own: topics, database, credentials, consumer group; only the API server is shared.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bus::{Connection, Message, Producer, Sink, Stored, TopicSettings};
use clap::Parser as _;
use domain::{Cluster, ClusterState, DatabaseId, InstructionId, OperationId, Position};
use kube::Api;
use resources::QuestDB;
use runtime::CancellationToken;
use store::Store;
use testkit::{eventually, unique};
use tokio::process::{Child, Command};
use wire::{Gossip, Instruction, Observation, Outcome, OutcomeKind, Said};

/// How long anything may take, on processors that are busy with other tests. Whoever waits goes on as soon as it is so.
pub(super) const PATIENCE: Duration = Duration::from_mins(3);
pub(super) const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// What a test works with.
pub(crate) struct Rig {
    pub(crate) store: Store,
    pub(super) database_url: String,
    pub(super) client: kube::Client,
    pub(crate) tenant: String,
    pub(crate) credentials: PathBuf,
    pub(super) heard: Arc<Heard>,
    provisioners_url: String,
    pub(super) connection: Connection,
    pub(super) producer: Producer,
    pub(super) topics: [String; 2],
    partitions: String,
    group: String,
    listening: CancellationToken,
}

/// A provisioner that runs.
pub(crate) struct Running {
    tasks: runtime::Tasks,
    pub(super) health: runtime::Health,
    pub(super) metrics: runtime::Metrics,
}

impl Rig {
    /// A rig whose provisioners find the database somewhere else than the test does.
    pub(super) async fn with_database_at(port: impl FnOnce(u16) -> u16) -> Self {
        let mut rig = Self::new().await;
        let (before, after) = rig.database_url.rsplit_once(':').unwrap();
        let (number, database) = after.split_once('/').unwrap();
        rig.provisioners_url = format!("{before}:{}/{database}", port(number.parse().unwrap()));
        rig
    }

    /// The same rig, whose provisioners know two ways to its database.
    pub(super) fn by_way_of(mut self, [first, second]: [SocketAddr; 2]) -> Self {
        let straight = self.database_address().to_string();
        self.provisioners_url = self.database_url.replacen(&straight, &format!("{first},{second}"), 1);
        self
    }

    /// Where its database is.
    pub(super) fn database_address(&self) -> SocketAddr {
        let (_, host) = self.database_url.rsplit_once('@').unwrap();
        host.split_once('/').unwrap().0.parse().unwrap()
    }

    /// Everything but a running provisioner. The cluster `bare` is registered with good credentials.
    pub(super) async fn new() -> Self {
        Self::with_partitions(1).await
    }

    /// The same with topics of more than one partition.
    pub(super) async fn with_partitions(partitions: i32) -> Self {
        let stack = testkit::stack();
        runtime::install_crypto();
        let database_url = testkit::fresh_database().await.unwrap();
        // Provisioners lock the same rows, and a busy machine may take long with them.
        let settings = ::store::Settings { lock: PATIENCE, statement: PATIENCE, ..crate::support::patient() };
        let store = Store::connect(&database_url, &settings).unwrap();
        store.migrate().await.unwrap();
        let connection = Connection::new(&stack.kafka_bootstrap, "test");
        let topics = [unique("instructions"), unique("gossip")];
        let settings: Vec<TopicSettings> =
            topics.iter().map(|topic| TopicSettings::new(topic, partitions, 1)).collect();
        let admin = bus::Admin::new(&connection).unwrap();
        admin.ensure_topics(&settings, PATIENCE).await.unwrap();
        for topic in &topics {
            // A broker learns of a topic a moment after the controller has made it.
            let known = async || admin.check_partitions(topic, partitions, PATIENCE).await.ok();
            eventually(PATIENCE, "the topic", known).await;
        }
        let credentials = testkit::scratch().join(unique("credentials"));
        std::fs::create_dir_all(&credentials).unwrap();
        let rig = Self {
            client: testkit::client(&testkit::bare_cluster().kubeconfig).await.unwrap(),
            tenant: unique("t"),
            heard: Arc::new(Heard::default()),
            producer: Producer::new(&connection).unwrap(),
            group: unique("group"),
            listening: CancellationToken::new(),
            store,
            provisioners_url: database_url.clone(),
            database_url,
            credentials,
            connection,
            topics,
            partitions: partitions.to_string(),
        };
        rig.good_credentials();
        rig.register(ClusterState::Active).await;
        rig.listen();
        rig
    }

    /// Registers the cluster `bare`, or changes its state.
    pub(super) async fn register(&self, state: ClusterState) {
        self.register_as("bare", state).await;
    }

    /// Registers a cluster by name; its credentials are in a file of its own.
    pub(super) async fn register_as(&self, name: &str, state: ClusterState) {
        let cluster = Cluster {
            id: name.parse().unwrap(),
            region: "eu-west-1".to_owned(),
            account: "000000000000".to_owned(),
            zones: BTreeMap::new(),
            hosted_zone_id: "Z1".to_owned(),
            dns_suffix: "example.com".to_owned(),
            namespace_template: "qdb-{tenant}".to_owned(),
            state,
            credentials: format!("file:{name}.kubeconfig"),
        };
        self.store.put_cluster(&cluster).await.unwrap();
    }

    /// Credentials of `bare` that the API server takes.
    pub(super) fn good_credentials(&self) {
        self.credentials_at("bare", &testkit::bare_cluster().server);
    }

    /// Credentials of `bare` for a server that nobody is at.
    pub(super) fn credentials_of_nobody(&self) {
        self.credentials_at("bare", &format!("https://{}", testkit::free_address().unwrap()));
    }

    /// Credentials of a cluster for a server at this address.
    pub(super) fn credentials_at(&self, name: &str, server: &str) {
        self.write_credentials(&format!("{name}.kubeconfig"), &kubeconfig(server));
    }

    /// Writes a file of credentials, whole or not at all: a provisioner may be reading it.
    pub(super) fn write_credentials(&self, file: &str, text: &str) {
        let unfinished = self.credentials.join(format!("{file}.new"));
        std::fs::write(&unfinished, text).unwrap();
        std::fs::rename(unfinished, self.credentials.join(file)).unwrap();
    }

    /// A directory with credentials of one cluster for a server at this address, beside the usual one.
    pub(super) fn other_credentials(&self, name: &str, server: &str) -> PathBuf {
        let directory = self.credentials.join("others");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(format!("{name}.kubeconfig")), kubeconfig(server)).unwrap();
        directory
    }

    /// Starts a provisioner in this process; `more` are further arguments.
    pub(crate) fn start(&self, more: &[&str]) -> Running {
        self.start_with(&self.credentials, more)
    }

    /// Starts a provisioner in this process that has credentials of its own.
    pub(super) fn start_with(&self, credentials: &Path, more: &[&str]) -> Running {
        start(self.arguments(credentials, more))
    }

    /// Starts a provisioner that has credentials of its own and consumes for itself.
    pub(super) fn start_apart(&self, credentials: &Path) -> Running {
        let apart = unique("group");
        let mut arguments = self.arguments(credentials, &[]);
        let group = arguments.iter_mut().find(|argument| **argument == self.group).unwrap();
        *group = apart;
        start(arguments)
    }

    /// Starts a provisioner as a process of its own, which dies with what is answered.
    pub(super) fn start_process(&self) -> Child {
        self.start_process_failing_at("", &[])
    }

    /// The same, with failpoints armed and more on its command line.
    pub(super) fn start_process_failing_at(&self, failpoints: &str, more: &[&str]) -> Child {
        let program = testkit::stack().programs.join("slipway-provisioner");
        let arguments = self.arguments(&self.credentials, more);
        let log = std::fs::File::create(self.credentials.join("log")).unwrap();
        let mut command = Command::new(program);
        command.args(&arguments[1..]).env("SLIPWAY_FAILPOINTS", failpoints);
        command.stderr(log).kill_on_drop(true).spawn().unwrap()
    }

    /// The command line of a provisioner.
    fn arguments(&self, credentials: &Path, more: &[&str]) -> Vec<String> {
        let [instructions, gossip] = self.topics.each_ref().map(String::as_str);
        let credentials = credentials.display().to_string();
        let arguments = [
            "slipway-provisioner",
            "--database-url",
            &self.provisioners_url,
            "--kafka-bootstrap",
            &self.connection.bootstrap,
            "--instructions-topic",
            instructions,
            "--gossip-topic",
            gossip,
            "--consumer-group",
            &self.group,
            "--credentials-dir",
            &credentials,
        ];
        let usual = [["--offset-reset", "earliest"], ["--topic-partitions", self.partitions.as_str()]];
        let usual = usual.iter().filter(|[flag, _]| !more.contains(flag)).flatten();
        arguments.iter().chain(usual).chain(more).map(ToString::to_string).collect()
    }

    /// An instruction of a new database of the rig's tenant.
    pub(super) fn instruction(&self, seq: i64) -> Instruction {
        let database = DatabaseId::mint();
        Instruction {
            id: InstructionId::mint(),
            database,
            tenant: self.tenant.parse().unwrap(),
            cluster: "bare".parse().unwrap(),
            operation: OperationId::mint(),
            operation_kind: domain::OperationKind::Create,
            position: Position { epoch: 1, seq },
            desired: domain::Desired {
                name: "trades".parse().unwrap(),
                run_state: domain::RunState::Running,
                version: "9.3.4".to_owned(),
                compute: domain::Compute { instance_type: "m7i.large".to_owned(), node_image: None },
                storage: domain::Storage {
                    size_gib: 50,
                    volume_type: domain::VolumeType::Gp3,
                    iops: 3_000,
                    throughput: 125,
                    provisioned: false,
                    deletion_policy: domain::DeletionPolicy::Retain,
                },
                config: BTreeMap::new(),
                network: domain::Network {
                    hostname: "trades.example.com".to_owned(),
                    allowed_cidrs: Vec::new(),
                    exposure: domain::Exposure::Internal,
                },
                restart_nonce: None,
                deletion_protection: false,
            },
            issued_at: jiff::Timestamp::from_millisecond(1_760_000_000_000).unwrap(),
            actor: "test".to_owned(),
        }
    }

    /// Publishes an instruction as the relay does.
    pub(super) async fn publish(&self, instruction: &Instruction) {
        let Position { epoch, seq } = instruction.position;
        let more = [
            (wire::headers::SCHEMA, wire::SCHEMA.to_string()),
            (wire::headers::EPOCH, epoch.to_string()),
            (wire::headers::SEQ, seq.to_string()),
        ];
        self.publish_with(&instruction.key(), instruction.encode(), &more).await;
    }

    /// Publishes any bytes under a key, without a header that says a position.
    pub(super) async fn publish_bytes(&self, key: &str, payload: Vec<u8>) {
        self.publish_with(key, payload, &[]).await;
    }

    /// Publishes any bytes under a key with any headers beside the usual ones.
    pub(super) async fn publish_with(&self, key: &str, payload: Vec<u8>, more: &[(&str, String)]) {
        self.publish_for("bare", key, payload, more).await;
    }

    /// The same for another cluster.
    pub(super) async fn publish_for(
        &self,
        cluster: &str,
        key: &str,
        payload: Vec<u8>,
        more: &[(&str, String)],
    ) {
        let usual = [
            (wire::headers::CLUSTER, cluster.to_owned()),
            (wire::headers::TRACEPARENT, TRACEPARENT.to_owned()),
        ];
        let headers = usual.iter().chain(more);
        let headers = headers.map(|(name, value)| ((*name).to_owned(), value.clone().into_bytes())).collect();
        let message = Message { topic: self.topics[0].clone(), key: key.to_owned(), payload, headers };
        self.producer.send(message).await.unwrap();
    }

    /// The custom resource of an instruction's database, once it holds at least this position.
    pub(super) async fn resource(&self, instruction: &Instruction, seq: i64) -> QuestDB {
        let what = format!("the resource at seq {seq}");
        eventually(PATIENCE, &what, async || {
            let found = self.api().get_opt(&name(instruction)).await.unwrap()?;
            (found.spec.instruction.as_ref()?.seq >= seq).then_some(found)
        })
        .await
    }

    /// The resources of the rig's tenant.
    pub(super) fn api(&self) -> Api<QuestDB> {
        Api::namespaced(self.client.clone(), &format!("qdb-{}", self.tenant))
    }

    /// The outcome of this kind for this database, once it was told.
    pub(super) async fn outcome(&self, instruction: &Instruction, kind: OutcomeKind) -> Outcome {
        let what = format!("the outcome {kind:?} of {}", instruction.position);
        eventually(PATIENCE, &what, async || {
            let said = self.heard.about(instruction.database);
            said.into_iter().find_map(|gossip| match gossip.said {
                Said::Outcome(outcome)
                    if outcome.kind == kind && outcome.position == instruction.position =>
                {
                    Some(outcome)
                }
                _ => None,
            })
        })
        .await
    }

    /// How many outcomes were told of this database.
    pub(super) fn told(&self, database: DatabaseId) -> usize {
        let said = self.heard.about(database);
        said.iter().filter(|gossip| matches!(gossip.said, Said::Outcome(_))).count()
    }

    /// The first observation of this database that fits, once it was told.
    pub(super) async fn observation(
        &self,
        instruction: &Instruction,
        what: &str,
        fits: impl Fn(&Observation) -> bool,
    ) -> Observation {
        eventually(PATIENCE, what, async || {
            let said = self.heard.about(instruction.database);
            said.into_iter().find_map(|gossip| match gossip.said {
                Said::Observation(seen) if fits(&seen) => Some(*seen),
                _ => None,
            })
        })
        .await
    }

    /// A number out of the rig's database, once it is as expected.
    pub(super) async fn count(&self, statement: &str, expected: &str) {
        let what = format!("{statement} = {expected}");
        eventually(PATIENCE, &what, async || {
            let found = testkit::query(&self.database_url, statement).await.unwrap();
            (found == expected).then_some(())
        })
        .await;
    }

    /// From now on the right to speak for a cluster lasts for longer than anybody may stand still, for a test that is not about who
    /// speaks. It does come to an end: whoever stops may fail to give it back.
    pub(super) async fn keep_observers(&self) {
        let statement = "create function kept() returns trigger language plpgsql as $$ begin \
             if new.expires_at > clock_timestamp() then new.expires_at := clock_timestamp() + interval '90 seconds'; end if; \
             return new; end $$; \
             create trigger kept before insert or update on cluster_observers for each row execute function kept()";
        testkit::query(&self.database_url, statement).await.unwrap();
    }

    /// Waits until the brokers know that all that stands on the topic is finished: whoever begins then reads none of it again.
    pub(super) async fn committed(&self) {
        eventually(PATIENCE, "all committed", async || self.is_committed().await.then_some(())).await;
    }

    /// Whether they know.
    pub(super) async fn is_committed(&self) -> bool {
        let partitions = self.partitions.parse().unwrap();
        crate::bus::is_committed(&self.group, &self.topics[0], partitions).await
    }

    fn listen(&self) {
        let mut settings =
            bus::sink::Settings::new(self.connection.clone(), &self.topics[1], unique("listener"));
        settings.grace = Duration::from_millis(100);
        let state = Arc::new(bus::consumer::State::default());
        tokio::spawn(bus::sink::run(settings, Arc::clone(&self.heard), state, self.listening.clone()));
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.listening.cancel();
        let _ = std::fs::remove_dir_all(&self.credentials);
    }
}

impl Running {
    /// Stops it as a signal does.
    pub(crate) async fn stop(self) {
        self.tasks.drain(Duration::from_secs(30)).await.unwrap();
    }

    /// How it ends by itself.
    pub(super) async fn end(self) -> String {
        let ended = tokio::time::timeout(PATIENCE, self.tasks.run(Duration::from_secs(10))).await.unwrap();
        let mut text = String::new();
        let mut error: Option<&dyn std::error::Error> = ended.as_ref().err().map(|error| error as _);
        while let Some(one) = error {
            text.push_str(&one.to_string());
            text.push_str("; ");
            error = one.source();
        }
        text
    }
}

/// All gossip of the rig's topic, in memory, each piece once: tests count what was told.
#[derive(Default)]
pub(super) struct Heard {
    said: Mutex<HashMap<DatabaseId, Vec<Gossip>>>,
    offsets: Mutex<BTreeMap<i32, i64>>,
}

impl Heard {
    pub(super) fn about(&self, database: DatabaseId) -> Vec<Gossip> {
        self.said.lock().unwrap().get(&database).cloned().unwrap_or_default()
    }
}

impl Sink for Heard {
    async fn offsets(&self, partitions: Vec<i32>) -> Result<BTreeMap<i32, i64>, bus::BoxError> {
        let offsets = self.offsets.lock().unwrap();
        Ok(partitions.into_iter().filter_map(|number| Some((number, *offsets.get(&number)?))).collect())
    }

    async fn store(&self, batch: Arc<bus::Batch>) -> Result<Stored, bus::BoxError> {
        let mut offsets = self.offsets.lock().unwrap();
        if offsets.get(&batch.partition).copied() != batch.start {
            return Ok(Stored::OutOfStep);
        }
        for record in &batch.records {
            let gossip = Gossip::decode(record.payload.as_deref().unwrap_or_default())?;
            assert_eq!(record.key_text(), Some(gossip.key().as_str()), "gossip is keyed by database");
            assert_eq!(record.header_text(wire::headers::CLUSTER), Some(gossip.cluster.as_str()));
            self.said.lock().unwrap().entry(gossip.database).or_default().push(gossip);
        }
        offsets.insert(batch.partition, batch.end);
        Ok(Stored::Done)
    }
}

/// Name of the custom resource of an instruction.
pub(super) fn name(instruction: &Instruction) -> String {
    domain::id::resource_name(&instruction.desired.name, instruction.database)
}

/// The provisioner's kubeconfig of `bare`, for a server at this address.
pub(super) fn kubeconfig(server: &str) -> String {
    let facts = testkit::bare_cluster();
    let text = std::fs::read_to_string(&facts.provisioner_kubeconfig).unwrap();
    text.replace(&facts.server, server)
}

/// Starts a provisioner by its command line. Brokers believe in it although they hear nothing of it for longer than
/// usually: what it had in its hands would be done a second time where this process stands still on a busy machine, and
/// tests count what is done.
fn start(arguments: Vec<String>) -> Running {
    let unheard = ["--kafka-properties", "session.timeout.ms=45000"].map(str::to_owned);
    let args = provisioner::Args::try_parse_from(arguments.into_iter().chain(unheard)).unwrap();
    let frame = provisioner::run::Frame {
        tasks: runtime::Tasks::new(CancellationToken::new()),
        health: runtime::Health::new(),
        metrics: runtime::Metrics::new(runtime::service!("test")),
    };
    let _producer = provisioner::run::start(&frame, &args).unwrap();
    Running { tasks: frame.tasks, health: frame.health, metrics: frame.metrics }
}
