//! Runs `ip`, with a deadline, and finds what belongs to a stack.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use tokio::process::Command;

use super::plan::{self, Step};

/// Longest wait for one `ip`.
const DEADLINE: Duration = Duration::from_secs(20);

/// A network that could not be made or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `ip` is not there, or cannot be run.
    #[error("cannot run ip")]
    Run(#[source] io::Error),
    /// It took too long.
    #[error("ip {words} took longer than {DEADLINE:?}")]
    Timeout {
        /// Its arguments.
        words: String,
    },
    /// It refused.
    #[error("ip {words} failed: {message}")]
    Refused {
        /// Its arguments.
        words: String,
        /// What it said.
        message: String,
    },
    /// A switch could not be set.
    #[error("cannot set {path}")]
    Set {
        /// Which.
        path: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// Does all steps, in order, up to the first that fails.
pub async fn run(steps: &[Step]) -> Result<(), Error> {
    for step in steps {
        match step {
            Step::Ip(words) => {
                ip(words).await?;
            }
            Step::Set(path, value) => {
                std::fs::write(path, value).map_err(|source| Error::Set { path: path.clone(), source })?;
            }
        }
    }
    Ok(())
}

/// Whether a namespace of that name is there.
pub(super) fn exists(namespace: &str) -> bool {
    Path::new("/run/netns").join(namespace).exists()
}

/// Whether the namespace holds a link with that address.
pub(super) async fn has_address(namespace: &str, address: Ipv4Addr) -> Result<bool, Error> {
    let words = ["-n", namespace, "-br", "addr", "show"].map(str::to_owned);
    match ip(&words).await {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            Ok(text.lines().any(|line| line.starts_with("eth0") && line.contains(&format!(" {address}/32"))))
        }
        // A namespace half made: it is made again.
        Err(Error::Refused { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The namespaces of a stack.
fn namespaces_of(stack: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&plan::prefix(stack))).collect()
}

/// Removes one namespace.
async fn remove_namespace(namespace: &str) -> Result<(), Error> {
    ip(&["netns".to_owned(), "delete".to_owned(), namespace.to_owned()]).await.map(|_| ())
}

/// Removes the namespaces and links of a stack. Returns how many.
pub async fn remove_stack(stack: &str) -> Result<usize, Error> {
    let mut removed = 0;
    for namespace in namespaces_of(stack) {
        remove_namespace(&namespace).await?;
        removed += 1;
    }
    // A link whose namespace never came to be, or was removed by hand.
    for link in links_of(stack).await? {
        match ip(&["link".to_owned(), "delete".to_owned(), link]).await {
            // It went with its namespace a moment ago.
            Err(Error::Refused { message, .. }) if message.contains("Cannot find device") => {}
            other => {
                other?;
                removed += 1;
            }
        }
    }
    Ok(removed)
}

async fn links_of(stack: &str) -> Result<Vec<String>, Error> {
    let output = ip(&["-o".to_owned(), "link".to_owned(), "show".to_owned()]).await?;
    Ok(links_with_alias(&String::from_utf8_lossy(&output.stdout), &plan::alias(stack)))
}

/// Names of links in the output of `ip -o link show` that have exactly this alias.
fn links_with_alias(output: &str, alias: &str) -> Vec<String> {
    let wanted = |line: &&str| {
        line.split_once("alias ").is_some_and(|(_, rest)| rest.split(['\\', ' ']).next() == Some(alias))
    };
    let name = |line: &str| Some(line.split_once(": ")?.1.split([':', '@']).next()?.to_owned());
    output.lines().filter(wanted).filter_map(name).collect()
}

async fn ip(words: &[String]) -> Result<Output, Error> {
    let mut command = Command::new("ip");
    command.args(words).stdin(std::process::Stdio::null()).kill_on_drop(true);
    let Ok(output) = tokio::time::timeout(DEADLINE, command.output()).await else {
        return Err(Error::Timeout { words: words.join(" ") });
    };
    let output = output.map_err(Error::Run)?;
    if output.status.success() {
        return Ok(output);
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Refused { words: words.join(" "), message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_by_their_whole_alias() {
        let output = "1: lo: <UP> mtu 1\\    link/loopback\n\
            7: swab@if2: <UP> mtu 1500 qdisc noqueue\\    link/ether aa link-netns x\\    alias slipway:t1\n\
            8: swcd@if2: <UP> mtu 1500\\    link/ether ab\\    alias slipway:t12\n";
        assert_eq!(links_with_alias(output, "slipway:t1"), ["swab"]);
        assert_eq!(links_with_alias(output, "slipway:t12"), ["swcd"]);
    }
}
