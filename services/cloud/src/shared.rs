//! What many look at and what takes long to get: got once for all who need it at that time.
//!
//! *Invariant:* who is content with what is known already waits for nobody, however long somebody else takes to get a newer
//! one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::Error;

/// The newest one, and who is getting another.
pub(crate) struct Shared<T> {
    known: Mutex<Known<T>>,
    /// Held by whoever gets one.
    getting: tokio::sync::Mutex<()>,
}

struct Known<T> {
    last: Option<Arc<T>>,
    /// When it last failed, and how.
    failure: Option<(Instant, Error)>,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        let known = Known { last: None, failure: None };
        Self { known: Mutex::new(known), getting: tokio::sync::Mutex::default() }
    }
}

impl<T> Shared<T> {
    /// The newest that is known, however old.
    pub(crate) fn last(&self) -> Option<Arc<T>> {
        self.known().last.clone()
    }

    /// The newest, if it `serves`; else one that `get` gets. A failure since the time that `shared` says yes to is told again,
    /// and nothing is tried.
    pub(crate) async fn get<F: Future<Output = Result<T, Error>>>(
        &self,
        serves: impl Fn(&T) -> bool,
        shared: impl Fn(Instant) -> bool,
        get: impl FnOnce() -> F,
    ) -> Result<Arc<T>, Error> {
        let good = || self.last().filter(|last| serves(last));
        if let Some(last) = good() {
            return Ok(last);
        }
        let _getting = self.getting.lock().await;
        if let Some(last) = good() {
            return Ok(last);
        }
        if let Some((_, error)) = self.known().failure.as_ref().filter(|(failed, _)| shared(*failed)) {
            return Err(error.clone());
        }
        // Nearly always there is one that serves: what getting another needs is not to be carried around by everybody who looks.
        let got = Box::pin(get()).await.map(Arc::new);
        match &got {
            Ok(last) => self.known().last = Some(Arc::clone(last)),
            Err(error) => self.known().failure = Some((Instant::now(), error.clone())),
        }
        got
    }

    fn known(&self) -> MutexGuard<'_, Known<T>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;
    use crate::Call;

    fn failure() -> Error {
        Error::Unavailable { call: Box::new(Call::new("Look", "nobody answers")) }
    }

    async fn got(shared: &Shared<u32>, number: u32) -> u32 {
        *shared.get(|last| *last >= number, |_| false, || async { Ok(number) }).await.unwrap()
    }

    #[tokio::test]
    async fn who_is_content_with_what_is_known_waits_for_nobody() {
        let shared = Shared::<u32>::default();
        assert_eq!(got(&shared, 1).await, 1);
        let (answer, answered) = oneshot::channel();
        let slow = shared.get(|last| *last >= 2, |_| false, || async { Ok(answered.await.unwrap()) });
        let mut slow = Box::pin(slow);
        assert!((&mut slow).now_or_never().is_none(), "it is being got");
        assert_eq!(got(&shared, 1).now_or_never(), Some(1), "known before");
        assert_eq!(shared.last().as_deref(), Some(&1));
        let mut waits = Box::pin(got(&shared, 2));
        assert!((&mut waits).now_or_never().is_none(), "it is got once");
        answer.send(5).unwrap();
        assert_eq!((*slow.await.unwrap(), waits.await), (5, 5), "for both");
    }

    #[tokio::test]
    async fn a_failure_is_shared_by_those_who_waited_for_it_and_no_others() {
        let shared = Shared::<u32>::default();
        let began = Instant::now();
        let fails = || shared.get(|_| false, |failed| failed >= began, || async { Err(failure()) });
        fails().await.unwrap_err();
        let again = shared.get(|_| false, |failed| failed >= began, || async { Ok(1) }).await;
        again.expect_err("one who had asked before it failed");
        let later = Instant::now();
        let after = shared.get(|_| false, |failed| failed >= later, || async { Ok(1) }).await;
        assert_eq!(*after.unwrap(), 1, "one who asked afterwards");
    }

    #[tokio::test]
    async fn whoever_gives_up_while_getting_holds_nobody_up() {
        let shared = Shared::<u32>::default();
        let given_up = shared.get(|_| false, |_| false, std::future::pending);
        assert!(given_up.now_or_never().is_none());
        assert_eq!(got(&shared, 3).now_or_never(), Some(3));
    }
}
