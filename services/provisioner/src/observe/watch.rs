//! One watch of the custom resources of a cluster, under one term.

use std::pin::pin;
use std::time::{Duration, Instant};

use domain::DatabaseId;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use kube::Api;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use resources::{QuestDB, Seen};
use store::Term;

use super::book::Book;
use super::sight::Sight;
use super::told::{Told, listen};
use super::translate::{self, observation};
use super::{End, Observer};
use crate::fleet::Member;

/// How often it is looked what is to be said again.
const ROLL: Duration = Duration::from_secs(1);
/// Errors in a row after which the watch is made anew, with the credentials of that moment.
const TOLERATED: u32 = 4;
/// How many rounds of the slow roll a watch may go on before everything is listed anew. What a server lost is not seen by a
/// watch that was resumed at a version which the server has reached again; a list shows it.
const ROUNDS: u32 = 3;
/// Patience with Postgres for the note that the cluster was listed.
const NOTE: Duration = Duration::from_secs(3);

/// Watches and tells, until the watch breaks for good.
pub(super) async fn run(observer: &Observer, member: &Member, term: Term, book: &mut Book) -> End {
    let Ok(clients) = member.clients() else { return End::NoClient };
    let mut stream = pin!(listen(Api::all(clients.watches), observer.watch).default_backoff());
    let (mut sending, mut noting) = (FuturesUnordered::new(), FuturesUnordered::new());
    let mut roll = tokio::time::interval(ROLL);
    let mut check = tokio::time::interval_at(tokio::time::Instant::now() + observer.check, observer.check);
    // Each watch at its own moment, so that not all clusters are listed at once.
    let lasts = (observer.period * ROUNDS).mul_f64(0.75 + 0.5 * runtime::backoff::random_share());
    let mut over = pin!(tokio::time::sleep(lasts));
    let mut listing = Listing::default();
    book.forget_on_its_way();
    loop {
        while let Some((database, seen)) = book.take(Instant::now()) {
            let message = observer.teller.observation(database, &member.cluster.id, seen);
            sending.push(observer.teller.send(message).map(move |sent| (database, sent)));
        }
        tokio::select! {
            told = stream.next() => match told {
                Some(Ok(told)) => {
                    listing.note(member, &told);
                    if note(member, book, told, term) {
                        return End::Restored;
                    }
                }
                Some(Err(error)) if listing.bears(member, &error) => {}
                Some(Err(_)) | None => return End::Broken,
            },
            // What did not arrive is tried again when its pause is over, and the roll comes round.
            Some((database, sent)) = sending.next() => arrived(observer, book, database, sent),
            _ = roll.tick() => {
                let now = Instant::now();
                book.roll(now, observer.period);
                observer.metrics.observed(&member.cluster.id, book.len());
                if listing.is_lost(member, now) {
                    return End::Broken;
                }
                if noting.is_empty() && let Some(told) = listing.told(book, now) {
                    noting.push(listed(observer, member, term, (book.len(), told)));
                }
            }
            Some(noted) = noting.next() => match noted {
                Noted::UpTo(told) => listing.sight.noted(told),
                Noted::NotNow => {}
                Noted::Lost => return End::Lost,
            },
            () = &mut over => return End::Over,
            _ = check.tick() => {
                // By the credentials of this moment: an open watch outlives those that it began with.
                let Ok(now) = member.clients() else { return End::NoClient };
                let checked = checked(&Api::all(now.calls), book, observer.call_timeout).await;
                if listing.judge(member, checked) {
                    return End::Restored;
                }
            }
        }
    }
}

/// Says whether the server was restored.
fn note(member: &Member, book: &mut Book, told: Told, term: Term) -> bool {
    let is_listed = matches!(told, Told::Listed(_));
    let (seen, present) = match told {
        Told::Begun(_) => {
            book.begin_list();
            return false;
        }
        Told::Complete(version) => {
            let restored = book.end_list(version);
            if restored {
                tracing::warn!(cluster.name = %member.cluster.id, "the API server's list is of an older version than was seen: it was restored");
            }
            return restored;
        }
        Told::UpTo(version) => {
            book.reach(version);
            return false;
        }
        Told::Listed(seen) | Told::Changed(seen) => (seen, true),
        Told::Gone(seen) => (seen, false),
    };
    let Seen { object, unread } = seen;
    let version = translate::version(&object);
    // A list is in no order of versions.
    if is_listed {
        book.note_version(version);
    } else {
        book.reach(version);
    }
    if let Some(reason) = unread {
        tracing::debug!(cluster.name = %member.cluster.id, k8s.name = object.metadata.name, reason, "a resource cannot be read in whole");
    }
    let Some((database, seen)) = observation(&object, term.0, present) else {
        if let Some(database) = translate::labelled(&object).filter(|_| present) {
            let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
            book.is_there(database, (namespace, object.metadata.name.as_deref().unwrap_or_default()));
        }
        return false;
    };
    let restored = book.see(database, seen);
    if restored {
        tracing::warn!(cluster.name = %member.cluster.id, "the API server shows an older version of a resource than was seen: it was restored");
    }
    restored
}

fn arrived(observer: &Observer, book: &mut Book, database: DatabaseId, sent: Result<(), bus::Error>) {
    let now = Instant::now();
    match sent {
        Ok(()) => {
            observer.metrics.gossip("observation");
            book.told(database, now);
        }
        Err(error) => {
            tracing::warn!(db.id = %database, error = &error as &dyn std::error::Error, "an observation was not told");
            book.not_told(database, now);
        }
    }
}

