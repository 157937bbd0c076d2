//! Whether the API server answered the request of a watch. Of a kind that does not change a watch says nothing for hours, and
//! one that nobody serves says as little: its answer tells them apart.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::Client;
use kube::client::Body;
use tokio::sync::Notify;

/// How long the API server may take to begin an answer, to a list as to a watch: it queues a request for less.
pub(super) const ANSWER: Duration = Duration::from_secs(30);

/// That requests of one watch were answered with success. Clones share what is known.
#[derive(Clone, Default)]
pub(crate) struct Answers(Arc<Notify>);

/// Nothing came.
#[derive(Debug, thiserror::Error)]
#[error("the API server did not begin to answer within {0:?}")]
struct Late(Duration);

impl Answers {
    /// Waits until a watch is answered.
    pub(super) async fn next(&self) {
        self.0.notified().await;
    }

    /// Whether one was answered that nobody was told of by now.
    pub(super) fn any(&self) -> bool {
        self.next().now_or_never().is_some()
    }
}

/// A client for one watch, of which it is told when the API server answers. What is not answered within `limit` breaks.
pub(super) fn heeded(client: &Client, limit: Duration) -> (Client, Answers) {
    let answers = Answers::default();
    let (inner, told) = (client.clone(), answers.clone());
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (inner, told) = (inner.clone(), told.clone());
        async move {
            let watches = is_watch(request.uri());
            let answer = tokio::time::timeout(limit, inner.send(request)).await;
            let answer = answer.map_err(|_| Box::new(Late(limit)))??;
            if watches && answer.status().is_success() {
                told.0.notify_one();
            }
            Ok::<_, tower::BoxError>(answer)
        }
    });
    (Client::new(service, client.default_namespace()), answers)
}

fn is_watch(uri: &http::Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::{ListParams, WatchParams};
    use serde_json::json;

    use super::*;
    use crate::played::{self, Answer};

    const LIMIT: Duration = Duration::from_millis(50);

    fn api(answer: fn(bool) -> Answer) -> (Api<ConfigMap>, Answers) {
        let (client, answers) = heeded(&played::client(move |_, watches| answer(watches)), LIMIT);
        (Api::all(client), answers)
    }

    #[tokio::test]
    async fn a_watch_is_known_to_be_served_by_its_answer() {
        let (maps, answers) =
            api(
                |watches| if watches { Answer::Silence } else { played::list("ConfigMap", "v1", &json!([])) },
            );
        maps.list(&ListParams::default()).await.unwrap();
        assert!(!answers.any(), "a list is no watch");
        let _stream = maps.watch(&WatchParams::default(), "1").await.unwrap();
        assert!(answers.any() && !answers.any(), "it is told once");
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
            assert!(!answers.any(), "{said}");
        }
    }
}
