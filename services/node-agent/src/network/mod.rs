//! An address for each node. With namespaces: one network namespace per node, joined to the host by a pair of virtual
//! links and routed, not bridged, so that a node can be cut off while its processes live on. With loopback: nothing.
//!
//! *Invariant:* everything made here carries the stack's id in its name or alias, so that it can be found and removed
//! without knowing which nodes there were. No setting of the host as a whole is changed.

mod command;
mod plan;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

pub use command::{Error, namespaces_of, remove_namespace, remove_stack, run};
pub use plan::{Names, create, cut, join, names, remove};

use crate::settings::{self, Settings};

/// The network of one node.
#[derive(Clone, Debug)]
pub struct NodeNetwork {
    names: Names,
    private: Ipv4Addr,
    kind: settings::Network,
    reach: String,
}

impl NodeNetwork {
    /// For an instance with this private address.
    pub fn new(settings: &Settings, instance: &str, private: Ipv4Addr) -> Self {
        Self {
            names: names(&settings.stack, instance),
            private,
            kind: settings.network,
            reach: settings.node_network.clone(),
        }
    }

    /// Where the node's processes answer.
    pub fn address(&self) -> IpAddr {
        match self.kind {
            settings::Network::Namespace => IpAddr::V4(self.private),
            settings::Network::Loopback => IpAddr::V4(settings::loopback(self.private)),
        }
    }

    /// The namespace as a path to enter, if there are namespaces.
    pub fn path(&self) -> Option<PathBuf> {
        (self.kind == settings::Network::Namespace)
            .then(|| PathBuf::from("/run/netns").join(&self.names.namespace))
    }

    /// Makes it, or leaves it as it is when it stands already.
    pub async fn ensure(&self) -> Result<(), Error> {
        if self.kind == settings::Network::Loopback || self.stands().await? {
            return Ok(());
        }
        self.remove().await?;
        run(&create(&self.names, self.private, &self.reach)).await
    }

    /// Cuts the node off, or lets it back.
    pub async fn set_isolated(&self, isolated: bool) -> Result<(), Error> {
        if self.kind == settings::Network::Loopback {
            return Ok(());
        }
        run(&if isolated { cut(&self.names) } else { join(&self.names, self.private) }).await
    }

    /// Takes it away. Processes in it must be gone.
    pub async fn remove(&self) -> Result<(), Error> {
        if self.kind == settings::Network::Loopback || !command::exists(&self.names.namespace) {
            return Ok(());
        }
        run(&remove(&self.names)).await
    }

    async fn stands(&self) -> Result<bool, Error> {
        if !command::exists(&self.names.namespace) {
            return Ok(false);
        }
        command::has_address(&self.names.namespace, self.private).await
    }
}
