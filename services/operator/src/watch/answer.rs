//! Whether the API server answered the request of a watch. Of a kind that does not change a watch says nothing for hours, and
//! one that nobody serves says as little: its answer tells them apart.
//!
//! And that a watch which ends as soon as it is answered is not begun again without a pause: its end is no error, so nothing else
//! would keep it from being begun hundreds of times a second, as before a proxy that cuts every answer short.
//!
//! And when something of its answer came last: the API server tells a watch about once a minute how far it is, also where nothing of it
//! changes, and one that has died without a word tells nothing.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt as _;
use http_body::{Frame, SizeHint};
use kube::Client;
use kube::client::Body;
use tokio::sync::Notify;

use super::pauses::{Failure, Pauses};

/// How long the API server may take to begin an answer, to a list as to a watch: it queues a request for less.
pub(super) const ANSWER: Duration = Duration::from_secs(30);
/// A watch that has lasted for less has ended at once: less than it ever lasts because it was asked to end.
pub(super) const AT_ONCE: Duration = Duration::from_millis(500);

/// That requests of one watch were answered with success, and when something of such an answer came last. Clones share what is known.
#[derive(Clone, Default)]
pub(crate) struct Answers {
    answered: Arc<Notify>,
    came: Arc<Mutex<Option<Instant>>>,
}

/// Nothing came.
#[derive(Debug, thiserror::Error)]
#[error("the API server did not begin to answer within {0:?}")]
struct Late(Duration);

impl Answers {
    /// Waits until a watch is answered.
    pub(super) async fn next(&self) {
        self.answered.notified().await;
    }

    /// Whether one was answered that nobody was told of by now.
    pub(super) fn any(&self) -> bool {
        self.next().now_or_never().is_some()
    }

    /// When something of the answer came last, be it its head; none before there is one, or while everything is listed again.
    pub(super) fn last(&self) -> Option<Instant> {
        *lock(&self.came)
    }

    fn comes(&self) {
        *lock(&self.came) = Some(Instant::now());
    }

    /// Something is asked: whatever came before is over.
    fn begins(&self) {
        *lock(&self.came) = None;
    }
}

/// An answer, and who is told that something of it came: of one to a watch.
struct Listened {
    body: Body,
    told: Option<Answers>,
}

