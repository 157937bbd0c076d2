//! Handles to the running stack for tests: a fresh database, topic or namespace for each, and conditions to wait for.
//!
//! Development only: no program that ships may depend on it. It never starts the stack; `cargo xtask test` does. Only servers
//! that a test breaks are the test's own ([`postgres::Server`], [`kafka::Broker`]).

pub mod audit;
mod collector;
mod failpoint;
mod handling;
mod http;
pub mod kafka;
mod kubernetes;
pub mod load;
mod loud;
pub mod oracle;
mod ports;
pub mod postgres;
mod proxy;
mod random;
mod server;
pub mod spawned;
mod stopwatch;
mod streams;
pub mod telling;
mod wait;
mod watched;
mod wrong_clock;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub use collector::Collector;
pub use failpoint::Failpoint;
pub use handling::{Handled, Handlings, handlings, partitions};
pub use http::{Console, ec2_by_hand, http};
pub use kubernetes::{client, client_of_watches, temporary_namespace};
pub use loud::{Loud, programs};
pub use ports::free_address;
pub use postgres::{at_port, fresh_database, query};
pub use proxy::{Mode, Proxy};
pub use random::{Random, seed, setting};
pub use sandbox::stack::{ClusterFacts, StackFacts};
pub use server::{Out, Server};
pub use spawned::Spawned;
pub use stopwatch::Stopwatch;
pub use streams::Readers;
pub use wait::{at_full_length, eventually, eventually_there, how_long, lasting};
pub use watched::{Seen, Watched};
pub use wrong_clock::WrongClock;

/// The variable in which `cargo xtask test` passes the stack's state directory.
pub const STATE_VARIABLE: &str = "SLIPWAY_TEST_STATE";

/// The stack the tests run on.
///
/// # Panics
/// When there is none: the message says how to get one.
#[expect(clippy::panic, reason = "a test without its servers must fail at once and say why")]
pub fn stack() -> &'static StackFacts {
    static STACK: OnceLock<StackFacts> = OnceLock::new();
    STACK.get_or_init(|| match read_stack() {
        Ok(stack) => stack,
        Err(reason) => {
            panic!("{reason}; run these tests by `cargo xtask test`, which starts the servers they need")
        }
    })
}

#[expect(clippy::disallowed_methods, reason = "tests have no main to read their configuration in")]
fn read_stack() -> Result<StackFacts, String> {
    let state = std::env::var(STATE_VARIABLE).map_err(|error| format!("{STATE_VARIABLE}: {error}"))?;
    let file = Path::new(&state).join("stack.json");
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))
}

/// The cluster without controllers: nothing but the test moves what lies in it.
///
/// # Panics
/// When the stack has none.
pub fn bare_cluster() -> &'static ClusterFacts {
    stack().clusters.iter().find(|cluster| cluster.bare).expect("the test stack has a bare cluster")
}

/// A full cluster by name.
///
/// # Panics
/// When the stack has none of that name.
pub fn cluster(name: &str) -> &'static ClusterFacts {
    stack().clusters.iter().find(|cluster| cluster.name == name).expect("the test stack has this cluster")
}

/// The folder of what tests write for themselves: kubeconfigs, logs of their processes, marks of failpoints. It goes with the
/// stack.
///
/// # Panics
/// When there is no stack, or its disk is full.
#[expect(clippy::expect_used, reason = "a test without a place to write must fail at once and say why")]
pub fn scratch() -> PathBuf {
    let folder = stack().state_dir.join("scratch");
    std::fs::create_dir_all(&folder).expect("the stack's folder can be written to");
    folder
}

/// A name that no other test uses: a lower-case label with `prefix`.
pub fn unique(prefix: &str) -> String {
    let id = uuid::Uuid::now_v7().simple().to_string();
    format!("{prefix}-{}", &id[id.len() - 12..])
}
