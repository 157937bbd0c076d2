//! The programs of a rig: started as they are in production, or so that they die or stand still at a place.

#![cfg(test)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use testkit::{Failpoint, Handlings, Spawned, handlings};

use crate::rig::{PARTITIONS, Rig};

/// All parts of a backend.
const ROLES: &str = "api,relay,sink";

impl Rig {
    /// A backend in all its roles, at the address that the console knows.
    pub(crate) async fn backend(&self) -> Spawned {
        self.backend_with(ROLES, &[]).await
    }

    /// A backend at the address that the console knows, in some roles and with further arguments.
    pub(crate) async fn backend_with(&self, roles: &str, more: &[&str]) -> Spawned {
        let backend = self.backend_of((roles, self.api), more, &[]);
        backend.ready().await;
        backend
    }

    /// A backend in some roles, at an address of its own.
    pub(crate) async fn second_backend(&self, roles: &str) -> Spawned {
        self.backend_failing_at(roles, &[]).await
    }

    /// The same; it dies or is held at these places.
    pub(crate) async fn backend_failing_at(&self, roles: &str, places: &[&Failpoint]) -> Spawned {
        let backend = self.backend_of((roles, testkit::free_address().unwrap()), &[], places);
        backend.ready().await;
        backend
    }

    fn backend_of(&self, (roles, api): (&str, SocketAddr), more: &[&str], places: &[&Failpoint]) -> Spawned {
        let api = api.to_string();
        let own = ["--api-listen", &api, "--roles", roles];
        let arguments = [&["serve"][..], &own, more].concat();
        let arguments = arguments.iter().map(ToString::to_string).chain(self.common());
        let arguments: Vec<String> = arguments.collect();
        Spawned::start_failing_at("slipway-backend", &arguments, &self.folder, places).unwrap()
    }

    /// A provisioner that is ready.
    pub(crate) async fn provisioner(&self) -> Spawned {
        self.provisioner_failing_at(&[]).await
    }

    /// A provisioner that is ready, and dies or is held at these places.
    pub(crate) async fn provisioner_failing_at(&self, places: &[&Failpoint]) -> Spawned {
        let provisioner = self.provisioner_of(&["--offset-reset", "earliest"], places);
        provisioner.ready().await;
        provisioner
    }

    /// A provisioner with further arguments.
    pub(crate) fn provisioner_with(&self, more: &[&str]) -> Spawned {
        self.provisioner_of(more, &[])
    }

    fn provisioner_of(&self, more: &[&str], places: &[&Failpoint]) -> Spawned {
        let folder = self.folder.display().to_string();
        let own = ["--consumer-group", &self.group, "--credentials-dir", &folder, "--call-timeout", "3"];
        let arguments = [&own[..], &Handlings::ARGUMENTS, more].concat();
        let arguments = arguments.iter().map(ToString::to_string).chain(self.common());
        let arguments: Vec<String> = arguments.collect();
        Spawned::start_failing_at("slipway-provisioner", &arguments, &self.folder, places).unwrap()
    }

    /// Where the servers are.
    fn common(&self) -> Vec<String> {
        let partitions = PARTITIONS.to_string();
        let common = [
            ["--database-url", &self.programs_url],
            ["--kafka-bootstrap", &self.connection.bootstrap],
            ["--instructions-topic", &self.instructions],
            ["--gossip-topic", &self.gossip],
            ["--topic-partitions", &partitions],
        ];
        common.iter().flatten().map(ToString::to_string).collect()
    }

    /// Nobody panicked, and nobody had two records of one database in hand at once.
    pub(crate) fn nobody_went_wrong(&self) {
        let mut handled = 0;
        for log in self.logs() {
            let text = std::fs::read_to_string(&log).unwrap();
            let panics: Vec<&str> = text.lines().filter(|line| line.contains("panicked")).collect();
            assert!(panics.is_empty(), "{}: {panics:#?}", log.display());
            let found = handlings(&text);
            assert!(found.wrong.is_empty(), "{}: {:#?}", log.display(), found.wrong);
            handled += found.all.len();
        }
        assert!(handled > 0, "no provisioner tells what it handles");
    }

    fn logs(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.folder).unwrap().flatten();
        let is_log = |path: &PathBuf| path.extension() == Some(Path::new("log").as_os_str());
        entries.map(|entry| entry.path()).filter(is_log).collect()
    }
}
