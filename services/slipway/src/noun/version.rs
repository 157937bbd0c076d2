//! The version of this program and, where one can be reached, of the API.

use std::fmt::Write;
use std::time::Duration;

use reqwest::Method;
use serde::{Deserialize, Serialize};

use crate::client::Request;
use crate::error::Error;
use crate::session::Session;

/// How long the API may take to say its version.
const PATIENCE: Duration = Duration::from_secs(3);

/// Versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Versions {
    client: Build,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<Server>,
}

/// This program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Build {
    version: String,
    commit: Option<String>,
}

/// The API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Server {
    api_url: String,
    version: String,
}

/// The part of the API's description that is of interest.
#[derive(Debug, Deserialize)]
struct Description {
    info: Info,
}

#[derive(Debug, Deserialize)]
struct Info {
    version: String,
}

/// Shows them. An API that cannot be asked is no failure.
pub async fn run(session: &Session) -> Result<(), Error> {
    let server = server(session).await;
    if let Err(error) = &server {
        session.output.trace(&error.explain());
    }
    let client = Build {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: option_env!("SLIPWAY_COMMIT").map(str::to_owned),
    };
    let versions = Versions { client, server: server.unwrap_or_default() };
    if let Some(skew) = skew(&versions) {
        session.output.warn(&skew);
    }
    session.output.show(&versions, |_| text(&versions), || vec![versions.client.version.clone()])
}

async fn server(session: &Session) -> Result<Option<Server>, Error> {
    let client = session.client(PATIENCE)?;
    let api_url = client.url().to_string();
    let description: Description = client.ask(Request::new(Method::GET, "openapi.json")).await?.body;
    Ok(Some(Server { api_url, version: description.info.version }))
}

/// What to say where the two do not fit: major and minor decide.
fn skew(versions: &Versions) -> Option<String> {
    let server = versions.server.as_ref()?;
    let series = |version: &str| version.split('.').take(2).map(str::to_owned).collect::<Vec<_>>();
    let (own, theirs) = (&versions.client.version, &server.version);
    (series(own) != series(theirs))
        .then(|| format!("this is slipway {own}, the API is {theirs}: some commands may not fit"))
}

fn text(versions: &Versions) -> String {
    let commit = versions.client.commit.as_ref().map(|commit| format!(" ({commit})")).unwrap_or_default();
    let mut text = format!("Client: {}{commit}\n", versions.client.version);
    if let Some(server) = &versions.server {
        let _ = writeln!(text, "Server: {} at {}", server.version, server.api_url);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(server: &str) -> Versions {
        Versions {
            client: Build { version: "0.1.0".to_owned(), commit: Some("abc".to_owned()) },
            server: Some(Server { api_url: "http://a/".to_owned(), version: server.to_owned() }),
        }
    }

    #[test]
    fn only_another_series_is_a_skew() {
        assert_eq!(skew(&versions("0.1.7")), None);
        assert!(skew(&versions("0.2.0")).is_some());
        assert!(skew(&versions("1.1.0")).is_some());
    }

    #[test]
    fn both_are_shown() {
        assert_eq!(text(&versions("0.1.7")), "Client: 0.1.0 (abc)\nServer: 0.1.7 at http://a/\n");
    }
}
