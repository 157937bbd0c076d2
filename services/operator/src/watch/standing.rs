//! Whether what is watched is still the store that it was. One that was restored from a copy has lost what was written since,
//! and no watch tells of it: one that waits for what comes after a version which there is not yet any more stays silent until the
//! server gets there, and then tells only what comes after.
//!
//! The version of a single object tells, however young the copy is and however much was written after it: that of the
//! leader's lease, which somebody writes every two seconds and every candidate reads past all caches. Where it falls, all watches
//! are begun anew, with a list. Between two readings of a standby it may have fallen and risen again: so whoever finds it fallen
//! begins a new term with what it writes next, and a term that somebody else began is as good as a fall. What nobody noticed has
//! its bound all the same: no watch goes on for ever without a list.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::runtime::watcher::{self, Error, Event};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{boxed, pauses, trouble};

/// Within which all watches are begun anew.
const SPREAD: Duration = Duration::from_secs(3);
/// How long a list may take until what it has is seen.
const LISTING: Duration = Duration::from_secs(30);
/// How long a watch goes on after its list, within a quarter more or less: all of them at once would be a burden, and a list has
/// all that it shows looked at.
const LASTS: Duration = Duration::from_hours(12);
/// How long the API server serves one request of a watch unless it is told otherwise, in seconds. One that is silent for five more is
/// dead, whether anybody says so or not, and is begun again where it was.
const ENDS: u32 = 290;

/// The lease as it was read last, and how often all watches were begun anew.
#[derive(Debug)]
pub(crate) struct Standing {
    last: Mutex<Option<At>>,
    anew: watch::Sender<u64>,
    /// When they were begun anew because something was told otherwise than it is shown.
    mistold: Mutex<Option<Instant>>,
    ends: AtomicU32,
    /// How often kinds of others were defined otherwise.
    others: watch::Sender<u64>,
}

impl Default for Standing {
    fn default() -> Self {
        let ends = AtomicU32::new(ENDS);
        let (anew, others) = (watch::Sender::new(0), watch::Sender::new(0));
        Self { last: Mutex::default(), anew, mistold: Mutex::default(), ends, others }
    }
}

/// Where the lease is: of two the later one is greater, in one store.
#[derive(Clone, Debug, PartialEq, Eq)]
struct At {
    version: u64,
    /// When its leader's term began, as the leader tells it: no two begin at once.
    term: Option<Timestamp>,
}

impl At {
    /// None where the version is no number: such a server does not compare them.
    fn of(lease: &Lease) -> Option<Self> {
        let version = lease.metadata.resource_version.as_deref()?.parse().ok()?;
        let term = lease.spec.as_ref().and_then(|spec| spec.acquire_time.as_ref());
        Some(Self { version, term: term.map(|MicroTime(began)| *began) })
    }
}

/// Why what was seen of the store before need not be true of it now.
fn doubt(before: Option<&At>, now: Option<&At>) -> Option<&'static str> {
    match (before, now) {
        (None, _) => None,
        (Some(_), None) => Some("gone"),
        (Some(before), Some(now)) if now.version < before.version => Some("older than it was"),
        (Some(before), Some(now)) => {
            (now.term != before.term).then_some("of a term that somebody else began")
        }
    }
}

impl Standing {
    /// Takes in the lease as it was read, past all caches; none when it is not there. Whether it is not what it was is
    /// returned; then all watches are begun anew.
    pub(crate) fn reads(&self, lease: Option<&Lease>) -> bool {
        let now = match lease.map(At::of) {
            None => None,
            Some(Some(at)) => Some(at),
            Some(None) => return false,
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let doubt = doubt(last.as_ref(), now.as_ref());
        if let Some(doubt) = doubt {
            tracing::warn!(
                before = ?*last,
                ?now,
                "the leader's lease is {doubt}: the API server may have been restored from a copy, or somebody deleted the lease, \
                 or another operator leads now; everything is listed again"
            );
            self.begin_anew();
        }
        *last = now;
        doubt.is_some()
    }

    /// Takes in the lease as this process wrote it over what it had read: nobody was in between.
    pub(crate) fn wrote(&self, lease: &Lease) {
        if let Some(at) = At::of(lease) {
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
        }
    }

    /// Takes in that a watch told something otherwise than the API server shows it, although nobody wrote it since. Then all watches are
    /// begun anew, unless that was so a moment ago: until the list has come, whoever looks finds the same.
    pub(crate) fn mistold(&self) {
        self.mistold_at(Instant::now());
    }

    fn mistold_at(&self, now: Instant) {
        let mut last = self.mistold.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| now.saturating_duration_since(last) < LISTING) {
            return;
        }
        *last = Some(now);
        tracing::info!(
            "a watch told of an object by another definition than is in force; everything is listed again"
        );
        self.begin_anew();
    }

