//! Health and metrics at the API's own address, for load balancers and monitors that reach nothing else.
//!
//! Health needs no token: a load balancer has none, and the answer names components, never databases, nor why one fails: that
//! would name hosts and users. Metrics count tenants' things, so they need a token of role sre; the operations address gives
//! reasons and metrics without one.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};

use super::Api;
use super::auth::Caller;
use super::failure::Failure;

/// `GET /healthz`.
pub(crate) async fn healthz(State(api): State<Api>) -> Response {
    api.pages().healthz()
}

/// `GET /readyz`: what fails, by its name alone.
pub(crate) async fn readyz(State(api): State<Api>) -> Response {
    let mut body = api.pages().health.readiness.to_json();
    if let Some(fields) = body.as_object_mut() {
        fields.remove("components");
    }
    let is_ready = body["ready"] == true;
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(body)).into_response()
}

/// `GET /metrics`.
pub(crate) async fn metrics(State(api): State<Api>, caller: Caller) -> Result<Response, Failure> {
    caller.require_sre()?;
    Ok(api.pages().metrics())
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use runtime::Health;
    use runtime::ops::Pages;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::Streams;
    use crate::doorbell::Doorbell;
    use crate::metrics::Metrics;

    #[tokio::test]
    async fn what_fails_is_named_to_anybody_and_why_is_not() {
        let health = Health::new();
        let postgres = health.readiness.component("postgres");
        postgres.set_failing("no password for user slipway at 10.0.0.7");
        let url = "postgres://nobody@127.0.0.1:1/nothing";
        let store = store::Store::connect(url, &store::Settings::default()).unwrap();
        let metrics = Metrics::new(&runtime::Metrics::default());
        let streams = Streams::new(metrics.clone());
        let pages = Pages { health, metrics: runtime::Metrics::default() };
        let api = Api::new(store, Doorbell::default(), streams, metrics, pages);
        assert_eq!(asked(&api).await, (503, json!({ "ready": false, "failing": ["postgres"] })));
        postgres.set_ok();
        assert_eq!(asked(&api).await, (200, json!({ "ready": true, "failing": [] })));
    }

    async fn asked(api: &Api) -> (u16, Value) {
        let answer = readyz(State(api.clone())).await;
        let status = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), 10_000).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }
}
