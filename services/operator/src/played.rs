//! An API server that is played: each request is answered by a function, or never.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// What a request gets.
pub(crate) enum Answer {
    /// That the request is served, and nothing after that: so is a watch while nothing changes.
    Silence,
    /// Nothing, ever.
    Hangs,
    /// Status and body.
    Is(u16, Value),
}

/// Answers by path and whether it is a watch.
pub(crate) fn client(answer: impl Fn(&str, bool) -> Answer + Send + Sync + 'static) -> Client {
    let answer = Arc::new(answer);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let answer = answer(request.uri().path(), watches);
        async move {
            let (code, body) = match answer {
                Answer::Hangs => return std::future::pending().await,
                Answer::Silence => (200, Told { text: None, ends: false }),
                Answer::Is(code, body) => (code, Told { text: Some(body.to_string()), ends: true }),
            };
            http::Response::builder().status(code).header("content-type", "application/json").body(body)
        }
    });
    Client::new(service, "default")
}

/// What is told after the head of an answer.
struct Told {
    text: Option<String>,
    ends: bool,
}

impl http_body::Body for Told {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.text.take() {
            Some(text) => Poll::Ready(Some(Ok(Frame::data(text.into())))),
            None if self.ends => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

/// What the API server itself says when RBAC lacks a verb.
pub(crate) fn denial() -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": "configmaps is forbidden: User \"u\" cannot list resource \"configmaps\" in API group \"\"",
    });
    Answer::Is(403, status)
}

/// What it says when something of its own went wrong, in words that sound like a refusal.
pub(crate) fn failure() -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "InternalError", "code": 500,
        "message": "forbidden: cannot list resource",
    });
    Answer::Is(500, status)
}

/// A list of some objects of a kind.
pub(crate) fn list(kind: &str, version: &str, items: &Value) -> Answer {
    let metadata = json!({ "resourceVersion": "1" });
    let list =
        json!({ "kind": format!("{kind}List"), "apiVersion": version, "metadata": metadata, "items": items });
    Answer::Is(200, list)
}
