//! What a program for tokens gave last, and when it is asked again: nobody who makes a call waits for it.

use std::time::Duration;

use jiff::Timestamp;
use kube::config::Kubeconfig;

use crate::{Credential, NoToken, Program};

/// What the program gave last.
#[derive(Debug, Default)]
pub struct Given(Option<Last>);

struct Last {
    /// The bytes of the kubeconfig that names the program.
    source: Vec<u8>,
    credential: Credential,
}

impl std::fmt::Debug for Last {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Last").field("credential", &self.credential).finish_non_exhaustive()
    }
}

impl Given {
    /// Puts what the program gives into the kubeconfig that names it, if it names one, and behind the bytes that the kubeconfig comes
    /// from: other bytes are other credentials. Answers until when that holds, where the program says so.
    ///
    /// The program is run only if what it gave last is of no use any more: the bytes are others, its end is near, or the server has
    /// `refused` it. It has as long as `limit`.
    pub async fn put_into(
        &mut self,
        (source, kubeconfig): (&mut Vec<u8>, &mut Kubeconfig),
        refused: bool,
        limit: Duration,
    ) -> Result<Option<Timestamp>, NoToken> {
        let Some(program) = Program::of(kubeconfig)? else { return Ok(None) };
        // Taken, so that a run that fails or is given up is followed by another one.
        let last = self.0.take().filter(|last| !refused && last.source == *source);
        let credential = match last.filter(|last| last.credential.lasts(Timestamp::now())) {
            Some(last) => last.credential,
            None => program.run(limit).await?,
        };
        let (named, until) = (source.clone(), credential.until());
        credential.put_into(kubeconfig);
        source.push(0);
        source.extend(credential.content());
        self.0 = Some(Last { source: named, credential });
        Ok(until)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::kubeconfig;

    const LONG: Duration = Duration::from_secs(20);

    /// Each run gives another token.
    #[tokio::test]
    async fn a_program_for_tokens_is_asked_again_only_when_what_it_gave_is_of_no_use() {
        let runs = std::env::temp_dir().join(format!("kubeconfig-runs-{}", std::process::id()));
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
            // Another kubeconfig.
            (&far, false, "3"),
            (&far, false, "3"),
            (&over, false, "4"),
            (&over, false, "5"),
        ] {
            let (mut source, mut kubeconfig) = (line.as_bytes().to_vec(), kubeconfig(line, &json!({})));
            given.put_into((&mut source, &mut kubeconfig), refused, LONG).await.unwrap();
            let whole = [line.as_bytes(), &[0_u8][..], expected.as_bytes()].concat();
            assert_eq!(source, whole, "{line} {refused}");
            assert!(Program::of(&kubeconfig).unwrap().is_none(), "clients made of it run none");
        }
        std::fs::remove_file(&runs).unwrap();
    }
}
