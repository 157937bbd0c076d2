//! One watch of the custom resources of a cluster, under one term.

use std::pin::pin;
use std::time::{Duration, Instant};

use domain::DatabaseId;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use kube::Api;
use kube::api::ListParams;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use resources::QuestDB;
use store::Term;

use super::book::Book;
use super::translate::observation;
use super::{End, Observer};
use crate::fleet::Member;

/// How many records are on their way at once.
const ON_THEIR_WAY: usize = 256;
/// How often it is looked what is to be said again.
const ROLL: Duration = Duration::from_secs(1);
/// How often the server is asked for the version it stands at: one that was restored from a backup keeps watches open
/// and silent for minutes.
const CHECK: Duration = Duration::from_mins(3);
/// Errors in a row after which the watch is made anew, with the credentials of that moment.
const TOLERATED: u32 = 4;
/// The pause after gossip could not be sent.
const UNSENT: Duration = Duration::from_secs(1);

/// Watches and tells, until the watch breaks for good.
pub(super) async fn run(observer: &Observer, member: &Member, term: Term, book: &mut Book) -> End {
    let Ok(clients) = member.clients() else { return End::NoClient };
    let config = watcher::Config::default();
    let stream = watcher(Api::<QuestDB>::all(clients.watches), config).default_backoff();
    let mut stream = pin!(stream);
    let check_api = Api::<QuestDB>::all(clients.calls);
    let mut sending = FuturesUnordered::new();
    let mut roll = tokio::time::interval(ROLL);
    let mut check = tokio::time::interval_at(tokio::time::Instant::now() + CHECK, CHECK);
    let mut failures = 0;
    let mut quiet_until = Instant::now();
    book.forget_on_its_way();
    loop {
        while sending.len() < ON_THEIR_WAY
            && Instant::now() >= quiet_until
            && let Some((database, seen)) = book.take()
        {
            let message = observer.teller.observation(database, &member.cluster.id, seen);
            sending.push(observer.teller.send(message).map(move |sent| (database, sent)));
        }
        tokio::select! {
            event = stream.next() => match event {
                Some(Ok(event)) => {
                    failures = 0;
                    note(book, event, term);
                }
                Some(Err(error)) => {
                    failures += 1;
                    tracing::debug!(cluster.name = %member.cluster.id, "the watch is disturbed: {error}");
                    if failures >= TOLERATED {
                        tracing::warn!(cluster.name = %member.cluster.id, error = &error as &dyn std::error::Error, "the watch does not work and is made anew");
                        return End::Broken;
                    }
                }
                None => return End::Broken,
            },
            Some((database, sent)) = sending.next() => {
                if !arrived(observer, book, database, sent) {
                    // Not at once: the next one would fare no better. The roll comes round and tries again.
                    quiet_until = Instant::now() + UNSENT;
                }
            }
            _ = roll.tick() => {
                book.roll(Instant::now(), observer.period);
                observer.metrics.observed(&member.cluster.id, book.len());
            }
            _ = check.tick() => {
                if was_restored(&check_api, book, observer.call_timeout).await {
                    tracing::warn!(cluster.name = %member.cluster.id, "the API server stands at an older version than was seen: it was restored");
                    return End::Restored;
                }
            }
        }
    }
}

fn note(book: &mut Book, event: Event<QuestDB>, term: Term) {
    let (object, present) = match event {
        Event::Init => return book.begin_list(),
        Event::InitDone => return book.end_list(),
        Event::InitApply(object) | Event::Apply(object) => (object, true),
        Event::Delete(object) => (object, false),
    };
    if let Some((database, seen)) = observation(&object, term.0, present) {
        book.see(database, seen);
    }
}

fn arrived(observer: &Observer, book: &mut Book, database: DatabaseId, sent: Result<(), bus::Error>) -> bool {
    match sent {
        Ok(()) => {
            observer.metrics.gossip("observation");
            book.told(database, Instant::now());
            true
        }
        Err(error) => {
            tracing::warn!(db.id = %database, error = &error as &dyn std::error::Error, "an observation was not told");
            book.not_told(database);
            false
        }
    }
}

/// Whether the server stands at an older version than one that was seen of it.
async fn was_restored(api: &Api<QuestDB>, book: &mut Book, limit: Duration) -> bool {
    let params = ListParams::default().limit(1);
    let listed = runtime::deadline(limit, "the list", api.list_metadata(&params)).await;
    let Ok(Ok(list)) = listed else { return false };
    let version = list.metadata.resource_version.as_deref().and_then(|text| text.parse::<u64>().ok());
    let Some(version) = version else { return false };
    let restored = version < book.newest();
    if !restored {
        book.note_version(version);
    }
    restored
}
