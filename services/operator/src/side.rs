//! The controllers beside that of databases: snapshots and their schedules. They watch by themselves once this process
//! leads; passes are bounded, measured, traced and end with leadership, as those over databases do.

use std::convert::Infallible;
use std::fmt::Debug;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, Resource};
use resources::names::snapshot::LABEL_SCHEDULE;
use resources::{QuestDBSnapshot, QuestDBSnapshotSchedule};
use runtime::CancellationToken;
use serde::de::DeserializeOwned;
use tracing::Instrument as _;

use crate::context::Context;
use crate::error::Error;
use crate::memory::Memories;
use crate::metrics::Measures;
use crate::schedules::Schedules;
use crate::snapshots::Snapshots;
use crate::turn::Next;

/// Objects of one kind worked on at once.
const CONCURRENCY: u16 = 16;

/// How long passes under way may take at the end.
const GRACE: Duration = Duration::from_secs(5);

/// Where objects are watched.
pub(crate) struct Scope {
    pub(crate) client: Client,
    /// All namespaces when absent.
    pub(crate) namespace: Option<String>,
}

impl Scope {
    fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }
}

/// Runs both until stopped.
pub(crate) async fn run(context: Arc<Context>, stop: CancellationToken) {
    let controller = Controller::new(context.scope.api(), watcher::Config::default());
    let known = controller.store();
    let snapshots = match Snapshots::new(Arc::clone(&context), known.clone()) {
        Ok(snapshots) => Arc::new(snapshots),
        Err(error) => {
            tracing::error!(error = %runtime::telemetry::chain(&error), "no snapshots: no HTTP client");
            return;
        }
    };
    let measures = context.measures.of("questdbsnapshot");
    let snapshots = serve(controller, &stop, move |resource: Arc<QuestDBSnapshot>| {
        let (shared, measures) = (Arc::clone(&snapshots), measures.clone());
        Box::pin(async move {
            let pass = Box::pin(shared.pass(&resource));
            turn(&shared.context, &measures, &shared.memories, &*resource, pass).await
        })
    });
    let schedules = Arc::new(Schedules { context: Arc::clone(&context), known });
    let memories = Arc::new(Memories::default());
    let measures = context.measures.of("questdbsnapshotschedule");
    let controller = Controller::new(context.scope.api(), watcher::Config::default()).watches(
        context.scope.api(),
        watcher::Config::default(),
        |snapshot| schedule_of(&snapshot),
    );
    let schedules = serve(controller, &stop, move |resource: Arc<QuestDBSnapshotSchedule>| {
        let (shared, measures) = (Arc::clone(&schedules), measures.clone());
        let memories = Arc::clone(&memories);
        Box::pin(async move {
            let pass = Box::pin(shared.pass(&resource));
            turn(&shared.context, &measures, &memories, &*resource, pass).await
        })
    });
    tokio::select! {
        _ = async { tokio::join!(snapshots, schedules) } => {}
        () = async { stop.cancelled().await; tokio::time::sleep(GRACE).await } => {}
    }
}

fn schedule_of(snapshot: &QuestDBSnapshot) -> Option<ObjectRef<QuestDBSnapshotSchedule>> {
    let name = snapshot.metadata.labels.as_ref()?.get(LABEL_SCHEDULE)?;
    Some(ObjectRef::new(name).within(snapshot.metadata.namespace.as_deref()?))
}

async fn serve<K>(
    controller: Controller<K>,
    stop: &CancellationToken,
    turn: impl Fn(Arc<K>) -> futures::future::BoxFuture<'static, Action> + Send + Sync + 'static,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    controller
        .with_config(Config::default().concurrency(CONCURRENCY))
        .graceful_shutdown_on(stop.clone().cancelled_owned())
        .run(
            move |resource, _| turn(resource).map(Ok::<Action, Infallible>),
            |_, _, _| Action::await_change(),
            Arc::new(()),
        )
        .for_each(|_| std::future::ready(()))
        .await;
}

/// One turn of one object: a pass that ends with this process's leadership and whose panic is the business of that
/// object alone.
async fn turn<K: Resource<DynamicType = ()>>(
    context: &Context,
    measures: &Measures,
    memories: &Memories,
    resource: &K,
    pass: impl Future<Output = Result<Next, Error>>,
) -> Action {
    let metadata = resource.meta();
    let kind = K::kind(&());
    let span = tracing::info_span!(
        "reconcile",
        k8s.kind = %kind,
        k8s.name = metadata.name,
        k8s.namespace = metadata.namespace,
    );
    let (started, _active) = (Instant::now(), measures.begun());
    let pass = AssertUnwindSafe(pass).catch_unwind().instrument(span);
    let result = match context.leadership.while_leading(pass).await {
        Some(Ok(result)) => result,
        Some(Err(_)) => {
            measures.panicked();
            Err(Error::Panic)
        }
        None => Err(Error::Lease),
    };
    let uid = metadata.uid.as_deref().unwrap_or_default();
    if result.is_ok() {
        memories.succeeded(uid);
    }
    let next = result.unwrap_or_else(|error| {
        let lasting = error.is_lasting();
        measures.failed(error.category(), lasting);
        if !error.is_conflict() {
            let text = runtime::telemetry::chain(&error);
            tracing::warn!(k8s.kind = %kind, k8s.name = metadata.name, error = text, "a pass failed");
        }
        Next::Failed { delay: memories.failed(uid, lasting), lasting }
    });
    measures.ended(next.result(), started.elapsed());
    next.action()
}
