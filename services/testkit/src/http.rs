//! An HTTP client for tests, and through it the API of the stack, and EC2 as people ask it by hand.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// How long a request is repeated.
const PATIENCE: Duration = Duration::from_mins(1);

/// A client with a deadline for each call.
///
/// # Panics
/// When TLS cannot be set up, which no test can do without.
pub fn http() -> reqwest::Client {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    reqwest::Client::builder()
        .timeout(Duration::from_mins(1))
        .build()
        .expect("a client without special settings")
}

/// A request to EC2 for which nothing of ours has a word, as people make it by hand; the answer in EC2's own form.
///
/// # Errors
/// When the endpoint cannot be reached, or refuses it: the body is in the message.
pub async fn ec2_by_hand(
    region: &str,
    action: &str,
    parameters: &[(String, String)],
) -> anyhow::Result<String> {
    // The endpoint looks at no signature, and learns from it which service of which region is meant.
    let scope = format!("test/20260101/{region}/ec2/aws4_request");
    let signature = format!("AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0");
    let request = http().get(&crate::stack().aws_endpoint_url).header("Authorization", signature);
    let request = request.query(&[("Action", action), ("Version", "2016-11-15")]).query(parameters);
    let response = request.send().await?;
    let status = response.status();
    let text = response.text().await?;
    ensure!(status.is_success(), "{action}: {status}: {text}");
    Ok(text)
}

/// The API of the stack, spoken to as a tenant by the stack's own token.
#[derive(Debug, Clone)]
pub struct Console {
    client: reqwest::Client,
    base: String,
    token: String,
    tenant: String,
}

impl Console {
    /// Speaks for `tenant`.
    ///
    /// # Panics
    /// When the stack runs without the programs of Slipway.
    pub fn of(tenant: &str) -> Self {
        let stack = crate::stack();
        let base = stack.api_url.clone().expect("the programs of Slipway run in this stack");
        let token = stack.token.clone().expect("a stack with an API has a token");
        Self::at(&base, &token, tenant)
    }

    /// Speaks for `tenant` to an API of the test's own.
    pub fn at(base: &str, token: &str, tenant: &str) -> Self {
        Self { client: http(), base: base.to_owned(), token: token.to_owned(), tenant: tenant.to_owned() }
    }

    /// A request with the token and the tenant.
    pub fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        self.client
            .request(method, format!("{}{path}", self.base))
            .bearer_auth(&self.token)
            .header("Slipway-Tenant", &self.tenant)
    }

    /// The JSON body at `path`.
    ///
    /// # Errors
    /// When the answer is not a success; the body is in the message.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        json(self.request(reqwest::Method::GET, path)).await
    }

    /// Posts with one idempotency key, again where the API could not be reached or was not ready.
    ///
    /// # Errors
    /// When the answer is a refusal; the body is in the message.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let key = uuid::Uuid::now_v7().to_string();
        answered(|| self.request(reqwest::Method::POST, path).header("Idempotency-Key", &key).json(body))
            .await
    }

    /// Deletes, again where the API could not be reached or was not ready: what is deleted already is answered as it was then.
    ///
    /// # Errors
    /// When the answer is a refusal; the body is in the message.
    pub async fn delete(&self, path: &str) -> anyhow::Result<Value> {
        answered(|| self.request(reqwest::Method::DELETE, path)).await
    }
}

/// Sends a request until somebody answers who is ready, and reads JSON.
async fn answered(request: impl Fn() -> reqwest::RequestBuilder) -> anyhow::Result<Value> {
    crate::eventually(PATIENCE, "an answer of the API", async || match json(request()).await {
        Err(error) if is_passing(&error) => None,
        answer => Some(answer),
    })
    .await
}

/// Whether asking again may help. A backend that has just started looks only a few tokens up at once, and says 429 to others where
/// Postgres takes long to answer. One that has said that it takes too long may still be at the very same request.
fn is_passing(error: &anyhow::Error) -> bool {
    let text = error.to_string();
    let is_under_way = text.starts_with("409") && text.contains("idempotency_key_in_flight");
    let is_later = text.starts_with("503") || text.starts_with("429");
    error.downcast_ref::<reqwest::Error>().is_some() || is_later || is_under_way
}

/// Sends and reads JSON.
async fn json(request: reqwest::RequestBuilder) -> anyhow::Result<Value> {
    let response = request.send().await?;
    let status = response.status();
    let text = response.text().await?;
    ensure!(status.is_success(), "{status}: {text}");
    serde_json::from_str(&text).with_context(|| format!("not JSON: {text}"))
}
