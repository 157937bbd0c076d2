//! Says what is seen in a cluster: everything at the start of a term, every change, and everything again on a slow roll.
//!
//! One process at a time speaks for a cluster, by a row in Postgres that also gives the term; two at once would be
//! wasteful, never wrong. *Invariant:* nothing is decided here and nothing is written to the cluster. *Invariant:* Postgres
//! is told that a cluster was listed only after all that was listed was told: readers take silence for absence from then
//! on.

pub mod book;
pub mod sight;
mod told;
pub mod translate;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use runtime::backoff::Retry;
use runtime::{Backoff, CancellationToken};
use store::{Store, Term, in_time};

use self::book::Book;
use crate::fleet::Member;
use crate::gossip::Teller;
use crate::metrics::Metrics;

/// How long the right to speak lasts without renewal.
const LEASE: Duration = Duration::from_secs(9);
/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(3);
/// How often it is asked for while another process has it.
const WAIT: Duration = Duration::from_secs(2);
/// How many records of a cluster are on their way at once, shared out among the partitions.
const ON_THEIR_WAY: usize = 256;
/// How many of one partition at least.
const AT_LEAST: usize = 4;
/// How long to wait after the watch ended.
const AGAIN: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(20));

/// Observes clusters.
#[derive(Debug, Clone)]
pub struct Observer {
    /// Terms.
    pub store: Store,
    /// Gossip.
    pub teller: Teller,
    /// Counters.
    pub metrics: Metrics,
    /// Name of this process among the observers.
    pub holder: String,
    /// How often everything is said again.
    pub period: Duration,
    /// How often a cluster is asked whether it can still be listed, and at which version it stands: one that was restored
    /// from a backup keeps watches open and silent for minutes, and a watch that does not get there may be dead.
    pub check: Duration,
    /// How long one watch lasts, in seconds. A connection that died without a word is noticed five seconds after that.
    pub watch: u32,
    /// How long one call may take.
    pub call_timeout: Duration,
    /// How many partitions the topic of gossip has.
    pub partitions: i32,
}

impl Observer {
    /// A book in which nothing was seen yet.
    fn book(&self) -> Book {
        let partitions = usize::try_from(self.partitions).unwrap_or_default().max(1);
        Book::new(partitions, (ON_THEIR_WAY / partitions).max(AT_LEAST))
    }
}

/// Why an observation of a cluster ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The program stops, or nobody goes to that server any more.
    Stop,
    /// Another process speaks for the cluster, or Postgres does not say who.
    Lost,
    /// The server was restored from a backup: its versions are no measure of those before.
    Restored,
    /// It lasted long enough: everything is listed anew.
    Over,
    /// There are no credentials.
    NoClient,
    /// The watch does not work.
    Broken,
}

