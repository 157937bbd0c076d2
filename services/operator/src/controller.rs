//! The loop: what is to be looked at comes in, passes run, each object one at a time and all of them bounded.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, Stream, StreamExt as _};
use kube::runtime::controller::{Action, Config, applier};
use kube::runtime::reflector::ObjectRef;
use resources::QuestDB;
use runtime::CancellationToken;
use runtime::health::Heartbeat;
use tokio::sync::mpsc::Receiver;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use crate::context::Context;
use crate::gather::Gather;
use crate::store::Key;
use crate::ticket::Tickets;
use crate::turn;

/// Between two signs of life.
const BEAT: Duration = Duration::from_secs(10);
/// Signs of life for each count of what there is: it goes through everything, and nobody scrapes more often.
const BEATS: u32 = 3;
/// Between two attempts to read what is there.
const UNREAD: Duration = Duration::from_mins(1);
/// So many looks are handed over at once.
const PART: usize = 32;
/// Between two looks at one that is shown as it was before our last write.
const OVERTAKEN: Duration = Duration::from_millis(400);
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
    let (work, gather) = (context.work.clone(), Gather::default());
    let asked = gather.clone().looks(queue, work.clone());
    let known = futures::stream::iter(context.caches.resources.keys()).map(move |key| {
        work.asked(key.namespace(), key.name());
        key
    });
    let tickets = &Tickets::<QuestDB>::new();
    let incoming = in_parts(known.chain(asked)).map(move |key| Ok::<_, Infallible>(tickets.issue(key)));
    // Ending the queue lets passes under way finish.
    let incoming = Box::pin(incoming.take_until(stop.clone().cancelled_owned()));
    let passes = applier(
        |ticket, context| {
            let turn = gather.begin(&ticket.key);
            let taken = spread(take(ticket.key.clone(), context)).map(move |action| {
                drop(turn);
                Ok::<Action, Infallible>(action)
            });
            taken.boxed()
        },
        |_, _, _| Action::await_change(),
        Arc::clone(&context),
        tickets.store(),
        incoming,
        Config::default().concurrency(concurrency),
    );
    let passes = passes.for_each(|turn| {
        if let Some(gone) = tickets.gone(&context.caches.resources, &turn) {
            context.work.forget(gone.namespace(), gone.name());
            context.caches.given.forget(&gone.reference());
        }
        std::future::ready(())
    });
    let count = async {
        for beat in (0..BEATS).cycle() {
            heartbeat.beat();
            if beat == 0 {
                count(&context);
                context.strays.forget_gone(&context.caches.resources);
            }
            if !runtime::backoff::sleep(BEAT, &stop).await {
                break;
            }
        }
    };
    tokio::select! {
        () = passes => {}
        () = async { count.await; tokio::time::sleep(GRACE).await } => {}
    }
}

/// What is to be looked at, part by part: kube takes in whatever can be had before it lets a turn begin, and of ten thousand the first
/// ones would wait for the last, at the beginning as well as when an event concerned all of them.
fn in_parts(keys: impl Stream<Item = Key>) -> impl Stream<Item = Key> {
    keys.enumerate().then(|(number, key)| async move {
        if number > 0 && number.is_multiple_of(PART) {
            tokio::task::yield_now().await;
        }
        key
    })
}

/// A turn of a database as it is when the turn begins; of one that is gone there is none. Nor of one that is not shown yet as we wrote
/// it just now: each further write would be refused, and be tried again only after a pause. Once it shows, a look is asked for; where it
/// does not show in time, it is looked at as it is shown.
async fn take(key: Key, context: Arc<Context>) -> Action {
    match context.caches.resources.get(&key) {
        Some(resource) if context.memories.is_overtaken(&resource.metadata) => {
            context.work.put_off(key, OVERTAKEN);
            Action::requeue(OVERTAKEN)
        }
        Some(resource) => turn::take(resource, context).await,
        // It is there and was not read, which the log tells of, or is there again.
        None if context.caches.resources.has(&key) => Action::requeue(UNREAD),
        None => Action::await_change(),
    }
}

/// A turn as a task of its own, so that turns make use of all processors; it ends when nobody waits for it any more.
async fn spread(turn: impl Future<Output = Action> + Send + 'static) -> Action {
    match AbortOnDropHandle::new(tokio::spawn(turn.in_current_span())).await {
        Ok(action) => action,
        // Those of passes are caught: this one is the loop's.
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The program ends.
        Err(_) => Action::await_change(),
    }
}

fn count(context: &Context) {
    let known = context.caches.resources.briefs();
    let remembers = !context.memories.is_empty();
    let (mut namespaces, mut uids) = (HashMap::<Option<&str>, usize>::new(), HashSet::<&str>::new());
    // In one go: of ten thousand, most of the time goes into fetching them from memory.
    let each = known.iter().inspect(|(key, brief)| {
        *namespaces.entry(key.namespace()).or_default() += 1;
        uids.extend(brief.uid().filter(|_| remembers));
    });
    context.measures.census.databases(each.map(|(_, brief)| brief), context.clock.now());
    let hidden = namespaces.iter().filter(|(namespace, _)| context.watches.unseen(**namespace).is_some());
    context.measures.census.unseen(hidden.map(|(_, count)| count).sum());
    context.side.count(&context.measures.census);
    if remembers {
        context.memories.retain(|uid| uids.contains(uid));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn what_there_is_can_be_had_in_parts() {
        let keys: Vec<_> = (0..70).map(|number: u32| Key::new(Some("n"), &number.to_string())).collect();
        let mut asked = Box::pin(in_parts(futures::stream::iter(keys.clone())));
        let (mut all, mut parts) = (Vec::new(), Vec::new());
        while all.len() < keys.len() {
            let before = all.len();
            while let Some(key) = asked.next().now_or_never().flatten() {
                all.push(key);
            }
            parts.push(all.len() - before);
        }
        assert_eq!((all, parts), (keys, vec![32, 32, 6]));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn turns_are_taken_on_all_processors() {
        let ((to_one, of_one), (to_other, of_other)) = (mpsc::channel(), mpsc::channel());
        let meets = |told: mpsc::Sender<()>, hears: mpsc::Receiver<()>| async move {
            told.send(()).unwrap();
            // A processor of its own is all that lets the other one speak meanwhile.
            let met = hears.recv_timeout(Duration::from_secs(30)).is_ok();
            Some(Action::await_change()).filter(|_| met).unwrap_or_else(|| Action::requeue(Duration::ZERO))
        };
        let both = futures::join!(spread(meets(to_other, of_one)), spread(meets(to_one, of_other)));
        assert_eq!(both, (Action::await_change(), Action::await_change()));
    }

    #[tokio::test]
    async fn a_turn_that_nobody_waits_for_ends() {
        let (held, mut ends) = tokio::sync::mpsc::channel::<()>(1);
        let begun = Arc::new(tokio::sync::Notify::new());
        let begins = Arc::clone(&begun);
        let turn = spread(async move {
            let _held = held;
            begins.notify_one();
            std::future::pending().await
        });
        let mut turn = Box::pin(turn);
        tokio::select! {
            _ = &mut turn => unreachable!("it never ends by itself"),
            () = begun.notified() => {}
        }
        drop(turn);
        let ended = tokio::time::timeout(Duration::from_secs(30), ends.recv()).await;
        assert_eq!(ended, Ok(None));
    }
}
