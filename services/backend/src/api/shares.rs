//! What each tenant may take of this process: so many requests in a second, so many of them carried out at once, a line of so
//! many that wait for that, and so many open event streams. What goes beyond is refused and told when to come again.
//!
//! Places are few, because each takes a connection to Postgres, of which all requests have some together: a tenant that
//! asks for very much waits in its own line, and nobody else in it. *Invariant:* what is kept of tenants is bounded, and
//! nothing is kept of one that asks for nothing. Those who run the fleet have no share: they come in when it is busiest.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use domain::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::failure::Failure;
use crate::metrics::Metrics;

/// How long a request waits in its tenant's line.
const PATIENCE: Duration = Duration::from_secs(10);
/// After how long a request may come again whose tenant has too much under way.
const LATER: Duration = Duration::from_secs(1);
/// The most tenants, and the most tokens, of which anything is kept.
const MOST: usize = 10_000;

/// SHA-256 of a token's secret.
type Token = [u8; 32];

/// A tenant's share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Requests in a second, in the long run.
    pub requests: u32,
    /// Requests that may come at once after a rest.
    pub burst: u32,
    /// Requests that are carried out at once.
    pub at_once: u32,
    /// Requests that wait for that.
    pub waiting: u32,
    /// Open event streams.
    pub streams: u32,
}

/// The shares. Clones are the same ones.
#[derive(Debug, Clone)]
pub struct Shares(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    share: Share,
    metrics: Metrics,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tenants: HashMap<TenantId, Arc<Tenant>>,
    /// Whose token it is, as Postgres last said; `None` for one that names its tenant.
    tokens: HashMap<Token, Option<TenantId>>,
}

