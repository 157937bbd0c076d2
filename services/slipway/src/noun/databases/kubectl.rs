//! kubectl, for the one thing that the API never gives out: a database's password.

use std::path::Path;
use std::process::Stdio;

use domain::credentials::{HTTP_PASSWORD, HTTP_USER, PG_PASSWORD, PG_USER};
use tokio::process::Command;
use tokio::time::Instant;

use crate::error::Error;
use crate::render::connect::{Credentials, Target};

/// Asked for in this order, each on a line: no credential holds a line break.
const KEYS: [&str; 4] = [PG_USER, PG_PASSWORD, HTTP_USER, HTTP_PASSWORD];

/// How kubectl reaches a cluster.
#[derive(Debug, Clone, Copy)]
pub struct Kubectl<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its configuration: a file, or several joined by colons.
    pub kubeconfig: &'a Path,
    /// The context in it, if not its current one.
    pub context: Option<&'a str>,
}

/// Fetches the credentials of a database from its cluster.
pub async fn credentials(
    kubectl: Kubectl<'_>,
    target: &Target,
    deadline: Instant,
) -> Result<Credentials, Error> {
    let failed = |reason: String| Error::Kubectl { reason };
    let lines =
        KEYS.map(|key| format!("{{{{index .data \"{key}\" | base64decode}}}}{{{{\"\\n\"}}}}")).concat();
    let Kubectl { program, kubeconfig, context } = kubectl;
    let child = Command::new(program)
        // The argument of the same name takes one file only.
        .env("KUBECONFIG", kubeconfig)
        .args(context.map(|context| format!("--context={context}")))
        .args(["--namespace", &target.namespace, "get", "secret", &target.secret])
        .arg(format!("--output=go-template={lines}"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout_at(deadline, child)
        .await
        .map_err(|_| Error::TimedOut {
            doing: format!("{} got no answer from the cluster in time", program.display()),
            hint: String::new(),
        })?
        .map_err(|error| failed(format!("start {}: {error}", program.display())))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{} ended with {}: {}", program.display(), output.status, said.trim())));
    }
    parse(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| {
        let Target { namespace, secret, .. } = target;
        failed(format!("the Secret {namespace}/{secret} does not hold {}", KEYS.join(", ")))
    })
}

/// The credentials in the order of [`KEYS`].
fn parse(text: &str) -> Option<Credentials> {
    let mut lines = text.lines().filter(|line| !line.is_empty() && *line != "<no value>").map(str::to_owned);
    let credentials = Credentials {
        pg_user: lines.next()?,
        pg_password: lines.next()?,
        http_user: lines.next()?,
        http_password: lines.next()?,
    };
    lines.next().is_none().then_some(credentials)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_all_there_or_none_are() {
        let all = parse("admin\np;1\nweb\np 2\n").unwrap();
        assert_eq!((all.pg_user.as_str(), all.pg_password.as_str()), ("admin", "p;1"));
        assert_eq!((all.http_user.as_str(), all.http_password.as_str()), ("web", "p 2"));
        for text in ["", "a\nb\nc\n", "a\n<no value>\nc\nd\n", "a\n\nc\nd\n", "a\nb\nc\nd\ne\n"] {
            assert!(parse(text).is_none(), "{text:?}");
        }
    }
}
