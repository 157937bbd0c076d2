//! Health and metrics at the API's own address, for load balancers and monitors that reach nothing else.
//!
//! Health needs no token: a load balancer has none, and the answer names components, never databases. Metrics count
//! tenants' things, so they need a token of role sre; the operations address gives them without one.

use axum::extract::State;
use axum::response::Response;

use super::Api;
use super::auth::Caller;
use super::failure::Failure;

/// `GET /healthz`.
pub(crate) async fn healthz(State(api): State<Api>) -> Response {
    api.pages().healthz()
}

/// `GET /readyz`.
pub(crate) async fn readyz(State(api): State<Api>) -> Response {
    api.pages().readyz()
}

/// `GET /metrics`.
pub(crate) async fn metrics(State(api): State<Api>, caller: Caller) -> Result<Response, Failure> {
    caller.require_sre()?;
    Ok(api.pages().metrics())
}