#[derive(Debug)]
struct Tenant {
    bucket: Mutex<Bucket>,
    /// All who are in: those who wait and those who are at work.
    line: Arc<Semaphore>,
    places: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

/// A place among a tenant's requests, free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _line: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

/// A place among a tenant's event streams, free again when it is dropped.
#[derive(Debug)]
pub(crate) struct StreamPlace(#[expect(dead_code, reason = "held, not read")] Option<OwnedSemaphorePermit>);

impl Shares {
    /// The same share for each tenant.
    pub fn of(share: Share, metrics: Metrics) -> Self {
        Self(Some(Arc::new(Inner { share, metrics, state: Mutex::default() })))
    }

    /// No bounds.
    pub(crate) const fn unbounded() -> Self {
        Self(None)
    }

    /// Refuses a request before anything is asked for it, where its token was seen before and its tenant has used up its
    /// share: who asks too often must not cost a look at the tokens each time.
    pub(crate) fn look(&self, token: &Token, named: Option<&str>) -> Result<(), Failure> {
        let Some(inner) = &self.0 else { return Ok(()) };
        let tenant = {
            let state = inner.state();
            let tenant = match state.tokens.get(token) {
                None => return Ok(()),
                Some(Some(own)) => state.tenants.get(own),
                Some(None) => named.and_then(|named| state.tenants.get(&named.parse().ok()?)),
            };
            tenant.map(Arc::clone)
        };
        let left = tenant.map_or(Ok(()), |tenant| tenant.bucket().look(&inner.share, Instant::now()));
        left.map_err(|after| inner.too_often(after))
    }

    /// Remembers whose token it is.
    pub(crate) fn learn(&self, token: Token, own: Option<&TenantId>) {
        let Some(inner) = &self.0 else { return };
        let mut state = inner.state();
        if state.tokens.len() >= MOST && !state.tokens.contains_key(&token) {
            // They are learned again; what is lost is one look at the tokens each.
            state.tokens.clear();
        }
        state.tokens.insert(token, own.cloned());
    }

    /// Takes a request of a tenant in, when its turn has come.
    pub(crate) async fn enter(&self, tenant: &TenantId) -> Result<Option<Place>, Failure> {
        let Some(inner) = &self.0 else { return Ok(None) };
        let tenant = inner.tenant(tenant)?;
        let taken = tenant.bucket().take(&inner.share, Instant::now());
        taken.map_err(|after| inner.too_often(after))?;
        let full = || {
            let Share { at_once, waiting, .. } = inner.share;
            let detail = format!(
                "{at_once} requests of a tenant are carried out at once, and at most {waiting} wait for that"
            );
            inner.refused("line", &detail, LATER)
        };
        let line = Arc::clone(&tenant.line).try_acquire_owned().map_err(|_| full())?;
        let place = Arc::clone(&tenant.places).acquire_owned();
        match runtime::deadline(PATIENCE, "a place among the tenant's requests", place).await {
            Ok(Ok(place)) => Ok(Some(Place { _line: line, _place: place })),
            Ok(Err(_)) | Err(_) => Err(full()),
        }
    }

    /// Takes an event stream of a tenant in.
    pub(crate) fn open_stream(&self, tenant: Option<&TenantId>) -> Result<StreamPlace, Failure> {
        let (Some(inner), Some(tenant)) = (&self.0, tenant) else { return Ok(StreamPlace(None)) };
        let tenant = inner.tenant(tenant)?;
        let place = Arc::clone(&tenant.streams).try_acquire_owned().map_err(|_| {
            let detail = format!("a tenant may have {} event streams open", inner.share.streams);
            inner.refused("streams", &detail, LATER)
        })?;
        Ok(StreamPlace(Some(place)))
    }
}

impl Inner {
    fn tenant(&self, id: &TenantId) -> Result<Arc<Tenant>, Failure> {
        let now = Instant::now();
        let mut state = self.state();
        if let Some(tenant) = state.tenants.get(id) {
            return Ok(Arc::clone(tenant));
        }
        if state.tenants.len() >= MOST {
            state.tenants.retain(|_, tenant| !tenant.rests(&self.share, now));
        }
        if state.tenants.len() >= MOST {
            drop(state);
            return Err(self.refused("tenants", "very many tenants ask for something at once", LATER));
        }
        let tenant = Arc::new(Tenant::new(&self.share, now));
        state.tenants.insert(id.clone(), Arc::clone(&tenant));
        Ok(tenant)
    }

    fn too_often(&self, after: Duration) -> Failure {
        let Share { requests, burst, .. } = self.share;
        let detail = format!("a tenant may ask {requests} times a second, and {burst} times at once");
        self.refused("rate", &detail, after)
    }

    fn refused(&self, bound: &'static str, detail: &str, after: Duration) -> Failure {
        self.metrics.beyond_share(bound);
        Failure::too_many(detail, after)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tenant {
    fn new(share: &Share, now: Instant) -> Self {
        let bound = |number: u32| Arc::new(Semaphore::new(number as usize));
        Self {
            bucket: Mutex::new(Bucket { left: f64::from(share.burst), at: now }),
            line: bound(share.at_once.saturating_add(share.waiting)),
            places: bound(share.at_once),
            streams: bound(share.streams),
        }
    }

    /// Whether it is as one of which nothing is kept. Nobody may be about to enter.
    fn rests(self: &Arc<Self>, share: &Share, now: Instant) -> bool {
        let free = |places: &Arc<Semaphore>| Arc::strong_count(places) == 1;
        Arc::strong_count(self) == 1
            && free(&self.line)
            && free(&self.places)
            && free(&self.streams)
            && self.bucket().is_full(share, now)
    }

    fn bucket(&self) -> MutexGuard<'_, Bucket> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests that a tenant may still make, by the process's own clock.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn fill(&mut self, share: &Share, now: Instant) {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + since * f64::from(share.requests)).min(f64::from(share.burst));
        self.at = now.max(self.at);
    }

    /// Whether one is left; if not, when there will be.
    fn look(&mut self, share: &Share, now: Instant) -> Result<(), Duration> {
        self.fill(share, now);
        if self.left >= 1.0 {
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - self.left) / f64::from(share.requests.max(1))))
    }

    /// Takes one.
    fn take(&mut self, share: &Share, now: Instant) -> Result<(), Duration> {
        self.look(share, now)?;
        self.left -= 1.0;
        Ok(())
    }

    fn is_full(&mut self, share: &Share, now: Instant) -> bool {
        self.fill(share, now);
        self.left >= f64::from(share.burst)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    const SHARE: Share = Share { requests: 10, burst: 20, at_once: 2, waiting: 1, streams: 2 };

    fn shares(share: Share) -> Shares {
        Shares::of(share, Metrics::new(&runtime::Metrics::default()))
    }

    fn tenant(id: &str) -> TenantId {
        id.parse().unwrap()
    }

    fn status(failure: &Failure) -> (u16, &str) {
        (failure.problem.status, failure.problem.code.as_str())
    }

    #[test]
    fn a_bucket_gives_a_burst_and_then_as_many_as_flow_in() {
        let begun = Instant::now();
        let at = |milliseconds| begun + Duration::from_millis(milliseconds);
        let mut bucket = Bucket { left: f64::from(SHARE.burst), at: begun };
        let mut taken =
            |at| std::iter::repeat_with(|| bucket.take(&SHARE, at)).take_while(Result::is_ok).count();
        assert_eq!(taken(begun), 20);
        assert_eq!(taken(at(1_000)), 10);
        assert_eq!(taken(at(500)), 0, "a time from before gives nothing");
        assert_eq!(taken(at(60_000)), 20, "a long rest gives no more than a burst");
        let after = bucket.take(&SHARE, at(60_050)).unwrap_err();
        assert!(after > Duration::from_millis(40) && after < Duration::from_millis(60), "{after:?}");
        assert_eq!(bucket.take(&SHARE, at(60_050) + after + Duration::from_millis(1)), Ok(()));
    }

    #[tokio::test]
    async fn so_many_are_at_work_so_many_wait_and_the_next_is_refused() {
        let (shares, acme) = (shares(SHARE), tenant("acme"));
        let one = shares.enter(&acme).await.unwrap();
        let two = shares.enter(&acme).await.unwrap();
        let mut third = Box::pin(shares.enter(&acme));
        assert!(futures::poll!(&mut third).is_pending(), "two are at work");
        let Poll::Ready(Err(fourth)) = futures::poll!(Box::pin(shares.enter(&acme))) else {
            panic!("it waits, too");
        };
        assert_eq!(status(&fourth), (429, "too_many_requests"));
        assert!(shares.enter(&tenant("umbrella")).await.is_ok(), "others have a share of their own");
        drop(one);
        let third = third.await.unwrap();
        drop((two, third));
        assert!(shares.enter(&acme).await.is_ok());
    }

    #[tokio::test]
    async fn who_asks_too_often_is_refused_before_its_token_is_looked_up() {
        let (shares, acme) = (shares(Share { burst: 1, ..SHARE }), tenant("acme"));
        let (own, console, stranger) = ([1; 32], [2; 32], [3; 32]);
        assert!(shares.look(&own, None).is_ok(), "nothing is known of it");
        shares.learn(own, Some(&acme));
        shares.learn(console, None);
        drop(shares.enter(&acme).await.unwrap());
        let refused = shares.enter(&acme).await.unwrap_err();
        assert_eq!(status(&refused), (429, "too_many_requests"));
        assert!(refused.problem.detail.contains("10 times a second"), "{}", refused.problem.detail);
        assert_eq!(status(&shares.look(&own, None).unwrap_err()).0, 429);
        assert_eq!(status(&shares.look(&console, Some("acme")).unwrap_err()).0, 429);
        for (token, named) in [(console, Some("umbrella")), (console, None), (console, Some("Not A Label"))] {
            assert!(shares.look(&token, named).is_ok(), "{named:?}");
        }
        assert!(shares.look(&stranger, Some("acme")).is_ok(), "whoever it is, it is not known to be acme's");
    }

    #[tokio::test]
    async fn streams_are_counted_while_they_are_open() {
        let (shares, acme) = (shares(SHARE), tenant("acme"));
        let open = || shares.open_stream(Some(&acme));
        let (one, _two) = (open().unwrap(), open().unwrap());
        assert_eq!(status(&open().unwrap_err()), (429, "too_many_requests"));
        assert!(shares.open_stream(None).is_ok(), "those who run the fleet have no share");
        drop(one);
        assert!(open().is_ok());
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded_and_nobody_who_is_in_is_forgotten() {
        let shares = shares(SHARE);
        let kept = || shares.0.as_ref().unwrap().state().tenants.len();
        let busy = tenant("busy");
        let _stream = shares.open_stream(Some(&busy)).unwrap();
        for number in 0..2 * MOST {
            drop(shares.open_stream(Some(&tenant(&format!("t-{number}")))).unwrap());
            shares.learn(crate::api::hash(&format!("token {number}")), None);
        }
        assert!(kept() <= MOST, "{}", kept());
        let tokens = shares.0.as_ref().unwrap().state().tokens.len();
        assert!(tokens > 0 && tokens <= MOST, "{tokens}");
        assert!(shares.0.as_ref().unwrap().state().tenants.contains_key(&busy));
        let all: Vec<_> = (0..MOST - 1)
            .map(|number| shares.open_stream(Some(&tenant(&format!("open-{number}")))).unwrap())
            .collect();
        assert_eq!(kept(), MOST);
        let refused = shares.open_stream(Some(&tenant("late"))).unwrap_err();
        assert_eq!(status(&refused).0, 429);
        drop(all);
        assert!(shares.open_stream(Some(&tenant("late"))).is_ok());
    }

    #[tokio::test]
    async fn who_has_used_up_its_share_is_not_forgotten_and_given_another() {
        // Nothing flows in, however long this takes.
        let shares = shares(Share { requests: 0, burst: 1, ..SHARE });
        let greedy = tenant("greedy");
        drop(shares.enter(&greedy).await.unwrap());
        for number in 0..2 * MOST {
            drop(shares.open_stream(Some(&tenant(&format!("t-{number}")))).unwrap());
        }
        assert_eq!(status(&shares.enter(&greedy).await.unwrap_err()).0, 429);
    }

    #[tokio::test]
    async fn without_bounds_everybody_comes_in() {
        let shares = Shares::unbounded();
        for _ in 0..1_000 {
            assert!(shares.enter(&tenant("acme")).await.unwrap().is_none());
        }
    }
}
