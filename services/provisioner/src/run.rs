//! The program: everything connected, started in order, ended in the opposite one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bus::consumer::{Limits, State};
use bus::{Admin, Connection, Producer};
use runtime::backoff::Retry;
use runtime::{Backoff, CancellationToken, Program};
use secrecy::ExposeSecret as _;
use store::Store;

use crate::decide::Rules;
use crate::fleet::Fleet;
use crate::gossip::Teller;
use crate::letters::{self, Letters};
use crate::metrics::Metrics;
use crate::observe::Observer;
use crate::work::Worker;
use crate::{Args, bury, drain, fleet, health, observe};

/// Name of the program in logs, metrics and traces.
const NAME: &str = "slipway-provisioner";
/// How long Kafka may take to answer a question.
const ASK: Duration = Duration::from_secs(5);
/// How long the last gossip may take.
const FLUSH: Duration = Duration::from_secs(3);
/// How long to wait before another try, at start and after the consumer broke.
const AGAIN: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));

/// The program cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The frame of the program.
    #[error("run the program")]
    Program(#[source] runtime::program::Error),
    /// The database's URL is wrong, or its schema has outgrown this program.
    #[error("use the database")]
    Store(#[source] store::Error),
    /// A Kafka client cannot be made.
    #[error("use Kafka")]
    Bus(#[source] bus::Error),
}

/// Runs the program until a signal.
pub async fn run(args: Args) -> Result<(), Error> {
    let program =
        Program::start(runtime::service!(NAME), &args.telemetry, &args.ops).await.map_err(Error::Program)?;
    runtime::install_crypto();
    let (store, member) = connect(&args)?;
    store.refuse_outgrown(&member, ASK).await.map_err(Error::Store)?;
    let grace = args.grace;
    let frame = Frame {
        tasks: program.tasks.clone(),
        health: program.health.clone(),
        metrics: program.metrics.clone(),
    };
    let producer = start_with((store, member), &frame, &args)?;
    let result = program.run(grace + Duration::from_secs(6)).await.map_err(Error::Program);
    if let Err(error) = producer.flush(FLUSH).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the last gossip may be lost; it is said again"
        );
    }
    result
}

/// What a process gives the program: tests give one of their own.
#[derive(Debug)]
pub struct Frame {
    /// Where its tasks run.
    pub tasks: runtime::Tasks,
    /// Where it says how it is.
    pub health: runtime::Health,
    /// Where it counts.
    pub metrics: runtime::Metrics,
}

/// Starts all tasks of the program. Gives the producer, to be flushed when they have ended.
pub fn start(frame: &Frame, args: &Args) -> Result<Producer, Error> {
    start_with(connect(args)?, frame, args)
}

fn start_with(
    (store, member): (Store, store::Program),
    frame: &Frame,
    args: &Args,
) -> Result<Producer, Error> {
    let Parts { connection, producer, metrics, fleet, teller } = Parts::new(&store, frame, args)?;
    let worker = Arc::new(Worker {
        fleet: Arc::clone(&fleet),
        store: store.clone(),
        teller: teller.clone(),
        metrics: metrics.clone(),
        consumer: args.consumer_group.clone(),
        call_timeout: args.call_timeout,
        rules: Rules { largest: args.largest_record, partitions: Some(args.topic_partitions) },
        letters: Letters::default(),
    });
    let observer = Observer {
        store: store.clone(),
        teller,
        metrics: metrics.clone(),
        holder: format!("{NAME}/{}", domain::InstructionId::mint()),
        period: args.gossip_period,
        check: args.list_check_period,
        watch: args.watch_timeout,
        call_timeout: args.call_timeout,
        partitions: args.topic_partitions,
    };
    let stop = frame.tasks.stop();
    let state = Arc::new(State::default());
    let admin = Admin::new(&connection).map_err(Error::Bus)?;
    let tasks = &frame.tasks;
    let topics = [args.instructions_topic.clone(), args.gossip_topic.clone()];
    let asking = health::kafka(
        admin.clone(),
        topics.clone(),
        args.topic_partitions,
        frame.health.clone(),
        stop.clone(),
    );
    tasks.spawn("kafka", asking);
    tasks.spawn(
        "postgres",
        health::postgres((store, member), frame.health.clone(), metrics.clone(), stop.clone()),
    );
    tasks.spawn("state", health::consumer(Arc::clone(&state), frame.health.clone(), metrics, stop.clone()));
    tasks.spawn("letters", letters::keep(worker.letters.clone(), worker.store.clone(), stop.clone()));
    tasks.spawn("gossip", health::gossip(worker.teller.clone(), stop.clone()));
    tasks.spawn("guards", health::guards(Arc::clone(&fleet), worker.metrics.clone(), stop.clone()));
    tasks.spawn("fleet", keep_fleet(frame, fleet, &worker, observer, args.grace));
    let consuming = Consuming {
        settings: consumer_settings(args, connection),
        topics,
        partitions: args.topic_partitions,
        admin,
        worker,
        state,
        component: frame.health.readiness.component("consumer"),
    };
    tasks.spawn("consumer", consuming.run(stop));
    Ok(producer)
}

