//! The controllers beside that of databases: snapshots and their schedules. Both kinds are watched from the start, as
//! everything else is, and worked on once this process leads; passes are bounded, measured, traced and end with leadership,
//! as those over databases do.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use kube::core::NamespaceResourceScope;
use kube::runtime::controller::{Action, Config, applier};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Client, Resource};
use plan::Unseen;
use resources::names::snapshot::LABEL_SCHEDULE;
use resources::{QuestDB, QuestDBSnapshot, QuestDBSnapshotSchedule, Readable};
use runtime::CancellationToken;
use tokio::sync::{Semaphore, mpsc};

use crate::context::Context;
use crate::error::Error;
use crate::index::Index;
use crate::kept::Kept;
use crate::kept::brief::Uid;
use crate::memory::Memories;
use crate::metrics::{Census, Measures};
use crate::reconcile::{MISREAD, until_seen};
use crate::schedules::Schedules;
use crate::shown;
use crate::snapshots::{STANDS, Snapshots};
use crate::store::{Key, Store};
use crate::ticket::Tickets;
use crate::turn::{Next, Turns};
use crate::watch::{self, Concerned, Upkeep, Watches};

/// Snapshots that owe no release worked on at once: they may wait for EC2, and those that owe one must not wait for them.
const AT_LEISURE: u16 = 16;
/// Places that neither these take nor those whose databases come to a stand, which may take long too.
const LET_GO: u16 = 4;
/// Objects of one kind worked on at once.
const CONCURRENCY: u16 = AT_LEISURE + STANDS + LET_GO;
/// Until a place may be free.
const CROWDED: Duration = Duration::from_secs(1);
/// Looks asked for and not begun: watches wait beyond that.
const QUEUE: usize = 256;
/// What is remembered of objects is gone through once one is gone for so many that are left: if it were for each, ten thousand that vanish
/// would cost as much as a hundred million. So of a few that are gone something may be remembered still.
const LEFT_FOR_EACH_GONE: usize = 16;
/// How long passes under way may take at the end.
const GRACE: Duration = Duration::from_secs(5);

/// Everything of one kind in sight, and where looks at it are asked for once somebody takes them.
#[derive(Clone)]
struct Kind<K: Kept + Resource<DynamicType = ()>> {
    store: Store<K>,
    asks: Asks<K>,
}

/// Where looks are asked for. Before anybody works on the kind nobody has to be told: work begins with a look at everything.
struct Asks<K: Resource<DynamicType = ()>>(Arc<OnceLock<mpsc::Sender<ObjectRef<K>>>>);

impl<K: Resource<DynamicType = ()>> Clone for Asks<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Resource<DynamicType = ()>> Default for Asks<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Resource<DynamicType = ()>> Asks<K> {
    async fn ask(&self, all: Vec<Key>) {
        let Some(queue) = self.0.get() else { return };
        for what in all {
            // Closed only when the program ends.
            let _ = queue.send(what.reference()).await;
        }
    }
}

/// What is seen of snapshots and of their schedules.
#[derive(Clone)]
pub(crate) struct Side {
    snapshots: Kind<QuestDBSnapshot>,
    schedules: Kind<QuestDBSnapshotSchedule>,
    /// Snapshots by namespace and database.
    by_database: Arc<Index>,
    /// Orders for last copies, by namespace and stem.
    orders: Arc<Index>,
    watches: Watches,
}

impl Side {
    /// Starts all watches of both.
    pub(crate) fn start(client: &Client, upkeep: &Upkeep) -> Self {
        let all = watcher::Config::default();
        let (asks, of_schedules) = (Asks::default(), Asks::default());
        let (own, schedules) = (asks.clone(), of_schedules.clone());
        let concerned = <(Concerned, Concerned)>::default();
        let (orders, by_database) = <(Arc<Index>, Arc<Index>)>::default();
        let indexed = (Arc::clone(&orders), Arc::clone(&by_database));
        let store = watch::keep(upkeep, watch::namespaced(client, &upkeep.scope), &all, move |change| {
            indexed.0.take_in(&change.event, order_of);
            indexed.1.take_in(&change.event, database_of);
            let itself = |snapshot: &QuestDBSnapshot| Some(ObjectRef::from_obj(snapshot));
            let snapshots = concerned.0.after(&change, itself);
            let of_them = concerned.1.after(&change, schedule_of);
            let (own, schedules) = (own.clone(), schedules.clone());
            async move {
                own.ask(snapshots).await;
                schedules.ask(of_them).await;
            }
        });
        let snapshots = Kind { store, asks };
        let asks = of_schedules.clone();
        let concerned = Concerned::default();
        let store = watch::keep(upkeep, watch::namespaced(client, &upkeep.scope), &all, move |change| {
            let own = |schedule: &QuestDBSnapshotSchedule| Some(ObjectRef::from_obj(schedule));
            let (asks, schedules) = (asks.clone(), concerned.after(&change, own));
            async move { asks.ask(schedules).await }
        });
        let watches = upkeep.watches.clone();
        Self { snapshots, schedules: Kind { store, asks: of_schedules }, by_database, orders, watches }
    }

