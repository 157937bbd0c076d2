//! Where everything of a stack lies on disk. Only names paths; creates nothing.

use std::path::{Path, PathBuf};

/// The paths of one stack, all under its state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    checkout: PathBuf,
    state: PathBuf,
}

impl Layout {
    /// The stack of a checkout at a state directory (`.slipway` for `up`, `.slipway/test` for tests).
    pub fn new(checkout: impl Into<PathBuf>, state: impl Into<PathBuf>) -> Self {
        Self { checkout: checkout.into(), state: state.into() }
    }

    /// Root of the checkout.
    pub fn checkout(&self) -> &Path {
        &self.checkout
    }

    /// The state directory.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// What testkit and people read: addresses, tokens, clusters.
    pub fn stack_file(&self) -> PathBuf {
        self.state.join("stack.json")
    }

    /// Shell exports.
    pub fn env_file(&self) -> PathBuf {
        self.state.join("env")
    }

    /// Id, ports, network and secrets of the stack.
    pub fn identity_file(&self) -> PathBuf {
        self.state.join("identity.json")
    }

    /// The programs the supervisor runs.
    pub fn programs_file(&self) -> PathBuf {
        self.state.join("programs.json")
    }

    /// How the stack was the last time something changed.
    pub fn status_file(&self) -> PathBuf {
        self.state.join("status.json")
    }

    /// What happened to programs, a line each.
    pub fn events_file(&self) -> PathBuf {
        self.state.join("events.log")
    }

    /// Held by the one supervisor.
    pub fn supervisor_lock(&self) -> PathBuf {
        self.state.join("supervisor.lock")
    }

    /// Held by the one command that changes the stack.
    pub fn command_lock(&self) -> PathBuf {
        self.state.join("command.lock")
    }

    /// Logs of the programs.
    pub fn logs(&self) -> PathBuf {
        self.state.join("logs")
    }

    /// Log of one program or step.
    pub fn log(&self, name: &str) -> PathBuf {
        self.logs().join(format!("{name}.log"))
    }

    /// Records of running programs.
    pub fn pids(&self) -> PathBuf {
        self.state.join("pids")
    }

    /// The pid file of a program.
    pub fn pid_file(&self, name: &str) -> PathBuf {
        self.pids().join(format!("{name}.pid"))
    }

    /// The record of a program.
    pub fn record(&self, name: &str) -> PathBuf {
        self.pids().join(format!("{name}.json"))
    }

    /// Data of the servers.
    pub fn data(&self) -> PathBuf {
        self.state.join("data")
    }

    /// Files that configure the servers, written anew on each start.
    pub fn conf(&self) -> PathBuf {
        self.state.join("conf")
    }

    /// Kubeconfigs of people and tests.
    pub fn clusters(&self) -> PathBuf {
        self.state.join("clusters")
    }

    /// A cluster's kubeconfig for one of its users; `admin` has the plain name.
    pub fn kubeconfig(&self, cluster: &str, user: &str) -> PathBuf {
        match user {
            "admin" => self.clusters().join(format!("{cluster}.kubeconfig")),
            _ => self.clusters().join(format!("{cluster}.{user}.kubeconfig")),
        }
    }

    /// The folder in which the provisioner looks up credentials references.
    pub fn credentials(&self) -> PathBuf {
        self.state.join("credentials")
    }

    /// Serving certificate and service account key of a cluster.
    pub fn certificates(&self, cluster: &str) -> PathBuf {
        self.data().join(cluster).join("certificates")
    }

    /// Volumes and pods of a cluster's nodes.
    pub fn nodes(&self, cluster: &str) -> PathBuf {
        self.data().join(cluster).join("nodes")
    }

    /// What EBS snapshots hold: written by the AWS endpoint, read by node agents.
    pub fn snapshots(&self) -> PathBuf {
        self.data().join("aws").join("snapshots")
    }

    /// Pattern of the folders in which the agents of all clusters keep volumes.
    pub fn all_volumes(&self) -> String {
        let data = self.data().display().to_string();
        // A checkout may lie in a folder whose name looks like a pattern.
        let literal: String = data
            .chars()
            .map(|letter| match letter {
                '*' | '?' | '[' => format!("[{letter}]"),
                _ => letter.to_string(),
            })
            .collect();
        format!("{literal}/*/nodes/volumes")
    }

    /// Every folder that must exist before anything starts.
    pub fn folders(&self) -> Vec<PathBuf> {
        vec![self.logs(), self.pids(), self.data(), self.conf(), self.clusters(), self.credentials()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_of_every_cluster_are_one_pattern() {
        let layout = Layout::new("/c", "/c [1]/.slipway");
        assert_eq!(layout.all_volumes(), "/c [[]1]/.slipway/data/*/nodes/volumes");
        assert!(layout.nodes("eu").join("volumes").starts_with("/c [1]/.slipway/data/eu/nodes"));
    }
}
