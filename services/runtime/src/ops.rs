//! What operators and orchestrators ask a program: `/healthz`, `/readyz`, `/metrics`.
//!
//! Meant for a private address: there is no authentication, and nothing here changes anything. [`router`] can also be
//! merged into another server.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::connections::{self, Bounds, Counts};
use crate::{Health, Metrics, metrics};

/// The most connections: those of an orchestrator, some collectors and some people.
const CONNECTIONS: u32 = 128;

/// Arguments of the operations server, to be flattened into a program's own.
#[derive(Debug, Clone, clap::Args)]
// Without the two `None`s the comment above would become the description of the program.
#[command(next_help_heading = "Operations", about = None, long_about = None)]
pub struct OpsArgs {
    /// Address of /healthz, /readyz and /metrics; port 0 takes a free one and logs it
    #[arg(
        long = "ops-listen",
        env = "SLIPWAY_OPS_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:0"
    )]
    pub ops_listen: SocketAddr,
}

/// The operations server did not start or broke.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be had.
    #[error("listen on {address} for operations")]
    Bind {
        /// As asked for.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The listener has no address.
    #[error("serve operations")]
    Serve(#[source] io::Error),
}

/// The three pages, to be served by anyone.
pub fn router(health: Health, metrics: Metrics) -> Router {
    Router::new()
        .route("/healthz", get(async |State(pages): State<Pages>| pages.healthz()))
        .route("/readyz", get(async |State(pages): State<Pages>| pages.readyz()))
        .route("/metrics", get(async |State(pages): State<Pages>| pages.metrics()))
        .with_state(Pages { health, metrics })
}

/// Takes the address, so that a program that cannot have it ends at once.
pub async fn bind(args: &OpsArgs) -> Result<TcpListener, Error> {
    let address = args.ops_listen;
    TcpListener::bind(address).await.map_err(|source| Error::Bind { address, source })
}

/// Serves `router` until `stop`; requests under way are answered first. Over connections of its own, however many others there are.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let bounds = Bounds { most: CONNECTIONS, ..Bounds::default() };
    connections::serve(listener, router, bounds, Counts::default(), stop).await;
}

/// The answers behind the three paths.
#[derive(Debug, Clone)]
pub struct Pages {
    /// What is alive and what is ready.
    pub health: Health,
    /// What is counted.
    pub metrics: Metrics,
}

impl Pages {
    /// Whether every loop of the program still comes round: 200, or 503 with those that do not.
    pub fn healthz(&self) -> Response {
        let now = Instant::now();
        let liveness = &self.health.liveness;
        (status(liveness.is_alive(now)), Json(liveness.to_json(now))).into_response()
    }

    /// Whether the program can do its work: 200, or 503 with what is missing and why.
    pub fn readyz(&self) -> Response {
        // The status follows from the same look as the body, so that the two never contradict each other.
        let body = self.health.readiness.to_json();
        (status(body["ready"] == true), Json(body)).into_response()
    }

    /// Everything counted, as text.
    pub fn metrics(&self) -> Response {
        match self.metrics.encode() {
            Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
            Err(error) => {
                tracing::error!(
                    error = &error as &(dyn std::error::Error + 'static),
                    "metrics could not be written"
                );
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

const fn status(well: bool) -> StatusCode {
    if well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use prometheus_client::metrics::gauge::Gauge;
    use serde_json::Value;
    use std::time::Duration;
    use tower::ServiceExt;

    async fn ask(router: &Router, path: &str) -> (StatusCode, String, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let media =
            response.headers().get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap().to_owned());
        let status = response.status();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, media.unwrap_or_default(), String::from_utf8(body.to_vec()).unwrap())
    }

    async fn ask_json(router: &Router, path: &str) -> (StatusCode, Value) {
        let (status, _, body) = ask(router, path).await;
        (status, serde_json::from_str(&body).unwrap())
    }

    #[tokio::test]
    async fn readiness_follows_the_components() {
        let health = Health::new();
        let router = router(health.clone(), Metrics::default());
        assert_eq!(ask_json(&router, "/readyz").await.0, StatusCode::OK);
        let postgres = health.readiness.component("postgres");
        postgres.set_failing("connection refused");
        let (status, body) = ask_json(&router, "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(body["failing"][0], "postgres");
        assert_eq!(body["components"][0]["reason"], "connection refused");
        postgres.set_ok();
        let (status, body) = ask_json(&router, "/readyz").await;
        assert_eq!((status, &body["ready"]), (StatusCode::OK, &Value::Bool(true)));
    }

    #[tokio::test]
    async fn liveness_names_the_stuck_loop() {
        let health = Health::new();
        let router = router(health.clone(), Metrics::default());
        let heartbeat = health.liveness.heartbeat("relay", Duration::ZERO);
        let (status, body) = ask_json(&router, "/healthz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(body["stuck"][0], "relay");
        drop(heartbeat);
        assert_eq!(ask_json(&router, "/healthz").await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn metrics_come_as_open_metrics() {
        let metrics = Metrics::default();
        metrics.register("depth", "Rows waiting", Gauge::<i64>::default()).set(3);
        let (status, media, body) = ask(&router(Health::new(), metrics), "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(media, metrics::CONTENT_TYPE);
        assert!(body.contains("\ndepth 3\n"), "{body}");
    }

    #[tokio::test]
    async fn the_pages_can_be_part_of_another_server() {
        let other = Router::new().route("/v1/databases", get(|| async { "none" }));
        let merged = other.merge(router(Health::new(), Metrics::default()));
        assert_eq!(ask(&merged, "/v1/databases").await.2, "none");
        assert_eq!(ask(&merged, "/healthz").await.0, StatusCode::OK);
        assert_eq!(ask(&merged, "/nothing").await.0, StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn the_server_ends_when_asked() {
        let listener = bind(&OpsArgs { ops_listen: "127.0.0.1:0".parse().unwrap() }).await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(listener, router(Health::new(), Metrics::default()), stop.clone()));
        let connection = tokio::net::TcpStream::connect(address).await.unwrap();
        stop.cancel();
        drop(connection);
        tokio::time::timeout(Duration::from_secs(30), server).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_taken_address_is_told() {
        let first = bind(&OpsArgs { ops_listen: "127.0.0.1:0".parse().unwrap() }).await.unwrap();
        let taken = OpsArgs { ops_listen: first.local_addr().unwrap() };
        let error = bind(&taken).await.unwrap_err();
        assert_eq!(error.to_string(), format!("listen on {} for operations", taken.ops_listen));
    }
}
