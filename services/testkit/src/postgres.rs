//! A database of Postgres for one test; and, for tests that break them, servers of the test's own.

mod server;
mod session;

use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::process::Command;

pub use server::{Server, url_of};
pub use session::Session;

const LIMIT: Duration = Duration::from_secs(30);

/// Makes an empty database and gives its URL. It goes with the test stack.
///
/// # Errors
/// When Postgres refuses or does not answer in time.
pub async fn fresh_database() -> anyhow::Result<String> {
    let url = &crate::stack().database_url;
    let name = crate::unique("test").replace('-', "_");
    query(url, &format!("CREATE DATABASE {name}")).await?;
    with_database(url, &name)
}

/// Runs a statement through psql, as a person would, and gives its output: one row a line, columns parted by `|`.
///
/// # Errors
/// When Postgres refuses or does not answer in time.
pub async fn query(url: &str, statement: &str) -> anyhow::Result<String> {
    let psql = Command::new(crate::stack().postgres_bin.join("psql"))
        .args([
            "--quiet",
            "--no-psqlrc",
            "--tuples-only",
            "--no-align",
            "--dbname",
            url,
            "--command",
            statement,
        ])
        .output();
    let output = tokio::time::timeout(LIMIT, psql).await.context("psql did not end in time")??;
    ensure!(output.status.success(), "psql: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// The same database by way of another port, such as a proxy's; and the address it is reached at otherwise.
///
/// # Errors
/// When the URL has no address in it.
pub fn at_port(url: &str, port: u16) -> anyhow::Result<(String, std::net::SocketAddr)> {
    let (user, rest) = url.rsplit_once('@').context("the database URL has no user in it")?;
    let (address, database) = rest.split_once('/').context("the database URL has no database in it")?;
    let server: std::net::SocketAddr = address.parse().context("the database URL has no address in it")?;
    Ok((format!("{user}@{}:{port}/{database}", server.ip()), server))
}

/// The same server, another database.
fn with_database(url: &str, name: &str) -> anyhow::Result<String> {
    let (base, query) = url.split_once('?').map_or((url, None), |(base, query)| (base, Some(query)));
    let (server, _) = base.rsplit_once('/').context("the database URL has no database in it")?;
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    Ok(format!("{server}/{name}{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_database_changes() {
        let table = [
            ("postgres://u:p@127.0.0.1:5/slipway", "postgres://u:p@127.0.0.1:5/t"),
            ("postgres://u@h/slipway?sslmode=disable", "postgres://u@h/t?sslmode=disable"),
        ];
        for (url, expected) in table {
            assert_eq!(with_database(url, "t").unwrap(), expected);
        }
        assert!(with_database("nonsense", "t").is_err());
    }

    #[test]
    fn only_the_port_changes() {
        let (url, server) = at_port("postgres://u:p@127.0.0.1:5/slipway?a=b", 9).unwrap();
        assert_eq!(url, "postgres://u:p@127.0.0.1:9/slipway?a=b");
        assert_eq!(server.port(), 5);
        assert!(at_port("nonsense", 9).is_err());
    }
}
