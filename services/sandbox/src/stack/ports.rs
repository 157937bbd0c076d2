//! The ports of a stack: which it needs, which are free, and that they stay the same.

use std::collections::BTreeMap;
use std::net::TcpListener;

use anyhow::bail;
use serde::{Deserialize, Serialize};

use super::Options;
use super::identity::random_below;

/// Below the range from which the kernel takes ports for outgoing connections.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// Ports by what they are for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports(pub BTreeMap<String, u16>);

impl Ports {
    /// What a stack needs ports for.
    pub fn names(options: &Options) -> Vec<String> {
        let fixed = ["kafka", "kafka-controller", "postgres", "aws", "api", "backend-ops", "provisioner-ops"];
        let mut names: Vec<String> = fixed.iter().map(ToString::to_string).collect();
        for cluster in &options.clusters {
            let each: &[&str] = if cluster.bare {
                &["etcd", "etcd-peer", "apiserver"]
            } else {
                &["etcd", "etcd-peer", "apiserver", "nodes-ops", "operator-ops"]
            };
            names.extend(each.iter().map(|what| format!("{}-{what}", cluster.name)));
        }
        names
    }

    /// The port of that name, which [`Ports::complete`] has provided.
    pub fn of(&self, name: &str) -> u16 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Adds what is missing and replaces what somebody else has taken. `ours` says whether a busy port is our own.
    pub fn complete(&mut self, names: &[String], ours: impl Fn(u16) -> bool) -> anyhow::Result<()> {
        for name in names {
            let kept = self.0.get(name).is_some_and(|port| ours(*port) || is_free(*port));
            if !kept {
                let port = self.find_free()?;
                self.0.insert(name.clone(), port);
            }
        }
        Ok(())
    }

    /// Ports of this stack on which something listens.
    pub fn busy(&self) -> Vec<(&str, u16)> {
        let pairs = self.0.iter().map(|(name, port)| (name.as_str(), *port));
        pairs.filter(|(_, port)| !is_free(*port)).collect()
    }

    fn find_free(&self) -> anyhow::Result<u16> {
        for _ in 0..500 {
            let port = FIRST + random_below(COUNT)?;
            if !self.0.values().any(|taken| *taken == port) && is_free(port) {
                return Ok(port);
            }
        }
        bail!("no free port between {FIRST} and {}", FIRST + COUNT)
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_stay_unless_somebody_else_took_them() {
        let names = Ports::names(&Options::for_integration());
        let mut ports = Ports::default();
        ports.complete(&names, |_| false).expect("there are free ports");
        assert_eq!(ports.0.len(), names.len());
        let before = ports.clone();

        let taken = TcpListener::bind(("127.0.0.1", ports.of("kafka"))).expect("it is free");
        assert_eq!(ports.busy(), [("kafka", before.of("kafka"))]);
        let mut kept = before.clone();
        kept.complete(&names, |port| port == before.of("kafka")).expect("there are free ports");
        assert_eq!(kept, before, "a port that is ours stays");
        ports.complete(&names, |_| false).expect("there are free ports");
        assert_ne!(ports.of("kafka"), before.of("kafka"), "a port that is another's is given up");
        assert_eq!(ports.of("postgres"), before.of("postgres"));
        drop(taken);
    }
}