    /// Takes in that our kinds are defined otherwise than they were; then all watches are begun anew.
    pub(super) fn redefined(&self) {
        tracing::info!("the definitions of our kinds are others than they were; everything is listed again");
        self.begin_anew();
    }

    /// Takes in that kinds of others, which databases ask for, are defined otherwise than they were.
    pub(crate) fn others_redefined(&self) {
        tracing::info!(
            "the definitions of kinds of others are others than they were; whoever asks for some is looked at"
        );
        self.others.send_modify(|times| *times += 1);
    }

    /// Tells each time that kinds of others are defined otherwise.
    pub(crate) fn of_others(&self) -> watch::Receiver<u64> {
        self.others.subscribe()
    }

    fn begin_anew(&self) {
        self.anew.send_modify(|times| *times += 1);
    }

    /// How often all watches were begun anew.
    #[cfg(test)]
    pub(super) fn times(&self) -> u64 {
        *self.anew.borrow()
    }

    /// Each request of a watch that begins from now on is served for so many seconds.
    pub(crate) fn end_after(&self, seconds: u32) {
        self.ends.store(seconds, Ordering::Relaxed);
    }

    /// When a watch is to be begun anew.
    pub(super) fn anew(&self) -> Anew {
        let ends = self.ends.load(Ordering::Relaxed);
        Anew { told: self.anew.subscribe(), lasts: LASTS, ends }
    }
}

/// When a watch is to be begun anew: each time that it is told, and once it has gone on for long.
pub(crate) struct Anew {
    told: watch::Receiver<u64>,
    lasts: Duration,
    ends: u32,
}

/// A watch that pauses after each failure, and begins again with a list when it is to. Its objects are in boxes.
pub(crate) fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
    Anew { told: anew, lasts, ends }: Anew,
) -> impl Stream<Item = Result<Event<Box<K>>, Error>> + Send + 'static
where
    K: kube::Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let config = config.timeout(ends);
    let begin = move || {
        let lasts = lasts.mul_f64(0.75 + runtime::backoff::random_share() / 2.0);
        let (api, config) = (api.clone(), config.clone());
        let told = one_after_the_other(move || watcher::watcher(api.clone(), config.clone()));
        let told = told.map(|told| told.map(|event| boxed::of(event, Box::new)));
        (pauses::paced(told).boxed(), Instant::now() + lasts)
    };
    let (first, until) = begin();
    // One timer for all that a watch tells: to arm one for each event would cost more than to wait for it.
    let end = Box::pin(tokio::time::sleep_until(until));
    futures::stream::unfold((first, end, anew, begin), |(mut stream, mut end, mut anew, begin)| async move {
        loop {
            tokio::select! {
                biased;
                () = told(&mut anew) => {
                    // Not all kinds of all replicas at once.
                    tokio::time::sleep(SPREAD.mul_f64(runtime::backoff::random_share())).await;
                }
                () = &mut end => {}
                item = stream.next() => return item.map(|item| (item, (stream, end, anew, begin))),
            }
            let until;
            (stream, until) = begin();
            end.as_mut().reset(until);
        }
    })
}

/// What the watches tell that `begin` makes: the next one begins, with a list, once the API server does not go on with the one before it
/// where that was, because it has forgotten it. kube itself lists anew only when that is told within a watch, and would ask for the same
/// for ever otherwise. So it does once a watch has told what nobody can read: kube passes that over, and what it was about would be seen
/// as it was until the next list, half a day later.
fn one_after_the_other<K, S>(
    begin: impl Fn() -> S + Send + 'static,
) -> impl Stream<Item = Result<Event<K>, Error>> + Send + 'static
where
    K: Send + 'static,
    S: Stream<Item = Result<Event<K>, Error>> + Send + 'static,
{
    let first = begin().boxed();
    futures::stream::unfold((first, begin), |(mut stream, begin)| async move {
        let told = stream.next().await?;
        if is_forgotten(&told) || told.as_ref().is_err_and(trouble::is_unread) {
            stream = begin().boxed();
        }
        Some((told, (stream, begin)))
    })
}

/// Whether the API server does not begin a watch because it has forgotten what the watch knew.
fn is_forgotten<K>(told: &Result<Event<K>, Error>) -> bool {
    matches!(told, Err(Error::WatchStartFailed(kube::Error::Api(status))) if status.code == 410)
}

/// Never, once nobody can tell any more.
async fn told(anew: &mut watch::Receiver<u64>) {
    if anew.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests;
