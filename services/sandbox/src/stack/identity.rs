//! What makes a stack this stack: its id, ports, network and secrets. Made once, kept for its life.

use std::fs;
use std::io::Read;
use std::process::Command;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::{Layout, Network, Options, Ports, files, network};
use crate::process::{self, write_whole};
use crate::supervisor;

/// Identity of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Short, unique on this machine; part of the names of network namespaces and links.
    pub id: String,
    /// Addresses of its machines.
    pub network: Network,
    /// Its ports.
    pub ports: Ports,
    /// Its passwords and tokens.
    pub secrets: Secrets,
    /// Kafka's id of the cluster: 16 bytes in base64 for URLs.
    pub kafka_cluster: String,
}

/// Passwords and tokens of the servers of a stack, good for this stack only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secrets {
    /// Of the Postgres user.
    pub postgres: String,
    /// Prefix of the tokens of the clusters' users.
    pub clusters: String,
}

impl Identity {
    /// Reads the identity of a stack or makes one, then provides every port that is needed.
    pub fn provide(layout: &Layout, options: &Options) -> anyhow::Result<Self> {
        let path = layout.identity_file();
        let mut identity = match fs::read_to_string(&path) {
            Ok(text) => {
                serde_json::from_str(&text).with_context(|| format!("understanding {}", path.display()))?
            }
            Err(_) => Self::make()?,
        };
        // A busy port is our own while a process of this stack runs; replacing it would break what runs.
        let running = supervisor::records(layout).iter().any(|record| record.process.is_alive());
        identity.ports.complete(&Ports::names(options), |_| running)?;
        write_whole(&path, &serde_json::to_string_pretty(&identity)?)?;
        files::only_owner(&path)?;
        Ok(identity)
    }

    /// Reads the identity of a stack, if it has one.
    pub fn read(layout: &Layout) -> Option<Self> {
        serde_json::from_str(&fs::read_to_string(layout.identity_file()).ok()?).ok()
    }

    /// The Kubernetes token of a user of a cluster.
    pub fn token(&self, cluster: &str, user: &str) -> String {
        format!("{}-{cluster}-{user}", self.secrets.clusters)
    }

    fn make() -> anyhow::Result<Self> {
        // Routes cannot be read without iproute2; then the marks of other stacks have to do.
        let output = Command::new("ip").arg("route").output();
        let routes =
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let taken = process::values_in_use(network::MARKER);
        let start = u8::try_from(random_below(16)?).unwrap_or_default();
        Ok(Self {
            id: random_text(5, b"abcdefghijkmnpqrstuvwxyz23456789")?,
            network: Network::choose(&routes, &taken, start)?,
            ports: Ports::default(),
            secrets: Secrets {
                postgres: random_text(24, ALPHANUMERIC)?,
                clusters: random_text(24, ALPHANUMERIC)?,
            },
            // 16 bytes take 22 characters; the last holds two bits, so it is one of four.
            kafka_cluster: random_text(21, ALPHANUMERIC)? + &random_text(1, b"AQgw")?,
        })
    }

    #[cfg(test)]
    pub(super) fn fixed(id: &str, ports: Ports) -> Self {
        Self {
            id: id.to_owned(),
            network: Network { index: 1 },
            ports,
            secrets: Secrets { postgres: "secret".to_owned(), clusters: "token".to_owned() },
            kafka_cluster: "AAAAAAAAAAAAAAAAAAAAAA".to_owned(),
        }
    }
}

const ALPHANUMERIC: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// A random number below a bound.
pub(super) fn random_below(bound: u16) -> anyhow::Result<u16> {
    let mut bytes = [0; 4];
    fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("reading random bytes")?;
    let number = u32::from_le_bytes(bytes) % u32::from(bound);
    u16::try_from(number).context("a remainder is below its bound")
}

fn random_text(length: usize, alphabet: &[u8]) -> anyhow::Result<String> {
    let bound = u16::try_from(alphabet.len())?;
    (0..length).map(|_| Ok(char::from(alphabet[usize::from(random_below(bound)?)]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_differ_and_have_the_right_form() {
        let (one, other) = (Identity::make().expect("made"), Identity::make().expect("made"));
        assert_ne!((&one.id, &one.secrets), (&other.id, &other.secrets));
        assert_eq!(one.id.len(), 5);
        assert_eq!(one.kafka_cluster.len(), 22);
        assert_ne!(one.token("eu-west-1", "admin"), one.token("eu-west-1", "operator"));
    }
}
