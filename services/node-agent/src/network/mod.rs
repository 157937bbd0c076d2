//! An address for each node. With namespaces: one network namespace per node, joined to the host by a pair of virtual
//! links and routed, not bridged, so that a node can be cut off while its processes live on. With loopback: nothing.
//!
//! *Invariant:* everything made here carries the stack's id in its name or alias, so that it can be found and removed
//! without knowing which nodes there were. No setting of the host as a whole is changed.

mod command;
mod plan;

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

pub use command::{Error, remove_stack, run};
pub use plan::{Names, create, cut, join, names, remove};

use crate::settings::{self, Settings};

/// Where networks are noted, for all clusters that share a data directory.
pub fn notes_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("networks")
}

fn notes_of(settings: &Settings) -> PathBuf {
    notes_dir(&settings.data_dir).join(&settings.cluster)
}

/// The network of one node.
#[derive(Clone, Debug)]
pub struct NodeNetwork {
    names: Names,
    private: Ipv4Addr,
    kind: settings::Network,
    reach: String,
    /// Says which instance it was made for, to an agent that comes later.
    note: PathBuf,
}

impl NodeNetwork {
    /// For an instance with this private address.
    pub fn new(settings: &Settings, instance: &str, private: Ipv4Addr) -> Self {
        Self {
            names: names(&settings.stack, instance),
            private,
            kind: settings.network,
            reach: settings.node_network.clone(),
            note: notes_of(settings).join(instance),
        }
    }

    /// Instances of this cluster for which a network was made and not removed.
    pub fn noted(settings: &Settings) -> Vec<String> {
        let entries = std::fs::read_dir(notes_of(settings)).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// What is left of an instance that is gone, to be removed.
    pub fn leftover(settings: &Settings, instance: &str) -> Self {
        Self::new(settings, instance, Ipv4Addr::UNSPECIFIED)
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
        let failed = |source| Error::Set { path: self.note.display().to_string(), source };
        std::fs::create_dir_all(self.note.parent().unwrap_or(&self.note)).map_err(failed)?;
        std::fs::write(&self.note, &self.names.namespace).map_err(failed)?;
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
        if self.kind == settings::Network::Loopback {
            return Ok(());
        }
        if command::exists(&self.names.namespace) {
            run(&remove(&self.names)).await?;
        }
        let _ = std::fs::remove_file(&self.note);
        Ok(())
    }

    async fn stands(&self) -> Result<bool, Error> {
        if !command::exists(&self.names.namespace) {
            return Ok(false);
        }
        command::has_address(&self.names.namespace, self.private).await
    }
}
