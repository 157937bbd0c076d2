//! The parts put together: clients, caches, leadership, the loop, and what tells their health.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cloud::{
    Batching, CallReport, Cloud, ClusterView, Gathering, HostedZoneId, Lookup, ZoneView, ZoneWriter,
};
use kube::runtime::reflector::ObjectRef;
use resources::QuestDB;
use runtime::health::Heartbeat;
use runtime::{CancellationToken, Program};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::apply::contention::Contention;
use crate::args::Args;
use crate::caches::Caches;
use crate::client::{self, Clients};
use crate::clock::Clock;
use crate::context::Context;
use crate::controller;
use crate::count::Count;
use crate::database::Databases;
use crate::events::Events;
use crate::lease::{Candidate, Leadership};
use crate::memory::Memories;
use crate::metrics::Measures;
use crate::pictures::{self, LookAgain};
use crate::questions::{self, Question};
use crate::queue::Queue;
use crate::rates;
use crate::rights;
use crate::scope::Scope;
use crate::side::{self, Side};
use crate::strays::Strays;
use crate::unclaimed::Claims;
use crate::watch::{Need, Upkeep, Watches, Wiring};
use crate::work::Work;

/// Looks asked for and not begun: watches wait beyond that.
const QUEUE: usize = 1_024;
/// How long taking a picture of everything the cluster owns may take.
const PICTURE: Duration = Duration::from_mins(1);
/// How long ending may take.
const DRAIN: Duration = Duration::from_secs(15);
/// How long work waits for something that can be decided on: then databases are told why they are not.
const SEEN: Duration = Duration::from_secs(5);
/// How long the loop may take for a round.
const ROUND: Duration = Duration::from_mins(1);