impl http_body::Body for Listened {
    type Data = Bytes;
    type Error = kube::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<kube::Result<Frame<Bytes>>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let (Poll::Ready(Some(Ok(_))), Some(told)) = (&frame, &self.told) {
            told.comes();
        }
        frame
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

/// When the watch was answered that was begun last, unless something was asked since; and the pauses after those that ended at once.
#[derive(Default)]
struct Ends {
    answered: Option<Instant>,
    pauses: Pauses,
}

impl Ends {
    /// How long a request that is to be sent at `now` waits; a watch that has lasted for less than `at_once` ended at once.
    fn pause(&mut self, watches: bool, (now, at_once): (Instant, Duration), share: f64) -> Option<Duration> {
        let answered = self.answered.take().filter(|_| watches)?;
        let ended_at_once = now.saturating_duration_since(answered) < at_once;
        ended_at_once.then(|| self.pauses.after(Failure::Broke, now, share))
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A client for one watch, of which it is told when the API server answers. What is not answered within `limit` breaks; a watch that
/// lasts for less than `at_once` is begun again after a pause.
pub(super) fn heeded(client: &Client, limit: Duration, at_once: Duration) -> (Client, Answers) {
    let answers = Answers::default();
    let (inner, told, ends) = (client.clone(), answers.clone(), Arc::<Mutex<Ends>>::default());
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (inner, told, ends) = (inner.clone(), told.clone(), Arc::clone(&ends));
        async move {
            let watches = is_watch(request.uri());
            let share = runtime::backoff::random_share();
            let pause = lock(&ends).pause(watches, (Instant::now(), at_once), share);
            if let Some(pause) = pause {
                tokio::time::sleep(pause).await;
            }
            told.begins();
            let answer = tokio::time::timeout(limit, inner.send(request)).await;
            let answer = answer.map_err(|_| Box::new(Late(limit)))??;
            let told = (watches && answer.status().is_success()).then_some(told);
            if let Some(told) = &told {
                lock(&ends).answered = Some(Instant::now());
                told.comes();
                told.answered.notify_one();
            }
            Ok::<_, tower::BoxError>(answer.map(|body| Listened { body, told }))
        }
    });
    (Client::new(service, client.default_namespace()), answers)
}

fn is_watch(uri: &http::Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"))
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::{ListParams, WatchParams};
    use serde_json::json;

    use super::*;
    use crate::played::{self, Answer};

    const LIMIT: Duration = Duration::from_millis(50);

    fn api(answer: fn(bool) -> Answer) -> (Api<ConfigMap>, Answers) {
        let (client, answers) = heeded(&played::client(move |_, watches| answer(watches)), LIMIT, AT_ONCE);
        (Api::all(client), answers)
    }

    #[test]
    fn a_watch_that_ends_at_once_is_begun_again_ever_more_seldom_and_no_other() {
        let (mut ends, mut now) = (Ends::default(), Instant::now());
        let mut pause = |watches, lasted: Duration| {
            ends.answered = Some(now);
            now += lasted;
            let pause = ends.pause(watches, (now, AT_ONCE), 1.0).unwrap_or_default();
            now += pause;
            pause.as_secs()
        };
        let short = AT_ONCE / 2;
        assert_eq!([pause(true, AT_ONCE), pause(false, short)], [0, 0], "it lasted, and a list is asked for");
        assert_eq!([(); 6].map(|()| pause(true, short)), [1, 2, 4, 8, 15, 15]);
        assert_eq!(pause(true, Duration::from_mins(5)), 0, "it lasts again");
        assert_eq!(pause(true, short), 1, "and ends at once much later");
        assert_eq!(ends.pause(true, (now, AT_ONCE), 1.0), None, "none was answered since");
    }

    #[tokio::test]
    async fn the_next_request_of_a_watch_that_ended_at_once_is_held_back() {
        let server = played::client(|_, _| Answer::Silence);
        let (client, _) = heeded(&server, ANSWER, Duration::from_hours(1));
        let (maps, parameters) = (Api::<ConfigMap>::all(client), WatchParams::default());
        let begin = || maps.watch(&parameters, "1");
        assert!(begin().await.is_ok());
        let again = tokio::time::timeout(LIMIT, begin()).await;
        assert!(again.is_err(), "it is begun again at once");
    }

    #[tokio::test]
    async fn a_watch_is_known_to_be_served_by_its_answer() {
        let (maps, answers) =
            api(
                |watches| if watches { Answer::Silence } else { played::list("ConfigMap", "v1", &json!([])) },
            );
        maps.list(&ListParams::default()).await.unwrap();
        assert!(!answers.any() && answers.last().is_none(), "a list is no watch");
        let _stream = maps.watch(&WatchParams::default(), "1").await.unwrap();
        assert!(answers.any() && !answers.any(), "it is told once");
    }

    #[tokio::test]
    async fn when_something_of_a_watch_came_last_is_known_although_nothing_changed() {
        fn bookmark() -> Answer {
            let metadata = json!({ "resourceVersion": "2" });
            let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata });
            Answer::Is(200, json!({ "type": "BOOKMARK", "object": object }))
        }
        let (maps, answers) = api(|watches| if watches { bookmark() } else { Answer::Hangs });
        let mut told = Box::pin(maps.watch(&WatchParams::default(), "1").await.unwrap());
        let answered = answers.last();
        assert!(answered.is_some(), "its head came");
        assert!(told.next().await.is_some_and(|told| told.is_ok()));
        assert!(answers.last() > answered);
        assert!(maps.list(&ListParams::default()).await.is_err());
        assert!(answers.last().is_none(), "it is not known what there is until it is listed");
    }

    #[tokio::test]
    async fn what_is_refused_or_hangs_was_not_answered() {
        for (answer, said) in [
            ((|_| played::denial()) as fn(bool) -> Answer, "forbidden"),
            (|_| Answer::Hangs, "did not begin"),
        ] {
            let (maps, answers) = api(answer);
            let error = maps.watch(&WatchParams::default(), "1").await.err().unwrap();
            assert!(runtime::telemetry::chain(&error).contains(said), "{error:?}");
            let error = maps.list(&ListParams::default()).await.unwrap_err();
            assert!(runtime::telemetry::chain(&error).contains(said), "{error:?}");
            assert!(!answers.any() && answers.last().is_none(), "{said}");
        }
    }
}