    /// Counts the schedules that there are.
    pub(crate) fn count(&self, census: &Census) {
        census.schedules(self.schedules.store.briefs().iter().map(|(_, brief)| brief.state()));
    }

    /// Why it is not known which snapshots there are in a namespace; nothing when it is.
    pub(crate) fn unseen(&self, namespace: &str) -> Option<Unseen> {
        self.watches.unseen_of(&QuestDBSnapshot::kind(&()), namespace)
    }

    /// A snapshot by its name, where it is known which there are.
    pub(crate) fn snapshot(&self, namespace: &str, name: &str) -> Option<Arc<QuestDBSnapshot>> {
        self.snapshots.store.get(&Key::new(Some(namespace), name))
    }

    /// The snapshots of one database, where it is known which there are.
    pub(crate) fn snapshots_of(&self, namespace: Option<&str>, database: &str) -> Vec<Arc<QuestDBSnapshot>> {
        self.found(&self.by_database, &place(namespace.unwrap_or_default(), database))
    }

    /// The orders for last copies that go by one stem, where it is known which there are.
    pub(crate) fn orders(&self, namespace: &str, stem: &str) -> Vec<Arc<QuestDBSnapshot>> {
        self.found(&self.orders, &place(namespace, stem))
    }

    fn found(&self, index: &Index, place: &str) -> Vec<Arc<QuestDBSnapshot>> {
        index.of(place).iter().filter_map(|key| self.snapshots.store.get(key)).collect()
    }

    /// Waits until it is known which snapshots there are in a namespace.
    async fn snapshots_known(&self) -> bool {
        self.snapshots.store.ready().await
    }

    /// Waits until it is known which schedules and which snapshots there are in a namespace.
    async fn schedules_known(&self) -> bool {
        self.snapshots_known().await && self.schedules.store.ready().await
    }
}

fn place(namespace: &str, stem: &str) -> String {
    format!("{namespace}/{stem}")
}

fn order_of(snapshot: &QuestDBSnapshot) -> Option<String> {
    let stem = plan::stem_of_order(snapshot.metadata.name.as_deref()?)?;
    Some(place(snapshot.metadata.namespace.as_deref()?, stem))
}

fn database_of(snapshot: &QuestDBSnapshot) -> Option<String> {
    Some(place(snapshot.metadata.namespace.as_deref()?, &snapshot.spec.database))
}

fn schedule_of(snapshot: &QuestDBSnapshot) -> Option<ObjectRef<QuestDBSnapshotSchedule>> {
    let name = snapshot.metadata.labels.as_ref()?.get(LABEL_SCHEDULE)?;
    Some(ObjectRef::new(name).within(snapshot.metadata.namespace.as_deref()?))
}

/// Runs both until stopped. One whose kind cannot be watched waits, and holds nothing else up.
pub(crate) async fn run(context: Arc<Context>, stop: CancellationToken) {
    let both = async { tokio::join!(snapshots(&context, &stop), schedules(&context, &stop)) };
    tokio::select! {
        _ = both => {}
        () = async { stop.cancelled().await; tokio::time::sleep(GRACE).await } => {}
    }
}

async fn snapshots(context: &Arc<Context>, stop: &CancellationToken) {
    let Side { snapshots: kind, .. } = &context.side;
    let shared = Arc::new(Snapshots::new(Arc::clone(context)));
    let (measures, memory) = (context.measures.of("questdbsnapshot", CONCURRENCY), Arc::clone(&shared));
    let places = Arc::new(Semaphore::new(usize::from(AT_LEISURE)));
    let take = move |resource: Arc<QuestDBSnapshot>| {
        let (shared, measures, places) = (Arc::clone(&shared), measures.clone(), Arc::clone(&places));
        async move {
            let owes = plan::snapshot::owes(&resource);
            let Ok(_place) = (!owes).then(|| places.try_acquire_owned()).transpose() else {
                return Action::requeue(CROWDED.mul_f64(1.0 + runtime::backoff::random_share()));
            };
            let pass = Box::pin(shared.pass(&resource));
            let next = turn(&shared.context, &measures, &shared.memories, (&*resource, owes), pass).await;
            shared.in_time(&resource, next).action()
        }
        .boxed()
    };
    let known = context.side.snapshots_known();
    serve(kind, known, stop, take, |uids| memory.retain(|uid| uids.contains(uid))).await;
}

async fn schedules(context: &Arc<Context>, stop: &CancellationToken) {
    let Side { schedules: kind, .. } = &context.side;
    let shared = Arc::new(Schedules::new(Arc::clone(context)));
    let memories = Arc::new(Memories::default());
    let (measures, memory) =
        (context.measures.of("questdbsnapshotschedule", CONCURRENCY), Arc::clone(&memories));
    let passes = Arc::clone(&shared);
    let take = move |resource: Arc<QuestDBSnapshotSchedule>| {
        let (shared, measures) = (Arc::clone(&shared), measures.clone());
        let memories = Arc::clone(&memories);
        async move {
            let pass = Box::pin(shared.pass(&resource));
            turn(&shared.context, &measures, &memories, (&*resource, false), pass).await.action()
        }
        .boxed()
    };
    let known = context.side.schedules_known();
    let keep = |uids: &HashSet<String>| {
        memory.retain(|uid| uids.contains(uid));
        passes.retain(|uid| uids.contains(uid));
    };
    serve(kind, known, stop, take, keep).await;
}

