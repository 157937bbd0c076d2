//! `databases connect`: how to reach a database, with its password where that is asked for.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use wire::http::Database;

use super::kubectl::{self, Kubectl};
use crate::error::Error;
use crate::render;
use crate::render::connect::{Credentials, Target, strings, text};
use crate::session::{REQUEST, Session};

/// `databases connect`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway databases connect trades
  slipway databases connect trades --kubeconfig ~/.kube/eu-west-1
  slipway databases connect trades --kubeconfig ~/.kube/eu-west-1 --psql
  slipway databases connect trades --kubeconfig ~/.kube/eu-west-1 -o json | jq -r .postgres_uri

The API never gives out a password: it lies in a Secret beside the database. Without --kubeconfig the
strings hold a place for it, and the command that fetches it is shown.")]
pub struct Connect {
    /// Name or id
    database: String,
    /// Fetch the password by kubectl with this configuration, and put it into the strings; several
    /// files are joined by colons
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the database's cluster in it [default: its current context]
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    kube_context: Option<String>,
    /// The kubectl to use
    #[arg(long, value_name = "PROGRAM", default_value = "kubectl")]
    kubectl: PathBuf,
    /// Use the address of the database's machine instead of its DNS name
    #[arg(long)]
    by_address: bool,
    /// Open psql instead of showing strings
    #[arg(long, requires = "kubeconfig")]
    psql: bool,
}

/// Shows how to connect, or connects.
pub(super) async fn connect(session: &Session, command: Connect) -> Result<(), Error> {
    let Connect { database, kubeconfig, kube_context, kubectl, by_address, psql } = command;
    let client = session.client(REQUEST)?;
    let database = client.find_database(&database).await?;
    let target = target(&database, by_address)?;
    let credentials = match &kubeconfig {
        Some(kubeconfig) => {
            let kubectl =
                Kubectl { program: &kubectl, kubeconfig: Some(kubeconfig), context: kube_context.as_deref() };
            Some(kubectl::credentials(kubectl, &target, session.deadline(REQUEST)).await?)
        }
        None => None,
    };
    if let (true, Some(credentials)) = (psql, &credentials) {
        return Err(open(&target, credentials));
    }
    let status = render::databases::status(&database);
    if status != "Ready" {
        session.output.warn(&format!("{} is {status}, not Ready", database.name));
    }
    let strings = strings(&target, credentials.as_ref());
    session.output.show(
        &strings,
        |_| text(&database.name, &strings),
        || vec![render::databases::name(&database)],
    )
}

/// Where a database is. Pure.
fn target(database: &Database, by_address: bool) -> Result<Target, Error> {
    let not_ready =
        || Error::NotReady { name: database.name.clone(), status: render::databases::status(database) };
    let observed = database.observed.as_ref().ok_or_else(not_ready)?;
    let endpoints = observed.endpoints.as_ref().ok_or_else(not_ready)?;
    let node = observed.node.as_ref().filter(|_| by_address);
    if by_address && node.is_none() {
        return Err(not_ready());
    }
    let at = |text: &str| match node {
        Some(node) => text.replace(&database.hostname, &node.address),
        None => text.to_owned(),
    };
    let postgres = bare(&at(&endpoints.postgres));
    let (pg_host, pg_port) = postgres.rsplit_once(':').ok_or_else(not_ready)?;
    Ok(Target {
        http: bare(&at(&endpoints.http)),
        pg_host: pg_host.to_owned(),
        pg_port: pg_port.to_owned(),
        health: at(&endpoints.health),
        namespace: observed.namespace.clone(),
        secret: observed.credentials_secret.clone(),
    })
}

/// Host and port of a URL or of what is just that.
fn bare(address: &str) -> String {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest).to_owned()
}

/// Becomes psql; comes back only with the reason why not.
fn open(target: &Target, credentials: &Credentials) -> Error {
    let error = Command::new("psql")
        .args(["-h", &target.pg_host, "-p", &target.pg_port, "-U", &credentials.pg_user, "-d", "qdb"])
        .env("PGPASSWORD", &credentials.pg_password)
        .exec();
    Error::Kubectl { reason: format!("start psql: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn addresses_come_with_or_without_a_scheme() {
        for address in ["http://a:9000", "http://a:9000/", "a:9000", "tcp://a:9000/x/y"] {
            assert_eq!(bare(address), "a:9000");
        }
    }

    #[test]
    fn the_machines_address_stands_in_for_a_name_that_nobody_resolves() {
        let mut database = fixture::database();
        let observed = database.observed.as_mut().unwrap();
        let address = observed.node.as_ref().unwrap().address.clone();
        observed.endpoints.as_mut().unwrap().postgres = format!("postgres://{}:8812/qdb", database.hostname);
        let found = target(&database, true).unwrap();
        assert_eq!((found.pg_host.as_str(), found.pg_port.as_str()), (address.as_str(), "8812"));
        assert!(found.http.starts_with(&format!("{address}:")), "{}", found.http);
        database.observed.as_mut().unwrap().node = None;
        assert!(matches!(target(&database, true), Err(Error::NotReady { .. })));
    }

    #[test]
    fn a_database_without_addresses_cannot_be_connected_to() {
        let mut database = fixture::database();
        assert_eq!(target(&database, false).unwrap().pg_port, "8812");
        database.observed.as_mut().unwrap().endpoints = None;
        assert!(matches!(target(&database, false), Err(Error::NotReady { .. })));
        database.observed = None;
        assert!(
            matches!(target(&database, false), Err(Error::NotReady { status, .. }) if status == "Pending")
        );
    }
}
