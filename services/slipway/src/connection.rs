//! Which API to speak to, as whom: flags before a context that was named, before the environment, before the current
//! context. Pure.
//!
//! *Invariant:* a context's token goes to that context's address only.

use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};

use crate::cli::{Given, Global};
use crate::contexts::{Context, Contexts};
use crate::error::Error;

/// The API and who one is there.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Address, ending with `/`.
    pub url: Url,
    /// Bearer token.
    pub token: Option<SecretString>,
    /// Tenant to act for.
    pub tenant: Option<String>,
}

/// Chooses.
pub fn resolve(global: &Global, given: Given, contexts: &Contexts) -> Result<Connection, Error> {
    let context = context(global, contexts)?;
    let named = context.filter(|_| given.context);
    let text = pick(
        given.api_url,
        global.api_url.as_ref(),
        named.map(|context| &context.api_url),
        context.map(|context| &context.api_url),
    )
    .ok_or_else(|| Error::Usage {
        message: "no API to speak to".to_owned(),
        hint: "set SLIPWAY_API and SLIPWAY_TOKEN, or `slipway contexts set NAME --api-url URL --token-stdin`"
            .to_owned(),
    })?;
    let url = parse(text)?;
    let kept = |context: Option<&Context>| {
        let context = context?;
        let same = parse(&context.api_url).is_ok_and(|own| own == url);
        context.token.clone().filter(|_| same).map(SecretString::from)
    };
    let token = pick(given.token, global.token.clone(), kept(named), kept(context));
    let tenant = pick(
        given.tenant,
        global.tenant.clone(),
        named.and_then(|context| context.tenant.clone()),
        context.and_then(|context| context.tenant.clone()),
    );
    Ok(Connection { url, token, tenant })
}

/// A flag, else what a named context says, else the environment, else the current context.
fn pick<T>(is_flag: bool, value: Option<T>, named: Option<T>, current: Option<T>) -> Option<T> {
    if is_flag { value } else { named.or(value).or(current) }
}

fn context<'a>(global: &Global, contexts: &'a Contexts) -> Result<Option<&'a Context>, Error> {
    let Some(name) = global.context.as_ref().or(contexts.current.as_ref()) else { return Ok(None) };
    match contexts.contexts.get(name) {
        Some(context) => Ok(Some(context)),
        None => Err(Error::Usage {
            message: format!("there is no context {name:?}"),
            hint: "slipway contexts list".to_owned(),
        }),
    }
}

/// An address of an API: http or https, without credentials, ending with `/`.
pub fn parse(text: &str) -> Result<Url, Error> {
    let wrong = |reason: &str| Error::Usage {
        message: format!("the address of the API is not usable: {reason}"),
        hint: "an address looks like https://slipway.example.com or http://127.0.0.1:8080".to_owned(),
    };
    let mut url = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("it must begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("credentials do not belong into it"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("it must end with its path"));
    }
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    Ok(url)
}

/// Whether a token would travel in the open.
pub fn in_the_open(connection: &Connection) -> bool {
    let host = connection.url.host_str().unwrap_or_default();
    let local = matches!(host, "localhost" | "[::1]") || host.starts_with("127.");
    connection.url.scheme() == "http"
        && !local
        && connection.token.as_ref().is_some_and(|token| !token.expose_secret().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use clap::Parser;

    fn global(arguments: &[&str]) -> Global {
        crate::cli::Cli::parse_from([&["slipway", "version"], arguments].concat()).global
    }

    fn contexts() -> Contexts {
        let context = |name: &str| Context {
            api_url: format!("https://{name}.example.com"),
            token: Some(format!("{name}-token")),
            tenant: Some(format!("{name}-tenant")),
        };
        Contexts {
            current: Some("dev".to_owned()),
            contexts: BTreeMap::from([
                ("dev".to_owned(), context("dev")),
                ("live".to_owned(), context("live")),
            ]),
        }
    }

    fn told(global: &Global, given: Given, contexts: &Contexts) -> (String, String, String) {
        let connection = resolve(global, given, contexts).unwrap();
        let token = connection.token.map(|token| token.expose_secret().to_owned());
        (connection.url.to_string(), token.unwrap_or_default(), connection.tenant.unwrap_or_default())
    }

    fn three(url: &str, token: &str, tenant: &str) -> (String, String, String) {
        (url.to_owned(), token.to_owned(), tenant.to_owned())
    }

    const ALL: [&str; 6] = ["--api-url", "http://e", "--token", "e-token", "--tenant", "e-tenant"];

    #[test]
    fn the_current_context_is_used_when_nothing_else_is_said() {
        let told = told(&global(&[]), Given::default(), &contexts());
        assert_eq!(told, three("https://dev.example.com/", "dev-token", "dev-tenant"));
    }

    #[test]
    fn the_environment_beats_the_current_context() {
        let told = told(&global(&ALL), Given::default(), &contexts());
        assert_eq!(told, three("http://e/", "e-token", "e-tenant"));
    }

    #[test]
    fn a_named_context_beats_the_environment() {
        let arguments = [&ALL[..], &["--context", "live"]].concat();
        let given = Given { context: true, ..Given::default() };
        let told = told(&global(&arguments), given, &contexts());
        assert_eq!(told, three("https://live.example.com/", "live-token", "live-tenant"));
    }

    #[test]
    fn flags_beat_everything() {
        let arguments = [&ALL[..], &["--context", "live"]].concat();
        let given = Given { context: true, api_url: true, token: true, tenant: true };
        let told = told(&global(&arguments), given, &contexts());
        assert_eq!(told, three("http://e/", "e-token", "e-tenant"));
    }

    #[test]
    fn a_kept_token_goes_to_its_own_address_only() {
        let elsewhere = told(&global(&["--api-url", "http://evil"]), Given::default(), &contexts());
        assert_eq!(elsewhere, three("http://evil/", "", "dev-tenant"));
        let same = told(&global(&["--api-url", "https://dev.example.com"]), Given::default(), &contexts());
        assert_eq!(same, three("https://dev.example.com/", "dev-token", "dev-tenant"));
    }

    #[test]
    fn nothing_to_speak_to_and_unknown_contexts_are_usage_errors() {
        let nothing = resolve(&global(&[]), Given::default(), &Contexts::default()).unwrap_err();
        assert!(nothing.explain().contains("SLIPWAY_API"), "{nothing}");
        let unknown = resolve(&global(&["--context", "x"]), Given::default(), &contexts()).unwrap_err();
        assert_eq!(crate::exit::code(&unknown), crate::exit::USAGE);
    }

    #[test]
    fn addresses() {
        assert_eq!(parse("http://a:1/base").unwrap().as_str(), "http://a:1/base/");
        for text in ["", "a:1", "ftp://a", "http://user:pw@a", "http://a?x=1", "http://a#x"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn tokens_in_the_open_are_noticed() {
        let connection = |url: &str, token: Option<&str>| Connection {
            url: parse(url).unwrap(),
            token: token.map(SecretString::from),
            tenant: None,
        };
        assert!(in_the_open(&connection("http://a", Some("t"))));
        assert!(!in_the_open(&connection("http://a", None)));
        for url in ["https://a", "http://127.0.0.1:1", "http://localhost", "http://[::1]:1"] {
            assert!(!in_the_open(&connection(url, Some("t"))), "{url}");
        }
    }
}