/// Observes a cluster until it leaves the fleet, is reached by other credentials, or the program stops. What else its registration says
/// is of no matter here.
pub async fn run(observer: Observer, member: Arc<Member>, stop: CancellationToken) {
    let mut retry = AGAIN.start();
    while !stop.is_cancelled() && !member.gone.is_cancelled() {
        let cluster = &member.cluster.id;
        let term = in_time(observer.store.observe_cluster(cluster, &observer.holder, LEASE)).await;
        let pause = match term {
            Ok(Some(term)) => {
                tracing::info!(cluster.name = %cluster, term = term.0, "speaking for the cluster");
                let begun = Instant::now();
                let (end, term) = hold(&observer, &member, term, &stop).await;
                observer.metrics.observed_no_more(cluster);
                tracing::info!(cluster.name = %cluster, term = term.0, ?end, "no longer speaking for the cluster");
                if end == End::Stop {
                    release(&observer, &member, term).await;
                    return;
                }
                retry.lasted(begun.elapsed());
                retry.next_delay()
            }
            Ok(None) => {
                retry.reset();
                WAIT.mul_f64(0.5 + runtime::backoff::random_share())
            }
            Err(error) => {
                tracing::warn!(cluster.name = %cluster, error = &error as &dyn std::error::Error, "nobody knows who speaks for the cluster");
                retry.next_delay() + Duration::from_millis(500)
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = member.gone.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Watches while the right to speak is held; a restored server gets a new term and a new watch.
async fn hold(observer: &Observer, member: &Member, mut term: Term, stop: &CancellationToken) -> (End, Term) {
    let mut book = observer.book();
    let mut retry = AGAIN.start();
    loop {
        let begun = Instant::now();
        let end = tokio::select! {
            () = stop.cancelled() => End::Stop,
            () = member.gone.cancelled() => End::Stop,
            end = renew(observer, member, term) => end,
            end = watch::run(observer, member, term, &mut book) => end,
        };
        match end {
            End::Restored => {
                let next = observer.store.next_term(&member.cluster.id, &observer.holder, term);
                let next = in_time(next).await;
                // Where nobody knows what became of it, the cluster is taken anew, which has a term of its own.
                let Ok(Some(next)) = next else { return (End::Lost, term) };
                term = next;
                book = observer.book();
            }
            // What was told before need not be told again: the book stays.
            End::Over | End::NoClient | End::Broken => {}
            End::Stop | End::Lost => return (end, term),
        }
        let Some(pause) = rest(&end, begun.elapsed(), &mut retry) else { continue };
        // The right stays ours meanwhile: nobody else would fare better.
        let ended = tokio::select! {
            () = stop.cancelled() => Some(End::Stop),
            () = member.gone.cancelled() => Some(End::Stop),
            end = renew(observer, member, term) => Some(end),
            () = tokio::time::sleep(pause) => None,
        };
        if let Some(end) = ended {
            return (end, term);
        }
    }
}

/// How long to wait for the next watch after one that ended so and lasted so long, where anything was wrong. Behind one address may
/// be servers of which one was restored and the other still shows what was before: terms rise no faster than that.
fn rest(end: &End, lasted: Duration, retry: &mut Retry) -> Option<Duration> {
    if *end == End::Over {
        return None;
    }
    if lasted > LEASE {
        retry.reset();
    }
    Some(retry.next_delay().max(Duration::from_millis(100)))
}

/// Renews the right to speak; returns when it is lost.
async fn renew(observer: &Observer, member: &Member, term: Term) -> End {
    let mut since = Instant::now();
    loop {
        let renewed = observer.store.renew_observer(&member.cluster.id, &observer.holder, term, LEASE);
        match runtime::deadline(RENEW, "Postgres", renewed).await {
            Ok(Ok(true)) => since = Instant::now(),
            Ok(Ok(false)) => return End::Lost,
            // While Postgres is away nobody else can take the cluster either; going on is wasteful at worst.
            Ok(Err(_)) | Err(_) => {
                tracing::debug!(cluster.name = %member.cluster.id, since_s = since.elapsed().as_secs(), "the right to speak was not renewed");
            }
        }
        tokio::time::sleep(RENEW).await;
    }
}

async fn release(observer: &Observer, member: &Member, term: Term) {
    let released = observer.store.release_observer(&member.cluster.id, &observer.holder, term);
    if let Ok(Err(error)) = runtime::deadline(Duration::from_secs(2), "Postgres", released).await {
        tracing::debug!(cluster.name = %member.cluster.id, error = &error as &dyn std::error::Error, "the cluster was not given back");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_always_found_to_be_restored_is_asked_less_and_less_often() {
        let mut retry = AGAIN.start();
        for attempt in 0..10 {
            assert_eq!(retry.attempts(), attempt);
            let waited = rest(&End::Restored, Duration::ZERO, &mut retry).expect("a pause");
            assert!(waited >= Duration::from_millis(100), "{waited:?}");
        }
        assert_eq!(rest(&End::Over, LEASE * 2, &mut retry), None, "nothing was wrong");
        rest(&End::Restored, LEASE * 2, &mut retry).expect("a pause");
        assert_eq!(retry.attempts(), 1, "the first one in a while");
    }
}
