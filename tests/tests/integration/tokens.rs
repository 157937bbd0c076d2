//! Programs for tokens, as kubeconfigs name them.

#![cfg(test)]

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::eventually;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_mins(3);

/// Gives the token in a file, without an end; without the file it fails, with words that nobody is to repeat.
pub(crate) const PROGRAM: &str = r#"token=$(cat "$0") || { echo swordfish; echo swordfish >&2; exit 3; }
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}' "$token"
"#;

/// Gives a token whose time is over at once. While a file is there it hangs, as a shell whose child does; both leave their numbers in
/// it. One that is taken away meanwhile is not made again.
pub(crate) const HANGS_LATER: &str = r#"if [ -e "$0" ]; then
tail --pid=$PPID -f /dev/null &
echo $$ $! | dd of="$0" conv=nocreat,notrunc oflag=append status=none 2>/dev/null
wait; fi
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"one","expirationTimestamp":"2020-01-01T00:00:00Z"}}'
"#;

/// Lasts as long as whoever asks it for a token.
pub(crate) const HANGS: &str = "exec tail --pid=$PPID -f /dev/null";

/// A kubeconfig of one user with a shell for the token.
pub(crate) fn with_program(kubeconfig: &str, arguments: &[&str]) -> String {
    let mut config: Value = serde_json::from_str(kubeconfig).unwrap();
    config["users"][0]["user"] = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": arguments,
        "interactiveMode": "Never",
    }});
    config.to_string()
}

/// The numbers of all processes that hung, once there were so many runs.
pub(crate) async fn hung(file: &Path, runs: usize) -> Vec<String> {
    eventually(PATIENCE, &format!("{runs} runs that hang"), async || {
        let numbers = std::fs::read_to_string(file).unwrap();
        let numbers = Some(numbers).filter(|numbers| numbers.lines().count() >= runs)?;
        Some(numbers.split_whitespace().map(str::to_owned).collect())
    })
    .await
}

/// How many of these processes have not ended.
pub(crate) fn living(numbers: &[String]) -> usize {
    let line = |number: &String| std::fs::read(format!("/proc/{number}/cmdline"));
    numbers.iter().filter(|number| line(number).is_ok_and(|line| !line.is_empty())).count()
}
