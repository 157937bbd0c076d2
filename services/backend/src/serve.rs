//! Runs the roles that this process was given.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::consumer::State;
use bus::{Admin, Producer};
use domain::catalogue::DefaultNotOnOffer;
use futures::future::join;
use runtime::health::{Component, Heartbeat};
use runtime::ops::Pages;
use runtime::{Backoff, CancellationToken, Program, connections};
use secrecy::ExposeSecret as _;
use store::{Program as Member, Settings, Store};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::api::{Api, Gate, Limits, Shares, Streams, router};
use crate::args::{Bounds, Database, Kafka, Role, Serve};
use crate::deadlines::Judge;
use crate::doorbell::Doorbell;
use crate::heard::{self, Hearing};
use crate::metrics::Metrics;
use crate::prune;
use crate::relay::{self, Relay};
use crate::sink::GossipSink;
use crate::sweep::{self, Sweep};
use crate::{tidy, topics};

/// How long tasks may take to finish at a stop.
const DRAIN: Duration = Duration::from_secs(20);
/// How often Postgres and Kafka are asked whether they are there.
const CHECK_EVERY: Duration = Duration::from_secs(2);
const CHECK_DEADLINE: Duration = Duration::from_secs(5);
/// How long the sink's loop may stand still, backing off after a broken consumer included.
const SINK_SILENCE: Duration = Duration::from_mins(2);
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(15));

