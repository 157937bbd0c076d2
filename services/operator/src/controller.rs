//! The loop: what is to be looked at comes in, passes run, each object one at a time and all of them bounded.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use kube::runtime::controller::{Action, Config, Error as TurnError, applier};
use kube::runtime::reflector::ObjectRef;
use resources::QuestDB;
use runtime::CancellationToken;
use runtime::health::Heartbeat;
use tokio::sync::mpsc::Receiver;

use crate::context::Context;
use crate::turn;

/// Between two counts of what there is.
const COUNT: Duration = Duration::from_secs(10);
/// How long passes under way may take at the end.
const GRACE: Duration = Duration::from_secs(5);

/// Runs until stopped. `done` is cancelled when no pass runs any more.
pub(crate) async fn run(
    context: Arc<Context>,
    queue: Receiver<ObjectRef<QuestDB>>,
    concurrency: u16,
    heartbeat: Heartbeat,
    stop: CancellationToken,
) {
    context.memories.take_over();
    let incoming = futures::stream::unfold(queue, |mut queue| async {
        let next = queue.recv().await?;
        Some((Ok::<_, Infallible>(next), queue))
    });
    let known = context.caches.resources.state();
    let known = futures::stream::iter(known.into_iter().map(|resource| Ok(ObjectRef::from_obj(&*resource))));
    let work = context.work.clone();
    let incoming = known.chain(incoming).inspect(move |asked: &Result<ObjectRef<QuestDB>, Infallible>| {
        if let Ok(asked) = asked {
            work.asked(asked.namespace.as_deref(), &asked.name);
        }
    });
    // Ending the queue lets passes under way finish.
    let incoming = Box::pin(incoming.take_until(stop.clone().cancelled_owned()));
    let passes = applier(
        |resource, context| turn::take(resource, context).map(Ok::<Action, Infallible>).boxed(),
        |_, _, _| Action::await_change(),
        Arc::clone(&context),
        context.caches.resources.clone(),
        incoming,
        Config::default().concurrency(concurrency),
    );
    let passes = passes.for_each(|turn| {
        if let Err(TurnError::ObjectNotFound(missing)) = turn {
            context.work.forget(missing.namespace.as_deref(), &missing.name);
            let namespace = missing.namespace.as_deref().unwrap_or_default();
            context.caches.given.forget(&ObjectRef::new(&missing.name).within(namespace));
        }
        std::future::ready(())
    });
    let count = async {
        loop {
            heartbeat.beat();
            count(&context);
            if !runtime::backoff::sleep(COUNT, &stop).await {
                break;
            }
        }
    };
    tokio::select! {
        () = passes => {}
        () = async { count.await; tokio::time::sleep(GRACE).await } => {}
    }
}

fn count(context: &Context) {
    let known = context.caches.resources.state();
    context.measures.databases(known.iter().map(AsRef::as_ref), Timestamp::now());
    let mut namespaces: HashMap<Option<&str>, usize> = HashMap::new();
    for resource in &known {
        *namespaces.entry(resource.metadata.namespace.as_deref()).or_default() += 1;
    }
    let hidden = namespaces.iter().filter(|(namespace, _)| context.watches.unseen(**namespace).is_some());
    context.measures.unseen(hidden.map(|(_, count)| count).sum());
    let uids: HashSet<&str> = known.iter().filter_map(|resource| resource.metadata.uid.as_deref()).collect();
    context.memories.retain(|uid| uids.contains(uid));
}
