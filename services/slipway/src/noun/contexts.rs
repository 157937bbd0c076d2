//! Contexts: keep addresses and tokens of several installations. A token is taken in and never shown.

use std::io::Read;

use clap::{Args, Subcommand};
use secrecy::ExposeSecret;
use serde::Serialize;

use crate::connection;
use crate::contexts::{Context, Contexts, load, save};
use crate::error::Error;
use crate::render::text::{NONE, table};
use crate::session::Session;

/// The longest token that is read.
const LENGTH: u64 = 16 * 1024;

/// What can be done with contexts.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List contexts
    #[command(visible_alias = "ls")]
    List,
    /// Make or change a context from --api-url, --token and --tenant; the first one becomes the current one
    Set(Set),
    /// Make a context the current one
    Use(Named),
    /// Forget a context and its token
    #[command(visible_alias = "rm")]
    Delete(Named),
}

/// `contexts set`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway contexts set dev --api-url http://127.0.0.1:8080 --token-stdin < token
  SLIPWAY_TOKEN=... slipway contexts set live --api-url https://slipway.example.com --tenant acme

What is not given stays as it is.")]
pub struct Set {
    /// Name
    name: String,
    /// Read the token from standard input
    #[arg(long, conflicts_with = "token")]
    token_stdin: bool,
}

/// `contexts use` and `contexts delete`.
#[derive(Debug, Args)]
pub struct Named {
    /// Name
    name: String,
}

/// A context as it may be shown.
#[derive(Debug, Serialize)]
struct Shown {
    name: String,
    current: bool,
    api_url: String,
    tenant: Option<String>,
    has_token: bool,
}

/// Does what is asked.
pub fn run(session: &Session, command: Command) -> Result<(), Error> {
    let path = session.contexts_path()?;
    let mut contexts = load(&path)?;
    match command {
        Command::List => return list(session, &contexts),
        Command::Set(command) => {
            let name = command.name.clone();
            let context = set(session, &command, contexts.contexts.get(&name))?;
            if connection_in_the_open(&context) {
                session.output.warn("the token will travel unencrypted: use https");
            }
            contexts.contexts.insert(name.clone(), context);
            let current = contexts.current.get_or_insert_with(|| name.clone());
            session
                .output
                .progress(&format!("context {name} is kept in {}; {current} is current", path.display()));
        }
        Command::Use(Named { name }) => {
            known(&contexts, &name)?;
            session.output.progress(&format!("{name} is current"));
            contexts.current = Some(name);
        }
        Command::Delete(Named { name }) => {
            known(&contexts, &name)?;
            contexts.contexts.remove(&name);
            contexts.current = contexts.current.filter(|current| *current != name);
            session.output.progress(&format!("context {name} is forgotten"));
        }
    }
    save(&path, &contexts)
}

fn known(contexts: &Contexts, name: &str) -> Result<(), Error> {
    if contexts.contexts.contains_key(name) {
        return Ok(());
    }
    Err(Error::NotFound { what: format!("context {name:?}"), hint: "slipway contexts list".to_owned() })
}

fn connection_in_the_open(context: &Context) -> bool {
    connection::parse(&context.api_url).is_ok_and(|url| {
        let token = context.token.clone().map(secrecy::SecretString::from);
        connection::in_the_open(&connection::Connection { url, token, tenant: None })
    })
}

fn set(session: &Session, command: &Set, before: Option<&Context>) -> Result<Context, Error> {
    let global = session.global();
    let api_url = global.api_url.clone().or_else(|| before.map(|context| context.api_url.clone()));
    let api_url = api_url.ok_or_else(|| Error::usage("a new context needs --api-url"))?;
    let url = connection::parse(&api_url)?;
    let token = if command.token_stdin {
        Some(read()?)
    } else {
        global.token.as_ref().map(|token| token.expose_secret().to_owned())
    };
    // A token was given for one address: it does not follow the context to another one.
    let same = |context: &&Context| connection::parse(&context.api_url).is_ok_and(|own| own == url);
    let token = token.or_else(|| before.filter(same).and_then(|context| context.token.clone()));
    let tenant = global.tenant.clone().or_else(|| before.and_then(|context| context.tenant.clone()));
    Ok(Context { api_url: url.to_string(), token, tenant })
}

fn read() -> Result<String, Error> {
    let mut text = String::new();
    let failed = |source| Error::File { action: "read the token from", path: "-".into(), source };
    std::io::stdin().take(LENGTH).read_to_string(&mut text).map_err(failed)?;
    let token = text.trim();
    if token.is_empty() { Err(Error::usage("no token on standard input")) } else { Ok(token.to_owned()) }
}

fn list(session: &Session, contexts: &Contexts) -> Result<(), Error> {
    let shown = shown(contexts);
    if shown.is_empty() {
        session
            .output
            .hint("no contexts: make one with `slipway contexts set NAME --api-url URL --token-stdin`");
    }
    session.output.show(
        &shown,
        |_| text(&shown),
        || shown.iter().map(|context| context.name.clone()).collect(),
    )
}

fn shown(contexts: &Contexts) -> Vec<Shown> {
    let current = contexts.current.as_deref();
    contexts
        .contexts
        .iter()
        .map(|(name, context)| Shown {
            name: name.clone(),
            current: current == Some(name),
            api_url: context.api_url.clone(),
            tenant: context.tenant.clone(),
            has_token: context.token.is_some(),
        })
        .collect()
}

fn text(contexts: &[Shown]) -> String {
    let rows = contexts.iter().map(|context| {
        let mark = if context.current { "*" } else { "" };
        let token = if context.has_token { "kept" } else { NONE };
        let tenant = context.tenant.clone().unwrap_or_else(|| NONE.to_owned());
        vec![mark.to_owned(), context.name.clone(), context.api_url.clone(), tenant, token.to_owned()]
    });
    table(&["CURRENT", "NAME", "API", "TENANT", "TOKEN"], rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_list_shows_no_token() {
        let context = |token: Option<&str>| Context {
            api_url: "https://a.example.com/".to_owned(),
            token: token.map(str::to_owned),
            tenant: token.map(|_| "acme".to_owned()),
        };
        let contexts = Contexts {
            current: Some("live".to_owned()),
            contexts: BTreeMap::from([
                ("dev".to_owned(), context(None)),
                ("live".to_owned(), context(Some("swordfish"))),
            ]),
        };
        let shown = shown(&contexts);
        let both = format!("{}\n\n{}", text(&shown), serde_json::to_string(&shown).unwrap());
        assert!(!both.contains("swordfish"));
        insta::assert_snapshot!(both);
    }
}
