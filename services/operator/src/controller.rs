//! The loop: what is to be looked at comes in, passes run, each object one at a time and all of them bounded.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use kube::runtime::controller::{Config, applier};
use kube::runtime::reflector::ObjectRef;
use resources::{Phase, QuestDB};
use runtime::CancellationToken;
use runtime::health::Heartbeat;
use tokio::sync::mpsc::Receiver;

use crate::context::Context;
use crate::reconcile::{on_error, reconcile};

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
    let incoming = known.chain(incoming);
    // Ending the queue lets passes under way finish.
    let incoming = Box::pin(incoming.take_until(stop.clone().cancelled_owned()));
    let passes = applier(
        |resource, context| reconcile(resource, context).boxed(),
        |resource, error, context| on_error(&resource, error, &context),
        Arc::clone(&context),
        context.caches.resources.clone(),
        incoming,
        Config::default().concurrency(concurrency),
    );
    let passes = passes.for_each(|_| std::future::ready(()));
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
    let phase = |resource: &Arc<QuestDB>| resource.status.as_ref().and_then(|status| status.phase);
    let phases: Vec<&str> =
        known.iter().map(|resource| phase(resource).map_or("Pending", Phase::as_str)).collect();
    context.measures.phases(phases.into_iter());
    context.memories.retain(|uid| known.iter().any(|resource| resource.metadata.uid.as_deref() == Some(uid)));
}
