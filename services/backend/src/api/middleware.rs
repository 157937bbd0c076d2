//! Around every request: its identity, its span, its deadline, its line in the log, and the body of its failure.

use std::any::Any;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use runtime::TraceContext;
use runtime::trace::TRACEPARENT;
use tracing::Instrument as _;
use uuid::Uuid;
use wire::http::problem::MEDIA_TYPE;

use super::Api;
use super::failure::Failure;

/// How long an answer's head may take.
const DEADLINE: Duration = Duration::from_secs(15);

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A request's identity, its client's or ours.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) String);

/// Answers a request with all that belongs around it.
pub(crate) async fn around(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id(request.headers());
    request.extensions_mut().insert(RequestId(id.clone()));
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let span = tracing::info_span!(
        "request",
        http.method = %method,
        http.route = route,
        request.id = id,
        http.status = tracing::field::Empty
    );
    let parent = request.headers().get(TRACEPARENT).and_then(|value| value.to_str().ok()?.parse().ok());
    if let Some(parent) = parent {
        TraceContext::adopt(&parent, &span);
    }
    async {
        let mut response = match api.gate().refusal(&method, &route) {
            Some(refusal) => refusal.into_response(),
            None => answer(next, request).await,
        };
        finish(&mut response, &id);
        let (status, duration) = (response.status().as_u16(), started.elapsed());
        tracing::Span::current().record("http.status", status);
        api.metrics().request(counted(&method), &route, status, duration);
        tracing::debug!(http.status = status, duration_ms = runtime::telemetry::millis(duration), "answered");
        response
    }
    .instrument(span)
    .await
}

/// What the handler answers, in time.
async fn answer(next: Next, request: Request) -> Response {
    let answered = runtime::deadline(DEADLINE, "the answer", next.run(request)).await;
    answered.unwrap_or_else(|late| {
        Failure::unavailable("the answer took too long", late.to_string()).into_response()
    })
}

/// A method as it is counted: anybody may make up words for one, and each would be a series of its own for ever.
fn counted(method: &Method) -> &str {
    let known = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
    ];
    if known.contains(method) { method.as_str() } else { "other" }
}

/// What a panic in a handler is answered with.
#[expect(clippy::needless_pass_by_value, reason = "the layer hands over what was thrown")]
pub(crate) fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
    Failure::internal(format!("a handler panicked: {text}")).into_response()
}

/// Gives a response the request's identity, and a failure its body and, where it is ours, its line in the log.
fn finish(response: &mut Response, id: &str) {
    let failure = response.extensions_mut().remove::<Failure>();
    if let Some(failure) = failure.or_else(|| of_the_router(response.status())) {
        let Failure { mut problem, cause, .. } = failure;
        if let Ok(status) = StatusCode::from_u16(problem.status) {
            *response.status_mut() = status;
        }
        let reason = cause.unwrap_or_default();
        if problem.status >= 500 {
            tracing::error!(http.status = problem.status, problem.code, reason, "request failed");
        } else {
            tracing::debug!(
                http.status = problem.status,
                problem.code,
                reason,
                "request refused: {}",
                problem.detail
            );
        }
        id.clone_into(&mut problem.request_id);
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        response.headers_mut().remove(header::CONTENT_LENGTH);
        *response.body_mut() = body.into();
    }
    // Checked or made by us: always a valid header.
    if let Ok(value) = HeaderValue::from_str(id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
}

/// The failure that stands for a refusal which no handler gave: the router's own, of a path with bytes that are no text. What is
/// none belongs to nobody.
fn of_the_router(status: StatusCode) -> Option<Failure> {
    (status == StatusCode::BAD_REQUEST).then(Failure::no_route)
}

/// The client's identity for the request, if it is one that can safely stand in a log, else one of ours.
fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(&REQUEST_ID).and_then(|value| value.to_str().ok());
    let safe = |id: &&str| {
        (1..=128).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:/+=".contains(&b))
    };
    given.filter(safe).map_or_else(|| Uuid::now_v7().to_string(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;

    #[test]
    fn request_identities_are_taken_only_where_they_are_harmless() {
        let with = |value: &str| HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_str(value).unwrap())]);
        assert_eq!(request_id(&with("req-1:2/3")), "req-1:2/3");
        for bad in ["", "a b", "<script>", "x".repeat(129).as_str()] {
            assert!(request_id(&with(bad)).parse::<Uuid>().is_ok(), "{bad}");
        }
        assert_ne!(request_id(&HeaderMap::new()), request_id(&HeaderMap::new()));
    }

    #[tokio::test]
    async fn a_failure_gets_its_body_with_the_identity() {
        let mut response = Failure::not_found("database").into_response();
        finish(&mut response, "req-1");
        assert_eq!(response.headers()[header::CONTENT_TYPE], MEDIA_TYPE);
        assert_eq!(response.headers()[REQUEST_ID], "req-1");
        let body = to_bytes(response.into_body(), 10_000).await.unwrap();
        let problem: wire::http::Problem = serde_json::from_slice(&body).unwrap();
        assert_eq!((problem.status, problem.request_id.as_str()), (404, "req-1"));
    }

    #[tokio::test]
    async fn what_the_router_refuses_by_itself_is_a_problem_too() {
        let mut response = (StatusCode::BAD_REQUEST, "Invalid URL").into_response();
        finish(&mut response, "req-1");
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert_eq!(response.headers()[header::CONTENT_TYPE], MEDIA_TYPE);
        let mut good = StatusCode::NO_CONTENT.into_response();
        finish(&mut good, "req-1");
        assert_eq!(good.status(), StatusCode::NO_CONTENT);
    }

    #[test]
    fn methods_that_somebody_made_up_are_counted_as_one() {
        assert_eq!([counted(&Method::GET), counted(&Method::DELETE)], ["GET", "DELETE"]);
        for word in ["BREW", "get", "TRACE"] {
            assert_eq!(counted(&word.parse().unwrap()), "other", "{word}");
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_answer_too() {
        let mut response = panicked(Box::new("secret".to_owned()));
        finish(&mut response, "req-1");
        assert_eq!(response.status(), 500);
        let body = to_bytes(response.into_body(), 10_000).await.unwrap();
        assert!(!String::from_utf8_lossy(&body).contains("secret"));
    }
}
