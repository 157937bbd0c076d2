//! The backend in this process against a real Postgres, and a real Kafka where records matter.

#![cfg(test)]

use std::time::Duration;

use ::backend::api::{Api, Gate, Limits, Streams};
use ::backend::doorbell::Doorbell;
use ::backend::metrics::Metrics;
use ::backend::tokens::{self, Wish};
use ::store::{Role, Settings, Store};
use reqwest::{Method, RequestBuilder, StatusCode};
use runtime::connections::Bounds;
use runtime::ops::Pages;
use runtime::{CancellationToken, Health};
use serde_json::{Value, json};
use testkit::query;

use crate::support::{database, patient};

mod access;
mod aside;
mod batches;
mod changes;
mod create;
mod endings;
mod heard;
mod lists;
mod outage;
mod pressure;
mod relays;
mod replicas;
mod road;
mod shares;
mod streams;
mod sweep;
mod trouble;

/// How long anything may take, on processors that are busy with other tests. Whoever waits goes on as soon as it is so.
const PATIENCE: Duration = Duration::from_mins(2);

/// The API on a port of its own over a database of its own, with a tenant, a console, an SRE and a cluster.
struct App {
    store: Store,
    url: String,
    base: String,
    client: reqwest::Client,
    doorbell: Doorbell,
    metrics: Metrics,
    stop: CancellationToken,
    acme: String,
    umbrella: String,
    console: String,
    sre: String,
}

/// An answer, read whole.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    headers: reqwest::header::HeaderMap,
    body: Value,
}

impl App {
    async fn new() -> Self {
        let (store, url) = database().await;
        Self::over(store, url).await
    }

    /// The same for many who ask for the same rows at once: each waits for those before it, and a busy machine may take long with
    /// them.
    async fn crowded() -> Self {
        let (_, url) = database().await;
        // Where more ask at once than there are connections, they wait for those as well.
        let settings = Settings { acquire: PATIENCE, lock: PATIENCE, statement: PATIENCE, ..patient() };
        let app = Self::over(Store::connect(&url, &settings).unwrap(), url).await;
        // Tokens that were not seen before are looked up a few at a time, and whoever waits long for that is refused.
        assert_eq!(app.get(&app.acme, "/v1/databases").await.status, 200);
        app
    }

    /// The same over a database that somebody made.
    async fn over(store: Store, url: String) -> Self {
        let token = async |role, tenant: Option<&str>| {
            let tenant = tenant.map(|id| id.parse().unwrap());
            tokens::create(&store, Wish { role, tenant, name: "test".to_owned(), days: None }).await.unwrap()
        };
        let (acme, umbrella) =
            (token(Role::Tenant, Some("acme")).await, token(Role::Tenant, Some("umbrella")).await);
        let (console, sre) = (token(Role::Console, None).await, token(Role::Sre, None).await);
        let metrics = Metrics::new(&runtime::Metrics::default());
        let (doorbell, stop) = (Doorbell::default(), CancellationToken::new());
        let base = serve(store.clone(), doorbell.clone(), metrics.clone(), stop.clone()).await;
        let app = Self {
            client: testkit::http(),
            store,
            url,
            base,
            doorbell,
            metrics,
            stop,
            acme,
            umbrella,
            console,
            sre,
        };
        let registered =
            app.send(app.request(&app.sre, Method::PUT, "/v1/clusters/eu").json(&cluster())).await;
        assert_eq!(registered.status, 201, "{registered:?}");
        app
    }

    fn request(&self, token: &str, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base)).bearer_auth(token)
    }

    async fn send(&self, request: RequestBuilder) -> Answer {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.unwrap();
        Answer { status, headers, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) }
    }

    async fn get(&self, token: &str, path: &str) -> Answer {
        self.send(self.request(token, Method::GET, path)).await
    }

    /// Asks for a database with a new key.
    async fn create(&self, token: &str, body: &Value) -> Answer {
        let key = testkit::unique("key");
        self.send(
            self.request(token, Method::POST, "/v1/databases").header("Idempotency-Key", key).json(body),
        )
        .await
    }

    /// A database of acme.
    async fn created(&self, name: &str) -> Value {
        let answer = self.create(&self.acme, &json!({"name": name, "region": "eu-west-1"})).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.body
    }

    async fn patch(&self, id: &str, etag: &str, body: &Value) -> Answer {
        let request = self.request(&self.acme, Method::PATCH, &format!("/v1/databases/{id}"));
        self.send(request.header("If-Match", etag).json(body)).await
    }

    async fn delete(&self, id: &str) -> Answer {
        self.send(self.request(&self.acme, Method::DELETE, &format!("/v1/databases/{id}"))).await
    }

    /// What an API of the same kind is made of.
    fn parts(&self) -> Parts {
        (self.store.clone(), self.doorbell.clone(), self.metrics.clone(), self.stop.clone())
    }

    async fn ask(&self, statement: &str) -> String {
        query(&self.url, statement).await.unwrap()
    }

    /// How many rows every change must leave alone or raise together.
    async fn counts(&self) -> String {
        self.ask(
            "select (select count(*) from databases), (select count(*) from operations), \
             (select count(*) from instructions), (select count(*) from operation_events), \
             (select count(*) from idempotency_keys), (select count(*) from audit where action <> 'clusters.register')",
        )
        .await
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Serves an API on a free port and gives its address.
pub(crate) async fn serve(
    store: Store,
    doorbell: Doorbell,
    metrics: Metrics,
    stop: CancellationToken,
) -> String {
    serve_behind(Limits::default(), (store, doorbell, metrics, stop)).await
}

/// The same with limits for what may wait.
async fn serve_behind(limits: Limits, parts: Parts) -> String {
    let (store, _, metrics, stop) = &parts;
    let gate = Gate::new(limits, metrics.clone());
    tokio::spawn(gate.clone().run(store.clone(), stop.clone()));
    serve_as(parts, |api| api.behind(gate)).await
}

/// What an API is made of here.
type Parts = (Store, Doorbell, Metrics, CancellationToken);

/// Serves an API that is finished like this.
async fn serve_as((store, doorbell, metrics, stop): Parts, finish: impl FnOnce(Api) -> Api) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let streams = Streams::new(metrics.clone());
    tokio::spawn(streams.clone().run(store.clone(), stop.clone()));
    let pages = Pages { health: Health::new(), metrics: runtime::Metrics::default() };
    let api = finish(Api::new(store, doorbell, streams, metrics, pages));
    tokio::spawn(::backend::serve::listen(listener, api, Bounds::default(), stop));
    base
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Each wrong field with its rule.
    fn errors(&self) -> Vec<(&str, &str)> {
        let errors = self.body["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
        errors.iter().map(|error| (text(&error["pointer"]), text(&error["rule"]))).collect()
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn cluster() -> Value {
    json!({
        "region": "eu-west-1",
        "account": "000000000000",
        "zones": {"eu-west-1a": "subnet-1"},
        "hosted_zone_id": "Z1",
        "dns_suffix": "eu-west-1.example.com",
        "credentials": "file:eu.kubeconfig",
    })
}