/// The way to Postgres, and as whom this program goes it.
fn connect(args: &Args) -> Result<(Store, store::Program), Error> {
    let settings = store::Settings { application: NAME.to_owned(), ..store::Settings::default() };
    let store = Store::connect(args.database_url.expose_secret(), &settings).map_err(Error::Store)?;
    Ok((store, store::Program::new(NAME, env!("CARGO_PKG_VERSION"))))
}

struct Parts {
    connection: Connection,
    producer: Producer,
    metrics: Metrics,
    fleet: Arc<Fleet>,
    teller: Teller,
}

impl Parts {
    fn new(store: &Store, frame: &Frame, args: &Args) -> Result<Self, Error> {
        let mut connection = Connection::new(&args.kafka_bootstrap, NAME);
        connection.properties.clone_from(&args.kafka_properties);
        connection.file.clone_from(&args.kafka_properties_file);
        let producer = Producer::new(&connection).map_err(Error::Bus)?;
        let metrics = Metrics::new(&frame.metrics);
        let settings = fleet::Settings {
            credentials_dir: args.credentials_dir.clone(),
            call_timeout: args.call_timeout,
            cluster_concurrency: args.cluster_concurrency,
        };
        let fleet = Fleet::new(store.clone(), settings, frame.health.clone(), metrics.clone());
        let component = frame.health.readiness.informative("gossip");
        let topic = (args.gossip_topic.as_str(), args.topic_partitions);
        let teller = Teller::new(producer.clone(), topic, component);
        Ok(Self { connection, producer, metrics, fleet, teller })
    }
}

/// Keeps the fleet, and starts probe, drain and observer of each cluster that joins it. What is drained at a stop has as long as
/// `grace` to finish.
fn keep_fleet(
    frame: &Frame,
    fleet: Arc<Fleet>,
    worker: &Arc<Worker>,
    observer: Observer,
    grace: Duration,
) -> impl Future<Output = ()> + Send + use<> {
    let (tasks, stop, worker) = (frame.tasks.clone(), frame.tasks.stop(), Arc::clone(worker));
    let keeper = Arc::clone(&fleet);
    let joins = AtomicU64::new(0);
    keeper.keep(stop.clone(), move |member| {
        let name = member.cluster.id.clone();
        tasks
            .spawn_once(format!("probe {name}"), Arc::clone(&fleet).probe(Arc::clone(&member), stop.clone()));
        tasks.spawn_once(
            format!("drain {name}"),
            drain::run(Arc::clone(&worker), Arc::clone(&member), stop.clone(), grace),
        );
        tasks.spawn_once(
            format!("bury {name}"),
            bury::run(Arc::clone(&worker), Arc::clone(&member), stop.clone()),
        );
        if member.is_to_be_observed() {
            // A cluster that is registered with other credentials has two observers for a moment: each is somebody else.
            let join = joins.fetch_add(1, Ordering::Relaxed);
            let observer = Observer { holder: format!("{}/{join}", observer.holder), ..observer.clone() };
            tasks.spawn_once(format!("observe {name}"), observe::run(observer, member, stop.clone()));
        }
    })
}

