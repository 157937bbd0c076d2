//! The programs of a rig: started as they are in production, or so that they die or stand still at a place.

#![cfg(test)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::{Failpoint, Handlings, Spawned, eventually, handlings, spawned};

use crate::rig::{PARTITIONS, Rig};

/// All parts of a backend.
const ROLES: &str = "api,relay,sink";
/// A provisioner's first start.
const EARLIEST: [&str; 2] = ["--offset-reset", "earliest"];

/// What counts the work that a provisioner has in its hands.
const COUNTED: [&str; 3] = ["provisioner_in_flight", "provisioner_in_memory", "provisioner_cluster_calls"];
/// For how long nobody has anything of the kind to say once all has settled.
const QUIET: Duration = Duration::from_secs(2);
/// The same once something was said; longer than a member's session of six seconds.
const LONG_QUIET: Duration = Duration::from_secs(10);
/// How often somebody is listened to for that long.
const LISTENINGS: u32 = 3;

/// How long the last of it may take to be counted as done.
const AT_WORK: Duration = Duration::from_secs(20);

/// Variables beside the usual ones.
pub(crate) type Environment<'a> = &'a [(&'static str, &'a Path)];

/// Whichever is free when it is asked for: nobody calls there.
fn any_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

impl Rig {
    /// A backend in all its roles, at the address that the console knows.
    pub(crate) async fn backend(&self) -> Spawned {
        self.backend_with(ROLES, &[]).await
    }

    /// A backend at the address that the console knows, in some roles and with further arguments.
    pub(crate) async fn backend_with(&self, roles: &str, more: &[&str]) -> Spawned {
        let backend = self.backend_of((roles, self.api), more, &[], &[]);
        backend.ready().await;
        backend
    }

    /// A backend in some roles, at an address of its own.
    pub(crate) async fn second_backend(&self, roles: &str) -> Spawned {
        self.backend_failing_at(roles, &[]).await
    }

    /// The same; it dies or is held at these places.
    pub(crate) async fn backend_failing_at(&self, roles: &str, places: &[&Failpoint]) -> Spawned {
        let backend = self.backend_of((roles, any_address()), &[], places, &[]);
        backend.ready().await;
        backend
    }

    /// A sink at an address of its own, with further arguments.
    pub(crate) async fn sink(&self, more: &[&str]) -> Spawned {
        let sink = self.backend_of(("sink", any_address()), more, &[], &[]);
        sink.ready().await;
        sink
    }

    /// A backend in some roles in an environment of its own; where it has the API, that is what the console knows.
    pub(crate) fn backend_by(&self, roles: &str, environment: Environment<'_>) -> Spawned {
        let api = if roles.contains("api") { self.api } else { any_address() };
        self.backend_of((roles, api), &[], &[], environment)
    }

    fn backend_of(
        &self,
        (roles, api): (&str, SocketAddr),
        more: &[&str],
        places: &[&Failpoint],
        environment: Environment<'_>,
    ) -> Spawned {
        let api = api.to_string();
        let own = ["--api-listen", &api, "--roles", roles];
        let arguments = [&["serve"][..], &own, more].concat();
        let arguments = arguments.iter().map(ToString::to_string).chain(self.common());
        let arguments: Vec<String> = arguments.collect();
        Spawned::start_in("slipway-backend", &arguments, &self.folder, (places, environment)).unwrap()
    }

    /// A provisioner that is ready.
    pub(crate) async fn provisioner(&self) -> Spawned {
        self.provisioner_failing_at(&[]).await
    }

    /// A provisioner that is ready, and dies or is held at these places.
    pub(crate) async fn provisioner_failing_at(&self, places: &[&Failpoint]) -> Spawned {
        let provisioner = self.provisioner_of(&EARLIEST, places, &[]);
        provisioner.ready().await;
        provisioner
    }

    /// A provisioner with further arguments.
    pub(crate) fn provisioner_with(&self, more: &[&str]) -> Spawned {
        self.provisioner_of(more, &[], &[])
    }

    /// A provisioner in an environment of its own.
    pub(crate) fn provisioner_by(&self, environment: Environment<'_>) -> Spawned {
        self.provisioner_of(&EARLIEST, &[], environment)
    }

    fn provisioner_of(&self, more: &[&str], places: &[&Failpoint], environment: Environment<'_>) -> Spawned {
        let folder = self.folder.display().to_string();
        let own = ["--consumer-group", &self.group, "--credentials-dir", &folder, "--call-timeout", "3"];
        let arguments = [&own[..], &Handlings::ARGUMENTS, more].concat();
        let arguments = arguments.iter().map(ToString::to_string).chain(self.common());
        let arguments: Vec<String> = arguments.collect();
        Spawned::start_in("slipway-provisioner", &arguments, &self.folder, (places, environment)).unwrap()
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
        let file = self.connection.file.as_ref();
        let file = file.map(|file| ["--kafka-properties-file".to_owned(), file.display().to_string()]);
        common.iter().flatten().map(ToString::to_string).chain(file.into_iter().flatten()).collect()
    }

    /// Nobody panicked, and nobody had two records of one database in hand at once.
    pub(crate) fn nobody_went_wrong(&self) {
        let mut handled = 0;
        for (log, found) in self.handled() {
            let text = std::fs::read_to_string(&log).unwrap();
            let panics: Vec<&str> = text.lines().filter(|line| line.contains("panicked")).collect();
            assert!(panics.is_empty(), "{}: {panics:#?}", log.display());
            assert!(found.wrong.is_empty(), "{}: {:#?}", log.display(), found.wrong);
            handled += found.all.len();
        }
        assert!(handled > 0, "no provisioner tells what it handles");
    }

    /// At rest nobody has anything to complain about: whatever is said then would be said for ever. The last member to be started or
    /// killed may still have partitions moved, now or when its session ends, and a commit may be refused for it: so whoever was
    /// heard is listened to for longer, and is at fault if it never falls silent.
    pub(crate) async fn nobody_complains(&self) {
        let mut complaints = spawned::complaints(&self.logs(), QUIET).await;
        for _ in 0..LISTENINGS {
            if complaints.is_empty() {
                return;
            }
            complaints = spawned::complaints(&self.logs(), LONG_QUIET).await;
        }
        assert!(complaints.is_empty(), "at rest somebody says again and again: {complaints:#?}");
    }

    /// Nothing is open, so no provisioner that lives counts anything as being at work: what was counted once and never again
    /// would in the end stand in the way of all others.
    pub(crate) async fn nobody_is_busy(&self) {
        for log in self.logs() {
            let text = std::fs::read_to_string(&log).unwrap();
            let Some(address) = spawned::ops_address(&text) else { continue };
            let what = format!("{} to have nothing at work", log.display());
            eventually(AT_WORK, &what, async || {
                // For a dead one nobody answers.
                let metrics = spawned::metrics_at(address).await.unwrap_or_default();
                let busy: f64 = COUNTED.iter().map(|name| spawned::sum(&metrics, name, "")).sum();
                (busy == 0.0).then_some(())
            })
            .await;
        }
    }

    /// What each program's log says of the records that it had in its hands.
    pub(crate) fn handled(&self) -> impl Iterator<Item = (PathBuf, Handlings)> {
        self.logs().into_iter().map(|log| {
            let found = handlings(&std::fs::read_to_string(&log).unwrap());
            (log, found)
        })
    }

    fn logs(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.folder).unwrap().flatten();
        let is_log = |path: &PathBuf| path.extension() == Some(Path::new("log").as_os_str());
        entries.map(|entry| entry.path()).filter(is_log).collect()
    }
}
