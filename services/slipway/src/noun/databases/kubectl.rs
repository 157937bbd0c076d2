//! kubectl, for what the API never gives out or does: a database's password, and a question to its operator.

use std::path::Path;
use std::process::Stdio;

use domain::credentials::{HTTP_PASSWORD, HTTP_USER, PG_PASSWORD, PG_USER};
use tokio::io::AsyncWriteExt as _;
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
    /// Its configuration: a file, or several joined by colons; its own choice if there is none.
    pub kubeconfig: Option<&'a Path>,
    /// The context in it, if not its current one.
    pub context: Option<&'a str>,
}

impl Kubectl<'_> {
    /// Runs it and gives what it printed. What has an input is a write, which an interrupt at the terminal does not break off.
    pub async fn run(
        self,
        words: &[&str],
        input: Option<String>,
        deadline: Instant,
    ) -> Result<String, Error> {
        let program = self.program.display();
        let failed = |reason: String| Error::Kubectl { reason };
        let start = |error: std::io::Error| failed(format!("start {program}: {error}"));
        let mut command = Command::new(self.program);
        command
            .args(self.context.map(|context| format!("--context={context}")))
            .args(words)
            .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        // The argument of the same name takes one file only.
        command.envs(self.kubeconfig.map(|files| ("KUBECONFIG", files)));
        if input.is_some() {
            command.process_group(0);
        }
        let mut child = command.spawn().map_err(start)?;
        let ended = async {
            if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
                // Why it does not read is said by how it ends.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
            child.wait_with_output().await
        };
        let output = tokio::time::timeout_at(deadline, ended)
            .await
            .map_err(|_| Error::TimedOut {
                doing: format!("{program} got no answer from the cluster in time"),
                hint: String::new(),
            })?
            .map_err(start)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(refused(format!("{program} ended with {}: {}", output.status, said.trim())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// What the API server's refusal means, by the word that kubectl puts into brackets.
fn refused(reason: String) -> Error {
    if reason.contains("(NotFound)") {
        let hint = "is this the cluster of the database? See --kubeconfig and --kube-context".to_owned();
        Error::NotFound { what: format!("what kubectl was asked for ({reason})"), hint }
    } else if reason.contains("(Conflict)") {
        Error::Conflict { message: reason, hint: "run the command again".to_owned() }
    } else if reason.contains("(Forbidden)") || reason.contains("(Unauthorized)") {
        Error::Forbidden { reason }
    } else {
        Error::Kubectl { reason }
    }
}

/// Fetches the credentials of a database from its cluster.
pub async fn credentials(
    kubectl: Kubectl<'_>,
    target: &Target,
    deadline: Instant,
) -> Result<Credentials, Error> {
    let lines =
        KEYS.map(|key| format!("{{{{index .data \"{key}\" | base64decode}}}}{{{{\"\\n\"}}}}")).concat();
    let Target { namespace, secret, .. } = target;
    let template = format!("--output=go-template={lines}");
    let words = ["--namespace", namespace, "get", "secret", secret, &template];
    let text = kubectl.run(&words, None, deadline).await?;
    parse(&text).ok_or_else(|| Error::Kubectl {
        reason: format!("the Secret {namespace}/{secret} does not hold {}", KEYS.join(", ")),
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

    #[test]
    fn what_the_api_server_refused_is_told_apart() {
        let code = |said: &str| crate::exit::code(&refused(format!("kubectl ended with 1: {said}")));
        let table = [
            ("Error from server (NotFound): questdbs.crd.questdb.io \"a\" not found", 3),
            ("Error from server (Forbidden): questdbs.crd.questdb.io \"a\" is forbidden", 4),
            ("error: You must be logged in to the server (Unauthorized)", 4),
            ("Error from server (Conflict): the object has been modified", 5),
            ("The connection to the server 127.0.0.1:1 was refused", 1),
        ];
        for (said, expected) in table {
            assert_eq!(code(said), expected, "{said}");
        }
    }
}
