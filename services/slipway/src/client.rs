//! The way to the API: requests with the token, tried again where that is safe and useful, within the command's deadline.
//! What the answers mean is the nouns' business.

pub mod aside;
pub mod calls;
pub mod retry;
pub mod states;

#[cfg(test)]
pub(crate) mod scripted;
#[cfg(test)]
mod tests;

use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, ETAG, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, Response, StatusCode, Url};
use secrecy::ExposeSecret;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use wire::http::Problem;

use crate::connection::Connection;
use crate::error::Error;
use crate::output::Output;
use retry::{Decision, Seen};

/// How long to wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How long one try may take.
const ATTEMPT: Duration = Duration::from_secs(20);
/// How long an answer may be silent: three heartbeats of an event stream.
const SILENCE: Duration = Duration::from_secs(45);
/// What to do where nothing else helps.
const LONGER: &str = "a longer --timeout leaves more time to try again";
/// The longest answer that is read.
const ANSWER: usize = 64 * 1024 * 1024;

/// The way to the API.
#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    url: Url,
    headers: HeaderMap,
    deadline: Instant,
    output: Output,
}

/// A request, to be sent as often as it takes.
#[derive(Debug, Clone)]
pub struct Request {
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    headers: HeaderMap,
    body: Option<serde_json::Value>,
    stream: bool,
}

/// An answer and the version of what it shows.
#[derive(Debug)]
pub struct Answer<T> {
    /// The body.
    pub body: T,
    /// Its version, for `If-Match`.
    pub etag: Option<HeaderValue>,
}

impl Request {
    /// A request to a path under the address of the API.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            query: Vec::new(),
            headers: HeaderMap::new(),
            body: None,
            stream: false,
        }
    }

    /// With a query parameter, if there is a value.
    #[must_use]
    pub fn query(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.query.extend(value.map(|value| (name, value.to_string())));
        self
    }

    /// With a header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// With a body.
    pub fn body(mut self, body: &impl Serialize) -> Result<Self, Error> {
        self.body = Some(serde_json::to_value(body).map_err(|error| Error::Render(Box::new(error)))?);
        Ok(self)
    }

    /// For an answer that goes on for as long as there is something to say.
    #[must_use]
    pub fn stream(mut self) -> Self {
        self.headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        self.stream = true;
        self
    }

    fn name(&self) -> String {
        format!("{} /{}", self.method, self.path)
    }

    /// What to do where nobody knows whether it was carried out.
    fn in_doubt(&self) -> String {
        let key = self.headers.get(calls::IDEMPOTENCY_KEY).and_then(|key| key.to_str().ok());
        match key {
            _ if self.method == Method::GET => LONGER.to_owned(),
            // Each letter has a key of its own, and is settled once whatever the key.
            Some(key) if !self.path.starts_with("v1/dead-letters/") => format!(
                "it may be carried out all the same: the same command with --idempotency-key {key} is carried out once"
            ),
            _ => "it may be carried out all the same: look before you run the command again".to_owned(),
        }
    }
}

