//! How to connect to a database: one string for each protocol, with the password or with a place for it. Each is quoted by
//! the rules of what will read it.

use std::fmt::Write;

use domain::credentials::{HTTP_PASSWORD, PG_PASSWORD};
use serde::Serialize;

use super::text::clean;

/// What stands where the password of the `PostgreSQL` wire protocol goes.
const PG_PLACE: &str = "$QUESTDB_PG_PASSWORD";
/// What stands where the password of HTTP goes.
const HTTP_PLACE: &str = "$QUESTDB_HTTP_PASSWORD";

/// What is needed to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Host and port of HTTP.
    pub http: String,
    /// Host of the PostgreSQL wire protocol.
    pub pg_host: String,
    /// Its port.
    pub pg_port: String,
    /// Health, as a URL.
    pub health: String,
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
}

/// Users and passwords of a database.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Of the PostgreSQL wire protocol.
    pub pg_user: String,
    /// Its password.
    pub pg_password: String,
    /// Of HTTP.
    pub http_user: String,
    /// Its password.
    pub http_password: String,
}

/// Ready strings.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Strings {
    /// A shell command that opens psql.
    pub psql: String,
    /// A PostgreSQL URI.
    pub postgres_uri: String,
    /// The web console and REST.
    pub http: String,
    /// A shell command that asks over REST.
    pub curl: String,
    /// Configuration of a QuestDB client over QWP.
    pub qwp: String,
    /// Configuration of a QuestDB client that speaks ILP over HTTP.
    pub ilp_http: String,
    /// Health, without credentials.
    pub health: String,
    /// Environment of the usual clients.
    pub env: Vec<String>,
    /// Whether the password is in the strings.
    pub with_password: bool,
    /// Commands that put the passwords where the strings expect them.
    pub fetch_passwords: Vec<String>,
}

/// The user that a database is made with.
const USER: &str = "admin";

/// Makes the strings; without credentials they hold a place for the password.
pub fn strings(target: &Target, credentials: Option<&Credentials>) -> Strings {
    let Target { http, pg_host, pg_port, health, .. } = target;
    let Some(own) = credentials else { return places(target) };
    let conf = |scheme: &str| {
        format!(
            "{scheme}::addr={http};username={};password={};",
            configured(&own.http_user),
            configured(&own.http_password)
        )
    };
    let (user, password) = (shell(&own.pg_user), shell(&own.pg_password));
    Strings {
        psql: format!("PGPASSWORD={password} psql -h {pg_host} -p {pg_port} -U {user} -d qdb"),
        postgres_uri: format!(
            "postgresql://{}:{}@{pg_host}:{pg_port}/qdb",
            percent(&own.pg_user),
            percent(&own.pg_password)
        ),
        http: format!("http://{http}"),
        curl: format!(
            "curl -G -u {} --data-urlencode 'query=select 1' http://{http}/exec",
            shell(&format!("{}:{}", own.http_user, own.http_password))
        ),
        qwp: conf("ws"),
        ilp_http: conf("http"),
        health: health.clone(),
        env: vec![
            format!("export QDB_CLIENT_CONF={}", shell(&conf("ws"))),
            format!(
                "export PGHOST={pg_host} PGPORT={pg_port} PGUSER={user} PGDATABASE=qdb PGPASSWORD={password}"
            ),
        ],
        with_password: true,
        fetch_passwords: fetch(target),
    }
}

/// The strings with places for the passwords. The shell puts the variables' values in: nothing of them is quoted away.
fn places(target: &Target) -> Strings {
    let Target { http, pg_host, pg_port, health, .. } = target;
    let conf = |scheme: &str| format!("{scheme}::addr={http};username={USER};password={HTTP_PLACE};");
    Strings {
        psql: format!("PGPASSWORD=\"{PG_PLACE}\" psql -h {pg_host} -p {pg_port} -U {USER} -d qdb"),
        postgres_uri: format!("postgresql://{USER}:{PG_PLACE}@{pg_host}:{pg_port}/qdb"),
        http: format!("http://{http}"),
        curl: format!(
            "curl -G -u \"{USER}:{HTTP_PLACE}\" --data-urlencode 'query=select 1' http://{http}/exec"
        ),
        qwp: conf("ws"),
        ilp_http: conf("http"),
        health: health.clone(),
        env: vec![
            format!("export QDB_CLIENT_CONF=\"{}\"", conf("ws")),
            format!(
                "export PGHOST={pg_host} PGPORT={pg_port} PGUSER={USER} PGDATABASE=qdb PGPASSWORD=\"{PG_PLACE}\""
            ),
        ],
        with_password: false,
        fetch_passwords: fetch(target),
    }
}

/// Commands that put the passwords where the strings expect them.
fn fetch(target: &Target) -> Vec<String> {
    let of = format!("kubectl --namespace {} get secret {}", shell(&target.namespace), shell(&target.secret));
    [(PG_PLACE, PG_PASSWORD), (HTTP_PLACE, HTTP_PASSWORD)]
        .map(|(place, key)| {
            let variable = place.trim_start_matches('$');
            format!("export {variable}=\"$({of} --output go-template='{{{{index .data \"{key}\" | base64decode}}}}')\"")
        })
        .to_vec()
}

/// The strings for reading.
pub fn text(name: &str, strings: &Strings) -> String {
    let mut text = String::new();
    let mut line = |label: &str, value: &str| {
        let _ = writeln!(text, "{:16}{}", format!("{label}:"), clean(value));
    };
    line("Database", name);
    if !strings.with_password {
        for command in &strings.fetch_passwords {
            line("Password", command);
        }
    }
    line("psql", &strings.psql);
    line("PostgreSQL URI", &strings.postgres_uri);
    line("Console, REST", &strings.http);
    line("curl", &strings.curl);
    line("QWP client", &strings.qwp);
    line("ILP over HTTP", &strings.ilp_http);
    line("Health", &strings.health);
    for variable in &strings.env {
        line("Environment", variable);
    }
    text
}

/// A word for a POSIX shell.
pub fn shell(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:/@%+=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A value in a QuestDB client configuration.
fn configured(text: &str) -> String {
    text.replace(';', ";;")
}

/// A part of a URI.
fn percent(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        let host = "trades-33445566.eu-west-1.example.com";
        Target {
            http: format!("{host}:9000"),
            pg_host: host.to_owned(),
            pg_port: "8812".to_owned(),
            health: format!("http://{host}:9003/status"),
            namespace: "qdb-acme".to_owned(),
            secret: "trades-33445566-credentials".to_owned(),
        }
    }

    #[test]
    fn without_the_password() {
        insta::assert_snapshot!(text("trades", &strings(&target(), None)));
    }

    #[test]
    fn with_a_difficult_password() {
        let credentials = Credentials {
            pg_user: "admin".to_owned(),
            pg_password: "a'b;c d/é".to_owned(),
            http_user: "admin".to_owned(),
            http_password: "x;y'z".to_owned(),
        };
        insta::assert_snapshot!(text("trades", &strings(&target(), Some(&credentials))));
    }

    #[test]
    fn words_for_shells() {
        let table = [
            ("a-1.b", "a-1.b"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$x", "'$x'"),
            ("a;b", "'a;b'"),
        ];
        for (word, expected) in table {
            assert_eq!(shell(word), expected);
        }
    }
}
