//! Many callers' questions about single resources become one paged question.
//!
//! *Invariant:* a caller's answer comes from a request that was begun after the caller asked: batching delays by the
//! window, and never answers from the past. Nothing is cached.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use crate::{Call, Error};

/// What a fetch answers: what exists, by key. A key that is absent does not exist (or not yet).
pub type Fetched<K, V> = Result<HashMap<K, V>, Error>;

type Fetch<K, V> = Arc<dyn Fn(Vec<K>) -> BoxFuture<'static, Fetched<K, V>> + Send + Sync>;

/// Who waits for what.
type Waiting<K, V> = HashMap<K, Vec<oneshot::Sender<Result<Option<V>, Error>>>>;

/// How questions are gathered.
#[derive(Clone, Copy, Debug)]
pub struct Batching {
    /// How long the first caller waits for others.
    pub window: Duration,
    /// How many different keys are asked for at once; a full batch goes at once.
    pub size: usize,
    /// How many callers may wait at all; more are refused as throttled.
    pub waiting: usize,
}

impl Default for Batching {
    fn default() -> Self {
        Self { window: Duration::from_millis(10), size: 100, waiting: 20_000 }
    }
}

/// Gathers questions.
pub struct Batcher<K, V> {
    operation: &'static str,
    batching: Batching,
    fetch: Fetch<K, V>,
    state: Arc<Mutex<State<K, V>>>,
}

impl<K, V> fmt::Debug for Batcher<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher").field("operation", &self.operation).finish_non_exhaustive()
    }
}

struct State<K, V> {
    /// The batch that gathers now, by its number, so that a late timer leaves the next one alone.
    number: u64,
    gathering: Waiting<K, V>,
    /// Callers without an answer, of all batches.
    waiting: usize,
}

impl<K, V> Batcher<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + 'static,
{
    /// `fetch` must have a deadline of its own and is given at most `batching.size` keys, all different.
    pub fn new<F>(operation: &'static str, batching: Batching, fetch: F) -> Self
    where
        F: Fn(Vec<K>) -> BoxFuture<'static, Fetched<K, V>> + Send + Sync + 'static,
    {
        let state = State { number: 0, gathering: HashMap::new(), waiting: 0 };
        Self { operation, batching, fetch: Arc::new(fetch), state: Arc::new(Mutex::new(state)) }
    }

    /// One resource; `None` when it does not exist, or not yet.
    pub async fn get(&self, key: K) -> Result<Option<V>, Error> {
        let (sender, answer) = oneshot::channel();
        self.enqueue(key, sender)?;
        answer.await.unwrap_or_else(|_| {
            Err(Error::Unavailable { call: Box::new(Call::new(self.operation, "the batch was abandoned")) })
        })
    }

    fn enqueue(&self, key: K, sender: oneshot::Sender<Result<Option<V>, Error>>) -> Result<(), Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.waiting >= self.batching.waiting {
            let call = Call::new(self.operation, format!("{} callers are waiting already", state.waiting));
            return Err(Error::Throttled { retry_after: None, call: Box::new(call) });
        }
        state.waiting += 1;
        let first = state.gathering.is_empty();
        state.gathering.entry(key).or_default().push(sender);
        if state.gathering.len() >= self.batching.size.max(1) {
            let batch = state.take();
            self.spawn(async move { Some(batch) });
        } else if first {
            let (number, window, shared) = (state.number, self.batching.window, Arc::clone(&self.state));
            self.spawn(async move {
                tokio::time::sleep(window).await;
                let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
                (state.number == number).then(|| state.take())
            });
        }
        Ok(())
    }

    /// A task of its own, so that a caller who goes away takes nobody's answer along.
    fn spawn<B>(&self, batch: B)
    where
        B: Future<Output = Option<Waiting<K, V>>> + Send + 'static,
    {
        let (fetch, shared) = (Arc::clone(&self.fetch), Arc::clone(&self.state));
        let span = tracing::debug_span!("cloud.batch", operation = self.operation);
        let task = async move {
            let Some(batch) = batch.await else { return };
            let count = batch.values().map(Vec::len).sum();
            // Dropped last, and also when the fetch panics or is cancelled: the places are given back either way.
            let _places = Places { shared, count };
            let found = fetch(batch.keys().cloned().collect()).await;
            answer(batch, &found);
        };
        tokio::spawn(task.instrument(span));
    }
}

impl<K, V> State<K, V> {
    fn take(&mut self) -> Waiting<K, V> {
        self.number += 1;
        std::mem::take(&mut self.gathering)
    }
}