/// Why the program did not start or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Telemetry, operations server or a task.
    #[error("run the operator")]
    Program(#[source] runtime::program::Error),
    /// The cluster cannot even be tried.
    #[error("connect to the cluster")]
    Client(#[source] client::Error),
    /// No client for QuestDB's HTTP port.
    #[error("prepare to ask QuestDB")]
    Http(#[source] reqwest::Error),
}

/// Runs the operator until it is asked to stop.
pub async fn run(args: Args) -> Result<(), Error> {
    let service = runtime::service!("slipway-operator");
    let program = Program::start(service, &args.telemetry, &args.ops).await.map_err(Error::Program)?;
    let (count, clock, strays) = (Count::new(&program.metrics), Clock::default(), Strays::default());
    let clients = api_server(&program, args.kubeconfig.as_deref(), &count, &clock).await?;
    let measures = Measures::new(&program.metrics, args.concurrency);
    let (queue, incoming) = Queue::new(QUEUE);
    let scope = args.scope();
    let watches = watches(&program, &scope, &args);
    let upkeep = Upkeep {
        scope: scope.clone(),
        need: Need::Databases,
        watches: watches.clone(),
        stop: program.stop(),
        tasks: program.tasks.clone(),
    };
    // What databases need is told apart: they wait for no snapshot.
    let side = Side::start(&clients.watches, &Upkeep { need: Need::Snapshots, ..upkeep.clone() });
    let wiring = Wiring { upkeep, queue: queue.clone(), strays: strays.clone() };
    let caches = Caches::start(&clients.watches, &wiring);
    // While everything is listed: certificates that its connections trust are read here.
    let cloud = connect(&args, &measures).await;
    let view = Arc::new(ClusterView::new(Arc::clone(&cloud), &args.cluster, PICTURE));
    let look_again = LookAgain { caches: caches.clone(), settings: args.settings(), queue };
    let claims = Claims::new(&program.metrics, &wiring.upkeep, (&caches, args.settings()));
    let tell = (look_again.clone(), claims, measures.clone());
    pictures::watch_account(&program, Arc::clone(&view), tell, pictures::account_age(args.resync));
    let (done, calls) = (CancellationToken::new(), clients.calls.clone());
    let (questions, asked) = mpsc::channel(questions::WAITING);
    let (candidate, leadership) = Candidate::new(calls, &args, watches.clone());
    program.tasks.spawn("leader", candidate.run(program.stop(), done.clone()));
    let zone = HostedZoneId::new(&args.hosted_zone_id);
    let context = Arc::new(Context {
        lookup: Lookup::new(&cloud, &args.cluster, Batching::default()),
        zone_view: ZoneView::new(Arc::clone(&cloud), zone.clone(), PICTURE),
        zone_writer: ZoneWriter::new(&cloud, zone, Gathering::default(), leadership.within()),
        events: Events::new(clients.calls.clone(), &args.cluster),
        client: clients.calls,
        databases: Databases::new().map_err(Error::Http)?,
        questions,
        side,
        settings: args.settings(),
        ec2_lag: args.ec2_lag,
        questdb_lag: args.questdb_lag,
        resync: args.resync,
        zone_period: args.zone_period,
        work: Work::new(&program.metrics),
        clock,
        strays,
        memories: Memories::default(),
        contention: Contention::default(),
        leadership,
        caches,
        watches,
        scope,
        cloud,
        view,
        measures,
    });
    lead(&program, (context, look_again), (incoming, asked), args.concurrency, done);
    program.run(DRAIN).await.map_err(Error::Program)
}

/// Clients of the API server. What a program for tokens gives is renewed until the operator stops.
async fn api_server(
    program: &Program,
    kubeconfig: Option<&Path>,
    count: &Count,
    clock: &Clock,
) -> Result<Clients, Error> {
    let (clients, renewal) = client::connect(kubeconfig, count, clock).await.map_err(Error::Client)?;
    if let Some(renewal) = renewal {
        let told = program.health.readiness.informative("credentials");
        program.tasks.spawn("credentials", renewal.keep(told, program.stop()));
    }
    Ok(clients)
}

/// All watches to come of what is in the scope.
fn watches(program: &Program, scope: &Scope, args: &Args) -> Watches {
    let rights = rights::command(scope, &args.lease_namespace);
    let watches = Watches::new(&program.metrics, &program.health.readiness, scope, rights);
    watches.standing().end_after(args.watch_timeout);
    watches
}

async fn connect(args: &Args, measures: &Measures) -> Arc<dyn Cloud> {
    let mut settings = cloud_aws::Settings::new(&args.region);
    settings.endpoint.clone_from(&args.aws_endpoint);
    settings.rates = rates::rates(&args.aws_rates);
    let measures = measures.clone();
    settings.on_call =
        Some(Arc::new(move |report: &CallReport<'_>| measures.aws(report.operation, report.category)));
    Arc::new(cloud_aws::Aws::connect(settings).await)
}

/// Works once it leads and knows what there is.
fn lead(
    program: &Program,
    (context, look_again): (Arc<Context>, LookAgain),
    (incoming, asked): (mpsc::Receiver<ObjectRef<QuestDB>>, mpsc::Receiver<Question>),
    concurrency: u16,
    done: CancellationToken,
) {
    // Shown and not required: a standby is as ready as a leader.
    let health = program.health.readiness.informative("leader");
    health.set_failing("another operator leads, or it is not seen yet what there is");
    let heartbeat = program.health.liveness.heartbeat("controller", ROUND);
    let stop = program.stop();
    program.tasks.spawn("controller", async move {
        let leadership = context.leadership.clone();
        let gained = gained(begins(leadership, &context), (&heartbeat, ROUND / 4));
        let gained = tokio::select! {
            gained = gained => gained,
            () = stop.cancelled() => false,
        };
        if gained {
            health.set_ok();
            context.measures.leads(true);
            look_again.queue.open();
            let beside = side::run(Arc::clone(&context), stop.clone());
            let zone = pictures::watch_zone(&context, &look_again, &stop);
            let databases =
                controller::run(Arc::clone(&context), incoming, concurrency, heartbeat, stop.clone());
            let tables = questions::ask_all(&context, &look_again.queue, asked, &stop);
            tokio::join!(databases, beside, zone, tables);
        }
        done.cancel();
    });
}

/// Waits for leadership, and until it is seen what lies in the cluster itself and which databases there are in one namespace:
/// any other comes in once it is seen.
async fn begins(mut leadership: Leadership, context: &Context) -> bool {
    let known =
        leadership.gained().await && context.watches.cluster_listed().await && context.caches.ready().await;
    if known {
        // Before that all looks would be in vain.
        context.watches.seen_somewhere(SEEN).await;
    }
    known
}

/// Waits until work begins.
async fn gained(ready: impl Future<Output = bool>, (heartbeat, every): (&Heartbeat, Duration)) -> bool {
    tokio::pin!(ready);
    let mut beats = tokio::time::interval(every);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            ready = &mut ready => return ready,
            // Waiting for the other one to fail is what a standby does.
            _ = beats.tick() => heartbeat.beat(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_standby_beats_for_however_long_it_waits_to_begin() {
        const EVERY: Duration = Duration::from_millis(200);
        let (leads, led) = tokio::sync::oneshot::channel::<()>();
        let liveness = runtime::health::Liveness::default();
        let heartbeat = liveness.heartbeat("controller", 4 * EVERY);
        let waiting = gained(async { led.await.is_ok() }, (&heartbeat, EVERY));
        tokio::pin!(waiting);
        for _ in 0..60 {
            let waited = tokio::time::timeout(EVERY / 4, &mut waiting).await;
            assert!(waited.is_err() && liveness.is_alive(std::time::Instant::now()));
        }
        leads.send(()).unwrap();
        assert!(waiting.await);
    }
}
