//! What a program for tokens gave last, and when it is asked again: nobody who makes a call waits for it.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::config::Kubeconfig;

use crate::{Credential, NoToken, Program};

/// Between two runs for the end of what is given: a program whose tokens are over as it gives them, by our clock at least, is not run at
/// each look.
const APART: Duration = Duration::from_secs(10);

/// What the program gave last.
#[derive(Debug, Default)]
pub struct Given(Option<Last>);

struct Last {
    /// The bytes of the kubeconfig that names the program.
    source: Vec<u8>,
    credential: Credential,
    /// When it was given, by the clock that its end is told by, and by one that nobody sets.
    given: (Timestamp, Instant),
}

impl Last {
    fn new(source: Vec<u8>, credential: Credential) -> Self {
        Self { source, credential, given: (Timestamp::now(), Instant::now()) }
    }

    /// Whether the program is not to be run for its end, as long after it was given.
    fn is_of_use(&self, now: Timestamp, age: Duration) -> bool {
        age < APART || self.credential.lasts(self.given.0, now)
    }
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
    /// `refused` it; for its end no more often than every ten seconds. It has as long as `limit`.
    pub async fn put_into(
        &mut self,
        (source, kubeconfig): (&mut Vec<u8>, &mut Kubeconfig),
        refused: bool,
        limit: Duration,
    ) -> Result<Option<Timestamp>, NoToken> {
        let Some(program) = Program::of(kubeconfig)? else { return Ok(None) };
        // Taken, so that a run that fails or is given up is followed by another one.
        let last = self.0.take().filter(|last| !refused && last.source == *source);
        let last = match last.filter(|last| last.is_of_use(Timestamp::now(), last.given.1.elapsed())) {
            Some(last) => last,
            None => Last::new(source.clone(), program.run(limit).await?),
        };
        last.credential.put_into(kubeconfig);
        source.push(0);
        source.extend(last.credential.content());
        let until = last.credential.until();
        self.0 = Some(last);
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
            // Not at each look.
            (&over, false, "4"),
            (&over, true, "5"),
        ] {
            let (mut source, mut kubeconfig) = (line.as_bytes().to_vec(), kubeconfig(line, &json!({})));
            given.put_into((&mut source, &mut kubeconfig), refused, LONG).await.unwrap();
            let whole = [line.as_bytes(), &[0_u8][..], expected.as_bytes()].concat();
            assert_eq!(source, whole, "{line} {refused}");
            assert!(Program::of(&kubeconfig).unwrap().is_none(), "clients made of it run none");
        }
        std::fs::remove_file(&runs).unwrap();
    }

    #[test]
    fn what_is_over_as_it_is_given_is_asked_for_again_after_a_while() {
        let given: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let last = |until: &str| {
            let printed = json!({
                "apiVersion": "client.authentication.k8s.io/v1",
                "status": { "token": "a", "expirationTimestamp": until },
            });
            let credential = Credential::parse("a", printed.to_string().as_bytes()).unwrap();
            Last { given: (given, Instant::now()), ..Last::new(Vec::new(), credential) }
        };
        for (until, after) in [
            ("2029-12-31T23:00:00Z", 10),
            ("2030-01-01T00:00:05Z", 10),
            ("2030-01-01T00:00:50Z", 25),
            ("2030-01-01T00:10:00Z", 540),
        ] {
            let last = last(until);
            let due = |age: &u64| {
                let age = Duration::from_secs(*age);
                !last.is_of_use(given + age, age)
            };
            assert_eq!((0..1000).find(due), Some(after), "{until}");
        }
    }
}