struct Places<K, V> {
    shared: Arc<Mutex<State<K, V>>>,
    count: usize,
}

impl<K, V> Drop for Places<K, V> {
    fn drop(&mut self) {
        let mut state = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting = state.waiting.saturating_sub(self.count);
    }
}

fn answer<K: Eq + Hash, V: Clone>(batch: Waiting<K, V>, found: &Fetched<K, V>) {
    for (key, senders) in batch {
        let one = match found {
            Ok(found) => Ok(found.get(&key).cloned()),
            Err(error) => Err(error.clone()),
        };
        for sender in senders {
            // A caller that went away wants no answer.
            let _ = sender.send(one.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::join_all;

    use super::*;

    type Log = Arc<Mutex<Vec<Vec<u32>>>>;

    /// Even numbers exist; 13 breaks the whole request, 666 panics.
    fn numbers(keys: &[u32]) -> Fetched<u32, String> {
        assert!(!keys.contains(&666), "asked to break");
        if keys.contains(&13) {
            return Err(Error::Unavailable { call: Box::new(Call::new("DescribeNumbers", "no")) });
        }
        Ok(keys.iter().filter(|key| *key % 2 == 0).map(|key| (*key, key.to_string())).collect())
    }

    fn batcher(batching: Batching) -> (Batcher<u32, String>, Log) {
        let log = Log::default();
        let seen = Arc::clone(&log);
        let batcher = Batcher::new("DescribeNumbers", batching, move |mut keys: Vec<u32>| {
            keys.sort_unstable();
            seen.lock().unwrap().push(keys.clone());
            async move { numbers(&keys) }.boxed()
        });
        (batcher, log)
    }

    #[tokio::test]
    async fn callers_of_one_window_share_one_request() {
        let (batcher, log) = batcher(Batching::default());
        let answers = join_all([2, 3, 4, 2].map(|key| batcher.get(key))).await;
        let found: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(found, [Some("2".to_owned()), None, Some("4".to_owned()), Some("2".to_owned())]);
        assert_eq!(*log.lock().unwrap(), [vec![2, 3, 4]]);
    }

    #[tokio::test]
    async fn a_thousand_callers_need_ten_requests() {
        let (batcher, log) = batcher(Batching { window: Duration::from_millis(200), ..Batching::default() });
        let answers = join_all((1000..2000).map(|key| batcher.get(key))).await;
        assert!(answers.iter().all(Result::is_ok));
        let sizes: Vec<_> = log.lock().unwrap().iter().map(Vec::len).collect();
        assert_eq!(sizes, [100; 10]);
        assert_eq!(batcher.state.lock().unwrap().waiting, 0);
    }

    #[tokio::test]
    async fn an_answer_is_never_older_than_its_question() {
        let (batcher, log) = batcher(Batching::default());
        batcher.get(2).await.unwrap();
        batcher.get(2).await.unwrap();
        assert_eq!(log.lock().unwrap().len(), 2);
    }

    #[tokio::test]
    async fn a_failed_request_fails_all_of_its_callers_and_no_others() {
        let (batcher, _) = batcher(Batching::default());
        let (broken, with_it) = tokio::join!(batcher.get(13), batcher.get(2));
        assert_eq!(broken.unwrap_err().category(), "unavailable");
        assert_eq!(with_it.unwrap_err().category(), "unavailable");
        assert!(batcher.get(2).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_panic_is_an_unknown_outcome_and_frees_the_places() {
        let (batcher, _) = batcher(Batching { waiting: 1, ..Batching::default() });
        assert!(batcher.get(666).await.unwrap_err().outcome_unknown());
        assert!(batcher.get(2).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_caller_who_goes_away_harms_nobody() {
        let (batcher, log) = batcher(Batching::default());
        let mut leaving = Box::pin(batcher.get(2));
        assert!(futures::poll!(&mut leaving).is_pending());
        let staying = batcher.get(4);
        drop(leaving);
        assert!(staying.await.unwrap().is_some());
        assert_eq!(*log.lock().unwrap(), [vec![2, 4]]);
    }

    #[tokio::test]
    async fn the_queue_has_a_bound() {
        let (batcher, _) = batcher(Batching { waiting: 2, ..Batching::default() });
        let mut answers = join_all([2, 4, 6].map(|key| batcher.get(key))).await;
        assert_eq!(answers.pop().unwrap().unwrap_err().category(), "throttled");
        assert!(answers.iter().all(Result::is_ok));
        assert!(batcher.get(6).await.unwrap().is_some());
    }
}