/// How to consume, by the program's arguments.
fn consumer_settings(args: &Args, connection: Connection) -> bus::consumer::Settings {
    let mut settings =
        bus::consumer::Settings::new(connection, &args.instructions_topic, &args.consumer_group);
    settings.offset_reset = args.offset_reset.into();
    settings.partitions = Some(args.topic_partitions);
    settings.limits = Limits { total: args.concurrency, group: args.cluster_concurrency };
    settings.grace = args.grace;
    settings
}

/// What consuming takes.
struct Consuming {
    settings: bus::consumer::Settings,
    /// Topics whose partitions must be as many as configured.
    topics: [String; 2],
    partitions: i32,
    admin: Admin,
    worker: Arc<Worker>,
    state: Arc<State>,
    component: runtime::health::Component,
}

impl Consuming {
    /// Consumes, and begins anew when a consumer breaks. Only what needs a person's decision ends it, or, if it comes
    /// while records are read, keeps it from going on.
    async fn run(self, stop: CancellationToken) -> Result<(), bus::Error> {
        if !self.check_topics(&stop).await? {
            return Ok(());
        }
        let mut retry = AGAIN.start();
        loop {
            self.component.set_ok();
            let begun = Instant::now();
            let (worker, state) = (Arc::clone(&self.worker), Arc::clone(&self.state));
            let error = match bus::consumer::run(self.settings.clone(), worker, state, stop.clone()).await {
                Ok(()) => return Ok(()),
                Err(error @ bus::Error::NoOffset { .. }) => return Err(error),
                Err(error) => error,
            };
            if stop.is_cancelled() {
                tracing::warn!(error = &error as &dyn std::error::Error, "the consumer did not end well");
                return Ok(());
            }
            retry.lasted(begun.elapsed());
            if !self.may_go_on(&error, &mut retry, &stop).await {
                return Ok(());
            }
        }
    }

    /// Waits until another consumer may begin, not ready meanwhile. `false`: stopped.
    async fn may_go_on(&self, error: &bus::Error, retry: &mut Retry, stop: &CancellationToken) -> bool {
        self.component.set_failing(runtime::telemetry::chain(error));
        if let bus::Error::PartitionCount { found, .. } = error {
            tracing::error!(error = error as &dyn std::error::Error, "nothing is consumed any more");
            return self.right_count(*found, stop).await;
        }
        tracing::error!(error = error as &dyn std::error::Error, "the consumer broke and is made anew");
        retry.wait(stop).await
    }

    /// Waits until the topic has the configured number of partitions again: a process that ended would only be started
    /// again. `false`: stopped.
    async fn right_count(&self, mut found: i32, stop: &CancellationToken) -> bool {
        let mut retry = AGAIN.start();
        while found != self.partitions {
            if !retry.wait(stop).await {
                return false;
            }
            found = self.admin.partitions(&self.settings.topic, ASK).await.unwrap_or(found);
        }
        true
    }

    /// Waits for the topics. `false`: stopped.
    async fn check_topics(&self, stop: &CancellationToken) -> Result<bool, bus::Error> {
        for topic in &self.topics {
            if !self.check_topic(topic, stop).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits for a topic with the right number of partitions; a wrong number is for a person to decide.
    async fn check_topic(&self, topic: &str, stop: &CancellationToken) -> Result<bool, bus::Error> {
        let mut retry = AGAIN.start();
        loop {
            match self.admin.check_partitions(topic, self.partitions, ASK).await {
                Ok(()) => return Ok(true),
                Err(error @ bus::Error::PartitionCount { .. }) => return Err(error),
                Err(error) => self.component.set_failing(runtime::telemetry::chain(&error)),
            }
            if !retry.wait(stop).await {
                return Ok(false);
            }
        }
    }
}
