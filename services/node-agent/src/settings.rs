//! What the agent is told at its start, as plain values. Reading flags and environment is the binary's business.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

/// Whether pods become processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A real QuestDB for each bound pod that has one.
    Process,
    /// No process at all: pods are running and ready at once.
    None,
}

/// How a node gets an address of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// A network namespace for each node, with the instance's private address. Needs root.
    Namespace,
    /// An address out of 127.0.0.0/8 derived from the private one.
    Loopback,
}

/// All settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cluster whose instances are ours, as in their tag.
    pub cluster: String,
    /// Region of the cluster.
    pub region: String,
    /// Short id of the stack, unique on this machine.
    pub stack: String,
    /// Whether pods become processes.
    pub mode: Mode,
    /// How nodes get addresses.
    pub network: Network,
    /// Everything the agent writes is below.
    pub data_dir: PathBuf,
    /// What EBS snapshots hold, a directory each; disks made from a snapshot begin with it.
    pub snapshots_dir: Option<PathBuf>,
    /// Directory with the QuestDB jar.
    pub questdb_lib: Option<PathBuf>,
    /// The `java` program.
    pub java: PathBuf,
    /// `-Xmx` of each QuestDB.
    pub heap: String,
    /// Addresses nodes may reach besides their own, like `10.250.0.0/16`.
    pub node_network: String,
    /// Time between two looks at EC2.
    pub poll: Duration,
    /// Time between two renewals of a node's lease.
    pub lease_renewal: Duration,
    /// First and longest pause before a crashed container is started again.
    pub crash_back_off: (Duration, Duration),
    /// Version the nodes report.
    pub kubelet_version: String,
    /// Control API of the AWS endpoint, which lists isolated instances.
    pub control_url: Option<String>,
}

impl Settings {
    /// The address at which an instance's pods answer.
    pub fn reachable_address(&self, private: Ipv4Addr) -> IpAddr {
        match self.network {
            Network::Namespace => IpAddr::V4(private),
            Network::Loopback => IpAddr::V4(loopback(private)),
        }
    }
}

/// 10.250.3.7 becomes 127.250.3.7: unique as long as the private addresses share their first byte.
pub fn loopback(private: Ipv4Addr) -> Ipv4Addr {
    let [_, second, third, fourth] = private.octets();
    Ipv4Addr::new(127, second, third, fourth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_keeps_the_host_part() {
        assert_eq!(loopback(Ipv4Addr::new(10, 250, 3, 7)), Ipv4Addr::new(127, 250, 3, 7));
    }
}