/// How far the watch is, and how often it failed in a row.
#[derive(Debug, Default)]
struct Listing {
    complete: bool,
    sight: Sight,
    failures: u32,
    /// Resources of the list that cannot be read in whole.
    unread: usize,
}

impl Listing {
    fn note(&mut self, member: &Member, told: &Told) {
        let now = Instant::now();
        match told {
            Told::Begun(at) => {
                (self.complete, self.unread) = (false, 0);
                self.sight.begin_list(*at);
                return;
            }
            Told::Listed(seen) => {
                self.unread += usize::from(seen.unread.is_some());
                return;
            }
            Told::Complete(version) => {
                self.complete = true;
                self.sight.end_list(*version, now);
                if self.unread > 0 {
                    tracing::warn!(cluster.name = %member.cluster.id, count = self.unread, "resources cannot be read in whole: the cluster's definition is newer than this program");
                }
            }
            Told::Changed(seen) | Told::Gone(seen) => self.sight.reach(translate::version(&seen.object), now),
            Told::UpTo(version) => self.sight.reach(*version, now),
        }
        // A list that breaks off half-way each time does not work either.
        self.failures = 0;
    }

    /// Whether the watch may go on after an error.
    fn bears(&mut self, member: &Member, error: &watcher::Error) -> bool {
        self.failures += 1;
        tracing::debug!(cluster.name = %member.cluster.id, "the watch is disturbed: {error}");
        if self.failures < TOLERATED {
            return true;
        }
        tracing::warn!(cluster.name = %member.cluster.id, error = error as &dyn std::error::Error, "the watch does not work and is made anew");
        false
    }

    /// What a list of the server means; `true`: it was restored.
    fn judge(&mut self, member: &Member, checked: Checked) -> bool {
        match checked {
            Checked::Well { version, at } => self.sight.ask(version, at, Instant::now()),
            Checked::Restored => {
                tracing::warn!(cluster.name = %member.cluster.id, "the API server stands at an older version than was seen: it was restored");
                return true;
            }
            Checked::NotListed(reason) => {
                tracing::warn!(cluster.name = %member.cluster.id, reason, "the cluster does not let itself be listed");
            }
        }
        false
    }

    /// Whether the watch does not show what the server says is there.
    fn is_lost(&self, member: &Member, now: Instant) -> bool {
        let is_lost = self.complete && self.sight.is_lost(now);
        if is_lost {
            tracing::warn!(cluster.name = %member.cluster.id, "the watch does not get to where the API server stands and is made anew");
        }
        is_lost
    }

    /// Up to when all that there was is told, where Postgres does not know yet. To be asked when the roll has just come round.
    fn told(&self, book: &Book, now: Instant) -> Option<Instant> {
        self.sight.told(book.waits(now), now).filter(|_| self.complete && book.is_told(now))
    }
}

/// Whether Postgres knows that the cluster was listed.
enum Noted {
    /// Up to this moment.
    UpTo(Instant),
    NotNow,
    Lost,
}

async fn listed(
    observer: &Observer,
    member: &Member,
    term: Term,
    (databases, told): (usize, Instant),
) -> Noted {
    let count = u64::try_from(databases).unwrap_or(u64::MAX);
    // Postgres counts from when it gets there, which may be so much later.
    let ago = told.elapsed() + NOTE;
    let note = observer.store.note_listed(&member.cluster.id, &observer.holder, term, (count, ago));
    match runtime::deadline(NOTE, "Postgres", note).await {
        Ok(Ok(true)) => Noted::UpTo(told),
        Ok(Ok(false)) => Noted::Lost,
        // It is tried again with the next roll; until then nobody believes that anything is missing.
        Ok(Err(_)) | Err(_) => Noted::NotNow,
    }
}

/// What a list of the server shows beside what was seen.
enum Checked {
    /// It lets itself be listed and stands no lower than what was seen: at this version, asked at this moment.
    Well { version: u64, at: Instant },
    /// It stands at an older version than one that was seen of it.
    Restored,
    /// It does not let itself be listed.
    NotListed(String),
}

async fn checked(api: &Api<QuestDB>, book: &mut Book, limit: Duration) -> Checked {
    let (params, at) = (ListParams::default().limit(1), Instant::now());
    let list = match runtime::deadline(limit, "the list", api.list_metadata(&params)).await {
        Ok(Ok(list)) => list,
        Ok(Err(error)) => return Checked::NotListed(runtime::telemetry::chain(&error)),
        Err(late) => return Checked::NotListed(late.to_string()),
    };
    let version = list.metadata.resource_version.as_deref().and_then(|text| text.parse::<u64>().ok());
    let Some(version) = version else {
        return Checked::NotListed("the list has no version".to_owned());
    };
    if version < book.newest() {
        return Checked::Restored;
    }
    book.note_version(version);
    Checked::Well { version, at }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::tests::member;
    use crate::observe::translate::tests::object;

    /// What proves that a watch is where its server stands is what shows that the server stands at less.
    #[test]
    fn whatever_a_server_tells_says_where_it_stands() {
        let (member, mut book, mut own) = (member(), Book::new(1, 1), object());
        own.spec.instruction = None;
        for (told, newest) in [
            (Told::Begun(Instant::now()), 0),
            (Told::Complete(7), 7),
            (Told::UpTo(9), 9),
            (Told::Changed(Seen { object: Box::new(own), unread: None }), 1234),
        ] {
            assert!(!note(&member, &mut book, told, Term(1)));
            assert_eq!(book.newest(), newest);
        }
    }
}