impl Client {
    /// A way to an API, open until the deadline.
    pub fn new(connection: Connection, deadline: Instant, output: Output) -> Result<Self, Error> {
        let mut headers = HeaderMap::new();
        if let Some(token) = &connection.token {
            let text = format!("Bearer {}", token.expose_secret().trim());
            let mut value = HeaderValue::from_str(&text)
                .map_err(|_| Error::usage("the token holds characters that no token has"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        if let Some(tenant) = &connection.tenant {
            let value = HeaderValue::from_str(tenant).map_err(|_| Error::usage("that is no tenant"))?;
            headers.insert(HeaderName::from_static("slipway-tenant"), value);
        }
        let http = reqwest::Client::builder()
            .user_agent(concat!("slipway/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            // An API does not redirect, and the token is for it alone.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| Error::Unreachable {
                url: connection.url.to_string(),
                source: Box::new(error),
            })?;
        Ok(Self { http, url: connection.url, headers, deadline, output })
    }

    /// When the command must be done.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Stays open for this much longer: what a person took to answer is not the command's time.
    pub fn prolong(&mut self, by: Duration) {
        self.deadline += by;
    }

    /// Address of the API.
    pub const fn url(&self) -> &Url {
        &self.url
    }

    /// How the run speaks.
    pub const fn output(&self) -> Output {
        self.output
    }

    /// Sends a request and reads the answer as JSON. One that is cut off in its middle is no answer.
    pub async fn ask<T: DeserializeOwned>(&self, request: Request) -> Result<Answer<T>, Error> {
        let mut attempt = 0;
        let (etag, bytes) = loop {
            let response = self.insist(&request, &mut attempt).await?;
            let etag = response.headers().get(ETAG).cloned();
            match read(response).await {
                Ok(bytes) => break (etag, bytes),
                // Nothing comes of it but the reason, or another try.
                Err(failed) => drop(self.weigh(&request, Err(failed), &mut attempt).await.transpose()?),
            }
        };
        let body = serde_json::from_slice(&bytes)
            .map_err(|error| Error::Answer { request: request.name(), source: Box::new(error) })?;
        Ok(Answer { body, etag })
    }

    /// Sends a request until there is a success, a refusal, or no time left.
    pub async fn send(&self, request: Request) -> Result<Response, Error> {
        self.insist(&request, &mut 0).await
    }

    /// The same after so many tries.
    async fn insist(&self, request: &Request, attempt: &mut u32) -> Result<Response, Error> {
        loop {
            let outcome = self.attempt(request).await;
            if let Some(settled) = self.weigh(request, outcome, attempt).await {
                return settled;
            }
        }
    }

    /// What is made of a try; nothing where there is to be another, once it has been waited for.
    async fn weigh(
        &self,
        request: &Request,
        outcome: Result<Response, Failed>,
        attempt: &mut u32,
    ) -> Option<Result<Response, Error>> {
        let seen = seen(&outcome);
        match retry::decide(&seen, *attempt, self.remaining(), runtime::backoff::random_share()) {
            Decision::Settled => Some(self.settle(request, outcome).await),
            Decision::OutOfTime => Some(Err(self.out_of_time(request, outcome).await)),
            Decision::Again(delay) => {
                self.say(request, &seen, *attempt, delay);
                tokio::time::sleep(delay).await;
                *attempt += 1;
                None
            }
        }
    }

    /// Tells the curious of every wait, and everybody of the second one: by then it takes noticeably long.
    fn say(&self, request: &Request, seen: &Seen, attempt: u32, delay: Duration) {
        self.output.trace(&format!("{}: {seen}; trying again in {delay:.1?}", request.name()));
        if attempt == 1 {
            self.output.hint(&format!("{seen} from {}; trying again", self.url));
        }
    }

    fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    async fn attempt(&self, request: &Request) -> Result<Response, Failed> {
        let mut url = self.url.clone();
        url.set_path(&format!("{}{}", self.url.path(), request.path));
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&request.query);
        }
        let limit = self.remaining().min(ATTEMPT);
        let mut builder = self.http.request(request.method.clone(), url);
        builder = builder.headers(self.headers.clone()).headers(request.headers.clone());
        if !request.stream {
            builder = builder.timeout(limit);
        }
        if let Some(body) = &request.body {
            builder = builder.json(body);
        }
        let begun = Instant::now();
        let result = match tokio::time::timeout(limit, builder.send()).await {
            Ok(result) => result.map_err(Failed::Http),
            Err(_) => Err(Failed::Silent(limit)),
        };
        let told = match &result {
            Ok(response) => response.status().to_string(),
            Err(error) => error.to_string(),
        };
        self.output.trace(&format!("{}: {told} in {:.0?}", request.name(), begun.elapsed()));
        result
    }

    /// A success, or the refusal as an error.
    async fn settle(&self, request: &Request, outcome: Result<Response, Failed>) -> Result<Response, Error> {
        match outcome {
            Ok(response) if response.status().is_success() => Ok(response),
            Ok(response) => {
                let status = response.status();
                let request_id = header(&response, "x-request-id");
                let bytes = read(response).await.unwrap_or_default();
                let problem = Box::new(problem(status, &request_id, &bytes));
                Err(Error::Refused { request: request.name(), problem })
            }
            Err(error @ Failed::TooLong) => {
                Err(Error::Answer { request: request.name(), source: Box::new(error) })
            }
            Err(error) => Err(Error::Unreachable { url: self.url.to_string(), source: Box::new(error) }),
        }
    }

    async fn out_of_time(&self, request: &Request, outcome: Result<Response, Failed>) -> Error {
        // Who is refused for now is told so; of what nobody answered it is not known.
        let hint = if outcome.is_ok() { LONGER.to_owned() } else { request.in_doubt() };
        let why = match self.settle(request, outcome).await {
            Ok(_) => String::new(),
            Err(error) => format!(" ({})", error.explain().lines().next().unwrap_or_default()),
        };
        Error::TimedOut { doing: format!("{} got no answer in time{why}", request.name()), hint }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("no connection")]
    Http(#[source] reqwest::Error),
    #[error("no answer within {0:?}")]
    Silent(Duration),
    #[error("the answer was cut off")]
    Cut(#[source] reqwest::Error),
    #[error("the answer is longer than {ANSWER} bytes")]
    TooLong,
}

fn seen(outcome: &Result<Response, Failed>) -> Seen {
    match outcome {
        Ok(response) => Seen::Answered {
            status: response.status().as_u16(),
            retry_after: response
                .headers()
                .get(RETRY_AFTER)
                .and_then(|value| value.to_str().ok())
                .and_then(retry::after),
        },
        // A request that could not even be built will not be better the next time, nor will an absurd answer.
        Err(Failed::Http(error)) if error.is_builder() => Seen::Hopeless,
        Err(Failed::TooLong) => Seen::Hopeless,
        Err(Failed::Http(_) | Failed::Silent(_) | Failed::Cut(_)) => Seen::Unreachable,
    }
}

fn header(response: &Response, name: &str) -> String {
    response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// The body, if it is not absurdly long.
async fn read(mut response: Response) -> Result<Vec<u8>, Failed> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(Failed::Cut)? {
        if body.len() + chunk.len() > ANSWER {
            return Err(Failed::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The problem that an answer tells, or one made of its status, when something between us and the API answered.
fn problem(status: StatusCode, request_id: &str, body: &[u8]) -> Problem {
    let mut problem = serde_json::from_slice(body).unwrap_or_else(|_| {
        let title = status.canonical_reason().unwrap_or("An answer without a reason");
        let text: String =
            String::from_utf8_lossy(body).chars().filter(|c| !c.is_control()).take(200).collect();
        Problem::new(status.as_u16(), "http", title).detail(text.trim())
    });
    // What was answered counts, whatever the body says of it.
    problem.status = status.as_u16();
    if problem.request_id.is_empty() {
        request_id.clone_into(&mut problem.request_id);
    }
    problem
}
