//! Every request to the API server counted, at the one place where all of them pass: `rest_client_requests_total` of
//! client-go, with the kind of object added.

use std::pin::Pin;
use std::task::{Context, Poll};

use kube::client::Body;
use runtime::Metrics;
use runtime::prometheus_client::metrics::counter::Counter;
use runtime::prometheus_client::metrics::family::Family;
use tower::{Layer, Service};

use crate::metrics::Labels;

/// The code of a request without an answer, as client-go has it.
const NO_ANSWER: &str = "<error>";

/// Counts what passes. Clones share the count.
#[derive(Clone)]
pub(crate) struct Count {
    requests: Family<Labels, Counter>,
    host: String,
}

impl Count {
    /// Registers the count.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let requests = metrics.register(
            "rest_client_requests",
            "Requests to the API server, by code, method, host and kind of object",
            Family::default(),
        );
        Self { requests, host: String::new() }
    }

    /// For requests to this API server.
    pub(crate) fn of(&self, host: &str) -> Self {
        Self { host: host.to_owned(), ..self.clone() }
    }

    fn begin(&self, method: &http::Method, path: &str) -> Request {
        let labels = vec![
            ("code", NO_ANSWER.to_owned()),
            ("method", method.as_str().to_owned()),
            ("host", self.host.clone()),
            ("resource", resource(path)),
        ];
        Request { requests: self.requests.clone(), labels }
    }
}

/// A request under way: counted when it is answered, given up or breaks.
struct Request {
    requests: Family<Labels, Counter>,
    labels: Labels,
}

impl Request {
    fn answered(mut self, code: http::StatusCode) {
        if let Some((_, label)) = self.labels.first_mut() {
            code.as_str().clone_into(label);
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.requests.get_or_create(&self.labels).inc();
    }
}

/// The kind of object that a path is about, with its subresource: names of objects are not for labels.
fn resource(path: &str) -> String {
    let mut words = path.split('/').skip(1);
    // `/api/v1/…` or `/apis/GROUP/VERSION/…`
    let skipped = match words.next() {
        Some("api") => 1,
        Some("apis") => 2,
        _ => return "other".to_owned(),
    };
    let mut words: Vec<&str> = words.skip(skipped).collect();
    if words.len() > 2 && words.first() == Some(&"namespaces") {
        words.drain(..2);
    }
    match words.as_slice() {
        [] => "other".to_owned(),
        [kind] | [kind, _] => (*kind).to_owned(),
        [kind, _, subresource, ..] => format!("{kind}/{subresource}"),
    }
}

impl<S> Layer<S> for Count {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, count: self.clone() }
    }
}

/// A client that counts.
pub(crate) struct Counted<S> {
    inner: S,
    count: Count,
}

impl<S, B> Service<http::Request<Body>> for Counted<S>
where
    S: Service<http::Request<Body>, Response = http::Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    B: 'static,
{
    type Response = http::Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let counted = self.count.begin(request.method(), request.uri().path());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            match &answer {
                Ok(answer) => counted.answered(answer.status()),
                Err(_) => drop(counted),
            }
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart_by_kind_and_never_by_name() {
        for (path, expected) in [
            ("/api/v1/namespaces/a/secrets/b", "secrets"),
            ("/api/v1/namespaces/a/secrets", "secrets"),
            ("/api/v1/nodes/n", "nodes"),
            ("/api/v1/nodes", "nodes"),
            ("/api/v1/namespaces/a", "namespaces"),
            ("/apis/crd.questdb.io/v1/namespaces/a/questdbs/b/status", "questdbs/status"),
            ("/apis/storage.k8s.io/v1/volumeattachments", "volumeattachments"),
            ("/apis/apps/v1/namespaces/a/statefulsets/b", "statefulsets"),
            ("/version", "other"),
            ("", "other"),
        ] {
            assert_eq!(resource(path), expected, "{path}");
        }
    }

    #[tokio::test]
    async fn answers_failures_and_what_is_given_up_are_counted_once_each() {
        let metrics = Metrics::default();
        let count = Count::new(&metrics).of("server:6443");
        let inner = tower::service_fn(|request: http::Request<Body>| async move {
            match request.uri().path() {
                "/api/v1/nodes" => Ok(http::Response::new(())),
                "/api/v1/pods" => std::future::pending().await,
                _ => Err(()),
            }
        });
        let mut counted = count.layer(inner);
        let mut ask = |path: &str| {
            let request = http::Request::get(path).body(Body::empty()).unwrap();
            counted.call(request)
        };
        assert!(ask("/api/v1/nodes").await.is_ok());
        assert!(ask("/api/v1/services").await.is_err());
        drop(ask("/api/v1/pods"));
        let text = metrics.encode().unwrap();
        for (code, resource) in [("200", "nodes"), (NO_ANSWER, "services"), (NO_ANSWER, "pods")] {
            let line = format!(
                "rest_client_requests_total{{code=\"{code}\",method=\"GET\",host=\"server:6443\",resource=\"{resource}\"}} 1"
            );
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