/// Takes turns once it is `known` what there is. `keep` forgets all but these objects, by uid.
async fn serve<K>(
    kind: &Kind<K>,
    known: impl Future<Output = bool>,
    stop: &CancellationToken,
    take: impl Fn(Arc<K>) -> BoxFuture<'static, Action>,
    keep: impl Fn(&HashSet<String>),
) where
    K: Kept + Resource<DynamicType = ()>,
    K::Brief: AsRef<Uid>,
{
    let known = tokio::select! {
        known = known => known,
        () = stop.cancelled() => false,
    };
    if !known {
        return;
    }
    let (sender, asked) = mpsc::channel(QUEUE);
    // Leadership is gained once. What changes from here on is asked for, what there is by now is looked at first.
    let _ = kind.asks.0.set(sender);
    let asked = futures::stream::unfold(asked, |mut asked| async { Some((asked.recv().await?, asked)) });
    let asked = futures::stream::iter(kind.store.keys()).chain(asked.map(|asked| Key::to(&asked)));
    let tickets = &Tickets::<K>::new();
    let incoming = asked.map(|key| Ok::<_, Infallible>(tickets.issue(key)));
    // Ending the queue lets passes under way finish.
    let incoming = Box::pin(incoming.take_until(stop.clone().cancelled_owned()));
    let turns = applier(
        |ticket, _| {
            let turn = kind.store.get(&ticket.key).map(&take);
            // Of one that is gone there is none.
            let turn = turn.unwrap_or_else(|| std::future::ready(Action::await_change()).boxed());
            turn.map(Ok::<Action, Infallible>)
        },
        |_, _, _| Action::await_change(),
        Arc::new(()),
        tickets.store(),
        incoming,
        Config::default().concurrency(CONCURRENCY),
    );
    let mut gone = 0;
    let turns = turns.for_each(|turn| {
        gone += usize::from(tickets.gone(&kind.store, &turn).is_some());
        if is_worth_it(gone, kind.store.count()) {
            gone = 0;
            let known = kind.store.briefs();
            let uids = known.iter().filter_map(|(_, brief)| AsRef::<Uid>::as_ref(brief).get());
            keep(&uids.map(str::to_owned).collect());
        }
        std::future::ready(())
    });
    turns.await;
}

/// Whether to go through what is remembered of all objects, for the sake of so many that are gone.
const fn is_worth_it(gone: usize, left: usize) -> bool {
    gone > 0 && gone.saturating_mul(LEFT_FOR_EACH_GONE) >= left
}

/// Why something of a namespace is not seen that an object of this kind rests on. A schedule that saw none of its snapshots would
/// take them anew, and keep none of them. A snapshot that owes its database a release is not held up by what was seen long ago:
/// what its release rests on is read from the API server, from QuestDB and from EC2.
fn hidden<K: Resource<DynamicType = ()>>(
    watches: &Watches,
    namespace: Option<&str>,
    owes: bool,
) -> Option<Unseen> {
    let place = namespace.unwrap_or_default();
    let kinds = [QuestDBSnapshot::kind(&()), K::kind(&())];
    let listed = |kind: &str| watches.was_listed(kind, place);
    if owes && listed(&QuestDB::kind(&())) && kinds.iter().all(|kind| listed(kind)) {
        return None;
    }
    let of = |kind: &str| watches.unseen_of(kind, place);
    watches.unseen(namespace).or_else(|| kinds.iter().find_map(|kind| of(kind)))
}

async fn turn<K: Readable + Resource<Scope = NamespaceResourceScope> + Clone + std::fmt::Debug>(
    context: &Context,
    measures: &Measures,
    memories: &Memories,
    (resource, owes): (&K, bool),
    pass: impl Future<Output = Result<Next, Error>>,
) -> Next {
    let (metadata, started) = (resource.meta(), Instant::now());
    let span = tracing::info_span!(
        "reconcile",
        k8s.kind = %K::kind(&()),
        k8s.name = metadata.name,
        k8s.namespace = metadata.namespace,
    );
    let turns = Turns { leadership: &context.leadership, measures, memories };
    let hidden = hidden::<K>(&context.side.watches, metadata.namespace.as_deref(), owes);
    let pass = async {
        if let Some(what) = plan::unread(resource) {
            context.events.wrong(resource, MISREAD, what.clone()).await;
            shown::ask(context, resource, |_| true).await;
            // Of all that it asks for, only the release that it owes is done.
            if !owes {
                return Err(Error::Definition { what });
            }
        }
        match hidden {
            Some(unseen) => Ok(Next::Soon(until_seen(&unseen, runtime::backoff::random_share()))),
            None => pass.await,
        }
    };
    turns.take(resource, span, pass, |_| started.elapsed()).await
}