/// The backend did not start or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Telemetry, signals, operations server, tasks.
    #[error("run the program")]
    Program(#[source] runtime::program::Error),
    /// The database's URL.
    #[error("prepare the store")]
    Store(#[source] store::Error),
    /// A Kafka client.
    #[error("prepare Kafka")]
    Kafka(#[source] bus::Error),
    /// The API would give databases a version that it does not offer.
    #[error("SLIPWAY_QUESTDB_VERSIONS must name the version that SLIPWAY_DEFAULT_QUESTDB_VERSION says")]
    Offer(#[source] DefaultNotOnOffer),
    /// The API's address.
    #[error("listen on {address} for the API")]
    Listen {
        /// As asked for.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
}

/// Opens a store for a program.
pub fn store(database: &Database, application: &str) -> Result<Store, store::Error> {
    let settings = settings(database.database_connections, application);
    Store::connect(database.database_url.expose_secret(), &settings)
}

fn settings(connections: u32, application: &str) -> Settings {
    Settings { application: application.to_owned(), connections, ..Settings::default() }
}

/// That of requests to the API, and that of all other work, with so many connections: tenants may take all of the first.
fn stores(database: &Database, work: u32, application: &str) -> Result<(Store, Store), Error> {
    let requests = store(database, application).map_err(Error::Store)?;
    let url = database.database_url.expose_secret();
    let work = requests.beside(url, &settings(work, application)).map_err(Error::Store)?;
    Ok((requests, work))
}

/// Runs until a signal.
pub async fn run(args: Serve) -> Result<(), Error> {
    let Serve { database, kafka, telemetry, ops, api: told, deadlines, bounds, roles, sink_group, sweep } =
        args;
    let service = runtime::service!("slipway-backend");
    let program = Program::start(service, &telemetry, &ops).await.map_err(Error::Program)?;
    let (requests, store) = stores(&database, bounds.work_connections, service.name)?;
    let metrics = Metrics::new(&program.metrics);
    let doorbell = Doorbell::default();
    let member = Member::new(service.name, service.version);
    store.refuse_outgrown(&member, CHECK_DEADLINE).await.map_err(Error::Store)?;
    watch_postgres(&program, store.clone(), member.clone());
    let hearing = Hearing {
        topic: kafka.gossip_topic.clone(),
        partitions: kafka.topic_partitions,
        delay: deadlines.gossip_delay,
    };
    let uses_kafka = roles.contains(&Role::Relay) || roles.contains(&Role::Sink);
    let counted = uses_kafka.then(|| watch_kafka(&program, &kafka)).transpose()?;
    if let Some(counted) = counted.filter(|_| roles.contains(&Role::Relay)) {
        let producer = Producer::new(&topics::connection(&kafka, service.name)).map_err(Error::Kafka)?;
        let topic = kafka.instructions_topic.clone();
        let (store, doorbell, metrics) = (store.clone(), doorbell.clone(), metrics.clone());
        start_relay(&program, kafka.clone(), counted, Relay::new(store, producer, topic, doorbell, metrics));
    }
    if roles.contains(&Role::Sink) {
        let sink = GossipSink::new(store.clone(), &sink_group, &kafka.gossip_topic, metrics.clone());
        let (doorbell, gossip) = (doorbell.clone(), kafka.gossip_topic.clone());
        let (swept, settings) = ((store.clone(), doorbell, metrics.clone()), sweep::Settings::from(sweep));
        let retention = topics::watch_retention(&program, &kafka, sweep.tombstone_retention);
        let retention = retention.map_err(Error::Kafka)?;
        let listens = (store.clone(), sink_group.clone(), hearing.clone());
        heard::start(&program, &kafka, listens).map_err(Error::Kafka)?;
        start_sink(&program, kafka, &sink_group, sink, metrics.clone());
        start_sweep(&program, swept, gossip, (settings, retention));
    }
    if roles.contains(&Role::Api) {
        let gate = Gate::new(limits(bounds, hearing.partitions), metrics.clone());
        program.tasks.spawn("gate", gate.clone().run(store.clone(), program.stop()));
        let pages = Pages { health: program.health.clone(), metrics: program.metrics.clone() };
        let streams = Streams::new(metrics.clone());
        let api = Api::new(requests.clone(), doorbell.clone(), streams, metrics.clone(), pages);
        let api = api.behind(gate).with_deadlines(deadlines.deadlines()).with_hearing(hearing.clone());
        let api = api.with_shares(Shares::of(bounds.share.into(), metrics.clone()));
        let api = api.offering(told.offer().map_err(Error::Offer)?);
        start_api(&program, (told.api_listen, bounds.connections.into()), (api, store.clone())).await?;
    }
    start_tidying(&program, &store, &metrics, bounds);
    let judge = Judge {
        store: store.clone(),
        doorbell,
        metrics,
        deadlines: deadlines.deadlines(),
        hearing,
        silence: deadlines.gossip_silence,
    };
    program.tasks.spawn("deadlines", judge.run(program.stop()));
    let ended = program.run(DRAIN).await.map_err(Error::Program);
    leave([&requests, &store], &member).await;
    ended
}

/// The last word to Postgres, which must not hold the end.
async fn leave([requests, store]: [&Store; 2], member: &Member) {
    // Without a word it counts as running for another minute, which only migrations notice.
    let _ = runtime::deadline(CHECK_DEADLINE, "the word of leave", store.leave(member)).await;
    // Connections that are in use were drained.
    let closing = join(requests.close(), store.close());
    let _ = runtime::deadline(CHECK_DEADLINE, "the pools to close", closing).await;
}

/// `store` is where events are read for streams.
async fn start_api(
    program: &Program,
    (address, bounds): (SocketAddr, connections::Bounds),
    (api, store): (Api, Store),
) -> Result<(), Error> {
    let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
    program.tasks.spawn("event streams", api.streams().clone().run(store, program.stop()));
    let bound = listener.local_addr().map_err(|source| Error::Listen { address, source })?;
    tracing::info!(api.address = %bound, "the API listens");
    program.tasks.spawn("api", listen(listener, api, bounds, program.stop()));
    Ok(())
}

/// Serves the API until `stop`; requests under way are answered first.
pub async fn listen(listener: TcpListener, api: Api, bounds: connections::Bounds, stop: CancellationToken) {
    let counts = api.metrics().connections.clone();
    connections::serve(listener, router(api), bounds, counts, stop).await;
}

fn start_relay(program: &Program, kafka: Kafka, counted: watch::Receiver<bool>, relay: Relay) {
    let liveness = program.health.liveness.clone();
    let stop = program.stop();
    program.tasks.spawn("relay", async move {
        if topics::wait(&kafka, relay.topic(), &stop).await? {
            relay.run(liveness.heartbeat("relay", relay::DEADLINE * 3), counted, stop).await;
        }
        Ok::<(), bus::Error>(())
    });
}

fn start_sink(program: &Program, kafka: Kafka, group: &str, sink: GossipSink, metrics: Metrics) {
    let connection = topics::connection(&kafka, "slipway-backend");
    let settings = bus::sink::Settings::new(connection, &kafka.gossip_topic, group);
    let state = Arc::new(State::default());
    let heartbeat = program.health.liveness.heartbeat("sink", SINK_SILENCE);
    let topic = kafka.gossip_topic.clone();
    let watched = Arc::clone(&state);
    program.tasks.spawn("watch sink", watch_sink(watched, heartbeat, topic, metrics, program.stop()));
    let stop = program.stop();
    program.tasks.spawn("sink", async move {
        if topics::wait(&kafka, &kafka.gossip_topic, &stop).await? {
            consume(sink, settings, state, stop).await;
        }
        Ok::<(), bus::Error>(())
    });
}

fn start_sweep(
    program: &Program,
    (store, doorbell, metrics): (Store, Doorbell, Metrics),
    gossip: String,
    (settings, retention): (sweep::Settings, watch::Receiver<Option<Duration>>),
) {
    let heartbeat = program.health.liveness.heartbeat("sweep", sweep::silence(&settings));
    let sweep = Sweep { store, gossip, doorbell, metrics, settings };
    program.tasks.spawn("sweep", sweep.run(retention, heartbeat, program.stop()));
}

/// Shows how far the sink is behind, and whether its loop still comes round. A loop that has not begun waits for its
/// topic, which readiness tells, and one that has ended is made anew.
async fn watch_sink(
    state: Arc<State>,
    heartbeat: Heartbeat,
    topic: String,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let mut rounds = 0;
    while !stop.is_cancelled() {
        let now = state.snapshot();
        if now.rounds != rounds || now.rounds == 0 {
            heartbeat.beat();
        }
        rounds = now.rounds;
        metrics.lag(&topic, &now.lag);
        runtime::backoff::sleep(CHECK_EVERY, &stop).await;
    }
}

/// Consumes gossip until `stop`; a consumer that cannot go on is made anew.
pub async fn consume(
    sink: GossipSink,
    settings: bus::sink::Settings,
    state: Arc<State>,
    stop: CancellationToken,
) {
    let sink = Arc::new(sink);
    let mut retry = BACKOFF.start();
    while !stop.is_cancelled() {
        let begun = Instant::now();
        let run = bus::sink::run(settings.clone(), Arc::clone(&sink), Arc::clone(&state), stop.clone());
        let Err(error) = run.await else { continue };
        let reason = runtime::telemetry::chain(&error);
        tracing::error!(
            reason,
            kafka.topic = settings.topic,
            "gossip is not consumed; a new consumer follows"
        );
        if matches!(error, bus::Error::NoOffset { .. }) {
            begin_anew(&sink).await;
        }
        retry.lasted(begun.elapsed());
        retry.wait(&stop).await;
    }
}

/// The topic lost what the stored offsets stand at (it was made anew, or retention passed them). What is gone was said
/// again or will be, and what is there bears repetition: reading begins with the oldest.
async fn begin_anew(sink: &GossipSink) {
    match runtime::deadline(CHECK_DEADLINE, "forgetting offsets", sink.forget_offsets()).await {
        Ok(Ok(())) => {
            tracing::warn!("the sink's offsets were lost by Kafka: it reads all gossip that is left");
        }
        Ok(Err(error)) => {
            tracing::error!(
                reason = runtime::telemetry::chain(&error),
                "the sink's offsets were not forgotten"
            );
        }
        Err(late) => tracing::error!(reason = %late, "the sink's offsets were not forgotten"),
    }
}

fn start_tidying(program: &Program, store: &Store, metrics: &Metrics, bounds: Bounds) {
    program.tasks.spawn("tidy", tidy::run(store.clone(), program.stop()));
    prune::start(program, store.clone(), metrics.clone(), bounds.keep.into());
}

fn watch_postgres(program: &Program, store: Store, member: Member) {
    let component = program.health.readiness.component("postgres");
    program.tasks.spawn(
        "watch postgres",
        watch(component, program.stop(), async move || {
            store.attend(&member).await.map_err(|error| runtime::telemetry::chain(&error))
        }),
    );
}

/// `partitions` are those of either topic.
fn limits(bounds: Bounds, partitions: i32) -> Limits {
    let Bounds { backlog_databases, backlog_seconds, record_bytes, .. } = bounds;
    let age = Duration::from_secs(backlog_seconds);
    Limits { databases: backlog_databases, age, partitions, record_bytes }
}

/// Tells whether the instructions' topic has as many partitions as this program is told. What the brokers do not answer
/// changes nothing of that.
fn watch_kafka(program: &Program, kafka: &Kafka) -> Result<watch::Receiver<bool>, Error> {
    let admin = Admin::new(&topics::connection(kafka, "slipway-backend-watch")).map_err(Error::Kafka)?;
    let component = program.health.readiness.component("kafka");
    let kafka = kafka.clone();
    let (tell, counted) = watch::channel(true);
    program.tasks.spawn(
        "watch kafka",
        watch(component, program.stop(), async move || {
            for topic in [&kafka.instructions_topic, &kafka.gossip_topic] {
                let checked = admin.check_partitions(topic, kafka.topic_partitions, CHECK_DEADLINE).await;
                if *topic == kafka.instructions_topic {
                    topics::note_count(&tell, checked.as_ref().err());
                }
                checked.map_err(|error| runtime::telemetry::chain(&error))?;
            }
            Ok(())
        }),
    );
    Ok(counted)
}

/// Asks on and on, and shows the answer as a component's state.
async fn watch<F>(component: Component, stop: CancellationToken, ask: F)
where
    F: AsyncFn() -> Result<(), String>,
{
    while !stop.is_cancelled() {
        match runtime::deadline(CHECK_DEADLINE, "an answer", ask()).await {
            Ok(Ok(())) => component.set_ok(),
            Ok(Err(reason)) => component.set_failing(reason),
            Err(late) => component.set_failing(late.to_string()),
        }
        runtime::backoff::sleep(CHECK_EVERY, &stop).await;
    }
}
