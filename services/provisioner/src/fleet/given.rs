//! What a cluster's program for tokens gave last, and when it is asked again: nobody who makes a call waits for it.

use std::time::Duration;

use jiff::Timestamp;
use kubeconfig::{Credential, NoToken, Program};

use super::credentials::Credentials;

/// What the program gave last.
#[derive(Debug, Default)]
pub(super) struct Given(Option<Last>);

struct Last {
    /// The credentials that name the program.
    source: Vec<u8>,
    credential: Credential,
}

impl std::fmt::Debug for Last {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Last").field("credential", &self.credential).finish_non_exhaustive()
    }
}

impl Given {
    /// Puts what the program gives into the credentials that name it, if they name one; answers until when that holds, where the program
    /// says so. The program is run only if what it gave last is of no use any more: the credentials are others, its end is near, or the
    /// server has `refused` it. It has as long as `limit`.
    pub(super) async fn put_into(
        &mut self,
        credentials: &mut Credentials,
        refused: bool,
        limit: Duration,
    ) -> Result<Option<Timestamp>, NoToken> {
        let Some(program) = Program::of(&credentials.kubeconfig)? else { return Ok(None) };
        // Taken, so that a run that fails or is given up is followed by another one.
        let last = self.0.take().filter(|last| !refused && last.source == credentials.source);
        let credential = match last.filter(|last| last.credential.lasts(Timestamp::now())) {
            Some(last) => last.credential,
            None => program.run(limit).await?,
        };
        let (source, until) = (credentials.source.clone(), credential.until());
        credential.put_into(&mut credentials.kubeconfig);
        credentials.source.push(0);
        credentials.source.extend(credential.content());
        self.0 = Some(Last { source, credential });
        Ok(until)
    }
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// Credentials whose token is given by a line of a shell.
    fn with_program(line: &str) -> Credentials {
        let user = serde_json::json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", line],
            "env": [{"name": "TOKEN", "value": "swordfish"}], "interactiveMode": "Never",
        }});
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
            "users": [{"name": "a", "user": user}],
        });
        let text = config.to_string();
        let kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
        Credentials { source: text.into_bytes(), kubeconfig }
    }

    #[tokio::test]
    async fn a_program_for_tokens_that_fails_is_not_repeated_in_the_error() {
        for (line, expected) in [
            ("echo swordfish; echo swordfish >&2; exit 3", "exit status: 3"),
            ("echo '{\"token\": \"swordfish\"'", "something else than a credential"),
            ("echo swordfish", "something else than a credential"),
        ] {
            let mut given = Given::default();
            let error = given.put_into(&mut with_program(line), false, LONG).await.unwrap_err();
            let (told, shown) = (crate::classify::chain(&error), format!("{error:?}"));
            assert!(!told.contains("swordfish") && !shown.contains("swordfish"), "{line}\n{told}\n{shown}");
            assert!(told.contains(expected) && told.contains("by hand"), "{told}");
        }
    }

    /// Each run gives another token.
    #[tokio::test]
    async fn a_program_for_tokens_is_asked_again_only_when_what_it_gave_is_of_no_use() {
        let runs = std::env::temp_dir().join(format!("provisioner-runs-{}", std::process::id()));
        let line = |end: &str| {
            format!(
                "echo >> '{0}'; echo '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":{{{end}\"token\":\"'$(wc -l < '{0}')'\"}}}}'",
                runs.display()
            )
        };
        let endless = line("");
        let far = line("\"expirationTimestamp\":\"2999-01-01T00:00:00Z\",");
        let over = line("\"expirationTimestamp\":\"2020-01-01T00:00:00Z\",");
        let mut given = Given::default();
        for (line, refused, expected) in [
            (&endless, false, "1"),
            (&endless, false, "1"),
            (&endless, true, "2"),
            (&endless, false, "2"),
            // Other credentials.
            (&far, false, "3"),
            (&far, false, "3"),
            (&over, false, "4"),
            (&over, false, "5"),
        ] {
            let mut credentials = with_program(line);
            given.put_into(&mut credentials, refused, LONG).await.unwrap();
            let whole = [line_source(line), vec![0], expected.as_bytes().to_vec()].concat();
            assert_eq!(credentials.source, whole, "{line} {refused}");
        }
        std::fs::remove_file(&runs).unwrap();
    }

    fn line_source(line: &str) -> Vec<u8> {
        with_program(line).source
    }
}
